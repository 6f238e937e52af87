r"""Building the lattice: from points to the sorted vertices of every level.

Points are sorted by the unit cube they lie in; each cube lists the corners that its points touch; sorting these lists and
dropping repeats gives the vertices.  A coarser level is made of the parents of the finer one's vertices.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ...kernels.legacy import inline, kernel, serial

POINTS = 1024
"""Points that one task of a parallel loop takes: enough to hide its start, few enough to share evenly."""

TILE = 256
"""Points that are located at once, coordinate by coordinate, in the first-level cache."""


@kernel
def kuhn_coordinates(points, matrix, shift):
    r"""Computes :math:`w = T p + s` in double precision, so that a far offset of all points costs no accuracy."""
    n, dim = points.shape
    w = np.empty((n, dim))
    for i in prange(n):
        for j in range(dim):
            s = shift[j]
            for k in range(dim):
                s += matrix[j, k] * points[i, k]
            w[i, j] = s
    return w


@kernel
def extent(w):
    """The lowest and the highest value of each coordinate, in double precision."""
    n, dim = w.shape
    tasks = (n + POINTS - 1) // POINTS
    low, high = np.empty((tasks, dim)), np.empty((tasks, dim))
    for task in prange(tasks):
        for j in range(dim):
            low[task, j] = high[task, j] = w[task * POINTS, j]
        for i in range(task * POINTS, min(n, (task + 1) * POINTS)):
            for j in range(dim):
                low[task, j] = min(low[task, j], w[i, j])
                high[task, j] = max(high[task, j], w[i, j])
    for task in range(1, tasks):
        for j in range(dim):
            low[0, j] = min(low[0, j], low[task, j])
            high[0, j] = max(high[0, j], high[task, j])
    return low[0], high[0]


@kernel
def cube_keys(w, base, scale, multiplier):
    r"""The key of the cube that each point lies in: :math:`\sum_j \lfloor (w_j - b_j)\, s \rfloor\, m_j`."""
    n = w.shape[0]
    key = np.empty(n, np.uint64)
    for i in prange(n):
        total = np.uint64(0)
        for j in range(multiplier.shape[0]):
            total += np.uint64(np.floor((w[i, j] - base[j]) * scale)) * multiplier[j]
        key[i] = total
    return key


@inline
def tile_fractions(w, index, begin, count, base, scale, loose):
    """The fractions of the Kuhn coordinates of ``count`` points, coordinate by coordinate."""
    for j in range(w.shape[1]):
        line = loose[j]
        for i in range(count):
            x = (w[index[begin + i], j] - base[j]) * scale
            line[i] = x - np.floor(x)


@inline
def tile_ranks(loose, count, rank):
    """The place of each fraction in descending order, by comparing every pair: no branch, many points at a time."""
    for j in range(loose.shape[0]):
        here, mine = loose[j], rank[j]
        for i in range(count):
            mine[i] = 0
        for k in range(j):
            there, other = loose[k], rank[k]
            for i in range(count):
                ahead = np.int64(there[i] >= here[i])
                mine[i] += ahead
                other[i] += 1 - ahead


@kernel
def locate(w, index, base, scale, weight):
    """Finds simplex and barycentric weights of the points in the order of ``index``; fills ``weight``."""
    n, dim = w.shape
    order = np.empty((n, dim), np.uint8)
    for task in prange((n + TILE - 1) // TILE):
        begin = task * TILE
        count = min(TILE, n - begin)
        loose, rank, fraction = np.empty((dim, TILE)), np.empty((dim, TILE), np.int64), np.empty(dim + 2)
        fraction[0], fraction[dim + 1] = 1, 0
        tile_fractions(w, index, begin, count, base, scale, loose)
        tile_ranks(loose, count, rank)
        for i in range(count):
            for j in range(dim):
                r = np.uint64(rank[j, i])
                fraction[r + np.uint64(1)] = loose[j, i]
                order[begin + i, r] = j
            for r in range(dim + 1):
                weight[begin + i, r] = fraction[r] - fraction[r + 1]
    return order


@kernel
def count_corners(start, order):
    """Counts the distinct corners that the points of each cube touch."""
    cubes = start.shape[0] - 1
    dim = order.shape[1]
    count = np.empty(cubes, np.int64)
    for task in prange((cubes + POINTS - 1) // POINTS):
        seen = np.full(1 << dim, -1)
        for cube in range(task * POINTS, min(cubes, (task + 1) * POINTS)):
            found = 2  # the lowest and the highest corner belong to every simplex
            for a in range(start[cube], start[cube + 1]):
                corner = 0
                for r in range(dim - 1):
                    corner |= 1 << order[a, r]
                    if seen[corner] != cube:
                        seen[corner] = cube
                        found += 1
            count[cube] = found
    return count


@kernel
def list_corners(w, index, base, scale, start, order, key, multiplier, first):
    r"""Lists the corners that each cube touches, as *entries*, the cube's from ``first[cube]`` on.

    Returns:
        The key and the coordinates of each entry, and the entries of the vertices of each point.
    """
    n, dim = order.shape
    cubes = start.shape[0] - 1
    entry_key = np.empty(first[cubes], np.uint64)
    entry_coordinate = np.empty((first[cubes], dim), np.int32)
    entry = np.empty((n, dim + 1), np.int32)
    for task in prange((cubes + POINTS - 1) // POINTS):
        slot = np.full(1 << dim, -1)
        for cube in range(task * POINTS, min(cubes, (task + 1) * POINTS)):
            begin = first[cube]
            used = begin
            for a in range(start[cube], start[cube + 1]):
                corner = 0
                for r in range(dim + 1):
                    if r > 0:
                        corner |= 1 << order[a, r - 1]
                    e = slot[corner]
                    if e < begin or e >= used or entry_key[e] != corner:
                        e = used
                        used += 1
                        slot[corner] = e
                        entry_key[e] = corner
                    entry[a, r] = e
            a = start[cube]
            for e in range(begin, used):
                corner = entry_key[e]
                total = key[a]
                for j in range(dim):
                    step = (corner >> np.uint64(j)) & np.uint64(1)
                    total += step * multiplier[j]
                    low = np.floor((w[index[a], j] - base[j]) * scale)
                    entry_coordinate[e, j] = np.int32(low) + np.int32(step)
                entry_key[e] = total
    return entry_key, entry_coordinate, entry


@kernel
def parents(coordinate, multiplier):
    r"""The two vertices of the next coarser level that a vertex :math:`v` lies between, :math:`\lfloor v/2 \rfloor` and
    :math:`\lceil v/2 \rceil`: entries :math:`2v` and :math:`2v+1`."""
    n, dim = coordinate.shape
    entry_key = np.empty(2 * n, np.uint64)
    entry_coordinate = np.empty((2 * n, dim), np.int32)
    for v in prange(n):
        for half in range(2):
            total = np.uint64(0)
            for j in range(dim):
                c = (coordinate[v, j] + half) >> 1
                entry_coordinate[2 * v + half, j] = c
                total += np.uint64(c) * multiplier[j]
            entry_key[2 * v + half] = total
    return entry_key, entry_coordinate


@kernel
def take(table, index):
    """The entries of a table at the given places."""
    out = np.empty(index.shape[0], table.dtype)
    for a in prange(index.shape[0]):
        out[a] = table[index[a]]
    return out


@kernel
def take_halves(table, index):
    """The entries of a table at half the given places: of the vertices that entries 2v and 2v + 1 come from."""
    out = np.empty(index.shape[0], table.dtype)
    for a in prange(index.shape[0]):
        out[a] = table[index[a] >> 1]
    return out


@kernel
def take_rows(table, index):
    """The rows of a table at the given places."""
    n, width = index.shape[0], table.shape[1]
    out = np.empty((n, width), table.dtype)
    for a in prange(n):
        for j in range(width):
            out[a, j] = table[index[a], j]
    return out


@serial
def segments(key, coordinate, gap):
    r"""Cuts the sorted vertices into segments that share all but the last coordinate.

    A segment has a site for every place between its first and its last vertex, so that its rows lie side by side; it
    ends where the next vertex is more than ``gap`` steps away.

    Returns:
        The site of each vertex, the first vertex of each segment (one entry more than segments), and the number of
        sites.
    """
    n, dim = coordinate.shape
    site, head = np.empty(n, np.int32), np.empty(n + 1, np.int32)
    count, sites = 0, -1
    for v in range(n):
        step = np.uint64(gap + 1)
        if v > 0:
            step = key[v] - key[v - 1]
            for j in range(dim - 1):
                if coordinate[v, j] != coordinate[v - 1, j]:
                    step = np.uint64(gap + 1)
        if step > np.uint64(gap):
            head[count] = v
            count += 1
            step = np.uint64(1)
        sites += np.int64(step)
        site[v] = sites
    head[count] = n
    return site, head[: count + 1].copy(), sites + 1


@kernel
def add_rows_at(out, index, rows):
    """Adds rows to those of a table at the given places, all different."""
    for a in prange(index.shape[0]):
        for j in range(out.shape[1]):
            out[index[a], j] += rows[a, j]


@kernel
def take_runs(entry, site):
    """The sites of the vertices of each point's simplex."""
    out = np.empty_like(entry)
    for a in prange(entry.shape[0]):
        for r in range(entry.shape[1]):
            out[a, r] = site[entry[a, r]]
    return out


