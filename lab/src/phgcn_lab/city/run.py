r"""What ``phgcn reproduce city`` trains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from torch_geometric.data import Data

from phgcn.data import AddHopPositions, load_graph
from phgcn.data.load import graph_root
from phgcn.train import Plan, resolve
from phgcn.train.loop import Task
from phgcn.train.prepare import prepare

from ..propagation import correct_and_smooth
from ..results import Row, chosen, names
from ..trainings import Comparison, Job, scores
from ..trainings_report import best, mark
from ..workers import Report
from .models import ATTENTION, HOPS, LOCAL, MODELS, SMOOTHED, train

CITIES = ("huangpu",)


def load_city(name: str) -> Data:
    """The coordinates are the last two features."""
    path = graph_root() / "city" / f"{name}.npz"
    if not path.is_file():
        raise ValueError(
            f"{path}: is not there; allowed: a folder of data in $PHGCN_DATA with city/{name}.npz"
        )
    data = load_graph(path)
    with np.load(path, allow_pickle=False) as arrays:
        coordinates = torch.from_numpy(arrays["coordinates"])
    data.x = torch.cat([data.x, coordinates], dim=1)
    return data


@cache
def _task(name: str, split: int) -> Task:
    plan = Plan(
        name,
        "gcn",
        protocol="official",
        splits=split + 1,
        settings=resolve("gcn", changes=["scaling=standard"]).settings,
    )
    data = load_city(name)
    hops = AddHopPositions(HOPS, attr_name="hops")(data).hops
    task = prepare(plan, data)[split]
    return replace(task, x=torch.cat([task.x, hops], dim=1))


def do(job: Job, report: Report) -> Iterator[Row]:
    """Trains one model; yields its row, and that of Correct & Smooth of its outputs."""
    task = _task(job.data, job.split)
    outputs, about = train(job.model, task, job.split, job.epochs, report)
    yield {**scores(task, outputs), **about}
    if job.model == SMOOTHED:
        found, chosen = correct_and_smooth(task, outputs)
        yield {"model": "correct-and-smooth", **scores(task, found), **about, **chosen}


def summary(rows: list[Row]) -> Row:
    """Compares attention, the best of its models by validation, with the best local network."""
    marks = []
    for city in names(rows, "data"):
        ours = [row for row in chosen(rows, data=city) if row["model"] in ATTENTION]
        found = best(ours)["difference"] if ours else None
        if found is not None:
            what = f"{city}: {best(ours)['model']} above the best local network, points"
            marks.append(mark(what, found["mean"], 3.0, at_least=True))
    return {"marks": marks}


EXPERIMENT = Comparison(
    "city",
    "cities",
    CITIES,
    MODELS,
    10,
    do,
    LOCAL,
    80 / 10,
    after={"correct-and-smooth": SMOOTHED},
    summary=summary,
)
