r"""Near field: the short range that coarse levels miss, summed pair by pair.

The weight of a pair at distance :math:`r` is

.. math::
    R(r) = s(r) \Big( e^{-r} - \sum_j A_j\, q^{4^j} \Big), \qquad q = e^{-g r^2}

the exact weight less what the levels that are used give the pair on average; :math:`s` leads smoothly to zero at the radius.
The derivative at :math:`r = 0` is taken as 0.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np

from ...exact.numba.pairs import add_slopes, add_weighted_rows, coordinate_lines, exp_negative, squared_distances
from ...kernels.numba import helper, kernel
from ...kernels.threads import run_rows
from ..coefficients import FADE_START, MultiScaleWeights
from ..levels import CELL_DIMENSIONS, mean_pairs_cell
from .keys import Keys, choose_keys, wrap_keys
from .locate import NOT_JOINED, Coordinates, cube_keys
from .sorting import lower_bound, run_starts, sort_keys

CANDIDATES = 4096
"""Sources near a cell that are held at a time."""

GRAIN = 16
ROWS = 8192
"""Cells, and rows, that a thread takes at least."""

BLOCK = 64
"""Points whose coordinates are added up side by side."""


LEAST_POWER = 2.0**-30
"""Smaller powers of q count as this one: their own fourth powers would be subnormal, which cost a hundred times as much."""


class Cells(NamedTuple):
    r"""Points in the order of the cells, as wide as the near field's radius, that they lie in.

    Shapes:
        - **key:** the key of each cell, ascending, uint64, :math:`(B,)`
        - **start:** its first point, and the end of the last cell, int32, :math:`(B+1,)`
        - **point:** the number of each point, int32, :math:`(N,)`
        - **position:** coordinate by coordinate, :math:`(D', N)`, :math:`D'` the next multiple of four
    """

    key: np.ndarray
    start: np.ndarray
    point: np.ndarray
    position: np.ndarray


class NearField(NamedTuple):
    """The near field between targets and sources, the very same cells where points attend to themselves.

    Args:
        target, source (Cells): The points.
        row_key (np.ndarray): The keys of the offsets to the rows of cells around a cell, uint64, (R,).
        constants (np.ndarray): ``radius²``, ``1 / (radius² - fade_start²)``, decay rate ``g``, amplitudes ``A``.
    """

    target: Cells
    source: Cells
    row_key: np.ndarray
    constants: np.ndarray

    def swapped(self) -> NearField:
        """Returns the same pairs with targets and sources exchanged."""
        return self._replace(target=self.source, source=self.target)


def find_cells(
    points: np.ndarray, exact: Coordinates, first_query: int, fitted: MultiScaleWeights, level: int,
    starts: np.ndarray = NOT_JOINED,
) -> NearField:  # fmt: skip
    """Sorts points into cells: the queries, from ``first_query`` on, are the targets; without queries all points are both.

    Args:
        points (np.ndarray): Positions, (P, D).
        exact (Coordinates): The same in double precision, and their extent.
        first_query (int): The number of the first query; 0 if there are none.
        fitted (MultiScaleWeights): The weights.
        level (int): The finest level used.
        starts (np.ndarray): The first points of joined clouds, if any.
    """
    radius, dim = fitted.radius[level], min(points.shape[1], CELL_DIMENSIONS)
    w, base, extent, apart = count_cells(exact, radius, starts)
    keys = wrap_keys(extent)
    prefix = np.array(list(itertools.product((-1, 0, 1), repeat=dim - 1)), np.int64).reshape(3 ** (dim - 1), -1)
    fade = 1 / (radius**2 * (1 - FADE_START**2))
    constants = np.array([radius**2, fade, fitted.rate, *fitted.amplitude[level]], points.dtype)

    def cells(places: slice) -> Cells:
        cube = cube_keys(w[places], base, 1 / radius, keys)
        if len(apart) > 0:
            cube += apart.astype(np.uint64) * keys.multiplier[0]
        key, point = sort_keys(cube, keys.bits)
        start = run_starts(key)
        return Cells(key[start[:-1]], start, point, coordinate_lines(take(point, points[places])))

    if first_query == 0:
        both = cells(slice(None))
        return NearField(both, both, keys.of_prefix(prefix), constants)
    return NearField(cells(slice(first_query, None)), cells(slice(first_query)), keys.of_prefix(prefix), constants)


def count_cells(exact: Coordinates, radius: float, starts: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns the coordinates that cells are laid over, where cells count from, how many there are in each coordinate, and,
    where clouds are joined, what is added to the first coordinate of each point's cell."""
    exact = widest(exact, starts)
    if len(starts) == 0:
        base = (np.floor(exact.low / radius) - 1) * radius
        return exact.w, base, (exact.high - exact.low) / radius + 4, starts
    low, high = np.minimum.reduceat(exact.w, starts), np.maximum.reduceat(exact.w, starts)
    base, sizes = (np.floor(low / radius) - 1) * radius, np.diff(starts, append=len(exact.w))
    extent = (high - low) / radius + 4
    width = extent[:, 0].astype(np.int64) + 2
    apart, highest = np.cumsum(width) - width, extent.max(axis=0)
    highest[0] = width.sum()
    return exact.w - np.repeat(base, sizes, axis=0), np.zeros(len(highest)), highest, np.repeat(apart, sizes)


