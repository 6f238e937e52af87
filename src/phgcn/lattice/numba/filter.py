r"""The filter of all graphs and heads on the cores of the CPU: locate, index, splat, blur, slice, and the near field.

Graphs and heads go through their lattices one by one, each by the same steps as if it were alone, so that nothing beside it
can change a bit of its output.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...runtime.points import Gradients, OutputGradients, Points
from ...runtime.rows import pack_gradients, pack_points, unpack_gradients, unpack_output
from ...runtime.threads import parallel_zeros
from ..coefficients import multiscale_weights, separable_weights
from ..filter_call import FilterCall
from ..levels import FLOOR
from ..narrow import used_levels
from ..reference.filter import checked_groups
from ..scheme import Ladder, MultiScale, Separable
from .blur import blur_levels, blur_passes, level_stencils
from .cells import find_cells
from .clouds import Cloud, CloudGradients, find_clouds
from .index import Corners, Level, index, lay_out_levels, planned_vertices
from .ladder import ladder_gradients, ladder_sum
from .levels import choose_finest
from .locate import Frame, Simplices, kuhn_coordinates, locate, planned_simplices, self_gradients, self_weights
from .near import near_field
from .plan import plan_of_cloud, plan_shapes, unset, zero_plan
from .slice import add_position_gradients, add_self_term, slice_gradients, slice_rows
from .splat import splat

GAP = 4
"""A segment of vertices ends where the next one is further away: fewer, longer runs against empty rows."""

NO_GAP = 1
"""The gap where one pass of the blur reads what another wrote: an empty row would no longer be empty."""


def forward(points: Points, call: FilterCall, keep_plan: bool) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Returns output, normaliser and plan; see :class:`phgcn.lattice.filter_call.FilterBackend`."""
    groups = checked_groups(points, call)
    packed = pack_points(points, groups, call.normalise)
    plan = zero_plan(points, call.scheme) if keep_plan else []
    summed = parallel_zeros((*packed.queries.shape[:2], packed.rows.shape[2]), packed.rows.dtype)
    for cloud in find_clouds(points, packed, groups, call, plan, planned=False):
        rows, sums = packed.rows[cloud.head, cloud.key_slice], summed[cloud.head, cloud.query_slice]
        if cloud.is_one_point:
            sums += rows.sum(axis=0, dtype=np.float64)
        elif isinstance(call.scheme, Separable):
            separable(cloud, rows, sums, call.scheme)
        elif isinstance(call.scheme, Ladder):
            ladder_sum(cloud, rows, sums, call.scheme)
        else:
            multiscale(cloud, rows, sums, call.scheme)
        if call.normalise and not cloud.to_itself:
            _add_sum(rows, FLOOR / cloud.first_query, sums)
    return *unpack_output(summed, packed, points, groups, call.normalise), plan


def backward(upstream: OutputGradients, plan: list[Tensor], points: Points, call: FilterCall) -> Gradients:
    """Returns the gradients of positions, values and, in cross-attention, queries."""
    groups = checked_groups(points, call)
    packed = pack_points(points, groups, call.normalise)
    grads = pack_gradients(upstream, packed, groups, call.normalise)
    of_keys, of_rows = (parallel_zeros(array.shape, array.dtype) for array in packed[:2])
    of_queries = of_keys if points.queries is None else parallel_zeros(packed.queries.shape, packed.queries.dtype)
    for cloud in find_clouds(points, packed, groups, call, plan, planned=bool(plan)):
        k, q = (cloud.head, cloud.key_slice), (cloud.head, cloud.query_slice)
        rows, cloud_grads, into = packed.rows[k], grads[q], CloudGradients(of_keys[k], of_rows[k], of_queries[q])
        if cloud.is_one_point:
            into.rows[:] += cloud_grads.sum(axis=0, dtype=np.float64)
        elif isinstance(call.scheme, Separable):
            separable_gradients(cloud, rows, cloud_grads, into, call.scheme)
        elif isinstance(call.scheme, Ladder):
            ladder_gradients(cloud, rows, cloud_grads, into, call.scheme)
        else:
            multiscale_gradients(cloud, rows, cloud_grads, into, call.scheme)
        if call.normalise and not cloud.to_itself:
            _add_sum(cloud_grads, FLOOR / cloud.first_query, into.rows)
    return unpack_gradients(of_keys, of_rows, of_queries, points, groups, call.normalise)


