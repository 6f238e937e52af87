r"""Splat, blur, slice: rows of values from points to vertices, among vertices, and back.

Rows are a multiple of 8 wide so that they are added in full vector registers.  Every vertex and every point is written by
one iteration of one loop alone, in a fixed order: no atomics, the same bits every run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange

from ...kernels.legacy import inline, kernel

CUBES = 64
SEGMENTS = 128
"""Cubes and segments that one task of a parallel loop takes."""

CHUNK = 128
"""Points whose rows are fetched or written together."""


class Simplices(NamedTuple):
    """Where the points lie, in the order of their cubes."""

    point: np.ndarray  # its number, (N,)
    order: np.ndarray  # its Kuhn coordinates by descending fraction, (N, D)
    vertex: np.ndarray  # the sites of its simplex's vertices, (N, D+1)
    weight: np.ndarray  # its barycentric weights, (N, D+1)


@inline
def add_row(out, o, weight, table, p):
    """out[o] += weight * table[p]"""
    for c in range(table.shape[1]):
        out[o, c] += weight * table[p, c]


@inline
def add_rows(out, o, table, place, weight, count):
    """out[o] += the sum of weight[e] * table[place[e]], four rows at a time to spare trips to ``out``."""
    e = np.uint64(0)
    one = np.uint64(1)
    while e + np.uint64(4) <= count:
        p0, p1, p2, p3 = place[e], place[e + one], place[e + np.uint64(2)], place[e + np.uint64(3)]
        w0, w1, w2, w3 = weight[e], weight[e + one], weight[e + np.uint64(2)], weight[e + np.uint64(3)]
        for c in range(table.shape[1]):
            out[o, c] += w0 * table[p0, c] + w1 * table[p1, c] + w2 * table[p2, c] + w3 * table[p3, c]
        e += np.uint64(4)
    while e < count:
        add_row(out, o, weight[e], table, place[e])
        e += one


@inline
def add_run(out, weight, run):
    """out += weight * run"""
    for c in range(out.shape[0]):
        out[c] += weight * run[c]


@inline
def fetch(out, table, p):
    """out = table[p], or zeros where the table has no such row."""
    if 0 <= p < table.shape[0]:
        row = table[p]
        for c in range(out.shape[0]):
            out[c] = row[c]
    else:
        for c in range(out.shape[0]):
            out[c] = 0


@kernel
def splat(left, right, begin, index, start, first, entry, weight):
    """Adds the row of each point, times its barycentric weights, to the entries of its cube.

    A point's row is two, side by side: that of ``left``, which the first points have, and that of ``right``, which those
    from ``begin`` on have; zeros where it has none.  Rows of points lie anywhere in memory: those of a chunk are fetched
    first, so that fetches overlap.
    """
    cubes = start.shape[0] - 1
    half = left.shape[1]
    width = half + right.shape[1]
    out = np.empty((first[cubes], width), left.dtype)
    for task in prange((cubes + CUBES - 1) // CUBES):
        lowest, highest = task * CUBES, min(cubes, (task + 1) * CUBES)
        chunk = np.zeros((CHUNK, width), left.dtype)
        for e in range(first[lowest], first[highest]):
            for c in range(width):
                out[e, c] = 0
        for lead in range(start[lowest], start[highest], CHUNK):
            count = min(CHUNK, start[highest] - lead)
            for i in range(count):
                place = index[lead + i]
                fetch(chunk[i, :half], left, place)
                fetch(chunk[i, half:], right, place - begin)
            for i in range(count):
                for r in range(entry.shape[1]):
                    add_row(out, entry[lead + i, r], weight[lead + i, r], chunk, i)
    return out


@kernel
def gather(table, source, start, site, sites, factor):
    r"""The row of each vertex, at its site: the sum of the rows it is made of.  Sites without a vertex stay zero.

    These are the rows ``source[start[v]] .. `` of the corners of cubes, times 1, or of a finer level, times ½.
    """
    out = np.zeros((sites, table.shape[1]), table.dtype)
    weight = table.dtype.type(factor)
    for v in prange(start.shape[0] - 1):
        for a in range(start[v], start[v + 1]):
            add_row(out, site[v], weight, table, source[a])
    return out


@kernel
def blur(first, last, place, prefix, hashed, table, row_key, row_prefix, low, length, row_weight, out):
    r"""Sums, for every vertex, the rows of all vertices within the stencil.

    The offsets of a stencil that share all but their last coordinate are one *row* of it; the vertices that share all
    but their last coordinate lie in *segments*, without gaps.  So a row of the stencil takes a segment to one or few
    other segments, and adds to a run of table rows another such run.  As the segment moves up the sorted list, so do
    those it reads from: they are found by pointers that only move forward.

    Args:
        first, last: The keys of each segment's first and last vertex, :math:`(S,)`, ascending.
        place: The site, that is the row of the table, of each segment's first vertex, :math:`(S,)`.
        prefix: The coordinates that a segment's vertices share, :math:`(S, D-1)`.
        hashed: Whether keys are hashes, which wrap around and may collide.
        table: Rows of values, :math:`(M, C)`.
        row_key: The key of each stencil row's shared coordinates, :math:`(R,)`.
        row_prefix: These coordinates, :math:`(R, D-1)`.
        low: The lowest last coordinate of each row, :math:`(R,)`.
        length: The number of offsets of each row, :math:`(R,)`.
        row_weight: Their weights, :math:`(R, 2 \cdot \text{hops} + 1)`.
        out: Where the sums go, :math:`(M, C)`.
    """
    segments = first.shape[0]
    rows = row_key.shape[0]
    width = table.shape[1]
    flat, summed = table.reshape(-1), out.reshape(-1)
    for task in prange((segments + SEGMENTS - 1) // SEGMENTS):
        begin = task * SEGMENTS
        pointer = np.empty(rows, np.int64)
        for r in range(rows):
            pointer[r] = np.searchsorted(last, first[begin] + row_key[r] + np.uint64(low[r]))
        for a in range(begin, min(segments, begin + SEGMENTS)):
            count = np.int64(last[a] - first[a]) + 1
            for i in range(place[a], place[a] + count):
                for c in range(width):
                    out[i, c] = 0
            for r in range(rows):
                origin = first[a] + row_key[r]
                lowest = origin + np.uint64(low[r])
                b = pointer[r]
                if b > 0 and last[b - 1] >= lowest:
                    b = 0  # the hash has wrapped around
                while b < segments and last[b] < lowest:
                    b += 1
                pointer[r] = b
                highest = lowest + (last[a] - first[a]) + np.uint64(length[r] - 1)
                while b < segments and first[b] <= highest:
                    if not hashed or is_row(prefix, a, b, row_prefix, r):
                        step = np.int64(first[b] - origin)  # from a's first last coordinate to b's
                        other = np.int64(last[b] - first[b]) + 1
                        for q in range(length[r]):
                            d = step - low[r] - q  # place i of a reads place i - d of b
                            i = max(0, d)
                            run = (min(count, other + d) - i) * width
                            if run > 0:
                                o = (place[a] + i) * width
                                t = (place[b] + i - d) * width
                                add_run(summed[o : o + run], row_weight[r, q], flat[t : t + run])
                    b += 1


@inline
def is_row(prefix, a, b, row_prefix, r):
    """Whether segment b lies on the r-th row of the stencil around segment a: keys that are hashes may collide."""
    for j in range(prefix.shape[1]):
        if prefix[b, j] - prefix[a, j] != row_prefix[r, j]:
            return False
    return True


@kernel
def add_coarser(out, site, coarser, parent):
    """Adds to each vertex half of either parent's row: the way back up, the transpose of the way down."""
    half = out.dtype.type(0.5)
    for v in prange(site.shape[0]):
        add_row(out, site[v], half, coarser, parent[2 * v])
        add_row(out, site[v], half, coarser, parent[2 * v + 1])


