r"""The Triton backend: the filter of all graphs and heads, and its gradient, on a GPU.

All clouds go through the same launches, whatever they are beside.  The host learns how many vertices there are, together with
all else that it must know, in one read of the forward pass; the backward pass reads nothing from the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import torch
from torch import Tensor

from ...checks import check_values
from ...runtime.graphs import find_graphs
from ...runtime.points import Gradients, OutputGradients, Points
from ...runtime.triton import device_of
from ..filter_call import FilterCall
from ..levels import FLOOR
from ..limits import position_limit
from ..reference.filter import checked_groups
from ..scheme import MultiScale, Scheme, Separable
from .blur import SLAB, Neighbours, blur, neighbour_slabs
from .bounds import widest_first
from .cells import CellPoints, NearLevel, near_level, sort_by_cell
from .clouds import Clouds, find_clouds
from .copies import Copies, add_copies, add_copies_gradients, find_copies
from .index import coarsen
from .lattices import Lattice, Lattices, make_plan
from .meeting import Meeting
from .narrow import backward_parts, choose_steps, forward_parts, planned_steps
from .near import near_field, near_gradients
from .plan import COINCIDENT, COPIES, FAR, NARROW, NOT_FINITE, empty_plan, read_plan
from .rows import Rows, gradient_rows, new_rows, pad_channels
from .slice import add_coarser, slice_gradients, slice_rows
from .splat import PointRows, splat, sum_clouds
from .stencils import Stencil

COARSE_NUMBERS = 1 << 29
"""The host reads how many coarser vertices there are if a table for the upper bound would have more numbers than this, and more
than the table of the finest vertices."""


def forward(
    points: Points, call: FilterCall, keep_plan: bool, meeting: Meeting | None = None
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Returns output, normaliser and plan; see :class:`phgcn.lattice.filter_call.FilterBackend`.

    Values may have a half type; sums, and the normaliser, are in the type of the positions.  Other processes have points too
    where there is a ``meeting``."""
    if (padded := pad_channels(points.values)) is not points.values:
        out, norm, outputs = forward(points._replace(values=padded), call, keep_plan, meeting)
        return out[:, :, : points.values.size(2)].contiguous(), norm, outputs
    out, norm = points.new_output(call.normalise)
    filtered, clouds = list_clouds(points, call) if meeting is None else (meeting.filtered, meeting.clouds)
    limit = position_limit(points.positions.size(2), call.scheme)
    if clouds is None or not all(filtered):
        out.zero_()
        norm.zero_()
    if clouds is None:
        check_values(*points[:3])
        return out, norm, [t.zero_() for t in empty_plan(points, call.scheme)] if keep_plan else []
    with device_of(out):
        values = _value_rows(points.values, call.normalise)
        if meeting is None:
            plan, keys = make_plan(clouds, call.scheme, keep_plan, limit, values.data)
        else:
            plan, keys = meeting.make_plan(clouds, call.scheme), meeting.keys
        lattices = Lattices(plan, call.scheme, clouds, meeting)
        if lattices.flags[FAR] or lattices.flags[NOT_FINITE]:
            checked_groups(points, call)  # names the number
        if any(steps := _narrow_steps(lattices, call.scheme)):
            return forward_parts(forward, points, clouds, call, steps, keep_plan)
        cloud_rows = _cloud_rows(lattices, PointRows(values), call.normalise)
        blur_levels = separable if isinstance(call.scheme, Separable) else multiscale
        added, target_count = None, out.size(0) * out.size(1)
        for number, vertex_key in enumerate(keys):
            lattice = lattices.lattice(number, vertex_key)
            table = blur_levels(lattice, PointRows(values))
            if number == 0:
                added = _near_sums(lattices, values, table, target_count)
            if number == len(keys) - 1:
                coincident = lattices.only_coincident
                slice_rows(table, lattice.points, values.data, cloud_rows, added, out, norm, call.normalise, coincident)
            else:
                sums = new_rows(table.data, target_count, table.channels, table.extras)
                slice_rows(table, lattice.points, values.data, None, added, sums.data, sums.extra, False)
                added = sums
        if lattices.flags[COPIES]:
            add_copies(_copies(clouds, meeting), plan, values, out, norm, call.normalise)
    return out, norm, plan.as_outputs() if keep_plan else []


