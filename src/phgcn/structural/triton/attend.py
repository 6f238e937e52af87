r"""Attention to neighbours in Triton: which kernels are launched.

A program takes one node and some heads and goes through the node's edges in the order of ``edge_index``, a tile at a time; how
large a tile is depends on heads and channels alone.  So no output is written twice, the bits are the same every run, and
the other graphs of a batch change no sum.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...checks import MAX_EDGES, check_edge_values
from ...runtime.triton import capturing, cdiv, device_of, power_of_2
from ..graph import Attention, Gradients, Graph, empty_gradients
from .check import flag_bad_values
from .edges import sort_edges
from .kernels import Sizes, attend, source_gradients, target_gradients


def forward(graph: Graph) -> Attention:
    """Returns the output, and what the backward pass needs.

    The host reads from the device once, after everything has been launched: whether a value is bad.  While a CUDA graph is
    captured it cannot, and bad values are not found.
    """
    if len(graph.positions) == 0 or graph.edge_index.size(1) > MAX_EDGES:
        check_edge_values(*graph)
    positions, values, edge_index, *edge_rows = contiguous = _contiguous(graph)
    count, heads, _ = values.shape
    with device_of(values):
        flags = flag_bad_values(contiguous)
        by_target = sort_edges(edge_index[1], edge_index[0], count)
        out, norm = torch.empty_like(values), positions.new_empty(2, count, heads)
        sizes, warps = choose_sizes(positions, values)
        if count > 0:
            grid = count, cdiv(heads, sizes.tile_heads)
            attend[grid](positions, values, *by_target, *edge_rows, out, *norm, SIZES=sizes, num_warps=warps)
        if not capturing(values) and any(flags.tolist()):
            check_edge_values(*graph)
    return Attention(out, norm, by_target)


def backward(grad: Tensor, attention: Attention, graph: Graph) -> Gradients:
    """Returns the gradients of positions, values and bias."""
    positions, values, edge_index, *edge_rows = contiguous = _contiguous(graph)
    grad, (nearest, inverse_sum) = grad.contiguous(), attention.norm
    count, heads, _ = values.shape
    gradients = empty_gradients(contiguous)
    if count == 0:
        return gradients
    sizes, warps = choose_sizes(positions, values)
    grid = count, cdiv(heads, sizes.tile_heads)
    mean = positions.new_empty(count, heads)
    with device_of(values):
        by_source = sort_edges(edge_index[0], edge_index[1], count)
        target_gradients[grid](
            positions, values, grad, attention.out, nearest, inverse_sum, *attention.by_target, *edge_rows, mean,
            gradients.positions, gradients.edge_bias, SIZES=sizes, num_warps=warps,
        )  # fmt: skip
        source_gradients[grid](
            positions, values, grad, nearest, inverse_sum, mean, *by_source, *edge_rows,
            gradients.positions, gradients.values, SIZES=sizes, num_warps=warps,
        )  # fmt: skip
    return gradients


def choose_sizes(positions: Tensor, values: Tensor) -> tuple[Sizes, int]:
    """Returns the sizes of a tile and the warps of a program: rows of up to 256 numbers, and as many edges as make 1,024 of
    them for a warp, at least 4."""
    (_, heads, channels), coordinates = values.shape, positions.size(2)
    tile_channels, tile_coordinates = power_of_2(max(1, channels)), power_of_2(coordinates)
    row = max(tile_channels, tile_coordinates)
    tile_heads = min(power_of_2(heads), max(1, 256 // row))
    tile_edges = min(32, max(4, 1024 // (tile_heads * row)))
    warps = min(8, max(1, tile_edges * tile_heads * row // 1024))
    tiny = torch.finfo(positions.dtype).tiny
    return Sizes(heads, channels, coordinates, tile_edges, tile_heads, tile_channels, tile_coordinates, tiny), warps


def _contiguous(graph: Graph) -> Graph:
    """Returns the same graph with all tensors contiguous."""
    mask, bias = (None if rows is None else rows.contiguous() for rows in (graph.edge_mask, graph.edge_bias))
    return Graph(graph.positions.contiguous(), graph.values.contiguous(), graph.edge_index.contiguous(), mask, bias)
