"""Exact attention in Triton: sums over all pairs of a graph's points, and their gradient.

A program takes one tile of targets of one graph and head, and goes through the graph's sources
(:mod:`.sums`, :mod:`.gradients`). One program writes each output and adds sources in a fixed order:
no atomics, the same bits every run.

A product of float32 rows is the sum of three bfloat16 products (:mod:`.packing`); distances never
go through a product. The error is 8e-6, norm over norm, for sums and gradients (``python lab/bench
gpu_exact``). Values of half types are held exactly. Sums and positions are float32."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...checks import check_values
from ...kernels import Kernel
from ...runtime.points import (
    Gradients,
    OutputGradients,
    Points,
    Sums,
    divide_rows,
    empty_gradients,
    point_gradients,
    row_gradients,
    weighted_rows,
)
from ...runtime.triton import capturing, cdiv, device_of, power_of_2
from ..call import ExactCall
from .gradients import gradients
from .packing import PACKED_CHANNELS, Packed, QueryGradients, pack_points
from .pairs import Pairs, cut_tiles, find_pairs
from .sums import attend, nearest
from .tiles import TileSizes

# of one program: the backward holds the rows of its targets in registers
MAX_CHANNELS = {"forward": 128, "backward": 64}


@dataclass(frozen=True)
class Tile:
    targets: int
    sources: int
    num_warps: int
    num_stages: int

    def options(
        self, kernel: Kernel, dim: int, channels: int = 0, parts: int = 0
    ) -> dict[str, TileSizes | int]:
        """Returns the constants that a kernel over pairs is compiled for."""
        sizes = TileSizes(dim, self.targets, self.sources, channels, parts, *kernel.numbers)
        return {"SIZES": sizes, "num_warps": self.num_warps, "num_stages": self.num_stages}


TILES = {
    ("forward", torch.float32): Tile(128, 64, 4, 3),
    ("backward", torch.float32): Tile(64, 32, 4, 3),
    ("forward", torch.float64): Tile(32, 32, 4, 2),
    ("backward", torch.float64): Tile(32, 16, 4, 1),
}


def forward(points: Points, call: ExactCall) -> Sums:
    """Returns output, normaliser and shifts.

    The host waits once, after all launches, to learn whether all numbers are finite. Nothing is
    checked while a CUDA graph is captured."""
    rows, asked = points, call
    if points.weights is not None:
        rows, asked = weighted_rows(points.with_queries()), call._replace(normalise=False)
    (out, norm), shift = rows.new_output(asked.normalise), points.new_shift(call.normalise)
    sums, pairs = Sums(out, norm, shift), find_pairs(rows, call.at_most)
    if pairs is None or points.batch is not None:  # rows that no pair writes are 0
        out.zero_(), norm.zero_(), shift.zero_()
    flags = [] if pairs is None else sum_pairs(rows, pairs, asked, sums, points.weights)
    if not capturing(points.values) and (pairs is None or any(bool(f.cpu().any()) for f in flags)):
        check_values(*points[:3])
    if points.weights is not None:
        return Sums(*divide_rows(out, points.values.dtype), shift)
    return sums


def backward(
    upstream: OutputGradients, shift: Tensor, points: Points, call: ExactCall
) -> Gradients:
    if points.weights is not None:
        rows, asked = weighted_rows(points.with_queries()), call._replace(normalise=False)
        grads = point_gradients(backward(row_gradients(upstream), shift, rows, asked), points)
        return grads if points.queries is not None else grads.without_queries()
    of_positions, of_values, of_queries, _ = empty_gradients(points)
    grads = Gradients(of_positions, of_values, None if points.queries is None else of_queries)
    pairs = find_pairs(points, call.at_most)
    if pairs is None or points.batch is not None:  # rows that no pair writes are 0
        of_positions.zero_(), of_values.zero_(), of_queries.zero_()
    if pairs is not None:
        sum_pairs_backward(upstream, shift, points, pairs, call, grads)
    return grads


def sum_pairs(
    points: Points, pairs: Pairs, call: ExactCall, sums: Sums, weights: Tensor | None = None
) -> list[Tensor]:
    """Writes the rows of ``sums``, contiguous, of the queries in ``pairs``. Shifted sums ignore
    keys of weight 0 (N, H) as nearest. Returns flags, one of which is not 0 if a number is not
    finite."""
    positions, values, queries = points[:3]
    tile, dim = TILES["forward", positions.dtype], positions.size(2)
    count, tiles = cut_tiles(pairs, tile.targets, positions.device)
    channels, blocks = _share_channels(values, "forward")
    with device_of(values):
        keys = pack_points(positions, values, pairs.key_order, channels * blocks, exact_in_one=True)
        asked = keys if queries is None else pack_points(queries, None, pairs.query_order)
        shifts = None
        if sums.shift is not None and len(sums.shift) > 0:
            near = keys
            if weights is not None:
                somebody = torch.where(weights.unsqueeze(-1) > 0, positions, torch.inf)
                near = pack_points(somebody, None, pairs.key_order)
            # Added to the exponents, so that a query far from all keys does not sum zeros. Where
            # points attend to themselves, one weight is 1 and no shift is needed.
            shifts = asked.points.new_zeros(positions.size(1), asked.length)
            grid = count, positions.size(1)
            nearest[grid](asked, near, tiles, shifts, **tile.options(call.kernel, dim))
        assert keys.rows is not None
        attend[count, values.size(1), blocks](
            asked,
            keys,
            pairs.query_order,
            shifts,
            tiles,
            sums,
            values.size(2),
            NORMALISE=call.normalise,
            **tile.options(call.kernel, dim, channels, len(keys.rows)),
        )
    return [keys.flags] if queries is None else [keys.flags, asked.flags]


def sum_pairs_backward(
    upstream: OutputGradients,
    shift: Tensor,
    points: Points,
    pairs: Pairs,
    call: ExactCall,
    grads: Gradients,
) -> None:
    """Writes the rows of ``grads``, contiguous. ``shift`` is the forward pass's, or empty."""
    positions, values, queries = points[:3]
    channels, blocks = _share_channels(values, "backward")
    norm, shifts = upstream.norm if call.normalise else None, shift if len(shift) > 0 else None
    sums = QueryGradients(upstream.grad, upstream.grad_norm, upstream.out, norm, shifts)
    width, rows = channels * blocks, values if queries is None else None
    with device_of(values):
        asked = pack_points(points.targets, rows, pairs.query_order, width, gradients=sums)
        if queries is None:
            _launch_gradients(call.kernel, asked, asked, pairs, grads.positions, grads.values)
        else:
            assert grads.queries is not None
            keys = pack_points(positions, values, pairs.key_order, width)
            _launch_gradients(call.kernel, asked, keys, pairs, grads.queries, None)
            given = pairs.swapped(), grads.positions, grads.values
            _launch_gradients(call.kernel, keys, asked, *given)


