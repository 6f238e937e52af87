"""Layers and models on the part of a graph that a rank has, and on the whole graph."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from phgcn.distributed import Ranks
from phgcn.distributed.collectives import gather_for_shared_loss, sum_gradients
from phgcn.distributed.norm import synchronise_norms
from phgcn.distributed.partition import connect, divide_graph, make_part
from phgcn.nn import GAT, GATEDA, GCN, MLP, PHGCN, GlobalAttention, GlobalGNN

NODES, FEATURES = 60, 7


def graph() -> tuple[Tensor, Tensor]:
    """Features, and directed edges with self-loops and a node that nothing leads to."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(NODES, FEATURES, generator=generator, dtype=torch.float64)
    edges = torch.randint(0, NODES, (2, 240), generator=generator)
    return x, edges[:, edges[1] != 5]


def make(name: str, group: Any) -> torch.nn.Module:
    """The model of a name; with a group, for the nodes of one rank."""
    torch.manual_seed(0)
    kind, _, option = name.partition(" ")
    more: dict[str, Any] = {} if group is None else {"process_group": group}
    stack: dict[str, Any] = {"num_layers": 3, "heads": 2, "dropout": 0.0, "norm": "batch", "residual": kind != "mlp"}
    if kind == "global-gnn":
        model: Any = GlobalGNN(
            FEATURES, 8, 4, 2, option, global_layers=1, global_at="each", dropout=0.0, heads=2, mass=True, **more
        )
        for block in model.global_blocks:
            torch.nn.init.ones_(block.gate)
    elif kind == "phgcn":
        model = PHGCN(FEATURES, 3, 4, **stack, learn_decay=True, decay_global=1.0, method=option, **more)
    else:
        model = {"gat": GAT, "gat-eda": GATEDA, "gcn": GCN, "mlp": MLP}[kind](FEATURES, 3, 4, **stack)
    model = model.double()
    if group is not None:
        synchronise_norms(model, group)
    return model


def scores(model: torch.nn.Module, out: Tensor) -> dict[str, Tensor]:
    """Backward pass of a loss of all outputs; parameters' gradients and buffers by name."""
    weights = torch.randn(*out.shape, generator=torch.Generator().manual_seed(9), dtype=out.dtype)
    (out * weights).sum().backward()
    found = {f"grad {key}": p.grad for key, p in model.named_parameters() if p.grad is not None}
    return {"out": out.detach(), **found, **{key: b.double() for key, b in model.named_buffers()}}


def run_whole(name: str) -> dict[str, Tensor]:
    model = make(name, None)
    x, edges = graph()
    return scores(model, model(x, edges))


def run_part(group: Any, name: str, division: str) -> dict[str, Tensor]:
    """The same on several ranks: outputs of all nodes in their order, gradients summed."""
    ranks, model = Ranks(group), make(name, group)
    x, edges = graph()
    owner = divide_graph(edges, NODES, ranks.size, division).owner
    part = make_part(edges, owner, ranks.rank, ranks.size)
    out = model(x[part.nodes], connect(part, ranks))
    counts = owner.bincount(minlength=ranks.size).tolist()
    order = torch.cat([(owner == rank).nonzero().flatten() for rank in range(ranks.size)])
    found = scores(model, gather_for_shared_loss(out, ranks, counts)[torch.argsort(order)])
    sum_gradients(model.parameters(), ranks)
    return {**found, **{f"grad {key}": p.grad for key, p in model.named_parameters() if p.grad is not None}}


def statistics(group: Any) -> list[dict[str, Any]]:
    ranks, model = Ranks(group), make("phgcn lattice", group).eval()
    x, edges = graph()
    part = make_part(edges, divide_graph(edges, NODES, ranks.size, "contiguous").owner, ranks.rank, ranks.size)
    return model.global_statistics(x[part.nodes], connect(part, ranks), samples=20)


def whole_statistics() -> list[dict[str, Any]]:
    return make("phgcn lattice", None).eval().global_statistics(*graph(), samples=20)


def attention_layer(group: Any) -> tuple[Tensor, Tensor]:
    """GlobalAttention with a query map of its own, of the nodes of this rank and of all."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    layers = []
    for process_group in (group, None):
        torch.manual_seed(1)
        layers.append(GlobalAttention(FEATURES, 4, 2, query_channels=FEATURES, decay=1.0, process_group=process_group).double())
    x = graph()[0]
    return layers[0](x[rank::size]).detach(), layers[1](x)[rank::size].detach()
