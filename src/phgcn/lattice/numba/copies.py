r"""Copies: points in the very same place.  Their weight on each other is exactly 1, like that of a point on itself."""

from __future__ import annotations

import numpy as np

from ...kernels.numba import helper, kernel
from ...kernels.threads import rows_of_work, run_rows
from .locate import Simplices

GRAIN = 8192
"""Least number of points that a thread compares."""

WEIGHT_STEPS = 2.0**32
"""Weights, from 0 to 1, are hashed in so many steps."""


class Copies:
    """Which points lie in the same place.

    Args:
        w (np.ndarray): Coordinates in double precision, (P, D).
        simplices (Simplices): Where the points lie: copies share a cube.
    """

    def __init__(self, w: np.ndarray, simplices: Simplices) -> None:
        first, exist, cubes = np.empty(len(w), np.int32), np.zeros(1, np.bool_), len(simplices.cube_start) - 1
        grain = rows_of_work(cubes, len(w), GRAIN)
        located = simplices.point, simplices.weight, simplices.cube_start
        run_rows(find_first_copies, cubes, grain, w, *located, first, exist)
        self.first, self.exist = first, bool(exist[0])

    def sum(self, rows: np.ndarray) -> np.ndarray:
        """Sums the rows of all points in the place of each, (P, C); the rows themselves where there are no copies."""
        if not self.exist:
            return rows
        order = np.argsort(self.first, kind="stable")
        start = np.flatnonzero(np.diff(self.first[order], prepend=-1))
        sums = np.add.reduceat(rows[order], start, axis=0, dtype=np.float64)
        out = np.empty_like(rows)
        out[order] = np.repeat(sums, np.diff(start, append=len(rows)), axis=0)
        return out


@helper
def are_equal(w, i, j):
    """Tells whether two points have the same coordinates."""
    for k in range(w.shape[1]):
        if w[i, k] != w[j, k]:
            return False
    return True


@kernel("int64, int64, float64[:, ::1], int32[::1], real[:, ::1], int32[::1], int32[::1], boolean[::1]")
def find_first_copies(begin, end, w, point, weight, cube_start, first, exist):
    """Finds, for each point, the first point of its cube, in the order of ``point``, that has the same place.

    Each cube has a hash table of barycentric weights, which are in the order of ``point``.  Sets ``exist`` if some point has a
    copy before it.
    """
    table = np.full(16, -1, np.int32)
    for cube in range(begin, end):
        start, stop = cube_start[cube], cube_start[cube + 1]
        if stop - start == 1:
            first[point[start]] = point[start]
            continue
        size = 2
        while size < 2 * (stop - start):
            size *= 2
        if size > table.shape[0]:
            table = np.full(size, -1, np.int32)
        else:
            table[:size] = -1
        for a in range(start, stop):
            i = point[a]
            code = np.uint64(0)
            for r in range(weight.shape[1]):
                code = (code ^ np.uint64(weight[a, r] * WEIGHT_STEPS)) * np.uint64(0x9E3779B97F4A7C15)
                code ^= code >> np.uint64(29)
            slot = code & np.uint64(size - 1)
            while table[slot] >= 0 and not are_equal(w, i, table[slot]):
                slot = (slot + np.uint64(1)) & np.uint64(size - 1)
            if table[slot] < 0:
                table[slot] = i
            else:
                exist[0] = True
            first[i] = table[slot]
