"""The colours of nodes by their labels, and the legend."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..data.labels import labelled, task_of
from ..text import amount
from .style import UNLABELLED_COLOUR, colours

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
