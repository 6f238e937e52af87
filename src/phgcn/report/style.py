"""The look of all figures: colours of classes and nodes, fonts for texts in any script, panels,
saving."""

from __future__ import annotations

import math
import textwrap
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..data.labels import labelled, task_of
from ..files import is_stream, replacing
from ..text import amount, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#666666")
PANEL = 3.0  # inches
LETTERS = 11  # letters of a title per inch
MOST_LETTERS = 30  # of a name in a legend
# letters of a legend per inch, and those whose room its dot and the gap take
# rows of a legend for which a figure has room, and inches of each further one
ROWS, LINE = 3, 0.2
LEGEND_LETTERS, MARK_LETTERS = 12, 6
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
    entries = [(shorten(name, MOST_LETTERS), colour) for name, colour in entries]
    marks = [Line2D([], [], color=colour, label=label(name), **dot) for name, colour in entries]
    longest = max((len(name) for name, _ in entries), default=0)
    wide = int(figure.get_figwidth() * LEGEND_LETTERS / (longest + MARK_LETTERS))
    columns = max(1, min(len(entries), wide, 8))
    more = math.ceil(len(entries) / columns) - ROWS
    if more > 0:
        figure.set_figheight(figure.get_figheight() + LINE * more)
    figure.legend(
        handles=marks, loc="outside lower center", ncols=columns, frameon=False, fontsize=9
    )


def shorten(name: str, most: int) -> str:
    """Cuts a long name and ends it with an ellipsis."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


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


# a font that has a box for every character, which comes with Matplotlib
LAST_RESORT = "Last Resort"


def label(text: object) -> str:
    """Returns a text on one line without formulas, with ``?`` for characters of no font."""
    clean = printable(text)
    letters = (letter if _families(letter) else "?" for letter in clean)
    return "".join(letters).replace("$", r"\$")  # between two $ Matplotlib reads a formula


def use_fonts(figure: Figure) -> None:
    """Gives texts of a figure fallback fonts for characters that the default font lacks."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        families = dict.fromkeys(name for letter in text.get_text() for name in _families(letter))
        if len(families) > 1:
            text.set_fontfamily(list(families))


@cache
def _families(letter: str) -> tuple[str, ...]:
    """Returns the default family and, if only another has the character, that one."""
    from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

    path = findfont(FontProperties())
    default = get_font(path).family_name
    if letter.isspace() or ord(letter) in _characters(path):
        return (default,)
    fonts = (font for font in fontManager.ttflist if LAST_RESORT not in font.name)
    return next(
        ((default, font.name) for font in fonts if ord(letter) in _characters(font.fname)), ()
    )


@cache
def _characters(path: str) -> frozenset[int]:
    from matplotlib.font_manager import get_font

    try:
        return frozenset(get_font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()


UNLABELLED = "unlabelled"
SEVERAL, SEVERAL_COLOUR = "several labels", "#000000"
# shares of nodes below the numbers that the legend of a regression shows
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


class NodeColours(NamedTuple):
    """One colour per node, and the legend: names and their colours."""

    nodes: list[str]
    legend: list[tuple[str, str]]


def colour_nodes(y: Tensor, names: list[str]) -> NodeColours:
    """Colours nodes by class (N,), number (N,), or only label (N, C); grey without a label."""
    paint = {"classification": _by_class, "regression": _by_number, "multilabel": _by_label}
    known = labelled(y)
    nodes, legend = paint[task_of(y)](y, known, names)
    if not bool(known.all()):
        legend.append((UNLABELLED, UNLABELLED_COLOUR))
    return NodeColours(nodes, legend)


def _by_class(y: Tensor, known: Tensor, names: list[str]) -> NodeColours:
    palette = colours(len(names))
    nodes = [palette[number] if number >= 0 else UNLABELLED_COLOUR for number in y.tolist()]
    return NodeColours(nodes, list(zip(names, palette, strict=True)))


def _by_number(y: Tensor, known: Tensor, names: list[str]) -> NodeColours:
    """Colours by rank, so that a few far numbers do not make all others one colour."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    values: NDArray[np.float64] = y[known].double().numpy()
    ordered = np.sort(values)

    def paint(value: float) -> str:
        first, after = (np.searchsorted(ordered, value, side=side) for side in ("left", "right"))
        return to_hex(colormaps["viridis"]((first + after - 1) / 2 / max(len(ordered) - 1, 1)))

    pairs = zip(y.tolist(), known.tolist(), strict=True)
    nodes = [paint(value) if has else UNLABELLED_COLOUR for value, has in pairs]
    marks = np.quantile(values, QUANTILES, method="nearest") if len(values) else ()
    return NodeColours(nodes, [(amount(mark), paint(mark)) for mark in marks])


def _by_label(y: Tensor, known: Tensor, names: list[str]) -> NodeColours:
    palette, only = colours(len(names)), y.nan_to_num().argmax(dim=1).tolist()
    counts = y.nan_to_num().sum(dim=1).tolist()
    nodes = [
        palette[number] if count == 1 else SEVERAL_COLOUR if count > 1 else UNLABELLED_COLOUR
        for number, count in zip(only, counts, strict=True)
    ]
    legend = list(zip(names, palette, strict=True))
    if max(counts, default=0) > 1:
        legend.append((SEVERAL, SEVERAL_COLOUR))
    return NodeColours(nodes, legend)
