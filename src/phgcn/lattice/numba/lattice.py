r"""One lattice over one cloud of points: built once, then filters rows of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numba
import numpy as np

from ..geometry import kuhn_matrix, origin
from ..stencil import stencil
from . import blur, build
from .sorting import radix_sort, run_starts, runs

KEY_BITS = 63
MARGIN = 2
"""Free cells around all points and their stencils, so that no key borrows from another coordinate's bits."""


@dataclass(frozen=True)
class StencilRows:
    """A stencil, its offsets grouped into rows that share all but the last coordinate; weights are by orbit number."""

    prefix: np.ndarray
    low: np.ndarray
    length: np.ndarray
    orbit: np.ndarray


@dataclass
class Level:
    """The vertices of one level, sorted by key; the entries they are made of; the segments they lie in."""

    coordinate: np.ndarray
    source: np.ndarray
    start: np.ndarray
    site: np.ndarray
    sites: int
    parent: np.ndarray  # the site of each entry's vertex
    first: np.ndarray
    last: np.ndarray
    place: np.ndarray
    prefix: np.ndarray
    multiplier: np.ndarray
    hashed: bool


class Lattice:
    r"""A nested lattice: points enter at ``level``, and each coarser level is made from the one before.

    Args:
        points (np.ndarray): Positions in units of :math:`1/\lambda`, :math:`(N, D)`.
        spacing (float): The length of the shortest lattice vector of level 0.
        hops (sequence): How many hops the stencil of each level spans.
        weights (sequence): The stencil weight of each orbit, per level.
        level (int, optional): The finest level used. (default: :obj:`0`)
        shift (int, optional): Which of several averaged lattices. (default: :obj:`0`)
    """

    gap = 4
    """A segment of vertices ends where the next one is further away: fewer, longer runs against empty rows."""

    def __init__(
        self,
        points: np.ndarray,
        spacing: float,
        hops: Sequence[int],
        weights: Sequence[np.ndarray],
        level: int = 0,
        shift: int = 0,
    ) -> None:
        dim = points.shape[1]
        coarsest = 2 ** (len(hops) - 1)
        self.dim, self.dtype, self.scale = dim, points.dtype, 0.5**level
        self.hops, self.weights = hops[level:], weights[level:]
        self.matrix = kuhn_matrix(dim).numpy() / spacing
        self.w = build.kuhn_coordinates(points, self.matrix, origin(dim, shift).numpy() * coarsest)
        lowest, highest = build.extent(self.w)
        self.base = (np.floor(lowest / coarsest) - max(hops) - MARGIN) * coarsest
        self.extent = highest - self.base
        self.levels: list[Level] = []
        self._index_points()
        for _ in self.hops[1:]:
            self._coarsen()

    def _index_points(self) -> None:
        """Sorts the points by cube, and the corners that their simplices touch into vertices."""
        multiplier, bits, hashed = self._keys()
        key, index = sort_keys(build.cube_keys(self.w, self.base, self.scale, multiplier), bits)
        self.start = run_starts(key)
        weight = np.empty((len(key), self.dim + 1), self.dtype)
        order = build.locate(self.w, index, self.base, self.scale, weight)
        self.first = np.concatenate([[0], np.cumsum(build.count_corners(self.start, order))])
        entry_key, entry_coordinate, self.entry = build.list_corners(
            self.w, index, self.base, self.scale, self.start, order, key, multiplier, self.first
        )
        self._add_level(entry_key, entry_coordinate, multiplier, bits, hashed)
        self.simplices = blur.Simplices(index, order, build.take_runs(self.entry, self.levels[0].parent), weight)

    def _coarsen(self) -> None:
        multiplier, bits, hashed = self._keys()
        entry_key, entry_coordinate = build.parents(self.levels[-1].coordinate, multiplier)
        self._add_level(entry_key, entry_coordinate, multiplier, bits, hashed)

    def _keys(self) -> tuple[np.ndarray, int, bool]:
        """How coordinates of the next level count in its keys."""
        return multipliers(self.extent * self.scale * 0.5 ** len(self.levels) + max(self.hops) + MARGIN)

    def _add_level(self, entry_key, entry_coordinate, multiplier, bits, hashed) -> None:
        sorted_key, order = sort_keys(entry_key, bits)
        key, start, run = runs(sorted_key, order)
        coordinate = build.take_rows(entry_coordinate, order[start[:-1]])
        if hashed and not np.array_equal(entry_coordinate, coordinate[run]):
            raise RuntimeError("two lattice vertices have the same hash; change `spacing` slightly")
        site, head, sites = build.segments(key, coordinate, self.gap)
        source = build.take_halves(self.levels[-1].site, order) if self.levels else order
        self.levels.append(
            Level(
                coordinate, source, start, site, sites, build.take(site, run),
                first=key[head[:-1]], last=key[head[1:] - 1], place=site[head[:-1]], prefix=coordinate[head[:-1], :-1],
                multiplier=multiplier, hashed=hashed,
            )
        )  # fmt: skip

    def splat(self, rows: np.ndarray, others: np.ndarray, begin: int = 0) -> np.ndarray:
        """Rows of points to rows of the finest vertices: side by side, those of the first points and those of the points
        from ``begin`` on."""
        simplices, level = self.simplices, self.levels[0]
        corners = blur.splat(
            rows, others, begin, simplices.point, self.start, self.first, self.entry, simplices.weight
        )  # fmt: skip
        return blur.gather(corners, level.source, level.start, level.site, level.sites, 1.0)

    def filter(self, rows: np.ndarray, others: np.ndarray | None = None, begin: int = 0) -> np.ndarray:
        """Splats rows of values and blurs them on every level: the rows to slice from, one per finest vertex."""
        others = rows[:0, :0] if others is None else others
        tables, table = [], self.splat(rows, others, begin)
        for number, level in enumerate(self.levels):
            if number > 0:
                table = blur.gather(table, level.source, level.start, level.site, level.sites, 0.5)
            tables.append(np.empty_like(table))
            self.blur(number, table, direct_rows(self.dim, self.hops[number]), self.weights[number], tables[-1])
        for number in range(len(tables) - 1, 0, -1):
            site, parent = self.levels[number - 1].site, self.levels[number].parent
            blur.add_coarser(tables[number - 1], site, tables[number], parent)
        return tables[0]

    def blur(self, number: int, table: np.ndarray, rows: StencilRows, weights: np.ndarray, out: np.ndarray) -> None:
        """Blurs the rows of a level's vertices with a stencil, into ``out``."""
        level = self.levels[number]
        row_key = (rows.prefix.astype(np.uint64) * level.multiplier[:-1]).sum(axis=1, dtype=np.uint64)
        row_weight = np.append(weights, 0.0).astype(self.dtype)[rows.orbit]
        blur.blur(
            level.first, level.last, level.place, level.prefix, level.hashed, table,
            row_key, rows.prefix, rows.low, rows.length, row_weight, out,
        )  # fmt: skip

    def slice(self, table: np.ndarray, out: np.ndarray, factor: float = 1.0, begin: int = 0) -> None:
        """Adds to rows of points, as many from ``begin`` on as ``out`` has, what their simplices' vertices hold."""
        blur.slice_points(table, self.simplices, self.dtype.type(factor), begin, out)

    def slice_gradients(self, values, grads, column: int, factor: float, *given) -> None:
        """Adds to the gradients of rows and positions; see :func:`phgcn.lattice.numba.blur.slice_gradients`."""
        number, matrix = self.dtype.type(factor), self.scale * self.matrix
        blur.slice_gradients(values, grads, column, self.simplices, number, matrix, *given)