def widest(exact: Coordinates, starts: np.ndarray = NOT_JOINED) -> Coordinates:
    """Returns the coordinates of largest extent, ascending, of each joined cloud its own."""
    dim = exact.w.shape[1]
    if dim <= CELL_DIMENSIONS:
        return exact
    if len(starts) == 0:
        return exact.take(np.sort(np.argsort(exact.low - exact.high, kind="stable")[:CELL_DIMENSIONS]))
    extent = np.maximum.reduceat(exact.w, starts) - np.minimum.reduceat(exact.w, starts)
    axes = np.sort(np.argsort(-extent, axis=1, kind="stable")[:, :CELL_DIMENSIONS], axis=1)
    w = np.take_along_axis(exact.w, np.repeat(axes, np.diff(starts, append=len(exact.w)), axis=0), axis=1)
    return Coordinates(w, w.min(axis=0), w.max(axis=0))


def near_field(near: NearField, rows=None, out=None, target_rows=(), source_rows=(), grad=None) -> None:
    r"""Adds :math:`\sum_{r < \rho} R(r) f_j` to the rows of the targets, and the derivatives of the weights times
    :math:`\langle a_i, b_j \rangle` to the gradients of their positions; either part may be left out.

    Shapes:
        - **rows:** :math:`f`, :math:`(N, C)`, **out:** :math:`(M, C)`
        - **target_rows:** :math:`a`, tables of :math:`M` rows that are put side by side, **source_rows:** likewise :math:`b`,
          of :math:`N` rows, **grad:** :math:`(M, D)`
    """
    target, source = near.target, near.source
    none = np.empty((0, 0), near.constants.dtype)
    summed, slopes = (none if array is None else np.empty(array.shape, array.dtype) for array in (out, grad))
    sorted_rows = none if rows is None else take(source.point, rows)
    products = (none, none) if grad is None else (take(target.point, *target_rows), take(source.point, *source_rows))
    run_rows(
        sum_near_pairs, len(target.key), GRAIN, target.key, target.start, target.position, source.key, source.start,
        source.position, near.row_key, near.constants, sorted_rows, summed, *products, slopes,
    )  # fmt: skip
    for table, added in ((out, summed), (grad, slopes)):
        if table is not None:
            run_rows(add_rows_at, len(added), ROWS, target.point, added, table)


def take(index: np.ndarray, *tables: np.ndarray) -> np.ndarray:
    """Copies the rows of tables at the given places, side by side."""
    out, column = np.empty((len(index), sum(table.shape[1] for table in tables)), tables[0].dtype), 0
    for table in tables:
        run_rows(take_rows, len(index), ROWS, index, table, column, out)
        column += table.shape[1]
    return out


