r"""The Triton backend: the filter of all graphs and heads, and its gradient, on a GPU.

All clouds go through the same launches, whatever they are beside.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...checks import check_values
from ...kernels.graphs import find_graphs
from ...kernels.points import Gradients, Points
from ...kernels.triton import device_of
from ..levels import FLOOR
from ..limits import position_limit
from ..ops import FilterCall
from ..scheme import Scheme, Separable
from .clouds import Clouds, find_clouds
from .constants import Constants, constants
from .lattice import Lattice, Plan, make_plan
from .near import NearField
from .rows import COLUMN, NONE, ONES, Rows, gradient_rows
from .slicing import CloudSums, slice_gradients, slice_points


def forward(points: Points, call: FilterCall, keep_plan: bool) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Returns output, normaliser and plan; see :class:`phgcn.lattice.ops.FilterBackend`.

    Values may have a half type; sums, and the normaliser, are in the type of the positions."""
    positions, values, queries, batch, query_batch = points
    scheme, normalise = call.scheme, call.normalise
    asked = points.targets
    limit = position_limit(positions.size(2), scheme)
    graphs = find_graphs(positions.size(0), batch, None if queries is None else queries.size(0), query_batch)
    present = graphs.within(more_than=call.more_than)
    make = torch.empty if all(present) else torch.zeros
    out = make(asked.size(0), *values.shape[1:], dtype=values.dtype, device=values.device)
    norm = make(asked.size(0) if normalise else 0, values.size(1), dtype=positions.dtype, device=values.device)
    if points.empty or not any(present):
        check_values(positions, values, queries, limit)
        return out.zero_(), norm.zero_(), []
    with device_of(values):
        clouds = find_clouds(positions, queries, graphs, [not p for p in present])
        made = _constants(positions, scheme)
        rows = _rows(values, norm)
        plan = make_plan(clouds, scheme, made, keep_plan, limit, rows.main, False)
        if plan.suspect:
            check_values(positions, values, queries, limit)
        _forward(plan, made, scheme, rows, normalise, out, norm)
    return out, norm, []


def backward(grad: Tensor, out: Tensor, norm: Tensor, plan: list[Tensor], points: Points, call: FilterCall) -> Gradients:
    """Returns the gradients of positions, values and, in cross-attention, queries."""
    positions, values, queries, batch, query_batch = points
    scheme, normalise = call.scheme, call.normalise
    heads, dim = positions.shape[1:]
    keys = positions.size(0) * heads
    count = keys + (0 if queries is None else queries.size(0) * heads)
    graphs = find_graphs(positions.size(0), batch, None if queries is None else queries.size(0), query_batch)
    present = graphs.within(more_than=call.more_than)
    with device_of(values):
        made = None
        if not points.empty and any(present):
            clouds = find_clouds(positions, queries, graphs, [not p for p in present])
            made = _constants(positions, scheme)
            built = make_plan(clouds, scheme, made, True, torch.inf, None, False)
        # What a near field writes is added to; sums of several parts are rounded to a half type once, at the end.
        adds = made is not None and (made.lattices > 1 or any(built.levels))
        make = torch.zeros if made is None or not all(present) or len(built.levels) > 1 else torch.empty
        grad_points = make(count, dim, dtype=positions.dtype, device=values.device)
        grad_values = make(values.shape, dtype=positions.dtype if adds else values.dtype, device=values.device)
        grad_positions = grad_points[:keys].view(positions.shape)
        grad_queries = None if queries is None else grad_points[keys:].view(queries.shape)
        if made is not None:
            grads = gradient_rows(_flat(grad), _flat(out), norm.reshape(-1), normalise)
            _backward(built, made, scheme, _rows(values, norm), grads, normalise, _flat(grad_values), grad_points)
    grad_values = grad_values.to(values.dtype)
    # An op's outputs may not share memory.
    if grad_queries is not None:
        grad_positions, grad_queries = grad_positions.clone(), grad_queries.clone()
    return Gradients(grad_positions, grad_values, grad_queries)


def _constants(positions: Tensor, scheme: Scheme) -> Constants:
    return constants(scheme, positions.size(2), positions.dtype, positions.device)


def _flat(tensor: Tensor) -> Tensor:
    """One row per point and head."""
    return tensor.contiguous().view(tensor.size(0) * tensor.size(1), tensor.size(2))


def _rows(values: Tensor, norm: Tensor) -> Rows:
    """The rows of the keys: ones beside them become the normaliser, if there is one."""
    return Rows(_flat(values), norm, ONES if norm.numel() > 0 else NONE)


