r"""The finest level of a cloud, as :func:`phgcn.lattice.levels.finest_level` chooses it from estimated numbers of pairs."""

from __future__ import annotations

import torch
from torch import Tensor

from ..coefficients import multiscale_weights
from ..levels import CELL_DIMENSIONS, finest_level, mean_pairs_cell
from ..narrow import narrow_step
from ..scheme import MultiScale


def choose_finest(keys: Tensor, queries: Tensor | None, scheme: MultiScale) -> int:
    """Chooses the finest level of a cloud, or minus the step of a narrow one."""
    dim = keys.size(1)
    axes = cell_axes(keys, queries)
    level = finest_level(
        scheme, multiscale_weights(scheme, dim), lambda radius: mean_pairs(keys, queries, radius),
        (lambda radius: mean_pairs(keys, queries, radius, axes)) if dim > CELL_DIMENSIONS else None,
    )  # fmt: skip
    if level > 0:
        return level
    points = (keys if queries is None else torch.cat([keys, queries])).detach().double().cpu().numpy()
    return -narrow_step(scheme, points.min(axis=0), points.max(axis=0))


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
