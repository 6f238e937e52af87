"""Sorted edges and sums over them in Triton: a program takes one node and some channels, a tile of
sources at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from ...runtime.triton import cdiv, device_of, power_of_2, tl, triton
from ..graph import SortedEdges

BLOCK = 1024  # edges and nodes that a program takes


def sort_edges(node: Tensor, other: Tensor, count: int) -> SortedEdges:
    """Sorts edges by their ``node`` (E,). An ``other`` node that does not exist becomes node 0, so
    that no kernel reads outside before the edge is refused."""
    edges = len(node)
    key, order = torch.sort(node.int(), stable=True)
    start, sorted_other, edge = (key.new_empty(size) for size in (count + 1, edges, edges))
    blocks = cdiv(max(edges, count + 1), BLOCK)
    fill_edges[(blocks,)](
        key, order, other, start, sorted_other, edge, edges, count, edges.bit_length(), BLOCK=BLOCK
    )
    return SortedEdges(start, sorted_other, edge)


@triton.jit
def fill_edges(
    key, order, other, start, sorted_other, edge, edges, count, steps, BLOCK: tl.constexpr
):
    """Fills :class:`SortedEdges` from sorted nodes ``key`` and the ``order`` that sorts them;
    bisects ``start`` in ``steps`` steps."""
    a = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_edge = a < edges
    e = tl.load(order + a, mask=is_edge, other=0)
    node = tl.load(other + e, mask=is_edge, other=0)
    node = tl.where((node >= 0) & (node < count), node, 0)
    tl.store(sorted_other + a, node.to(tl.int32), mask=is_edge)
    tl.store(edge + a, e.to(tl.int32), mask=is_edge)
    if tl.program_id(0).to(tl.int64) * BLOCK <= count:  # most programs have edges only
        low = tl.zeros((BLOCK,), tl.int32)
        high = low + edges
        for _ in range(steps):
            middle = low + (high - low) // 2
            undecided = low < high
            less = tl.load(key + middle, mask=undecided, other=0) < a
            low = tl.where(undecided & less, middle + 1, low)
            high = tl.where(undecided & (less == 0), middle, high)
        tl.store(start + a, low, mask=a <= count)


MAX_CHANNELS = 256  # channels that a program takes at most


def sum_rows(values: Tensor, start: Tensor, source: Tensor) -> Tensor:
    """Sums the values (N, C) of each node's sources, half types in float32."""
    values = values.contiguous()
    count, channels = len(start) - 1, values.size(1)
    out = values.new_empty(count, channels)
    if out.numel() == 0:
        return out
    tile_channels = min(MAX_CHANNELS, power_of_2(channels))
    tile_edges = min(32, max(4, 1024 // tile_channels))
    grid = count, cdiv(channels, tile_channels)
    with device_of(values):
        add_sources[grid](
            values,
            start,
            source,
            out,
            CHANNELS=channels,
            TILE_EDGES=tile_edges,
            TILE_CHANNELS=tile_channels,
            num_warps=1,
        )
    return out


@triton.jit
def add_sources(
    values,
    start,
    source,
    out,
    CHANNELS: tl.constexpr,
    TILE_EDGES: tl.constexpr,
    TILE_CHANNELS: tl.constexpr,
):
    """Sums some channels of one node's sources, and the sums of tiles in float64."""
    i = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * TILE_CHANNELS + tl.arange(0, TILE_CHANNELS)
    real: tl.constexpr = tl.float64 if values.dtype.element_ty == tl.float64 else tl.float32
    sums = tl.zeros((TILE_CHANNELS,), tl.float64)
    end = tl.load(start + i + 1)
    for lead in range(tl.load(start + i), end, TILE_EDGES):
        a = lead + tl.arange(0, TILE_EDGES)
        valid = a < end
        j = tl.load(source + a, mask=valid, other=0).to(tl.int64)
        rows = values + j[:, None] * CHANNELS + c[None, :]
        tile = tl.load(rows, mask=valid[:, None] & (c < CHANNELS)[None, :], other=0.0).to(real)
        sums += tl.sum(tile, axis=0).to(tl.float64)
    tl.store(out + i * CHANNELS + c, sums.to(real), mask=c < CHANNELS)
