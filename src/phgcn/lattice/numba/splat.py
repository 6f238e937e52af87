r"""Splat: rows of values from points to vertices.

Every vertex is written by one row of one loop, in a fixed order: no atomics, the same bits every run.
"""

from __future__ import annotations

import numpy as np

from ...kernels.numba import helper, kernel
from ...kernels.threads import rows_of_work, run_rows
from .index import Corners, Level
from .locate import Simplices

CHUNK = 128
"""Points whose rows are fetched together: they lie anywhere in memory, and fetches overlap."""

GRAIN = 4096
"""Least number of points, or of sources of vertices, that a thread adds up."""


def splat(rows, others, first_other: int, simplices: Simplices, corners: Corners, level: Level) -> np.ndarray:
    r"""Adds each point's row, times its barycentric weights, to the vertices of its simplex.

    A point's row is two, side by side: that of ``rows``, which the first points have, and that of ``others``, which the points
    from ``first_other`` on have; zeros where it has none.

    Shapes:
        - **rows:** :math:`(N, C)`, **others:** :math:`(M, B)`
        - **output:** the rows of all sites, :math:`(\text{sites}, C + B)`
    """
    table = np.empty((corners.first[-1], rows.shape[1] + others.shape[1]), rows.dtype)
    cubes = len(simplices.cube_start) - 1
    grain = rows_of_work(cubes, len(simplices.point), GRAIN)
    run_rows(
        splat_cubes, cubes, grain, rows, others, first_other, simplices.point, simplices.cube_start,
        corners.first, corners.number, simplices.weight, table,
    )  # fmt: skip
    return _gather(table, level, 1.0, np.empty(0, np.int32))


def splat_coarser(table: np.ndarray, finer: Level, coarser: Level) -> np.ndarray:
    """Adds half of each vertex's row to either parent: the same as a splat of the points to the coarser level."""
    return _gather(table, coarser, 0.5, finer.site)


def _gather(table: np.ndarray, level: Level, factor: float, child_site: np.ndarray) -> np.ndarray:
    out = np.empty((level.sites, table.shape[1]), table.dtype)
    vertices = level.vertices
    given = table, vertices.source, child_site, vertices.start, level.site, table.dtype.type(factor)
    run_rows(gather_sources, len(level.site), rows_of_work(len(level.site), len(vertices.source), GRAIN), *given, out)
    return out


# Loops over the channels of a row are written out where they are needed: a helper would be compiled apart, and could not know
# that a chunk shares no memory with the rows it is added to.


@kernel(
    "int64, int64, real[:, ::1], real[:, ::1], int64, int32[::1], int32[::1], int32[::1], int32[:, ::1], real[:, ::1], "
    "real[:, ::1]"
)
def splat_cubes(begin, end, rows, others, first_other, point, cube_start, first, number, weight, out):
    """Adds the rows of the points of each cube to its corners."""
    half, width = np.uint64(rows.shape[1]), out.shape[1]
    chunk = np.zeros((CHUNK, width), out.dtype)
    # Sums of a large cube are added up in float64, chunk by chunk: in float32, those of a million points are off by 1 %.  Its
    # chunks begin with the cube, so that no sum depends on the cubes before it.
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
        if not is_large:  # as many whole cubes as fit, up to a large one; those that are cut go on in the next chunk
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
    """Adds rows ``begin`` to ``end`` to ``total`` and clears them; at the last chunk of a cube, sets them to the total instead
    and clears that."""
    for e in range(begin, end):
        for c in range(out.shape[1]):
            total[e - begin, c] += out[e, c]
            out[e, c] = total[e - begin, c] if is_done else 0
            if is_done:
                total[e - begin, c] = 0


@kernel("int64, int64, real[:, ::1], int32[::1], int32[::1], int32[::1], int32[::1], real, real[:, ::1]")
def gather_sources(begin, end, table, source, child_site, start, site, factor, out):
    """Sums the rows that each vertex is made of, at its site: rows of the table at its sources or, if ``child_site`` is not
    empty, at the sites of its children.  Sets the sites between two vertices to 0."""
    for v in range(begin, end):
        for s in range(site[v - 1] + 1 if v > 0 else 0, site[v] + 1):
            for c in range(table.shape[1]):
                out[s, c] = 0
        for a in range(start[v], start[v + 1]):
            p = source[a]
            if child_site.shape[0] > 0:
                p = child_site[p >> 1]
            for c in range(table.shape[1]):
                out[site[v], c] += factor * table[p, c]
