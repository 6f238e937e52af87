r"""Locate: the simplex that each point lies in, and its barycentric weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...runtime.numba import helper, kernel
from ...runtime.threads import run_rows
from ..geometry import kuhn_matrix, origin
from .keys import MARGIN, Keys, choose_keys
from .plan import CloudPlan
from .sorting import run_starts, sort_keys

CHUNK = 1024
"""Points whose extent is found at a time."""

BLOCK = 64
"""Points whose coordinates are added up side by side."""

TILE = 256
"""Points that are located at once, coordinate by coordinate, in the first-level cache."""

GRAIN = 16384
TILES = 16
"""Least number of points that a thread maps, and of tiles that it locates."""


NOT_JOINED = np.empty(0, np.int64)
"""The first points of joined clouds, where there is one cloud."""


class Coordinates(NamedTuple):
    r"""Coordinates of points, and their extent.

    Shapes:
        - **w:** :math:`(P, D)`; Kuhn coordinates in double precision, so that a far offset of all points costs no accuracy
        - **low**, **high:** the lowest and the highest of each, float64, :math:`(D,)`
    """

    w: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def take(self, axes: np.ndarray) -> Coordinates:
        """Returns some of the coordinates of each point."""
        return Coordinates(np.ascontiguousarray(self.w[:, axes]), self.low[axes], self.high[axes])


class Frame(NamedTuple):
    r"""A lattice laid over a cloud: from where, and how far, the coordinates of its vertices count.

    Args:
        w (np.ndarray): Kuhn coordinates of level 0, :math:`(P, D)`.
        base (np.ndarray): Where vertices are counted from, a vertex of every level below all points and stencils, :math:`(D,)`.
        extent (np.ndarray): The highest coordinate of a point, counted from the base, :math:`(D,)`.
        matrix (np.ndarray): From positions to Kuhn coordinates, :math:`(D, D)`.
        reach (int): How many hops the widest stencil spans.
        apart (np.ndarray): Where clouds are joined, what is added to the first coordinate of each point's vertices on level 0,
            so that no stencil reaches from one cloud to another, int64, :math:`(P,)`; empty for one cloud.
    """

    w: np.ndarray
    base: np.ndarray
    extent: np.ndarray
    matrix: np.ndarray
    reach: int
    apart: np.ndarray

    def keys(self, level: int) -> Keys:
        """Chooses the keys of the vertices of a level."""
        return choose_keys(self.extent * 0.5**level + self.reach + MARGIN)


class Simplices(NamedTuple):
    r"""Where points lie on the finest level, in the order of the unit cubes that they lie in.

    Shapes:
        - **point:** the number of each point, int32, :math:`(P,)`
        - **order:** its Kuhn coordinates by descending fraction, uint8, :math:`(P, D)`: coordinate ``order[a, r]`` leads from
          corner r to corner r + 1 of its simplex
        - **weight:** barycentric weights, :math:`(P, D+1)`
        - **cube_start:** the first point of each cube, and the end of the last, int32, :math:`(Q+1,)`
    """

    point: np.ndarray
    order: np.ndarray
    weight: np.ndarray
    cube_start: np.ndarray


def map_points(points: np.ndarray, matrix: np.ndarray, shift: np.ndarray) -> Coordinates:
    r"""Computes :math:`w = T p + s`."""
    count, dim = points.shape
    chunks = -(-count // CHUNK)
    w, low, high = np.empty((count, dim)), np.empty((chunks, dim)), np.empty((chunks, dim))
    run_rows(map_chunks, chunks, GRAIN // CHUNK, points, matrix, shift, w, low, high)
    return Coordinates(w, low.min(axis=0), high.max(axis=0))


def with_extent(points: np.ndarray) -> Coordinates:
    """Returns positions as they are, with their extent."""
    return Coordinates(points, reduce_points(np.minimum, points), reduce_points(np.maximum, points))


def reduce_points(reduce: np.ufunc, points: np.ndarray) -> np.ndarray:
    """Adds up all points (P, D), or finds their lowest or highest coordinates, in float64: of :data:`BLOCK` points side by side
    first, as NumPy is slow along short rows."""
    whole, dtype = len(points) // BLOCK * BLOCK, np.float64 if reduce is np.add else points.dtype
    if whole > 0:
        blocks = reduce.reduce(points[:whole].reshape(-1, BLOCK * points.shape[1]), axis=0, dtype=dtype)
        points = np.concatenate([blocks.reshape(BLOCK, -1), points[whole:]])
    reduced: np.ndarray = reduce.reduce(points, axis=0, dtype=dtype).astype(np.float64)
    return reduced


def kuhn_coordinates(
    points: np.ndarray, spacing: float, hops: tuple[int, ...], lattice: int, starts: np.ndarray = NOT_JOINED,
    origin_level: int | None = None,
) -> Frame:  # fmt: skip
    """Maps points (P, D) to Kuhn coordinates of level 0; ``hops`` are those of all levels, ``starts`` the first points of
    joined clouds, if any; the level that has the lattice's origin is the coarsest if not given."""
    dim, coarsest = points.shape[1], 2 ** (len(hops) - 1)
    matrix, shift = kuhn_map(dim, spacing, hops, lattice, origin_level)
    mapped = map_points(points, matrix, shift)
    if len(starts) == 0:
        return lay_frame(mapped, matrix, hops)
    w = mapped.w
    # As each cloud alone: coordinates count from its own base.
    low, high = np.minimum.reduceat(w, starts), np.maximum.reduceat(w, starts)
    base = (np.floor(low / coarsest) - max(hops) - MARGIN) * coarsest
    width = (np.floor((high - base)[:, 0] / coarsest).astype(np.int64) + max(hops) + MARGIN + 1) * coarsest
    apart, sizes = np.cumsum(width) - width, np.diff(starts, append=len(points))
    extent = (high - base).max(axis=0)
    extent[0] = apart[-1] + (high - base)[-1, 0]
    return Frame(w - np.repeat(base, sizes, axis=0), np.zeros(dim), extent, matrix, max(hops), np.repeat(apart, sizes))


