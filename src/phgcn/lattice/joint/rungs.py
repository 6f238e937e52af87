"""Chooses the ladders of all clouds as :func:`phgcn.lattice.ladder.choose_rung` does for one.

The choice depends only on the points of all processes. Sums over points are whole numbers, so that
neither the order of points nor their division among processes changes a bit."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..ladder import LEAST, QUARTILES, Rung, log_rung
from ..limits import mean_pairs_cell
from ..scheme import Ladder
from .kernels import Peers, Side
from .keys import Ints, bit_widths, of_cloud

Floats = NDArray[np.float64]


class Points(NamedTuple):
    """All points, keys before queries: the first ``keys`` of ``side``, float64. ``to_itself`` is
    True where keys attend to themselves."""

    side: Side
    keys: int
    to_itself: bool


class Survey(NamedTuple):
    """Boxes of all clouds, float64, (B, D), and numbers of keys and queries, int64, (B,)."""

    low: Floats
    high: Floats
    keys: Ints
    queries: Ints


def survey(points: Points, keys: Ints, queries: Ints, peers: Peers) -> Survey:
    """Finds the boxes of clouds with these numbers of keys and queries."""
    (position, cloud), dim = points.side, points.side.position.size(1)
    edges = position.new_full((len(keys), 2 * dim), -math.inf)
    both = torch.cat([-position, position], dim=1)
    if len(keys) == 1 and len(both) > 0:  # many points in one row of a scatter wait for each other
        edges[0] = both.amax(dim=0)
    else:
        edges.scatter_reduce_(0, cloud.unsqueeze(1).expand_as(both), both, "amax")
    edge = peers.max(edges).cpu().numpy()
    return Survey(-edge[:, :dim], edge[:, dim:], keys, queries)


def choose_rungs(points: Points, found: Survey, scheme: Ladder, peers: Peers) -> list[Rung]:
    dim, count = found.low.shape[1], len(found.keys)
    diameter = np.maximum(np.linalg.norm(found.high - found.low, axis=1), LEAST)
    extent = np.ceil(np.log2(diameter)).astype(int).tolist()
    width = np.maximum(middle_width(points, found, peers), LEAST).tolist()
    finest = [scheme.finest_spacing(w, e, dim) for w, e in zip(width, extent, strict=True)]
    spacing, near = list(finest), [False] * count
    active = [cloud for cloud in range(count) if scheme.pairs > 0]
    mean = mean_position(points, found, peers)
    while active:
        radius = [scheme.reach * 2 ** ((spacing[cloud] + 1) / 4) for cloud in active]
        pairs = mean_pairs(points, found, mean, active, radius, scheme.pairs, peers)
        few = [cloud for cloud, number in zip(active, pairs, strict=True) if number <= scheme.pairs]
        for cloud in few:
            spacing[cloud], near[cloud] = spacing[cloud] + 1, True
        active = [cloud for cloud in few if spacing[cloud] < scheme.coarsest_spacing(extent[cloud])]
    for cloud in range(count):
        too_coarse = scheme.is_too_coarse(finest[cloud], width[cloud], dim)
        if scheme.pairs > 0 and too_coarse and not near[cloud]:
            spacing[cloud], near[cloud] = scheme.coarsest_spacing(extent[cloud]), True
    rungs = [
        Rung(s, e, scheme.reach if n else 0.0)
        for s, e, n in zip(spacing, extent, near, strict=True)
    ]
    for cloud, rung in enumerate(rungs):

        def near_pairs(radius: float, cloud: int = cloud) -> float:
            return mean_pairs(points, found, mean, [cloud], [radius], scheme.pairs, peers)[0]

        log_rung(int(found.keys[cloud]), rung, near_pairs)
    return rungs


# Order statistics


def middle_width(points: Points, found: Survey, peers: Peers) -> Floats:
    total = found.keys if points.to_itself else found.keys + found.queries
    low, high = peers.select(points.side, np.stack([total // 4, 3 * total // 4]), total)
    width: Floats = np.sort((high - low) / QUARTILES, axis=1)[:, (low.shape[1] - 1) // 2]
    return width


# Pairs


def mean_position(points: Points, found: Survey, peers: Peers) -> Floats:
    """Computes the mean position of each cloud, (B, D), from sums of whole numbers."""
    (position, cloud), device = points.side, points.side.position.device
    total = found.keys if points.to_itself else found.keys + found.queries
    extent = np.where(found.high > found.low, found.high - found.low, 1.0)
    unit = extent / 2.0 ** (61 - np.ceil(np.log2(total + 1.0)))[:, None]
    low, per_unit = (torch.from_numpy(table).to(device) for table in (found.low, 1 / unit))
    whole = ((position - of_cloud(low, cloud)) * of_cloud(per_unit, cloud)).round().long()
    sums = torch.zeros(low.shape, dtype=torch.int64, device=device).index_add_(0, cloud, whole)
    mean: Floats = found.low + peers.sum(sums).cpu().numpy() / total[:, None] * unit
    return mean


def mean_pairs(
    points: Points,
    found: Survey,
    mean: Floats,
    clouds: list[int],
    radius: list[float],
    enough: int,
    peers: Peers,
) -> list[float]:
    """Estimates the mean number of a query's keys within a radius, for some clouds. Clouds with at
    most ``enough`` keys beside a query are not counted."""
    most = found.keys - points.to_itself
    pairs = dict(zip(clouds, most[clouds].astype(float).tolist(), strict=True))
    counted = [number for number, cloud in enumerate(clouds) if pairs[cloud] > enough]
    if counted:
        chosen = np.array(clouds)[counted]
        side = np.array([mean_pairs_cell(mean.shape[1], radius[number]) for number in counted])
        grid = [
            (table[chosen] - mean[chosen]) / side[:, None] + 0.5
            for table in (found.low, found.high)
        ]
        edges = np.floor(grid[0]) - 1, np.floor(grid[1]) + 1
        sums = count_pairs(points, len(mean), chosen, mean[chosen], side, edges, peers)
        pairs |= dict(zip(chosen.tolist(), (sums / found.queries[chosen]).tolist(), strict=True))
    return [pairs[cloud] for cloud in clouds]


def count_pairs(
    points: Points,
    count: int,
    clouds: Ints,
    mean: Floats,
    side: Floats,
    cells: tuple[Floats, Floats],
    peers: Peers,
) -> Ints:
    """Counts the pairs of a key and a query in the same cell, for some of ``count`` clouds.

    Args:
        clouds (np.ndarray): Their numbers, (B,).
        mean, side (np.ndarray): A corner of the cells is half a side below the mean, (B, D) and
            (B,).
        cells (tuple): The first and the last cell of each cloud, (B, D).
    """
    (position, cloud), device = points.side, points.side.position.device
    number = torch.full((count,), -1, dtype=torch.int64)
    number[torch.from_numpy(clouds)] = torch.arange(len(clouds))
    group, is_key = of_cloud(number.to(device), cloud), torch.arange(len(cloud), device=device)
    is_key = is_key < points.keys
    if len(clouds) < count:
        some = (group >= 0).nonzero().squeeze(1)
        position, group, is_key = position[some], group[some], is_key[some]
    low, middle, width = (
        of_cloud(torch.from_numpy(table).to(device), group)
        for table in (cells[0], mean, side[:, None])
    )
    cell = (torch.floor((position - middle) / width + 0.5) - low).long()
    bits = bit_widths((cells[1] - cells[0] + 1).astype(np.int64))
    shift = torch.from_numpy(bits.sum(axis=1, keepdims=True) - bits.cumsum(axis=1)).to(device)
    key, order = torch.sort((cell << of_cloud(shift, group)).sum(dim=1), stable=True)
    group, is_key = group[order], is_key[order]
    if len(clouds) > 1:
        group, order = torch.sort(group, stable=True)
        key, is_key = key[order], is_key[order]
    begins = torch.ones_like(is_key)
    begins[1:] = (key[1:] != key[:-1]) | (group[1:] != group[:-1])
    first = begins.nonzero().squeeze(1)
    index = begins.cumsum(0) - 1
    keys = torch.zeros_like(first).index_add_(0, index, is_key.long())
    queries = (
        keys if points.to_itself else torch.zeros_like(first).index_add_(0, index, (~is_key).long())
    )
    total = peers.sum_by_key(group[first], key[first], keys.unsqueeze(1)).squeeze(1) - int(
        points.to_itself
    )
    sums = torch.zeros(len(clouds), dtype=torch.int64, device=device).index_add_(
        0, group[first], queries * total
    )
    counted: Ints = peers.sum(sums).cpu().numpy()
    return counted