# Parts of one cloud's filter


class Lattice(NamedTuple):
    """One lattice over one cloud: where its points lie, and the vertices of its levels, finest first."""

    frame: Frame
    simplices: Simplices
    corners: Corners
    levels: list[Level]

    @property
    def located(self) -> tuple[Simplices, Corners, Level]:
        """Where the points lie on the finest level."""
        return self.simplices, self.corners, self.levels[0]


def _add_sum(rows: np.ndarray, factor: float, out: np.ndarray) -> None:
    """Adds the sum of all rows, times a factor, to each row of ``out``."""
    if factor > 0:
        out += (factor * rows.sum(axis=0, dtype=np.float64)).astype(rows.dtype)


def _lattice(
    cloud: Cloud, number: int, finest: int, spacing: float, hops: tuple[int, ...], gap: int, origin_level: int = 0
) -> Lattice:
    """Lays a lattice over a cloud: fills in the plan, or reads it."""
    frame, plan = kuhn_coordinates(cloud.points, spacing, hops, number, cloud.starts, origin_level), cloud.plan[number]
    if not cloud.planned:
        locate(frame, finest, plan)
        index(frame, planned_simplices(plan), finest, plan)
    corners, vertices = planned_vertices(plan)
    levels = lay_out_levels(vertices, frame, range(finest, len(hops)), gap)
    return Lattice(frame, planned_simplices(plan), corners, levels)


# Nested lattices, the near field and the exact self term


def multiscale(cloud: Cloud, rows: np.ndarray, out: np.ndarray, scheme: MultiScale) -> None:
    """Filters through nested lattices, adds the near field of the finest one used, and the exact self term."""
    dim = cloud.points.shape[1]
    scheme, finest = used_levels(scheme, dim, _finest_level(cloud, scheme))
    fitted, stencils = multiscale_weights(scheme, dim), level_stencils(scheme, dim, finest)
    self_term = np.full(len(cloud.points), fitted.self_target(finest))
    for number in range(scheme.lattices):
        lattice = _lattice(cloud, number, finest, scheme.spacing, scheme.hops, GAP, scheme.origin_level)
        table = blur_levels(splat(rows, rows[:0, :0], 0, *lattice.located), lattice.levels, stencils)
        slice_rows(table, *lattice.located, cloud.first_query, out, is_first=number == 0)
        if cloud.to_itself:
            self_term -= self_weights(lattice.frame, self_tables(scheme, dim), finest, rows.dtype)
    _add_sum(rows, fitted.constant, out)
    if finest > 0:
        near = find_cells(cloud.positions, cloud.first_query, fitted, finest, cloud.starts)
        near_field(near, near.source.take(rows), out)
    if cloud.to_itself:
        add_self_term(self_term, cloud.copies.sum(rows), out)


def multiscale_gradients(cloud: Cloud, rows, grads, into: CloudGradients, scheme: MultiScale) -> None:
    """Adds the gradients of :func:`multiscale`.  The filter is symmetric: gradients go through it as values do."""
    dim = cloud.points.shape[1]
    scheme, finest = used_levels(scheme, dim, _finest_level(cloud, scheme))
    fitted, stencils = multiscale_weights(scheme, dim), level_stencils(scheme, dim, finest)
    self_term = np.full(len(cloud.points), fitted.self_target(finest))
    for number in range(scheme.lattices):
        lattice = _lattice(cloud, number, finest, scheme.spacing, scheme.hops, GAP, scheme.origin_level)
        table = blur_levels(splat(rows, grads, cloud.first_query, *lattice.located), lattice.levels, stencils)
        slope = slice_gradients(table, table, rows.shape[1], *lattice.located, rows, grads, cloud.first_query, into.rows)
        if cloud.to_itself:
            products = self_products(rows, grads, cloud.copies.sum(rows), cloud.copies.sum(grads))
            self_term -= self_gradients(lattice.frame, self_tables(scheme, dim), finest, *products, slope)
        _add_positions(cloud, slope, 0.5**finest * lattice.frame.matrix, into)
    _add_sum(grads, fitted.constant, into.rows)
    if cloud.to_itself:
        add_self_term(self_term, cloud.copies.sum(grads), into.rows)
    if finest > 0:
        near = find_cells(cloud.positions, cloud.first_query, fitted, finest, cloud.starts)
        if cloud.to_itself:
            products = near.target.take(grads, rows), near.source.take(rows, grads)
            near_field(near, near.source.take(grads), into.rows, *products, into.keys)
        else:
            of_rows, of_grads = near.source.take(rows), near.target.take(grads)
            near_field(near, target_rows=of_grads, source_rows=of_rows, grad=into.queries)
            near_field(near.swapped(), of_grads, into.rows, of_rows, of_grads, into.keys)


