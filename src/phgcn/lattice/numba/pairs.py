r"""Sums over pairs of points: all of them (exact attention), or those within a radius (the near field).

The weight of a pair at distance :math:`r` is

.. math::
    R(r) = s(r) \Big( e^{-r} - \sum_j A_j\, q^{4^j} \Big), \qquad q = e^{-g r^2}

with no :math:`A_j` for exact attention; in the near field, what the lattice's coarse levels give the pair on average is
taken off, and :math:`s` leads smoothly to zero at the radius.  The derivative at :math:`r = 0` is taken as 0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import prange, types
from numba.extending import overload

from ...kernels.legacy import inline, kernel
from .blur import add_row, add_rows

TARGETS = 16
TILE = 512
CELLS = 16
CANDIDATES = 4096

_LOG2E = np.float32(math.log2(math.e))
_X = np.cos(np.pi * (np.arange(64) + 0.5) / 64) / 2 - 0.5
_C = [np.float32(c) for c in np.polynomial.polynomial.polyfit(_X, 2.0**_X, 6)]
_C0, _C1, _C2, _C3, _C4, _C5, _C6 = _C


class PairWeight(NamedTuple):
    """The weight of a pair by its distance; ``radius`` is infinite for exact attention."""

    radius: float
    flat: float
    amplitude: np.ndarray
    rate: float


class Cells(NamedTuple):
    """Points sorted by the cell of a grid: keys of the cells, the coordinates that a row of cells shares, where the
    points of each cell start, which point each is, and their positions, coordinate by coordinate."""

    key: np.ndarray
    prefix: np.ndarray
    start: np.ndarray
    point: np.ndarray
    position: np.ndarray


def exp_negative(x):
    """exp(x) for x <= 0."""
    raise NotImplementedError


@overload(exp_negative, inline="always")
def _exp_negative(x):
    if x == types.float32:
        # Two to a whole and a fractional power: unlike a call of the C library, this runs in vector registers.
        def short(x):
            t = max(x * _LOG2E, np.float32(-126))
            whole = np.int32(t)
            f = t - np.float32(whole)
            scale = np.int32((whole + np.int32(127)) << np.int32(23)).view(np.float32)
            return scale * (_C0 + f * (_C1 + f * (_C2 + f * (_C3 + f * (_C4 + f * (_C5 + f * _C6))))))

        return short
    return lambda x: math.exp(x)


@inline
def pair_weights(square, shift, count, law, power, weight):
    """The weights of pairs at the given squared distances, each times the exponential of its shift."""
    for e in range(count):
        weight[e] = exp_negative(shift[e] - math.sqrt(square[e]))
    if law.amplitude.shape[0] > 0:
        for e in range(count):
            power[e] = exp_negative(-law.rate * square[e])
        for j in range(law.amplitude.shape[0]):
            a = law.amplitude[j]
            for e in range(count):
                q = power[e]
                weight[e] -= a * q
                power[e] = (q * q) * (q * q)
        outer = law.radius * law.radius
        steep = 1 / (outer - law.flat * law.flat)
        for e in range(count):
            t = min(law.radius * 0 + 1, (outer - square[e]) * steep)
            weight[e] *= t * t * (3 - 2 * t)


@inline
def pair_slopes(square, shift, count, law, power, bare, slope):
    r"""Twice the derivatives of the weights by the squared distance: times the difference of two points, the gradient."""
    for e in range(count):
        r = math.sqrt(square[e])
        bare[e] = exp_negative(shift[e] - r)
        slope[e] = -bare[e] / r if r > 0 else 0 * r
    if law.amplitude.shape[0] > 0:
        for e in range(count):
            power[e] = exp_negative(-law.rate * square[e])
        rate = law.rate
        for j in range(law.amplitude.shape[0]):
            a = law.amplitude[j]
            for e in range(count):
                q = power[e]
                bare[e] -= a * q
                slope[e] += 2 * rate * a * q
                power[e] = (q * q) * (q * q)
            rate *= 4
        outer = law.radius * law.radius
        steep = 1 / (outer - law.flat * law.flat)
        for e in range(count):
            t = min(law.radius * 0 + 1, (outer - square[e]) * steep)
            slope[e] = t * t * (3 - 2 * t) * slope[e] - 12 * t * (1 - t) * steep * bare[e]


@kernel
def coordinate_lines(points):
    """Positions coordinate by coordinate, with coordinates of 0 up to a multiple of four, (D, N)."""
    n, dim = points.shape
    out = np.zeros(((dim + 3) // 4 * 4, n), points.dtype)
    for i in prange(n):
        for k in range(dim):
            out[k, i] = points[i, k]
    return out


@inline
def squared_distances(point, position, begin, count, square):
    """The squared distances of one point to ``count`` others, four coordinates at a time."""
    for e in range(count):
        square[e] = 0
    for k in range(0, position.shape[0], 4):
        x0, x1, x2, x3 = point[k], point[k + 1], point[k + 2], point[k + 3]
        line0, line1 = position[k, begin : begin + count], position[k + 1, begin : begin + count]
        line2, line3 = position[k + 2, begin : begin + count], position[k + 3, begin : begin + count]
        for e in range(count):
            d0, d1, d2, d3 = line0[e] - x0, line1[e] - x1, line2[e] - x2, line3[e] - x3
            square[e] += d0 * d0 + d1 * d1 + d2 * d2 + d3 * d3


@inline
def add_slopes(point, position, place, slope, count, own, products, grad):
    """Adds to a point's gradient those of its pairs: slope times product of rows times difference of positions."""
    for e in range(count):
        other = products[place[e]]
        product = products.dtype.type(0)
        for c in range(other.shape[0]):
            product += own[c] * other[c]
        slope[e] *= product
    for k in range(grad.shape[0]):
        total = products.dtype.type(0)
        x = point[k]
        for e in range(count):
            total += slope[e] * (x - position[k, place[e]])
        grad[k] += total


