r"""Sums over neighbours in Numba, each node by one thread alone."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...runtime.numba import as_array, helper, kernel
from .edges import run_nodes
from .kernels import BLOCK, add, assign, clear


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
