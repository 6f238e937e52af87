r"""What ``phgcn train`` tries when nobody names a model: networks with and without attention to all nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch_geometric.data import Data

from ..data.summary import is_uneven
from ..registry import DEFAULT_MODEL
from .graph import count_edges
from .settings import Settings, change, keys, parse

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
_SIMILAR = {
    **_LOCAL, "local": "none", "num_layers": 2, "hidden_channels": 64, "learning_rate": 0.02, "global_layers": 1,
    "global_at": "input", "decay": 10.0, "heads": 4, "input_dropout": 0.2,
}  # fmt: skip
_PAPER = {**_TRAINING, "heads": 4, "learning_rate": 0.01}

GLOBAL_GNN = {**_GCN, "global_layers": 1, "global_at": "input", "decay": 10.0, "heads": 4}
"""Settings of ``global-gnn`` where it is asked for by name."""


@dataclass(frozen=True)
class Candidate:
    """A model with settings, and whether it attends to all nodes."""

    name: str
    model: str
    values: dict[str, Any] = field(hash=False)
    attention: bool

    def settings(self, changes: Sequence[str]) -> Settings:
        """Returns its settings, with changes as ``"heads=4"``."""
        settings = change(Settings(), self.values, self.model, self.name)
        return change(settings, dict(map(parse, changes)), self.model, "--set")

    def takes(self, changes: Sequence[str]) -> bool:
        """Tells whether its model has all these settings."""
        return all(parse(text)[0] in keys(self.model) for text in changes)


def candidates(data: Data, device: str) -> list[Candidate]:
    """Returns the candidates for a graph, by its size and whether its features are words."""
    filled = data.description["filled"] if "description" in data else share_filled(data.x)
    words = data.x.size(1) > FEW_FEATURES and filled < WORD_SHARE
    local = {"gcn": _GCN, "sage": _SAGE, **({"words": _WORDS} if words else {"deep": _DEEP})}
    if size_class(data, device):  # each layer and candidate takes long
        local = {"sage": {**_SAGE, "norm": "batch"}}
    found = [Candidate("mlp", "mlp", {**_TRAINING, "learning_rate": 0.01}, False)]
    found += [Candidate(name, DEFAULT_MODEL, values, False) for name, values in local.items()]
    found += [Candidate("similar nodes", DEFAULT_MODEL, _SIMILAR, True)]
    found += [Candidate("similar nodes + sage", DEFAULT_MODEL, {**_SIMILAR, "local": "sage"}, True)]
    if not size_class(data, device):
        found += [Candidate("phgcn", "phgcn", _PAPER, True)]
        found += [Candidate("phgcn, no dropout", "phgcn", {**_PAPER, "dropout": 0.0, "learn_decay": True}, True)]
    if "feature_columns" in data and is_uneven(data):
        found = [Candidate(c.name, c.model, {**c.values, "scaling": "standard"}, c.attention) for c in found]
    bound = {0: 500, 1: 300, 2: 200}[size_class(data, device)]
    limits = {"epochs": bound, "patience": min(100, bound // 4)}
    return [Candidate(c.name, c.model, {**c.values, **limits}, c.attention) for c in found]


def with_attention(best: Candidate) -> list[Candidate]:
    """Returns a local network with attention to all nodes on top of it."""
    if best.model != DEFAULT_MODEL:
        best = Candidate(best.name, DEFAULT_MODEL, {**_LOCAL, "local": "none", **_shared(best)}, False)
    return [Candidate(f"{best.name} + attention", DEFAULT_MODEL, {**best.values, "global_layers": 1}, True)]


def _shared(candidate: Candidate) -> dict[str, Any]:
    """Returns the settings of a candidate that say how it is trained."""
    return {key: candidate.values[key] for key in (*_TRAINING, "scaling") if key in candidate.values}


def size_class(data: Data, device: str) -> int:
    """Returns 1 for a graph that is large for its device, 2 for a huge one, else 0."""
    size = int(data.num_nodes) + count_edges(data)
    return 0 if device != "cpu" or size < LARGE else 1 if size < HUGE else 2


def share_filled(x: torch.Tensor) -> float:
    """Returns the share of features that are not 0."""
    values = x if x.layout == torch.strided else x.values()
    return float(values.count_nonzero()) / max(1, x.size(0) * x.size(1))
