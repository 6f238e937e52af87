"""Points sorted by cells of the near field, which are as wide as the radius."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...exact.numba.pairs import coordinate_lines
from ...kernels import Kernel
from ...runtime.numba import kernel
from ...runtime.threads import run_rows
from ..ladder import FADE_START
from ..limits import CELL_DIMENSIONS
from .keys import wrap_keys
from .locate import Coordinates, cube_keys
from .sorting import run_starts, sort_keys

ROWS = 8192  # least number of rows that a thread takes


class Cells(NamedTuple):
    """Points sorted by cell.

    Shapes:
        - **key:** the key of each cell, ascending, uint64, :math:`(B,)`
        - **start:** the sorted index of each cell's first point, then :math:`N`, int32,
          :math:`(B+1,)`
        - **point:** the index of each sorted point in the cloud, int32, :math:`(N,)`
        - **position:** coordinates of the sorted points, :math:`(D', N)`, :math:`D'` the next
          multiple of four
    """

    key: np.ndarray
    start: np.ndarray
    point: np.ndarray
    position: np.ndarray

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns keys, starts and positions."""
        return self.key, self.start, self.position

    def take(self, *tables: np.ndarray) -> np.ndarray:
        """Copies tables (N, C) of all points side by side, in the order of the cells."""
        return take(self.point, *tables)


class NearField(NamedTuple):
    """The near field between targets and sources, one object where points attend to themselves.

    Args:
        target, source (Cells): The points.
        row_key (np.ndarray): The keys of the offsets to the rows of cells around a cell, uint64,
            (R,).
        constants (np.ndarray): ``radius²`` and ``1 / (radius² - fade_start²)``.
        table (np.ndarray): Kernel and polynomial; see :func:`phgcn.lattice.numba.near.weigh_pairs`.
    """

    target: Cells
    source: Cells
    row_key: np.ndarray
    constants: np.ndarray
    table: np.ndarray

    def swapped(self) -> NearField:
        """Exchanges targets and sources."""
        return self._replace(target=self.source, source=self.target)


def lay_cells(
    positions: Coordinates,
    first_query: int,
    radius: float,
    function: Kernel,
    polynomial: Sequence[float],
) -> NearField:
    """Sorts points into cells as wide as ``radius``. Targets are the points from ``first_query``
    on, or all points without queries."""
    points, square = positions.w, radius**2
    constants = np.array([square, 1 / (square * (1 - FADE_START**2))], points.dtype)
    numbers = (function.rate, *function.coefficients, function.power, *polynomial)
    table = np.array(numbers, points.dtype)
    dim = min(points.shape[1], CELL_DIMENSIONS)
    grid = widest(positions)
    base, extent = (np.floor(grid.low / radius) - 1) * radius, (grid.high - grid.low) / radius + 4
    keys = wrap_keys(extent)
    prefix = np.array(list(itertools.product((-1, 0, 1), repeat=dim - 1)), np.int64).reshape(
        3 ** (dim - 1), -1
    )

    def cells(indices: slice) -> Cells:
        cube = cube_keys(grid.w[indices], base, 1 / radius, keys)
        key, point = sort_keys(cube, keys.bits)
        start = run_starts(key)
        return Cells(key[start[:-1]], start, point, coordinate_lines(take(point, points[indices])))

    if first_query == 0:
        both = cells(slice(None))
        return NearField(both, both, keys.of_prefix(prefix), constants, table)
    return NearField(
        cells(slice(first_query, None)),
        cells(slice(first_query)),
        keys.of_prefix(prefix),
        constants,
        table,
    )


def widest(positions: Coordinates) -> Coordinates:
    """Returns the coordinates of largest extent, ascending."""
    w, low, high = positions
    if w.shape[1] <= CELL_DIMENSIONS:
        return positions
    axes = np.sort(np.argsort(low - high, kind="stable")[:CELL_DIMENSIONS])
    return Coordinates(np.ascontiguousarray(w[:, axes]), low[axes], high[axes])


def take(index: np.ndarray, *tables: np.ndarray) -> np.ndarray:
    """Copies rows of tables at some indices, side by side."""
    width, column = sum(table.shape[1] for table in tables), 0
    out = np.empty((len(index), width), tables[0].dtype)
    for table in tables:
        run_rows(take_rows, len(index), ROWS, index, table, column, out)
        column += table.shape[1]
    return out


@kernel("int64, int64, int32[::1], real[:, ::1], uint64, real[:, ::1]")
def take_rows(begin, end, index, table, column, out):
    """Copies rows, ``out[a] = table[index[a]]``, to columns from ``column`` on."""
    for a in range(begin, end):
        p = index[a]
        for c in range(np.uint64(table.shape[1])):
            out[a, column + c] = table[p, c]
