r"""The models: our networks, and rivals with settings that their authors recommend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from phgcn.data import Columns
from phgcn.data.encode import indicator_names
from phgcn.registry import TABLE_MODEL
from phgcn.train import Plan
from phgcn.train.candidates import BATCH_ROWS, start_settings
from phgcn.train.loop import Task
from phgcn.train.prepare import prepare, seeded, start
from phgcn.train.settings import resolve

from ..extra import needed
from ..trainings import train_to_end
from ..workers import Report

Array = NDArray[Any]
Settings = Mapping[str, Any]

NO_PATIENCE = 1_000_000  # our networks of many rows are trained to the end
ROUNDS, PATIENCE = 5000, 100
"""Boosting rounds at most, and rounds without a better validation loss before it stops."""


class Fit(NamedTuple):
    """Predictions of all rows, and what is worth knowing of the training."""

    predicted: Array
    about: dict[str, Any]


class Rows(NamedTuple):
    """Scaled features, the frame, labels, indices of training and validation rows, and the task."""

    scaled: Array
    raw: Any
    y: Array
    train: Array
    val: Array
    classes: bool

    def fit(self, model: Any, **arguments: Any) -> Any:
        return model.fit(self.raw.iloc[self.train], self.y[self.train], **arguments)

    @property
    def validation(self) -> tuple[Any, Array]:
        return self.raw.iloc[self.val], self.y[self.val]

    @property
    def categories(self) -> list[str]:
        return list(self.raw.select_dtypes("category").columns)


def rows_of(task: Task, data: Data) -> Rows:
    scaled = task.x if task.x.layout == task.y.layout else task.x.to_dense()
    return Rows(
        scaled.numpy(),
        frame(data),
        task.y.numpy(),
        task.train.numpy(),
        task.val.numpy(),
        not task.y.is_floating_point(),
    )


def frame(data: Data) -> Any:
    """A frame of pandas with its categories: boosted trees have their own ways with these."""
    pandas = needed("the frame of a table", "pandas")
    x = data.x if data.x.layout == data.y.layout else data.x.to_dense()
    names = data.get("feature_names") or [f"x{column}" for column in range(x.size(1))]
    numbers = pandas.DataFrame(x.numpy(), columns=names)
    for name, levels in (data.get("feature_levels") or {}).items():
        indicators = numbers[indicator_names(name, levels)]
        codes = indicators.to_numpy().argmax(axis=1)
        codes[indicators.sum(axis=1) == 0] = -1
        numbers = numbers.drop(columns=indicators.columns)
        numbers[name] = pandas.Categorical.from_codes(codes, levels)
    return numbers


def our_task(
    data: Data, settings: Settings, coordinates: tuple[str, ...] = ()
) -> tuple[Plan, Task]:
    if int(data.num_nodes) > BATCH_ROWS:
        settings = {"patience": NO_PATIENCE, **settings}
    changes = [f"{key}={value}" for key, value in settings.items()]
    plan = Plan(
        "table",
        TABLE_MODEL,
        protocol="official",
        splits=1,
        metric="rmse" if data.task == "regression" else "accuracy",
        settings=resolve(
            TABLE_MODEL, changes=changes, start=start_settings(data, TABLE_MODEL, "cpu")
        ).settings,
        task=data.task,
        columns=Columns(coordinates=coordinates),
    )
    return plan, prepare(plan, data)[0]


def train_ours(
    data: Data, settings: Settings, coordinates: tuple[str, ...], seed: int, report: Report
) -> Fit:
    plan, task = our_task(data, settings, coordinates)
    with seeded(seed, task):
        training = start(plan, task)
        outputs, about = train_to_end(training, report)
    return Fit(task.kind.predict(outputs).numpy(), about)


def automatic(rows: Rows, seed: int, settings: Settings) -> Fit:
    """Fits phgcn's estimator as it is; it chooses by a fifth of training and validation rows."""
    from phgcn import AttentionClassifier, AttentionRegressor

    kind = AttentionClassifier if rows.classes else AttentionRegressor
    known = np.concatenate([rows.train, rows.val])
    model = kind(random_state=seed, **settings).fit(rows.raw.iloc[known], rows.y[known])
    return Fit(model.predict(rows.raw), {"search": model.search_})


def mean(rows: Rows, seed: int, settings: Settings) -> Fit:
    known = rows.y[rows.train]
    value = np.bincount(known).argmax() if rows.classes else known.mean()
    return Fit(np.full(len(rows.y), value), {})


def nearest(rows: Rows, seed: int, settings: Settings) -> Fit:
    from sklearn import neighbors

    kind = neighbors.KNeighborsClassifier if rows.classes else neighbors.KNeighborsRegressor
    model = kind(**settings).fit(rows.scaled[rows.train], rows.y[rows.train])
    return Fit(model.predict(rows.scaled), {})


