r"""Colours, grids of panels and saving, for all figures."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import is_stream, replacing
from .fonts import label, use_fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#666666")
PANEL = 3.0  # inches
LETTERS = 11  # letters of a title per inch
UNLABELLED_COLOUR = "#cccccc"


def colours(count: int) -> list[str]:
    """Returns one colour per class; up to eight, colour-blind readers can tell them apart."""
    if count <= len(COLOURS):
        return list(COLOURS[:count])
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["turbo"](number / (count - 1))) for number in range(count)]


def panels(
    count: int, columns: int = 4, width: float = PANEL, height: float = PANEL
) -> tuple[Figure, list[Axes]]:
    """Makes a figure of panels, ``columns`` to a row, of ``width`` x ``height`` inches each."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        get = "pip install 'phgcn[plot]'"
        raise ValueError(f"phgcn plot needs the package matplotlib: {get}") from None
    columns = min(count, columns)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(columns * width, rows * height + 0.6), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for spare in grid[count:]:
        spare.remove()
    for axis in grid[:count]:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, grid[:count]


def few_ticks(axis: Axes) -> None:
    """Draws few enough numbers along the axes of a small panel that they do not overlap."""
    axis.locator_params(nbins=4)
    axis.tick_params(labelsize=7)


def say_instead(text: str, title: str) -> Figure:
    """Makes a figure with one line that says why there is nothing to draw."""
    figure, (axis,) = panels(1, width=5.0, height=1.4)
    axis.set_axis_off()
    axis.text(0.5, 0.5, label(text), ha="center", va="center", fontsize=10)
    headline(figure, title)
    return figure


def legend(figure: Figure, entries: list[tuple[str, str]]) -> None:
    """Adds one legend of names and colours below the panels."""
    from matplotlib.lines import Line2D

    dot: dict[str, Any] = {"marker": "o", "linestyle": ""}
    marks = [Line2D([], [], color=colour, label=label(name), **dot) for name, colour in entries]
    columns = min(max(len(entries), 1), 8)
    figure.legend(handles=marks, loc="outside lower center", ncols=columns, frameon=False)


def headline(figure: Figure, text: str) -> None:
    """Adds a title over all panels, wrapped to their width."""
    figure.suptitle(textwrap.fill(label(text), int(LETTERS * figure.get_figwidth())), fontsize=11)


def save(figure: Figure, path: Path) -> Path:
    """Writes a figure under a temporary name and renames it; returns the path."""
    file_format = path.suffix[1:] or ("png" if is_stream(path) else "")
    if file_format not in FORMATS:
        raise ValueError(f"format is {file_format!r}; allowed: {', '.join(FORMATS)}")
    use_fonts(figure)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130, format=file_format)
    return path
