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
def pack_rows(positions, values, head, lanes):
    """Positions, then values, of some heads, :math:`(N, D + C, L)`; lanes beyond the last head are 0."""
    n, dim, channels = positions.shape[0], positions.shape[2], values.shape[2]
    heads = min(len(lanes), positions.shape[1] - head)
    rows = np.empty((n, dim + channels, len(lanes)), positions.dtype)
    for i in prange(n):
        for k in range(rows.shape[1]):
            for h in range(heads, len(lanes)):
                rows[i, k, h] = 0
        for k in range(dim):
            for h in range(heads):
                rows[i, k, h] = positions[i, head + h, k]
        for c in range(channels):
            for h in range(heads):
                rows[i, dim + c, h] = values[i, head + h, c]
    return rows


@kernel
def pack_gradients(positions, grad, out, norm, head, lanes):
    r"""Positions, gradients, then the nearest distance, the inverse normaliser and :math:`\langle \bar y, y \rangle`."""
    n, dim, channels = positions.shape[0], positions.shape[2], grad.shape[2]
    heads = min(len(lanes), positions.shape[1] - head)
    rows = np.empty((n, dim + channels + 3, len(lanes)), positions.dtype)
    for i in prange(n):
        for k in range(rows.shape[1]):
            for h in range(heads, len(lanes)):
                rows[i, k, h] = 0
        for k in range(dim):
            for h in range(heads):
                rows[i, k, h] = positions[i, head + h, k]
        for h in range(heads):
            product = rows.dtype.type(0)
            for c in range(channels):
                rows[i, dim + c, h] = grad[i, head + h, c]
                product += grad[i, head + h, c] * out[i, head + h, c]
            rows[i, dim + channels, h] = norm[0, i, head + h]
            rows[i, dim + channels + 1, h] = norm[1, i, head + h]
            rows[i, dim + channels + 2, h] = product
    return rows


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
        norm: Where the nearest distance and the inverse normaliser go, :math:`(2, N, H)`.
    """
    n, channels, last = rows.shape[0], rows.shape[1] - dim, start[rows.shape[0]] - 1
    heads = min(len(lanes), out.shape[1] - head)
    for task in prange((start[n] + n + WORK - 1) // WORK):
        weight = np.empty((CHUNK, len(lanes)), rows.dtype)
        summed = np.empty((channels + 2, len(lanes)), rows.dtype)
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
            store(summed, (channels,), near)
            store(summed, (channels + 1,), factor)
            for h in range(heads):
                for c in range(channels):
                    out[i, head + h, c] = summed[c, h]
                norm[0, i, head + h] = summed[channels, h]
                norm[1, i, head + h] = summed[channels + 1, h]


@kernel
def target_gradients(rows, gradients, start, source, edge, mask, dim, head, lanes, grad_positions):
    r"""The gradient of the targets' positions.

    With :math:`y_i = \sum_j \alpha_{ij} m_{ij} f_j`, a score :math:`-r_{ij}` has the gradient
    :math:`\alpha_{ij} (m_{ij} \langle \bar y_i, f_j \rangle - \langle \bar y_i, y_i \rangle)`.
    """
    n, channels, last = rows.shape[0], rows.shape[1] - dim, start[rows.shape[0]] - 1
    heads = min(len(lanes), grad_positions.shape[1] - head)
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
            for h in range(heads):
                for k in range(dim):
                    grad_positions[i, head + h, k] = summed[k, h]


@kernel
def source_gradients(rows, gradients, start, target, edge, mask, dim, head, lanes, grad_positions, grad_values):
    """The gradient of the sources' values, and that of their positions, which is added; edges are by source."""
    n, channels, last = rows.shape[0], rows.shape[1] - dim, start[rows.shape[0]] - 1
    heads = min(len(lanes), grad_positions.shape[1] - head)
    for task in prange((start[n] + n + WORK - 1) // WORK):
        summed = np.empty((dim + channels, len(lanes)), rows.dtype)
        zero = splat(0, rows, lanes)
        for j in range(first_node(start, task * WORK), first_node(start, (task + 1) * WORK)):
            for c in range(dim + channels):
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
            for h in range(heads):
                for k in range(dim):
                    grad_positions[j, head + h, k] += summed[k, h]
                for c in range(channels):
                    grad_values[j, head + h, c] = summed[dim + c, h]


def forward(
    positions: np.ndarray, values: np.ndarray, edge_index: np.ndarray, edge_mask: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Attention; returns output, norm, and the edges by target: where they start, their sources, their columns."""
    threads = _use_threads()
    n, heads, dim = positions.shape
    start, edge = by_node(edge_index[1], n, threads)
    source = take(edge_index[0], edge)
    out, norm = np.empty_like(values), np.empty((2, n, heads), values.dtype)
    lanes = _lanes(heads)
    mask = _mask(edge_mask, lanes, values.dtype)
    for head in range(0, heads, len(lanes)):
        attend(pack_rows(positions, values, head, lanes), start, source, edge, mask, dim, head, lanes, out, norm)
    return out, norm, start, source, edge


def backward(
    grad: np.ndarray,
    kept: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    positions: np.ndarray,
    values: np.ndarray,
    edge_index: np.ndarray,
    edge_mask: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """The gradients of positions and values; ``kept`` is what :func:`forward` returned."""
    out, norm, start, source, edge = kept
    threads = _use_threads()
    n, heads, dim = positions.shape
    source_start, source_edge = by_node(edge_index[0], n, threads)
    target = take(edge_index[1], source_edge)
    grad_positions, grad_values = np.empty_like(positions), np.empty_like(values)
    lanes = _lanes(heads)
    mask = _mask(edge_mask, lanes, values.dtype)
    for head in range(0, heads, len(lanes)):
        rows = pack_rows(positions, values, head, lanes)
        gradients = pack_gradients(positions, grad, out, norm, head, lanes)
        target_gradients(rows, gradients, start, source, edge, mask, dim, head, lanes, grad_positions)
        source_gradients(
            rows, gradients, source_start, target, source_edge, mask, dim, head, lanes, grad_positions, grad_values
        )
    return grad_positions, grad_values


def _lanes(heads: int) -> tuple[int, ...]:
    """A tuple as long as there are lanes: 8, or 1 where most of 8 would be idle.  Every length is compiled on its own."""
    return (0,) * (LANES if heads > 2 else 1)


def _mask(edge_mask: np.ndarray | None, lanes: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """The mask as groups of lanes, (E, G, L); empty without."""
    if edge_mask is None:
        return np.empty((0, 0, len(lanes)), dtype)
    edges, heads = edge_mask.shape
    padding = -heads % len(lanes)
    if padding > 0:
        edge_mask = np.pad(edge_mask, ((0, 0), (0, padding)))
    return edge_mask.reshape(edges, (heads + padding) // len(lanes), len(lanes))


def _use_threads() -> int:
    """As many threads as torch uses."""
    most: int = getattr(numba.config, "NUMBA_NUM_THREADS")  # noqa: B009, set when numba is imported
    threads = max(1, min(torch.get_num_threads(), most))
    numba.set_num_threads(threads)
    return threads
