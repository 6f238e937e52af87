r"""Slice: rows of values from vertices back to points."""

from __future__ import annotations

from torch import Tensor


def slice_rows(table: Tensor, corner: Tensor, weight: Tensor) -> Tensor:
    """Sums what the vertices of each query's simplex hold, times its barycentric weights.

    Shapes:
        - **table:** :math:`(V, C)`, **corner**, **weight:** :math:`(M, D+1)`
        - **output:** :math:`(M, C)`
    """
    return (weight.unsqueeze(-1) * table[corner]).sum(dim=1)
