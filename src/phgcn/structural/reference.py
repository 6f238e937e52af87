r"""Attention to neighbours in plain torch, edge by edge: the specification of every backend.

With distances :math:`r_{ij} = \lVert p_i - p_j \rVert` in units of :math:`1/\lambda`, biases
:math:`b_{ij}` and masks :math:`m_{ij}` of the edges,

.. math::
    y_i = \sum_{j \to i} \alpha_{ij} m_{ij} f_j, \qquad
    \alpha_{ij} = \frac{e^{b_{ij} - r_{ij}}}{\sum_{k \to i} e^{b_{ik} - r_{ik}}}.

Let :math:`\bar y_i` be the gradient of :math:`y_i`. That of :math:`r_{ij}`, over :math:`r_{ij}`,
is the *slope* of an edge,

.. math::
    s_{ij} = \alpha_{ij} \big( \langle \bar y_i, y_i \rangle -
    m_{ij} \langle \bar y_i, f_j \rangle \big) / r_{ij},

and 0 where :math:`r_{ij} = 0`: the gradient of :math:`p_i` is the sum of :math:`s_{ij} (p_i - p_j)`
over the edges to :math:`i` (:func:`target_gradients`) less that over the edges from it
(:func:`source_gradients`), and that of :math:`f_j` the sum of :math:`\alpha_{ij} m_{ij} \bar y_i`
over the edges from :math:`j`. The gradient of :math:`b_{ij}` is :math:`-s_{ij} r_{ij}`, taken
before the division by :math:`r_{ij}`."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_edge_values
from ..runtime.points import inverse, root
from .graph import Attention, Gradients, Graph, SortedEdges


def forward(graph: Graph) -> Attention:
    check_edge_values(*graph)
    source, target = graph.edge_index
    by_target = sort_edges(target, source, len(graph.positions))
    return Attention(*attend(graph), by_target)


def backward(grad: Tensor, attention: Attention, graph: Graph) -> Gradients:
    slope, weight, at_target, grad_bias = target_gradients(grad, attention, graph)
    at_source, grad_values = source_gradients(grad, slope, weight, graph)
    return Gradients(
        at_target - at_source, grad_values, None if graph.edge_bias is None else grad_bias
    )


def attention_weights(
    positions: Tensor, edge_index: Tensor, edge_bias: Tensor | None = None
) -> Tensor:
    r"""Computes the softmax of :math:`b_{ij} - \lVert p_i - p_j \rVert` over the edges of each
    target, (E, H), for positions (N, H, D) in units of :math:`1/\lambda`."""
    return _softmax(positions, edge_index, edge_bias)[0]


def attend(graph: Graph) -> tuple[Tensor, Tensor]:
    """Sums the values of each target's sources to the output (N, H, C) and the norm (2, N, H),
    differentiable any number of times."""
    weight, norm = _softmax(graph.positions, graph.edge_index, graph.edge_bias)
    if graph.edge_mask is not None:
        weight = weight * graph.edge_mask
    source, target = graph.edge_index.long()
    out = torch.zeros_like(graph.values, memory_format=torch.contiguous_format)
    return out.index_add(0, target, weight.unsqueeze(-1) * graph.values[source]), norm


def target_gradients(
    grad: Tensor, attention: Attention, graph: Graph
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Computes slopes and masked weights (E, H), the targets' share of the gradient of positions
    (N, H, D), and the gradient of the bias (E, H)."""
    source, target = graph.edge_index.long()
    difference = graph.positions[target] - graph.positions[source]
    distance = root(difference.square().sum(dim=-1))
    nearest, inverse_sum = attention.norm
    bias = 0.0 if graph.edge_bias is None else graph.edge_bias
    weight = torch.exp(nearest[target] - distance + bias) * inverse_sum[target]
    mask = 1.0 if graph.edge_mask is None else graph.edge_mask
    mean, product = (
        (grad * attention.out).sum(dim=-1),
        (grad[target] * graph.values[source]).sum(dim=-1),
    )
    grad_distance = weight * (mean[target] - mask * product)
    slope = grad_distance * inverse(distance)
    zeros = torch.zeros_like(graph.positions, memory_format=torch.contiguous_format)
    return (
        slope,
        weight * mask,
        zeros.index_add(0, target, slope.unsqueeze(-1) * difference),
        -grad_distance,
    )


def source_gradients(
    grad: Tensor, slope: Tensor, weight: Tensor, graph: Graph
) -> tuple[Tensor, Tensor]:
    """Computes the sources' share of the gradient of positions (N, H, D), to be subtracted, and the
    gradient of values (N, H, C)."""
    source, target = graph.edge_index.long()
    zeros = [
        torch.zeros_like(t, memory_format=torch.contiguous_format)
        for t in (graph.positions, graph.values)
    ]
    difference = graph.positions[target] - graph.positions[source]
    at_source = zeros[0].index_add(0, source, slope.unsqueeze(-1) * difference)
    return at_source, zeros[1].index_add(0, source, weight.unsqueeze(-1) * grad[target])


def sort_edges(node: Tensor, other: Tensor, count: int) -> SortedEdges:
    key, edge = torch.sort(node, stable=True)
    start = torch.searchsorted(key, torch.arange(count + 1, device=node.device, dtype=key.dtype))
    return SortedEdges(start.int(), other[edge].int(), edge.int())


def sum_rows(values: Tensor, start: Tensor, source: Tensor) -> Tensor:
    node = torch.repeat_interleave(start.diff())
    out = values.new_zeros(len(start) - 1, values.size(1))
    return out.index_add(0, node, values[source[: len(node)].long()])


def _softmax(
    positions: Tensor, edge_index: Tensor, edge_bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Returns the weights of the edges and the norm of :class:`Attention`."""
    source, target = edge_index.long()
    distance = root((positions[target] - positions[source]).square().sum(dim=-1))
    if edge_bias is not None:
        distance = distance - edge_bias
    count, heads = positions.shape[:2]
    nearest = distance.new_full((count, heads), float("inf"))
    nearest = nearest.scatter_reduce(
        0, target.unsqueeze(1).expand(-1, heads), distance.detach(), "amin"
    )
    weight = torch.exp(nearest[target] - distance)
    total = weight.new_zeros(count, heads).index_add(0, target, weight)
    inverse_sum = inverse(total)
    return weight * inverse_sum[target], torch.stack([nearest, inverse_sum])
