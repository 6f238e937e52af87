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

NODES, FEATURES, EDGE_FEATURES = 60, 7, 3


def graph() -> tuple[Tensor, Tensor]:
    """Features, and directed edges with self-loops and a node that nothing leads to."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(NODES, FEATURES, generator=generator, dtype=torch.float64)
    edges = torch.randint(0, NODES, (2, 240), generator=generator)
    return x, edges[:, edges[1] != 5]


def edge_values(names: tuple[str, ...]) -> dict[str, Tensor]:
    """Features and weights of the edges, of which some weigh nothing."""
    generator = torch.Generator().manual_seed(3)
    edges = graph()[1].size(1)
    weight = (2 * torch.rand(edges, generator=generator, dtype=torch.float64) - 0.2).clamp(min=0)
    made = {
        "edge_attr": torch.randn(edges, EDGE_FEATURES, generator=generator, dtype=torch.float64),
        "edge_weight": weight,
    }
    return {key: made[key].requires_grad_() for key in names}


def make(name: str, group: Any, values: tuple[str, ...] = ()) -> torch.nn.Module:
    """The model of a name; with a group, for the nodes of one rank."""
    torch.manual_seed(0)
    kind, _, option = name.partition(" ")
    more: dict[str, Any] = {} if group is None else {"process_group": group}
    of_edges: dict[str, Any] = {"edge_dim": EDGE_FEATURES} if "edge_attr" in values else {}
    stack: dict[str, Any] = {
        "num_layers": 3,
        "heads": 2,
        "dropout": 0.0,
        "norm": "batch",
        "residual": kind != "mlp",
    }
    if kind == "global-gnn":
        model: Any = GlobalGNN(
            FEATURES,
            8,
            4,
            2,
            option,
            global_layers=1,
            global_at="each",
            dropout=0.0,
            heads=2,
            mass=True,
            **of_edges,
            **more,
        )
        for block in model.global_blocks:
            torch.nn.init.ones_(block.gate)
    elif kind == "phgcn":
        model = PHGCN(
            FEATURES,
            3,
            4,
            **stack,
            learn_decay=True,
            decay_global=1.0,
            method=option,
            **of_edges,
            **more,
        )
    else:
        model = {"gat": GAT, "gat-eda": GATEDA, "gcn": GCN, "mlp": MLP}[kind](
            FEATURES, 3, 4, **stack, **of_edges
        )
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


def run_whole(name: str, values: tuple[str, ...] = ()) -> dict[str, Tensor]:
    model = make(name, None, values)
    x, edges = graph()
    given = edge_values(values)
    return {
        **scores(model, model(x, edges, **given)),
        **{f"grad {key}": t.grad for key, t in given.items()},
    }


def run_part(
    group: Any, name: str, division: str, values: tuple[str, ...] = ()
) -> dict[str, Tensor]:
    """The same on several ranks: outputs of all nodes in their order, gradients summed."""
    ranks, model = Ranks(group), make(name, group, values)
    x, edges = graph()
    owner = divide_graph(edges, NODES, ranks.size, division).owner
    part = make_part(edges, owner, ranks.rank, ranks.size)
    given = edge_values(values)
    out = model(
        x[part.nodes],
        connect(part, ranks),
        **{key: rows[part.edges] for key, rows in given.items()},
    )
    counts = owner.bincount(minlength=ranks.size).tolist()
    order = torch.cat([(owner == rank).nonzero().flatten() for rank in range(ranks.size)])
    found = scores(model, gather_for_shared_loss(out, ranks, counts)[torch.argsort(order)])
    sum_gradients([*model.parameters(), *given.values()], ranks)
    learned = {**dict(model.named_parameters()), **given}
    return {**found, **{f"grad {key}": p.grad for key, p in learned.items() if p.grad is not None}}


def statistics(group: Any) -> list[dict[str, Any]]:
    ranks, model = Ranks(group), make("phgcn lattice", group).eval()
    x, edges = graph()
    part = make_part(
        edges, divide_graph(edges, NODES, ranks.size, "contiguous").owner, ranks.rank, ranks.size
    )
    return model.global_statistics(x[part.nodes], connect(part, ranks), samples=20)


def whole_statistics() -> list[dict[str, Any]]:
    return make("phgcn lattice", None).eval().global_statistics(*graph(), samples=20)


def attention_layer(group: Any) -> tuple[Tensor, Tensor]:
    """GlobalAttention with a query map of its own, of the nodes of this rank and of all."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    layers = []
    for process_group in (group, None):
        torch.manual_seed(1)
        layers.append(
            GlobalAttention(
                FEATURES, 4, 2, query_channels=FEATURES, decay=1.0, process_group=process_group
            ).double()
        )
    x = graph()[0]
    return layers[0](x[rank::size]).detach(), layers[1](x)[rank::size].detach()
