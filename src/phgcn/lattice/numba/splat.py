r"""Splat: rows of values from points to vertices.

Every vertex is written by one row of one loop, in a fixed order: no atomics, the same bits every run.
"""

from __future__ import annotations

import numpy as np

from ...runtime.numba import helper, kernel
from ...runtime.threads import rows_of_work, run_rows
from .index import Corners, Level
from .join import MOST
from .locate import Simplices

CHUNK = 128
"""Points whose rows are fetched together: they lie anywhere in memory, and fetches overlap."""

GRAIN = 4096
"""Least number of points, or of sources of vertices, that a thread adds up."""

TERMS = 5
"""Rows that are weighted and added in one loop, to spare trips to memory: the corners of a simplex in four dimensions."""

BLOCK = 125
"""Points of a vertex that are added up in the type of their rows, a multiple of :data:`TERMS`; sums of blocks are added up in
float64."""


def splat(rows, others, first_other: int, simplices: Simplices, corners: Corners, level: Level) -> np.ndarray:
    r"""Adds each point's row, times its barycentric weights, to the vertices of its simplex.

    A point's row is two, side by side: that of ``rows``, which the first points have, and that of ``others``, which the points
    from ``first_other`` on have; zeros where it has none.

    Shapes:
        - **rows:** :math:`(N, C)`, **others:** :math:`(M, B)`
        - **output:** the rows of all sites, :math:`(\text{sites}, C + B)`
    """
    # Where most corners have one point, their rows need not be written first.  Not for clouds that may be joined: each must be
    # summed as if it were alone.
    if len(simplices.point) > MOST and 2 * corners.first[-1] > corners.number.size:
        return _splat_vertices(rows, others, first_other, simplices, corners, level)
    table = np.empty((corners.first[-1], rows.shape[1] + others.shape[1]), rows.dtype)
    cubes = len(simplices.cube_start) - 1
    grain = rows_of_work(cubes, len(simplices.point), GRAIN)
    run_rows(
        splat_cubes, cubes, grain, rows, others, first_other, simplices.point, simplices.cube_start,
        corners.first, corners.number, simplices.weight, table,
    )  # fmt: skip
    return _gather(table, level, 1.0, np.empty(0, np.int32))


def _splat_vertices(rows, others, first_other: int, simplices: Simplices, corners: Corners, level: Level) -> np.ndarray:
    """As :func:`splat`, vertex by vertex."""
    cubes, vertices = len(simplices.cube_start) - 1, level.vertices
    start, place = np.empty(corners.first[-1] + 1, np.int32), np.empty(corners.number.size, np.int32)
    start[-1], weight = len(place), np.empty(len(place), rows.dtype)
    grain = rows_of_work(cubes, len(simplices.point), GRAIN)
    run_rows(
        list_entries, cubes, grain, simplices.cube_start, simplices.weight, corners.first, corners.number,
        start, place, weight,
    )  # fmt: skip
    sorted_rows = np.empty((len(simplices.point), rows.shape[1] + others.shape[1]), rows.dtype)
    for first, column, given in ((0, 0, rows), (first_other, rows.shape[1], others)):
        run_rows(take_point_rows, len(sorted_rows), GRAIN, simplices.point, given, first, column, sorted_rows)
    table = np.empty((level.sites, sorted_rows.shape[1]), rows.dtype)
    grain = rows_of_work(len(level.site), len(place), GRAIN)
    listed = sorted_rows, vertices.source, vertices.start, level.site, start, place, weight
    run_rows(splat_vertices, len(level.site), grain, *listed, table)
    return table


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


# Vertex by vertex


@kernel("int64, int64, int32[::1], real[:, ::1], int64, uint64, real[:, ::1]")
def take_point_rows(begin, end, point, rows, first, column, out):
    """Copies the rows of points, in the order of ``point``, to columns from ``column`` on.  ``rows`` are those of the points
    from ``first`` on; others get zeros."""
    for a in range(begin, end):
        p = point[a] - first
        if 0 <= p < rows.shape[0]:
            for c in range(np.uint64(rows.shape[1])):
                out[a, column + c] = rows[p, c]
        else:
            for c in range(np.uint64(rows.shape[1])):
                out[a, column + c] = 0


