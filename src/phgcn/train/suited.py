r"""Settings of ``global-gnn`` for a graph that nobody has tuned: a rule of a few lines, by size, features and metric.

Chosen (``benchmarks/suited_search.py``) and tried (``benchmarks/suited.py``) on validation nodes of ten graphs beside GCN and
MLP with their defaults.  Labels are not looked at, so that no split's test nodes have a say.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch_geometric.data import Data

from ..data.summary import is_uneven

BASE: dict[str, Any] = {
    "hidden_channels": 128, "num_layers": 3, "local": "gcn", "norm": "batch", "residual": True, "dropout": 0.5,
    "global_layers": 1, "heads": 4, "learn_decay": True, "learning_rate": 0.005, "weight_decay": 5e-4,
    "epochs": 500, "local_epochs": 0, "patience": 100, "select": "metric",
}  # fmt: skip

FEW_NODES = 1000
FEW_FEATURES = 64
WORD_SHARE = 0.1
"""Features of which a smaller share is not 0 are taken for words."""


class Suited(NamedTuple):
    """Settings, and what of the graph they were chosen by."""

    values: dict[str, Any]
    reason: str


def suit_settings(data: Data, metric: str) -> Suited:
    """Returns settings of ``global-gnn`` that suit a graph.

    Args:
        data (torch_geometric.data.Data): The graph.
        metric (str): What its predictions are judged by.
    """
    nodes, features = int(data.num_nodes), data.x.size(1)
    filled = data.description["filled"] if "description" in data else share_filled(data.x)
    kind = "few" if features <= FEW_FEATURES else "word" if filled < WORD_SHARE else "dense"
    changes: dict[str, Any] = {}
    if nodes < FEW_NODES:  # too few to learn what neighbours mean: a map of its own for the node itself, shallow, narrow
        changes = {"local": "sage", "num_layers": 2, "norm": "layer", "hidden_channels": 64, "learning_rate": 0.01}
    elif kind == "few" or metric == "roc_auc":  # what a node is follows from a wide neighbourhood, and is hard to overfit
        changes = {"num_layers": 8, "hidden_channels": 64, "dropout": 0.2, "learning_rate": 0.01, "weight_decay": 0.0}
        changes |= {"epochs": 1000, "patience": 200}
    elif kind == "dense":  # neighbourhoods of several widths, with weights of their own; features overfit, layers do not
        changes = {"num_layers": 5, "jk": "sum", "input_dropout": 0.5, "weight_decay": 0.0}
    else:  # many words, each in few nodes: neighbourhoods of all widths, without weights of their own; local ones first
        changes = {"local": "sgc", "num_layers": 8, "jk": "sum", "norm": "none", "residual": False, "hidden_channels": 64}
        changes |= {"input_dropout": 0.5, "learning_rate": 0.01, "weight_decay": 0.002, "normalise": True}
        changes |= {"mass": True, "local_epochs": 200}
    if "feature_columns" in data and is_uneven(data):  # a table whose columns are in different units
        changes |= {"scaling": "standard"}
        kind = f"{kind} uneven"
    return Suited(BASE | changes, f"suited to {nodes:,} nodes, {features:,} {kind} features and {metric}")


def share_filled(x: torch.Tensor) -> float:
    """Returns the share of features that are not 0."""
    values = x if x.layout == torch.strided else x.values()
    return float(values.count_nonzero()) / (x.size(0) * x.size(1))
