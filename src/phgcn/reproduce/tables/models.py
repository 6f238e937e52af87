r"""The models: our networks, and rivals with the settings that their authors recommend."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from ...data import Columns
from ...registry import TABLE_MODEL
from ...train import Plan
from ...train.loop import Task
from ...train.prepare import prepare, seeded, start
from ...train.settings import resolve

Array = NDArray[Any]
Report = Callable[[str, float], None]

NEIGHBOURS = (3, 5, 10, 20, 40)
ROUNDS, PATIENCE = 5000, 100
"""Boosting rounds at most, and rounds without a better validation error before it stops."""


class Fit(NamedTuple):
    """Predictions of all rows, and what is worth knowing of the training."""

    predicted: Array
    about: dict[str, Any]


class Parts(NamedTuple):
    """Rows of a split, as arrays: scaled features without gaps, features as they are, labels, and
    indices of rows."""

    scaled: Array
    raw: Array
    y: Array
    train: Array
    val: Array


def arrays(task: Task, data: Data) -> Parts:
    """Returns a split as arrays."""
    dense = [x if x.layout == task.y.layout else x.to_dense() for x in (task.x, data.x)]
    return Parts(*(x.numpy() for x in (*dense, task.y, task.train, task.val)))


def our_task(data: Data, changes: list[str], coordinates: tuple[str, ...] = ()) -> tuple[Plan, Task]:
    """Prepares the split of a table for our network."""
    settings = resolve(TABLE_MODEL, changes=changes).settings
    columns = Columns(coordinates=coordinates)
    plan = Plan(
        "table",
        TABLE_MODEL,
        protocol="official",
        splits=1,
        metric="rmse",
        settings=settings,
        task="regression",
        columns=columns,
    )
    return plan, prepare(plan, data)[0]


def train_ours(data: Data, changes: list[str], coordinates: tuple[str, ...], seed: int, report: Report) -> Fit:
    """Trains our network; the epoch that counts has the smallest validation loss."""
    plan, task = our_task(data, changes, coordinates)
    with seeded(seed, task):
        training = start(plan, task)
        while not training.done:
            training.epoch()
            report(f"epoch {training.state.epoch}", training.state.epoch / plan.settings.epochs)
        outputs = training.outputs()
    about = {"best_epoch": training.best.epoch, "epochs": training.state.epoch, "settings": changes}
    return Fit(task.kind.predict(outputs).numpy(), about)


def mean(parts: Parts, seed: int) -> Fit:
    """Predicts the mean of the training rows."""
    return Fit(np.full(len(parts.y), parts.y[parts.train].mean()), {})


def nearest(parts: Parts, seed: int) -> Fit:
    """Predicts the mean of the nearest training rows, weighted by 1 / distance; their number is
    chosen by validation."""
    from sklearn.neighbors import KNeighborsRegressor

    best: tuple[float, int, Array] | None = None
    for count in NEIGHBOURS:
        model = KNeighborsRegressor(count, weights="distance").fit(parts.scaled[parts.train], parts.y[parts.train])
        predicted = model.predict(parts.scaled)
        error = float(np.square(predicted - parts.y)[parts.val].mean())
        if best is None or error < best[0]:
            best = error, count, predicted
    assert best is not None
    return Fit(best[2], {"neighbours": best[1]})


def hist_boosting(parts: Parts, seed: int) -> Fit:
    """scikit-learn's HistGradientBoosting: its defaults, and as many rounds as the validation rows
    allow."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(
        max_iter=ROUNDS, early_stopping=True, n_iter_no_change=PATIENCE, random_state=seed, learning_rate=0.05
    )
    rows = {"X_val": parts.raw[parts.val], "y_val": parts.y[parts.val]}
    model.fit(parts.raw[parts.train], parts.y[parts.train], **rows)
    return Fit(model.predict(parts.raw), {"rounds": int(model.n_iter_)})


def catboost(parts: Parts, seed: int) -> Fit:
    """CatBoost: its defaults, and as many rounds as the validation rows allow."""
    package = _package("catboost")
    model = package.CatBoostRegressor(
        iterations=ROUNDS, early_stopping_rounds=PATIENCE, random_seed=seed, thread_count=1, verbose=False,
        allow_writing_files=False, learning_rate=0.05,
    )  # fmt: skip
    rows = (parts.raw[parts.val], parts.y[parts.val])
    model.fit(parts.raw[parts.train], parts.y[parts.train], eval_set=rows)
    return Fit(model.predict(parts.raw), {"rounds": int(model.tree_count_)})


def lightgbm(parts: Parts, seed: int) -> Fit:
    """LightGBM: its defaults, and as many rounds as the validation rows allow."""
    package = _package("lightgbm")
    model = package.LGBMRegressor(n_estimators=ROUNDS, learning_rate=0.05, random_state=seed, n_jobs=1, verbose=-1)
    rows = [(parts.raw[parts.val], parts.y[parts.val])]
    model.fit(
        parts.raw[parts.train], parts.y[parts.train], eval_set=rows,
        callbacks=[package.early_stopping(PATIENCE, verbose=False)],
    )  # fmt: skip
    return Fit(model.predict(parts.raw), {"rounds": int(model.best_iteration_)})


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ValueError(f"models has {name!r}, which needs the package {name}: pip install 'phgcn[tables]'") from None


RIVALS: dict[str, Callable[[Parts, int], Fit]] = {
    "mean": mean, "nearest": nearest, "hist-boosting": hist_boosting, "catboost": catboost, "lightgbm": lightgbm,
}  # fmt: skip
OURS = {
    "network": ["parts=network"],
    "labels": ["parts=labels"],
    "labels-map": ["parts=labels"],
    "labels-exact": ["parts=labels", "method=exact"],
    "both": ["parts=both"],
}
"""Our networks and their settings; ``labels-map`` also attends by distances of coordinates."""
MODELS = (*RIVALS, *OURS)


def train(name: str, data: Data, coordinates: tuple[str, ...], seed: int, epochs: int | None, report: Report) -> Fit:
    """Trains a model on the split of a table."""
    limit = [] if epochs is None else [f"epochs={epochs}", f"warmup={epochs // 3}"]
    if name in OURS:
        return train_ours(data, [*OURS[name], *limit], coordinates if name == "labels-map" else (), seed, report)
    return RIVALS[name](arrays(our_task(data, [])[1], data), seed)
