"""Divides a graph among ranks: each node has one rank, and with it all edges that end in it."""

from __future__ import annotations

import importlib.util
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .boundary import PartEdges
from .collectives import Ranks

DIVISIONS = ("auto", "contiguous", "metis")


class Division(NamedTuple):
    """Which rank each node belongs to.

    Args:
        owner (torch.Tensor): The rank of each node, int64, (N,).
        method (str): ``"contiguous"`` or ``"metis"``.
        cut (float): The share of edges between nodes of different ranks.
    """

    owner: Tensor
    method: str
    cut: float


class Part(NamedTuple):
    """The nodes of one rank, and all edges that end in them.

    Shapes:
        - **nodes:** numbers of the nodes in the whole graph, ascending, :math:`(N_r,)`
        - **boundary:** numbers of sources on other ranks, by rank, then ascending, :math:`(B_r,)`;
          **receive:** their count on each rank
        - **edge_index:** as in :class:`phgcn.distributed.PartEdges`, in the order of the whole
          graph's edges, :math:`(2, E_r)`; **edges:** their numbers there, :math:`(E_r,)`
    """

    nodes: Tensor
    boundary: Tensor
    receive: list[int]
    edge_index: Tensor
    edges: Tensor


def divide_graph(edge_index: Tensor, nodes: int, parts: int, method: str = "auto") -> Division:
    """Divides the nodes of a graph.

    Args:
        edge_index (torch.Tensor): The edges, (2, E).
        nodes (int): The number of nodes.
        parts (int): The number of parts.
        method (str, optional): ``"contiguous"``: as the nodes are numbered. ``"metis"``: with few
            edges cut, by the package pymetis. ``"auto"``: METIS if installed. (default:
            :obj:`"auto"`)
    """
    if method not in DIVISIONS:
        raise ValueError(f"division is {method!r}; allowed: {', '.join(DIVISIONS)}")
    if parts < 1:
        raise ValueError(f"parts is {parts}; allowed: a positive integer")
    if method == "auto":
        method = (
            "contiguous" if parts == 1 or importlib.util.find_spec("pymetis") is None else "metis"
        )
    owner = torch.arange(nodes) * parts // max(nodes, 1)
    if method == "metis" and nodes > 0:
        owner = _metis(edge_index, nodes, parts)
    source, target = owner[edge_index[0]], owner[edge_index[1]]
    cut = float((source != target).double().mean()) if edge_index.size(1) > 0 else 0.0
    return Division(owner, method, cut)


def _metis(edge_index: Tensor, nodes: int, parts: int) -> Tensor:
    """Divides nodes by METIS, which takes every edge in both directions, and no self-loops."""
    try:
        import pymetis
    except ImportError:
        raise ValueError(
            "division is 'metis', which needs the package pymetis: pip install 'phgcn[metis]'"
        ) from None
    both = np.concatenate([edge_index.numpy(), edge_index.numpy()[::-1]], axis=1)
    both = np.unique(both[:, both[0] != both[1]], axis=1)  # sorted by the first row
    start = np.searchsorted(both[0], np.arange(nodes + 1))
    _, owner = pymetis.part_graph(parts, pymetis.CSRAdjacency(start, both[1]))
    return torch.tensor(owner, dtype=torch.int64)


def make_part(edge_index: Tensor, owner: Tensor, rank: int, parts: int) -> Part:
    nodes = (owner == rank).nonzero().flatten()
    edges = (owner[edge_index[1]] == rank).nonzero().flatten()
    source, target = edge_index[:, edges]
    foreign = torch.unique(source[owner[source] != rank])
    by_rank = torch.argsort(owner[foreign], stable=True)
    boundary = foreign[by_rank]
    receive = torch.bincount(owner[boundary], minlength=parts).tolist()
    numbers = torch.cat([nodes, boundary])
    local = torch.empty(len(owner), dtype=torch.int64)
    local[numbers] = torch.arange(len(numbers))
    return Part(nodes, boundary, receive, torch.stack([local[source], local[target]]), edges)


def connect(part: Part, ranks: Ranks) -> PartEdges:
    """Exchanges the numbers of nodes that ranks need of each other, on the CPU; all ranks call
    it."""
    wanted = ranks.gather_equal(torch.tensor(part.receive))  # (ranks, ranks): from row to column
    send = wanted[:, ranks.rank].tolist()
    asked = ranks.exchange(part.boundary, part.receive, send)
    sent = torch.searchsorted(part.nodes, asked)
    return PartEdges(len(part.nodes), part.edge_index, sent, send, part.receive, ranks)
