r"""The result of a split, and that of a run: what ``result.json`` holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..provenance import provenance
from ..tolerance import Tolerance
from .global_path import summarise
from .loop import Training
from .metrics import mean_and_deviation
from .state import CURVES
from .yardsticks import summarise_yardsticks

if TYPE_CHECKING:
    from .plan import Plan, Trial


def split_result(trial: Trial, training: Training) -> dict[str, Any]:
    """Returns the result of one trial, whose training is done.  Its ``seconds`` are those of all epochs and checkpoints."""
    best = training.best
    times = [row[CURVES.index("seconds")] for row in training.state.curves]
    return {
        "split": trial.split,
        "repeat": trial.repeat,
        "seed": trial.seed,
        "test": best.test_metric,
        "test_at_best_val_loss": training.best_by_loss.test_metric,
        "test_at_best_val_metric": training.best_by_metric.test_metric,
        "val_loss": best.val_loss,
        "val_metric": best.val_metric,
        "best_epoch": best.epoch,
        "epochs": training.state.epoch,
        "nodes": {"train": len(training.task.train), "val": len(training.task.val), "test": len(training.task.test)},
        "local_epochs": training.state.epoch if training.state.global_off else training.state.phase_start,
        "global_attention": training.global_attention(),
        "methods_within_tolerance": [m.chosen for m in training.model.modules() if isinstance(m, Tolerance)],
        "seconds": sum(times) + training.state.checkpoint_seconds,
        "seconds_per_epoch": sorted(times)[len(times) // 2],
    }


def run_result(plan: Plan, about: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the result of a run from the results of its trials."""

    def spread(key: str) -> dict[str, float]:
        mean, deviation = mean_and_deviation([row[key] for row in rows])
        return {"mean": mean, "std": deviation}

    times = sorted(row["seconds_per_epoch"] for row in rows)
    return {
        "graph": about["graph"]["name"],
        "source": plan.source,
        "model": plan.model,
        "protocol": plan.protocol,
        "task": plan.task,
        "metric": plan.metric,
        "config": about["settings"],
        "seed": plan.seed,
        "seeds": [row["seed"] for row in rows],
        "test": spread("test"),
        "test_at_best_val_loss": spread("test_at_best_val_loss"),
        "test_at_best_val_metric": spread("test_at_best_val_metric"),
        "val_loss": spread("val_loss"),
        "val_metric": spread("val_metric"),
        "global_path": summarise([row["global_attention"] for row in rows], about["graph"]["nodes"]),
        "epochs": sum(row["epochs"] for row in rows),
        "seconds": sum(row["seconds"] for row in rows),
        "seconds_per_epoch": times[len(times) // 2],
        "splits": rows,
        "yardsticks": summarise_yardsticks(rows),
        "commonest": about.get("commonest", ""),
        "search": about.get("search"),
        "versions": about["versions"],
        "provenance": provenance(plan.seed, plan.device),
    }
