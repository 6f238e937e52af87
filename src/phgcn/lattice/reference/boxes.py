r"""Boxes around points, and how many points lie in each part of a box."""

from __future__ import annotations

import torch
from torch import Tensor


def bounding_boxes(points: Tensor, cloud: Tensor, clouds: int) -> tuple[Tensor, Tensor]:
    r"""Finds the lowest and the highest coordinates of each cloud.

    Shapes:
        - **points:** :math:`(P, D)`; **cloud:** the cloud of each, -1 for points that are left out, int64, :math:`(P,)`
        - **output:** float64, :math:`(\text{clouds}, D)` each, infinite and minus infinite without points
    """
    is_left = cloud >= 0
    points, index = points[is_left].double(), cloud[is_left].unsqueeze(1).expand(-1, points.size(1))
    infinite = points.new_full((clouds, points.size(1)), torch.inf)
    return infinite.scatter_reduce(0, index, points, "amin"), (-infinite).scatter_reduce(0, index, points, "amax")


def count_in_bins(points: Tensor, cloud: Tensor, low: Tensor, scale: Tensor, bins: int) -> Tensor:
    r"""Counts the points of each cloud by coordinate and bin, :math:`\lfloor (x - \text{low}) \cdot \text{scale} \rfloor`.

    Shapes:
        - **points:** :math:`(P, D)`; **cloud:** the cloud of each, -1 for points that are left out, int64, :math:`(P,)`
        - **low**, **scale:** float64, :math:`(\text{clouds}, D)`
        - **output:** int64, :math:`(\text{clouds}, D, \text{bins})`
    """
    is_left, (clouds, dim) = cloud >= 0, low.shape
    cloud = cloud[is_left]
    bin_number = ((points[is_left].double() - low[cloud]) * scale[cloud]).long().clamp_max(bins - 1)
    coordinate = cloud.unsqueeze(1) * dim + torch.arange(dim, device=cloud.device)
    counts = torch.bincount((coordinate * bins + bin_number).flatten(), minlength=clouds * dim * bins)
    return counts.view(clouds, dim, bins)
