"""One lattice per cloud: the simplices of points, and the maps from points to vertices and
back."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..geometry import kuhn_matrix
from .kernels import Kernels, Side
from .keys import Grid, of_cloud
from .moves import segments

Floats = NDArray[np.float64]


class Frame(NamedTuple):
    """The map from the positions of each cloud to Kuhn coordinates, ``matrix @ p / spacing +
    shift``.

    Args:
        spacing (np.ndarray): (B,), **shift** (np.ndarray): (B, D).
        low, high (np.ndarray): Boxes around all points, in Kuhn coordinates, (B, D).
    """

    spacing: Floats
    shift: Floats
    low: Floats
    high: Floats


def lay_frame(low: Floats, high: Floats, spacing: Floats, shift: Floats) -> Frame:
    """Maps the boxes (B, D) around points to boxes in Kuhn coordinates."""
    matrix = kuhn_matrix(low.shape[1]).numpy() / spacing[:, None, None]
    ends = matrix * low[:, None, :], matrix * high[:, None, :]
    lowest, highest = np.minimum(*ends).sum(axis=2) + shift, np.maximum(*ends).sum(axis=2) + shift
    return Frame(spacing, shift, lowest, highest)


class Located(NamedTuple):
    """Location of points.

    Args:
        key (torch.Tensor): The keys of the corners of each point's simplex, int64, (P, D+1).
        weight (torch.Tensor): Barycentric weights, float64, (P, D+1).
        raised (torch.Tensor): The coordinate between each corner and the one before, int64, (P, D).
    """

    key: Tensor
    weight: Tensor
    raised: Tensor

    def slopes(self, products: Tensor, cloud: Tensor, spacing: Tensor) -> Tensor:
        """Turns derivatives by barycentric weights, (P, D+1), into those by positions, (P, D)."""
        by_fraction = products[:, 1:] - products[:, :-1]
        by_coordinate = torch.zeros_like(by_fraction).scatter_(1, self.raised, by_fraction)
        by_position = _multiply(by_coordinate, kuhn_matrix(self.raised.size(1)))
        return by_position / of_cloud(spacing, cloud).unsqueeze(1)


def locate(side: Side, frame: Frame, grid: Grid) -> Located:
    position, cloud = side.position.double(), side.cloud
    spacing, shift = (
        torch.from_numpy(table).to(position.device) for table in (frame.spacing, frame.shift)
    )
    scaled = _multiply(position, kuhn_matrix(position.size(1)).T)
    w = scaled / of_cloud(spacing, cloud).unsqueeze(1) + of_cloud(shift, cloud)
    lowest = w.floor()
    fraction, raised = _sort_columns(w - lowest)
    step = of_cloud(1 << grid.shift, cloud).gather(1, raised)
    keys = [grid.pack(lowest.long(), cloud)]
    for column in step.unbind(1):
        keys.append(keys[-1] + column)
    ones, zeros = torch.ones_like(w[:, :1]), torch.zeros_like(w[:, :1])
    weight = torch.cat([ones, fraction], dim=1) - torch.cat([fraction, zeros], dim=1)
    return Located(torch.stack(keys, dim=1), weight, raised)


def _sort_columns(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Sorts each row's few numbers (P, D) in descending order, stably; returns them and their
    columns. A GPU sorts short rows slowly, so that each number counts those before it."""
    columns, rank = rows.unbind(1), torch.zeros_like(rows, dtype=torch.int64)
    for i, j in itertools.combinations(range(len(columns)), 2):
        later = columns[j] > columns[i]
        rank[:, i] += later
        rank[:, j] += ~later
    column = torch.arange(len(columns), device=rows.device)
    order = torch.empty_like(rank).scatter_(1, rank, column.expand_as(rank))
    return rows.gather(1, order), order


def _multiply(rows: Tensor, matrix: Tensor) -> Tensor:
    """Multiplies rows (P, D) by a matrix in an order of sums that their number does not change."""
    columns = [
        sum(rows[:, k] * float(matrix[k, j]) for k in range(len(matrix)))
        for j in range(matrix.size(1))
    ]
    return torch.stack(columns, dim=1)  # type: ignore[arg-type]


class Corners(NamedTuple):
    """The vertices of each point's simplex among all vertices.

    Args:
        vertex (torch.Tensor): The row index of each corner's vertex, int64, (P, D+1).
        weight (torch.Tensor): The barycentric weights, (P, D+1).
        order (torch.Tensor): The indices of all corners, sorted by vertex, (P (D+1),).
        start (torch.Tensor): The first of each vertex's corners in ``order``, (V+1,).
    """

    vertex: Tensor
    weight: Tensor
    order: Tensor
    start: Tensor

    def splat(self, rows: Tensor, kernels: Kernels) -> Tensor:
        """Adds each row (P, W), weighted, to the vertices of its point's simplex, (V, W)."""
        return kernels.sum_rows(
            rows, self.order // self.vertex.size(1), self.weight.flatten()[self.order], self.start
        )

    def slice(self, table: Tensor, kernels: Kernels) -> Tensor:
        """Interpolates a table (V, W) at each point by its barycentric weights, (P, W)."""
        return kernels.slice_rows(table, self.vertex, self.weight)

    def products(self, table: Tensor, rows: Tensor, kernels: Kernels) -> Tensor:
        """Computes dot products of rows (P, W) with their corners' rows, float64, (P, D+1)."""
        return kernels.multiply_rows(table, self.vertex, rows).double()


def find_corners(located: Located, key: Tensor, dtype: torch.dtype) -> Corners:
    vertex = torch.searchsorted(key, located.key)
    return Corners(vertex, located.weight.to(dtype), *segments(vertex.flatten(), len(key)))


def count_bytes(held: Any) -> int:
    """Counts the bytes of tensors in nested lists and tuples."""
    if isinstance(held, Tensor):
        return held.nbytes
    return sum(map(count_bytes, held)) if isinstance(held, (list, tuple)) else 0
