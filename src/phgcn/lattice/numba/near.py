r"""Near field: the short range that coarse levels miss, summed pair by pair.

The weight of a pair at distance :math:`r` is

.. math::
    R(r) = s(r) \Big( k(r) - \sum_n a_n r^{2n} \Big)

the kernel minus the ladder's mean weight at this distance. The factor :math:`s` fades to 0 at the
radius. The derivative at :math:`r = 0` is taken as 0."""

from __future__ import annotations

import math

import numpy as np

from ...exact.numba.pairs import add_slopes, add_weighted_rows, squared_distances
from ...runtime.exp import exp_negative
from ...runtime.numba import helper, kernel
from ...runtime.threads import run_rows
from ..limits import mean_pairs_cell
from .cells import ROWS, NearField
from .keys import choose_keys
from .locate import Coordinates, cube_keys, reduce_points
from .sorting import lower_bound, run_starts, sort_keys

CANDIDATES = 4096  # sources near a cell that are held at a time
GRAIN = 16  # least number of cells that a thread takes


def near_field(
    near: NearField, rows=None, out=None, target_rows=None, source_rows=None, grad=None
) -> None:
    r"""Adds :math:`\sum_{r < \rho} R(r) f_j` to the rows of the targets, and the derivatives of the
    weights times :math:`\langle a_i, b_j \rangle` to ``grad``; either may be left out. Inputs are
    sorted by cell, outputs are in the order of the targets.

    Shapes:
        - **rows:** :math:`f`, :math:`(N, C)`, **out:** :math:`(M, C)`
        - **target_rows:** :math:`a`, :math:`(M, B)`, **source_rows:** :math:`b`, :math:`(N, B)`,
          **grad:** :math:`(M, D)`
    """
    target, source = near.target, near.source
    none = np.empty((0, 0), near.constants.dtype)
    summed, slopes = (
        none if array is None else np.empty(array.shape, array.dtype) for array in (out, grad)
    )
    rows, target_rows, source_rows = (
        none if table is None else table for table in (rows, target_rows, source_rows)
    )
    pairs = (*target.places, *source.places, near.row_key, near.constants, near.table)
    tables = rows, summed, target_rows, source_rows, slopes
    run_rows(sum_near_pairs, len(target.key), GRAIN, *pairs, *tables)
    for table, added in ((out, summed), (grad, slopes)):
        if table is not None:
            run_rows(add_rows_at, len(added), ROWS, target.point, added, table)


# Kernels


@kernel("int64, int64, int32[::1], real[:, ::1], real[:, ::1]")
def add_rows_at(begin, end, index, rows, out):
    for a in range(begin, end):
        p = index[a]
        for c in range(rows.shape[1]):
            out[p, c] += rows[a, c]


@helper
def weigh_pairs(square, count, constants, table, weight, slope, slopes):
    """Computes the weights :math:`R(r)` of ``count`` pairs from squared distances, and :math:`R'(r)
    / r` if ``slopes``.

    ``table`` holds the rate, the three coefficients and the power of the kernel, then the
    coefficients of the polynomial."""
    real = constants.dtype.type
    one, two, three, twelve = real(1), real(2), real(3), real(12)
    outer, fade = constants[0], constants[1]
    rate, c0, c1, c2 = table[0], table[1], table[2], table[3]
    is_gaussian, scale = table[4] == two, one / outer
    a0, a1, a2, a3 = table[5], table[6], table[7], table[8]
    a4, a5, a6, a7 = table[9], table[10], table[11], table[12]
    d0, d1, d2 = c1 - c0, two * c2 - c1, -c2
    by_square = rate * rate
    for e in range(count):
        s = by_square * square[e]
        if not is_gaussian:
            s = math.sqrt(s)
        power = exp_negative(-s)
        weight[e] = (c0 + s * (c1 + s * c2)) * power
        if slopes:
            by_s = (d0 + s * (d1 + s * d2)) * power * by_square
            slope[e] = two * by_s if is_gaussian else by_s / max(s, real(1e-30))
    for e in range(count):
        x = square[e] * scale
        weight[e] -= a0 + x * (a1 + x * (a2 + x * (a3 + x * (a4 + x * (a5 + x * (a6 + x * a7))))))
        t = min(one, (outer - square[e]) * fade)
        f = t * t * (three - two * t)
        if slopes:
            by_x = a1 + x * (
                two * a2
                + x
                * (
                    three * a3
                    + x
                    * (real(4) * a4 + x * (real(5) * a5 + x * (real(6) * a6 + x * real(7) * a7)))
                )
            )
            slope[e] = (
                f * (slope[e] - two * scale * by_x) - twelve * t * (one - t) * fade * weight[e]
            )
        weight[e] *= f


@helper
def find_runs(key, source_key, source_start, row_key, pointer, run):
    """Finds the sources in the cells around the cell of ``key``, one ``run`` (first and end of a
    range of sources) per row of cells. ``pointer`` holds one position per row of cells, which moves
    forward only as keys ascend."""
    cells = source_key.shape[0]
    for r in range(row_key.shape[0]):
        lowest = key + row_key[r] - np.uint64(1)
        p = pointer[r]
        if p > 0 and source_key[p - 1] >= lowest:
            p = 0  # the key has wrapped around
        while p < cells and source_key[p] < lowest:
            p += 1
        pointer[r] = p
        run[r, 0] = source_start[p]
        while p < cells and source_key[p] <= lowest + np.uint64(2):
            p += 1
        run[r, 1] = source_start[p]


