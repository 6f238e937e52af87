"""Draws the learning curves of all splits of a run."""

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

CURVES = ("epoch", "train_loss", "val_loss", "val_metric")  # the columns that are drawn


Table = dict[str, list[float]]


def read_curves(run: Run) -> dict[str, Table]:
    """Reads the curves of each trial that has any: trial, column, one number per epoch."""
    return _read(run, "{}.csv", CURVES)


def _read(run: Run, name: str, columns: Sequence[str]) -> dict[str, Table]:
    paths = {trial.name: run.folder / name.format(trial.name) for trial in run.plan.trials()}
    return {trial: _columns(path, columns) for trial, path in paths.items() if path.is_file()}


def _columns(path: Path, columns: Sequence[str]) -> Table:
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        table = {key: [float(row[key]) for row in rows] for key in columns}
    except (KeyError, TypeError, ValueError, csv.Error):
        table = {}
    if not any(table.values()):
        allowed = f"the columns {', '.join(columns)}, and rows of numbers"
        raise ValueError(f"{path}: empty or damaged; allowed: {allowed}")
    return table


def draw_curves(run: Run) -> Figure:
    """Draws losses and validation metric, with a dot at the epoch that counts; of a global path
    also the number of nodes its heads attend to, and gates where it has them."""
    curves, attention = read_curves(run), _read(run, "attention-{}.csv", ATTENTION)
    if not curves:
        raise ValueError(
            f"{run.folder}: no curves yet; `phgcn train ... --out {run.folder} --resume` makes them"
        )
    gated = any(set(columns["gate"]) != {1.0} for columns in attention.values())
    count = 2 + bool(attention) + gated
    figure, axes = panels(count, columns=2, width=5.0, height=3.4)
    _draw_losses(axes[0], axes[1], curves, run)
    if attention:
        nodes = run.about["graph"]["nodes"]
        _draw_attention(axes[2] if gated else None, axes[-1], attention, nodes)
    best = {"metric": "the validation metric is best", "loss": "the validation loss is smallest"}
    where = best[run.plan.settings.select]
    last = max(columns["epoch"][-1] for columns in curves.values())
    for axis in axes:  # samples of attention may be few, and stand where their epochs are
        axis.set_xlim(0, last + 1)
        axis.locator_params(axis="x", integer=True)
    headline(figure, f"{run.plan.model} on {run.about['graph']['name']}: dots where {where}")
    return figure


def _draw_losses(left: Axes, right: Axes, curves: dict[str, Table], run: Run) -> None:
    for number, columns in enumerate(curves.values()):
        epochs, losses, metrics = columns["epoch"], columns["val_loss"], columns["val_metric"]
        best = _best_row(metrics, losses, run)
        for axis, key, colour, label in (
            (left, "train_loss", COLOURS[4], "training"),
            (left, "val_loss", COLOURS[0], "validation"),
            (right, "val_metric", COLOURS[0], None),
        ):
            name = None if number else label
            axis.plot(epochs, columns[key], color=colour, linewidth=0.9, alpha=0.7, label=name)
            if key != "train_loss":
                axis.plot(epochs[best], columns[key][best], "o", color=colour, markersize=4)
    metric = run.plan.metric.replace("_", " ").replace("roc auc", "ROC AUC")
    left.set(xlabel="epoch", ylabel="loss")
    right.set(xlabel="epoch", ylabel=f"validation {metric}")
    left.legend(frameon=False)


def _best_row(metrics: list[float], losses: list[float], run: Run) -> int:
    """Returns the index of the epoch that counts, as training chooses it."""
    if run.plan.settings.select == "loss":
        return losses.index(min(losses))
    metric, pairs = run.plan.metric, zip(metrics, losses, strict=True)
    order = [(goodness(metric, value), -loss) for value, loss in pairs]
    return order.index(max(order))


def _draw_attention(
    left: Axes | None, right: Axes, attention: dict[str, Table], nodes: int
) -> None:
    """Draws a line per trial and layer (gates, if there are any), or per trial, layer and head
    (nodes)."""
    from matplotlib.ticker import LogLocator, NullLocator

    keys = ("layer", "head", "epoch", "gate", "effective_nodes")
    style: dict[str, Any] = {"linewidth": 0.9, "alpha": 0.7, "marker": ".", "markersize": 3}
    for number, columns in enumerate(attention.values()):
        rows = list(zip(*(columns[key] for key in keys), strict=True))
        for layer, head in dict.fromkeys((row[0], row[1]) for row in rows):
            own = [row[2:] for row in rows if row[:2] == (layer, head)]
            epochs, gates, counts = zip(*own, strict=True)
            colour = COLOURS[int(layer) % len(COLOURS)]
            label = None if number or head else f"layer {layer:.0f}"
            right.plot(epochs, counts, label=label, color=colour, **style)
            if head == 0 and left is not None:  # a layer has one gate
                left.plot(epochs, gates, label=label, color=colour, **style)
    if left is not None:
        left.set(xlabel="epoch", ylabel="gate (root mean square)")
        left.set_ylim(bottom=0)
    right.set(xlabel="epoch", ylabel=f"nodes attended to, of {nodes:,}", yscale="log")
    right.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    right.yaxis.set_major_formatter("{x:,.4g}")
    right.yaxis.set_minor_locator(NullLocator())
    (right if left is None else left).legend(frameon=False)