def backward(
    upstream: OutputGradients, plan: list[Tensor], points: Points, call: FilterCall, meeting: Meeting | None = None
) -> Gradients:
    """Returns the gradients of positions, values and, in cross-attention, queries."""
    positions, values, queries = points[:3]
    if (padded := pad_channels(values)) is not values:
        upstream = upstream._replace(grad=pad_channels(upstream.grad), out=pad_channels(upstream.out))
        grads_of = backward(upstream, plan, points._replace(values=padded), call, meeting)
        return grads_of._replace(values=grads_of.values[:, :, : values.size(2)].contiguous())
    if meeting is None:
        filtered, clouds = list_clouds(points, call, plan[3] if plan else None)
    else:
        filtered, clouds = meeting.filtered, meeting.clouds
    if clouds is None:
        grad_queries = None if queries is None else queries.new_zeros(queries.shape)
        return Gradients(positions.new_zeros(positions.shape), values.new_zeros(values.shape), grad_queries)
    with device_of(values):
        if plan and isinstance(call.scheme, MultiScale) and any(steps := planned_steps(plan, clouds, call.scheme)):
            return backward_parts(backward, upstream, points, clouds, call, steps)
        made = read_plan(plan) if plan else make_plan(clouds, call.scheme, True, torch.inf, None)[0]
        lattices = Lattices(made, call.scheme, clouds, meeting)
        if not plan and any(steps := _narrow_steps(lattices, call.scheme)):
            return backward_parts(backward, upstream, points, clouds, call, steps)
        # Slices add to what the near field wrote; a sum of several parts is rounded to a half type once, at the end.
        several_parts = len(lattices.counts) > 1 or any(lattices.levels)
        make = torch.empty if all(filtered) and len(lattices.levels) <= 1 else torch.zeros
        grad_points = make(clouds.position.shape, dtype=positions.dtype, device=values.device)
        value_dtype = positions.dtype if several_parts else values.dtype
        grad_values = make(values.shape, dtype=value_dtype, device=values.device)
        grads = gradient_rows(upstream, call.normalise)
        rows = PointRows(_value_rows(values, call.normalise), grads, clouds.first_query)
        cloud_rows = _cloud_rows(lattices, rows, call.normalise)
        blur_levels = separable if isinstance(call.scheme, Separable) else multiscale
        for number in range(len(lattices.counts)):
            lattice = lattices.lattice(number, None if meeting is None else meeting.keys[number])
            table = blur_levels(lattice, rows)
            if number == 0:
                _near_gradients(lattices, rows.values, grads, grad_values, grad_points)
            add, last = any(lattices.levels) or number > 0, number == len(lattices.counts) - 1
            coincident = lattices.only_coincident
            slice_gradients(
                table, lattice.points, rows, cloud_rows if last else None, add, grad_values, grad_points, coincident
            )
        if lattices.flags[COPIES]:
            copies, lattice_map = _copies(clouds, meeting), lattices.constants.lattice_map
            add_copies_gradients(copies, made, lattice_map, rows, grad_values, grad_points)
    grad_sources = grad_points[: clouds.sources].view(positions.shape)
    if queries is None:
        return Gradients(grad_sources, grad_values.to(values.dtype), None)
    # An op's outputs may not share memory.
    grad_queries = grad_points[clouds.sources :].view(queries.shape).clone()
    return Gradients(grad_sources.clone(), grad_values.to(values.dtype), grad_queries)


def list_clouds(points: Points, call: FilterCall, cloud: Tensor | None = None) -> tuple[list[bool], Clouds | None]:
    """Tells which graphs are filtered, and lists the points; none where nothing is to be filtered."""
    query_count = None if points.queries is None else points.queries.size(0)
    graphs = find_graphs(points.positions.size(0), points.batch, query_count, points.query_batch)
    filtered = graphs.within(more_than=call.more_than)
    if points.empty or not any(filtered):
        return filtered, None
    with device_of(points.positions):
        return filtered, find_clouds(points, graphs, filtered, cloud)