class SeparableLattice(Lattice):
    r"""A lattice blurred by passes along its :math:`D+1` directions, one after the other."""

    gap = 1  # an empty row would be filled by one pass and read by the next

    def __init__(self, points: np.ndarray, spacing: float, weights: np.ndarray) -> None:
        super().__init__(points, spacing, (len(weights) - 1,), (weights,))

    def filter(self, rows: np.ndarray, others: np.ndarray | None = None, begin: int = 0) -> np.ndarray:
        table = self.splat(rows, rows[:0, :0] if others is None else others, begin)
        return self._passes(table, range(self.dim + 1))

    def adjoint(self, rows: np.ndarray, begin: int) -> np.ndarray:
        """Filters the rows of the points from ``begin`` on with the transposed filter.  Over touched vertices only, the
        passes do not commute: the transpose takes them in reverse."""
        table = self.splat(rows[:0, :0], rows, begin)
        return self._passes(table, range(self.dim, -1, -1))

    def _passes(self, table: np.ndarray, directions: range) -> np.ndarray:
        other = np.empty_like(table)
        for direction in directions:
            self.blur(0, table, pass_rows(self.dim, self.hops[0], direction), self.weights[0], other)
            table, other = other, table
        return table


@lru_cache
def direct_rows(dim: int, hops: int) -> StencilRows:
    """The rows of the stencil of all offsets within a number of hops."""
    full = stencil(dim, hops)
    return _grouped(full.offsets, full.orbit)


@lru_cache
def pass_rows(dim: int, hops: int, direction: int) -> StencilRows:
    """The rows of a pass along one of the lattice's directions: a unit vector, or all ones."""
    step = np.ones(dim, np.int64) if direction == dim else np.eye(dim, dtype=np.int64)[direction]
    hop = np.arange(-hops, hops + 1)
    return _grouped(hop[:, None] * step, abs(hop))


def _grouped(offsets: np.ndarray, orbit: np.ndarray) -> StencilRows:
    """Groups offsets that differ only in their last coordinate, which has no gaps within a group."""
    groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for offset, number in zip(offsets.tolist(), orbit.tolist(), strict=True):
        groups.setdefault(tuple(offset[:-1]), []).append((offset[-1], number))
    keys = sorted(groups)
    longest = max(len(group) for group in groups.values())
    padded = [[number for _, number in sorted(groups[k])] + [-1] * (longest - len(groups[k])) for k in keys]
    return StencilRows(
        prefix=np.array(keys, np.int64).reshape(len(keys), -1),
        low=np.array([min(groups[k])[0] for k in keys], np.int64),
        length=np.array([len(groups[k]) for k in keys], np.int64),
        orbit=np.array(padded, np.int64),
    )


def multipliers(top: np.ndarray) -> tuple[np.ndarray, int, bool]:
    """What each coordinate counts in a key: its place in a packed key if all fit, else a hash that is linear too.

    Either way the key of v + d is the key of v plus that of d, and the last coordinate counts single steps.

    Returns:
        The multipliers, the bits to sort by, and whether keys are hashes.
    """
    bits = [int(t).bit_length() for t in top]
    if sum(bits) <= KEY_BITS:
        shifts = [sum(bits[j + 1 :]) for j in range(len(bits))]
        return np.array([1 << s for s in shifts], np.uint64), sum(bits), False
    odd = np.random.default_rng(len(bits)).integers(0, 2**63, len(bits), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    odd[-1] = 1
    return odd, 64, True


def sort_keys(keys: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Sorted keys, and the index that each had before."""
    return radix_sort(keys, bits, numba.get_num_threads())
