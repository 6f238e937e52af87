"""Distances and sums of rows for the kernels that go over pairs: exact attention and the near
field."""

from __future__ import annotations

import numpy as np

from ...runtime.numba import helper


def coordinate_lines(points: np.ndarray) -> np.ndarray:
    """Transposes positions (N, D) to (D', N), with zeros up to a multiple of four."""
    count, dim = points.shape
    lines = np.zeros(((dim + 3) // 4 * 4, count), points.dtype)
    lines[:dim] = points.T
    return lines


@helper
def squared_distances(target, t, position, begin, count, square):
    """Computes the squared distances of target ``t`` to ``count`` points from ``begin`` on, four
    coordinates at a time. Both tables come from :func:`coordinate_lines`."""
    for e in range(count):
        square[e] = 0
    # Unsigned places, which Numba does not check for a sign, so that loops run in vector registers.
    begin, count = np.uint64(begin), np.uint64(count)
    for k in range(0, position.shape[0], 4):
        x0, x1, x2, x3 = target[k, t], target[k + 1, t], target[k + 2, t], target[k + 3, t]
        for e in range(count):
            d0, d1 = position[k, begin + e] - x0, position[k + 1, begin + e] - x1
            d2, d3 = position[k + 2, begin + e] - x2, position[k + 3, begin + e] - x3
            square[e] += d0 * d0 + d1 * d1 + d2 * d2 + d3 * d3


@helper
def add_weighted_rows(out, o, rows, index, weight, count, total):
    """Adds the sum of weight[e] * rows[index[e]] to out[o], four rows at a time to spare trips to
    memory.

    ``total`` collects the sum first, apart from ``out``, which may be float64: a sum of fewer terms
    rounds less."""
    width = rows.shape[1]
    for c in range(width):
        total[c] = 0
    last = count - count % 4
    for e in range(0, last, 4):
        p0, p1, p2, p3 = index[e], index[e + 1], index[e + 2], index[e + 3]
        w0, w1, w2, w3 = weight[e], weight[e + 1], weight[e + 2], weight[e + 3]
        for c in range(width):
            total[c] += w0 * rows[p0, c] + w1 * rows[p1, c] + w2 * rows[p2, c] + w3 * rows[p3, c]
    for e in range(last, count):
        p, w = index[e], weight[e]
        for c in range(width):
            total[c] += w * rows[p, c]
    for c in range(width):
        out[o, c] += total[c]


@helper
def add_slopes(grad, o, t, target, position, index, slope, count, target_rows, source_rows):
    """Adds the sum of slope * <rows> * (difference of positions) to grad[o]. Overwrites
    ``slope``."""
    zero = slope.dtype.type(0)
    for e in range(count):
        p = index[e]
        product = zero
        for c in range(source_rows.shape[1]):
            product += target_rows[t, c] * source_rows[p, c]
        slope[e] *= product
    for k in range(grad.shape[1]):
        x = target[k, t]
        total = zero
        for e in range(count):
            total += slope[e] * (x - position[k, index[e]])
        grad[o, k] += total
