"""Attention to neighbours in Triton: the kernels that are launched.

A program takes one node and some heads and goes through the node's edges as in ``edge_index``, a
tile at a time. The size of a tile depends on heads and channels only: no output is written twice,
and the bits are the same every run. Flags of bad values are read once, after all launches."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...checks import MAX_EDGES, check_edge_values, distance_limit
from ...runtime.triton import capturing, cdiv, device_of, power_of_2, tl, triton
from ..graph import Attention, Gradients, Graph, empty_gradients
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


MAX_PROGRAMS = 512
BLOCK = 4096
INFINITY: tl.constexpr = tl.constexpr(math.inf)


def flag_bad_values(graph: Tensors) -> Tensor:
    """Returns flags, not all 0 for infinite numbers, far positions, or edges to no node."""
    sizes = [0 if t is None else t.numel() for t in graph]
    programs = max(1, min(MAX_PROGRAMS, cdiv(max(sizes), BLOCK)))
    flags = graph.positions.new_empty(programs, dtype=torch.int32)
    limit, count = distance_limit(graph.positions), len(graph.positions)
    of_tensors = Tensors(*sizes)  # type: ignore[arg-type]
    fill_flags[(programs,)](graph, of_tensors, flags, count, LIMIT=limit, BLOCK=BLOCK)
    return flags


@triton.jit
def fill_flags(graph, sizes, flags, count, LIMIT: tl.constexpr, BLOCK: tl.constexpr):
    """Checks a share of every tensor and writes one flag per program."""
    bad = _any_above(graph.positions, sizes.positions, LIMIT, BLOCK)
    bad += _any_above(graph.features, sizes.features, INFINITY, BLOCK)
    if graph.edge_mask is not None:
        bad += _any_above(graph.edge_mask, sizes.edge_mask, INFINITY, BLOCK)
    if graph.edge_bias is not None:
        bad += _any_above(graph.edge_bias, sizes.edge_bias, INFINITY, BLOCK)
    outside = tl.zeros((BLOCK,), tl.int32)
    size, step = sizes.edge_index, tl.num_programs(0) * BLOCK
    for lead in range(tl.program_id(0).to(tl.int64) * BLOCK, size, step):
        at = lead + tl.arange(0, BLOCK)
        node = tl.load(graph.edge_index + at, mask=at < size, other=0)
        outside += ((node < 0) | ((node >= count) & (at < size))).to(tl.int32)
    tl.store(flags + tl.program_id(0), bad + tl.max(outside, axis=0))


@triton.jit
def _any_above(numbers, size, LIMIT: tl.constexpr, BLOCK: tl.constexpr):
    """Returns 0 if this program's share of the numbers is below the limit."""
    above = tl.zeros((BLOCK,), tl.int32)
    for lead in range(tl.program_id(0).to(tl.int64) * BLOCK, size, tl.num_programs(0) * BLOCK):
        at = lead + tl.arange(0, BLOCK)
        number = tl.load(numbers + at, mask=at < size, other=0.0)
        if numbers.dtype.element_ty.primitive_bitwidth == 16:
            number = number.to(tl.float32)
        above += (tl.abs(number) < LIMIT).to(tl.int32) == 0  # a comparison with NaN is false
    return tl.max(above, axis=0)
