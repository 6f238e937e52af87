r"""What the reports of all experiments share: rows of results, files, and panels with a line per row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phgcn.files import write_json, write_text
from phgcn.report.style import save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("png", "svg")
Row = dict[str, Any]
Style = dict[str, Any]  # of what matplotlib draws


def chosen(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """Selects the rows with these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def names(rows: Iterable[Row], *keys: str) -> list[Any]:
    """Returns the values of a key, or tuples of several keys, each once, in the order they come."""
    if len(keys) == 1:
        return list(dict.fromkeys(row[keys[0]] for row in rows))
    return list(dict.fromkeys(tuple(row[key] for key in keys) for row in rows))


def page(title: str, lines: Iterable[str]) -> str:
    """Makes a page of Markdown."""
    return "\n".join([f"# {title}", "", *lines]) + "\n"


def write_results(
    out: Path,
    name: str,
    content: Any,
    title: str,
    lines: Iterable[str],
    figures: Mapping[str, Figure],
) -> list[str]:
    """Writes the JSON, a page of Markdown, and the figures, by the suffix of their name, as PNG and
    SVG; returns the paths of all files.
    """
    write_json(out / f"{name}.json", content)
    write_text(out / f"{name}.md", page(title, lines))
    files = [out / f"{name}.json", out / f"{name}.md"]
    for suffix, figure in figures.items():
        files += [save(figure, out / f"{name}{suffix}.{kind}") for kind in KINDS]
    return list(map(str, files))


def label_rows(axis: Axes, labels: Sequence[str], title: str, xlabel: str) -> None:
    """Makes a panel of horizontal lines, the first on top, each with its label on the left."""
    axis.set_yticks(range(len(labels)), labels, fontsize=8)
    axis.set_ylim(len(labels) - 0.5, -0.5)
    axis.grid(axis="x", linewidth=0.4, alpha=0.5)
    axis.set_title(title, fontsize=10)
    axis.set_xlabel(xlabel, fontsize=8)
