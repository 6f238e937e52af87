r"""What ``phgcn reproduce labels`` trains: on ten graphs, a local network with the labels of other
nodes as values of attention, beside what else could explain a gain.

- ``off``: the local network.
- ``part``: the same, with the loss of a random part of the training nodes in each step: the nodes
  that have a loss where labels are on.
- ``labels``: the same with labels on (``GlobalGNN(labels=True)``).
- ``nearest``, ``correct-and-smooth``: the outputs of ``off`` and the labels of training nodes, in
  one training with ``off``.
- ``propagation``: the labels along the edges, without a network.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

from phgcn.data import known_graph, load_graph
from phgcn.train import Plan, resolve
from phgcn.train.global_path import switch_global
from phgcn.train.loop import Task
from phgcn.train.prepare import prepare, seeded, start

from .propagation import correct_and_smooth, nearest_nodes, propagate
from .results import Row
from .trainings import Comparison, Job, scores, train_to_end
from .workers import Report

SAGE = {"local": "sage", "num_layers": 2, "norm": "layer", "hidden_channels": 64}
GCN = {"local": "gcn", "num_layers": 3, "norm": "batch", "hidden_channels": 128}
BODIES = {
    "texas": SAGE,
    "wisconsin": SAGE,
    "cornell": SAGE,
    "chameleon-filtered": GCN,
    "squirrel-filtered": GCN,
    "cora": GCN,
    "citeseer": GCN,
    "actor": SAGE,
    "minesweeper": GCN,
    "pubmed": GCN,
}
"""The local network of each graph, with settings that the search of ``phgcn train`` begins with."""
TRAINING = {
    "residual": True,
    "learning_rate": 0.005,
    "epochs": 300,
    "patience": 100,
    "select": "metric",
    "decay": 4.0,
    "learn_decay": True,
}
AFTER_OFF = {"nearest": nearest_nodes, "correct-and-smooth": correct_and_smooth}
"""Models that use the outputs of ``off``: its training makes their rows."""
MODELS = ("off", *AFTER_OFF, "part", "labels", "propagation")


def do(job: Job, report: Report) -> Iterator[Row]:
    """Trains one model; yields its row, and those of the models that use its outputs."""
    task = _task(job.data, job.split)
    if job.model == "propagation":
        outputs, about = propagate(task)
    else:
        outputs, about = _train(job, task, report)
    yield {**scores(task, outputs), **about}
    if job.model == "off":
        for model, use in AFTER_OFF.items():
            found, chosen = use(task, outputs)
            yield {"model": model, **scores(task, found), **about, **chosen}


def _train(job: Job, task: Task, report: Report) -> tuple[Tensor, Row]:
    limit = {} if job.epochs is None else {"epochs": job.epochs}
    settings = {**BODIES[job.data], **TRAINING, **limit, "labels": job.model != "off"}
    with seeded(job.split, task):
        training = start(_plan(job.data, job.split, settings), task)
        if job.model == "part":  # keys are drawn, and have no loss, but nobody attends to them
            switch_global(training.model, False)
        return train_to_end(training, report)


def _plan(graph: str, split: int, settings: dict[str, Any]) -> Plan:
    changes = [f"{key}={str(value).lower()}" for key, value in settings.items()]
    known = known_graph(graph)
    assert known is not None and known.masks is not None
    return Plan(
        graph,
        "global-gnn",
        protocol=known.masks,
        splits=split + 1,
        metric=known.metric,
        settings=resolve("global-gnn", changes=changes).settings,
    )


@lru_cache(maxsize=1)
def _task(graph: str, split: int) -> Task:
    return prepare(_plan(graph, split, {}), _graph(graph))[split]


@lru_cache(maxsize=1)
def _graph(name: str) -> Data:
    return load_graph(name, sparse=True)


EXPERIMENT = Comparison(
    "labels",
    "graphs",
    tuple(BODIES),
    MODELS,
    10,
    do,
    ("off",),
    20 / 48,
    after=dict.fromkeys(AFTER_OFF, "off"),
)
