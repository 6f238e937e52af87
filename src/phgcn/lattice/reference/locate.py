r"""Locate: the simplex that each point lies in, and its barycentric weights."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..coefficients import MultiScaleWeights
from ..geometry import kuhn_matrix, origin
from ..geometry import locate as enclosing_simplex


class Simplices(NamedTuple):
    """Where points lie on one level of one lattice.

    Shapes:
        - **vertex:** Kuhn coordinates of the corners of each point's simplex, int64, :math:`(P, D+1, D)`
        - **weight:** barycentric weights, :math:`(P, D+1)`, differentiable in the positions
    """

    vertex: Tensor
    weight: Tensor


def kuhn_coordinates(points: Tensor, spacing: float, levels: int, lattice: int) -> Tensor:
    """Maps points (P, D) to Kuhn coordinates of level 0, in double precision: a far offset of all points costs no accuracy."""
    dim = points.size(1)
    matrix, shift = kuhn_matrix(dim).to(points.device), origin(dim, lattice).to(points.device)
    coordinates: Tensor = points.double() @ matrix.T / spacing + shift * 2 ** (levels - 1)
    return coordinates


def locate(w: Tensor, level: int) -> Simplices:
    """Finds the simplices of points in Kuhn coordinates of level 0, (P, D), on a coarser level."""
    return Simplices(*enclosing_simplex(w / 2**level))


def self_weight(weight: Tensor, fitted: MultiScaleWeights, level: int) -> Tensor:
    r"""Computes what a level gives a point of itself, :math:`\sum_{l,m} b_l b_m t_{|l-m|}`, from weights (P, D+1)."""
    dim = weight.size(1) - 1
    steps = (torch.arange(dim + 1).unsqueeze(0) - torch.arange(dim + 1).unsqueeze(1)).abs()
    table = torch.as_tensor(fitted.simplex_tables(dim)[level])[steps].to(weight)
    return ((weight @ table) * weight).sum(dim=1)
