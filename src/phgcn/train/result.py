"""The results of a split and of a run in ``result.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..provenance import provenance
from ..tolerance import Tolerance
from .global_path import summarise
from .loop import Training
from .metrics import spread
from .state import CURVES
from .yardsticks import summarise_yardsticks

if TYPE_CHECKING:
    from .plan import Plan, Trial


def split_result(trial: Trial, training: Training) -> dict[str, Any]:
    """Returns the result of a trial after its last epoch; ``seconds`` include checkpoints."""
    best, state, task = training.best, training.state, training.task
    times = [row[CURVES.index("seconds")] for row in state.curves]
    tolerances = [module for module in training.model.modules() if isinstance(module, Tolerance)]
    return {
        "split": trial.split,
        "repeat": trial.repeat,
        "model": trial.plan.model,
        "seed": trial.seed,
        "test": best.test_metric,
        "test_at_best_val_loss": training.best_by_loss.test_metric,
        "test_at_best_val_metric": training.best_by_metric.test_metric,
        "val_loss": best.val_loss,
        "val_metric": best.val_metric,
        "best_epoch": best.epoch,
        "epochs": state.epoch,
        "nodes": {"train": len(task.train), "val": len(task.val), "test": len(task.test)},
        "local_epochs": state.epoch if state.global_off else state.phase_start,
        "global_attention": training.global_attention(),
        "methods_within_tolerance": [tolerance.chosen for tolerance in tolerances],
        "seconds": sum(times) + state.checkpoint_seconds,
        "seconds_per_epoch": sorted(times)[len(times) // 2],
    }


def run_result(plan: Plan, about: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    scores = ("test", "test_at_best_val_loss", "test_at_best_val_metric", "val_loss", "val_metric")
    global_attention = [row["global_attention"] for row in rows]
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
        **{name: spread([row[name] for row in rows]) for name in scores},
        "global_path": summarise(global_attention, about["graph"]["nodes"]),
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
