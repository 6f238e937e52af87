r"""Exact attention in Triton: sums over all pairs of a graph's points, and their gradient.

A program takes one tile of targets of one graph, one head and up to 128 channels (64 in the backward), and goes through the
tiles of the graph's sources (:mod:`.sums`, :mod:`.gradients`).  Nothing of size :math:`N \times N` is stored, every output is
written by one program, and sources are added in an order that does not depend on the other graphs of a batch: no atomics, the
same bits every run.

Float32 accuracy: a product of float32 rows is the sum of three bfloat16 products, as a number is packed in two bfloat16 parts
(:mod:`.packing`); each tile's sum is added in float32, and distances never go through a product.  The error is 8e-6, norm over
norm, and no more for the gradients (``benchmarks/gpu_layers.py exact``).  Values of half types are packed as they are
(bfloat16) or in two parts (float16), which holds them exactly; sums and positions are float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...checks import check_values
from ...runtime.points import Gradients, OutputGradients, Points, Sums, empty_gradients
from ...runtime.triton import capturing, cdiv, device_of, power_of_2
from .gradients import gradients
from .packing import PACKED_CHANNELS, Packed, QueryGradients, pack_points, packed_length
from .pairs import Pairs, cut_tiles, find_pairs
from .sums import attend, nearest
from .tiles import TileSizes

MAX_CHANNELS = {"forward": 128, "backward": 64}
"""Of one program: the backward holds the rows of its targets in registers."""


@dataclass(frozen=True)
class Tile:
    """Targets and sources of a tile, and warps and stages of a program."""

    targets: int
    sources: int
    warps: int
    stages: int

    def sizes(self, dim: int, channels: int = 0, parts: int = 0) -> TileSizes:
        """Returns what a kernel is compiled for."""
        return TileSizes(dim, self.targets, self.sources, channels, parts)


TILES = {
    ("forward", torch.float32): Tile(128, 64, 4, 3),
    ("backward", torch.float32): Tile(64, 32, 4, 3),
    ("forward", torch.float64): Tile(32, 32, 4, 2),
    ("backward", torch.float64): Tile(32, 16, 4, 1),
}


def forward(points: Points, normalise: bool, at_most: int) -> Sums:
    """Returns output, normaliser and shifts; see :func:`phgcn.exact.ops.attend`.

    The host waits once, after everything has been launched, to learn whether all numbers are finite; not while a CUDA graph
    is captured: numbers that are not finite are not found then.
    """
    shift = points.new_shift(normalise) if normalise and points.queries is not None else None
    sums = Sums(*points.new_output(normalise), shift)
    pairs = find_pairs(points, at_most)
    if pairs is None or points.batch is not None:  # rows that no pair writes are 0
        for rows in sums:
            if rows is not None:
                rows.zero_()
    if pairs is None:
        check_values(*points[:3])
        return sums
    flags = sum_pairs(points, pairs, normalise, sums)
    if not capturing(points.values) and any(bool(flag.cpu().any()) for flag in flags):
        check_values(*points[:3])
    return sums


def backward(upstream: OutputGradients, shift: Tensor, points: Points, normalise: bool, at_most: int) -> Gradients:
    """Returns the gradients of positions, values and queries."""
    of_positions, of_values, of_queries = empty_gradients(points)
    grads = Gradients(of_positions, of_values, None if points.queries is None else of_queries)
    pairs = find_pairs(points, at_most)
    if pairs is None or points.batch is not None:  # rows that no pair writes are 0
        of_positions.zero_(), of_values.zero_(), of_queries.zero_()
    if pairs is not None:
        sum_pairs_backward(upstream, shift, points, pairs, normalise, grads)
    return grads


def sum_pairs(points: Points, pairs: Pairs, normalise: bool, sums: Sums) -> list[Tensor]:
    r"""Computes exact attention of the queries in ``pairs``.

    Args:
        points (Points): Keys and queries, in any layout; values may be of a half type where positions are float32.
        pairs (Pairs): Which queries are summed over which keys.
        normalise (bool): Whether to divide by the sum of the weights.
        sums (Sums): Its rows of the queries in ``pairs`` are written; contiguous. Weights are shifted if it has shifts.

    Returns:
        Flags, of which one is not 0 where a position, value or query is not finite.
    """
    positions, values, queries = points[:3]
    tile = TILES["forward", positions.dtype]
    count, tiles = cut_tiles(pairs, tile.targets, positions.device)
    block = _channel_blocks(values, "forward")
    with device_of(values):
        keys = pack_points(positions, values, pairs.key_order, block.width, exact_in_one=True)
        asked = keys if queries is None else pack_points(queries, None, pairs.query_order)
        shifts = None
        if sums.shift is not None:
            shifts = asked.points.new_zeros(positions.size(1), asked.length)
            _write_nearest(asked, keys, pairs, shifts)
        assert keys.rows is not None
        attend[count, values.size(1), block.count](
            asked, keys, pairs.query_order, shifts, tiles, sums, asked.length, keys.length, values.size(2),
            NORMALISE=normalise, SIZES=tile.sizes(positions.size(2), block.channels, len(keys.rows)),
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
    return [keys.flags] if queries is None else [keys.flags, asked.flags]


def sum_pairs_backward(
    upstream: OutputGradients, shift: Tensor, points: Points, pairs: Pairs, normalise: bool, grads: Gradients
) -> None:
    """Computes the gradients of :func:`sum_pairs`, whose shifts are ``shift``, or empty: writes the rows of ``grads`` of the
    points in ``pairs``; contiguous."""
    positions, values, queries = points[:3]
    width = _channel_blocks(values, "backward").width
    shifted = len(shift) > 0
    with device_of(values):
        length = packed_length(points.targets.size(0))
        terms = positions.new_empty(2 if shifted else 1, positions.size(1), length)
        grad, grad_norm, out, norm = upstream
        sums = QueryGradients(grad, grad_norm, out, norm if normalise else None, shift if shifted else None, terms)
        if queries is None:
            keys = asked = pack_points(positions, values, pairs.key_order, width, gradients=sums)
        else:
            keys = pack_points(positions, values, pairs.key_order, width)
            asked = pack_points(queries, None, pairs.query_order, width, gradients=sums)
        given = terms if normalise else None
        if queries is None:
            _launch_gradients(keys, asked, given, pairs, True, True, grads.positions, grads.values)
        else:
            assert grads.queries is not None
            _launch_gradients(keys, asked, given, pairs, True, False, grads.queries, None)
            _launch_gradients(keys, asked, given, pairs.swapped(), False, True, grads.positions, grads.values)


def _launch_gradients(
    keys: Packed, queries: Packed, terms: Tensor | None, pairs: Pairs, of_queries: bool, of_keys: bool, grad_positions: Tensor,
    grad_values: Tensor | None,
) -> None:  # fmt: skip
    """Launches :func:`.gradients.gradients` for queries, keys, or points that are both, as targets.

    ``terms`` are the gradients of the queries' normalisers and, in cross-attention, their shifts, (1 or 2, H, L); None where
    sums are not divided.  Each block of channels gives a part of the positions' gradient; the parts are added."""
    points, sources = (queries, keys) if of_queries else (keys, queries)
    tile = TILES["backward", points.points.dtype]
    tile_count, tiles = cut_tiles(pairs, tile.targets, points.points.device)
    assert keys.rows is not None and queries.grads is not None
    width = keys.rows.size(3)
    channels = min(width, MAX_CHANNELS["backward"])
    blocks, (count, heads, dim) = width // channels, grad_positions.shape
    parts = grad_positions
    if blocks > 1:
        parts = grad_positions.new_zeros(count, heads, blocks, dim)
        parts[:, :, 0] = grad_positions  # rows of points in no range stay
    gradients[tile_count, heads, blocks](
        points, sources, terms, pairs.query_order, tiles, parts, grad_values, points.length, sources.length,
        0 if grad_values is None else grad_values.size(2),
        OF_QUERIES=of_queries, OF_KEYS=of_keys, SHIFTED=terms is not None and len(terms) == 2,
        SIZES=tile.sizes(dim, channels, len(queries.grads)),
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    if blocks > 1:
        torch.sum(parts, dim=2, out=grad_positions)


def _write_nearest(queries: Packed, keys: Packed, pairs: Pairs, shifts: Tensor) -> None:
    """Writes each query's distance to its nearest key, (H, L): added to the exponents of its weights, so that a query far from
    all keys does not sum zeros.  Where points attend to themselves, one weight is 1 and no shift is needed."""
    heads, dim, _ = queries.points.shape
    tile = TILES["forward", queries.points.dtype]
    count, tiles = cut_tiles(pairs, tile.targets, shifts.device)
    nearest[count, heads](
        queries.points, keys.points, tiles, shifts, queries.length, keys.length, SIZES=tile.sizes(dim), num_warps=tile.warps
    )


@dataclass(frozen=True)
class ChannelBlocks:
    """How the channels are shared out: ``count`` programs have ``channels`` each, ``width`` in all."""

    channels: int
    count: int

    @property
    def width(self) -> int:
        return self.channels * self.count


def _channel_blocks(values: Tensor, direction: str) -> ChannelBlocks:
    channels = min(MAX_CHANNELS[direction], max(PACKED_CHANNELS, power_of_2(values.size(2))))
    return ChannelBlocks(channels, max(1, cdiv(values.size(2), channels)))
