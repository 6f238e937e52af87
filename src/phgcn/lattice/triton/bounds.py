r"""The lowest and the highest coordinates of clouds, and which coordinates are the widest."""

from __future__ import annotations

import torch
from torch import Tensor

from ..levels import CELL_DIMENSIONS
from .clouds import Clouds


def cloud_bounds(clouds: Clouds) -> tuple[Tensor, Tensor]:
    """Computes the lowest and the highest coordinates of each cloud, (clouds, D), float64; 0 where it has no points.

    Least and greatest do not depend on the order in which a device takes them.
    """
    position = clouds.position.double()
    if clouds.count == 1 and len(position) > 0:
        return position.amin(dim=0, keepdim=True), position.amax(dim=0, keepdim=True)
    # Points that are not filtered go to a row of their own, behind those of the clouds.
    cloud = clouds.cloud.to(torch.int64)
    place = torch.where(cloud >= 0, cloud, clouds.count).unsqueeze(1).expand_as(position)
    bounds = position.new_zeros(clouds.count + 1, position.size(1))
    low, high = (bounds.scatter_reduce(0, place, position, kind, include_self=False)[:-1] for kind in ("amin", "amax"))
    return low, high


def widest_axes(clouds: Clouds) -> tuple[Tensor, Tensor]:
    """Returns the coordinates of largest extent of each cloud, ascending, which cells of the near field are laid over, and the
    others, int64."""
    return divide_axes(*cloud_bounds(clouds))


def divide_axes(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Divides coordinates as :func:`widest_axes` does, by the bounds of clouds, (clouds, D)."""
    order = torch.sort(high - low, dim=1, descending=True, stable=True)[1]
    return order[:, :CELL_DIMENSIONS].sort(dim=1)[0], order[:, CELL_DIMENSIONS:].sort(dim=1)[0]


def widest_first(clouds: Clouds) -> Tensor | None:
    """Returns, for each point, its coordinates in the order that puts those of largest extent in its cloud first, int64,
    (P, D); :obj:`None` where cells divide all coordinates."""
    if clouds.position.size(1) <= CELL_DIMENSIONS:
        return None
    return torch.cat(widest_axes(clouds), dim=1)[clouds.cloud.clamp(min=0).to(torch.int64)]
