"""Estimates the number of pairs in a near field from the points that share a cell, in linear
time."""

from __future__ import annotations

import numpy as np

from ..limits import mean_pairs_cell
from .keys import choose_keys
from .locate import Coordinates, cube_keys, reduce_points
from .sorting import run_starts, sort_keys


def mean_pairs(points: Coordinates, first_query: int, radius: float, enough: int) -> float:
    """Estimates the mean number of a query's keys within a radius. Nothing is counted where they
    are surely more, or surely not more, than ``enough``."""
    (count, dim), to_itself = points.w.shape, first_query == 0
    side = mean_pairs_cell(dim, radius)
    corner = reduce_points(np.add, points.w) / count - side / 2
    low, high = (np.floor((edge - corner) / side) for edge in (points.low, points.high))
    if to_itself:
        if count - 1 <= enough:  # wherever they lie
            return float(count - 1)
        evenly = count / np.prod(high - low + 1) - 1
        if evenly > enough:  # however they are spread
            return float(evenly)
    base = low - 1
    keys = choose_keys(high - base + 1)
    cell = cube_keys(points.w, corner + base * side, 1 / side, keys)
    sorted_cell, index = sort_keys(cell, keys.bits)
    start = run_starts(sorted_cell)
    size = np.diff(start).astype(np.float64)
    if to_itself:
        return float((size * (size - 1)).sum() / count)
    of_keys = np.add.reduceat((index < first_query).astype(np.float64), start[:-1])
    return float((of_keys * (size - of_keys)).sum() / (count - first_query))
