r"""Attention to neighbours in Numba, on all cores.

Up to 8 heads are computed together, one in each lane of a vector register (:mod:`.lanes`): *rows* hold what is needed of a
node, with the heads innermost.  Nodes are shared out to tasks by the number of their edges; every node is written by one
task alone, its edges in the order of ``edge_index``: no atomics, the same bits for any number of threads, and nothing that
is batched beside a graph changes its sums.
"""

from __future__ import annotations

import numba
import numpy as np
import torch
from numba import prange

from ..compile import inline, kernel
from .graph import by_node, take
from .lanes import distance, exponential, inverse, lesser, load, prefetch, splat, store

LANES = 8
"""Heads that are computed together."""

WORK = 512
"""Edges and nodes that one task of a parallel loop takes, about."""

AHEAD = 16
"""How many edges ahead rows are fetched."""

CHUNK = 64
"""Edges of a node whose weights are held at a time."""


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
def unpack(summed, first, count, head, lanes, out):
    """Writes some entries of a row of sums into the heads of a node's output."""
    own, taken = out[head : head + len(lanes)], summed[first : first + count]
    for c in range(count):
        for h in range(len(lanes)):
            own[h, c] = taken[c, h]


@kernel
def attend(rows, start, source, edge, mask, dim, head, lanes, out, norm):
    r"""The weighted sum of the sources' values, for every target.

    The softmax is taken chunk by chunk: where a chunk has a nearer source than those before, these are scaled down.

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
    n, channels, last = rows.shape[0], rows.shape[1] - dim, start[rows.shape[0]] - 1
    for task in prange((start[n] + n + WORK - 1) // WORK):
        weight = np.empty((CHUNK, len(lanes)), rows.dtype)
        summed = np.empty((channels, len(lanes)), rows.dtype)
        zero = splat(0, rows, lanes)
        for i in range(first_node(start, task * WORK), first_node(start, (task + 1) * WORK)):
            near, total = splat(np.inf, rows, lanes), zero
            for c in range(channels):
                store(summed, (c,), zero)
            for lead in range(start[i], start[i + 1], CHUNK):
                count = min(CHUNK, start[i + 1] - lead)
                before = near
                for e in range(count):
                    prefetch(rows, source[min(lead + e + AHEAD, last)], lanes)
                    r = distance(rows, i, rows, source[lead + e], dim, lanes)
                    near = lesser(near, r)
                    store(weight, (e,), r)
                if lead > start[i]:
                    scale = exponential(near - before)
                    total = total * scale
                    for c in range(channels):
                        store(summed, (c,), load(summed, (c,), lanes) * scale)
                for e in range(count):
                    w = exponential(near - load(weight, (e,), lanes))
                    total = total + w
                    if mask.shape[0] > 0:
                        w = w * load(mask, (edge[lead + e], head // len(lanes)), lanes)
                    j = source[lead + e]
                    for c in range(channels):
                        store(summed, (c,), load(summed, (c,), lanes) + w * load(rows, (j, dim + c), lanes))
            factor = inverse(total)
            for c in range(channels):
                store(summed, (c,), load(summed, (c,), lanes) * factor)
            unpack(summed, 0, channels, head, lanes, out[i])
            store(norm, (0, i, head // len(lanes)), near)
            store(norm, (1, i, head // len(lanes)), factor)


@kernel
def target_gradients(rows, gradients, start, source, edge, mask, dim, head, lanes, grad_positions):
    r"""The gradient of the targets' positions.

    With :math:`y_i = \sum_j \alpha_{ij} m_{ij} f_j`, a score :math:`-r_{ij}` has the gradient
    :math:`\alpha_{ij} (m_{ij} \langle \bar y_i, f_j \rangle - \langle \bar y_i, y_i \rangle)`.
    """
    n, channels, last = rows.shape[0], rows.shape[1] - dim, start[rows.shape[0]] - 1
    for task in prange((start[n] + n + WORK - 1) // WORK):
        summed = np.empty((dim, len(lanes)), rows.dtype)
        zero = splat(0, rows, lanes)
        for i in range(first_node(start, task * WORK), first_node(start, (task + 1) * WORK)):
            for k in range(dim):
                store(summed, (k,), zero)
            near, factor = load(gradients, (i, dim + channels), lanes), load(gradients, (i, dim + channels + 1), lanes)
            mean = load(gradients, (i, dim + channels + 2), lanes)
            for a in range(start[i], start[i + 1]):
                j = source[a]
                prefetch(rows, source[min(a + AHEAD, last)], lanes)
                r = distance(rows, i, rows, j, dim, lanes)
                product = zero
                for c in range(channels):
                    product = product + load(gradients, (i, dim + c), lanes) * load(rows, (j, dim + c), lanes)
                if mask.shape[0] > 0:
                    product = product * load(mask, (edge[a], head // len(lanes)), lanes)
                slope = exponential(near - r) * factor * (mean - product) * inverse(r)
                for k in range(dim):
                    d = load(rows, (i, k), lanes) - load(rows, (j, k), lanes)
                    store(summed, (k,), load(summed, (k,), lanes) + slope * d)
            unpack(summed, 0, dim, head, lanes, grad_positions[i])


@kernel
def source_gradients(rows, gradients, start, target, edge, mask, dim, head, lanes, grad_positions, grad_values):
    """The gradient of the sources' values, and that of their positions, which is added; edges are by source."""
    n, channels, last = rows.shape[0], rows.shape[1] - dim, start[rows.shape[0]] - 1
    for task in prange((start[n] + n + WORK - 1) // WORK):
        summed = np.empty((dim + channels, len(lanes)), rows.dtype)
        zero = splat(0, rows, lanes)
        for j in range(first_node(start, task * WORK), first_node(start, (task + 1) * WORK)):
            for k in range(dim):  # what the edges to the node gave
                for h in range(len(lanes)):
                    summed[k, h] = grad_positions[j, head : head + len(lanes)][h, k]
            for c in range(dim, dim + channels):
                store(summed, (c,), zero)
            for a in range(start[j], start[j + 1]):
                i = target[a]
                prefetch(gradients, target[min(a + AHEAD, last)], lanes)
                r = distance(rows, j, gradients, i, dim, lanes)
                w = exponential(load(gradients, (i, dim + channels), lanes) - r)
                w = w * load(gradients, (i, dim + channels + 1), lanes)
                masked = w
                if mask.shape[0] > 0:
                    masked = w * load(mask, (edge[a], head // len(lanes)), lanes)
                product = zero
                for c in range(channels):
                    g = load(gradients, (i, dim + c), lanes)
                    product = product + g * load(rows, (j, dim + c), lanes)
                    store(summed, (dim + c,), load(summed, (dim + c,), lanes) + masked * g)
                mean = load(gradients, (i, dim + channels + 2), lanes)
                slope = (w * mean - masked * product) * inverse(r)
                for k in range(dim):
                    d = load(rows, (j, k), lanes) - load(gradients, (i, k), lanes)
                    store(summed, (k,), load(summed, (k,), lanes) + slope * d)
            unpack(summed, 0, dim, head, lanes, grad_positions[j])
            unpack(summed, dim, channels, head, lanes, grad_values[j])


def forward(
    positions: np.ndarray, values: np.ndarray, edge_index: np.ndarray, edge_mask: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Attention; returns output, norm, and the edges by target: where they start, their sources, their columns."""
    threads = _use_threads()
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
    threads = _use_threads()
    n, heads, dim = positions.shape
    lanes = _lanes(heads)
    start, source, edge = kept[2:]
    source_start, source_edge = by_node(edge_index[0], n, threads)
    target = take(edge_index[1], source_edge)
    mask = _mask(edge_mask, lanes, values.dtype)
    positions, values, grad, out = (_filled(array, lanes) for array in (positions, values, grad, kept[0]))
    norm = np.stack([_filled(kept[1][k], lanes) for k in range(2)]) if values.shape[1] > heads else kept[1]
    grad_positions, grad_values = np.empty_like(positions), np.empty_like(values)
    rows = np.empty((n, dim + values.shape[2], len(lanes)), values.dtype)
    gradients = np.empty((n, dim + values.shape[2] + 3, len(lanes)), values.dtype)
    for head in range(0, heads, len(lanes)):
        pack_rows(positions, values, head, lanes, rows)
        pack_gradients(positions, grad, out, norm, head, lanes, gradients)
        target_gradients(rows, gradients, start, source, edge, mask, dim, head, lanes, grad_positions)
        source_gradients(
            rows, gradients, source_start, target, source_edge, mask, dim, head, lanes, grad_positions, grad_values
        )
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


def _use_threads() -> int:
    """As many threads as torch uses."""
    most: int = getattr(numba.config, "NUMBA_NUM_THREADS")  # noqa: B009, set when numba is imported
    threads = max(1, min(torch.get_num_threads(), most))
    numba.set_num_threads(threads)
    return threads
