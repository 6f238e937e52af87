r"""The results of :mod:`phgcn_lab.scaling`: fitted exponents, tables as Markdown, and a figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from phgcn.report.style import COLOURS, headline, panels

from .markdown import table
from .results import Row, Style, chosen, names, write_results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RANGE = 30
"""An exponent is fitted to the largest size of a method and those down to this part of it: below,
fixed costs show.
"""
WHAT = {"forward": "forward", "step": "with gradients", "bytes": "memory with gradients"}


def write(folder: Path, name: str, content: Row) -> list[str]:
    lines, figures = [content["note"], "", *table_lines(content)], {"": draw(content)}
    return write_results(folder, name, content, title_of(content), lines, figures)


def title_of(content: Row) -> str:
    effort, device = content["effort"], content["provenance"]["device"]
    return f"Attention to N points, D = {effort['dim']}, C = {effort['channels']}, on {device}"


# Numbers


def series(rows: Sequence[Row], method: str, cloud: str, what: str) -> dict[int, float]:
    """Seconds or bytes by the number of points, ascending."""
    kind, value = ("step", "bytes") if what == "bytes" else (what, "median")
    line = chosen(rows, method=method, cloud=cloud, kind=kind)
    return dict(sorted((row["count"], row[value]) for row in line if row[value]))


def fits(rows: Sequence[Row]) -> list[Row]:
    """Fits :math:`a N^b` for every method, cloud and measure, by least squares of logarithms."""
    lines = []
    for method, cloud in names(rows, "method", "cloud"):
        for what in WHAT:
            values = series(rows, method, cloud, what)
            used = [size for size in values if size * RANGE >= max(values)]
            if len(used) < 2:
                continue
            logarithms = np.log(used), np.log([values[size] for size in used])
            exponent, offset = np.polyfit(*logarithms, 1)
            about = {"method": method, "cloud": cloud, "what": what}
            about |= {"from": used[0], "to": used[-1]}
            lines.append({**about, "exponent": float(exponent), "factor": math.exp(offset)})
    return lines


def exponent_of(content: Row, method: str, cloud: str, what: str) -> str:
    """The exponent, with a star where it comes from two sizes; or nothing."""
    found = chosen(content["fits"], method=method, cloud=cloud, what=what)
    if not found:
        return ""
    sizes = series(content["rows"], method, cloud, what)
    used = sum(found[0]["from"] <= size <= found[0]["to"] for size in sizes)
    return f"{found[0]['exponent']:.2f}" + ("*" if used == 2 else "")


# The table


def table_lines(content: Row) -> list[str]:
    rows = [
        [method, cloud, *(growth(content, method, cloud, what) for what in WHAT)]
        for method, cloud in names(content["rows"], "method", "cloud")
    ]
    return table(["method", "cloud", *WHAT.values()], rows)


def growth(content: Row, method: str, cloud: str, what: str) -> str:
    """Says by which exponent of the number of points a measure grows, and what it is at most."""
    exponent = exponent_of(content, method, cloud, what)
    if not exponent:
        return "-"
    size, value = list(series(content["rows"], method, cloud, what).items())[-1]
    scaled, unit = (value / 1e6, "MB") if what == "bytes" else (1000 * value, "ms")
    shown = f"{scaled:,.0f}" if scaled >= 100 else f"{scaled:.3g}"
    return f"{exponent}, {shown} {unit} at {size:,}"


# The figure


def draw(content: Row) -> Figure:
    """Time above and memory below, a panel for each cloud, both axes logarithmic."""
    clouds = content["effort"]["clouds"]
    figure, axes = panels(2 * len(clouds), columns=len(clouds), width=4.6, height=4.2)
    for number, cloud in enumerate(clouds):
        for axis, kinds, unit in (
            (axes[number], ("forward", "step"), "seconds"),
            (axes[len(clouds) + number], ("bytes",), "bytes beyond the input"),
        ):
            for line, method in enumerate(names(content["rows"], "method")):
                for what in kinds:
                    _draw_series(axis, content, method, cloud, what, COLOURS[line % len(COLOURS)])
            axis.set(xscale="log", yscale="log", xlabel="points", ylabel=unit, title=cloud)
            if axis.lines:
                axis.legend(frameon=False, fontsize=6.5)
    headline(figure, f"{title_of(content)}; solid: forward, dashed: with gradients")
    return figure


def _draw_series(axis: Axes, content: Row, method: str, cloud: str, what: str, colour: str) -> None:
    rows = content["rows"]
    if not (values := series(rows, method, cloud, what)):
        # what does not depend on the cloud is measured on the first
        cloud = chosen(rows, method=method)[0]["cloud"]
        values = series(rows, method, cloud, what)
    exponent = exponent_of(content, method, cloud, what).rstrip("*")
    label = f"{method}, gradients" if what == "step" else method
    label += f": $N^{{{exponent}}}$" if exponent else ""
    style: Style = {"color": colour, "marker": "o", "markersize": 3, "linewidth": 1.2}
    style["linestyle"] = "--" if what == "step" else "-"
    if values:
        axis.plot(list(values), list(values.values()), label=label, **style)
