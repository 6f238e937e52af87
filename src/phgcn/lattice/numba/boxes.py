r"""Boxes around points, and how many points lie in each part of a box; as :mod:`phgcn.lattice.reference.boxes`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...runtime.numba import as_array, kernel
from ...runtime.threads import run_rows

PART = 16384
"""Points of a part: parts are looked at side by side."""


def bounding_boxes(points: Tensor, cloud: Tensor, clouds: int) -> tuple[Tensor, Tensor]:
    """Finds the lowest and the highest coordinates of each cloud."""
    parts = _count_parts(len(points))
    low = np.full((parts, clouds, points.size(1)), np.inf)
    high = -low
    run_rows(find_bounds, parts, 1, as_array(points), as_array(cloud), low, high)
    return torch.from_numpy(low.min(axis=0)), torch.from_numpy(high.max(axis=0))


def count_in_bins(points: Tensor, cloud: Tensor, low: Tensor, scale: Tensor, bins: int) -> Tensor:
    """Counts the points of each cloud by coordinate and bin."""
    counts = np.zeros((_count_parts(len(points)), *low.shape, bins), np.int64)
    run_rows(add_to_bins, len(counts), 1, as_array(points), as_array(cloud), as_array(low), as_array(scale), counts)
    return torch.from_numpy(counts.sum(axis=0))


def _count_parts(points: int) -> int:
    return max(1, min(torch.get_num_threads(), points // PART))


@kernel("int64, int64, real[:, ::1], int64[::1], float64[:, :, ::1], float64[:, :, ::1]")
def find_bounds(begin, end, points, cloud, low, high):
    """Finds the lowest and the highest coordinates of each cloud in each of the parts ``begin`` to ``end``."""
    for part in range(begin, end):
        for i in range(part * len(points) // len(low), (part + 1) * len(points) // len(low)):
            if cloud[i] >= 0:
                for d in range(points.shape[1]):
                    low[part, cloud[i], d] = min(low[part, cloud[i], d], points[i, d])
                    high[part, cloud[i], d] = max(high[part, cloud[i], d], points[i, d])


@kernel("int64, int64, real[:, ::1], int64[::1], float64[:, ::1], float64[:, ::1], int64[:, :, :, ::1]")
def add_to_bins(begin, end, points, cloud, low, scale, counts):
    """Counts the points of each of the parts ``begin`` to ``end``."""
    bins = counts.shape[3]
    for part in range(begin, end):
        for i in range(part * len(points) // len(counts), (part + 1) * len(points) // len(counts)):
            if cloud[i] >= 0:
                for d in range(points.shape[1]):
                    number = int((points[i, d] - low[cloud[i], d]) * scale[cloud[i], d])
                    counts[part, cloud[i], d, min(number, bins - 1)] += 1
