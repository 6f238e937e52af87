r"""Copies: points in the very same place.  Their weight on each other is exactly 1, like that of a point on itself."""

from __future__ import annotations

import numpy as np

from ...runtime.numba import helper, kernel
from ...runtime.threads import rows_of_work, run_rows
from .locate import Simplices

GRAIN = 8192
"""Least number of points that a thread compares."""

FEW = 64
"""Upper bound of the points of a cube that are compared with each other one by one."""

WEIGHT_STEPS = 2.0**32
"""Weights, from 0 to 1, are hashed in so many steps."""


class Copies:
    """Which points lie in the same place.

    Args:
        points (np.ndarray): Positions, (P, D).
        simplices (Simplices): Where the points lie: copies share a cube.
    """

    def __init__(self, points: np.ndarray, simplices: Simplices) -> None:
        first, exist, cubes = np.empty(len(points), np.int32), np.zeros(1, np.bool_), len(simplices.cube_start) - 1
        grain = rows_of_work(cubes, len(points), GRAIN)
        located = simplices.point, simplices.weight, simplices.cube_start
        run_rows(find_first_copies, cubes, grain, points, *located, first, exist)
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
def are_equal(points, i, j):
    """Tells whether two points have the same coordinates."""
    for k in range(points.shape[1]):
        if points[i, k] != points[j, k]:
            return False
    return True


@kernel("int64, int64, real[:, ::1], int32[::1], real[:, ::1], int32[::1], int32[::1], boolean[::1]")
def find_first_copies(begin, end, points, point, weight, cube_start, first, exist):
    """Finds, for each point, the first point of its cube, in the order of ``point``, that has the same place.

    Points of a cube that holds few are compared by their first barycentric weight; a larger cube has a hash table of all
    weights.  Sets ``exist`` if some point has a copy before it.
    """
    table, first_weight = np.full(16, -1, np.int32), np.empty(FEW, weight.dtype)
    for cube in range(begin, end):
        start, stop = cube_start[cube], cube_start[cube + 1]
        if stop - start == 1:
            first[point[start]] = point[start]
            continue
        if stop - start <= FEW:
            for a in range(start, stop):
                i, x = point[a], weight[a, 0]
                first[i], first_weight[a - start] = i, x
                equal = 0
                for k in range(np.uint64(a - start)):
                    equal += first_weight[k] == x
                if equal > 0:
                    for b in range(start, a):
                        if are_equal(points, i, point[b]):
                            first[i], exist[0] = point[b], True
                            break
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
            while table[slot] >= 0 and not are_equal(points, i, table[slot]):
                slot = (slot + np.uint64(1)) & np.uint64(size - 1)
            if table[slot] < 0:
                table[slot] = i
            else:
                exist[0] = True
            first[i] = table[slot]
