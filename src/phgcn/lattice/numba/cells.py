r"""Cells of the near field: points sorted by the cell, as wide as the radius, that they lie in."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from ...exact.numba.pairs import coordinate_lines
from ...runtime.numba import kernel
from ...runtime.threads import run_rows
from ..coefficients import FADE_START, MultiScaleWeights
from ..levels import CELL_DIMENSIONS
from .keys import wrap_keys
from .locate import NOT_JOINED, Coordinates, cube_keys, with_extent
from .sorting import run_starts, sort_keys

ROWS = 8192
"""Least number of rows that a thread takes."""


class Cells(NamedTuple):
    r"""Points in the order of the cells, as wide as the near field's radius, that they lie in.

    Shapes:
        - **key:** the key of each cell, ascending, uint64, :math:`(B,)`
        - **start:** its first point, and the end of the last cell, int32, :math:`(B+1,)`
        - **point:** the number of each point, int32, :math:`(N,)`
        - **position:** coordinate by coordinate, :math:`(D', N)`, :math:`D'` the next multiple of four
    """

    key: np.ndarray
    start: np.ndarray
    point: np.ndarray
    position: np.ndarray

    def take(self, *tables: np.ndarray) -> np.ndarray:
        """Copies tables of all points, (N, C) each, side by side, in the order of the cells."""
        return take(self.point, *tables)


class NearField(NamedTuple):
    """The near field between targets and sources, the very same cells where points attend to themselves.

    Args:
        target, source (Cells): The points.
        row_key (np.ndarray): The keys of the offsets to the rows of cells around a cell, uint64, (R,).
        constants (np.ndarray): ``radius²``, ``1 / (radius² - fade_start²)``, decay rate ``g``, amplitudes ``A``.
        table (np.ndarray): Instead of the last two, what :func:`phgcn.lattice.numba.near.weigh_ladder_pairs` needs; else empty.
    """

    target: Cells
    source: Cells
    row_key: np.ndarray
    constants: np.ndarray
    table: np.ndarray

    def swapped(self) -> NearField:
        """Returns the same pairs with targets and sources exchanged."""
        return self._replace(target=self.source, source=self.target)


def find_cells(
    positions: Coordinates, first_query: int, fitted: MultiScaleWeights, level: int, starts: np.ndarray = NOT_JOINED
) -> NearField:
    """Sorts points into cells: the queries, from ``first_query`` on, are the targets; without queries all points are both.

    Args:
        positions (Coordinates): The points, and their extent.
        first_query (int): The number of the first query; 0 if there are none.
        fitted (MultiScaleWeights): The weights.
        level (int): The finest level used.
        starts (np.ndarray): The first points of joined clouds, if any.
    """
    radius = fitted.radius[level]
    fade = 1 / (radius**2 * (1 - FADE_START**2))
    constants = np.array([radius**2, fade, fitted.rate, *fitted.amplitude[level]], positions.w.dtype)
    return lay_cells(positions, first_query, radius, constants, np.empty(0, positions.w.dtype), starts)


def lay_cells(
    positions: Coordinates, first_query: int, radius: float, constants: np.ndarray, table: np.ndarray,
    starts: np.ndarray = NOT_JOINED,
) -> NearField:  # fmt: skip
    """Sorts points into cells as wide as the radius; see :func:`find_cells`."""
    points = positions.w
    dim = min(points.shape[1], CELL_DIMENSIONS)
    w, base, extent, apart = count_cells(positions, radius, starts)
    keys = wrap_keys(extent)
    prefix = np.array(list(itertools.product((-1, 0, 1), repeat=dim - 1)), np.int64).reshape(3 ** (dim - 1), -1)

    def cells(places: slice) -> Cells:
        cube = cube_keys(w[places], base, 1 / radius, keys)
        if len(apart) > 0:
            cube += apart.astype(np.uint64) * keys.multiplier[0]
        key, point = sort_keys(cube, keys.bits)
        start = run_starts(key)
        return Cells(key[start[:-1]], start, point, coordinate_lines(take(point, points[places])))

    if first_query == 0:
        both = cells(slice(None))
        return NearField(both, both, keys.of_prefix(prefix), constants, table)
    return NearField(cells(slice(first_query, None)), cells(slice(first_query)), keys.of_prefix(prefix), constants, table)


def count_cells(positions: Coordinates, radius: float, starts: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns the coordinates that cells are laid over, where cells count from, how many there are in each coordinate, and,
    where clouds are joined, what is added to the first coordinate of each point's cell."""
    positions = widest(positions, starts)
    if len(starts) == 0:
        base = (np.floor(positions.low / radius) - 1) * radius
        return positions.w, base, (positions.high - positions.low) / radius + 4, starts
    low, high = (bound.reduceat(positions.w, starts).astype(np.float64) for bound in (np.minimum, np.maximum))
    base, sizes = (np.floor(low / radius) - 1) * radius, np.diff(starts, append=len(positions.w))
    extent = (high - low) / radius + 4
    width = extent[:, 0].astype(np.int64) + 2
    apart, highest = np.cumsum(width) - width, extent.max(axis=0)
    highest[0] = width.sum()
    return positions.w - np.repeat(base, sizes, axis=0), np.zeros(len(highest)), highest, np.repeat(apart, sizes)


def widest(positions: Coordinates, starts: np.ndarray = NOT_JOINED) -> Coordinates:
    """Returns the coordinates of largest extent, ascending, of each joined cloud its own."""
    dim = positions.w.shape[1]
    if dim <= CELL_DIMENSIONS:
        return positions
    if len(starts) == 0:
        return positions.take(np.sort(np.argsort(positions.low - positions.high, kind="stable")[:CELL_DIMENSIONS]))
    low, high = (bound.reduceat(positions.w, starts).astype(np.float64) for bound in (np.minimum, np.maximum))
    extent = high - low
    axes = np.sort(np.argsort(-extent, axis=1, kind="stable")[:, :CELL_DIMENSIONS], axis=1)
    w = np.take_along_axis(positions.w, np.repeat(axes, np.diff(starts, append=len(positions.w)), axis=0), axis=1)
    return with_extent(w)


def take(index: np.ndarray, *tables: np.ndarray) -> np.ndarray:
    """Copies the rows of tables at the given places, side by side."""
    out, column = np.empty((len(index), sum(table.shape[1] for table in tables)), tables[0].dtype), 0
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
