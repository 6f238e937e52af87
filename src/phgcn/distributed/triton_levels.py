r"""Agrees on what is decided for each cloud, from the points of all ranks: its bounds, its finest level, and its step if it is
narrow.

The decisions are those of one process (:func:`phgcn.lattice.levels.finest_level`, :func:`phgcn.lattice.narrow.narrow_step`).
Pairs are counted in cells.  What ranks have in a cell comes together on the rank that its hash belongs to, so that no rank
receives the cells of all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..lattice.coefficients import multiscale_weights
from ..lattice.levels import CANDIDATES, CELL_DIMENSIONS, mean_pairs_cell
from ..lattice.narrow import narrow_step, widest_narrow
from ..lattice.scheme import MultiScale, Scheme
from ..lattice.triton.bounds import cloud_bounds, divide_axes
from ..lattice.triton.rows import Rows
from ..lattice.triton.runs import LONG_RUN
from ..lattice.triton.splat import PointRows, sum_runs
from .collectives import Ranks
from .hashes import Homes, hash_columns
from .triton_clouds import Bools, Ints, RankClouds

Floats = NDArray[np.float64]


class CloudLevels(NamedTuple):
    """What ranks agree on for each cloud.

    Args:
        finest (np.ndarray): Its finest level, -1 where all its points coincide, int64, (clouds,).
        step (np.ndarray): Its step, 0 where it is not narrow, int64, (clouds,).
        axes (np.ndarray, optional): Its coordinates, those of largest extent first, int64, (clouds, D); :obj:`None` where cells
            of the near field divide all coordinates.
    """

    finest: Ints
    step: Ints
    axes: Ints | None

    def of(self, some: Bools, count: int) -> CloudLevels:
        """Selects some clouds, padded to ``count``."""
        padding = (0, count - int(some.sum()))
        axes = None if self.axes is None else np.pad(self.axes[some], (padding, (0, 0)))
        return CloudLevels(np.pad(self.finest[some], padding), np.pad(self.step[some], padding), axes)


def agree_on_levels(given: RankClouds, scheme: Scheme, ranks: Ranks) -> CloudLevels:
    """Chooses levels and steps as one process does."""
    (low, high), clouds, dim = _agree_on_bounds(given, ranks), given.clouds, given.clouds.position.size(1)
    present = given.totals > 0
    coincide = present & (low == high).all(axis=1) if clouds.to_itself else np.zeros_like(present)
    finest, step = np.where(coincide, -1, 0), np.zeros(clouds.count, np.int64)
    axes = None
    if dim > CELL_DIMENSIONS:
        axes = torch.cat(divide_axes(torch.from_numpy(low), torch.from_numpy(high)), dim=1).numpy()
    if isinstance(scheme, MultiScale):
        some = present & ~coincide
        if scheme.near_field is not None:
            finest[some] = scheme.near_field
        elif len(scheme.hops) > 1 and some.any():
            counter = _PairCounter(given, low, high, axes, ranks)
            finest[some] = counter.finest_levels(scheme, some)[some]
        narrow = some & (finest == 0) & (np.linalg.norm(high - low, axis=1) < widest_narrow(dim))
        for cloud in np.flatnonzero(narrow):
            step[cloud] = narrow_step(scheme, low[cloud], high[cloud])
    return CloudLevels(finest, step, axes)


def _agree_on_bounds(given: RankClouds, ranks: Ranks) -> tuple[Floats, Floats]:
    """Returns the lowest and the highest coordinates of each cloud on all ranks, (clouds, D); 0 where it has no points."""
    low, high = cloud_bounds(given.clouds)
    here = torch.from_numpy(given.has_points(ranks.rank)).to(low.device).unsqueeze(1)
    edges = ranks.max(torch.where(here, torch.cat([-low, high], dim=1), -torch.inf)).cpu().numpy()
    edges[given.totals == 0] = 0
    dim = low.size(1)
    return -edges[:, :dim], edges[:, dim:]


class _PairCounter:
    """Counts pairs of points of all ranks that share a cell.

    Args:
        given (RankClouds): The clouds.
        low, high (np.ndarray): Their bounds, (clouds, D).
        axes (np.ndarray, optional): See :class:`CloudLevels`.
        ranks (Ranks): The processes.
    """

    def __init__(self, given: RankClouds, low: Floats, high: Floats, axes: Ints | None, ranks: Ranks) -> None:
        self.given, self.low, self.high, self.axes, self.ranks = given, low, high, axes, ranks
        clouds, position = given.clouds, given.clouds.position.double()
        self.position, self.cloud = position, clouds.cloud.to(torch.int64)
        rows, sizes = PointRows(Rows(position, *position.shape)), clouds.sizes
        sums = sum_runs(rows, clouds.order, sizes.start, clouds.count, sizes.largest > LONG_RUN, position)  # in a fixed order
        self.mean: Floats = ranks.sum(sums.main).cpu().numpy() / np.maximum(given.totals, 1)[:, None]

    def finest_levels(self, scheme: MultiScale, some: Bools) -> Ints:
        """Chooses the finest level of some clouds: the coarsest that has, as all finer ones, few enough pairs."""
        dim, levels = self.low.shape[1], np.zeros(len(some), np.int64)
        every, widest = np.ones_like(self.low), np.zeros_like(self.low)
        if self.axes is not None:
            np.put_along_axis(widest, self.axes[:, :CELL_DIMENSIONS], 1.0, axis=1)
        few = some
        for level, radius in enumerate(multiscale_weights(scheme, dim).radius[1:], start=1):
            side = mean_pairs_cell(dim, radius)
            few = self._have_few(few, side, every, scheme.pairs)
            if self.axes is not None:
                few = self._have_few(few, side, widest, CANDIDATES)
            if not few.any():
                break
            levels[few] = level
        return levels

    def _have_few(self, some: Bools, side: float, has_cells: Floats, limit: int) -> Bools:
        """Tells which of some clouds have at most ``limit`` keys in a query's cell on average; cells are laid over the
        coordinates that have 1 in ``has_cells``, (clouds, D)."""
        totals, to_itself = self.given.totals, self.given.clouds.to_itself
        counted: Bools = some.copy()
        if to_itself:  # more points than so many in each cell that there may be: nothing to count
            first, last = (np.floor((edge - self.mean) * has_cells / side + 0.5) for edge in (self.low, self.high))
            counted &= totals <= (limit + 1) * np.prod(last - first + 1, axis=1)
        if not counted.any():
            return counted
        pairs = self._count_pairs(counted, side, has_cells)
        queries = totals if to_itself else self.given.queries.sum(axis=0)
        few: Bools = counted & (pairs / np.maximum(queries, 1) <= limit)
        return few

    def _count_pairs(self, counted: Bools, side: float, has_cells: Floats) -> Ints:
        """Counts the pairs of a key and a query, of all ranks, that share a cell, (clouds,)."""
        device, clouds = self.position.device, self.given.clouds
        wanted, mean, has = (torch.from_numpy(array).to(device) for array in (counted, self.mean, has_cells))
        points = ((self.cloud >= 0) & wanted[self.cloud.clamp(min=0)]).nonzero().squeeze(1)
        cloud = self.cloud[points]
        cells = torch.floor((self.position[points] - mean[cloud]) * has[cloud] / side + 0.5).to(torch.int64)
        codes, place = torch.unique(hash_columns([cloud, *cells.unbind(1)]), return_inverse=True)
        keys = points < clouds.sources
        rows = [codes, _one_of_each(place, cloud, len(codes)), _count(place[keys], len(codes))]
        if not clouds.to_itself:
            rows.append(_count(place[~keys], len(codes)))
        arrived = Homes(codes, self.ranks).send(torch.stack(rows, dim=1))
        codes, place = torch.unique(arrived[:, 0], return_inverse=True)
        totals = torch.zeros(len(codes), arrived.size(1) - 2, dtype=torch.int64, device=device)
        totals.index_add_(0, place, arrived[:, 2:])
        pairs = totals[:, 0] * (totals[:, 0] - 1 if clouds.to_itself else totals[:, 1])
        in_cloud = torch.zeros(clouds.count, dtype=torch.int64, device=device)
        in_cloud.index_add_(0, _one_of_each(place, arrived[:, 1], len(codes)), pairs)
        found: Ints = self.ranks.sum_in_place(in_cloud).cpu().numpy()
        return found


def _count(place: Tensor, size: int) -> Tensor:
    """Counts how often each place occurs; integers, whose sum has no order."""
    return torch.zeros(size, dtype=torch.int64, device=place.device).index_add_(0, place, torch.ones_like(place))


def _one_of_each(place: Tensor, numbers: Tensor, size: int) -> Tensor:
    """Returns the number of each place, which all entries of a place share."""
    return torch.zeros(size, dtype=torch.int64, device=place.device).scatter_(0, place, numbers)