@helper
def find_box(position, first, last, box):
    for k in range(position.shape[0]):
        low = high = position[k, first]
        for t in range(first + 1, last):
            low = min(low, position[k, t])
            high = max(high, position[k, t])
        box[0, k], box[1, k] = low, high


@helper
def keep_near(box, source, first, last, reach, square, index, kept):
    """Writes the indices of the sources ``first`` to ``last`` whose squared distance to the box is
    below ``reach`` to ``index[kept:]``. Returns the new ``kept`` and overwrites ``square``."""
    zero, begin, count = box.dtype.type(0), np.uint64(first), np.uint64(last - first)
    for e in range(count):
        square[e] = 0
    for k in range(box.shape[1]):
        low, high = box[0, k], box[1, k]
        for e in range(count):
            x = source[k, begin + e]
            d = max(max(low - x, x - high), zero)
            square[e] += d * d
    for e in range(count):
        index[kept] = begin + e
        kept += square[e] < reach
    return kept


@kernel(
    "int64, int64, uint64[::1], int32[::1], real[:, ::1], uint64[::1], int32[::1], real[:, ::1], "
    "uint64[::1], real[::1], "
    "real[::1], real[:, ::1], real[:, ::1], real[:, ::1], real[:, ::1], real[:, ::1]"
)
def sum_near_pairs(
    begin,
    end,
    target_key,
    target_start,
    target,
    source_key,
    source_start,
    source,
    row_key,
    constants,
    table,
    rows,
    out,
    target_rows,
    source_rows,
    grad,
):
    """Sums over the pairs within the radius; rows are in the order of the cells' points. The
    sources near a cell of targets are gathered first, then compared with each target."""
    dim, reach, dtype = source.shape[0], constants[0], constants.dtype
    pointer, run = np.empty(row_key.shape[0], np.int64), np.empty((row_key.shape[0], 2), np.int64)
    box, position, total = (
        np.empty((2, dim), dtype),
        np.empty((dim, CANDIDATES + 1), dtype),
        np.empty(rows.shape[1], dtype),
    )
    index, hit = np.empty(CANDIDATES + 1, np.int64), np.empty(CANDIDATES + 1, np.uint64)
    square = np.empty(CANDIDATES + 1, dtype)
    weight, slope = np.empty(CANDIDATES + 1, dtype), np.empty(CANDIDATES + 1, dtype)
    for r in range(row_key.shape[0]):
        pointer[r] = lower_bound(source_key, target_key[begin] + row_key[r] - np.uint64(1))
    for cell in range(begin, end):
        for t in range(target_start[cell], target_start[cell + 1]):
            for c in range(out.shape[1]):
                out[t, c] = 0
            for k in range(grad.shape[1]):
                grad[t, k] = 0
        find_box(target, target_start[cell], target_start[cell + 1], box)
        find_runs(target_key[cell], source_key, source_start, row_key, pointer, run)
        r = 0
        while r < run.shape[0]:
            kept = 0
            while r < run.shape[0] and kept < CANDIDATES:
                last = min(run[r, 1], run[r, 0] + CANDIDATES - kept)
                kept = keep_near(box, source, run[r, 0], last, reach, square, index, kept)
                run[r, 0] = last
                r += last == run[r, 1]
            for k in range(dim):
                for e in range(kept):
                    position[k, e] = source[k, index[e]]
            for t in range(target_start[cell], target_start[cell + 1]):
                squared_distances(target, t, position, 0, kept, square)
                hits = np.uint64(0)
                for e in range(kept):
                    hit[hits] = np.uint64(e)
                    hits += np.uint64(square[e] < reach)
                count = np.int64(hits)
                for h in range(count):
                    e = hit[h]
                    square[h], hit[h] = square[e], index[e]
                weigh_pairs(square, count, constants, table, weight, slope, grad.shape[0] > 0)
                if out.shape[0] > 0:
                    add_weighted_rows(out, t, rows, hit, weight, count, total)
                if grad.shape[0] > 0:
                    add_slopes(
                        grad, t, t, target, source, hit, slope, count, target_rows, source_rows
                    )


def mean_pairs(points: Coordinates, first_query: int, radius: float, enough: int) -> float:
    """Estimates the mean number of a query's keys within a radius. Nothing is counted where they
    are surely more, or surely not more, than ``enough``."""
    (count, dim), to_itself = points.w.shape, first_query == 0
    side = mean_pairs_cell(dim, radius)
    corner = reduce_points(np.add, points.w) / count - side / 2
    low, high = (np.floor((edge - corner) / side) for edge in (points.low, points.high))
    if to_itself:
        if count - 1 <= enough:  # wherever they lie
            return float(count - 1)
        evenly = count / np.prod(high - low + 1) - 1
        if evenly > enough:  # however they are spread
            return float(evenly)
    base = low - 1
    keys = choose_keys(high - base + 1)
    cell = cube_keys(points.w, corner + base * side, 1 / side, keys)
    sorted_cell, index = sort_keys(cell, keys.bits)
    start = run_starts(sorted_cell)
    size = np.diff(start).astype(np.float64)
    if to_itself:
        return float((size * (size - 1)).sum() / count)
    of_keys = np.add.reduceat((index < first_query).astype(np.float64), start[:-1])
    return float((of_keys * (size - of_keys)).sum() / (count - first_query))
