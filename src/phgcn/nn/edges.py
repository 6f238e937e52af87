r"""Edges as the layers use them: any of PyG's formats as sources and targets, and one self-loop for each node."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.utils import add_self_loops, contains_self_loops, is_torch_sparse_tensor, remove_self_loops, to_edge_index

from ..checks import check_edges, check_node_numbers


def to_coo(edge_index: Any, nodes: Tensor) -> Tensor:
    r"""Converts edges of any format to sources and targets, :math:`(2, E)`, and checks them.

    Args:
        edge_index (torch.Tensor): Sources and targets, as a tensor or :class:`torch_geometric.EdgeIndex`; or the transposed
            adjacency matrix in a :obj:`torch.sparse` layout, in which entry :math:`(i, j)` is an edge from :math:`j` to
            :math:`i`.
        nodes (torch.Tensor): A tensor with one row per node, on the device of the layer.
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
    edges: Tensor = edge_index
    return edges


def replace_self_loops(edge_index: Tensor, count: int) -> Tensor:
    """Removes all self-loops, then appends one for each of ``count`` nodes."""
    if contains_self_loops(edge_index):
        edge_index, _ = remove_self_loops(edge_index)
    edges: Tensor = add_self_loops(edge_index, num_nodes=count)[0]
    return edges


# Removing self-loops makes a tensor whose size depends on the data: torch.compile and CUDA graphs do not allow that, and on a
# GPU the host would wait for the size. There, existing self-loops are redirected to a spare node that the caller appends and
# whose output it drops, so that the number of edges follows from shapes alone. A custom op, as it also checks node numbers.
torch.library.define("phgcn::redirect_self_loops", "(Tensor edge_index, SymInt count) -> Tensor")


@torch.library.impl("phgcn::redirect_self_loops", ("cpu", "cuda"))
def redirect_self_loops(edge_index: Tensor, count: int) -> Tensor:
    r"""Redirects self-loops to a spare node, number ``count``, then appends one self-loop for each node.

    Shapes:
        - **edge_index:** :math:`(2, E)`
        - **output:** :math:`(2, E + N)`
    """
    check_node_numbers(edge_index, count)  # before the spare node's number becomes a valid one
    redirected = torch.where(edge_index[0] == edge_index[1], count, edge_index)
    edges: Tensor = add_self_loops(redirected, num_nodes=count)[0]
    return edges


@torch.library.register_fake("phgcn::redirect_self_loops")
def _(edge_index: Tensor, count: int) -> Tensor:
    return edge_index.new_empty(2, edge_index.size(1) + count)
