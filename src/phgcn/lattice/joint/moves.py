"""The moves of the ladder for all clouds together: from the vertices of one step to the next, and
back.

Vertices are sorted by key, so that one search of sorted keys finds the neighbours along a
direction, and every move is a gather. Clouds with more steps come first: clouds that go on are the
first rows of every table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .kernels import Kernels
from .keys import Grid, of_cloud

MARGIN = 8  # free vertices below and above all points on every level: smoothing reaches at most six


class Smoothing(NamedTuple):
    """A pass of A along one direction: every vertex gives half to itself and half to its neighbour.

    Args:
        own, neighbour (torch.Tensor): The rows of a target's sources in the table before, its end
            for none, int32, (V',).
        first, second (torch.Tensor): The rows of a source's targets in the table behind, int32,
            (V,).
    """

    own: Tensor
    neighbour: Tensor
    first: Tensor
    second: Tensor

    def up(self, table: Tensor, kernels: Kernels) -> Tensor:
        return kernels.average_rows(table, self.own, self.neighbour)

    def down(self, table: Tensor, kernels: Kernels) -> Tensor:
        return kernels.average_rows(table, self.first, self.second)


class Halving(NamedTuple):
    """R: every vertex gives half to either parent.

    Args:
        source (torch.Tensor): The rows of the sources of all targets, target by target from
            ``start`` on, int64, (2V,).
        start (torch.Tensor): int64, (V'+1,).
        first, second (torch.Tensor): The rows of a source's targets in the table behind, int32,
            (V,).
    """

    source: Tensor
    start: Tensor
    first: Tensor
    second: Tensor

    def up(self, table: Tensor, kernels: Kernels) -> Tensor:
        return kernels.sum_rows(table, self.source, None, self.start).mul_(0.5)

    def down(self, table: Tensor, kernels: Kernels) -> Tensor:
        return kernels.average_rows(table, self.first, self.second)


class Step(NamedTuple):
    """A step of the ladder.

    Args:
        moves (list): The moves to it from the first ``rows`` rows of the step before.
        rows (int): The number of rows of the step before that go on.
        key, cloud (torch.Tensor): The keys and clouds of its vertices, int64, (V,).
    """

    moves: list[Smoothing | Halving]
    rows: int
    key: Tensor
    cloud: Tensor


# Index


def window(low: np.ndarray, high: np.ndarray, device: torch.device, margin: int = MARGIN) -> Grid:
    """Lays windows around the boxes of all clouds, (B, D), with free vertices on all sides."""
    base = np.floor(low) - margin
    size = np.ceil(high) - base + margin + 2
    return Grid(base.astype(np.int64), size.astype(np.int64), device)


def find_steps(
    key: Tensor, low: np.ndarray, high: np.ndarray, counts: list[int], kernels: Kernels
) -> list[Step]:
    """Finds the vertices and moves of all steps.

    Args:
        key (torch.Tensor): The sorted keys of touched vertices, in ``window(low, high)``.
        low, high (np.ndarray): The boxes of all clouds in Kuhn coordinates of level 0, (B, D).
        counts (list): Each cloud's number of steps, descending.
    """
    grid, steps = window(low, high, key.device), []
    dim = low.shape[1]
    directions = [*np.eye(dim, dtype=np.int64).tolist(), [-1] * dim]
    for step in range(1, counts[0]):
        going_on = sum(count > step for count in counts)
        rows = len(key)
        if going_on < len(counts):
            rows = int(torch.searchsorted(key, grid.first[going_on]))
            counts, low, high = counts[:going_on], low[:going_on], high[:going_on]
        key = key[:rows]
        moves: list[Smoothing | Halving] = []
        for offset in grid.offsets(directions):
            *smoothing, key = kernels.merge_keys(key, of_cloud(offset, grid.cloud(key)))
            moves.append(Smoothing(*smoothing))
        if step % 2 == 0:
            low, high = low / 2, high / 2
            coarser = window(low, high, key.device)
            halving, key = find_halving(key, grid, coarser)
            moves.append(halving)
            grid = coarser
        steps.append(Step(moves, rows, key, grid.cloud(key)))
    return steps


def merge_keys(key: Tensor, offset: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    union = torch.unique(torch.cat([key, key + offset]))
    first, second = (torch.searchsorted(union, some) for some in (key, key + offset))
    numbers = torch.arange(len(key), dtype=torch.int32, device=key.device)
    none = torch.full_like(union, len(key), dtype=torch.int32)
    own, neighbour = (none.index_copy(0, index, numbers) for index in (first, second))
    return own, neighbour, first.int(), second.int(), union


def find_halving(key: Tensor, finer: Grid, coarser: Grid) -> tuple[Halving, Tensor]:
    """Finds the parents of vertices; returns the move and the parents' sorted keys."""
    cloud = finer.cloud(key)
    x = finer.unpack(key, cloud)
    parents = torch.cat([coarser.pack(x >> 1, cloud), coarser.pack((x + 1) >> 1, cloud)])
    union, parent = torch.unique(parents, return_inverse=True)
    order, start = segments(parent, len(union))
    return Halving(order % len(key), start, *parent.int().view(2, -1)), union


def segments(index: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Sorts entries by index; returns their order and each index's first, (count + 1,)."""
    ordered, order = torch.sort(index, stable=True)
    return order, torch.searchsorted(ordered, torch.arange(count + 1, device=index.device))


# Reduce and expand


def reduce(table: Tensor, steps: list[Step], kernels: Kernels) -> list[Tensor]:
    """Takes the table of step 0 up the ladder; returns the tables of all further steps."""
    tables = []
    for step in steps:
        table = table[: step.rows]
        for move in step.moves:
            table = move.up(table, kernels)
        tables.append(table)
    return tables


def expand(
    tables: list[Tensor], steps: list[Step], weight: Tensor, rows: int, kernels: Kernels
) -> Tensor:
    """Weighs the tables of the steps from 1 on by ``weight`` (B, S), and moves them down to a table
    of step 0 with ``rows`` rows."""
    total = tables[-1][:0]
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        here = tables[number] * of_cloud(weight[:, number + 1], step.cloud).unsqueeze(1)
        here[: len(total)] += total
        for move in reversed(step.moves):
            here = move.down(here, kernels)
        total = here
    return torch.cat([total, total.new_zeros(rows - len(total), total.size(1))])


# The paper's passes


def blur_passes(
    table: Tensor, key: Tensor, grid: Grid, weights: np.ndarray, backwards: bool, kernels: Kernels
) -> Tensor:
    """Takes the passes of the paper's filter over touched vertices."""
    dim, count, reach = grid.shift.size(1), len(key), len(weights) - 1
    directions = [*np.eye(dim, dtype=np.int64).tolist(), [1] * dim]
    hops = torch.arange(-reach, reach + 1, device=key.device)
    weight = torch.from_numpy(weights).to(table)[hops.abs()].expand(count, -1).contiguous()
    cloud = grid.cloud(key)
    for offset in grid.offsets(directions[::-1] if backwards else directions):
        wanted = key.unsqueeze(1) + hops * of_cloud(offset, cloud).unsqueeze(1)
        index = torch.searchsorted(key, wanted).clamp(max=count - 1)
        padded = torch.cat([table, torch.zeros_like(table[:1])])
        table = kernels.slice_rows(padded, torch.where(key[index] == wanted, index, count), weight)
    return table
