r"""Locates points in the permutohedral lattice, in plain torch.

In *Kuhn coordinates*, the linear map ``kuhn_matrix`` sends the lattice :math:`A^*_D` to the integer
grid :math:`\mathbb{Z}^D`. Its simplices cut every unit cube along the orderings of the coordinates:
a floor and a sort find the simplex of a point. All lengths are in units of :math:`1/\lambda`:
positions arrive multiplied by the decay."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor


@lru_cache
def kuhn_matrix(dim: int) -> Tensor:
    r"""Builds the matrix :math:`T`, (D, D), float64, that sends the lattice of shortest vector 1 to
    :math:`\mathbb{Z}^D`.

    Its source is the elevation matrix :math:`E` of Adams et al. (2010): column :math:`i` of
    :math:`E` is 1 repeated :math:`i+1` times, then :math:`-(i+1)`, then zeros, over
    :math:`\sqrt{(i+1)(i+2)}`."""
    elevation = torch.zeros(dim + 1, dim, dtype=torch.float64)
    for i in range(dim):
        elevation[: i + 1, i] = 1.0
        elevation[i + 1, i] = -(i + 1.0)
        elevation[:, i] /= math.sqrt((i + 1) * (i + 2))
    return -math.sqrt(dim * (dim + 1)) * (elevation[:dim] - elevation[dim]) / (dim + 1)


@lru_cache
def origin(dim: int) -> Tensor:
    """Returns the fixed shift of the lattice, (D,), in Kuhn coordinates of the coarsest level.

    Embeddings that start at zero would sit exactly on a vertex, where the derivative is one-sided,
    so no lattice has a vertex at the origin."""
    golden = (math.sqrt(5) - 1) / 2
    return torch.arange(1, dim + 1, dtype=torch.float64).mul(golden).frac() / 2


def locate(w: Tensor) -> tuple[Tensor, Tensor]:
    r"""Finds the enclosing simplex of points in Kuhn coordinates, and their barycentric weights.

    With :math:`n = \lfloor w \rfloor` and the fractions sorted in descending order, :math:`f_1 \ge
    \dots \ge f_D`, the vertices are :math:`n,\; n + e_{\sigma_1},\; n + e_{\sigma_1} +
    e_{\sigma_2}, \dots` and the weights :math:`1 - f_1,\; f_1 - f_2, \dots, f_D`.

    Shapes:
        - **w:** :math:`(N, D)`
        - **output:** vertices :math:`(N, D+1, D)`, int64, and weights :math:`(N, D+1)`,
          differentiable in ``w``
    """
    n = w.detach().floor()
    fraction, order = (w - n).sort(dim=-1, descending=True, stable=True)
    # row r: the coordinates raised in the first r steps
    steps = torch.nn.functional.one_hot(order, w.size(-1)).cumsum(dim=-2)
    first = n.to(torch.int64).unsqueeze(-2)
    vertices = torch.cat([first, first + steps], dim=-2)
    ones, zeros = torch.ones_like(w[:, :1]), torch.zeros_like(w[:, :1])
    weights = torch.cat([ones, fraction], dim=-1) - torch.cat([fraction, zeros], dim=-1)
    return vertices, weights
