"""Sums over neighbours in Triton: a program takes one node and some channels, a tile of sources at
a time."""

from __future__ import annotations

from torch import Tensor

from ...runtime.triton import cdiv, device_of, power_of_2, tl, triton

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
