r"""The loops of struc2vec: rings of degrees, how much they differ, and walks through layers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...runtime.numba import helper, kernel
from ...runtime.threads import run_rows

MAX_HOPS = 4
"""The last ring."""
STAY = 0.3
"""The probability that a walk goes to another node rather than to another layer."""
GRAIN = 256
"""Pairs or walks that are worth a thread of their own."""


@kernel("int64[::1], int64[::1], int64[::1]")
def rings(starts, others, degree):
    """Counts the degrees in the rings of all nodes: ascending degrees, and how often each occurs.

    Returns:
        Where the rings begin (of node v at v (MAX_HOPS + 1), one for each hop; then the end), degrees, and how often.
    """
    count = len(degree)
    begin = np.zeros(count * (MAX_HOPS + 1) + 1, np.int64)
    degrees, often = np.empty(16 * count + 16, np.int64), np.empty(16 * count + 16, np.int64)
    seen, queue = np.full(count, -1, np.int64), np.empty(count, np.int64)
    most = 0
    for v in range(count):
        most = max(most, degree[v])
    tally, distinct = np.zeros(most + 1, np.int64), np.empty(most + 1, np.int64)
    end = 0
    for v in range(count):
        seen[v], queue[0] = v, v
        low, high = 0, 1  # the ring, in the queue
        for hop in range(MAX_HOPS + 1):
            kinds = 0
            for place in range(low, high):
                d = degree[queue[place]]
                if tally[d] == 0:
                    distinct[kinds] = d
                    kinds += 1
                tally[d] += 1
            if end + kinds > len(degrees):
                degrees = np.concatenate((degrees, np.empty(len(degrees) + kinds, np.int64)))
                often = np.concatenate((often, np.empty(len(often) + kinds, np.int64)))
            for d in np.sort(distinct[:kinds]):
                degrees[end], often[end] = d, tally[d]
                tally[d] = 0
                end += 1
            begin[v * (MAX_HOPS + 1) + hop + 1] = end
            low, high = high, _next_ring(starts, others, seen, queue, low, high, v)
    return begin, degrees[:end].copy(), often[:end].copy()


@helper
def _next_ring(starts, others, seen, queue, low, high, source):
    """Appends the neighbours of a ring that were not seen from this source, and returns the new end of the queue."""
    end = high
    for place in range(low, high):
        node = queue[place]
        for link in range(starts[node], starts[node + 1]):
            other = others[link]
            if seen[other] != source:
                seen[other] = source
                queue[end] = other
                end += 1
    return end


def compare(begin: NDArray, degrees: NDArray, often: NDArray, pairs: NDArray) -> NDArray:
    r"""Computes how much the rings 0 to k of the nodes of each pair differ; infinite from the first empty ring on.

    Shapes:
        - **begin, degrees, often:** as :func:`rings` returns them; **pairs:** :math:`(P, 2)`
        - **output:** :math:`(P, \text{MAX\_HOPS} + 1)`
    """
    cost = np.full((len(pairs), MAX_HOPS + 1), np.inf)
    run_rows(compare_pairs, len(pairs), GRAIN, begin, degrees, often, np.ascontiguousarray(pairs), cost)
    return cost


@kernel("int64, int64, int64[::1], int64[::1], int64[::1], int64[:, ::1], float64[:, ::1]")
def compare_pairs(first_pair, end_pair, begin, degrees, often, pairs, cost):
    """Fills in the rows of a range of pairs; see :func:`compare`."""
    for p in range(first_pair, end_pair):
        total = 0.0
        for hop in range(MAX_HOPS + 1):
            a, b = pairs[p, 0] * (MAX_HOPS + 1) + hop, pairs[p, 1] * (MAX_HOPS + 1) + hop
            if begin[a] == begin[a + 1] or begin[b] == begin[b + 1]:
                break
            first, second = slice(begin[a], begin[a + 1]), slice(begin[b], begin[b + 1])
            total += _warped(degrees[first], often[first], degrees[second], often[second])
            cost[p, hop] = total


@helper
def _warped(degrees, often, other_degrees, other_often):
    """Dynamic time warping of two sorted sequences: the least sum of differences between steps that are matched in order."""
    width = len(other_degrees)
    above = np.full(width + 1, np.inf)
    above[0] = 0.0
    for i in range(len(degrees)):
        row = np.full(width + 1, np.inf)
        for j in range(width):
            least = min(above[j], min(above[j + 1], row[j]))
            row[j + 1] = least + _difference(degrees[i], often[i], other_degrees[j], other_often[j])
        above = row
    return above[width]


@helper
def _difference(degree, often, other_degree, other_often):
    """Compares degrees by their ratio: one link more matters more to a node with few. Adds 0.5, as some have no link."""
    return (max(degree, other_degree) + 0.5) / (min(degree, other_degree) + 0.5) * max(often, other_often) - max(
        often, other_often
    )


@kernel("int64[::1], float64[::1]")
def running_weights(starts, cost):
    """Computes prefix sums of exp(-cost) within each row, scaled by the row's largest term so that none underflows."""
    out = np.empty(len(cost))
    for node in range(len(starts) - 1):
        least, total = np.inf, 0.0
        for place in range(starts[node], starts[node + 1]):
            least = min(least, cost[place])
        for place in range(starts[node], starts[node + 1]):
            total += np.exp(least - cost[place])
            out[place] = total
    return out


