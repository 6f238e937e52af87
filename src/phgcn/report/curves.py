r"""Draws the learning curves of all splits of a run."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..train.global_path import ATTENTION
from ..train.metrics import goodness
from ..train.run import Run
from .style import COLOURS, headline, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVES = ("epoch", "train_loss", "val_loss", "val_metric")
"""The columns that are drawn."""


def read_curves(run: Run) -> dict[str, dict[str, list[float]]]:
    """Reads the curves of each trial that has any: trial name -> column name -> one number per epoch."""
    return _read(run, "{}.csv", CURVES)


def read_attention(run: Run) -> dict[str, dict[str, list[float]]]:
    """Reads the samples of each trial's global path: trial name -> column name -> one number per sample, layer and head."""
    return _read(run, "attention-{}.csv", ATTENTION)


def _read(run: Run, name: str, columns: Sequence[str]) -> dict[str, dict[str, list[float]]]:
    tables: dict[str, dict[str, list[float]]] = {}
    for trial in run.plan.trials():
        path = run.folder / name.format(trial.name)
        if path.is_file():
            tables[trial.name] = _read_columns(path, columns)
    return tables


def _read_columns(path: Path, columns: Sequence[str]) -> dict[str, list[float]]:
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        table = {key: [float(row[key]) for row in rows] for key in columns}
    except (KeyError, TypeError, ValueError, csv.Error):
        table = {}
    if not any(table.values()):
        raise ValueError(f"{path}: empty or damaged; allowed: the columns {', '.join(columns)}, and rows of numbers")
    return table


def draw_curves(run: Run) -> Figure:
    """Draws losses, then the validation metric, a dot at the epoch that counts; of a model with a global path also the sizes of
    its gates and the number of nodes that its heads attend to, by layer."""
    curves, attention = read_curves(run), read_attention(run)
    if not curves:
        raise ValueError(f"{run.folder}: no curves yet; `phgcn train ... --out {run.folder} --resume` makes them")
    figure, axes = panels(4 if attention else 2, columns=2, width=5.0, height=3.4)
    _draw_losses(axes[0], axes[1], curves, run)
    if attention:
        _draw_attention(axes[2], axes[3], attention, run.about["graph"]["nodes"])
    what = "the validation metric is best" if run.plan.settings.select == "metric" else "the validation loss is smallest"
    headline(figure, f"{run.plan.model} on {run.about['graph']['name']}: dots where {what}")
    return figure


def _draw_losses(left: Axes, right: Axes, curves: dict[str, dict[str, list[float]]], run: Run) -> None:
    for number, columns in enumerate(curves.values()):
        epochs, losses, metrics = columns["epoch"], columns["val_loss"], columns["val_metric"]
        best = _best_row(metrics, losses, run)
        for axis, key, colour, label in (
            (left, "train_loss", COLOURS[4], "training"),
            (left, "val_loss", COLOURS[0], "validation"),
            (right, "val_metric", COLOURS[0], None),
        ):
            axis.plot(epochs, columns[key], color=colour, linewidth=0.9, alpha=0.7, label=None if number else label)
            if key != "train_loss":
                axis.plot(epochs[best], columns[key][best], "o", color=colour, markersize=4)
    metric = run.plan.metric.replace("_", " ").replace("roc auc", "ROC AUC")
    left.set(xlabel="epoch", ylabel="loss")
    right.set(xlabel="epoch", ylabel=f"validation {metric}")
    left.legend(frameon=False)


def _best_row(metrics: list[float], losses: list[float], run: Run) -> int:
    """Returns the index of the epoch that counts, as training chooses it: ties of the metric by the smaller loss."""
    if run.plan.settings.select == "loss":
        return losses.index(min(losses))
    order = [(goodness(run.plan.metric, value), -loss) for value, loss in zip(metrics, losses, strict=True)]
    return order.index(max(order))


def _draw_attention(left: Axes, right: Axes, attention: dict[str, dict[str, list[float]]], nodes: int) -> None:
    """Draws one line per trial and layer (gates), or per trial, layer and head (nodes attended to)."""
    for number, columns in enumerate(attention.values()):
        rows = list(zip(*(columns[key] for key in ("layer", "head", "epoch", "gate", "effective_nodes")), strict=True))
        for layer, head in dict.fromkeys((row[0], row[1]) for row in rows):
            epochs, gates, counts = zip(*(row[2:] for row in rows if row[:2] == (layer, head)), strict=True)
            style: dict[str, Any] = {"color": COLOURS[int(layer) % len(COLOURS)], "linewidth": 0.9, "alpha": 0.7}
            label = None if number or head else f"layer {layer:.0f}"
            right.plot(epochs, counts, label=label, marker=".", markersize=3, **style)
            if head == 0:  # a layer has one gate
                left.plot(epochs, gates, label=label, marker=".", markersize=3, **style)
    left.set(xlabel="epoch", ylabel="gate (root mean square)")
    right.set(xlabel="epoch", ylabel=f"nodes attended to, of {nodes:,}", yscale="log")
    left.legend(frameon=False)
