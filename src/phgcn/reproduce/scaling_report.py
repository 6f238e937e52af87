r"""The results of :mod:`phgcn.reproduce.scaling`: fitted exponents, tables as Markdown, and a figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files import write_json, write_text
from ..report.style import COLOURS, headline, panels, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RANGE = 30
"""An exponent is fitted to the largest size of a method and those down to this part of it: below, fixed costs show."""
WHAT = {"forward": "forward", "step": "forward and gradients", "bytes": "memory of forward and gradients"}
STYLES = {"forward": "-", "step": "--", "bytes": "-"}


def write(folder: Path, name: str, content: dict[str, Any]) -> list[Path]:
    """Writes the JSON, the tables and the figure."""
    write_json(folder / f"{name}.json", content)
    write_text(folder / f"{name}.md", markdown(content))
    figure = draw(content)
    drawn = [save(figure, folder / f"{name}.{kind}") for kind in ("png", "svg")]
    return [folder / f"{name}.json", folder / f"{name}.md", *drawn]


# Numbers


def series(rows: Sequence[dict[str, Any]], method: str, cloud: str, what: str) -> tuple[list[int], list[float]]:
    """Selects one line of the figure: sizes, and seconds or bytes."""
    kind, value = ("step", "bytes") if what == "bytes" else (what, "median")
    line = (method, cloud, kind)
    points = sorted(
        (row["count"], row[value]) for row in rows if (row["method"], row["cloud"], row["kind"]) == line and row[value]
    )
    return [count for count, _ in points], [measured for _, measured in points]


def fits(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    r"""Fits :math:`a N^b` for every method, cloud and measure, by least squares of logarithms; :math:`b` is the exponent."""
    lines = []
    for method, cloud in dict.fromkeys((row["method"], row["cloud"]) for row in rows):
        for what in WHAT:
            sizes, values = series(rows, method, cloud, what)
            used = [place for place, count in enumerate(sizes) if count * RANGE >= sizes[-1]]
            if len(used) < 2:
                continue
            exponent, offset = np.polyfit(np.log([sizes[k] for k in used]), np.log([values[k] for k in used]), 1)
            about = {"method": method, "cloud": cloud, "what": what, "from": sizes[used[0]], "to": sizes[-1]}
            lines.append({**about, "exponent": float(exponent), "factor": math.exp(offset)})
    return lines


# Tables


def headings(content: dict[str, Any]) -> tuple[str, ...]:
    return ("method", "cloud", *(f"{count:,}" for count in content["effort"]["sizes"]), "exponent")


def table_rows(content: dict[str, Any], what: str) -> list[tuple[str, ...]]:
    """Returns the cells of a table: a row for each method and cloud, a column for each size, and the exponent."""
    lines = []
    for method, cloud in dict.fromkeys((row["method"], row["cloud"]) for row in content["rows"]):
        sizes, values = series(content["rows"], method, cloud, what)
        if not sizes:
            continue
        cells = dict(zip(sizes, values, strict=True))
        shown = [_shown(cells[count], what) if count in cells else "" for count in content["effort"]["sizes"]]
        fit = next(
            (fit for fit in content["fits"] if (fit["method"], fit["cloud"], fit["what"]) == (method, cloud, what)), None
        )
        lines.append((method, cloud, *shown, f"{fit['exponent']:.2f}" if fit else ""))
    return lines


def _shown(value: float, what: str) -> str:
    """Milliseconds or megabytes, with about three digits."""
    scaled = value / 1e6 if what == "bytes" else 1000 * value
    return f"{scaled:,.0f}" if scaled >= 100 else f"{scaled:.3g}"


def markdown(content: dict[str, Any]) -> str:
    about, effort = content["provenance"], content["effort"]
    lines = ["# Time and memory of attention by the number of points", ""]
    lines += [
        f"D = {effort['dim']}, C = {effort['channels']}, float32, on {about['device']} ({about['machine']}, {about['threads']} "
        f"threads). Medians of up to {effort['rounds']} interleaved rounds after a call to warm up; the lattice is built anew "
        f"in every call. Exponents are fitted to the largest size of a method and those down to 1/{RANGE} of it. A method "
        f"stops where a call would take more than {effort['longest']:g} s; the exact sums do not depend on the cloud."
    ]
    lines += ["", content["note"]] if content["note"] else []
    for what, title in WHAT.items():
        lines += ["", f"## {title[0].upper()}{title[1:]}, {'MB' if what == 'bytes' else 'ms'}", ""]
        top = headings(content)
        lines += ["| " + " | ".join(line) + " |" for line in (top, ("---",) * len(top), *table_rows(content, what))]
    lines += [""] + [f"{name} did not run: {why}" for name, why in content["missing"].items()]
    return "\n".join([*lines, f"`{about['command']}`, commit {about['commit']}, {about['date']}"]) + "\n"


# The figure


def draw(content: dict[str, Any]) -> Figure:
    """Time above and memory below, a panel for each cloud, both axes logarithmic, with the exponents in the legend."""
    clouds = content["effort"]["clouds"]
    figure, axes = panels(2 * len(clouds), columns=len(clouds), width=4.6, height=4.2)
    names = list(dict.fromkeys(row["method"] for row in content["rows"]))
    for place, cloud in enumerate(clouds):
        for axis, kinds in ((axes[place], ("forward", "step")), (axes[len(clouds) + place], ("bytes",))):
            for number, method in enumerate(names):
                for what in kinds:
                    _draw_series(axis, content, method, cloud, what, COLOURS[number % len(COLOURS)])
            unit = "bytes beyond the input" if kinds == ("bytes",) else "seconds"
            axis.set(xscale="log", yscale="log", xlabel="points", ylabel=unit, title=cloud)
            if axis.lines:
                axis.legend(frameon=False, fontsize=6.5)
    effort, device = content["effort"], content["provenance"]["device"]
    title = f"Attention to N points, D = {effort['dim']}, C = {effort['channels']}, on {device}"
    headline(figure, f"{title}; solid: forward, dashed: with gradients")
    return figure


def _draw_series(axis: Axes, content: dict[str, Any], method: str, cloud: str, what: str, colour: str) -> None:
    first = next(row["cloud"] for row in content["rows"] if row["method"] == method)
    for source in (cloud, first):  # what does not depend on the cloud is measured on the first
        sizes, values = series(content["rows"], method, source, what)
        if sizes:
            break
    else:
        return
    key = (method, source, what)
    fit = next((fit for fit in content["fits"] if (fit["method"], fit["cloud"], fit["what"]) == key), None)
    label = f"{method}{', gradients' if what == 'step' else ''}" + (f": $N^{{{fit['exponent']:.2f}}}$" if fit else "")
    axis.plot(sizes, values, STYLES[what], color=colour, marker="o", markersize=3, linewidth=1.2, label=label)