def mean_pairs(points: Coordinates, first_query: int, radius: float, enough: float = math.inf, dim: int | None = None) -> float:
    """Estimates how many keys a query has within a radius, on average: those that share a cell with the volume of the ball.

    The mean of all points is in the middle of a cell: a small cloud lies in one, and is not cut into :math:`2^D` parts.
    Where the pairs are surely more than ``enough``, or surely not, they are not counted.  Where ``points`` have only some of
    their coordinates, ``dim`` is the number of all.
    """
    grid = pair_grid(points, mean_position(points.w), radius, dim)
    sure = sure_pairs(grid, len(points.w), first_query == 0, enough)
    return pairs_in_cells(*cell_counts(points.w, first_query, grid)[1:], first_query == 0) if sure is None else sure


def mean_position(w: np.ndarray) -> np.ndarray:
    """Returns the mean of coordinates (P, D): of :data:`BLOCK` points side by side first, as NumPy adds short rows slowly."""
    whole = len(w) // BLOCK * BLOCK
    blocks = w[:whole].reshape(-1, BLOCK * w.shape[1]).sum(axis=0).reshape(BLOCK, -1)
    mean: np.ndarray = (blocks.sum(axis=0) + w[whole:].sum(axis=0)) / len(w)
    return mean


class PairGrid(NamedTuple):
    """Cells with the volume of a ball: their side, a corner of one, and the first and the last cell of all points, (D,)."""

    side: float
    corner: np.ndarray
    low: np.ndarray
    high: np.ndarray


def pair_grid(points: Coordinates, mean: np.ndarray, radius: float, dim: int | None = None) -> PairGrid:
    """Lays cells over points whose mean is in the middle of one; of ``points`` only the extent is looked at.  Where they have
    only some of their coordinates, ``dim`` is the number of all."""
    side = mean_pairs_cell(dim or len(mean), radius)
    corner = mean - side / 2
    low, high = (np.floor((edge - corner) / side) for edge in (points.low, points.high))
    return PairGrid(side, corner, low, high)


def sure_pairs(grid: PairGrid, count: int, to_itself: bool, enough: float) -> float | None:
    """Returns a number of pairs of ``count`` points that attend to themselves where it is surely above ``enough``, or surely
    not; else :obj:`None`."""
    if not to_itself:
        return None
    if count - 1 <= enough < math.inf:  # few enough wherever they lie
        return float(count - 1)
    cells = np.prod(grid.high - grid.low + 1)
    return float(count / cells - 1) if count / cells > enough + 1 else None  # however they are spread


