"""Exact attention on the CPU: all pairs of a query and a key, in blocks of a few queries."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from torch import Tensor

from ...kernels import LARGEST
from ...runtime.exp import exp_negative
from ...runtime.graphs import GraphGroups, checked_groups
from ...runtime.numba import Kernel, as_array, helper, kernel
from ...runtime.points import Gradients, OutputGradients, Points, Sums
from ...runtime.rows import (
    Packed,
    pack_gradients,
    pack_points,
    pack_weights,
    unpack_gradients,
    unpack_output,
    weight_gradients,
)
from ...runtime.threads import rows_of_work, run_rows
from ..call import ExactCall
from .pairs import add_slopes, add_weighted_rows, coordinate_lines, squared_distances

TARGETS = 16  # targets of a block
TILE = 512  # sources whose distances to a target are held at a time, in the first-level cache
GRAIN = 2**16  # least number of pairs that a thread sums


def forward(points: Points, call: ExactCall) -> Sums:
    groups = checked_groups(points)
    points = points if points.weights is None else points.with_queries()
    packed, weights = pack_points(points, groups, call.normalise), pack_weights(points, groups)
    rows = packed.rows if weights is None else packed.rows * weights
    summed = np.zeros((*packed.queries.shape[:2], packed.rows.shape[2]), packed.rows.dtype)
    keys, queries = _sides(packed, groups, call.at_most, weights)
    shift = points.new_shift(call.normalise)
    if len(shift) > 0:
        # No weight need be 1: shifted so that the nearest key gets 1, and a query far from all keys
        # does not sum zeros.
        _run_blocks(nearest_source, call, queries, keys, queries.shift)
        queries.shift[~np.isfinite(queries.shift)] = 0
        shift.numpy()[groups.query_order] = queries.shift.reshape(shift.T.shape).T
    _sum_pairs(call, queries, keys, rows=_flat(rows), out=_flat(summed))
    return Sums(*unpack_output(summed, packed, points, groups, call.normalise), shift)


def backward(
    upstream: OutputGradients, shift: Tensor, points: Points, call: ExactCall
) -> Gradients:
    if points.weights is not None and points.queries is None:
        return backward(upstream, shift, points.with_queries(), call).without_queries()
    groups = checked_groups(points)
    packed, weights = pack_points(points, groups, call.normalise), pack_weights(points, groups)
    keys, queries = _sides(packed, groups, call.at_most, weights)
    if len(shift) > 0:
        queries.shift[:] = as_array(shift)[groups.query_order].T.ravel()
    rows = _flat(packed.rows if weights is None else packed.rows * weights)
    grads = _flat(pack_gradients(upstream, packed, groups, call.normalise))
    of_rows, of_keys = np.zeros_like(packed.rows), np.zeros_like(packed.keys)
    of_queries = of_keys if points.queries is None else np.zeros_like(packed.queries)
    if points.queries is None:
        factors = np.concatenate([grads, rows], axis=1), np.concatenate([rows, grads], axis=1)
        _sum_pairs(call, keys, keys, grads, _flat(of_rows), *factors, _flat(of_keys))
    else:
        _sum_pairs(call, keys, queries, grads, _flat(of_rows), rows, grads, _flat(of_keys))
        _sum_pairs(call, queries, keys, a=grads, b=rows, grad=_flat(of_queries))
    of_weights = weight_gradients(packed, of_rows, weights, groups)
    unpacked = unpack_gradients(of_keys, of_rows, of_queries, points, groups, call.normalise)
    return unpacked._replace(weights=of_weights)


class Side(NamedTuple):
    """The keys, or the queries, of all graphs and heads, numbered through all heads.

    Shapes:
        - **position:** coordinate by coordinate, :math:`(D', P)`, :math:`D'` the next multiple of
          four
        - **shift:** added to the exponents of a point's weights, :math:`(P,)`
        - **blocks:** first and end of a few points of one graph, first and end of their partners,
          :math:`(B, 4)`
    """

    position: np.ndarray
    shift: np.ndarray
    blocks: np.ndarray


def _sides(
    packed: Packed, groups: GraphGroups, at_most: int, weights: np.ndarray | None
) -> tuple[Side, Side]:
    """Lays out keys and queries with shifts of 0. Keys of weight 0 get the shift minus infinity, as
    their exponentials might overflow."""
    spans = [(k.start, k.stop, q.start, q.stop) for k, q in groups.slices(at_most=at_most)]
    keys = _side(packed.keys, spans, packed.queries.shape[1])
    if packed.queries is packed.keys:
        return keys, keys
    if weights is not None:
        keys.shift[weights.ravel() == 0] = -np.inf
    return keys, _side(packed.queries, [(*s[2:], *s[:2]) for s in spans], packed.keys.shape[1])


def _side(points: np.ndarray, spans: list[tuple[int, int, int, int]], others: int) -> Side:
    """Lays out points (H, P, D) and cuts each span into blocks of ``TARGETS``."""
    heads, count, _ = points.shape
    lines = coordinate_lines(_flat(points))
    cut = [
        (begin, min(begin + TARGETS, stop), *other)
        for start, stop, *other in spans
        for begin in range(start, stop, TARGETS)
    ]
    of_head = np.arange(heads)[:, None, None] * np.array([count, count, others, others])
    blocks = of_head + np.array(cut, np.int64).reshape(-1, 4)
    return Side(lines, np.zeros(lines.shape[1], lines.dtype), blocks.reshape(-1, 4))


def _sum_pairs(
    call: ExactCall, target: Side, source: Side, rows=None, out=None, a=None, b=None, grad=None
) -> None:
    """Runs :func:`sum_pairs` over all blocks. An omitted array leaves out its sums or gradients."""
    none = np.empty((0, 0), target.position.dtype)
    given = [none if array is None else array for array in (rows, out, a, b, grad)]
    _run_blocks(sum_pairs, call, target, source, target.shift, *given)


def _run_blocks(
    pairs_kernel: Kernel, call: ExactCall, target: Side, source: Side, *arrays: np.ndarray
) -> None:
    blocks, numbers = target.blocks, np.array(call.kernel.numbers, target.position.dtype)
    pairs = ((blocks[:, 1] - blocks[:, 0]) * (blocks[:, 3] - blocks[:, 2])).sum()
    grain = rows_of_work(len(blocks), int(pairs), GRAIN)
    given = target.position, source.position, numbers, source.shift
    run_rows(pairs_kernel, len(blocks), grain, blocks, *given, *arrays)


def _flat(table: np.ndarray) -> np.ndarray:
    """Returns the rows of all heads as one table, the same memory."""
    return table.reshape(table.shape[0] * table.shape[1], table.shape[2])


@helper
def weigh(square, count, numbers, shift, other_shift, weight):
    """Computes ``count`` weights, and overwrites ``square`` by the exponents :math:`s`."""
    real = numbers.dtype.type
    rate, c0, c1, c2 = numbers[0], numbers[1], numbers[2], numbers[3]
    zero, largest = real(0), real(LARGEST)
    square_rate = rate * rate
    if numbers[4] == 2:
        for e in range(count):
            square[e] = square_rate * square[e]
            # above 0 by rounding, far away
            weight[e] = exp_negative(min(zero, shift + other_shift[e] - square[e]))
    else:
        for e in range(count):
            square[e] = rate * math.sqrt(square[e])
            weight[e] = exp_negative(shift + other_shift[e] - square[e])
    if c1 != 0 or c2 != 0:
        for e in range(count):
            s = min(square[e], largest)
            weight[e] *= c0 + s * (c1 + s * c2)


@helper
def differentiate(s, count, numbers, weight):
    """Overwrites each ``weight`` :math:`w(r)` by :math:`w'(r) / r`, or 0 at distance 0."""
    real = numbers.dtype.type
    c0, c1, c2, zero, largest = numbers[1], numbers[2], numbers[3], real(0), real(LARGEST)
    square_rate = numbers[0] * numbers[0]
    if c1 != 0 or c2 != 0:
        for e in range(count):
            t = min(s[e], largest)
            weight[e] *= (c0 - c1 + t * (c1 - c2 - c2 + t * c2)) / (c0 + t * (c1 + t * c2))
    if numbers[4] == 2:
        for e in range(count):
            weight[e] *= -(square_rate + square_rate)
    else:
        for e in range(count):
            weight[e] = -square_rate * weight[e] / s[e] if s[e] > 0 else zero


@kernel(
    "int64, int64, int64[:, ::1], real[:, ::1], real[:, ::1], real[::1], real[::1], real[::1], "
    "real[:, ::1], real[:, ::1], real[:, ::1], real[:, ::1], real[:, ::1]"
)
def sum_pairs(
    begin, end, blocks, target, source, numbers, source_shift, shift, rows, out, a, b, grad
):
    r"""Adds :math:`\sum_j e^{s_i + s_j} k(r_{ij}) f_j` to each target's row. ``grad`` gets the
    derivatives of the weights times :math:`\langle a_i, b_j \rangle`. An empty ``out`` or ``grad``
    is left out.

    Shapes:
        - **blocks, target, source, source_shift, shift:** see :class:`Side`
        - **numbers:** of the kernel, :class:`phgcn.kernels.Numbers`
        - **rows:** :math:`f`, :math:`(N, C)`, **out:** :math:`(M, C)`
        - **a:** :math:`(M, B)`, **b:** :math:`(N, B)`, **grad:** :math:`(M, D)`
    """
    index, tile_sum = np.empty(TILE, np.uint64), np.empty(rows.shape[1], rows.dtype)
    # Sums of tiles are added up in float64: those of a million points in float32 are off in the
    # fourth digit.
    total = np.empty((TARGETS, rows.shape[1]), np.float64)
    slope = np.empty((TARGETS, grad.shape[1]), np.float64)
    square, weight = np.empty(TILE, rows.dtype), np.empty(TILE, rows.dtype)
    other_shift = np.empty(TILE, rows.dtype)
    for block in range(begin, end):
        begin_target, last = blocks[block, 0], blocks[block, 3]
        total[:] = 0
        slope[:] = 0
        for first in range(blocks[block, 2], last, TILE):
            count = min(TILE, last - first)
            for e in range(count):
                index[e] = first + e
                other_shift[e] = source_shift[first + e]
            for t in range(begin_target, blocks[block, 1]):
                at = t - begin_target
                squared_distances(target, t, source, first, count, square)
                weigh(square, count, numbers, shift[t], other_shift, weight)
                if out.shape[0] > 0:
                    add_weighted_rows(total, at, rows, index, weight, count, tile_sum)
                if grad.shape[0] > 0:
                    differentiate(square, count, numbers, weight)
                    add_slopes(slope, at, t, target, source, index, weight, count, a, b)
        for t in range(begin_target, blocks[block, 1]):
            if out.shape[0] > 0:
                for c in range(out.shape[1]):
                    out[t, c] += total[t - begin_target, c]
            if grad.shape[0] > 0:
                for c in range(grad.shape[1]):
                    grad[t, c] += slope[t - begin_target, c]


@kernel("int64, int64, int64[:, ::1], real[:, ::1], real[:, ::1], real[::1], real[::1], real[::1]")
def nearest_source(begin, end, blocks, target, source, numbers, source_shift, exponent):
    """Writes each target's exponent at the nearest source of its graph, less the source's shift."""
    square, square_rate = np.empty(TILE, exponent.dtype), numbers[0] * numbers[0]
    for block in range(begin, end):
        for t in range(blocks[block, 0], blocks[block, 1]):
            least = exponent.dtype.type(np.inf)
            for first in range(blocks[block, 2], blocks[block, 3], TILE):
                count = min(TILE, blocks[block, 3] - first)
                squared_distances(target, t, source, first, count, square)
                for e in range(count):
                    least = min(least, square[e] - source_shift[first + e])
            exponent[t] = square_rate * least if numbers[4] == 2 else numbers[0] * math.sqrt(least)
