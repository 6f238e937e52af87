"""Splat: rows of values from points to vertices. One row of one loop writes every vertex, in a
fixed order: the same bits every run."""

from __future__ import annotations

import numpy as np

from ...runtime.numba import helper, kernel
from ...runtime.threads import rows_of_work, run_rows
from .index import Located

# points whose rows are fetched together: they lie anywhere in memory, and fetches overlap
CHUNK = 128

GRAIN = 4096  # least number of points, or of sources of vertices, that a thread adds up


def splat(rows, others, first_other: int, located: Located) -> np.ndarray:
    """Adds each point's row, times its barycentric weights, to the vertices of its simplex.

    A point's row has two parts, side by side. ``rows`` holds the first part of points 0 to N - 1,
    ``others`` the second part of points from ``first_other`` on. Missing parts are 0.

    Shapes:
        - **rows:** :math:`(N, C)`, **others:** :math:`(M, B)`
        - **output:** the rows of all vertices, :math:`(V, C + B)`
    """
    _, simplices, corners, vertices = located
    width, cubes = rows.shape[1] + others.shape[1], len(simplices.cube_start) - 1
    table = np.empty((corners.first[-1], width), rows.dtype)
    grain = rows_of_work(cubes, len(simplices.point), GRAIN)
    lie = simplices.point, simplices.cube_start, *corners[::-1], simplices.weight
    run_rows(splat_cubes, cubes, grain, rows, others, first_other, *lie, table)
    out = np.empty((len(vertices.key), width), table.dtype)
    grain = rows_of_work(len(out), len(vertices.source), GRAIN)
    run_rows(sum_corners, len(out), grain, table, vertices.source, vertices.start, out)
    return out


# Loops over the channels of a row are written out where they are needed: a helper would be compiled
# apart, and could not know that a chunk shares no memory with the rows it is added to.


@kernel(
    "int64, int64, real[:, ::1], real[:, ::1], int64, int32[::1], int32[::1], int32[::1], int32[:, "
    "::1], real[:, ::1], "
    "real[:, ::1]"
)
def splat_cubes(
    begin, end, rows, others, first_other, point, cube_start, first, number, weight, out
):
    """Adds the rows of the points of each cube to its corners."""
    half, width = np.uint64(rows.shape[1]), out.shape[1]
    chunk = np.zeros((CHUNK, width), out.dtype)
    # Sums of a large cube are added up in float64, chunk by chunk: in float32, those of a million
    # points are off by 1 %. Its chunks begin with the cube, so that no sum depends on the cubes
    # before it.
    corners = 0
    for k in range(begin, end):
        if cube_start[k + 1] - cube_start[k] > CHUNK:
            corners = max(corners, first[k + 1] - first[k])
    total = np.zeros((corners, width), np.float64)
    for e in range(first[begin], first[end]):
        for c in range(width):
            out[e, c] = 0
    lead, cube = cube_start[begin], begin
    while lead < cube_start[end]:
        is_large = cube_start[cube + 1] - cube_start[cube] > CHUNK
        stop = min(lead + CHUNK, cube_start[cube + 1])
        # as many whole cubes as fit, up to a large one; those that are cut go on in the next chunk
        if not is_large:
            following = cube + 1
            while following < end and stop < lead + CHUNK:
                if cube_start[following + 1] - cube_start[following] > CHUNK:
                    break
                stop = min(lead + CHUNK, cube_start[following + 1])
                following += 1
        count = stop - lead
        for i in range(count):
            p = point[lead + i]
            if p < rows.shape[0]:
                for c in range(rows.shape[1]):
                    chunk[i, c] = rows[p, c]
            else:
                for c in range(rows.shape[1]):
                    chunk[i, c] = 0
            p -= first_other
            if 0 <= p < others.shape[0]:
                for c in range(np.uint64(others.shape[1])):
                    chunk[i, half + c] = others[p, c]
            else:
                for c in range(np.uint64(others.shape[1])):
                    chunk[i, half + c] = 0
        for i in range(count):
            for r in range(number.shape[1]):
                e, b = number[lead + i, r], weight[lead + i, r]
                for c in range(width):
                    out[e, c] += b * chunk[i, c]
        if is_large:
            move_sums(out, first[cube], first[cube + 1], total, stop == cube_start[cube + 1])
        lead = stop
        while cube < end and cube_start[cube + 1] <= lead:
            cube += 1


@helper
def move_sums(out, begin, end, total, is_done):
    """Adds rows ``begin`` to ``end`` to ``total`` and clears them; the last chunk of a cube sets
    them to the total and clears it."""
    for e in range(begin, end):
        for c in range(out.shape[1]):
            total[e - begin, c] += out[e, c]
            out[e, c] = total[e - begin, c] if is_done else 0
            if is_done:
                total[e - begin, c] = 0


@kernel("int64, int64, real[:, ::1], int32[::1], int32[::1], real[:, ::1]")
def sum_corners(begin, end, table, source, start, out):
    """Sums the rows of the corners that each vertex is made of."""
    for v in range(begin, end):
        for c in range(table.shape[1]):
            out[v, c] = 0
        for a in range(start[v], start[v + 1]):
            p = source[a]
            for c in range(table.shape[1]):
                out[v, c] += table[p, c]
