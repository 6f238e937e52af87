r"""The finest level of a cloud, as :func:`phgcn.lattice.levels.finest_level` chooses it from estimated numbers of pairs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..coefficients import multiscale_weights
from ..levels import CANDIDATES, CELL_DIMENSIONS, finest_level, mean_pairs_cell
from ..narrow import narrow_step
from ..scheme import MultiScale
from .cells import widest
from .clouds import Cloud
from .keys import choose_keys
from .locate import Coordinates, cube_keys, reduce_points
from .sorting import run_starts, sort_keys


def choose_finest(cloud: Cloud, scheme: MultiScale) -> int:
    """Chooses the finest level of a cloud, or minus the step of a narrow one."""
    dim, positions = cloud.points.shape[1], cloud.positions
    fitted = multiscale_weights(scheme, dim)
    if len(cloud.starts) > 0:
        level = finest_level(scheme, fitted, lambda radius: 0.0)  # clouds are joined only if they have few points
    else:
        cells = widest(positions)
        level = finest_level(
            scheme, fitted, lambda radius: mean_pairs(positions, cloud.first_query, radius, scheme.pairs),
            (lambda radius: mean_pairs(cells, cloud.first_query, radius, CANDIDATES, dim)) if dim > CELL_DIMENSIONS else None,
        )  # fmt: skip
    return level if level > 0 else -narrow_step(scheme, positions.low, positions.high)


def mean_pairs(points: Coordinates, first_query: int, radius: float, enough: float = math.inf, dim: int | None = None) -> float:
    """Estimates how many keys a query has within a radius, on average: those that share a cell with the volume of the ball.

    The mean of all points is in the middle of a cell: a small cloud lies in one, and is not cut into :math:`2^D` parts.
    Where the pairs are surely more than ``enough``, or surely not, they are not counted.  Where ``points`` have only some of
    their coordinates, ``dim`` is the number of all.
    """
    grid = pair_grid(points, mean_position(points.w), radius, dim)
    sure = sure_pairs(grid, len(points.w), first_query == 0, enough)
    return pairs_in_cells(*cell_counts(points.w, first_query, grid)[1:], first_query == 0) if sure is None else sure


def mean_position(w: np.ndarray) -> np.ndarray:
    """Returns the mean of coordinates (P, D), in double precision."""
    return reduce_points(np.add, w) / len(w)


class PairGrid(NamedTuple):
    """Cells with the volume of a ball: their side, a corner of one, and the first and the last cell of all points, (D,)."""

    side: float
    corner: np.ndarray
    low: np.ndarray
    high: np.ndarray


def pair_grid(points: Coordinates, mean: np.ndarray, radius: float, dim: int | None = None) -> PairGrid:
    """Lays cells over points whose mean is in the middle of one; of ``points`` only the extent is looked at.  Where they have
    only some of their coordinates, ``dim`` is the number of all."""
    side = mean_pairs_cell(dim or len(mean), radius)
    corner = mean - side / 2
    low, high = (np.floor((edge - corner) / side) for edge in (points.low, points.high))
    return PairGrid(side, corner, low, high)


def sure_pairs(grid: PairGrid, count: int, to_itself: bool, enough: float) -> float | None:
    """Returns a number of pairs of ``count`` points that attend to themselves where it is surely above ``enough``, or surely
    not; else :obj:`None`."""
    if not to_itself:
        return None
    if count - 1 <= enough < math.inf:  # few enough wherever they lie
        return float(count - 1)
    cells = np.prod(grid.high - grid.low + 1)
    return float(count / cells - 1) if count / cells > enough + 1 else None  # however they are spread


def cell_counts(w: np.ndarray, first_query: int, grid: PairGrid) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts the points (P, D) of each cell: its key, uint64, and its keys and queries, float64, (B,); without queries all
    points are keys."""
    base = grid.low - 1
    keys = choose_keys(grid.high - base + 1)
    key, index = sort_keys(cube_keys(w, grid.corner + base * grid.side, 1 / grid.side, keys), keys.bits)
    start = run_starts(key)
    size = np.diff(start).astype(np.float64)
    if first_query == 0:
        return key[start[:-1]], size, np.zeros_like(size)
    of_keys = np.add.reduceat((index < first_query).astype(np.float64), start[:-1])
    return key[start[:-1]], of_keys, size - of_keys


def pairs_in_cells(keys: np.ndarray, queries: np.ndarray, to_itself: bool) -> float:
    """Returns how many keys of its own cell a query has on average, itself left out, from the counts of :func:`cell_counts`."""
    if to_itself:
        return float((keys * (keys - 1)).sum() / keys.sum())
    return float((keys * queries).sum() / queries.sum())