def _near_field(plan: Plan, made: Constants, level: int, targets: slice, sources: slice) -> NearField:
    parts = [(plan.clouds.position[part], plan.clouds.cloud[part]) for part in (sources, targets)]
    if targets == sources:
        parts[1] = parts[0]
    fields = plan.fields[1 + level]
    return NearField(parts[1], parts[0], plan.kappa, level, made.law[level], made.cells[level], made.rows, fields)


def _sums(plan: Plan, rows: Rows, begin: int, floor: bool) -> CloudSums | None:
    """The sums of clouds, where they are needed."""
    if not floor and not plan.alike:
        return None
    share = FLOOR / plan.clouds.sizes.key_count.clamp(min=1)
    return CloudSums(plan.clouds.sums(rows, begin), share if floor else torch.zeros_like(share))


def _points(clouds: Clouds) -> tuple[slice, slice]:
    """Keys and queries among the points."""
    keys = slice(0, clouds.keys)
    return keys, keys if clouds.begin == 0 else slice(clouds.keys, clouds.position.size(0))


def _forward(plan: Plan, made: Constants, scheme: Scheme, values: Rows, normalise: bool, out: Tensor, norm: Tensor) -> None:
    whole = Rows(_flat(out), norm.view(-1), COLUMN if normalise else NONE)
    sums = _sums(plan, values, 0, normalise and plan.clouds.begin > 0)
    summed = None
    for number in range(made.lattices):
        lattice = Lattice(plan, made, number)
        tables = [lattice.splat(values, 0)]
        (table,) = lattice.passes(tables) if isinstance(scheme, Separable) else lattice.filter(tables)
        if number == 0:
            summed = _near_fields(plan, made, values, whole)
        last = number == made.lattices - 1
        to = whole if last else whole.like(whole.main.size(0))
        slice_points(
            table, lattice.entry.runs.run, lattice.entry.simplices, values, plan.clouds, plan.kappa, made.factor,
            sums if last else None, summed, to, normalise and last, plan.lacking,
        )  # fmt: skip
        summed = to


def _near_fields(plan: Plan, made: Constants, values: Rows, whole: Rows) -> Rows | None:
    """The sums of near fields, if there are any.  They are launched behind the blur: while that runs, the host is busy with the
    many short steps that they begin with."""
    levels, (keys, queries) = plan.levels, _points(plan.clouds)
    if not any(levels):
        return None
    summed = whole.like(whole.main.size(0))
    if len(levels) > 1:  # else the near field writes all
        summed.main.zero_()
        summed.extra.zero_()
    for level in filter(None, levels):
        _near_field(plan, made, level, queries, keys).add(values, out=summed)
    return summed


def _backward(plan, made, scheme, values: Rows, grads: Rows, normalise: bool, grad_values, grad_points) -> None:
    clouds = plan.clouds
    sums = _sums(plan, grads, clouds.begin, normalise and clouds.begin > 0)
    for number in range(made.lattices):
        lattice = Lattice(plan, made, number)
        tables = [lattice.splat(values, 0), lattice.splat(grads, clouds.begin)]
        tables = lattice.passes(tables) if isinstance(scheme, Separable) else lattice.filter(tables)
        if number == 0:
            _near_gradients(plan, made, values, grads, normalise, grad_values, grad_points)
        last = number == made.lattices - 1
        slice_gradients(
            tables[0], tables[1], lattice.entry.runs.run, lattice.entry.simplices, values, grads, clouds, plan.kappa,
            made.matrix, made.scale, made.factor, sums if last else None, any(plan.levels) or number > 0,
            grad_values, grad_points,
        )  # fmt: skip


def _near_gradients(plan, made, values: Rows, grads: Rows, normalise: bool, grad_values, grad_points) -> None:
    """What near fields give to the gradients; see :func:`_near_fields`."""
    keys, queries = _points(plan.clouds)
    for level in filter(None, plan.levels):
        of_keys = Rows(grad_values, grads.extra.new_empty(grad_values.size(0) if normalise else 0), NONE)
        near = _near_field(plan, made, level, keys, queries)
        if plan.clouds.begin == 0:
            near.add(grads, values, values, grads, out=of_keys, grad=grad_points)
        else:
            near.add(grads, values, out=of_keys, grad=grad_points[keys])
            _near_field(plan, made, level, queries, keys).add(values, grads, grad=grad_points[queries])
