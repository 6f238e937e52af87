r"""Blur: sums over the neighbours of each vertex."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def blur(table: Tensor, number: dict[tuple[int, ...], int], offsets: NDArray[np.int64], weights: NDArray[np.float64]) -> Tensor:
    """Sums, for every vertex, the rows of the touched vertices at the given offsets, weighted.

    Shapes:
        - **table:** :math:`(V, C)`, **offsets:** :math:`(S, D)`, **weights:** :math:`(S,)`
        - **output:** :math:`(V, C)`
    """
    out = torch.zeros_like(table)
    for offset, weight in zip(offsets.tolist(), weights.tolist(), strict=True):
        pairs = [
            (i, j)
            for v, i in number.items()
            if (j := number.get(tuple(a + b for a, b in zip(v, offset, strict=True)))) is not None
        ]
        if pairs:
            here, there = torch.tensor(pairs, device=table.device).T
            out = out.index_add(0, here, weight * table[there])
    return out
