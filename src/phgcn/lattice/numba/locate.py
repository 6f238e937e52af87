"""Locate: the simplex of each point, and its barycentric weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...runtime.numba import helper, kernel
from ...runtime.threads import run_rows
from .keys import MARGIN, Keys, choose_keys
from .sorting import run_starts, sort_keys

CHUNK = 1024  # points whose extent is found at a time
BLOCK = 64  # points whose coordinates are added up side by side
TILE = 256  # points that are located at once, coordinate by coordinate, in the first-level cache

GRAIN = 16384
TILES = 16  # least number of points that a thread maps, and of tiles that it locates


class Coordinates(NamedTuple):
    """Kuhn coordinates (P, D), and their extent ``low`` to ``high``, float64, (D,). Double
    precision keeps the accuracy of points far from 0."""

    w: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Frame(NamedTuple):
    """A lattice laid over a cloud.

    Args:
        w (np.ndarray): Kuhn coordinates of level 0, :math:`(P, D)`.
        base (np.ndarray): A vertex of every level below all points, where coordinates are 0,
            :math:`(D,)`.
        extent (np.ndarray): The highest coordinate of a point, counted from the base, :math:`(D,)`.
        matrix (np.ndarray): From positions to Kuhn coordinates, :math:`(D, D)`.
        reach (int): Counted hops beyond the points' vertices.
        dtype (np.dtype): The type of weights.
    """

    w: np.ndarray
    base: np.ndarray
    extent: np.ndarray
    matrix: np.ndarray
    reach: int
    dtype: np.dtype

    def keys(self) -> Keys:
        return choose_keys(self.extent + self.reach + MARGIN)


class Simplices(NamedTuple):
    """Location of points on the finest level, in the order of their unit cubes.

    Shapes:
        - **point:** the number of each point, int32, :math:`(P,)`
        - **order:** its Kuhn coordinates by descending fraction, uint8, :math:`(P, D)`: coordinate
          ``order[a, r]`` leads from corner r to corner r + 1 of its simplex
        - **weight:** barycentric weights, :math:`(P, D+1)`
        - **cube_start:** the first point of each cube, and the end of the last, int32,
          :math:`(Q+1,)`
    """

    point: np.ndarray
    order: np.ndarray
    weight: np.ndarray
    cube_start: np.ndarray


def map_points(points: np.ndarray, matrix: np.ndarray, shift: np.ndarray) -> Coordinates:
    """Computes :math:`w = T p + s`."""
    count, dim = points.shape
    chunks = -(-count // CHUNK)
    w, low, high = np.empty((count, dim)), np.empty((chunks, dim)), np.empty((chunks, dim))
    run_rows(map_chunks, chunks, GRAIN // CHUNK, points, matrix, shift, w, low, high)
    return Coordinates(w, low.min(axis=0), high.max(axis=0))


def with_extent(points: np.ndarray) -> Coordinates:
    return Coordinates(points, reduce_points(np.minimum, points), reduce_points(np.maximum, points))


def reduce_points(reduce: np.ufunc, points: np.ndarray) -> np.ndarray:
    """Sums all points (P, D), or finds their lowest or highest coordinates, in float64,
    :data:`BLOCK` points side by side, as NumPy is slow along short rows."""
    whole, dtype = len(points) // BLOCK * BLOCK, np.float64 if reduce is np.add else points.dtype
    if whole > 0:
        blocks = reduce.reduce(
            points[:whole].reshape(-1, BLOCK * points.shape[1]), axis=0, dtype=dtype
        )
        points = np.concatenate([blocks.reshape(BLOCK, -1), points[whole:]])
    reduced: np.ndarray = reduce.reduce(points, axis=0, dtype=dtype).astype(np.float64)
    return reduced


def lay_frame(mapped: Coordinates, matrix: np.ndarray, reach: int, dtype: np.dtype) -> Frame:
    """Lays a lattice over the extent of Kuhn coordinates, and ``reach`` hops beyond."""
    base = np.floor(mapped.low) - reach - MARGIN
    return Frame(mapped.w, base, mapped.high - base, matrix, reach, dtype)


def cube_keys(w: np.ndarray, base: np.ndarray, scale: float, keys: Keys) -> np.ndarray:
    r"""Computes the key of each point's cube, :math:`\sum_j \lfloor (w_j - b_j)\, s \rfloor\,
    m_j`."""
    key = np.empty(len(w), np.uint64)
    run_rows(add_cube_keys, len(w), GRAIN, w, base, scale, keys.multiplier, key)
    return key


def locate(frame: Frame) -> Simplices:
    keys, (count, dim) = frame.keys(), frame.w.shape
    key, point = sort_keys(cube_keys(frame.w, frame.base, 1.0, keys), keys.bits)
    order, weight = np.empty((count, dim), np.uint8), np.empty((count, dim + 1), frame.dtype)
    given = frame.w, point, frame.base, weight, order
    run_rows(locate_tiles, -(-count // TILE), TILES, *given)
    return Simplices(point, order, weight, run_starts(key))


# Kernels


@kernel(
    "int64, int64, real[:, ::1], float64[:, ::1], float64[::1], float64[:, ::1], float64[:, ::1], "
    "float64[:, ::1]"
)
def map_chunks(begin, end, points, matrix, shift, w, low, high):
    """Maps the points of chunks, and finds each chunk's lowest and highest coordinates."""
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
    """Sums the first floored coordinates, in double precision, times their multipliers."""
    for i in range(begin, end):
        total = np.uint64(0)
        for j in range(multiplier.shape[0]):
            total += np.uint64(np.floor((w[i, j] - base[j]) * scale)) * multiplier[j]
        key[i] = total


# Tiles of points are laid out coordinate by coordinate. Fractions are taken in double precision;
# they are no more exact than the weights that they become.


@helper
def tile_fractions(w, index, first, count, base, fraction):
    """Computes the fractions of the Kuhn coordinates of ``count`` points."""
    for j in range(w.shape[1]):
        for i in range(count):
            x = w[index[first + i], j] - base[j]
            fraction[j, i] = x - np.floor(x)


@helper
def tile_ranks(fraction, count, rank):
    """Ranks fractions in descending order by comparing every pair, without a branch."""
    for j in range(fraction.shape[0]):
        for i in range(count):
            rank[j, i] = 0
        for k in range(j):
            for i in range(count):
                ahead = np.int32(fraction[k, i] >= fraction[j, i])
                rank[j, i] += ahead
                rank[k, i] += np.int32(1) - ahead


@kernel("int64, int64, float64[:, ::1], int32[::1], float64[::1], real[:, ::1], uint8[:, ::1]")
def locate_tiles(begin, end, w, point, base, weight, order):
    """Finds order and barycentric weights of tiles of points, in the order of ``point``."""
    (count_all, dim), dtype = w.shape, weight.dtype
    fraction, rank = np.empty((dim, TILE), dtype), np.empty((dim, TILE), np.int32)
    tile_weight = np.empty((dim + 1, TILE), dtype)
    for tile in range(begin, end):
        first = tile * TILE
        count = min(TILE, count_all - first)
        tile_fractions(w, point, first, count, base, fraction)
        tile_ranks(fraction, count, rank)
        tile_weights(fraction, count, tile_weight)
        for i in range(count):
            for j in range(dim):
                order[first + i, np.uint64(rank[j, i])] = j
            for r in range(dim + 1):
                weight[first + i, r] = tile_weight[r, i]


@helper
def sort_lines(fraction, count):
    """Sorts each point's fractions in descending order by exchanges of neighbours."""
    dim = fraction.shape[0]
    for turn in range(dim):
        for j in range(turn % 2, dim - 1, 2):
            for i in range(count):
                upper, lower = fraction[j, i], fraction[j + 1, i]
                fraction[j, i] = max(upper, lower)
                fraction[j + 1, i] = min(upper, lower)


@helper
def tile_weights(fraction, count, weight):
    r"""Computes barycentric weights :math:`1 - f_1,\; f_1 - f_2, \dots` and sorts fractions."""
    dim = fraction.shape[0]
    sort_lines(fraction, count)
    for i in range(count):
        weight[0, i] = 1 - fraction[0, i]
        weight[dim, i] = fraction[dim - 1, i]
    for l in range(1, dim):
        for i in range(count):
            weight[l, i] = fraction[l - 1, i] - fraction[l, i]