def _launch_gradients(
    kernel: Kernel,
    targets: Packed,
    sources: Packed,
    pairs: Pairs,
    grad_positions: Tensor,
    grad_values: Tensor | None,
) -> None:
    """Launches :func:`.gradients.gradients` for queries, keys or both as targets. Each block of
    channels gives one term of the positions' gradient."""
    tile = TILES["backward", targets.points.dtype]
    tile_count, tiles = cut_tiles(pairs, tile.targets, targets.points.device)
    rows = targets.grads if targets.rows is None else targets.rows
    assert rows is not None
    channels = min(rows.size(3), MAX_CHANNELS["backward"])
    blocks, (count, heads, dim) = rows.size(3) // channels, grad_positions.shape
    parts = grad_positions
    if blocks > 1:
        parts = grad_positions.new_zeros(count, heads, blocks, dim)
        parts[:, :, 0] = grad_positions  # rows of points in no range stay
    gradients[tile_count, heads, blocks](
        targets,
        sources,
        pairs.query_order,
        tiles,
        parts,
        grad_values,
        0 if grad_values is None else grad_values.size(2),
        **tile.options(kernel, dim, channels, len(rows)),
    )
    if blocks > 1:
        torch.sum(parts, dim=2, out=grad_positions)


def _share_channels(values: Tensor, direction: str) -> tuple[int, int]:
    """Returns the number of channels per program and the number of programs that share them."""
    channels = min(MAX_CHANNELS[direction], max(PACKED_CHANNELS, power_of_2(values.size(2))))
    return channels, max(1, cdiv(values.size(2), channels))