@inline
def sort_lines(fraction, count):
    """Sorts the fractions of each point in descending order, by exchanging neighbours, many points at a time."""
    dim = fraction.shape[0]
    for turn in range(dim):
        for j in range(turn % 2, dim - 1, 2):
            upper, lower = fraction[j], fraction[j + 1]
            for i in range(count):
                high, low = max(upper[i], lower[i]), min(upper[i], lower[i])
                upper[i] = high
                lower[i] = low


@inline
def tile_weights(fraction, count, b):
    r"""The barycentric weights :math:`1 - f_1,\; f_1 - f_2, \dots, f_D` of a tile's points, from sorted fractions."""
    dim = fraction.shape[0]
    for l in range(dim + 1):
        weight = b[l]
        for i in range(count):
            weight[i] = 1.0
        if l > 0:
            before = fraction[l - 1]
            for i in range(count):
                weight[i] = before[i]
        if l < dim:
            after = fraction[l]
            for i in range(count):
                weight[i] -= after[i]


@kernel
def self_weights(w, base, scale, tables, out):
    r"""What the lattice gives a point of itself, :math:`a_i = \sum_k \sum_{l,m} b_l b_m t_{k,|l-m|}`."""
    n, dim = w.shape
    for task in prange((n + TILE - 1) // TILE):
        begin = task * TILE
        count = min(TILE, n - begin)
        index, fraction, b = np.arange(TILE), np.empty((dim, TILE)), np.empty((dim + 1, TILE))
        total = np.zeros(TILE)
        own = w[begin : begin + count]
        for k in range(tables.shape[0]):
            tile_fractions(own, index, 0, count, base, scale * 0.5**k, fraction)
            sort_lines(fraction, count)
            tile_weights(fraction, count, b)
            for l in range(dim + 1):
                for m in range(l, dim + 1):
                    t = tables[k, m - l] if l == m else 2.0 * tables[k, m - l]
                    first, second = b[l], b[m]
                    for i in range(count):
                        total[i] += t * first[i] * second[i]
        for i in range(count):
            out[begin + i] = total[i]


@kernel
def self_weights_backward(w, base, scale, tables, rows, grads, out):
    r"""The derivative of what is lost where the lattice gives a point itself,
    :math:`-\langle f_i, g_i \rangle\, \partial a_i / \partial (s w_i)`, into ``out``."""
    n, dim = w.shape
    for task in prange((n + TILE - 1) // TILE):
        begin = task * TILE
        count = min(TILE, n - begin)
        index, loose, rank = np.arange(TILE), np.empty((dim, TILE)), np.empty((dim, TILE), np.int64)
        fraction, b, slope = np.empty((dim, TILE)), np.empty((dim + 1, TILE)), np.empty((dim + 1, TILE))
        own, total = w[begin : begin + count], np.zeros((TILE, dim))
        for k in range(tables.shape[0]):
            tile_fractions(own, index, 0, count, base, scale * 0.5**k, loose)
            tile_ranks(loose, count, rank)
            fraction[:] = loose
            sort_lines(fraction, count)
            tile_weights(fraction, count, b)
            for l in range(dim + 1):
                line = slope[l]  # the derivative of a_i by the weight b_l
                for i in range(count):
                    line[i] = 0.0
                for m in range(dim + 1):
                    t, weight = 2.0 * 0.5**k * tables[k, abs(l - m)], b[m]
                    for i in range(count):
                        line[i] += t * weight[i]
            for i in range(count):
                for j in range(dim):
                    r = rank[j, i]
                    total[i, j] += slope[r + 1, i] - slope[r, i]
        for i in range(count):
            row, grad = rows[begin + i], grads[begin + i]
            product = rows.dtype.type(0)
            for c in range(rows.shape[1]):
                product += row[c] * grad[c]
            for j in range(dim):
                out[begin + i, j] = -product * total[i, j]
