r"""The Numba backend: the filter of all graphs and heads, and its gradient, on the cores of the CPU.

Graphs and heads go through their lattices one by one, each by the same steps as if it were alone, so that nothing beside it
can change a bit of its output.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ...kernels.graphs import GraphGroups
from ...kernels.legacy import as_array, use_threads
from ...kernels.points import Gradients, Points
from ..coefficients import FADE_START, MultiScaleWeights, multiscale_weights, separable_weights
from ..levels import FLOOR, finest_level, mean_pairs_cell
from ..ops import FilterCall
from ..reference.filter import checked_groups
from ..scheme import MultiScale, Scheme, Separable
from . import build, rows
from .lattice import Lattice, SeparableLattice, multipliers, sort_keys
from .near import NearField
from .pairs import PairWeight
from .sorting import run_starts


def forward(points: Points, call: FilterCall, keep_plan: bool) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Returns output, normaliser and plan; see :class:`phgcn.lattice.ops.FilterBackend`."""
    groups = checked_groups(points, call)
    use_threads()
    positions, values, queries = (None if t is None else as_array(t) for t in points[:3])
    normalise = call.normalise
    targets = positions if queries is None else queries
    heads, channels = values.shape[1:]
    out = np.empty((len(targets), heads, channels), values.dtype)
    norm = np.empty((len(targets) if normalise else 0, heads), values.dtype)
    width = rows.padded(channels + normalise)
    keys = rows.pack_points(positions, groups.key_order)
    asked = keys if queries is None else rows.pack_points(queries, groups.query_order)
    packed = rows.pack_values(values, groups.key_order, normalise, width)
    summed = np.zeros((heads, len(targets), width), values.dtype)
    for head, k, q in _clouds(heads, groups, call):
        cloud = _cloud(keys[head, k], None if queries is None else asked[head, q], call.scheme, normalise)
        cloud.forward(packed[head, k], summed[head, q])
    rows.unpack_values(summed, groups.query_order, normalise, out, norm)
    return torch.from_numpy(out), torch.from_numpy(norm), []


def backward(grad: Tensor, out: Tensor, norm: Tensor, plan: list[Tensor], points: Points, call: FilterCall) -> Gradients:
    """Returns the gradients of positions, values and, in cross-attention, queries."""
    groups = checked_groups(points, call)
    use_threads()
    positions, values, queries = (None if t is None else as_array(t) for t in points[:3])
    normalise = call.normalise
    heads, channels = values.shape[1:]
    grad_positions, grad_values = np.empty_like(positions), np.empty_like(values)
    grad_queries = None if queries is None else np.empty_like(queries)
    width = rows.padded(channels + normalise)
    keys = rows.pack_points(positions, groups.key_order)
    asked = keys if queries is None else rows.pack_points(queries, groups.query_order)
    packed = rows.pack_values(values, groups.key_order, normalise, width)
    grads = rows.pack_gradients(as_array(grad), as_array(out), as_array(norm), groups.query_order, normalise, width)
    grad_rows, grad_keys = np.zeros_like(packed), np.zeros_like(keys)
    grad_asked = grad_keys if queries is None else np.zeros_like(asked)
    for head, k, q in _clouds(heads, groups, call):
        cloud = _cloud(keys[head, k], None if queries is None else asked[head, q], call.scheme, normalise)
        of_keys, of_asked = grad_keys[head, k], grad_asked[head, q]
        cloud.backward(packed[head, k], grads[head, q], grad_rows[head, k], of_keys, of_asked)
    rows.unpack_columns(grad_rows, groups.key_order, grad_values)
    rows.unpack_columns(grad_keys, groups.key_order, grad_positions)
    if queries is not None:
        rows.unpack_columns(grad_asked, groups.query_order, grad_queries)
    return Gradients(*(None if g is None else torch.from_numpy(g) for g in (grad_positions, grad_values, grad_queries)))


# One graph and head at a time


def _clouds(heads: int, groups: GraphGroups, call: FilterCall) -> Iterator[tuple[int, slice, slice]]:
    """Head, keys and queries of all that goes through a lattice."""
    for head in range(heads):
        for k, q in groups.slices(more_than=call.more_than):
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
        return (self.fitted.self_target(self.level) - given / len(self.lattices)).astype(self.points.dtype)

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
    return PairWeight(kind(radius), kind(FADE_START * radius), fitted.amplitude[level].astype(dtype), kind(fitted.rate))


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
