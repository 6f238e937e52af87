r"""The Numba backend: the filter of all graphs and heads, and its gradient, on the cores of the CPU.

Graphs and heads go through their lattices one by one, each by the same steps as if it were alone, so that nothing beside it
can change a bit of its output.  Those that are summed exactly share one parallel loop, since most are small.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...compile import use_threads
from ..coefficients import FLAT, MultiScaleWeights, multiscale_weights, separable_weights
from ..groups import FLOOR, Groups, finest_level, mean_pairs_cell, summed_exactly
from ..scheme import MultiScale, Scheme, Separable
from . import build, rows
from .lattice import Lattice, SeparableLattice, multipliers, sort_keys
from .near import NearField
from .pairs import TARGETS, PairWeight, all_pairs, coordinate_lines, nearest
from .sorting import run_starts


def forward(
    positions: np.ndarray, values: np.ndarray, queries: np.ndarray | None, groups: Groups, scheme: Scheme, normalise: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The filter; arrays are (N, H, D), (N, H, C) and, in cross-attention, (M, H, D).  Returns output and normaliser."""
    use_threads()
    targets = positions if queries is None else queries
    heads, channels = values.shape[1:]
    out = np.empty((len(targets), heads, channels), values.dtype)
    norm = np.empty((len(targets) if normalise else 0, heads), values.dtype)
    width = rows.padded(channels + normalise)
    keys = rows.pack_points(positions, groups.key_order)
    asked = keys if queries is None else rows.pack_points(queries, groups.query_order)
    packed = rows.pack_values(values, groups.key_order, normalise, width)
    summed = np.zeros((heads, len(targets), width), values.dtype)
    _exact(keys, asked, packed, summed, groups, scheme, normalise and queries is not None)
    for head, k, q in _clouds(heads, groups, scheme):
        cloud = _cloud(keys[head, k], None if queries is None else asked[head, q], scheme, normalise)
        cloud.forward(packed[head, k], summed[head, q])
    rows.unpack_values(summed, groups.query_order, normalise, out, norm)
    return out, norm


