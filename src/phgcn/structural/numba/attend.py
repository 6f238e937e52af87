r"""Attention to neighbours in Numba, on all cores.

Up to 8 heads are computed together: *rows* hold what is needed of a node, with the heads innermost, and :mod:`.lines` what is
computed of a chunk of edges.  Nodes are shared out to tasks by the number of their edges; every node is written by one task
alone, its edges in the order of ``edge_index``: no atomics, the same bits for any number of threads, and nothing that is
batched beside a graph changes its sums.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ...kernels.legacy import inline, kernel, serial, use_threads
from .edges import by_node, invert, take
from .lines import CHUNK, LANES, add_products, assign, fetch, fill, multiply, owners, root, subtract, sum_runs, weigh

WORK = 1024
"""Edges and nodes that one task of a parallel loop takes, about."""


@inline
def first_node(start, work):
    """The first node with at least so many nodes and edges before it."""
    low, high = 0, start.shape[0] - 1
    while low < high:
        middle = (low + high) // 2
        if start[middle] + middle < work:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def pack_rows(positions, values, head, lanes, rows):
    """Positions, then values, of some heads, :math:`(N, D + C, L)`."""
    dim, channels = positions.shape[2], values.shape[2]
    for i in prange(rows.shape[0]):
        own, tail = rows[i], rows[i, dim:]
        position, value = positions[i, head : head + len(lanes)], values[i, head : head + len(lanes)]
        for k in range(dim):
            for h in range(len(lanes)):
                own[k, h] = position[h, k]
        for c in range(channels):
            for h in range(len(lanes)):
                tail[c, h] = value[h, c]


@kernel
def pack_gradients(positions, grad, out, norm, head, lanes, rows):
    r"""Positions, gradients, then the nearest distance, the inverse normaliser and :math:`\langle \bar y, y \rangle`."""
    dim, channels = positions.shape[2], grad.shape[2]
    for i in prange(rows.shape[0]):
        own, middle, tail = rows[i], rows[i, dim:], rows[i, dim + channels :]
        position = positions[i, head : head + len(lanes)]
        near, factor = norm[0, i, head : head + len(lanes)], norm[1, i, head : head + len(lanes)]
        for k in range(dim):
            for h in range(len(lanes)):
                own[k, h] = position[h, k]
        for h in range(len(lanes)):
            tail[0, h] = near[h]
            tail[1, h] = factor[h]
            tail[2, h] = 0
        slope, result = grad[i, head : head + len(lanes)], out[i, head : head + len(lanes)]
        for c in range(channels):
            for h in range(len(lanes)):
                middle[c, h] = slope[h, c]
                tail[2, h] += slope[h, c] * result[h, c]


@inline
def unpack(sums, begin, count, first, head, lanes, out):
    """Writes some slots of the rows of sums into the heads of the nodes from ``first`` on."""
    for i in range(sums.shape[0]):
        own, taken = out[first + i, head : head + len(lanes)], sums[i, begin : begin + count]
        for c in range(count):
            for h in range(len(lanes)):
                own[h, c] = taken[c, h]


@inline
def make_lines(count, slots, lanes, rows):
    """Lines, by slots and as plain rows of numbers."""
    lines = np.zeros((count, slots, len(lanes)), rows.dtype)
    return lines, lines.reshape(count, slots * len(lanes))


@inline
def measure(rows, start, source, dim, first, last, lanes, distance, near):
    r"""The distances of a task's edges, chunk by chunk, :math:`(\cdot, \text{CHUNK} \cdot L)`, and the least of each target."""
    own = np.empty(CHUNK, np.int32)
    (slots, line), (other_slots, other) = make_lines(dim, CHUNK, lanes, rows), make_lines(dim, CHUNK, lanes, rows)
    node = first
    for chunk in range(distance.shape[0]):
        lead = start[first] + chunk * CHUNK
        count, r = min(CHUNK, start[last] - lead), distance[chunk]
        owners(start, node, lead, own[:count])
        node = own[count - 1]
        fetch(slots, 0, rows, own[:count], 0, lanes)
        fetch(other_slots, 0, rows, source[lead : lead + count], 0, lanes)
        for k in range(dim):
            subtract(line[k], other[k])
            add_products(r, line[k], line[k])
        root(r)
        for e in range(count):
            least, own_r = near[own[e] - first, 0], r[e * len(lanes) : (e + 1) * len(lanes)]
            for h in range(len(lanes)):
                least[h] = min(least[h], own_r[h])


