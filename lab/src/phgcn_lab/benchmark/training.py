r"""Trains one model on one split in this process; graphs stay on the device between trainings."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
from torch_geometric.data import Data

from phgcn.data.names import GRAPHS as KNOWN
from phgcn.data.splits import Protocol
from phgcn.provenance import provenance
from phgcn.train import Plan, Settings, Task, Training, find
from phgcn.train import settings as config
from phgcn.train.prepare import build_model, prepare, seeded, without_test

from ..experiment import TimeUp
from .spaces import FIXED, GRAPHS, SEED

SPLITS = 10


class Chosen(NamedTuple):
    settings: Settings
    arguments: dict[str, Any]  # of the model's class, those that are no settings


def choose(graph: str, model: str, values: Mapping[str, Any], epochs: int | None = None) -> Chosen:
    """Sorts values into settings and arguments; adds what is fixed, and a limit of epochs."""
    setup, allowed = GRAPHS[graph], config.keys(model)
    settings = {key: value for key, value in values.items() if key in allowed}
    fixed = {"select": "metric", "epochs": epochs or setup.epochs, "patience": setup.patience}
    every = {**fixed, **FIXED.get(model, {}), **settings}
    changed = config.change(Settings(), every, model, f"the benchmark of {model}")
    return Chosen(changed, {key: value for key, value in values.items() if key not in allowed})


def plan_of(
    graph: str, model: str, settings: Settings, device: str, protocol: Protocol | None = None
) -> Plan:
    return Plan(
        graph,
        model,
        protocol or GRAPHS[graph].protocol,
        SPLITS,
        seed=SEED,
        metric=KNOWN[graph].metric,
        device=device,
        settings=settings,
    )


@cache
def load(graph: str) -> Data:
    return find(graph)[1]


def tasks_of(plan: Plan) -> list[Task]:
    """Returns the tasks of a plan, from memory if only settings of the model have changed."""
    return _tasks(plan.source, plan.model, plan.protocol, plan.settings.normalise, plan.device)


@lru_cache(maxsize=6)
def _tasks(graph: str, model: str, protocol: Protocol, normalise: bool, device: str) -> list[Task]:
    settings = config.change(Settings(), {"normalise": normalise}, model, "the benchmark")
    return prepare(plan_of(graph, model, settings, device, protocol), load(graph))


def train_split(
    plan: Plan,
    arguments: Mapping[str, Any],
    split: int,
    deadline: float,
    task: Task | None = None,
    *,
    show_test: bool = True,
) -> tuple[dict[str, Any], Training]:
    """Trains until the patience ends; returns the result at the best epoch by validation.

    The seed follows from the split. After the deadline it raises :class:`TimeUp`. Without
    ``show_test`` the labels of test nodes are removed first.
    """
    task = task or tasks_of(plan)[split]
    task = task if show_test else without_test(task)
    begin, seed = time.perf_counter(), plan.trials()[split].seed
    with seeded(seed, task):
        model = build_model(plan, task.x.size(1), task.classes, task.x.size(0), **arguments)
        training = Training(model.to(plan.device), task, plan.settings)
        while not training.done:
            if time.time() > deadline:
                raise TimeUp
            training.epoch()
    best, times = training.best_by_metric, sorted(row[-1] for row in training.state.curves)
    result = {
        "split": split,
        "test": best.test_metric if show_test else None,
        "val": best.val_metric,
        "val_loss": best.val_loss,
        "best_epoch": best.epoch,
        "epochs": training.state.epoch,
        "seconds": time.perf_counter() - begin,
        "seconds_per_epoch": times[len(times) // 2],
    }
    return result, training


@cache
def origin(device: str) -> dict[str, Any]:
    about = provenance(SEED, device)
    return {key: about[key] for key in ("commit", "dirty", "device", "date")}


def free_memory() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
