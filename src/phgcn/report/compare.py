r"""Compares finished runs on one graph: scores side by side and, where they share their splits, split by split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..train.metrics import goodness, mean_and_deviation
from ..train.run import Run
from .fonts import label
from .style import COLOURS, headline, panels, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def compare(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns the scores of finished runs, the best first, each with its difference from the best.

    Runs share their splits if they agree in protocol, seed, and numbers of splits and trainings; then ``wins`` counts the
    trainings in which a run is better than the best one, and ``difference`` has a deviation over trainings.

    Args:
        runs (list of Run): Two finished runs or more, on the same graph, with the same task and metric.
    """
    if len(runs) < 2:
        raise ValueError(f"runs has {len(runs)} entries; allowed: two or more")
    _check_comparable(runs)
    metric = runs[0].plan.metric
    rows = [_row(run) for run in runs]
    _refuse_without_tests(rows)
    rows.sort(key=lambda row: -goodness(metric, row["test"]["mean"]))
    paired = len({_splits_of(run) for run in runs}) == 1
    for row in rows:
        row.update(_against(row, rows[0], metric, paired))
    return {
        "graph": runs[0].about["graph"]["name"],
        "task": runs[0].plan.task,
        "metric": metric,
        "paired": paired,
        "runs": rows,
    }


def _check_comparable(runs: Sequence[Run]) -> None:
    """Refuses runs whose scores mean different things."""
    first = runs[0]
    for run in runs[1:]:
        if run.about["graph"]["digest"] != first.about["graph"]["digest"]:
            name, other = run.about["graph"]["name"], first.about["graph"]["name"]
            raise ValueError(
                f"{run.folder}: its graph {name} has other nodes, edges, features or labels than {other} of {first.folder}; "
                "allowed: runs on one graph, read with the same columns"
            )
        for name, value, wanted in (
            ("task", run.plan.task, first.plan.task),
            ("metric", run.plan.metric, first.plan.metric),
        ):
            if value != wanted:
                raise ValueError(f"{run.folder}: {name} is {value}; allowed: {wanted}, as of {first.folder}")


def _refuse_without_tests(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if math.isnan(row["test"]["mean"]):
            raise ValueError(f"{row['run']}: has no test nodes; allowed: runs of other protocols than {row['protocol']}")


def _splits_of(run: Run) -> tuple[object, ...]:
    """Returns what the splits of a run follow from."""
    return run.plan.protocol, run.plan.seed, run.plan.splits, run.plan.repeats


def _row(run: Run) -> dict[str, Any]:
    result = run.result()
    return {
        "run": str(run.folder),
        "model": run.plan.model,
        "protocol": run.plan.protocol,
        "tests": [split["test"] for split in result["splits"]],
        "test": result["test"],
        "val_metric": result["val_metric"],
        "epochs": result["epochs"],
        "seconds": result["seconds"],
        "seconds_per_epoch": result["seconds_per_epoch"],
    }


def _against(row: dict[str, Any], best: dict[str, Any], metric: str, paired: bool) -> dict[str, Any]:
    """Returns the difference of a run from the best one, and in how many trainings it is better."""
    if not paired:
        return {"difference": {"mean": row["test"]["mean"] - best["test"]["mean"], "std": None}, "wins": None}
    pairs = list(zip(row["tests"], best["tests"], strict=True))
    mean, deviation = mean_and_deviation([own - other for own, other in pairs])
    wins = sum(goodness(metric, own) > goodness(metric, other) for own, other in pairs)
    return {"difference": {"mean": mean, "std": deviation}, "wins": wins}


def draw_comparison(compared: dict[str, Any]) -> Figure:
    """Draws the test metric of every training as a dot, runs one below the other, their means as bars; lines join trainings
    on the same split."""
    rows = compared["runs"]
    figure, (axis,) = panels(1, width=6.0, height=0.5 * len(rows) + 1.2)
    for place, row in enumerate(rows):
        colour = COLOURS[place % len(COLOURS)]
        axis.plot(row["tests"], np.full(len(row["tests"]), place), "o", color=colour, markersize=5, alpha=0.6)
        axis.plot(row["test"]["mean"], place, "|", color=colour, markersize=22, markeredgewidth=2.5)
    if compared["paired"]:
        for tests in zip(*(row["tests"] for row in rows), strict=True):
            axis.plot(tests, range(len(rows)), color="#cccccc", linewidth=0.7, zorder=0)
    axis.set_yticks(range(len(rows)), [label(f"{row['model']}: {row['run']}") for row in rows], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel(f"test {compared['metric']}")
    headline(figure, f"Runs on {compared['graph']}: every training, and the mean")
    return figure


def plot_comparison(compared: dict[str, Any], path: Path) -> Path:
    """Writes the figure of a comparison; the end of the name tells the format."""
    return save(draw_comparison(compared), path)
