r"""What ``phgcn reproduce tables`` trains."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import cache

import numpy as np
from torch_geometric.data import Data

from ..results import Row, chosen, names
from ..trainings import Comparison, Job
from ..trainings_report import mark
from ..workers import Report
from .data import TABLES, UNSEEN, load_table, with_split
from .models import MODELS, train, trials

TABR = "https://github.com/yandex-research/tabular-dl-tabr, 15 seeds on a split of these sizes"
PUBLISHED = {
    "california": [
        {"model": "TabR, Euclidean distance on one embedding", "test": 0.442, "source": TABR},
        {"model": "TabR, labels added to the values", "test": 0.418, "source": TABR},
        {"model": "TabR, tuned", "test": 0.403, "source": TABR},
        {"model": "TabR's network without attention", "test": 0.499, "source": TABR},
        {"model": "boosted trees, tuned, the best", "test": 0.429, "source": TABR},
        {"model": "boosted trees, tuned, the worst", "test": 0.435, "source": TABR},
    ]
}
"""Errors that others published."""
MADE_ONLY, FILE_ONLY = ("automatic",), ("attention", "exact")
"""Models of tables that are made, and of tables from files: only on the latter a setting may have
been chosen."""
BOOSTED = ("hist-boosting", "catboost", "lightgbm")


def count_settings(table: str, model: str) -> int:
    if model in (MADE_ONLY if TABLES[table].file else FILE_ONLY):
        return 0
    return len(trials(model, TABLES[table].coordinates))


def do(job: Job, report: Report) -> Iterator[Row]:
    """Yields root mean squares in the table's unit, of classes the percentage of wrong ones."""
    table, data = TABLES[job.data], with_split(_loaded(job.data), job.split)
    settings = trials(job.model, table.coordinates)[job.trial or 0]
    fit = train(job.model, data, table.coordinates, settings, job.split, job.epochs, report)
    truth = data.y.numpy()
    errors = {}
    for part in ("val", "test"):
        mask = data[f"{part}_mask"][:, 0].numpy()
        predicted, known = fit.predicted[mask], truth[mask]
        if table.classes:
            errors[part] = 100 * float((predicted != known).mean())
        else:
            wrong = predicted.astype(np.float64) - known.astype(np.float64)
            errors[part] = float(np.sqrt(np.square(wrong).mean()) / table.unit)
    metric = "% wrong" if table.classes else "RMSE"
    about = {"settings": settings, **fit.about, "rows": int(data.num_nodes)}
    yield {"metric": metric, **errors, **about}


def summary(rows: list[Row]) -> Row:
    """Divides the errors of attention by those of boosted trees, if there are some."""
    ratios, marks = [], []
    for table in names(rows, "data"):
        of_table = {row["model"]: row for row in chosen(rows, data=table)}
        ours = of_table.get("automatic" if table in UNSEEN else "attention")
        trees = [of_table[model] for model in BOOSTED if model in of_table]
        if ours is None or "hist-boosting" not in of_table or not all(t["test"] for t in trees):
            continue
        ratio = {
            "data": table,
            "model": ours["model"],
            "hist-boosting": ours["test"] / of_table["hist-boosting"]["test"],
            "trees": ours["test"] / min(tree["test"] for tree in trees),
        }
        ratios.append(ratio)
        if table == "diamonds":
            what = "diamonds: error over that of the best boosted trees"
            marks.append(mark(what, ratio["trees"], 1.02))
    for ours in chosen(rows, data="california", model="attention"):
        marks.append(mark("california: RMSE", ours["test"], 0.435))
        if found := ours["difference"]:
            what = "california: upper end of the difference from the network without attention"
            marks.append(mark(what, found["high"], 0.0))
    unseen = [ratio["hist-boosting"] for ratio in ratios if ratio["data"] in UNSEEN]
    if unseen:
        what = f"{len(unseen)} tables not in the data folder: mean ratio to hist-boosting"
        marks.append(mark(what, statistics.mean(unseen), 1.05))
    return {"ratios": ratios, "marks": marks}


@cache
def _loaded(name: str) -> Data:
    return load_table(name)


EXPERIMENT = Comparison(
    "tables",
    "tables",
    tuple(TABLES),
    MODELS,
    100,
    do,
    ("network",),
    0.20 / 0.64,
    only_asked=("exact",),
    settings=count_settings,
    published=PUBLISHED,
    summary=summary,
)