def hist_boosting(rows: Rows, seed: int, settings: Settings) -> Fit:
    from sklearn import ensemble

    kind = (
        ensemble.HistGradientBoostingClassifier
        if rows.classes
        else ensemble.HistGradientBoostingRegressor
    )
    stopping = {"max_iter": ROUNDS, "early_stopping": True, "n_iter_no_change": PATIENCE}
    x, y = rows.validation
    model = rows.fit(kind(random_state=seed, **stopping, **settings), X_val=x, y_val=y)
    return Fit(model.predict(rows.raw), {"rounds": int(model.n_iter_)})


def catboost(rows: Rows, seed: int, settings: Settings) -> Fit:
    package = needed("models has 'catboost', which", "catboost")
    kind = package.CatBoostClassifier if rows.classes else package.CatBoostRegressor
    quiet = {"verbose": False, "allow_writing_files": False, "thread_count": 1}
    stopping = {"iterations": ROUNDS, "early_stopping_rounds": PATIENCE}
    model = kind(random_seed=seed, **quiet, **stopping, **settings)
    rows.fit(model, eval_set=rows.validation, cat_features=rows.categories)
    return Fit(model.predict(rows.raw).reshape(len(rows.y)), {"rounds": int(model.tree_count_)})


def lightgbm(rows: Rows, seed: int, settings: Settings) -> Fit:
    package = needed("models has 'lightgbm', which", "lightgbm")
    kind = package.LGBMClassifier if rows.classes else package.LGBMRegressor
    model = kind(n_estimators=ROUNDS, random_state=seed, n_jobs=1, verbose=-1, **settings)
    stopping = package.early_stopping(PATIENCE, verbose=False)
    rows.fit(model, eval_set=[rows.validation], callbacks=[stopping])
    return Fit(model.predict(rows.raw), {"rounds": int(model.best_iteration_)})


RIVALS: dict[str, Callable[[Rows, int, Settings], Fit]] = {
    "mean": mean,
    "nearest": nearest,
    "hist-boosting": hist_boosting,
    "catboost": catboost,
    "lightgbm": lightgbm,
    "automatic": automatic,
}
_SLOW = {"learning_rate": 0.05}
_NETWORK = {"parts": "network", "weight_decay": 1e-5, "evaluate_every": 100, "learning_rate": 1e-3}
_LABELS = {"parts": "labels"}
TRIALS: dict[str, tuple[dict[str, Any], ...]] = {
    "nearest": (
        {"n_neighbors": 5},
        {"n_neighbors": 10, "weights": "distance"},
        {"n_neighbors": 20, "weights": "distance"},
    ),
    "hist-boosting": ({}, _SLOW, {**_SLOW, "max_leaf_nodes": 63, "min_samples_leaf": 10}),
    "catboost": ({}, _SLOW, {**_SLOW, "depth": 8}),
    "lightgbm": ({}, _SLOW, {**_SLOW, "num_leaves": 63, "min_child_samples": 10}),
    "network": (
        {**_NETWORK, "batch_rows": 256, "epochs": 4000, "patience": 4000},
        {**_NETWORK, "batch_rows": 512, "epochs": 4000, "patience": 4000, "dropout": 0.3},
        {"parts": "network", "dropout": 0.2},
    ),
    "attention": (_LABELS, {"parts": "both"}, {**_LABELS, "coordinates": True}),
    "exact": ({**_LABELS, "method": "exact", "evaluate_every": 300},),
}
"""The settings that each model is tried with on split 0, those that its authors recommend first;
``coordinates`` lets attention also see distances on the map, where there is one."""
MODELS = (*RIVALS, "network", "attention", "exact")


def trials(name: str, coordinates: tuple[str, ...]) -> tuple[dict[str, Any], ...]:
    last = {**_LABELS, "embedding_dim": 3}  # as many where there are no coordinates
    return tuple(
        last if "coordinates" in settings and not coordinates else settings
        for settings in TRIALS.get(name, ({},))
    )


def train(
    name: str,
    data: Data,
    coordinates: tuple[str, ...],
    settings: Settings,
    seed: int,
    epochs: int | None,
    report: Report,
) -> Fit:
    limit = {} if epochs is None else {"epochs": epochs, "warmup": epochs // 3, "patience": epochs}
    if name in ("network", "attention", "exact"):
        ours = {**settings, **limit}
        on_map = ours.pop("coordinates", False)
        return train_ours(data, ours, coordinates if on_map else (), seed, report)
    if name == "automatic" and epochs is not None:
        settings = {**settings, "epochs": epochs}
    return RIVALS[name](rows_of(our_task(data, {})[1], data), seed, settings)
