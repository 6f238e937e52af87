"""Attention to neighbours in Triton: the kernels that are launched.

A program takes one node and some heads and goes through the node's edges as in ``edge_index``, a
tile at a time. The size of a tile depends on heads and channels only: no output is written twice,
and the bits are the same every run."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...checks import MAX_EDGES, check_edge_values
from ...runtime.triton import capturing, cdiv, device_of, power_of_2
from ..graph import Attention, Gradients, Graph, empty_gradients
from .check import flag_bad_values
from .edges import sort_edges
from .kernels import Sizes, Sums, Tensors, Width, attend, source_gradients, target_gradients


def forward(graph: Graph) -> Attention:
    """Returns the output, and tensors for the backward pass. The host reads once, after all
    launches, whether a value is bad; not while a CUDA graph is captured."""
    if len(graph.positions) == 0 or graph.edge_index.size(1) > MAX_EDGES:
        check_edge_values(*graph)
    given = _contiguous(graph)
    positions, values = given.positions, given.features
    count, heads, _ = values.shape
    with device_of(values):
        flags = flag_bad_values(given)
        by_target = sort_edges(graph.edge_index[1], graph.edge_index[0], count)
        out, norm = torch.empty_like(values), positions.new_empty(2, count, heads)
        if count > 0:
            grid, options = choose_sizes(positions, values)
            attend[grid](given, by_target, Sums(out, *norm), **options)
        if not capturing(values) and any(flags.tolist()):
            check_edge_values(*graph)
    return Attention(out, norm, by_target)


def backward(grad: Tensor, attention: Attention, graph: Graph) -> Gradients:
    given = _contiguous(graph)
    positions, values = given.positions, given.features
    count, heads, _ = values.shape
    gradients = empty_gradients(graph)
    if count == 0:
        return gradients
    grid, options = choose_sizes(positions, values)
    nearest, inverse_sum = attention.norm
    found = Sums(attention.out, nearest, inverse_sum, positions.new_empty(count, heads))
    of = Tensors(gradients.positions, gradients.values, None, None, gradients.edge_bias)
    with device_of(values):
        by_source = sort_edges(graph.edge_index[0], graph.edge_index[1], count)
        grad = grad.contiguous()
        target_gradients[grid](given, attention.by_target, grad, found, of, **options)
        source_gradients[grid](given, by_source, grad, found, of, **options)
    return gradients


def choose_sizes(positions: Tensor, values: Tensor) -> tuple[tuple[int, int], dict[str, Any]]:
    """Returns the grid and a tile: rows of up to 256 numbers, 4 edges or 1,024 numbers a warp."""
    (count, heads, channels), coordinates = values.shape, positions.size(2)
    channel, coordinate = (Width(row, power_of_2(max(1, row))) for row in (channels, coordinates))
    row = max(channel.tile, coordinate.tile)
    tile_heads = min(power_of_2(heads), max(1, 256 // row))
    tile_edges = min(32, max(4, 1024 // (tile_heads * row)))
    warps = min(8, max(1, tile_edges * tile_heads * row // 1024))
    sizes = Sizes(heads, tile_heads, tile_edges, torch.finfo(positions.dtype).tiny)
    options = {"C": channel, "X": coordinate, "SIZES": sizes, "num_warps": warps}
    return (count, cdiv(heads, tile_heads)), options


def _contiguous(graph: Graph) -> Tensors:
    return Tensors(*(None if t is None else t.contiguous() for t in graph))  # type: ignore[arg-type]