def kuhn_map(
    dim: int, spacing: float, hops: tuple[int, ...], lattice: int, origin_level: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the matrix (D, D) and the shift (D,) that lead from positions to Kuhn coordinates of level 0; the level that has
    the lattice's origin is the coarsest if not given."""
    level = len(hops) - 1 if origin_level is None else origin_level
    return kuhn_matrix(dim).numpy() / spacing, origin(dim, lattice).numpy() * 2**level


def lay_frame(mapped: Coordinates, matrix: np.ndarray, hops: tuple[int, ...]) -> Frame:
    """Lays a lattice over the extent of Kuhn coordinates, which may be that of more points than are there."""
    coarsest = 2 ** (len(hops) - 1)
    base = (np.floor(mapped.low / coarsest) - max(hops) - MARGIN) * coarsest
    return Frame(mapped.w, base, mapped.high - base, matrix, max(hops), NOT_JOINED)


def cube_keys(w: np.ndarray, base: np.ndarray, scale: float, keys: Keys) -> np.ndarray:
    r"""Computes the key of the cube that each point lies in: :math:`\sum_j \lfloor (w_j - b_j)\, s \rfloor\, m_j`."""
    key = np.empty(len(w), np.uint64)
    run_rows(add_cube_keys, len(w), GRAIN, w, base, scale, keys.multiplier, key)
    return key


def locate(frame: Frame, level: int, plan: CloudPlan) -> None:
    """Finds the simplices of all points on a level, and writes them into the plan."""
    keys, scale = frame.keys(level), 0.5**level
    cube = cube_keys(frame.w, frame.base, scale, keys)
    if len(frame.apart) > 0:
        cube += (frame.apart >> level).astype(np.uint64) * keys.multiplier[0]
    key, point = sort_keys(cube, keys.bits)
    start = run_starts(key)
    plan.point[:] = point
    plan.cube_start[: len(start)] = start
    plan.sizes[1] = len(start) - 1
    run_rows(locate_tiles, -(-len(point) // TILE), TILES, frame.w, plan.point, frame.base, scale, plan.weight, plan.order)


def planned_simplices(plan: CloudPlan) -> Simplices:
    """Reads the simplices from a plan."""
    return Simplices(plan.point, plan.order, plan.weight, plan.cube_start[: plan.sizes[1] + 1])


def self_weights(frame: Frame, tables: np.ndarray, level: int, dtype: np.dtype) -> np.ndarray:
    r"""Computes what the levels from ``level`` on give a point of itself, :math:`a_i = \sum_k \sum_{l,m} b_l b_m t_{k,|l-m|}`.

    Args:
        frame (Frame): Where the points lie.
        tables (np.ndarray): The weights :math:`t` of all levels, :math:`(K, D+1)`.
        level (int): The finest level.
        dtype (np.dtype): The type of the points, in which weights are computed.

    Returns:
        float64, :math:`(P,)`.
    """
    none = np.empty((0, 0), dtype)
    return _self_terms(frame, tables, level, none, none, np.empty((0, 0)))


def self_gradients(frame: Frame, tables: np.ndarray, level: int, rows, grads, slope: np.ndarray) -> np.ndarray:
    r"""As :func:`self_weights`; adds :math:`-\langle f_i, g_i \rangle\, \partial a_i / \partial w_i`, with :math:`w` in units
    of the finest level, to ``slope``, :math:`(P, D)`."""
    return _self_terms(frame, tables, level, rows, grads, slope)


def _self_terms(frame: Frame, tables: np.ndarray, level: int, rows, grads, slope) -> np.ndarray:
    count = len(frame.w)
    share, index = np.empty(count), np.arange(count, dtype=np.int32)
    tiles, used = -(-count // TILE), tables[level:].astype(rows.dtype)
    run_rows(add_self_terms, tiles, TILES, frame.w, index, frame.base, 0.5**level, used, rows, grads, share, slope)
    return share


# Kernels


@kernel(
    "int64, int64, real[:, ::1], float64[:, ::1], float64[::1], float64[:, ::1], float64[:, ::1], float64[:, ::1]"
)  # fmt: skip
def map_chunks(begin, end, points, matrix, shift, w, low, high):
    """Maps the points of chunks, and finds the lowest and the highest coordinates of each chunk."""
    dim = points.shape[1]
    for chunk in range(begin, end):
        first, last = chunk * CHUNK, min(points.shape[0], (chunk + 1) * CHUNK)
        for i in range(first, last):
            for j in range(dim):
                total = shift[j]
                for k in range(dim):
                    total += matrix[j, k] * points[i, k]
                w[i, j] = total
        for j in range(dim):
            least = most = w[first, j]
            for i in range(first, last):
                least = min(least, w[i, j])
                most = max(most, w[i, j])
            low[chunk, j] = least
            high[chunk, j] = most


@kernel("int64, int64, real[:, ::1], float64[::1], float64, uint64[::1], uint64[::1]")
def add_cube_keys(begin, end, w, base, scale, multiplier, key):
    """Sums floored coordinates, in double precision, times multipliers, of as many coordinates as there are multipliers."""
    for i in range(begin, end):
        total = np.uint64(0)
        for j in range(multiplier.shape[0]):
            total += np.uint64(np.floor((w[i, j] - base[j]) * scale)) * multiplier[j]
        key[i] = total


# Tiles of points are laid out coordinate by coordinate.  Coordinates are in double precision, fractions of them no more exact
# than the weights that they become.


@helper
def tile_coordinates(w, index, first, count, base, scale, coordinate):
    """Copies the Kuhn coordinates of ``count`` points, counted from the base in units of the finest level."""
    for j in range(w.shape[1]):
        for i in range(count):
            coordinate[j, i] = (w[index[first + i], j] - base[j]) * scale


@helper
def tile_fractions(coordinate, count, scale, fraction):
    """Computes the fractions of scaled coordinates."""
    for j in range(coordinate.shape[0]):
        for i in range(count):
            x = coordinate[j, i] * scale
            fraction[j, i] = x - np.floor(x)


@helper
def tile_ranks(fraction, count, rank):
    """Finds the place of each fraction in descending order, by comparing every pair: no branch, many points at a time."""
    for j in range(fraction.shape[0]):
        for i in range(count):
            rank[j, i] = 0
        for k in range(j):
            for i in range(count):
                ahead = np.int32(fraction[k, i] >= fraction[j, i])
                rank[j, i] += ahead
                rank[k, i] += np.int32(1) - ahead


@kernel("int64, int64, float64[:, ::1], int32[::1], float64[::1], float64, real[:, ::1], uint8[:, ::1]")
def locate_tiles(begin, end, w, point, base, scale, weight, order):
    """Finds order and barycentric weights of tiles of points, taken in the order of ``point``."""
    (count_all, dim), dtype = w.shape, weight.dtype
    coordinate, fraction, rank = np.empty((dim, TILE)), np.empty((dim, TILE), dtype), np.empty((dim, TILE), np.int32)
    tile_weight = np.empty((dim + 1, TILE), dtype)
    for tile in range(begin, end):
        first = tile * TILE
        count = min(TILE, count_all - first)
        tile_coordinates(w, point, first, count, base, scale, coordinate)
        tile_fractions(coordinate, count, 1.0, fraction)
        tile_ranks(fraction, count, rank)
        tile_weights(fraction, count, tile_weight)
        for i in range(count):
            for j in range(dim):
                order[first + i, np.uint64(rank[j, i])] = j
            for r in range(dim + 1):
                weight[first + i, r] = tile_weight[r, i]


@helper
def sort_lines(fraction, count):
    """Sorts the fractions of each point in descending order, by exchanging neighbours, many points at a time."""
    dim = fraction.shape[0]
    for turn in range(dim):
        for j in range(turn % 2, dim - 1, 2):
            for i in range(count):
                upper, lower = fraction[j, i], fraction[j + 1, i]
                fraction[j, i] = max(upper, lower)
                fraction[j + 1, i] = min(upper, lower)


@helper
def tile_weights(fraction, count, weight):
    r"""Computes the barycentric weights :math:`1 - f_1,\; f_1 - f_2, \dots, f_D` from fractions, which it sorts."""
    dim = fraction.shape[0]
    sort_lines(fraction, count)
    for i in range(count):
        weight[0, i] = 1 - fraction[0, i]
        weight[dim, i] = fraction[dim - 1, i]
    for l in range(1, dim):
        for i in range(count):
            weight[l, i] = fraction[l - 1, i] - fraction[l, i]


@kernel(
    "int64, int64, float64[:, ::1], int32[::1], float64[::1], float64, real[:, ::1], "
    "real[:, ::1], real[:, ::1], float64[::1], float64[:, ::1]"
)
def add_self_terms(begin, end, w, index, base, scale, tables, rows, grads, share, slope):
    """Computes the self terms of tiles of points and, if ``slope`` is not empty, adds their derivatives to it."""
    (count_all, dim), dtype = w.shape, tables.dtype
    coordinate, fraction, rank = np.empty((dim, TILE)), np.empty((dim, TILE), dtype), np.empty((dim, TILE), np.int32)
    weight, by_weight = np.empty((dim + 1, TILE), dtype), np.empty((dim + 1, TILE), dtype)
    total, product = np.empty(TILE, dtype), np.empty(TILE)
    for tile in range(begin, end):
        first = tile * TILE
        count = min(TILE, count_all - first)
        for i in range(count):
            total[i] = product[i] = 0
            for c in range(grads.shape[1]):
                product[i] -= rows[first + i, c] * grads[first + i, c]
        tile_coordinates(w, index, first, count, base, scale, coordinate)
        for k in range(tables.shape[0]):
            tile_fractions(coordinate, count, 0.5**k, fraction)
            if slope.shape[0] > 0:
                tile_ranks(fraction, count, rank)
            tile_weights(fraction, count, weight)
            for l in range(dim + 1):
                for i in range(count):
                    by_weight[l, i] = 0
                for m in range(dim + 1):
                    t = tables[k, abs(l - m)]
                    for i in range(count):
                        by_weight[l, i] += t * weight[m, i]  # half the derivative of the share by weight l
                for i in range(count):
                    total[i] += weight[l, i] * by_weight[l, i]
            if slope.shape[0] > 0:
                for i in range(count):
                    step = product[i] * 2 * 0.5**k
                    for j in range(dim):
                        r = rank[j, i]
                        slope[first + i, j] += step * (by_weight[r + 1, i] - by_weight[r, i])
        for i in range(count):
            share[first + i] = total[i]
