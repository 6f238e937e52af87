r"""What ``phgcn reproduce tables`` trains."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from torch_geometric.data import Data

from ..trainings import Experiment, Job, check_request
from ..workers import Report
from .data import TABLES, load_table, with_split
from .models import MODELS, OURS, train

PUBLISHED = {
    "california": [
        {"model": "TabR, Euclidean distance on one embedding", "test": 0.442},
        {"model": "TabR, labels added to the values", "test": 0.418},
        {"model": "TabR, tuned", "test": 0.403},
        {"model": "TabR's network without attention", "test": 0.499},
        {"model": "boosted trees, tuned", "test": 0.429},
    ]
}
"""Errors that others published, from the results of github.com/yandex-research/tabular-dl-tabr: 15
seeds on a split of its own of the same sizes."""
DEFAULT_MODELS = tuple(name for name in MODELS if name != "labels-exact")


def tasks(
    tables: tuple[str, ...] = tuple(TABLES),
    models: tuple[str, ...] = DEFAULT_MODELS,
    splits: int = 5,
    epochs: int | None = None,
) -> list[Job]:
    """Lists all trainings, one split of every model after the other; ``labels-map`` where there are
    coordinates.

    Args:
        tables (tuple of str): Of :data:`phgcn.reproduce.tables.data.TABLES`. (default: all)
        models (tuple of str): Of :data:`phgcn.reproduce.tables.models.MODELS`. (default: all but
            exact attention)
        splits (int): Random splits of each table. (default: :obj:`5`)
        epochs (int, optional): Epochs of our networks, instead of 300: a quick version. (default:
            :obj:`None`)
    """
    check_request(splits, epochs, tables=(tables, tuple(TABLES)), models=(models, MODELS))
    return [
        Job(table, model, split, epochs, 100.0 if model in OURS else 1.0)
        for split in range(splits)
        for table in tables
        for model in models
        if model != "labels-map" or TABLES[table].coordinates
    ]


def do(job: Job, report: Report) -> dict[str, Any]:
    """Trains one model; returns the root mean square errors in the table's unit."""
    table, data = TABLES[job.data], with_split(_loaded(job.data), job.split)
    fit = train(job.model, data, table.coordinates, job.split, job.epochs, report)
    wrong = np.square(fit.predicted.astype(np.float64) - data.y.numpy().astype(np.float64))
    rows = {part: data[f"{part}_mask"][:, 0].numpy() for part in ("val", "test")}
    errors = {part: float(np.sqrt(wrong[mask].mean()) / table.unit) for part, mask in rows.items()}
    return {**errors, **fit.about, "rows": int(data.num_nodes)}


@cache
def _loaded(name: str) -> Data:
    return load_table(name)


EXPERIMENT = Experiment("tables", do, "RMSE", "network", 0.20 / 0.64, PUBLISHED)
