r"""Splat: rows of values from points to vertices."""

from __future__ import annotations

from torch import Tensor


def splat(rows: Tensor, corner: Tensor, weight: Tensor, vertices: int) -> Tensor:
    """Adds each key's row, times its barycentric weights, to the vertices of its simplex.

    Shapes:
        - **rows:** :math:`(N, C)`, **corner**, **weight:** :math:`(N, D+1)`
        - **output:** :math:`(V, C)`
    """
    spread = (weight.unsqueeze(-1) * rows.unsqueeze(1)).flatten(0, 1)
    return rows.new_zeros(vertices, rows.size(1)).index_add(0, corner.flatten(), spread)
