"""Index: the vertices that the points' simplices touch, in the order of their keys.

Each cube lists the *corners* that its points touch. Sorted lists without repeats are the vertices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...runtime.numba import kernel
from ...runtime.threads import rows_of_work, run_rows
from .locate import Frame, Simplices, locate
from .sorting import run_starts, sort_keys

GRAIN = 8192  # least number of points or vertices that a thread takes


class Corners(NamedTuple):
    """The corners of cubes that points touch, numbered cube by cube.

    Shapes:
        - **number:** the corners of each point's simplex, int32, :math:`(P, D+1)`
        - **first:** the first corner of each cube, and the end of the last, int32, :math:`(Q+1,)`
    """

    number: np.ndarray
    first: np.ndarray


class Vertices(NamedTuple):
    r"""The touched vertices, in the order of their keys.

    Shapes:
        - **key:** :math:`\sum_j v_j m_j`, counted from the frame's base, uint64, :math:`(V,)`
        - **source:** the corners of cubes that each vertex is made of, one vertex after the other,
          int32, :math:`(E,)`
        - **start:** the first source of each vertex, and the end of the last, int32, :math:`(V+1,)`
        - **vertex_of:** the vertex of each corner, int32, :math:`(E,)`
    """

    key: np.ndarray
    source: np.ndarray
    start: np.ndarray
    vertex_of: np.ndarray


class Located(NamedTuple):
    """The lattice of a cloud's points on level 0."""

    frame: Frame
    simplices: Simplices
    corners: Corners
    vertices: Vertices


def locate_points(frame: Frame) -> Located:
    """Finds the simplices of all points, and the vertices that they touch."""
    simplices, keys = locate(frame), frame.keys()
    point, order, _, cube_start = simplices
    cubes = len(cube_start) - 1
    grain, counts = rows_of_work(cubes, len(point), GRAIN), np.empty(cubes, np.int32)
    run_rows(count_corners, cubes, grain, cube_start, order, counts)
    first = np.concatenate([np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)])
    corner_key = np.empty(first[-1], np.uint64)
    number = np.empty((len(point), order.shape[1] + 1), np.int32)
    given = frame.w, frame.base, point, order, cube_start, keys.multiplier
    run_rows(list_corners, cubes, grain, *given, first, corner_key, number)
    sorted_key, source = sort_keys(corner_key, keys.bits)
    start, vertex_of = run_starts(sorted_key), np.empty(len(source), np.int32)
    run_rows(number_sources, len(start) - 1, GRAIN, source, start, vertex_of)
    vertices = Vertices(sorted_key[start[:-1]], source, start, vertex_of)
    return Located(frame, simplices, Corners(number, first), vertices)


# Kernels


@kernel("int64, int64, int32[::1], uint8[:, ::1], int32[::1]")
def count_corners(begin, end, cube_start, order, count):
    """Counts the distinct corners that the points of each cube touch."""
    dim = order.shape[1]
    seen = np.full(1 << dim, -1)
    for cube in range(begin, end):
        distinct = 2  # the lowest and the highest corner belong to every simplex
        for a in range(cube_start[cube], cube_start[cube + 1]):
            corner = 0
            for r in range(dim - 1):
                corner |= 1 << order[a, r]
                if seen[corner] != cube:
                    seen[corner] = cube
                    distinct += 1
        count[cube] = distinct


@kernel(
    "int64, int64, float64[:, ::1], float64[::1], int32[::1], uint8[:, ::1], int32[::1], "
    "uint64[::1], int32[::1], "
    "uint64[::1], int32[:, ::1]"
)
def list_corners(begin, end, w, base, point, order, cube_start, multiplier, first, key, number):
    """Lists the keys of each cube's touched corners from ``first[cube]`` on, and writes the index
    of each corner of a point's simplex to ``number``.

    A corner is a bit mask of the coordinates in which it lies above the cube's lowest corner."""
    dim = order.shape[1]
    slot = np.full(1 << dim, -1)
    for cube in range(begin, end):
        start = first[cube]
        used = np.int64(start)
        for a in range(cube_start[cube], cube_start[cube + 1]):
            corner = np.uint64(0)
            for r in range(dim + 1):
                if r > 0:
                    corner |= np.uint64(1) << np.uint64(order[a, r - 1])
                e = slot[corner]
                if e < start or e >= used or key[e] != corner:
                    e = used
                    used += 1
                    slot[corner] = e
                    key[e] = corner
                number[a, r] = e
        i = point[cube_start[cube]]
        for e in range(start, used):
            corner = key[e]
            total = np.uint64(0)
            for j in range(dim):
                above = np.int64((corner >> np.uint64(j)) & np.uint64(1))
                total += np.uint64(np.int64(np.floor(w[i, j] - base[j])) + above) * multiplier[j]
            key[e] = total


@kernel("int64, int64, int32[::1], int32[::1], int32[::1]")
def number_sources(begin, end, source, start, vertex_of):
    for v in range(begin, end):
        for a in range(start[v], start[v + 1]):
            vertex_of[source[a]] = v
