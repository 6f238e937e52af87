"""Estimates the number of pairs in a near field from the points that share a cell."""

from __future__ import annotations

import torch
from torch import Tensor

from ..limits import mean_pairs_cell


def mean_pairs(keys: Tensor, queries: Tensor | None, radius: float) -> float:
    """Estimates the mean number of a query's keys within a radius: the keys in a cell of the ball's
    volume. The mean of all points is in the middle of a cell, so that a small cloud lies in one."""
    points = (keys if queries is None else torch.cat([keys, queries])).detach().double()
    cells = torch.floor((points - points.mean(dim=0)) / mean_pairs_cell(keys.size(1), radius) + 0.5)
    _, cell = torch.unique(cells, dim=0, return_inverse=True)
    key_count = torch.bincount(cell[: len(keys)], minlength=int(cell.max()) + 1).double()
    if queries is None:
        return float((key_count * (key_count - 1)).sum() / len(keys))
    query_count = torch.bincount(cell[len(keys) :], minlength=len(key_count)).double()
    return float((key_count * query_count).sum() / len(queries))
