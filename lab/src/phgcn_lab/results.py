r"""What the reports of all experiments share: rows of results, files, and a figure of dots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from phgcn.files import write_json, write_text
from phgcn.report.style import COLOURS, panels, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("png", "svg")
Row = dict[str, Any]
Style = dict[str, Any]  # of what matplotlib draws


def chosen(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def names(rows: Iterable[Row], *keys: str) -> list[Any]:
    """Returns the values of a key, or tuples of several keys, each once, in their order."""
    if len(keys) == 1:
        return list(dict.fromkeys(row[keys[0]] for row in rows))
    return list(dict.fromkeys(tuple(row[key] for key in keys) for row in rows))


def page(title: str, lines: Iterable[str]) -> str:
    return "\n".join([f"# {title}", "", *lines]) + "\n"


def write_results(
    out: Path,
    name: str,
    content: Any,
    title: str,
    lines: Iterable[str],
    figures: Mapping[str, Figure],
) -> list[str]:
    """Writes JSON, Markdown and figures, by the suffix of their name; returns all paths."""
    write_json(out / f"{name}.json", content)
    write_text(out / f"{name}.md", page(title, lines))
    files = [out / f"{name}.json", out / f"{name}.md"]
    for suffix, figure in figures.items():
        files += [save(figure, out / f"{name}{suffix}.{kind}") for kind in KINDS]
    return list(map(str, files))


class Dot(NamedTuple):
    """A value with its range, on the line of its label."""

    label: str
    value: float
    low: float
    high: float
    colour: str = COLOURS[0]
    filled: bool = True


def dots(shown: Mapping[tuple[str, str], Sequence[Dot]], columns: int, width: float) -> Figure:
    """Draws a panel for each title and unit: a line for each label, with its dots and ranges."""
    labels = {panel: list(dict.fromkeys(dot.label for dot in of)) for panel, of in shown.items()}
    height = 0.28 * max(map(len, labels.values())) + 1.0
    figure, axes = panels(len(shown), columns=columns, width=width, height=height)
    same = len(set(map(tuple, labels.values()))) == 1  # then the first column names the lines
    for index, (axis, (panel, of_panel)) in enumerate(zip(axes, shown.items(), strict=True)):
        for line, label in enumerate(labels[panel]):
            of_line = [dot for dot in of_panel if dot.label == label]
            for number, dot in enumerate(of_line):
                place = line + 0.15 * (number - (len(of_line) - 1) / 2)
                face = dot.colour if dot.filled else "none"
                style: Style = {"color": dot.colour, "markerfacecolor": face, "markersize": 5}
                axis.plot([dot.low, dot.high], [place, place], color=dot.colour, linewidth=1.5)
                axis.plot(dot.value, place, "o" if dot.filled else "d", **style)
        named = labels[panel] if index % columns == 0 or not same else [""] * len(labels[panel])
        axis.set_yticks(range(len(labels[panel])), named, fontsize=8)
        axis.set_ylim(len(labels[panel]) - 0.5, -0.5)
        axis.grid(axis="x", linewidth=0.4, alpha=0.5)
        axis.set_title(panel[0], fontsize=9)
        axis.set_xlabel(panel[1], fontsize=8)
        axis.tick_params(labelsize=8)
    return figure