@inline
def add_pairs(t, point, position, place, square, shift, count, law, scratch, summed, rows, out, own, products, grad):
    """Adds the pairs of target ``t`` at the given squared distances to its row and to its gradient."""
    if out.shape[0] > 0:
        pair_weights(square, shift, count, law, scratch[1], scratch[0])
        # Summed apart from what came before: the fewer terms a sum has, the less its order matters.
        for c in range(rows.shape[1]):
            summed[0, c] = 0
        add_rows(summed, 0, rows, place, scratch[0], np.uint64(count))
        add_row(out, t, rows.dtype.type(1), summed, 0)
    if grad.shape[0] > 0:
        pair_slopes(square, shift, count, law, scratch[1], scratch[2], scratch[0])
        add_slopes(point, position, place, scratch[0], count, own[t], products, grad[t])


@kernel
def all_pairs(block, targets, target_shift, position, source_shift, law, rows, out, own, products, grad):
    r"""Adds to the row of each target the rows of all sources, weighted: exact attention, or its gradient.

    Either part is left out where ``out`` or ``grad`` is empty.

    Args:
        block: Few targets of one graph and its sources: first target, last, first source, last, :math:`(B, 4)`.
        targets: Positions of the targets, :math:`(M, D)`, with coordinates of 0 up to a multiple of four.
        target_shift, source_shift: Added to the exponent of each pair, :math:`(M,)` and :math:`(N,)`.
        position: Positions of the sources, coordinate by coordinate, :math:`(D, N)`, likewise.
        law: The weight of a pair.
        rows: The rows of the sources, :math:`(N, C)`, to be summed into
        out: the rows of the targets, :math:`(M, C)`.
        own: Rows of the targets, :math:`(M, B)`, whose products with
        products: rows of the sources, :math:`(N, B)`, times the derivative of a pair's weight, are summed into
        grad: the gradient of the targets' positions, :math:`(M, D)`.
    """
    for task in prange(block.shape[0]):
        square, shift = np.empty(TILE, position.dtype), np.empty(TILE, position.dtype)
        scratch, place = np.empty((3, TILE), position.dtype), np.empty(TILE, np.uint64)
        summed = np.empty((1, rows.shape[1]), position.dtype)
        for begin in range(block[task, 2], block[task, 3], TILE):
            tile = min(TILE, block[task, 3] - begin)
            for e in range(tile):
                place[e] = begin + e
            for t in range(block[task, 0], block[task, 1]):
                for e in range(tile):
                    shift[e] = target_shift[t] + source_shift[place[e]]
                squared_distances(targets[t], position, begin, tile, square)
                add_pairs(
                    t, targets[t], position, place, square, shift, tile, law, scratch, summed, rows, out, own, products, grad
                )


@kernel
def nearest(block, targets, position, out):
    """The distance from each target to the nearest source of its graph."""
    for task in prange(block.shape[0]):
        square = np.empty(TILE, position.dtype)
        for t in range(block[task, 0], block[task, 1]):
            least = position.dtype.type(np.inf)
            for begin in range(block[task, 2], block[task, 3], TILE):
                tile = min(TILE, block[task, 3] - begin)
                squared_distances(targets[t], position, begin, tile, square)
                for e in range(tile):
                    least = min(least, square[e])
            out[t] = math.sqrt(least)