def self_products(
    rows: np.ndarray, grads: np.ndarray, copies_rows: np.ndarray, copies_grads: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows and gradients whose products the derivative of the self term is multiplied by: of a pair of copies, either
    point gets half.  What copies sum to is the rows themselves where there are none."""
    if copies_rows is rows:
        return rows, grads
    return rows.dtype.type(0.5) * np.hstack([copies_rows, rows]), np.hstack([grads, copies_grads])


def _finest_level(cloud: Cloud, scheme: MultiScale) -> int:
    """Returns what :func:`choose_finest` chooses: writes it into the plan, or reads it from there."""
    sizes = cloud.plan[0].sizes
    if not cloud.planned:
        sizes[0] = choose_finest(cloud, scheme)
    return int(sizes[0])


def self_tables(scheme: MultiScale, dim: int) -> np.ndarray:
    """Returns the stencil weights between vertices of one simplex, of all levels, for one of the averaged lattices."""
    return multiscale_weights(scheme, dim).simplex_tables(dim) / scheme.lattices


def _add_positions(cloud: Cloud, slope: np.ndarray, matrix: np.ndarray, into: CloudGradients) -> None:
    """Adds derivatives by Kuhn coordinates to the gradients of keys and queries."""
    add_position_gradients(slope[: len(into.keys)], matrix, into.keys)
    if not cloud.to_itself:
        add_position_gradients(slope[cloud.first_query :], matrix, into.queries)


# The paper's filter


def separable(cloud: Cloud, rows: np.ndarray, out: np.ndarray, scheme: Separable) -> None:
    """Filters as the paper does: one pass along each of the lattice's directions, over touched vertices only."""
    spacing, weights, scale = separable_weights(scheme, cloud.points.shape[1])
    lattice = _lattice(cloud, 0, 0, spacing, (len(weights) - 1,), NO_GAP)
    table = blur_passes(splat(rows, rows[:0, :0], 0, *lattice.located), lattice.levels[0], weights, scale, 1)
    slice_rows(table, *lattice.located, cloud.first_query, out, is_first=True)


def separable_gradients(cloud: Cloud, rows, grads, into: CloudGradients, scheme: Separable) -> None:
    """Adds the gradients of :func:`separable`.  Over touched vertices only, the passes do not commute: gradients take them in
    reverse."""
    spacing, weights, scale = separable_weights(scheme, cloud.points.shape[1])
    lattice = _lattice(cloud, 0, 0, spacing, (len(weights) - 1,), NO_GAP)
    values = blur_passes(splat(rows, rows[:0, :0], 0, *lattice.located), lattice.levels[0], weights, scale, 1)
    blurred = blur_passes(
        splat(rows[:0, :0], grads, cloud.first_query, *lattice.located), lattice.levels[0], weights, scale, -1
    )
    slope = slice_gradients(values, blurred, 0, *lattice.located, rows, grads, cloud.first_query, into.rows)
    _add_positions(cloud, slope, lattice.frame.matrix, into)


def separable_rows(points: np.ndarray, values: np.ndarray, spacing: float, weights: np.ndarray) -> np.ndarray:
    """Filters one cloud as the paper does with weights of one's own: what they are fitted with."""
    scheme = Separable(width=2 * len(weights) - 1, spacing=spacing, weights=tuple(weights))
    everything = slice(0, len(points))
    plan = unset(plan_shapes(torch.from_numpy(points).unsqueeze(1), 1, len(points), scheme))
    out = np.zeros_like(values)
    cloud = Cloud((0, everything, everything), points, 0, [plan_of_cloud(plan, 0, 0, 0, len(points))], False)
    separable(cloud, values, out, scheme)
    return out