def backward(
    grad: np.ndarray,
    out: np.ndarray,
    norm: np.ndarray,
    positions: np.ndarray,
    values: np.ndarray,
    queries: np.ndarray | None,
    groups: Groups,
    scheme: Scheme,
    normalise: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The gradients of positions, values and, in cross-attention, queries."""
    use_threads()
    heads, channels = values.shape[1:]
    grad_positions, grad_values = np.empty_like(positions), np.empty_like(values)
    grad_queries = None if queries is None else np.empty_like(queries)
    width = rows.padded(channels + normalise)
    keys = rows.pack_points(positions, groups.key_order)
    asked = keys if queries is None else rows.pack_points(queries, groups.query_order)
    packed = rows.pack_values(values, groups.key_order, normalise, width)
    grads = rows.pack_gradients(grad, out, norm, groups.query_order, normalise, width)
    grad_rows, grad_keys = np.zeros_like(packed), np.zeros_like(keys)
    grad_asked = grad_keys if queries is None else np.zeros_like(asked)
    far = normalise and queries is not None
    _exact_backward(keys, asked, packed, grads, grad_rows, grad_keys, grad_asked, groups, scheme, far)
    for head, k, q in _clouds(heads, groups, scheme):
        cloud = _cloud(keys[head, k], None if queries is None else asked[head, q], scheme, normalise)
        of_keys, of_asked = grad_keys[head, k], grad_asked[head, q]
        cloud.backward(packed[head, k], grads[head, q], grad_rows[head, k], of_keys, of_asked)
    rows.unpack_columns(grad_rows, groups.key_order, grad_values)
    rows.unpack_columns(grad_keys, groups.key_order, grad_positions)
    if queries is not None:
        rows.unpack_columns(grad_asked, groups.query_order, grad_queries)
    return grad_positions, grad_values, grad_queries


# Exact sums of all graphs and heads at once


def _blocks(heads: int, groups: Groups, scheme: Scheme, swapped: bool = False) -> np.ndarray:
    """Few targets each of the graphs that are summed exactly, and the range of their sources; points are numbered through
    all heads."""
    found = []
    for k, q in groups.slices():
        if summed_exactly(scheme, k.stop - k.start, q.stop - q.start):
            t, s = (k, q) if swapped else (q, k)
            found += [(a, min(a + TARGETS, t.stop), s.start, s.stop) for a in range(t.start, t.stop, TARGETS)]
    keys, asked = len(groups.key_order), len(groups.query_order)
    step = [keys, keys, asked, asked] if swapped else [asked, asked, keys, keys]
    one = np.array(found, np.int64).reshape(-1, 4)
    return (np.arange(heads)[:, None, None] * np.array(step) + one).reshape(-1, 4)


def _law(dtype: np.dtype) -> PairWeight:
    return PairWeight(dtype.type(np.inf), dtype.type(np.inf), np.empty(0, dtype), dtype.type(0))


def _shift(blocks: np.ndarray, asked: np.ndarray, sources: np.ndarray, far: bool) -> np.ndarray:
    """What to add to the exponents of each query's weights: where no weight is surely 1, the distance to the nearest key,
    so that a query far from all of them does not sum zeros."""
    shift = np.zeros(len(asked), asked.dtype)
    if far:
        nearest(blocks, asked, sources, shift)
    return np.where(np.isfinite(shift), shift, 0)


def _exact(keys, asked, packed, summed, groups: Groups, scheme: Scheme, far: bool) -> None:
    blocks = _blocks(len(keys), groups, scheme)
    if len(blocks) == 0:
        return
    sources, none = coordinate_lines(_flat(keys)), np.empty((0, 0), keys.dtype)
    targets = sources.T.copy() if asked is keys else coordinate_lines(_flat(asked)).T.copy()
    shift, zero = _shift(blocks, targets, sources, far), np.zeros(sources.shape[1], keys.dtype)
    law = _law(keys.dtype)
    all_pairs(blocks, targets, shift, sources, zero, law, _flat(packed), _flat(summed), none, none, none)


def _exact_backward(keys, asked, packed, grads, grad_rows, grad_keys, grad_asked, groups, scheme, far: bool) -> None:
    blocks = _blocks(len(keys), groups, scheme)
    if len(blocks) == 0:
        return
    packed, grads, grad_rows, grad_keys = _flat(packed), _flat(grads), _flat(grad_rows), _flat(grad_keys)
    law, none, zero = _law(keys.dtype), np.empty((0, 0), keys.dtype), np.zeros(len(packed), keys.dtype)
    of_keys = coordinate_lines(_flat(keys))
    if asked is keys:
        own, other = rows.beside(grads, packed), rows.beside(packed, grads)
        all_pairs(blocks, of_keys.T.copy(), zero, of_keys, zero, law, grads, grad_rows, own, other, grad_keys)
        return
    of_asked = coordinate_lines(_flat(asked))
    shift = _shift(blocks, of_asked.T.copy(), of_keys, far)
    all_pairs(blocks, of_asked.T.copy(), shift, of_keys, zero, law, none, none, grads, packed, _flat(grad_asked))
    blocks = _blocks(len(keys), groups, scheme, swapped=True)
    all_pairs(blocks, of_keys.T.copy(), zero, of_asked, shift, law, grads, grad_rows, packed, grads, grad_keys)


def _flat(table: np.ndarray) -> np.ndarray:
    """The rows of all heads as one table, the same memory."""
    return table.reshape(table.shape[0] * table.shape[1], table.shape[2])


# One graph and head at a time


def _clouds(heads: int, groups: Groups, scheme: Scheme) -> Iterator[tuple[int, slice, slice]]:
    """Head, keys and queries of all that goes through a lattice."""
    for head in range(heads):
        for k, q in groups.slices():
            if not summed_exactly(scheme, k.stop - k.start, q.stop - q.start):
                yield head, k, q


def _cloud(keys, queries, scheme: Scheme, normalise: bool):
    """The filter of one cloud of points."""
    lone = len(keys) == 0 or (queries is not None and len(queries) == 0)
    if lone:
        return _NoCloud()
    low, high = build.extent(keys)
    if queries is None and np.array_equal(low, high):
        return _PointCloud()
    if isinstance(scheme, Separable):
        return _SeparableCloud(keys, queries, scheme, normalise)
    assert isinstance(scheme, MultiScale)
    return _MultiScaleCloud(keys, queries, scheme, normalise)


class _NoCloud:
    """No keys or no queries: nothing to sum."""

    def forward(self, packed, summed) -> None:
        pass

    def backward(self, packed, grads, grad_rows, grad_keys, grad_queries) -> None:
        pass


class _PointCloud:
    """All points are one: every weight is 1."""

    def forward(self, packed, summed) -> None:
        summed += packed.sum(axis=0)

    def backward(self, packed, grads, grad_rows, grad_keys, grad_queries) -> None:
        grad_rows += grads.sum(axis=0)


class _Cloud:
    """What the lattice filters share: in cross-attention, keys and queries are one list of points, and the queries are
    those from ``begin`` on; in attention of a cloud to itself, all points are both."""

    def __init__(self, keys, queries, normalise: bool) -> None:
        self.keys, self.queries = keys, queries
        self.points = keys if queries is None else np.concatenate([keys, queries])
        self.begin = 0 if queries is None else len(keys)
        self.floor = FLOOR if normalise and queries is not None else 0.0

    def _add_floor(self, given, summed) -> None:
        if self.floor:
            summed += (self.floor / len(self.keys) * given.sum(axis=0)).astype(given.dtype)


class _SeparableCloud(_Cloud):
    """The paper's filter."""

    def __init__(self, keys, queries, scheme: Separable, normalise: bool) -> None:
        super().__init__(keys, queries, normalise)
        spacing, weights, self.scale = separable_weights(scheme, keys.shape[1])
        self.lattice = SeparableLattice(self.points, spacing, weights)

    def forward(self, packed, summed) -> None:
        self.lattice.slice(self.lattice.filter(packed), summed, self.scale, self.begin)
        self._add_floor(packed, summed)

    def backward(self, packed, grads, grad_rows, grad_keys, grad_queries) -> None:
        values, gradients = self.lattice.filter(packed), self.lattice.adjoint(grads, self.begin)
        given = packed, grads, self.begin, grad_rows, grad_keys, grad_queries
        self.lattice.slice_gradients(values, gradients, 0, self.scale, np.empty((0, 0)), *given)
        self._add_floor(grads, grad_rows)


def separable_rows(points: np.ndarray, values: np.ndarray, spacing: float, weights: np.ndarray) -> np.ndarray:
    """The paper's filter of one cloud with weights of one's own: what they are fitted with."""
    lattice = SeparableLattice(points, spacing, weights)
    out = np.zeros_like(values)
    lattice.slice(lattice.filter(values), out)
    return out


class _MultiScaleCloud(_Cloud):
    """Nested lattices, the exact self term and the near field."""

    def __init__(self, keys, queries, scheme: MultiScale, normalise: bool) -> None:
        super().__init__(keys, queries, normalise)
        self.fitted = multiscale_weights(scheme, keys.shape[1])
        self.level = finest_level(scheme, self.fitted, lambda radius: mean_pairs(keys, queries, radius, scheme.pairs))
        self.tables = self.fitted.simplex_tables(keys.shape[1])[self.level :]
        self.lattices = [
            Lattice(self.points, scheme.spacing, scheme.hops, self.fitted.weights, self.level, shift)
            for shift in range(scheme.lattices)
        ]

    def _near_field(self, targets, sources) -> NearField:
        return NearField(targets, sources, _near_law(self.fitted, self.level, sources.dtype))

    def _self_terms(self) -> np.ndarray:
        """What is added to each point's weight on itself."""
        given = np.zeros(len(self.points))
        once = np.empty(len(self.points))
        for lattice in self.lattices:
            build.self_weights(lattice.w, lattice.base, lattice.scale, self.tables, once)
            given += once
        return (self.fitted.own(self.level) - given / len(self.lattices)).astype(self.points.dtype)

    def forward(self, packed, summed) -> None:
        for lattice in self.lattices:
            lattice.slice(lattice.filter(packed), summed, 1 / len(self.lattices), self.begin)
        if self.level > 0:
            targets = self.keys if self.queries is None else self.queries
            self._near_field(targets, self.keys).add(packed, summed)
        if self.queries is None:
            rows.add_scaled(summed, self._self_terms(), packed)
        self._add_floor(packed, summed)

    def backward(self, packed, grads, grad_rows, grad_keys, grad_queries) -> None:
        given = packed, grads, self.begin, grad_rows, grad_keys, grad_queries
        for lattice in self.lattices:
            table = lattice.filter(packed, grads, self.begin)
            own = self._self_slopes(lattice, packed, grads)
            lattice.slice_gradients(table, table, packed.shape[1], 1 / len(self.lattices), own, *given)
        if self.queries is None:
            rows.add_scaled(grad_rows, self._self_terms(), grads)
        if self.level > 0:
            self._near_backward(packed, grads, grad_rows, grad_keys, grad_queries)
        self._add_floor(grads, grad_rows)

    def _self_slopes(self, lattice: Lattice, packed, grads) -> np.ndarray:
        """The derivative of the self terms by the points' Kuhn coordinates; none in cross-attention."""
        if self.queries is not None:
            return np.empty((0, 0))
        slopes = np.empty(self.points.shape)
        build.self_weights_backward(lattice.w, lattice.base, lattice.scale, self.tables, packed, grads, slopes)
        return slopes

    def _near_backward(self, packed, grads, grad_rows, grad_keys, grad_queries) -> None:
        if self.queries is None:
            near = self._near_field(self.keys, self.keys)
            near.add(grads, grad_rows, rows.beside(grads, packed), rows.beside(packed, grads), grad_keys)
            return
        self._near_field(self.queries, self.keys).add(own=grads, products=packed, grad=grad_queries)
        self._near_field(self.keys, self.queries).add(grads, grad_rows, packed, grads, grad_keys)


def _near_law(fitted: MultiScaleWeights, level: int, dtype: np.dtype) -> PairWeight:
    radius, kind = fitted.radius[level], dtype.type
    return PairWeight(kind(radius), kind(FLAT * radius), fitted.amplitude[level].astype(dtype), kind(fitted.rate))


def mean_pairs(keys: np.ndarray, queries: np.ndarray | None, radius: float, enough: float) -> float:
    """About how many keys a query has within a radius, on average: how many share a cell with the volume of the ball.

    The mean of all points is in the middle of a cell: a small cloud lies in one, and is not cut into :math:`2^D` parts.
    Where the pairs are surely more than ``enough``, the number of cells tells, and they are not counted.
    """
    side = mean_pairs_cell(keys.shape[1], radius)
    points = keys if queries is None else np.concatenate([keys, queries])
    corner = points.mean(axis=0, dtype=np.float64) - side / 2
    low, high = (np.floor((edge - corner) / side) for edge in build.extent(points))
    if queries is None:
        cells = np.prod(high - low + 1)
        if len(keys) / cells > enough + 1:  # however they are spread
            return len(keys) / cells - 1
    base = low - 1
    multiplier, bits, _ = multipliers(high - base + 1)
    key, index = sort_keys(build.cube_keys(points, corner + base * side, 1 / side, multiplier), bits)
    start = run_starts(key)
    count = np.diff(start).astype(np.float64)
    if queries is None:
        return float((count * (count - 1)).sum() / len(keys))
    of_keys = np.add.reduceat((index < len(keys)).astype(np.float64), start[:-1])
    return float((of_keys * (count - of_keys)).sum() / len(queries))
