r"""What ``phgcn reproduce city`` trains."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from ...data import load_graph
from ...data.load import graph_root
from ...train import Plan, resolve
from ...train.loop import Task
from ...train.prepare import prepare
from ..trainings import Experiment, Job, check_request
from ..workers import Report
from .models import MODELS, train

CITIES = ("huangpu",)
SPLITS = 10


def tasks(models: tuple[str, ...] = MODELS, splits: int = 5, epochs: int | None = None) -> list[Job]:
    """Lists all trainings, one split of every model after the other.

    Args:
        models (tuple of str): Of :data:`phgcn.reproduce.city.models.MODELS`. (default: all)
        splits (int): Of the file's ten splits. (default: :obj:`5`)
        epochs (int, optional): Epochs of networks, instead of 300: a quick version. (default:
            :obj:`None`)
    """
    check_request(splits, epochs, models=(models, MODELS))
    if splits > SPLITS:
        raise ValueError(f"splits is {splits}; allowed: 1 to {SPLITS}, those of the file")
    return [Job(city, model, split, epochs) for split in range(splits) for city in CITIES for model in models]


def load_city(name: str) -> Data:
    """Loads a street network with its coordinates as the last two features."""
    path = graph_root() / "city" / f"{name}.npz"
    if not path.is_file():
        raise ValueError(f"{path}: is not there; allowed: a folder of data in $PHGCN_DATA with city/{name}.npz")
    data = load_graph(path)
    with np.load(path, allow_pickle=False) as arrays:
        coordinates = torch.from_numpy(arrays["coordinates"])
    data.x = torch.cat([data.x, coordinates], dim=1)
    return data


@cache
def _task(name: str, split: int) -> Task:
    plan = Plan(
        name, "gcn", protocol="official", splits=split + 1, settings=resolve("gcn", changes=["scaling=standard"]).settings
    )
    return prepare(plan, load_city(name))[split]


def do(job: Job, report: Report) -> dict[str, Any]:
    """Trains one model; returns accuracies in percent."""
    task = _task(job.data, job.split)
    outputs, about = train(job.model, task, job.split, job.epochs, report)
    scores = {
        part: 100 * float(task.kind.metric("accuracy", outputs[nodes], task.y[nodes]))
        for part, nodes in (("val", task.val), ("test", task.test))
    }
    return {**scores, **about}


EXPERIMENT = Experiment("city", do, "accuracy", "sage-16", 80 / 10, {})
