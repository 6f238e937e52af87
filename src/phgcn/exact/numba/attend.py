r"""Exact attention of all graphs and heads: every pair of a query and a key, in blocks of a few queries."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from torch import Tensor

from ...runtime.exp import exp_negative
from ...runtime.graphs import GraphGroups
from ...runtime.numba import as_array, kernel
from ...runtime.points import Gradients, OutputGradients, Points, Sums
from ...runtime.rows import Packed, pack_gradients, pack_points, unpack_gradients, unpack_output
from ...runtime.threads import rows_of_work, run_rows
from ..reference import checked_groups
from .pairs import add_slopes, add_weighted_rows, coordinate_lines, squared_distances

TARGETS = 16
"""Targets of a block."""

TILE = 512
"""Sources whose distances to a target are held at a time, in the first-level cache."""

GRAIN = 2**16
"""Least number of pairs that a thread sums."""


def forward(points: Points, normalise: bool, at_most: int) -> Sums:
    """Returns output, normaliser and shifts; see :func:`phgcn.exact.ops.attend`."""
    groups = checked_groups(points)
    packed = pack_points(points, groups, normalise)
    summed = np.zeros((*packed.queries.shape[:2], packed.rows.shape[2]), packed.rows.dtype)
    sides = _sides(packed, groups, at_most)
    shift = None
    if normalise and points.queries is not None:
        # No weight need be 1: shifted so that the nearest key gets 1, and a query far from all keys does not sum zeros.
        _run_blocks(nearest_source, sides.queries, sides.keys, sides.queries.shift)
        sides.queries.shift[~np.isfinite(sides.queries.shift)] = 0
        shift = points.new_shift(normalise)
        shift.numpy()[groups.query_order] = sides.queries.shift.reshape(shift.T.shape).T
    _sum_pairs(sides.queries, sides.keys, rows=_flat(packed.rows), out=_flat(summed))
    return Sums(*unpack_output(summed, packed, points, groups, normalise), shift)


def backward(upstream: OutputGradients, shift: Tensor, points: Points, normalise: bool, at_most: int) -> Gradients:
    """Returns the gradients of positions, values and, in cross-attention, queries."""
    groups = checked_groups(points)
    packed = pack_points(points, groups, normalise)
    sides = _sides(packed, groups, at_most)
    if len(shift) > 0:
        sides.queries.shift[:] = as_array(shift)[groups.query_order].T.ravel()
    rows, grads = _flat(packed.rows), _flat(pack_gradients(upstream, packed, groups, normalise))
    of_rows, of_keys = np.zeros_like(packed.rows), np.zeros_like(packed.keys)
    if points.queries is None:
        of_queries = of_keys
        both, swapped = np.concatenate([grads, rows], axis=1), np.concatenate([rows, grads], axis=1)
        _sum_pairs(sides.keys, sides.keys, grads, _flat(of_rows), both, swapped, _flat(of_keys))
    else:
        of_queries = np.zeros_like(packed.queries)
        _sum_pairs(sides.queries, sides.keys, target_rows=grads, source_rows=rows, grad=_flat(of_queries))
        _sum_pairs(sides.keys, sides.queries, grads, _flat(of_rows), rows, grads, _flat(of_keys))
    return unpack_gradients(of_keys, of_rows, of_queries, points, groups, normalise)


class Side(NamedTuple):
    r"""The keys, or the queries, of all graphs and heads, numbered through all heads.

    Shapes:
        - **position:** coordinate by coordinate, :math:`(D', P)`, :math:`D'` the next multiple of four
        - **shift:** what is added to the exponents of a point's weights, :math:`(P,)`
        - **blocks:** a few points of one graph, from the first number to the second, that attend to, or are attended to by, the
          points of the other side from the third number to the fourth, :math:`(B, 4)`
    """

    position: np.ndarray
    shift: np.ndarray
    blocks: np.ndarray


class Sides(NamedTuple):
    """Keys and queries; one and the same where the points attend to themselves."""

    keys: Side
    queries: Side


def _sides(packed: Packed, groups: GraphGroups, at_most: int) -> Sides:
    """Lays out keys and queries for the kernels, with shifts of 0."""
    heads, count = packed.keys.shape[:2]
    spans = [(k.start, k.stop, q.start, q.stop) for k, q in groups.slices(at_most=at_most)]
    lines = coordinate_lines(_flat(packed.keys))
    keys = Side(lines, np.zeros(lines.shape[1], lines.dtype), _blocks(spans, heads, count, len(groups.query_order)))
    if packed.queries is packed.keys:
        return Sides(keys, keys)
    lines, spans = coordinate_lines(_flat(packed.queries)), [(*span[2:], *span[:2]) for span in spans]
    queries = Side(lines, np.zeros(lines.shape[1], lines.dtype), _blocks(spans, heads, len(groups.query_order), count))
    return Sides(keys, queries)


def _blocks(spans: list[tuple[int, int, int, int]], heads: int, targets: int, sources: int) -> np.ndarray:
    """Cuts the targets of each graph, from the first to the second of its four numbers, into blocks, for all heads."""
    cut = [(a, min(a + TARGETS, stop), *other) for start, stop, *other in spans for a in range(start, stop, TARGETS)]
    one_head = np.array(cut, np.int64).reshape(-1, 4)
    return (np.arange(heads)[:, None, None] * np.array([targets, targets, sources, sources]) + one_head).reshape(-1, 4)


def _sum_pairs(target: Side, source: Side, rows=None, out=None, target_rows=None, source_rows=None, grad=None) -> None:
    """Sums over all pairs; see :func:`sum_pairs`, whose arrays of either part may be left out."""
    none = np.empty((0, 0), target.position.dtype)
    given = [none if array is None else array for array in (rows, out, target_rows, source_rows, grad)]
    _run_blocks(sum_pairs, target, source, target.shift, source.shift, *given)


def _run_blocks(pairs_kernel, target: Side, source: Side, *arrays: np.ndarray) -> None:
    blocks = target.blocks
    pairs = ((blocks[:, 1] - blocks[:, 0]) * (blocks[:, 3] - blocks[:, 2])).sum()
    grain = rows_of_work(len(blocks), int(pairs), GRAIN)
    run_rows(pairs_kernel, len(blocks), grain, blocks, target.position, source.position, *arrays)


def _flat(table: np.ndarray) -> np.ndarray:
    """Returns the rows of all heads as one table, the same memory."""
    return table.reshape(table.shape[0] * table.shape[1], table.shape[2])


@kernel(
    "int64, int64, int64[:, ::1], real[:, ::1], real[:, ::1], real[::1], real[::1], "
    "real[:, ::1], real[:, ::1], real[:, ::1], real[:, ::1], real[:, ::1]"
)
def sum_pairs(
    begin, end, blocks, target, source, target_shift, source_shift, rows, out, target_rows, source_rows, grad
):  # fmt: skip
    r"""Adds to each target's row :math:`\sum_j e^{s_i + s_j - r_{ij}} f_j` over its sources, and to its gradient the derivative
    of these weights times :math:`\langle a_i, b_j \rangle`.  Either part is left out where ``out`` or ``grad`` is empty.

    Shapes:
        - **blocks, target, source, target_shift, source_shift:** see :class:`Side`
        - **rows:** :math:`f`, :math:`(N, C)`, **out:** :math:`(M, C)`
        - **target_rows:** :math:`a`, :math:`(M, B)`, **source_rows:** :math:`b`, :math:`(N, B)`, **grad:** :math:`(M, D)`
    """
    place, tile_sum = np.empty(TILE, np.uint64), np.empty(rows.shape[1], rows.dtype)
    # Sums of tiles are added up in float64: those of a million points in float32 are off in the fourth digit.
    total, slope = np.empty((TARGETS, rows.shape[1]), np.float64), np.empty((TARGETS, grad.shape[1]), np.float64)
    square, weight, other_shift = np.empty(TILE, rows.dtype), np.empty(TILE, rows.dtype), np.empty(TILE, rows.dtype)
    zero = rows.dtype.type(0)
    for block in range(begin, end):
        begin_target, last = blocks[block, 0], blocks[block, 3]
        total[:] = 0
        slope[:] = 0
        for first in range(blocks[block, 2], last, TILE):
            count = min(TILE, last - first)
            for e in range(count):
                place[e] = first + e
                other_shift[e] = source_shift[first + e]
            for t in range(begin_target, blocks[block, 1]):
                squared_distances(target, t, source, first, count, square)
                shift = target_shift[t]
                for e in range(count):
                    weight[e] = exp_negative(shift + other_shift[e] - math.sqrt(square[e]))
                if out.shape[0] > 0:
                    add_weighted_rows(total, t - begin_target, rows, place, weight, count, tile_sum)
                if grad.shape[0] > 0:
                    for e in range(count):
                        r = math.sqrt(square[e])
                        weight[e] = -weight[e] / r if r > 0 else zero  # the derivative at r = 0 is taken as 0
                    add_slopes(slope, t - begin_target, t, target, source, place, weight, count, target_rows, source_rows)
        for t in range(begin_target, blocks[block, 1]):
            if out.shape[0] > 0:
                for c in range(out.shape[1]):
                    out[t, c] += total[t - begin_target, c]
            if grad.shape[0] > 0:
                for c in range(grad.shape[1]):
                    grad[t, c] += slope[t - begin_target, c]


@kernel("int64, int64, int64[:, ::1], real[:, ::1], real[:, ::1], real[::1]")
def nearest_source(begin, end, blocks, target, source, distance):
    """Finds the distance from each target to the nearest source of its graph."""
    square = np.empty(TILE, distance.dtype)
    for block in range(begin, end):
        for t in range(blocks[block, 0], blocks[block, 1]):
            least = distance.dtype.type(np.inf)
            for first in range(blocks[block, 2], blocks[block, 3], TILE):
                count = min(TILE, blocks[block, 3] - first)
                squared_distances(target, t, source, first, count, square)
                for e in range(count):
                    least = min(least, square[e])
            distance[t] = math.sqrt(least)