@helper
def _draw(state):
    """Advances a generator (splitmix64); returns its state and a number from 0 to below 1."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    z = state
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return state, np.float64(z >> np.uint64(11)) / 9007199254740992.0


def walks(starts: NDArray, others: NDArray, sums: NDArray, up: NDArray, per_node: int, length: int, seed: int) -> NDArray:
    r"""Draws random walks through the layers, from every node; each walk has its own generator.

    Args:
        starts (numpy.ndarray): Where each node's links begin, a row for each layer, then the end.
        others (numpy.ndarray): Whom they lead to.
        sums (numpy.ndarray): The running sums of their weights within a node.
        up (numpy.ndarray): The probability of going up rather than down, for each layer and node.
        per_node (int): Walks from each node.
        length (int): Nodes in a walk.
        seed (int): What random numbers follow from.
    """
    out = np.empty((per_node * up.shape[1], length), np.int64)
    run_rows(walk_range, len(out), GRAIN, *map(np.ascontiguousarray, (starts, others, sums, up)), seed, out)
    return out


@kernel("int64, int64, int64[:, ::1], int64[::1], float64[::1], float64[:, ::1], int64, int64[:, ::1]")
def walk_range(begin, end, starts, others, sums, up, seed, out):
    """Fills in a range of walks; see :func:`walks`."""
    layers, count = up.shape
    for walk in range(begin, end):
        state = (np.uint64(seed) * np.uint64(0xD1342543DE82EF95)) ^ (np.uint64(walk + 1) * np.uint64(0x2545F4914F6CDD1D))
        node, layer, step = walk % count, 0, 1
        out[walk, 0] = node
        while step < out.shape[1]:
            state, chance = _draw(state)
            low, high = starts[layer, node], starts[layer, node + 1]
            if low == high:  # alone in the first layer: only in a graph of one node
                out[walk, step] = node
                step += 1
            elif chance < STAY:
                state, chance = _draw(state)
                place = low + np.searchsorted(sums[low:high], chance * sums[high - 1], side="right")
                node = others[min(place, high - 1)]
                out[walk, step] = node
                step += 1
            else:
                state, chance = _draw(state)
                if chance < up[layer, node]:
                    if layer + 1 < layers and starts[layer + 1, node] < starts[layer + 1, node + 1]:
                        layer += 1
                elif layer > 0:
                    layer -= 1
