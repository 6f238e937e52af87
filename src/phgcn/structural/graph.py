"""Inputs and outputs of attention to neighbours as named tuples that all backends share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Graph(NamedTuple):
    r"""Nodes and the edges between them.

    Shapes:
        - **positions:** :math:`(N, H, D)`, in units of :math:`1/\lambda`; **values:** :math:`(N, H,
          C)`
        - **edge_index:** :math:`(2, E)`: sources, then targets
        - **edge_mask:** :math:`(E, H)`, factors of the weights after the softmax; or :obj:`None`
        - **edge_bias:** :math:`(E, H)`, added to the exponents of the softmax; or :obj:`None`
    """

    positions: Tensor
    values: Tensor
    edge_index: Tensor
    edge_mask: Tensor | None = None
    edge_bias: Tensor | None = None


class SortedEdges(NamedTuple):
    """Edges sorted stably by the node at one end, int32.

    Shapes:
        - **start:** :math:`(N + 1,)`; edges of node :math:`i` are ``start[i]`` to ``start[i + 1] -
          1``
        - **other:** :math:`(E,)`, the nodes at the other end
        - **edge:** :math:`(E,)`, the edges' columns of ``edge_index``
    """

    start: Tensor
    other: Tensor
    edge: Tensor


class Attention(NamedTuple):
    """The result of a forward pass. A node without edges has a distance of infinity and a sum of 0.

    Shapes:
        - **out:** :math:`(N, H, C)`
        - **norm:** :math:`(2, N, H)`: the nearest source's distance less its bias, and one over the
          sum of the weights relative to the nearest's
        - **by_target:** the edges sorted by target
    """

    out: Tensor
    norm: Tensor
    by_target: SortedEdges


def empty_attention(graph: Graph) -> Attention:
    (count, heads, _), edges = graph.values.shape, graph.edge_index.size(1)
    sizes = count + 1, edges, edges
    by_target = (graph.edge_index.new_empty(size, dtype=torch.int32) for size in sizes)
    norm = graph.positions.new_empty(2, count, heads)
    return Attention(graph.values.new_empty(graph.values.shape), norm, SortedEdges(*by_target))


class Gradients(NamedTuple):
    """The gradients of :class:`Graph`. ``bias`` is :obj:`None` without a bias."""

    positions: Tensor
    values: Tensor
    edge_bias: Tensor | None

    def as_outputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns three tensors, as an op must; the last is empty without a bias."""
        bias = self.positions.new_empty(0) if self.edge_bias is None else self.edge_bias
        return self.positions, self.values, bias


def empty_gradients(graph: Graph) -> Gradients:
    of = graph.positions, graph.values, graph.edge_bias
    return Gradients(*(None if t is None else t.new_empty(t.shape) for t in of))  # type: ignore[arg-type]
