r"""Index: the vertices that the points' simplices touch, in the order of their keys, level by level.

Each cube lists the *corners* that its points touch; sorting these lists and dropping repeats gives the vertices of the finest
level.  A coarser level is made of the two *parents* of each vertex of the next finer one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...runtime.numba import kernel
from ...runtime.threads import rows_of_work, run_rows
from .keys import Keys
from .locate import Frame, Simplices
from .plan import CloudPlan
from .sorting import run_starts, sort_keys

GRAIN = 8192
"""Least number of points or vertices that a thread takes."""


class Corners(NamedTuple):
    r"""The corners of cubes that points touch, numbered cube by cube.

    Shapes:
        - **number:** the corners of each point's simplex, int32, :math:`(P, D+1)`
        - **first:** the first corner of each cube, and the end of the last, int32, :math:`(Q+1,)`
    """

    number: np.ndarray
    first: np.ndarray


class Vertices(NamedTuple):
    r"""The touched vertices of one level, in the order of their keys.

    Shapes:
        - **coordinate:** counted from the frame's base, int32, :math:`(V, D)`
        - **source:** what each vertex is made of, one vertex after the other, int32, :math:`(E,)`: corners of cubes on the
          finest level; on a coarser one, children, where 2v and 2v + 1 are the finer vertex v
        - **start:** the first source of each vertex, and the end of the last, int32, :math:`(V+1,)`
    """

    coordinate: np.ndarray
    source: np.ndarray
    start: np.ndarray


class Level(NamedTuple):
    r"""The vertices of one level, laid out for the blur.

    Vertices that share all but their last coordinate lie in *segments*.  A segment has a *site*, that is a row of a table, for
    every place between its first and its last vertex, so that its rows lie side by side.

    Args:
        vertices (Vertices): The vertices.
        keys (Keys): How their coordinates make keys.
        site (np.ndarray): The site of each vertex, int32, :math:`(V,)`.
        source_site (np.ndarray): The site of the vertex that each source became part of, int32, :math:`(E,)`.
        sites (int): The number of sites.
        first, last (np.ndarray): The keys of each segment's first and last vertex, uint64, :math:`(S,)`, ascending.
        place (np.ndarray): The site of each segment's first vertex, int32, :math:`(S,)`.
        prefix (np.ndarray): The coordinates that a segment's vertices share, int32, :math:`(S, D-1)`; empty unless keys are
            hashes.
    """

    vertices: Vertices
    keys: Keys
    site: np.ndarray
    source_site: np.ndarray
    sites: int
    first: np.ndarray
    last: np.ndarray
    place: np.ndarray
    prefix: np.ndarray


def index(frame: Frame, simplices: Simplices, level: int, plan: CloudPlan) -> None:
    """Numbers the vertices that points touch on the finest level, and writes them into the plan."""
    keys, cubes = frame.keys(level), len(simplices.cube_start) - 1
    counts = np.empty(cubes, np.int32)
    grain = rows_of_work(cubes, len(simplices.point), GRAIN)
    run_rows(count_corners, cubes, grain, simplices.cube_start, simplices.order, counts)
    first = plan.first_corner[: cubes + 1]
    first[0] = 0
    np.cumsum(counts, out=first[1:])
    key, coordinate = _empty_list(first[-1], keys)
    run_rows(
        list_corners, cubes, grain, frame.w, frame.base, 0.5**level, simplices.point, simplices.order, simplices.cube_start,
        keys.multiplier, first, key, coordinate, plan.corner,
    )  # fmt: skip
    if len(frame.apart) > 0:
        apart = np.repeat(frame.apart[simplices.point[simplices.cube_start[:-1]]] >> level, counts)
        key += apart.astype(np.uint64) * keys.multiplier[0]
        if keys.hashed:
            coordinate[:, 0] += apart.astype(np.int32)
    vertices = merge(key, coordinate, keys, plan.coordinate)
    plan.sizes[2:] = len(vertices.source), len(vertices.coordinate)
    plan.source[: len(vertices.source)] = vertices.source
    plan.vertex_start[: len(vertices.start)] = vertices.start


def planned_vertices(plan: CloudPlan) -> tuple[Corners, Vertices]:
    """Reads corners and vertices of the finest level from a plan."""
    _, cubes, corners, vertices = plan.sizes.tolist()
    return (
        Corners(plan.corner, plan.first_corner[: cubes + 1]),
        Vertices(plan.coordinate[:vertices], plan.source[:corners], plan.vertex_start[: vertices + 1]),
    )


def coarsen(vertices: Vertices, keys: Keys) -> Vertices:
    """Finds the vertices of the next coarser level, whose keys are ``keys``."""
    count = len(vertices.coordinate)
    key, coordinate = _empty_list(2 * count, keys)
    run_rows(list_parents, count, GRAIN, vertices.coordinate, keys.multiplier, key, coordinate)
    return merge(key, coordinate, keys)


def _empty_list(count: int, keys: Keys) -> tuple[np.ndarray, np.ndarray]:
    """Allocates keys and coordinates of corners or parents; no coordinates where they can be read from the keys."""
    return np.empty(count, np.uint64), np.empty((count if keys.hashed else 0, len(keys.multiplier)), np.int32)


def merge(key: np.ndarray, coordinate: np.ndarray, keys: Keys, memory: np.ndarray | None = None) -> Vertices:
    """Sorts keys (E,), with their coordinates (E, D) if keys are hashes, and makes one vertex of those that are equal; the
    coordinates of the vertices are the first rows of ``memory``, if given."""
    sorted_key, source = sort_keys(key, keys.bits)
    start = run_starts(sorted_key)
    count, collision = len(start) - 1, np.zeros(1, np.bool_)
    merged = np.empty((count, len(keys.multiplier)), np.int32) if memory is None else memory[:count]
    if keys.hashed:
        run_rows(take_coordinates, count, GRAIN, coordinate, source, start, merged, collision)
    else:
        run_rows(read_coordinates, count, GRAIN, sorted_key, start, keys.shift, merged)
    if collision[0]:
        raise RuntimeError("two lattice vertices have the same hash; change `spacing` slightly")
    return Vertices(merged, source, start)


def lay_out(vertices: Vertices, keys: Keys, gap: int) -> Level:
    """Cuts vertices into segments, which end where the next vertex is more than ``gap`` steps away."""
    count, parts = len(vertices.coordinate), -(-len(vertices.coordinate) // GRAIN)
    step, key, before = np.empty(count, np.int32), np.empty(count, np.uint64), np.zeros((parts + 1, 2), np.int64)
    run_rows(find_steps, parts, 1, vertices.coordinate, keys.multiplier, gap, step, key, before[1:])
    before.cumsum(axis=0, out=before)
    segments, sites = before[-1]
    site, source_site = np.empty(count, np.int32), np.empty(len(vertices.source), np.int32)
    head, place = np.empty(segments, np.int32), np.empty(segments, np.int32)
    first, last = np.empty(segments, np.uint64), np.empty(segments, np.uint64)
    last[-1:] = key[-1:]
    given = step, key, before, vertices.source, vertices.start
    run_rows(place_vertices, parts, 1, *given, site, source_site, head, place, first, last)
    prefix = vertices.coordinate[head, :-1] if keys.hashed else vertices.coordinate[:0, :-1].copy()
    return Level(vertices, keys, site, source_site, int(sites), first, last, place, prefix)


def lay_out_levels(vertices: Vertices, frame: Frame, levels: range, gap: int) -> list[Level]:
    """Lays out the vertices of the finest of some levels, and finds those of the others."""
    laid_out = [lay_out(vertices, frame.keys(levels[0]), gap)]
    for level in levels[1:]:
        laid_out.append(lay_out(coarsen(laid_out[-1].vertices, frame.keys(level)), frame.keys(level), gap))
    return laid_out


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
    "int64, int64, float64[:, ::1], float64[::1], float64, int32[::1], uint8[:, ::1], int32[::1], uint64[::1], int32[::1], "
    "uint64[::1], int32[:, ::1], int32[:, ::1]"
)
def list_corners(begin, end, w, base, scale, point, order, cube_start, multiplier, first, key, coordinate, number):
    """Lists the corners that each cube touches, from ``first[cube]`` on: their keys and, unless there is no memory for them,
    coordinates; and numbers those of each point's simplex.

    A corner is a bit mask of the coordinates in which it lies above the cube's lowest corner.
    """
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
                c = np.int32(np.floor((w[i, j] - base[j]) * scale)) + np.int32((corner >> np.uint64(j)) & np.uint64(1))
                if coordinate.shape[0] > 0:
                    coordinate[e, j] = c
                total += np.uint64(c) * multiplier[j]
            key[e] = total


@kernel("int64, int64, int32[:, ::1], uint64[::1], uint64[::1], int32[:, ::1]")
def list_parents(begin, end, coordinate, multiplier, parent_key, parent_coordinate):
    r"""Lists the two vertices of the next coarser level that a vertex :math:`v` lies between, :math:`\lfloor v/2 \rfloor` and
    :math:`\lceil v/2 \rceil`, at places :math:`2v` and :math:`2v+1`: their keys and, unless there is no memory for them,
    coordinates."""
    for v in range(begin, end):
        for half in range(2):
            total = np.uint64(0)
            for j in range(coordinate.shape[1]):
                c = (coordinate[v, j] + half) >> 1
                if parent_coordinate.shape[0] > 0:
                    parent_coordinate[2 * v + half, j] = c
                total += np.uint64(c) * multiplier[j]
            parent_key[2 * v + half] = total


@kernel("int64, int64, int32[:, ::1], int32[::1], int32[::1], int32[:, ::1], boolean[::1]")
def take_coordinates(begin, end, coordinate, source, start, out, collision):
    """Copies the coordinates of each vertex from its first source, and compares them with those of all others."""
    dim = coordinate.shape[1]
    for v in range(begin, end):
        for j in range(dim):
            out[v, j] = coordinate[source[start[v]], j]
        for a in range(start[v] + 1, start[v + 1]):
            for j in range(dim):
                if coordinate[source[a], j] != out[v, j]:
                    collision[0] = True


@kernel("int64, int64, uint64[::1], int32[::1], uint64[::1], int32[:, ::1]")
def read_coordinates(begin, end, key, start, shift, out):
    """Reads the coordinates of each vertex from its key, in which they begin at bits ``shift``."""
    for v in range(begin, end):
        rest = key[start[v]]
        for j in range(out.shape[1]):
            c = rest >> shift[j]
            rest -= c << shift[j]
            out[v, j] = c


@kernel("int64, int64, int32[:, ::1], uint64[::1], int64, int32[::1], uint64[::1], int64[:, ::1]")
def find_steps(begin, end, coordinate, multiplier, gap, step, key, total):
    """Computes the key of each vertex of some parts, of ``GRAIN`` vertices, and how many steps it lies behind the vertex before
    it, 0 if it begins a segment; counts segments and sites of each part."""
    last = coordinate.shape[1] - 1
    for part in range(begin, end):
        segments, sites = 0, 0
        for v in range(part * GRAIN, min(coordinate.shape[0], (part + 1) * GRAIN)):
            code = np.uint64(0)
            for j in range(last + 1):
                code += np.uint64(coordinate[v, j]) * multiplier[j]
            key[v] = code
            ahead = 0
            if v > 0:
                ahead = coordinate[v, last] - coordinate[v - 1, last]
                if ahead < 0 or ahead > gap:
                    ahead = 0
                for j in range(last):
                    if coordinate[v, j] != coordinate[v - 1, j]:
                        ahead = 0
            step[v] = ahead
            segments += ahead == 0
            sites += max(ahead, 1)
        total[part, 0], total[part, 1] = segments, sites


@kernel(
    "int64, int64, int32[::1], uint64[::1], int64[:, ::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], "
    "int32[::1], uint64[::1], uint64[::1]"
)
def place_vertices(begin, end, step, key, before, source, start, site, source_site, head, place, first, last):
    """Finds the site of each vertex of some parts, and writes it at all its sources; lists the segments that begin there: their
    first vertex, its site, the keys of the first and, for the segment before, of the last vertex."""
    for part in range(begin, end):
        segment, s = before[part, 0], before[part, 1] - 1
        for v in range(part * GRAIN, min(step.shape[0], (part + 1) * GRAIN)):
            s += max(step[v], 1)
            site[v] = s
            if step[v] == 0:
                head[segment], place[segment], first[segment] = v, s, key[v]
                if segment > 0:
                    last[segment - 1] = key[v - 1]
                segment += 1
            for a in range(start[v], start[v + 1]):
                source_site[source[a]] = s