def _narrow_steps(lattices: Lattices, scheme: Scheme) -> list[int]:
    """Chooses the steps of narrow clouds; reads from the device only if the survey found some."""
    if not lattices.flags[NARROW] or not isinstance(scheme, MultiScale):
        return []
    return choose_steps(lattices.plan, lattices.clouds, scheme)


def _value_rows(values: Tensor, normalise: bool) -> Rows:
    """Returns the rows of the sources; their extra column is all ones."""
    return Rows(values.contiguous(), values.size(0) * values.size(1), values.size(2), ones=normalise)


# Splat and blur


def multiscale(lattice: Lattice, rows: PointRows) -> Rows:
    """Splats rows and blurs them through nested lattices: on the level of the finest vertices and, through coarser ones, on all
    others.  Returns the rows of the finest vertices; see :func:`splat`."""
    (widest,), vertices, layout = lattice.constants.stencils, lattice.vertices, lattice.layout
    table = lattice.splat(rows)  # first of all, to keep the device busy after the host has read the vertex counts
    out = new_rows(table.data, table.count, table.channels, table.extras)
    for stencil, within in _finest_stencils(lattice):
        for neighbours in neighbour_slabs(vertices, stencil.rows, layout, within):
            blur(table, neighbours, vertices, stencil, out)
    if not lattice.counts.levels or min(lattice.counts.levels) == lattice.constants.levels - 1:
        return out
    # Found when the finest level's blur has been launched: the device is busy while the host launches sorts.
    coarser = coarsen(vertices, lattice.counts, layout, lattice.constants, lattice.points.clouds.count)
    if coarser.count * table.channels > max(COARSE_NUMBERS, table.count * table.channels):
        coarser = coarser.counted()
    sums = splat(PointRows(table), coarser)
    del table  # in large clouds what takes the most memory
    blurred = new_rows(sums.data, sums.count, sums.channels, sums.extras)
    for neighbours in neighbour_slabs(coarser, widest.rows, layout):
        blur(sums, neighbours, coarser, widest, blurred)
    add_coarser(out, blurred, coarser)
    return out


def _finest_stencils(lattice: Lattice) -> Iterator[tuple[Stencil, range]]:
    """Yields the stencils of the finest vertices, and which vertices read them; levels that share a stencil go together."""
    stencils, offset = lattice.constants.finest, lattice.counts.level_offset
    for _, group in groupby(range(len(stencils)), key=lambda level: id(stencils[level])):
        levels = list(group)
        within = range(offset[levels[0]], offset[levels[-1] + 1])
        if within:
            yield stencils[levels[0]], within


def separable(lattice: Lattice, rows: PointRows) -> Rows:
    """Splats rows and blurs them as the paper does: one pass along each of the lattice's directions, over touched vertices
    only; see :func:`multiscale`.

    Passes do not commute then: the transposed filter, of gradients, takes them in reverse.
    """
    stencils, vertices, layout = lattice.constants.stencils, lattice.vertices, lattice.layout
    table = lattice.splat(rows)  # first of all, as in multiscale
    together = None
    if vertices.count <= SLAB:  # the neighbours of all passes fit
        assert lattice.constants.pass_rows is not None
        (neighbours,) = neighbour_slabs(vertices, lattice.constants.pass_rows, layout)
        together = neighbours.segments.split([stencil.rows.count for stencil in stencils])
    spare = new_rows(table.data, table.count, table.channels, table.extras)
    for number in range(len(stencils)):
        for side in (None,) if rows.grads is None else (0, 1):
            direction = len(stencils) - 1 - number if side == 1 else number
            stencil = stencils[direction]
            slabs = [Neighbours(0, together[direction])] if together else neighbour_slabs(vertices, stencil.rows, layout)
            for neighbours in slabs:
                blur(table, neighbours, vertices, stencil, spare, side)
        table, spare = spare, table
    return table


