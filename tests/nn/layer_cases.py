"""Every layer and model with settings, and a graph to call it with."""

from fnmatch import fnmatch
from typing import Any, NamedTuple

import pytest
import torch
from graphs import random_graph
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv

from phgcn.lattice import Ladder, Separable
from phgcn.nn import (
    GAT,
    GATEDA,
    GCN,
    MLP,
    PHGCN,
    EDAConv,
    GlobalAttention,
    GlobalBlock,
    GlobalGNN,
    LabelAttention,
    PHGCNConv,
    TableNetwork,
)

SIZE = 6
"""Features of each node."""
EDGES, POINTS = ("edge_index", "batch"), ("batch",)
LABELS = ("y", "labelled", "keys")


class Case(NamedTuple):
    """A layer with its arguments after the size of the input, and what it takes after ``x``."""

    layer: Any
    arguments: tuple
    takes: tuple
    settings: dict

    def make(self, size=SIZE, seed=0, dtype=torch.float64, **more):
        """The layer with weights from a seed; no gate or bias is 0, as if it had learned."""
        torch.manual_seed(seed)
        settings = {**self.settings, **more}
        if "query_channels" in settings:
            settings["query_channels"] = size
        layer = self.layer(size, *self.arguments, **settings).to(dtype).eval()
        for name, parameter in layer.named_parameters():
            if name.endswith(("gate", "bias", "gates", "shares")):
                torch.nn.init.normal_(parameter)
        return layer

    def given(self, graph):
        return {name: getattr(graph, {"keys": "drawn"}.get(name, name)) for name in self.takes}


CONV = {"heads": 2, "residual": True, "learn_decay": True}
GNN = {"heads": 2, "global_layers": 2, "mass": True}
STACK = {"heads": 2, "norm": "batch_norm"}
CASES = {
    "EDAConv": Case(EDAConv, (4,), EDGES, CONV),
    "EDAConv, no loops": Case(EDAConv, (4,), EDGES, {**CONV, "add_self_loops": False}),
    "EDAConv, averaged": Case(EDAConv, (4,), EDGES, {**CONV, "concat": False}),
    "PHGCNConv": Case(PHGCNConv, (4,), EDGES, CONV),
    "PHGCNConv, no loops": Case(PHGCNConv, (4,), EDGES, {**CONV, "add_self_loops": False}),
    "PHGCNConv, averaged": Case(PHGCNConv, (4,), EDGES, {**CONV, "concat": False}),
    "PHGCNConv, lattice": Case(PHGCNConv, (4,), EDGES, {**CONV, "method": Ladder(pairs=4)}),
    "PHGCNConv, separable": Case(PHGCNConv, (4,), EDGES, {**CONV, "method": Separable()}),
    "GlobalAttention": Case(GlobalAttention, (4,), POINTS, {"heads": 2, "decay": 1.0}),
    "GlobalAttention, lattice": Case(
        GlobalAttention, (4,), POINTS, {"heads": 2, "method": Ladder(pairs=4)}
    ),
    "GlobalAttention, queries": Case(
        GlobalAttention, (4,), POINTS, {"heads": 2, "query_channels": SIZE, "learn_decay": True}
    ),
    "GlobalBlock": Case(GlobalBlock, (), POINTS, {"heads": 2}),
    "GlobalBlock, mass": Case(GlobalBlock, (), POINTS, {"heads": 2, "mass": True}),
    "LabelAttention": Case(LabelAttention, (3,), (*LABELS, "batch"), {"heads": 2}),
    "GlobalGNN, labels": Case(GlobalGNN, (8, 3), (*EDGES, *LABELS), {**GNN, "labels": True}),
    "GlobalGNN, each": Case(GlobalGNN, (8, 3, 3), EDGES, {**GNN, "global_at": "each"}),
    "GlobalGNN, input": Case(GlobalGNN, (8, 3), EDGES, {**GNN, "global_at": "input"}),
    **{
        f"GlobalGNN, {local}": Case(GlobalGNN, (8, 3), EDGES, {**GNN, "local": local})
        for local in ("gcn", "sgc", "sage", "gat", "gin", "eda", "none", GraphConv)
    },
    "TableNetwork": Case(TableNetwork, (3, 16), LABELS, {"heads": 2}),
    "PHGCN": Case(PHGCN, (4, 3), EDGES, {**STACK, "residual": True}),
    "GATEDA": Case(GATEDA, (4, 3), EDGES, STACK),
    "GAT": Case(GAT, (4, 3), EDGES, {**STACK, "residual": True}),
    "GCN": Case(GCN, (4, 3), EDGES, {**STACK, "residual": True}),
    "MLP": Case(MLP, (4, 3), EDGES, STACK),
}


def cases(*patterns, without=()):
    """Parametrises a test by the cases that match a pattern, or by all."""
    chosen = [
        name
        for name in CASES
        if any(fnmatch(name, pattern) for pattern in patterns or "*")
        and not any(fnmatch(name, pattern) for pattern in without)
    ]
    return pytest.mark.parametrize("case", [CASES[name] for name in chosen], ids=chosen)


def graph(nodes=20, seed=0, dtype=torch.float64):
    """A graph with labels, of which some are known and some of these keys."""
    x, edge_index = random_graph(nodes, 3 * nodes, SIZE, seed, dtype)
    number = torch.arange(nodes)
    masks = {"labelled": number % 4 != 0, "drawn": number % 4 == 1}
    return Data(x=x, edge_index=edge_index, y=number % 3, **masks)