@inline
def normalise(sums, near, first, head, lanes, out, norm):
    """Writes the sums of each node, divided by the last of them, the normaliser, into the heads of its output."""
    last, group = sums.shape[1] - 1, head // len(lanes)
    for i in range(sums.shape[0]):
        own, taken, total = out[first + i, head : head + len(lanes)], sums[i], sums[i, last]
        nearest, factor = norm[0, first + i, group], norm[1, first + i, group]
        for h in range(len(lanes)):
            factor[h] = 1 / total[h] if total[h] > 0 else 0 * total[h]
            nearest[h] = near[i, 0, h]
        for c in range(last):
            for h in range(len(lanes)):
                own[h, c] = taken[c, h] * factor[h]


@kernel
def attend(rows, start, source, edge, mask, dim, head, lanes, out, norm):
    r"""The weighted sum of the sources' values, for every target.

    Args:
        rows: Positions and values, :math:`(N, D + C, L)`.
        start, source, edge: The edges by target.
        mask: Factors of the weights, :math:`(E, G, L)`, or empty.
        dim: The dimension of positions.
        head: The first of the heads.
        lanes: A tuple as long as there are lanes.
        out: Where the sums go, :math:`(N, H, C)`.
        norm: Where the nearest distance and the inverse normaliser go, :math:`(2, N, G, L)`.
    """
    n, channels, width, group = rows.shape[0], rows.shape[1] - dim, len(lanes), head // len(lanes)
    for task in prange((start[n] + n + WORK - 1) // WORK):
        first, last = first_node(start, task * WORK), first_node(start, (task + 1) * WORK)
        chunks = (start[last] - start[first] + CHUNK - 1) // CHUNK
        weight, near = np.zeros((chunks, CHUNK * width), rows.dtype), np.full((last - first, 1, width), np.inf, rows.dtype)
        measure(rows, start, source, dim, first, last, lanes, weight, near)
        own, sums = np.empty(CHUNK, np.int32), np.zeros((last - first, channels + 1, width), rows.dtype)
        (slots, line), (spare, factor) = make_lines(channels + 1, CHUNK + 1, lanes, rows), make_lines(1, CHUNK, lanes, rows)
        node = first
        for chunk in range(chunks):
            lead = start[first] + chunk * CHUNK
            count, w = min(CHUNK, start[last] - lead), weight[chunk]
            owners(start[first:], node - first, lead, own[:count])
            fetch(spare, 0, near, own[:count], 0, lanes)
            weigh(line[channels, width:], factor[0], w)
            assign(w, line[channels, width:])
            if mask.shape[0] > 0:
                fetch(spare, 0, mask, edge[lead : lead + count], group, lanes)
                multiply(w, factor[0])
            fetch(slots[:channels], 1, rows, source[lead : lead + count], dim, lanes)
            for c in range(channels):
                multiply(line[c, width:], w)
            node = sum_runs(slots, start, node, lead, count, lanes, first, sums)
        normalise(sums, near, first, head, lanes, out, norm)


@serial
def find_slopes(r, weight, mean, product):
    """r = weight * (mean - product) / r, and 0 where that is 0."""
    for q in range(r.shape[0]):
        over = 1 / r[q] if r[q] > 0 else 0 * r[q]
        r[q] = weight[q] * (mean[q] - product[q]) * over


@kernel
def target_gradients(rows, gradients, start, source, edge, mask, dim, head, lanes, slopes, weights, grad_positions):
    r"""The gradient of the targets' positions.

    With :math:`y_i = \sum_j \alpha_{ij} m_{ij} f_j`, a score :math:`-r_{ij}` has the gradient
    :math:`\alpha_{ij} (m_{ij} \langle \bar y_i, f_j \rangle - \langle \bar y_i, y_i \rangle)`.  Less this, over
    :math:`r_{ij}`, goes to ``slopes``, and :math:`\alpha_{ij} m_{ij}` to ``weights``, :math:`(E, 1, L)`: for the sources.
    """
    n, channels, width, group = rows.shape[0], rows.shape[1] - dim, len(lanes), head // len(lanes)
    for task in prange((start[n] + n + WORK - 1) // WORK):
        first, last = first_node(start, task * WORK), first_node(start, (task + 1) * WORK)
        own, sums = np.empty(CHUNK, np.int32), np.zeros((last - first, dim, width), rows.dtype)
        (slots, line), (spare, factor) = make_lines(dim, CHUNK + 1, lanes, rows), make_lines(1, CHUNK, lanes, rows)
        here_slots, here = make_lines(channels + 3, CHUNK, lanes, rows)
        there_slots, there = make_lines(dim + channels, CHUNK, lanes, rows)
        near, inverse, mean = here[channels], here[channels + 1], here[channels + 2]
        product, r, w = np.zeros_like(near), np.zeros_like(near), np.zeros_like(near)
        node = first
        for lead in range(start[first], start[last], CHUNK):
            count = min(CHUNK, start[last] - lead)
            owners(start, node, lead, own[:count])
            fetch(slots, 1, gradients, own[:count], 0, lanes)
            fetch(here_slots, 0, gradients, own[:count], dim, lanes)
            fetch(there_slots, 0, rows, source[lead : lead + count], 0, lanes)
            fill(product, 0)
            fill(r, 0)
            for k in range(dim):
                subtract(line[k, width:], there[k])
                add_products(r, line[k, width:], line[k, width:])
            for c in range(channels):
                add_products(product, here[c], there[dim + c])
            root(r)
            weigh(w, near, r)
            multiply(w, inverse)
            if mask.shape[0] > 0:
                fetch(spare, 0, mask, edge[lead : lead + count], group, lanes)
                multiply(product, factor[0])
            find_slopes(r, w, mean, product)
            if mask.shape[0] > 0:
                multiply(w, factor[0])
            assign(slopes[lead : lead + count].reshape(-1), r)
            assign(weights[lead : lead + count].reshape(-1), w)
            for k in range(dim):
                multiply(line[k, width:], r)
            node = sum_runs(slots, start, node, lead, count, lanes, first, sums)
        unpack(sums, 0, dim, first, head, lanes, grad_positions)


@kernel
def source_gradients(gradients, start, target, place, slopes, weights, dim, head, lanes, grad_positions, grad_values):
    """The gradient of the sources' values, and that of their positions, which is added to.

    Edges are by source; ``place`` is where each is among those by target, :math:`(E,)`.
    """
    n, channels, width = gradients.shape[0], grad_values.shape[2], len(lanes)
    for task in prange((start[n] + n + WORK - 1) // WORK):
        first, last = first_node(start, task * WORK), first_node(start, (task + 1) * WORK)
        own, sums = np.empty(CHUNK, np.int32), np.zeros((last - first, dim + channels, width), gradients.dtype)
        slots, line = make_lines(dim + channels, CHUNK + 1, lanes, gradients)
        (here_slots, here), (spare, factor) = make_lines(dim, CHUNK, lanes, gradients), make_lines(1, CHUNK, lanes, gradients)
        node = first
        for lead in range(start[first], start[last], CHUNK):
            count = min(CHUNK, start[last] - lead)
            owners(start, node, lead, own[:count])
            fetch(here_slots, 0, gradients, own[:count], 0, lanes)
            fetch(slots, 1, gradients, target[lead : lead + count], 0, lanes)
            fetch(spare, 0, slopes, place[lead : lead + count], 0, lanes)
            for k in range(dim):
                subtract(line[k, width:], here[k])
                multiply(line[k, width:], factor[0])
            fetch(spare, 0, weights, place[lead : lead + count], 0, lanes)
            for c in range(dim, dim + channels):
                multiply(line[c, width:], factor[0])
            node = sum_runs(slots, start, node, lead, count, lanes, first, sums)
        for i in range(first, last):  # what the edges to the node gave, less what those from it give
            summed, given = sums[i - first], grad_positions[i, head : head + width]
            for k in range(dim):
                for h in range(width):
                    summed[k, h] = given[h, k] - summed[k, h]
        unpack(sums, 0, dim, first, head, lanes, grad_positions)
        unpack(sums, dim, channels, first, head, lanes, grad_values)


def forward(
    positions: np.ndarray, values: np.ndarray, edge_index: np.ndarray, edge_mask: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Attention; returns output, norm, and the edges by target: where they start, their sources, their columns."""
    threads = use_threads()
    n, heads, dim = positions.shape
    lanes = _lanes(heads)
    start, edge = by_node(edge_index[1], n, threads)
    source = take(edge_index[0], edge)
    mask = _mask(edge_mask, lanes, values.dtype)
    positions, values = _filled(positions, lanes), _filled(values, lanes)
    out, norm = np.empty_like(values), np.empty((2, n, values.shape[1] // len(lanes), len(lanes)), values.dtype)
    rows = np.empty((n, dim + values.shape[2], len(lanes)), values.dtype)
    for head in range(0, heads, len(lanes)):
        pack_rows(positions, values, head, lanes, rows)
        attend(rows, start, source, edge, mask, dim, head, lanes, out, norm)
    norm = norm.reshape(2, n, values.shape[1])[..., :heads]
    return np.ascontiguousarray(out[:, :heads]), np.ascontiguousarray(norm), start, source, edge


def backward(
    grad: np.ndarray,
    kept: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    positions: np.ndarray,
    values: np.ndarray,
    edge_index: np.ndarray,
    edge_mask: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """The gradients of positions and values; ``kept`` is what :func:`forward` returned."""
    threads = use_threads()
    n, heads, dim = positions.shape
    lanes = _lanes(heads)
    start, source, edge = kept[2:]
    source_start, source_edge = by_node(edge_index[0], n, threads)
    target, place = take(edge_index[1], source_edge), take(invert(edge), source_edge)
    mask = _mask(edge_mask, lanes, values.dtype)
    positions, values, grad, out = (_filled(array, lanes) for array in (positions, values, grad, kept[0]))
    norm = np.stack([_filled(kept[1][k], lanes) for k in range(2)]) if values.shape[1] > heads else kept[1]
    grad_positions, grad_values = np.empty_like(positions), np.empty_like(values)
    rows = np.empty((n, dim + values.shape[2], len(lanes)), values.dtype)
    gradients = np.empty((n, dim + values.shape[2] + 3, len(lanes)), values.dtype)
    slopes, weights = np.empty((2, len(edge), 1, len(lanes)), values.dtype)
    for head in range(0, heads, len(lanes)):
        pack_rows(positions, values, head, lanes, rows)
        pack_gradients(positions, grad, out, norm, head, lanes, gradients)
        target_gradients(rows, gradients, start, source, edge, mask, dim, head, lanes, slopes, weights, grad_positions)
        source_gradients(gradients, source_start, target, place, slopes, weights, dim, head, lanes, grad_positions, grad_values)
    return np.ascontiguousarray(grad_positions[:, :heads]), np.ascontiguousarray(grad_values[:, :heads])


def _lanes(heads: int) -> tuple[int, ...]:
    """A tuple as long as there are lanes: 8, or 1 where most of 8 would be idle.  Every length is compiled on its own."""
    return (0,) * (LANES if heads > 2 else 1)


def _filled(array: np.ndarray, lanes: tuple[int, ...]) -> np.ndarray:
    """An array of heads (N, H, ...) with heads of 0 until they fill all lanes."""
    missing = -array.shape[1] % len(lanes)
    return np.pad(array, [(0, 0), (0, missing), (0, 0)][: array.ndim]) if missing > 0 else array


def _mask(edge_mask: np.ndarray | None, lanes: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """The mask as groups of lanes, (E, G, L); empty without."""
    if edge_mask is None:
        return np.empty((0, 0, len(lanes)), dtype)
    filled = _filled(edge_mask, lanes)
    return filled.reshape(len(filled), filled.shape[1] // len(lanes), len(lanes))
