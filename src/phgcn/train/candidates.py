r"""What ``phgcn train`` tries when nobody names a model, and what it begins with when somebody does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch_geometric.data import Data

from ..registry import DEFAULT_MODEL, TABLE_MODEL
from .graph import count_edges, indicators
from .settings import Settings, change, keys

FEW_FEATURES = 64
WORD_SHARE = 0.1
"""Features of which a smaller share is not 0 are taken for words."""

LARGE, HUGE = 300_000, 800_000
"""Nodes and edges from which on training on a CPU takes long."""

_TRAINING: dict[str, Any] = {"epochs": 500, "patience": 100, "select": "metric", "learning_rate": 0.005}
_LOCAL: dict[str, Any] = {
    **_TRAINING, "norm": "batch", "residual": True, "hidden_channels": 128, "num_layers": 3, "learn_decay": True,
}  # fmt: skip
_GCN = {**_LOCAL, "local": "gcn"}
_SAGE = {**_LOCAL, "local": "sage", "num_layers": 2, "norm": "layer", "hidden_channels": 64, "learning_rate": 0.01}
_DEEP = {**_LOCAL, "num_layers": 8, "hidden_channels": 64, "dropout": 0.2, "learning_rate": 0.01, "weight_decay": 0.0}
_WORDS = {
    **_LOCAL, "local": "sgc", "num_layers": 8, "jk": "sum", "norm": "none", "residual": False, "hidden_channels": 64,
    "input_dropout": 0.5, "learning_rate": 0.01, "weight_decay": 0.002, "normalise": True,
}  # fmt: skip
_MLP = {**_LOCAL, "local": "none", "num_layers": 2, "hidden_channels": 64, "learning_rate": 0.02, "input_dropout": 0.2}
_SIMILAR = {"global_layers": 1, "global_at": "input", "decay": 10.0, "heads": 4}
_PAPER = {**_TRAINING, "heads": 4, "learning_rate": 0.01}

GLOBAL_GNN = {**_GCN, **_SIMILAR}
"""Settings of ``global-gnn`` where it is asked for by name."""

BATCH_ROWS = 2**16
"""Rows of a large table that are drawn for each step."""

SPLITS = {0: 3, 1: 3, 2: 1}
EPOCHS = {0: 500, 1: 300, 2: 200}
"""Splits and epochs at most by default, by :func:`size_class`."""


class Start(NamedTuple):
    """Settings to start from, and why these."""

    values: dict[str, Any]
    reason: str


@dataclass(frozen=True)
class Candidate:
    """A model with settings, and whether it attends to all nodes."""

    name: str
    model: str
    values: dict[str, Any] = field(hash=False)
    attention: bool

    def settings(self, changes: Mapping[str, Any]) -> Settings:
        """Returns its settings, some of them changed."""
        settings = change(Settings(), self.values, self.model, self.name)
        return change(settings, changes, self.model, "--set")

    def takes(self, changes: Mapping[str, Any]) -> bool:
        """Tells whether its model has all these settings."""
        return set(changes) <= set(keys(self.model))


def candidates(data: Data, device: str) -> list[Candidate]:
    """Returns the candidates for a graph, by its size and whether its features are words."""
    filled = data.description["filled"] if "description" in data else share_filled(data.x)
    words = data.x.size(1) > FEW_FEATURES and filled < WORD_SHARE
    local = {"mlp": _MLP, "gcn": _GCN, "sage": _SAGE, **({"words": _WORDS} if words else {"deep": _DEEP})}
    paper = {"phgcn": _PAPER, "phgcn, no dropout": {**_PAPER, "dropout": 0.0, "learn_decay": True}}
    if size_class(data, device):  # each layer and candidate takes long
        local, paper = {"mlp": _MLP, "sage": {**_SAGE, "norm": "batch"}}, {}
    similar = {"similar nodes": {**_MLP, **_SIMILAR}, "similar nodes + sage": {**_MLP, **_SIMILAR, "local": "sage"}}
    found = [Candidate(name, DEFAULT_MODEL, values, False) for name, values in local.items()]
    found += [Candidate(name, DEFAULT_MODEL, values, True) for name, values in similar.items()]
    found += [Candidate(name, "phgcn", values, True) for name, values in paper.items()]
    return [replace(c, values={**c.values, **_of_graph(data, device)}) for c in found]


def start_settings(data: Data, model: str, device: str) -> Start | None:
    """Returns the settings that a training of a model starts from, where these are not its defaults."""
    values = dict(GLOBAL_GNN) if model == DEFAULT_MODEL else {}
    limited = _of_graph(data, device)
    if model != DEFAULT_MODEL and not size_class(data, device):
        limited.pop("epochs")
        limited.pop("patience")
    narrow = "scaling" in limited and data.x.size(1) <= FEW_FEATURES
    if narrow and model != DEFAULT_MODEL and "dropout" in keys(model):
        values["dropout"] = 0.0
    values |= limited
    if model == TABLE_MODEL and size_class(data, device):
        values |= {"batch_rows": BATCH_ROWS, "evaluate_every": 50}
    return Start(values, f"start for {int(data.num_nodes):,} nodes, {data.x.size(1):,} features") if values else None


def _of_graph(data: Data, device: str) -> dict[str, Any]:
    """Returns settings that follow from the graph, the same for all models: fewer epochs for a large one, and columns of
    numbers scaled to mean 0 and deviation 1."""
    epochs = EPOCHS[size_class(data, device)]
    values: dict[str, Any] = {"epochs": epochs, "patience": min(100, epochs // 4)}
    if "feature_columns" in data and not bool(indicators(data).all()):
        values["scaling"] = "standard"
    return values


def with_attention(best: Candidate) -> list[Candidate]:
    """Returns a local network with attention to all nodes on top of it, by features and by labels."""
    features = {**best.values, "global_layers": 1, "global_at": "top"}
    return [
        Candidate(f"{best.name} + attention", best.model, features, True),
        Candidate(f"{best.name} + labels", best.model, {**best.values, "labels": True}, True),
    ]


def without_attention(best: Candidate) -> Candidate | None:
    """Returns the same network without attention to all nodes; :obj:`None` for a model of which there is none."""
    if best.model != DEFAULT_MODEL:
        return None
    values = {key: value for key, value in best.values.items() if key not in (*_SIMILAR, "labels")}
    return Candidate(f"{best.name}, without", best.model, values, False)


def size_class(data: Data, device: str) -> int:
    """Returns 1 for a graph that is large for its device, 2 for a huge one, else 0."""
    size = int(data.num_nodes) + count_edges(data)
    return 0 if device != "cpu" or size < LARGE else 1 if size < HUGE else 2


def share_filled(x: torch.Tensor) -> float:
    """Returns the share of features that are not 0."""
    values = x if x.layout == torch.strided else x.values()
    return float(values.count_nonzero()) / max(1, x.size(0) * x.size(1))
