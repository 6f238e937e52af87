r"""Loops over many edges at once, all of them plain.

What is computed of a chunk of edges lies in *lines*: one for each coordinate or channel, and in it one *slot* of ``L`` heads
for each edge.  A line is long, so that loops over it run in vector registers; and always of the same length, so that every
number goes through the same instructions, wherever it stands.  Before the slots of a chunk's edges there is one more, for
what a node has summed in the chunk before.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numba.extending import overload

from ...kernels.legacy import inline, serial

LANES = 8
"""Heads that are computed together."""

CHUNK = 64
"""Edges whose lines are held at a time: few enough for the first cache."""


@inline
def copy(out, row, lanes):
    """One slot: out = row.  All 8 numbers are read before one is written, so that no write can change what is read."""
    if len(lanes) == LANES:
        a, b, c, d, e, f, g, h = row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7]
        out[0], out[1], out[2], out[3], out[4], out[5], out[6], out[7] = a, b, c, d, e, f, g, h
    else:
        for h in range(len(lanes)):
            out[h] = row[h]


@serial
def fetch(lines, begin, table, node, first, lanes):
    """The slots from ``first`` on of the rows of nodes: one in each line, the first node's at ``begin``.

    Rows lie anywhere in memory: as nothing but its copy waits for a row, several are on their way at a time.
    """
    begin, first = np.uint64(begin), np.uint64(first)
    for e in range(np.uint64(node.shape[0])):
        row = table[np.uint64(node[e])]
        for k in range(np.uint64(lines.shape[0])):
            copy(lines[k, begin + e], row[first + k], lanes)


@serial
def fill(line, number):
    """line = number"""
    for q in range(line.shape[0]):
        line[q] = number


@serial
def assign(line, other):
    """line = other"""
    for q in range(line.shape[0]):
        line[q] = other[q]


@serial
def subtract(line, other):
    """line -= other"""
    for q in range(line.shape[0]):
        line[q] -= other[q]


@serial
def multiply(line, factor):
    """line *= factor"""
    for q in range(line.shape[0]):
        line[q] *= factor[q]


@serial
def add_products(line, left, right):
    """line += left * right"""
    for q in range(line.shape[0]):
        line[q] += left[q] * right[q]


@serial
def root(line):
    """The square roots of a line, in place."""
    for q in range(line.shape[0]):
        line[q] = math.sqrt(line[q])


@serial
def weigh(line, near, distance):
    """line = exp(near - distance)"""
    for q in range(line.shape[0]):
        line[q] = exponential(near[q] - distance[q])


@serial
def owners(start, node, lead, own):
    """The node to which each of the edges from ``lead`` on belongs; the first of them belongs to ``node`` or one after."""
    i = node
    for e in range(own.shape[0]):
        while start[i + 1] <= lead + e:
            i += 1
        own[e] = i


@serial
def sum_runs(lines, start, node, lead, count, lanes, first, sums):
    r"""Sums the slots of each node's edges, in the order of the edges.

    Every slot is added to the next, so that the last has the sum: one array, read and written one slot apart.

    Args:
        lines: What to sum, :math:`(K, \text{CHUNK} + 1, L)`.
        start: Where the edges of each node start.
        node: The first node that has not all of its edges in chunks before.
        lead, count: The edges of this chunk.
        lanes: A tuple as long as there are lanes.
        first, sums: Where the sums go, :math:`(\cdot, K, L)`, and the node of the first of them.

    Returns:
        The first node that has not all of its edges in chunks up to this.
    """
    width, step = len(lanes), np.uint64(len(lanes))
    flat = lines.reshape(lines.shape[0], lines.shape[1] * width)
    while start[node] < lead + count:
        low, high = max(start[node] - lead, -1) + 1, min(start[node + 1] - lead, count) + 1
        if high > low:
            for k in range(lines.shape[0]):
                run = flat[k, low * width : high * width]
                for q in range(step, np.uint64(run.shape[0])):
                    run[q] += run[q - step]
        if start[node + 1] > lead + count:
            break
        if start[node + 1] > start[node]:
            for k in range(lines.shape[0]):
                copy(sums[node - first, k], lines[k, high - 1], lanes)
        node += 1
    for k in range(lines.shape[0]):
        copy(lines[k, 0], lines[k, count], lanes)
    return node


# exp(x) is two to a whole and a fractional power: unlike a call of the C library, this runs in vector registers. With a
# fraction f of at most a half, Taylor's polynomial for 2^f is right to the last bit.

_LOG2E = math.log2(math.e)
_TAYLOR = [math.log(2) ** k / math.factorial(k) for k in range(14)]
_SHORT = [np.float32(c) for c in _TAYLOR[:8]]


def exponential(x):
    """exp(x) for x <= 0; never less than the least normal number."""
    raise NotImplementedError


@overload(exponential, inline="always")
def _exponential(x):
    if x == types.float32:
        log2e, least, half, bias, fraction = np.float32(_LOG2E), np.float32(-126), np.float32(0.5), np.int32(127), np.int32(23)
        c0, c1, c2, c3, c4, c5, c6, c7 = _SHORT

        def short(x):
            t = max(x * log2e, least)
            whole = np.int32(t - half)
            f = t - np.float32(whole)
            scale = np.int32((whole + bias) << fraction).view(np.float32)
            return scale * (c0 + f * (c1 + f * (c2 + f * (c3 + f * (c4 + f * (c5 + f * (c6 + f * c7)))))))

        return short
    b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13 = _TAYLOR

    def long(x):
        t = max(x * _LOG2E, -1022.0)
        whole = np.int32(t - 0.5)
        f = t - np.float64(whole)
        scale = np.int64((np.int64(whole) + np.int64(1023)) << np.int64(52)).view(np.float64)
        tail = b7 + f * (b8 + f * (b9 + f * (b10 + f * (b11 + f * (b12 + f * b13)))))
        return scale * (b0 + f * (b1 + f * (b2 + f * (b3 + f * (b4 + f * (b5 + f * (b6 + f * tail)))))))

    return long