# Copies, near field, and clouds whose points coincide


def _copies(clouds: Clouds, meeting: Meeting | None) -> Copies:
    """Returns which points lie in the same place, on any process."""
    copies = find_copies(clouds) if meeting is None else meeting.copies
    assert copies is not None
    return copies


def _near_sums(lattices: Lattices, values: Rows, table: Rows, count: int) -> Rows | None:
    """Sums near fields of ``count`` queries, if there are any, into rows with the columns of ``table``.

    They are launched behind the blur: while that runs, the host is busy with the many short steps that they begin with."""
    if not any(lattices.levels):
        return None
    clouds = lattices.clouds
    sums = new_rows(table.data, count, table.channels, table.extras)
    if lattices.meeting is not None:
        lattices.meeting.sum_near_fields(_near_levels(lattices), lattices.plan.level, values, sums)
        return sums
    if len(lattices.levels) > 1:  # else the near field writes all
        sums.data.zero_()
    coordinates = widest_first(clouds)
    for near in _near_levels(lattices):
        sources, targets = _near_points(lattices, near, coordinates)
        near_field(targets, sources, values, near, sums)
    return sums


def _near_gradients(lattices: Lattices, values: Rows, grads: Rows, grad_values: Tensor, grad_points: Tensor) -> None:
    """Writes what near fields give to the gradients; see :func:`_near_sums`."""
    clouds, of_values = lattices.clouds, Rows(grad_values, values.count, values.channels)
    if not any(lattices.levels):
        return
    if lattices.meeting is not None:
        lattices.meeting.near_gradients(_near_levels(lattices), lattices.plan.level, values, grads, of_values, grad_points)
        return
    coordinates = widest_first(clouds)
    for near in _near_levels(lattices):
        sources, queries = _near_points(lattices, near, coordinates)
        if clouds.to_itself:
            near_gradients(sources, sources, grads, values, near, of_values, grad_points)
            continue
        near_gradients(sources, queries, grads, values, near, of_values, grad_points[: clouds.sources])
        near_gradients(queries, sources, values, grads, near, None, grad_points[clouds.queries])
    if coordinates is not None:
        grad_points.copy_(torch.zeros_like(grad_points).scatter_(1, coordinates, grad_points))


def _near_levels(lattices: Lattices) -> list[NearLevel]:
    """Lists what the near field of each level reads that some cloud starts at."""
    levels = filter(None, lattices.levels)
    return [near_level(lattices.constants, level, lattices.layouts[1 + level]) for level in levels]


def _near_points(lattices: Lattices, near: NearLevel, coordinates: Tensor | None) -> tuple[CellPoints, CellPoints]:
    """Sorts sources and targets by cell; where points attend to themselves, they are the same."""
    clouds, level = lattices.clouds, lattices.plan.level
    sources = sort_by_cell(near, clouds, level, slice(0, clouds.sources), coordinates)
    return sources, sources if clouds.to_itself else sort_by_cell(near, clouds, level, clouds.queries, coordinates)


def _cloud_rows(lattices: Lattices, rows: PointRows, normalise: bool) -> Rows | None:
    """Sums the rows of each cloud where that is needed: all of it where points coincide, the floor in cross-attention, and the
    constant of narrow clouds."""
    clouds, constant = lattices.clouds, lattices.constants.constant
    only_coincident = lattices.only_coincident
    needed = lattices.flags[COINCIDENT] if only_coincident else constant != 0 or normalise
    if not needed:
        return None
    sums = sum_clouds(rows, clouds)
    if lattices.meeting is not None:
        lattices.meeting.join(sums)
    if only_coincident:
        return sums
    floor = 0.0 if clouds.to_itself or not normalise else FLOOR
    share = (constant + floor / clouds.sizes.source_count.clamp(min=1)).to(sums.data.dtype).unsqueeze(1)
    sums.main.mul_(share)
    sums.extra.mul_(share)
    return sums
