r"""Draws the learning curves of all splits of a run."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

from ..train.run import Run
from .style import COLOURS, headline, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVES = ("epoch", "train_loss", "val_loss", "val_metric")
"""The columns that are drawn."""


def read_curves(run: Run) -> dict[str, dict[str, list[float]]]:
    """Reads the curves of each trial that has any: trial name -> column name -> one number per epoch."""
    curves: dict[str, dict[str, list[float]]] = {}
    for trial in run.plan.trials():
        path = run.folder / f"{trial.name}.csv"
        if path.is_file():
            curves[trial.name] = _read_columns(path)
    return curves


def _read_columns(path: Path) -> dict[str, list[float]]:
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        columns = {key: [float(row[key]) for row in rows] for key in CURVES}
    except (KeyError, TypeError, ValueError, csv.Error):
        columns = {}
    if not any(columns.values()):
        raise ValueError(f"{path}: empty or damaged; allowed: the columns {', '.join(CURVES)} and a row of numbers per epoch")
    return columns


def draw_curves(run: Run) -> Figure:
    """Draws losses on the left, the validation metric on the right; a dot where the validation loss is smallest."""
    curves = read_curves(run)
    if not curves:
        raise ValueError(f"{run.folder}: no curves yet; `phgcn train ... --out {run.folder} --resume` makes them")
    figure, (left, right) = panels(2, width=5.0, height=3.4)
    for number, columns in enumerate(curves.values()):
        epochs, best = columns["epoch"], columns["val_loss"].index(min(columns["val_loss"]))
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
    headline(figure, f"{run.plan.model} on {run.about['graph']['name']}: dots where the validation loss is smallest")
    return figure