def cell_counts(w: np.ndarray, first_query: int, grid: PairGrid) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts the points (P, D) of each cell: its key, uint64, and its keys and queries, float64, (B,); without queries all
    points are keys."""
    base = grid.low - 1
    keys: Keys = choose_keys(grid.high - base + 1)
    key, index = sort_keys(cube_keys(w, grid.corner + base * grid.side, 1 / grid.side, keys), keys.bits)
    start = run_starts(key)
    size = np.diff(start).astype(np.float64)
    if first_query == 0:
        return key[start[:-1]], size, np.zeros_like(size)
    of_keys = np.add.reduceat((index < first_query).astype(np.float64), start[:-1])
    return key[start[:-1]], of_keys, size - of_keys


def pairs_in_cells(keys: np.ndarray, queries: np.ndarray, to_itself: bool) -> float:
    """Returns how many keys of its own cell a query has on average, itself left out, from the counts of :func:`cell_counts`."""
    if to_itself:
        return float((keys * (keys - 1)).sum() / keys.sum())
    return float((keys * queries).sum() / queries.sum())


# Kernels


@kernel("int64, int64, int32[::1], real[:, ::1], uint64, real[:, ::1]")
def take_rows(begin, end, index, table, column, out):
    """Copies rows, ``out[a] = table[index[a]]``, to columns from ``column`` on."""
    for a in range(begin, end):
        p = index[a]
        for c in range(np.uint64(table.shape[1])):
            out[a, column + c] = table[p, c]


@kernel("int64, int64, int32[::1], real[:, ::1], real[:, ::1]")
def add_rows_at(begin, end, index, rows, out):
    """Adds rows at places that are all different, ``out[index[a]] += rows[a]``."""
    for a in range(begin, end):
        p = index[a]
        for c in range(rows.shape[1]):
            out[p, c] += rows[a, c]


@helper
def weigh_pairs(square, count, constants, power, weight, slope, slopes):
    r"""Computes the weights of pairs at squared distances and, if ``slopes``, twice their derivatives by the squared distance:
    times the difference of two points, the gradient."""
    real = constants.dtype.type
    zero, one, two, three = real(0), real(1), real(2), real(3)
    outer, fade, rate = constants[0], constants[1], constants[2]
    least = real(LEAST_POWER)
    for e in range(count):
        weight[e] = exp_negative(-math.sqrt(square[e]))
        power[e] = exp_negative(-rate * square[e])
    if slopes:
        for e in range(count):
            r = math.sqrt(square[e])
            slope[e] = -weight[e] / r if r > zero else zero
    for j in range(3, constants.shape[0]):
        a = constants[j]
        if slopes:
            for e in range(count):
                slope[e] += two * rate * a * power[e]
        for e in range(count):
            q = power[e]
            weight[e] -= a * q
            q = max(q, least)
            power[e] = (q * q) * (q * q)
        rate *= two * two
    for e in range(count):
        t = min(one, (outer - square[e]) * fade)
        s = t * t * (three - two * t)
        if slopes:
            slope[e] = s * slope[e] - (two * two * three) * t * (one - t) * fade * weight[e]
        weight[e] *= s


@helper
def find_runs(key, source_key, source_start, row_key, pointer, run):
    """Finds the sources in the cells around the cell of a key: one run of points for each row of cells.

    As keys ascend, so do the cells around them: they are found by pointers that only move forward.
    """
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
    """Finds the lowest and the highest coordinates of some points."""
    for k in range(position.shape[0]):
        low = high = position[k, first]
        for t in range(first + 1, last):
            low = min(low, position[k, t])
            high = max(high, position[k, t])
        box[0, k], box[1, k] = low, high


@helper
def keep_near(box, source, first, last, reach, square, place, kept):
    """Appends the places of the sources of a run that lie near a box to those kept, and returns how many are kept now.
    ``square`` is overwritten."""
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
        place[kept] = begin + e
        kept += square[e] < reach
    return kept


@kernel(
    "int64, int64, uint64[::1], int32[::1], real[:, ::1], uint64[::1], int32[::1], real[:, ::1], uint64[::1], real[::1], "
    "real[:, ::1], real[:, ::1], real[:, ::1], real[:, ::1], real[:, ::1]"
)
def sum_near_pairs(
    begin, end, target_key, target_start, target, source_key, source_start, source, row_key, constants,
    rows, out, target_rows, source_rows, grad,
):  # fmt: skip
    """Sums over the pairs within the radius; rows are in the order of the cells' points.  See :func:`near_field`.

    The sources near a cell of targets are gathered first, as many as fit at a time, then compared with each target.
    """
    dim, reach, dtype = source.shape[0], constants[0], constants.dtype
    pointer, run = np.empty(row_key.shape[0], np.int64), np.empty((row_key.shape[0], 2), np.int64)
    box, position, total = np.empty((2, dim), dtype), np.empty((dim, CANDIDATES + 1), dtype), np.empty(rows.shape[1], dtype)
    place, hit = np.empty(CANDIDATES + 1, np.int64), np.empty(CANDIDATES + 1, np.uint64)
    square, power = np.empty(CANDIDATES + 1, dtype), np.empty(CANDIDATES + 1, dtype)
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
                kept = keep_near(box, source, run[r, 0], last, reach, square, place, kept)
                run[r, 0] = last
                r += last == run[r, 1]
            for k in range(dim):
                for e in range(kept):
                    position[k, e] = source[k, place[e]]
            for t in range(target_start[cell], target_start[cell + 1]):
                squared_distances(target, t, position, 0, kept, square)
                hits = np.uint64(0)
                for e in range(kept):
                    hit[hits] = np.uint64(e)
                    hits += np.uint64(square[e] < reach)
                count = np.int64(hits)
                for h in range(count):
                    e = hit[h]
                    square[h], hit[h] = square[e], place[e]
                weigh_pairs(square, count, constants, power, weight, slope, grad.shape[0] > 0)
                if out.shape[0] > 0:
                    add_weighted_rows(out, t, rows, hit, weight, count, total)
                if grad.shape[0] > 0:
                    add_slopes(grad, t, t, target, source, hit, slope, count, target_rows, source_rows)
