r"""Edges as the layers use them: any of PyG's formats as sources and targets, and one self-loop for each node."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.utils import (
    add_self_loops,
    contains_self_loops,
    is_torch_sparse_tensor,
    remove_self_loops,
    scatter,
    to_edge_index,
)

from ..checks import check_edges, check_node_numbers


def to_coo(edge_index: Any, nodes: Tensor, sources: Tensor | None = None) -> Tensor:
    r"""Converts edges of any format to sources and targets, :math:`(2, E)`, and checks them.

    Args:
        edge_index (torch.Tensor): Sources and targets, as a tensor or :class:`torch_geometric.EdgeIndex`; or the transposed
            adjacency matrix in a :obj:`torch.sparse` layout, in which entry :math:`(i, j)` is an edge from :math:`j` to
            :math:`i`.
        nodes (torch.Tensor): A tensor with one row per node, on the device of the layer.
        sources (torch.Tensor, optional): The same for the sources, where these are nodes of another kind.
            (default: :obj:`None`)
    """
    if isinstance(edge_index, Tensor) and is_torch_sparse_tensor(edge_index):
        allowed = nodes.size(0), nodes.size(0) if sources is None else sources.size(0)
        if tuple(edge_index.shape) != allowed:
            rows = f"{allowed[0]} rows" if sources is None else f"{allowed[1]} sources and {allowed[0]} targets"
            raise ValueError(
                f"edge_index is a sparse matrix of shape {tuple(edge_index.shape)}; allowed: {allowed}, as x has {rows}"
            )
        edge_index = to_edge_index(edge_index)[0].flip(0)
    elif isinstance(edge_index, EdgeIndex):
        edge_index = edge_index.as_tensor()
    check_edges(edge_index, nodes)
    edges: Tensor = edge_index
    return edges


FILLS = ("mean", "add", "min", "max", "mul")
"""How the features of a self-loop can be made of those of the edges to its node, by the names of PyG."""


def reduce_to_targets(edge_index: Any, features: Tensor, nodes: Tensor, reduce: str) -> Tensor:
    r"""Reduces the features of the edges to each node, (E, F), to (N, F), 0 without edges; self-loops are left out."""
    source, target = to_coo(edge_index, nodes)
    target = torch.where(source == target, nodes.size(0), target)  # a spare row behind the nodes
    reduced: Tensor = scatter(features, target, dim_size=nodes.size(0) + 1, reduce=reduce)
    return reduced[:-1]


class EdgeTerms(NamedTuple):
    r"""What edges add to the exponents of attention, :obj:`None` where there is nothing.

    Shapes:
        - **features:** :math:`(E, H)`, a learned linear map of edge features
        - **weights:** :math:`(E, 1)`, the logarithms of edge weights
        - **fill:** :math:`(1, H)` or :math:`(N, H)`, what added self-loops have instead of the mean features
    """

    features: Tensor | None = None
    weights: Tensor | None = None
    fill: Tensor | None = None

    def select(self, edges: Tensor) -> EdgeTerms:
        """Returns the terms of some edges."""
        features, weights = (None if term is None else term[edges] for term in (self.features, self.weights))
        return EdgeTerms(features, weights, self.fill)

    def sum(self) -> Tensor | None:
        r"""Returns the sum of the terms, :math:`(E, H)` or :math:`(E, 1)`."""
        if self.features is None or self.weights is None:
            return self.weights if self.features is None else self.features
        return self.features + self.weights

    def sum_with_loops(self, target: Tensor, count: int) -> Tensor | None:
        r"""Returns the sum of the terms with one more row for the self-loop of each of ``count`` nodes.

        A self-loop has the mean features of the edges to its node, as in :class:`~torch_geometric.nn.GATConv`, 0 where there
        are none, and weight 1.  Edges to the spare node of :func:`redirect_self_loops` are left out.

        Shapes:
            - **target:** :math:`(E,)`; **output:** :math:`(E + N, H)`
        """
        total = self.sum()
        if total is None:
            return None
        loops = total.new_zeros(count, total.size(1))
        if self.fill is not None:
            loops = loops + self.fill.to(total.dtype)
        elif self.features is not None:
            # index_put sums in the same order every run, on a GPU too, unlike index_add.
            place = (target.long(),)
            sums = total.new_zeros(count + 1, total.size(1)).index_put(place, self.features.to(total.dtype), accumulate=True)
            degree = total.new_zeros(count + 1, 1).index_put(place, total.new_ones(1, 1), accumulate=True)
            loops = (sums / degree.clamp(min=1))[:count]
        return torch.cat([total, loops])


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


def _redirect_self_loops_fake(edge_index: Tensor, count: int) -> Tensor:
    return edge_index.new_empty(2, edge_index.size(1) + count)


torch.library.register_fake("phgcn::redirect_self_loops", _redirect_self_loops_fake)


# Sources and targets of different kinds are attended to as one graph: first the targets, then the sources. Numbers of targets
# that are too large would become those of sources: so this too is a custom op that checks.
torch.library.define("phgcn::join_kinds", "(Tensor edge_index, SymInt sources, SymInt targets) -> Tensor")


@torch.library.impl("phgcn::join_kinds", ("cpu", "cuda"))
def join_kinds(edge_index: Tensor, sources: int, targets: int) -> Tensor:
    r"""Renumbers sources, so that they come after all ``targets``.

    Shapes:
        - **edge_index**, **output:** :math:`(2, E)`
    """
    for row, count in ((0, sources), (1, targets)):
        check_node_numbers(edge_index, count, row)
    return torch.stack([edge_index[0] + targets, edge_index[1]])


def _join_kinds_fake(edge_index: Tensor, sources: int, targets: int) -> Tensor:
    return edge_index.new_empty(2, edge_index.size(1))


torch.library.register_fake("phgcn::join_kinds", _join_kinds_fake)