@kernel
def slice_points(table, simplices, factor, begin, out):
    """Adds to the row of each point those of its simplex's vertices, times its barycentric weights and ``factor``.

    Takes the points from ``begin`` on, as many as ``out`` has rows.  A chunk is sliced first and then added to rows that
    lie anywhere in memory, so that fetches overlap.
    """
    n, corners = simplices.vertex.shape
    count, width = out.shape
    for task in prange((n + CHUNK - 1) // CHUNK):
        chunk = np.zeros((CHUNK, width), out.dtype)
        lead, end = task * CHUNK, min(n, (task + 1) * CHUNK)
        for a in range(lead, end):
            for r in range(corners):
                add_row(chunk, a - lead, factor * simplices.weight[a, r], table, simplices.vertex[a, r])
        for a in range(lead, end):
            i = simplices.point[a] - begin
            if 0 <= i < count:
                add_row(out, i, chunk.dtype.type(1), chunk, a - lead)


@kernel
def slice_gradients(values, grads, column, simplices, factor, matrix, own, rows, row_grads, begin, out, out_keys, out_queries):
    r"""Slices the blurred gradients to those of the keys' rows, and takes the derivative by all points' positions.

    With :math:`t_r` the product of a point's row with the gradients at its simplex's r-th vertex, plus that of its gradient
    with the values there, the Kuhn coordinate that leads from vertex r-1 to r has the derivative :math:`t_r - t_{r-1}`.

    Args:
        values, grads: The blurred tables; the gradients are in columns from ``column`` on.
        simplices: Where the points lie.
        factor: Of all that is added.
        matrix: From positions to Kuhn coordinates, at the scale of the finest level, :math:`(D, D)`.
        own: Further derivatives by the Kuhn coordinates, :math:`(N, D)`, or none.
        rows: The values of the keys, which are the first points.
        row_grads: The gradients of the queries, which are the points from ``begin`` on.
        out, out_keys, out_queries: Where gradients of rows, keys and queries are added.
    """
    index, vertex = simplices.point, simplices.vertex
    n, corners = vertex.shape
    keys, width = rows.shape
    dim = matrix.shape[0]
    for task in prange((n + CHUNK - 1) // CHUNK):
        row, asked = np.empty((CHUNK, width), rows.dtype), np.empty((CHUNK, width), rows.dtype)
        summed, slope = np.zeros((CHUNK, width), rows.dtype), np.zeros((CHUNK, dim))
        lead, end = task * CHUNK, min(n, (task + 1) * CHUNK)
        for a in range(lead, end):
            fetch(row[a - lead], rows, index[a])
            fetch(asked[a - lead], row_grads, index[a] - begin)
            if own.shape[0] > 0:
                fetch(slope[a - lead], own, index[a])
        for a in range(lead, end):
            mine, theirs, total = row[a - lead], asked[a - lead], summed[a - lead]
            before = rows.dtype.type(0)
            for r in range(corners):
                grad = grads[vertex[a, r], column : column + width]
                value = values[vertex[a, r], :width]
                weight = factor * simplices.weight[a, r]
                t = rows.dtype.type(0)
                for c in range(width):
                    t += mine[c] * grad[c] + theirs[c] * value[c]
                    total[c] += weight * grad[c]
                if r > 0:
                    slope[a - lead, simplices.order[a, r - 1]] += np.float64(t - before)
                before = t
        for a in range(lead, end):
            i = index[a]
            if i < keys:
                add_row(out, i, rows.dtype.type(1), summed, a - lead)
                add_product(out_keys, i, factor, slope[a - lead], matrix)
            else:
                add_product(out_queries, i - begin, factor, slope[a - lead], matrix)


@inline
def add_product(out, o, factor, slope, matrix):
    """out[o] += factor * slope @ matrix"""
    for k in range(matrix.shape[1]):
        total = 0.0
        for j in range(matrix.shape[0]):
            total += slope[j] * matrix[j, k]
        out[o, k] += factor * total
