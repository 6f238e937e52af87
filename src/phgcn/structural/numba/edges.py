r"""Edges sorted by target, or by source: a stable counting sort on all cores."""

from __future__ import annotations

import numpy as np
from numba import prange

from ...kernels.legacy import kernel


@kernel
def by_node(node, count, parts):
    r"""Sorts edges by the node at one of their ends.

    Each of ``parts`` parts of the edges is counted and moved on its own; the order is that of a stable sort, whatever the
    number of parts.

    Args:
        node: The node of each edge, :math:`(E,)`.
        count: The number of nodes, :math:`N`.

    Returns:
        Where the edges of each node start, :math:`(N + 1,)`, and the edges, :math:`(E,)`.
    """
    edges = node.shape[0]
    part = (edges + parts - 1) // parts
    place = np.zeros((parts, count), np.int32)
    for p in prange(parts):
        own = place[p]
        for e in range(p * part, min(edges, (p + 1) * part)):
            own[np.uint64(node[e])] += 1
    start = np.empty(count + 1, np.int32)
    total = 0
    for i in range(count):
        start[i] = total
        for p in range(parts):
            here = place[p, i]
            place[p, i] = total
            total += here
    start[count] = total
    order = np.empty(edges, np.int32)
    for p in prange(parts):
        own = place[p]
        for e in range(p * part, min(edges, (p + 1) * part)):
            i = np.uint64(node[e])
            order[np.uint64(own[i])] = e
            own[i] += 1
    return start, order


@kernel
def take(values, order):
    """The values in the given order, as int32."""
    out = np.empty(order.shape[0], np.int32)
    for a in prange(order.shape[0]):
        out[a] = values[np.uint64(order[a])]
    return out


@kernel
def invert(order):
    """Where each edge is in an order of all edges."""
    out = np.empty(order.shape[0], np.int32)
    for a in prange(order.shape[0]):
        out[np.uint64(order[a])] = a
    return out
