r"""How much of the variance of node features lies within classes, before and after attention, in
the first layer of PH-GCN.

The paper says that global attention reduces the variance within a class.  Measured on trained
networks and, for comparison, on the same networks before training, on test nodes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from registry import measurement
from torch import Tensor

from phgcn.data import load_graph
from phgcn.functional import global_attention
from phgcn.nn import PHGCNConv
from phgcn.nn.graph_input import GraphInput
from phgcn.train import Plan, Task, resolve
from phgcn.train.prepare import prepare, seeded, start
from phgcn_lab.markdown import table
from phgcn_lab.results import chosen, names

GRAPHS = ("cornell", "texas", "wisconsin")
SPLITS = 10
WHEN = ("before", "after")


def share_within(features: Tensor, y: Tensor) -> float:
    """Returns the variance within classes over the total variance, of features (N, H, C), all
    channels together.
    """
    flat = features.flatten(start_dim=1).double()
    counts, classes = y.bincount().clamp(min=1).unsqueeze(1), int(y.max()) + 1
    means = flat.new_zeros(classes, flat.size(1)).index_add(0, y, flat) / counts
    return float((flat - means[y]).square().sum() / (flat - flat.mean(dim=0)).square().sum())


@torch.no_grad()
def shares(layer: PHGCNConv, task: Task) -> dict[str, float]:
    """Returns the shares of the layer's values, and of what its two paths make of them."""
    nodes = layer.project_nodes(task.x)
    values = nodes.values
    structural, _ = layer.attend_structural(
        nodes, GraphInput(task.x, task.edge_index), layer.decay_local(), False
    )
    everywhere = global_attention(
        nodes.positions, values, decay=layer.decay_global(), method=layer.method
    )
    paths, y = (("values", values), ("structural", structural), ("global", everywhere)), task.y
    return {name: share_within(x[task.test], y[task.test]) for name, x in paths}


def measure(graph: str) -> list[dict]:
    """Trains PH-GCN on every split with its tuned settings, and measures before and after."""
    data = load_graph(graph, sparse=True)
    plan = Plan(graph, "phgcn", splits=SPLITS, settings=resolve("phgcn", graph).settings)
    rows = []
    for trial, task in zip(plan.trials(), prepare(plan, data), strict=True):
        with seeded(trial.seed, task):
            training = start(plan, task)
            layer = training.model.convs[0]
            before = shares(layer.eval(), task)
            while not training.done:
                training.epoch()
        training.model.load_state_dict(training.state.best_weights)
        found = {"before": before, "after": shares(layer.eval(), task)}
        rows.append({"graph": graph, "split": trial.split, **found})
    return rows


def rows_of(measured: dict) -> list[str]:
    paths = {"values": "values", "structural": "structural path", "global": "global path"}

    rows = []
    for graph in names(measured["rows"], "graph"):
        for when in WHEN:
            found = [row[when] for row in chosen(measured["rows"], graph=graph)]
            means = [sum(shares[path] for shares in found) / len(found) for path in paths]
            rows.append([graph, when, *(f"{mean:.2f}" for mean in means)])
    return table(["graph", "training", *paths.values()], rows)


@measurement(tables=rows_of)
def within_class(options: argparse.Namespace) -> Iterator[dict]:
    """Share of the variance of features within classes, before and after attention and training."""
    rows: list[dict] = []
    for graph in GRAPHS:
        rows += measure(graph)
        yield {"rows": rows}
