r"""Near field: the short range that coarse levels miss, summed pair by pair."""

from __future__ import annotations

import torch
from torch import Tensor

from ...exact.reference import distances
from ..coefficients import FADE_START, MultiScaleWeights
from ..levels import CELL_DIMENSIONS, mean_pairs_cell


def near_field(targets: Tensor, keys: Tensor, rows: Tensor, fitted: MultiScaleWeights, level: int) -> Tensor:
    r"""Sums what levels from :math:`\kappa` on miss, :math:`\sum_{r < \rho_\kappa} R_\kappa(r) f_j`.

    Shapes:
        - **targets:** :math:`(M, D)`, **keys:** :math:`(N, D)`, **rows:** :math:`(N, C)`
        - **output:** :math:`(M, C)`, float64
    """
    r = distances(targets.double(), keys.double())
    radius = fitted.radius[level]
    power = torch.exp(-fitted.rate * r.square())
    weight = torch.exp(-r)
    for j, a in enumerate(fitted.amplitude[level].tolist()):
        weight = weight - a * power ** (4**j)
    t = ((radius**2 - r.square()) / (radius**2 * (1 - FADE_START**2))).clamp(0, 1)
    return (weight * t**2 * (3 - 2 * t)) @ rows.double()


def cell_axes(keys: Tensor, queries: Tensor | None) -> Tensor:
    """Returns the coordinates that cells of the near field are laid over: those of largest extent, ascending."""
    points = (keys if queries is None else torch.cat([keys, queries])).detach()
    extent = points.amax(dim=0).double() - points.amin(dim=0).double()
    return torch.sort(torch.argsort(extent, descending=True, stable=True)[:CELL_DIMENSIONS])[0]


def mean_pairs(keys: Tensor, queries: Tensor | None, radius: float, axes: Tensor | None = None) -> float:
    """Estimates how many keys a query has within a radius, on average: those that share a cell with the volume of the ball.

    The mean of all points is in the middle of a cell: a small cloud lies in one, and is not cut into :math:`2^D` parts.
    With ``axes``, cells are laid over these coordinates alone.
    """
    points = (keys if queries is None else torch.cat([keys, queries])).detach().double()
    cells = torch.floor((points - points.mean(dim=0)) / mean_pairs_cell(keys.size(1), radius) + 0.5)
    _, cell = torch.unique(cells if axes is None else cells[:, axes], dim=0, return_inverse=True)
    key_count = torch.bincount(cell[: len(keys)], minlength=int(cell.max()) + 1).double()
    if queries is None:
        return float((key_count * (key_count - 1)).sum() / len(keys))
    query_count = torch.bincount(cell[len(keys) :], minlength=len(key_count)).double()
    return float((key_count * query_count).sum() / len(queries))