@inline
def near_runs(target, source, hashed, cell, row_key, row_prefix, pointer, run):
    """Finds the sources in the cells around a target's cell, as runs of the sorted list; how many runs."""
    cells = source.key.shape[0]
    runs = 0
    for r in range(row_key.shape[0]):
        lowest = target.key[cell] + row_key[r] - np.uint64(1)
        p = pointer[r]
        if p > 0 and source.key[p - 1] >= lowest:
            p = 0  # the hash has wrapped around
        while p < cells and source.key[p] < lowest:
            p += 1
        pointer[r] = p
        while p < cells and source.key[p] <= lowest + np.uint64(2):
            fits = True
            if hashed:
                for j in range(row_prefix.shape[1]):
                    fits &= source.prefix[p, j] - target.prefix[cell, j] == row_prefix[r, j]
            if fits:
                run[runs, 0], run[runs, 1] = source.start[p], source.start[p + 1]
                runs += 1
            p += 1
    return runs


@inline
def bounding_box(target, cell, low, high):
    """The box around the targets of a cell."""
    for k in range(low.shape[0]):
        line = target.position[k, target.start[cell] : target.start[cell + 1]]
        low[k] = high[k] = line[0]
        for t in range(1, line.shape[0]):
            low[k] = min(low[k], line[t])
            high[k] = max(high[k], line[t])


@inline
def keep_near(low, high, source, begin, end, reach, place, position, kept):
    """Appends the sources of a run that lie near the box; how many are kept now."""
    for p in range(begin, end):
        total = reach * 0
        for k in range(low.shape[0]):
            x = source.position[k, p]
            d = max(max(low[k] - x, x - high[k]), reach * 0)
            total += d * d
            position[k, kept] = x
        place[kept] = p
        kept += total < reach
    return kept


@kernel
def near_pairs(target, source, hashed, row_key, row_prefix, law, rows, out, own, products, grad):
    r"""As :func:`all_pairs`, over the pairs within the radius; rows are in the order of the cells' points.

    Args:
        target, source: Points sorted by cells as wide as the radius.
        hashed: Whether keys of cells are hashes, which wrap around and may collide.
        row_key: The keys of the offsets to neighbouring rows of cells, :math:`(R,)`.
        row_prefix: These offsets, the last coordinate left out.
    """
    cells, dim = target.key.shape[0], source.position.shape[0]
    reach = law.radius * law.radius
    dtype = source.position.dtype
    for task in prange((cells + CELLS - 1) // CELLS):
        begin = task * CELLS
        pointer, run = np.empty(row_key.shape[0], np.int64), np.empty((3 * row_key.shape[0], 2), np.int64)
        for r in range(row_key.shape[0]):
            pointer[r] = np.searchsorted(source.key, target.key[begin] + row_key[r] - np.uint64(1))
        low, high, point = np.empty(dim, dtype), np.empty(dim, dtype), np.empty(dim, dtype)
        place, position = np.empty(CANDIDATES + 1, np.int64), np.empty((dim, CANDIDATES + 1), dtype)
        hit, square = np.empty(CANDIDATES + 1, np.uint64), np.empty(CANDIDATES + 1, dtype)
        scratch, shift = np.empty((3, CANDIDATES + 1), dtype), np.zeros(CANDIDATES + 1, dtype)
        summed = np.empty((1, rows.shape[1]), dtype)
        for cell in range(begin, min(cells, begin + CELLS)):
            bounding_box(target, cell, low, high)
            runs = near_runs(target, source, hashed, cell, row_key, row_prefix, pointer, run)
            current, kept = 0, 0
            while current < runs:
                while current < runs and kept < CANDIDATES:
                    end = min(run[current, 1], run[current, 0] + CANDIDATES - kept)
                    kept = keep_near(low, high, source, run[current, 0], end, reach, place, position, kept)
                    run[current, 0] = end
                    current += end == run[current, 1]
                for t in range(target.start[cell], target.start[cell + 1]):
                    for k in range(dim):
                        point[k] = target.position[k, t]
                    squared_distances(point, position, 0, kept, square)
                    hits = np.uint64(0)
                    for e in range(kept):
                        u = square[e]
                        hit[hits] = place[e]
                        square[hits] = u
                        hits += np.uint64(u < reach)
                    add_pairs(
                        t, point, source.position, hit, square, shift, np.int64(hits), law, scratch, summed, rows, out, own,
                        products, grad,
                    )  # fmt: skip
                kept = 0
