"""Converts edges of any of PyG's formats to sources and targets, with one self-loop per node."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.utils import (
    add_self_loops,
    contains_self_loops,
    is_torch_sparse_tensor,
    scatter,
    to_edge_index,
)
from torch_geometric.utils.sparse import to_torch_sparse_tensor

from ..backends import DEVICES
from ..checks import check_edges, check_node_numbers, host_may_look
from ..distributed.boundary import PartEdges


def is_adjacency(edge_index: Any) -> bool:
    return isinstance(edge_index, Tensor) and is_torch_sparse_tensor(edge_index)


def adjacency_values(adjacency: Tensor) -> Tensor:
    """Returns the values of a sparse matrix, (E,) or (E, D), in the order of its edges."""
    _, values = to_edge_index(adjacency)
    return values  # type: ignore[no-any-return]


def has_values(adjacency: Tensor) -> bool:
    """Returns whether a sparse matrix has values other than 1, as far as the host may look."""
    if not host_may_look(adjacency):
        return True
    values = adjacency_values(adjacency)
    return values.dim() > 1 or bool((values != 1).any())


def warn_of_values(adjacency: Tensor, hint: str) -> None:
    """Warns of values other than 1, which a layer does not read."""
    if torch.compiler.is_compiling() or adjacency.is_cuda:  # a warning would wait for the GPU
        return
    if has_values(adjacency):
        text = f"the values of the sparse edge_index are not used: {hint}"
        warnings.warn(text, UserWarning, stacklevel=4)


def with_weights(adjacency: Tensor, edges: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the attention weights (E, H) of edges (2, E) as a sparse matrix in the layout of an
    adjacency matrix, and its values."""
    layout, size = adjacency.layout, tuple(adjacency.shape)
    matrix = to_torch_sparse_tensor(edges.flip(0), weights, size=size, layout=layout)
    return matrix, adjacency_values(matrix)


def to_coo(edge_index: Any, nodes: Tensor, sources: Tensor | None = None) -> Tensor:
    """Converts edges of any format to sources and targets (2, E), and checks them. ``nodes`` (N,
    ...) and ``sources`` of another kind are on the device of the layer."""
    if is_adjacency(edge_index):
        sizes = nodes.size(0), (nodes if sources is None else sources).size(0)
        if tuple(edge_index.shape[:2]) != sizes:
            problem = f"edge_index is a sparse matrix of shape {tuple(edge_index.shape)}"
            rows = f"{sizes[1]} sources and {sizes[0]} targets"
            raise ValueError(f"{problem}; allowed: {sizes}, as x has {rows}")
        edge_index = to_edge_index(edge_index)[0].flip(0)
    elif isinstance(edge_index, EdgeIndex):
        edge_index = edge_index.as_tensor()
    check_edges(edge_index, nodes)
    edges: Tensor = edge_index
    return edges


class WholeEdges(NamedTuple):
    """Edges of a graph whose nodes are all here, with the methods of
    :class:`phgcn.distributed.PartEdges`."""

    edge_index: Any

    def count(self, nodes: int) -> int:
        return nodes

    def extend(self, x: Tensor) -> Tensor:
        return x

    def extend_all(self, *tensors: Tensor) -> list[Tensor]:
        return list(tensors)

    def select(self, edges: Tensor) -> Any:
        return self.edge_index[:, edges]

    def reverse(self) -> Any:
        edges = self.edge_index
        if is_adjacency(edges):
            return edges.transpose(0, 1).to_sparse(layout=edges.layout)
        return torch.as_tensor(edges.as_tensor() if isinstance(edges, EdgeIndex) else edges).flip(0)


def as_edges(edge_index: Any) -> WholeEdges | PartEdges:
    """Returns edges of any format with the methods of :class:`WholeEdges`."""
    return edge_index if isinstance(edge_index, PartEdges) else WholeEdges(edge_index)


# PyG's reductions of edge features to features of a self-loop
FILLS = ("mean", "add", "min", "max", "mul")


def reduce_to_nodes(edges: Tensor, rows: Tensor, count: int, reduce: str) -> Tensor:
    """Reduces the rows (E, C) of edges to their targets, without self-loops, to (count, C)."""
    source, target = edges.long()
    target = torch.where(source == target, count, target)  # a spare row behind the nodes
    if reduce != "mean":
        reduced: Tensor = scatter(rows, target, dim_size=count + 1, reduce=reduce)
        return reduced[:-1]
    # index_put sums in the same order every run, on a GPU too, unlike scatter.
    zeros = rows.new_zeros(count + 1, rows.size(1))
    sums = zeros.index_put((target,), rows, accumulate=True)
    degree = zeros[:, :1].index_put((target,), rows.new_ones(1, 1), accumulate=True)
    return (sums / degree.clamp(min=1))[:-1]


def replace_self_loops(
    edges: Tensor, rows: Tensor | None, count: int
) -> tuple[Tensor, Tensor | None]:
    """Removes all self-loops and their ``rows`` (E, C), then appends a self-loop for each of
    ``count`` nodes to the edges."""
    if contains_self_loops(edges):
        check_node_numbers(edges, count)
        kept = edges[0] != edges[1]
        edges, rows = edges[:, kept], None if rows is None else rows[kept]
    return add_self_loops(edges, num_nodes=count)[0], rows


# Removing self-loops makes a tensor whose size depends on the data, which torch.compile and CUDA
# graphs do not allow. There, self-loops are redirected to a spare node that the caller appends and
# whose output it drops. A custom op, which also checks node numbers.
torch.library.define("phgcn::redirect_self_loops", "(Tensor edge_index, SymInt count) -> Tensor")


@torch.library.impl("phgcn::redirect_self_loops", DEVICES)
def redirect_self_loops(edge_index: Tensor, count: int) -> Tensor:
    """Redirects the self-loops of edges (2, E) to a spare node, number ``count``, then appends one
    self-loop for each node: (2, E + N)."""
    check_node_numbers(edge_index, count)  # before the spare node's number becomes a valid one
    redirected = torch.where(edge_index[0] == edge_index[1], count, edge_index)
    edges: Tensor = add_self_loops(redirected, num_nodes=count)[0]
    return edges


def _redirect_self_loops_fake(edge_index: Tensor, count: int) -> Tensor:
    return edge_index.new_empty(2, edge_index.size(1) + count)


torch.library.register_fake("phgcn::redirect_self_loops", _redirect_self_loops_fake)


# Sources and targets of different kinds become one graph, targets first. A target's number that is
# too large would become a source's: a custom op, which also checks node numbers.
JOIN_KINDS = "(Tensor edge_index, SymInt sources, SymInt targets) -> Tensor"
torch.library.define("phgcn::join_kinds", JOIN_KINDS)


@torch.library.impl("phgcn::join_kinds", DEVICES)
def join_kinds(edge_index: Tensor, sources: int, targets: int) -> Tensor:
    """Adds ``targets`` to the numbers of sources in edges (2, E)."""
    for row, count in ((0, sources), (1, targets)):
        check_node_numbers(edge_index, count, row)
    return torch.stack([edge_index[0] + targets, edge_index[1]])


def _join_kinds_fake(edge_index: Tensor, sources: int, targets: int) -> Tensor:
    return edge_index.new_empty(2, edge_index.size(1))


torch.library.register_fake("phgcn::join_kinds", _join_kinds_fake)
