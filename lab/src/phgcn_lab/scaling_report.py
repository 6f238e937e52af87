r"""The results of :mod:`phgcn_lab.scaling`: fitted exponents, tables as Markdown, and a figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from phgcn.report.style import COLOURS, legend, panels

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


UNITS = {"forward": "seconds", "step": "seconds", "bytes": "bytes beyond the input"}


def draw(content: Row) -> Figure:
    """Draws a row of panels for each measure and a column for each cloud, axes logarithmic, with
    lines of slope 1 and 2 beside the methods.
    """
    clouds, columns = content["effort"]["clouds"], len(content["effort"]["clouds"])
    methods = names(content["rows"], "method")
    width = 8.2 / columns
    figure, axes = panels(len(WHAT) * columns, columns=columns, width=width, height=2.1)
    for number, (axis, (what, cloud)) in enumerate(zip(axes, product(WHAT, clouds), strict=True)):
        for method, colour in zip(methods, COLOURS, strict=False):
            _draw_series(axis, content, method, cloud, what, colour)
        row_of = axes[columns * (number // columns)]
        if axis is not row_of:
            axis.sharey(row_of)
        axis.set(xscale="log", yscale="log")
        axis.set_title(f"{WHAT[what]}, {cloud}", fontsize=9)
        axis.set_xlabel("points" if what == "bytes" else "", fontsize=8)
        axis.set_ylabel(UNITS[what] if axis is row_of else "", fontsize=8)
        axis.tick_params(labelsize=8)
    for axis in axes:
        _draw_slopes(axis)
    legend(figure, list(zip(methods, COLOURS, strict=False)))
    return figure


def _draw_slopes(axis: Axes) -> None:
    """Draws dotted lines that grow as N and as its square through the lower left corner."""
    if not axis.lines:
        return
    (left, right), (low, high) = axis.get_xlim(), axis.get_ylim()
    for power, name in ((1, "N"), (2, "N²")):
        end = min(right, left * (high / low) ** (1 / power))
        top = low * (end / left) ** power
        axis.plot([left, end], [low, top], ":", color="#999999", linewidth=1, zorder=0)
        place: Style = {
            "xytext": (-3, -3),
            "textcoords": "offset points",
            "ha": "right",
            "va": "top",
        }
        axis.annotate(name, (end, top), fontsize=8, color="#777777", **place)
    axis.set(xlim=(left, right), ylim=(low, high))


def _draw_series(axis: Axes, content: Row, method: str, cloud: str, what: str, colour: str) -> None:
    rows = content["rows"]
    if not (values := series(rows, method, cloud, what)):
        # what does not depend on the cloud is measured on the first
        cloud = chosen(rows, method=method)[0]["cloud"]
        values = series(rows, method, cloud, what)
    style: Style = {"color": colour, "marker": "o", "markersize": 3, "linewidth": 1.4}
    axis.plot(list(values), list(values.values()), **style)
