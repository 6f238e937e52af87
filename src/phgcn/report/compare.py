"""Compares finished runs on one graph: their scores, and shared splits one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..train.metrics import goodness, mean_and_deviation
from ..train.run import Run
from ..train.yardsticks import describe_yardsticks
from .style import COLOURS, headline, label, panels, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def compare(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns the scores of finished runs, the best first, each with its difference from the best,
    and a line for each yardstick of the best.

    Runs share their splits if they agree in protocol, seed, and numbers of splits and trainings;
    then ``wins`` counts the trainings in which a run is better than the best one, and
    ``difference`` has a deviation over trainings.

    Args:
        runs (list of Run): Two finished runs or more, on the same graph, with the same task and
            metric.
    """
    if len(runs) < 2:
        raise ValueError(f"runs has {len(runs)} entries; allowed: two or more")
    for run in runs[1:]:
        _check_comparable(run, runs[0])
    metric, rows = runs[0].plan.metric, [_row(run) for run in runs]
    rows.sort(key=lambda row: -goodness(metric, row["test"]["mean"]))
    plans = [run.plan for run in runs]
    paired = len({(p.protocol, p.seed, p.splits, p.repeats) for p in plans}) == 1
    for row in rows:
        row.update(_against(row, rows[0], metric, paired))
    return {
        "graph": runs[0].about["graph"]["name"],
        "task": runs[0].plan.task,
        "metric": metric,
        "paired": paired,
        "yardsticks": describe_yardsticks(Run.open(rows[0]["run"]).result()),
        "runs": rows,
    }


def _check_comparable(run: Run, first: Run) -> None:
    if run.about["graph"]["digest"] != first.about["graph"]["digest"]:
        name, other = run.about["graph"]["name"], first.about["graph"]["name"]
        raise ValueError(
            f"{run.folder}: its graph {name} has other nodes, edges, features or labels than "
            f"{other} of {first.folder}; allowed: runs on one graph, read with the same columns"
        )
    for name in ("task", "metric"):
        value, wanted = getattr(run.plan, name), getattr(first.plan, name)
        if value != wanted:
            allowed = f"{wanted}, as of {first.folder}"
            raise ValueError(f"{run.folder}: {name} is {value}; allowed: {allowed}")


def _row(run: Run) -> dict[str, Any]:
    result, plan = run.result(), run.plan
    if math.isnan(result["test"]["mean"]):
        allowed = f"runs of other protocols than {plan.protocol}"
        raise ValueError(f"{run.folder}: has no test nodes; allowed: {allowed}")
    keys = ("test", "val_metric", "epochs", "seconds", "seconds_per_epoch")
    return {
        "run": str(run.folder),
        "model": plan.model,
        "protocol": plan.protocol,
        "tests": [split["test"] for split in result["splits"]],
        **{key: result[key] for key in keys},
    }


def _against(
    row: dict[str, Any], best: dict[str, Any], metric: str, paired: bool
) -> dict[str, Any]:
    """Returns a run's difference from the best, and the number of trainings it wins."""
    if not paired:
        mean = row["test"]["mean"] - best["test"]["mean"]
        return {"difference": {"mean": mean, "std": None}, "wins": None}
    pairs = list(zip(row["tests"], best["tests"], strict=True))
    mean, deviation = mean_and_deviation([own - other for own, other in pairs])
    wins = sum(goodness(metric, own) > goodness(metric, other) for own, other in pairs)
    return {"difference": {"mean": mean, "std": deviation}, "wins": wins}


def draw_comparison(compared: dict[str, Any]) -> Figure:
    """Draws the test metric of every training as a dot, runs one below the other, their means as
    bars. Lines join trainings on the same split."""
    rows = compared["runs"]
    figure, (axis,) = panels(1, width=6.0, height=0.5 * len(rows) + 1.2)
    for place, row in enumerate(rows):
        tests, colour = row["tests"], COLOURS[place % len(COLOURS)]
        axis.plot(tests, [place] * len(tests), "o", color=colour, markersize=5, alpha=0.6)
        axis.plot(row["test"]["mean"], place, "|", color=colour, markersize=22, markeredgewidth=2.5)
    if compared["paired"]:
        for tests in zip(*(row["tests"] for row in rows), strict=True):
            axis.plot(tests, range(len(rows)), color="#cccccc", linewidth=0.7, zorder=0)
    names = [label(f"{row['model']}: {row['run']}") for row in rows]
    axis.set_yticks(range(len(rows)), names, fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel(f"test {compared['metric']}")
    headline(figure, f"Runs on {compared['graph']}: every training, and the mean")
    return figure


def plot_comparison(compared: dict[str, Any], path: Path) -> Path:
    """Writes the figure of a comparison in the format of the file's name."""
    return save(draw_comparison(compared), path)
