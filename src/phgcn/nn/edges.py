r"""Edges as the layers take them: any of PyG's formats to one, and self-loops, each node one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.utils import add_self_loops, contains_self_loops, is_torch_sparse_tensor, remove_self_loops, to_edge_index

from ..checks import check_edges, check_node_numbers


def to_coo(edge_index: Any, nodes: Tensor) -> Tensor:
    r"""The sources and targets of edges, :math:`(2, E)`.

    Args:
        edge_index (torch.Tensor): Sources and targets, as a tensor or :class:`torch_geometric.EdgeIndex`; or the transposed
            adjacency matrix in a :obj:`torch.sparse` layout, in which entry :math:`(i, j)` is an edge from :math:`j` to
            :math:`i`.
        nodes (torch.Tensor): Something with one row per node.
    """
    if isinstance(edge_index, Tensor) and is_torch_sparse_tensor(edge_index):
        count = nodes.size(0)
        if tuple(edge_index.shape) != (count, count):
            shape = tuple(edge_index.shape)
            raise ValueError(
                f"edge_index is a sparse matrix of shape {shape}; allowed: ({count}, {count}), as x has {count} rows"
            )
        edge_index = to_edge_index(edge_index)[0].flip(0)
    elif isinstance(edge_index, EdgeIndex):
        edge_index = edge_index.as_tensor()
    check_edges(edge_index, None, nodes, 1)
    return edge_index


def with_self_loops(edge_index: Tensor, count: int) -> Tensor:
    """The edges without their self-loops, then one self-loop for each node."""
    if contains_self_loops(edge_index):
        edge_index, _ = remove_self_loops(edge_index)
    return add_self_loops(edge_index, num_nodes=count)[0]


# A compiled graph cannot know how many self-loops there are. There, they are handed to a node that is added for them, number
# `count`, so that the number of edges depends on shapes alone.
torch.library.define("phgcn::park_self_loops", "(Tensor edge_index, SymInt count) -> Tensor")


@torch.library.impl("phgcn::park_self_loops", ("cpu", "cuda"))
def park_self_loops(edge_index: Tensor, count: int) -> Tensor:
    """The edges, in which each self-loop now is one of node ``count``, then one self-loop for each node."""
    check_node_numbers(edge_index, count)  # here, as number `count` will be allowed from now on
    parked = torch.where(edge_index[0] == edge_index[1], count, edge_index)
    return add_self_loops(parked, num_nodes=count)[0]


@torch.library.register_fake("phgcn::park_self_loops")
def _(edge_index, count):
    return edge_index.new_empty(2, edge_index.size(1) + count)
