"""Sorted edges and sums over them in Numba, by ranges of nodes with about equally many edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...runtime.numba import as_array, helper, kernel
from ...runtime.threads import run_rows
from ..graph import SortedEdges
from .kernels import BLOCK, add, assign, clear

PART = 1 << 16  # least number of edges that a thread sorts
WORK = 1024  # edges and nodes, together, that one range should have


def sort_edges(node: Tensor, other: Tensor, count: int) -> SortedEdges:
    """Sorts edges stably by their ``node`` (E,) in a parallel counting sort."""
    parts = max(1, min(torch.get_num_threads(), len(node) // PART))
    nodes, others = as_array(node.long()), as_array(other.long())
    indices = np.zeros((parts, count), np.int32)
    start = np.empty(count + 1, np.int32)
    sorted_other, edge = np.empty((2, len(nodes)), np.int32)
    run_rows(count_edges, parts, 1, nodes, indices)
    sum_counts(indices, start)
    run_rows(move_edges, parts, 1, nodes, others, indices, sorted_other, edge)
    return SortedEdges(*map(torch.from_numpy, (start, sorted_other, edge)))


@kernel("int64, int64, int64[::1], int32[:, ::1]")
def count_edges(begin, end, node, indices):
    """Counts the edges of each node in chunks ``begin`` to ``end`` of all edges."""
    edges, parts = node.shape[0], indices.shape[0]
    for p in range(begin, end):
        for e in range(p * edges // parts, (p + 1) * edges // parts):
            indices[p, np.uint64(node[e])] += 1


@kernel("int32[:, ::1], int32[::1]")
def sum_counts(indices, start):
    """Turns counts into the first position of each node and chunk, and fills ``start``."""
    total = 0
    for i in range(indices.shape[1]):
        start[i] = total
        for p in range(indices.shape[0]):
            count = indices[p, i]
            indices[p, i] = total
            total += count
    start[indices.shape[1]] = total


@kernel("int64, int64, int64[::1], int64[::1], int32[:, ::1], int32[::1], int32[::1]")
def move_edges(begin, end, node, other, indices, sorted_other, edge):
    """Writes the edges of chunks ``begin`` to ``end`` to their positions."""
    edges, parts = node.shape[0], indices.shape[0]
    for p in range(begin, end):
        for e in range(p * edges // parts, (p + 1) * edges // parts):
            i = np.uint64(node[e])
            index = np.uint64(indices[p, i])
            sorted_other[index] = other[e]
            edge[index] = e
            indices[p, i] += 1


def run_nodes(kernel: Callable[..., None], start: np.ndarray, *arguments: Any) -> None:
    """Calls ``kernel(begin, end, *arguments)`` for ranges of nodes with about equal edges."""
    bounds = share_out(start)

    def run(first: int, last: int) -> None:
        kernel(bounds[first], bounds[last], *arguments)

    run_rows(run, len(bounds) - 1, 1)


def share_out(start: np.ndarray) -> np.ndarray:
    """Returns bounds of ranges of nodes with about ``WORK`` edges and nodes, or one large node."""
    count = len(start) - 1
    work_before = start[:count] + np.arange(count)
    ranges = -(-(int(start[count]) + count) // WORK)
    return np.searchsorted(work_before, np.arange(ranges + 1) * WORK)


def sum_rows(values: Tensor, start: Tensor, source: Tensor) -> Tensor:
    """Sums the values (N, C) of each node's sources."""
    rows, starts = as_array(values), as_array(start)
    out = np.empty((len(starts) - 1, rows.shape[1]), rows.dtype)
    run_nodes(add_sources, starts, rows, starts, as_array(source), out)
    return torch.from_numpy(out)


@kernel("int64, int64, real[:, ::1], int32[::1], int32[::1], real[:, ::1]")
def add_sources(begin, end, values, start, source, out):
    """Sums the sources of nodes ``begin`` to ``end`` in blocks, and the blocks in float64."""
    sums = np.empty((1, values.shape[1]), values.dtype)
    total = np.empty((1, values.shape[1]), np.float64)
    for i in range(begin, end):
        clear(total)
        for lead in range(start[i], start[i + 1], BLOCK):
            clear(sums)
            for a in range(lead, min(lead + BLOCK, start[i + 1])):
                add_row(sums, values, np.int64(source[a]))
            add(total, 0, sums)
        assign(out, i, total)


@helper
def add_row(sums, values, j):
    for q in range(sums.shape[1]):
        sums[0, q] += values[j, q]