@kernel("int64, int64, int32[::1], real[:, ::1], int32[::1], int32[:, ::1], int32[::1], int32[::1], real[::1]")
def list_entries(begin, end, cube_start, weight, first, number, start, place, entry_weight):
    """Lists the *entries* of each corner, from ``start[corner]`` on: the places of the points that touch it, and their weights.
    A counting sort of each cube's points by corner."""
    corners = weight.shape[1]
    behind = np.empty(1 << (corners - 1), np.int64)  # the end of what is listed so far for each corner of a cube
    for cube in range(begin, end):
        low, high = first[cube], first[cube + 1]
        for e in range(high - low):
            behind[e] = 0
        for a in range(cube_start[cube], cube_start[cube + 1]):
            for r in range(corners):
                behind[number[a, r] - low] += 1
        total = np.int64(cube_start[cube]) * corners
        for e in range(high - low):
            start[low + e] = total
            total += behind[e]
            behind[e] = start[low + e]
        for a in range(cube_start[cube], cube_start[cube + 1]):
            for r in range(corners):
                j = behind[number[a, r] - low]
                place[j], entry_weight[j] = a, weight[a, r]
                behind[number[a, r] - low] = j + 1


@helper
def add_five(out, o, rows, p0, p1, p2, p3, p4, w0, w1, w2, w3, w4, is_set):
    """Adds five rows times their weights to out[o], or sets it to their sum."""
    if is_set:
        for c in range(np.uint64(rows.shape[1])):
            out[o, c] = w0 * rows[p0, c] + w1 * rows[p1, c] + w2 * rows[p2, c] + w3 * rows[p3, c] + w4 * rows[p4, c]
    else:
        for c in range(np.uint64(rows.shape[1])):
            out[o, c] += w0 * rows[p0, c] + w1 * rows[p1, c] + w2 * rows[p2, c] + w3 * rows[p3, c] + w4 * rows[p4, c]


@helper
def add_terms(out, o, rows, place, weight, count):
    """Adds weight[e] * rows[place[e]] for all e below ``count`` to out[o].  Overwrites what ``place`` and ``weight`` hold
    behind, up to a multiple of :data:`TERMS`."""
    for e in range(count, -(-count // TERMS) * TERMS):
        place[e], weight[e] = place[0], 0
    for e in range(0, count, TERMS):
        p0, p1, p2, p3, p4 = place[e], place[e + 1], place[e + 2], place[e + 3], place[e + 4]
        w0, w1, w2, w3, w4 = weight[e], weight[e + 1], weight[e + 2], weight[e + 3], weight[e + 4]
        add_five(out, o, rows, p0, p1, p2, p3, p4, w0, w1, w2, w3, w4, False)


@helper
def clear_sites(out, site, v):
    """Sets the row of vertex v, and those of the sites between it and the vertex before, to 0."""
    for s in range(site[v - 1] + 1 if v > 0 else 0, site[v] + 1):
        for c in range(out.shape[1]):
            out[s, c] = 0


@kernel("int64, int64, real[:, ::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], real[::1], real[:, ::1]")
def splat_vertices(begin, end, rows, source, start, site, entry_start, entry_place, entry_weight, out):
    """Sums the rows of the points that touch each vertex, times their weights, at its site.  Sets the sites between two
    vertices to 0."""
    place, weight, total = np.empty(BLOCK, np.int64), np.empty(BLOCK, rows.dtype), np.zeros((1, rows.shape[1]))
    for v in range(begin, end):
        clear_sites(out, site, v)
        count, is_large = 0, False
        for a in range(start[v], start[v + 1]):
            e = source[a]
            for j in range(entry_start[e], entry_start[e + 1]):
                if count == BLOCK:
                    add_terms(out, site[v], rows, place, weight, count)
                    move_sums(out, site[v], site[v] + 1, total, False)
                    count, is_large = 0, True
                place[count], weight[count] = entry_place[j], entry_weight[j]
                count += 1
        add_terms(out, site[v], rows, place, weight, count)
        if is_large:
            move_sums(out, site[v], site[v] + 1, total, True)


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
