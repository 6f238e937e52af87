"""Draws the quality of predictions: a confusion matrix, predicted against true numbers, or scores
per label."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from ..train.metrics import confusion
from .embeddings import MAX_DOTS, draw_density
from .style import COLOURS, MOST_LETTERS, headline, label, panels, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# classes up to which a confusion matrix has its counts written in it
MOST_COUNTS = 20


def draw_predictions(
    task: str, predicted: Tensor, y: Tensor, names: list[str], title: str
) -> tuple[str, Figure]:
    """Draws predictions for some nodes beside the truth, (N,) or (N, C), as the task decides;
    returns the file's name and the figure."""
    name, draw = DRAWN[task]
    figure = draw(predicted, y, names)
    headline(figure, title)
    return name, figure


def draw_confusion(predicted: Tensor, y: Tensor, names: list[str]) -> Figure:
    """Draws the number of nodes per class (row) and predicted class (column)."""
    counts = confusion(predicted, y, len(names)).numpy()
    size = min(12.0, max(3.6, 0.45 * len(names) + 2.0))
    figure, (axis,) = panels(1, width=size + 1, height=size)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if len(names) <= MOST_COUNTS:
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if shares[row, column] > 0.6 else "black"
            axis.text(column, row, f"{count}", ha="center", va="center", fontsize=8, color=colour)
    texts = [label(shorten(name, MOST_LETTERS)) for name in names]
    few = len(names) <= MOST_COUNTS
    size = 8.0 if few else max(3.0, min(8.0, 400 / len(names)))
    turned: dict[str, Any] = {"rotation": 45, "ha": "right"} if few else {"rotation": 90}
    axis.set_xticks(range(len(names)), texts, fontsize=size, **turned)
    axis.set_yticks(range(len(names)), texts, fontsize=size)
    axis.set(xlabel="predicted class", ylabel="class")
    return figure


def draw_numbers(predicted: Tensor, y: Tensor, names: list[str]) -> Figure:
    """Draws predicted against true numbers, and the line of equality."""
    figure, (axis,) = panels(1, width=4.4, height=4.4)
    points = np.c_[y.double().numpy(), predicted.double().numpy()]
    if len(points) > MAX_DOTS:
        draw_density(axis, points, [COLOURS[0]] * len(points))
    else:
        dots: dict[str, Any] = {"s": 8, "linewidths": 0, "alpha": 0.6, "color": COLOURS[0]}
        axis.scatter(*points.T, rasterized=True, **dots)
    ends = [points.min(), points.max()]
    axis.plot(ends, ends, color="#999999", linewidth=0.9)
    axis.set(xlabel="true", ylabel="predicted")
    return figure


def draw_labels(predicted: Tensor, y: Tensor, names: list[str]) -> Figure:
    """Draws precision and recall of each label as bars."""
    figure, (axis,) = panels(1, width=5.0, height=max(2.4, 0.3 * len(names) + 1.2))
    wanted, given = y > 0.5, predicted.bool()
    hits = (wanted & given).sum(dim=0).double()
    places = np.arange(len(names))
    bars = ((-0.2, COLOURS[0], "precision", given), (0.2, COLOURS[1], "recall", wanted))
    for shift, colour, name, total in bars:
        scores = hits / total.sum(dim=0).clamp(min=1)
        axis.barh(places + shift, scores.numpy(), height=0.36, color=colour, label=name)
    axis.set_yticks(places, [label(name) for name in names], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlim(0, 1)
    axis.legend(frameon=False, fontsize=8)
    return figure


# by task: the name of the file, and what is drawn
DRAWN: dict[str, tuple[str, Callable[[Tensor, Tensor, list[str]], Figure]]] = {
    "classification": ("confusion", draw_confusion),
    "regression": ("predicted", draw_numbers),
    "multilabel": ("labels", draw_labels),
}
