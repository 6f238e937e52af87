r"""The Triton backend: the filter of all graphs and heads, and its gradient, on a GPU.

All clouds go through the same launches, whatever they are beside.  Graphs that are summed exactly take kernels of their own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...exact.triton.attend import all_pairs, all_pairs_backward
from ...triton_kernels import capturing, device_of
from ..checks import check_values, position_limit
from ..groups import FLOOR
from ..recording import rehearsed
from ..scheme import Exact, Scheme, Separable
from .clouds import Clouds, exact_pairs, find_clouds, find_graphs
from .constants import Constants, constants
from .lattice import Lattice, Plan, make_plan
from .near import NearField
from .rows import COLUMN, NONE, ONES, Rows, gradient_rows
from .slicing import CloudSums, slice_gradients, slice_points


def forward(
    positions: Tensor,
    values: Tensor,
    batch: Tensor | None,
    queries: Tensor | None,
    query_batch: Tensor | None,
    scheme: Scheme,
    normalise: bool,
) -> tuple[Tensor, Tensor]:
    """The filter; tensors are (N, H, D), (N, H, C) and, in cross-attention, (M, H, D).  Returns output and normaliser.

    Values may have a half type; sums, and the normaliser, are in the type of the positions.  If there may be a backward pass,
    the normaliser carries the plan, as its attribute ``plan``, which the backward pass then need not make again."""
    asked = positions if queries is None else queries
    limit = torch.inf if isinstance(scheme, Exact) else position_limit(positions.size(2), scheme)
    graphs = find_graphs(positions.size(0), batch, None if queries is None else queries.size(0), query_batch)
    pairs, exactly = exact_pairs(graphs, scheme, values.device)
    make = torch.empty if pairs is None else torch.zeros
    out = make(asked.size(0), *values.shape[1:], dtype=values.dtype, device=values.device)
    norm = make(asked.size(0) if normalise else 0, values.size(1), dtype=positions.dtype, device=values.device)
    if positions.size(0) == 0 or asked.size(0) == 0:
        check_values(positions, values, queries, scheme)
        return out.zero_(), norm.zero_()
    with device_of(values):
        plan = None
        if all(exactly):
            # While a CUDA graph is captured nobody can look: small graphs are trained with one.
            suspect = not capturing(values) and not _seem_finite(positions, values, queries)
        else:
            clouds, made = find_clouds(positions, queries, graphs, exactly), _constants(positions, scheme)
            rows, kept = _rows(values, norm), any(t is not None and t.requires_grad for t in (positions, values, queries))
            plan = make_plan(clouds, scheme, made, kept, limit, rows.main, _recorded(clouds, made))
            suspect = plan.suspect
            if kept:
                norm.plan = plan  # type: ignore[attr-defined]
        if suspect:
            check_values(positions, values, queries, scheme)
        if pairs is not None:
            all_pairs(positions, values, queries, pairs, normalise, out, norm)
        if plan is not None:
            _forward(plan, made, scheme, rows, normalise, out, norm)
    return out, norm


def backward(
    grad: Tensor,
    out: Tensor,
    norm: Tensor,
    positions: Tensor,
    values: Tensor,
    batch: Tensor | None,
    queries: Tensor | None,
    query_batch: Tensor | None,
    scheme: Scheme,
    normalise: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients of positions, values and, in cross-attention, queries."""
    heads, dim = positions.shape[1:]
    keys = positions.size(0) * heads
    points = keys + (0 if queries is None else queries.size(0) * heads)
    graphs = find_graphs(positions.size(0), batch, None if queries is None else queries.size(0), query_batch)
    pairs, exactly = exact_pairs(graphs, scheme, values.device)
    plan: Plan | None = norm.__dict__.pop("plan", None)
    with device_of(values):
        if positions.size(0) > 0 and (queries is None or queries.size(0) > 0) and not all(exactly):
            made = _constants(positions, scheme)
            if plan is None:
                clouds = find_clouds(positions, queries, graphs, exactly)
                plan = make_plan(clouds, scheme, made, True, torch.inf, None, _recorded(clouds, made))
        # What a near field writes is added to; sums of several parts are rounded to a half type once, at the end.
        adds = plan is not None and (made.lattices > 1 or any(plan.levels))
        make = torch.zeros if plan is None or pairs is not None or len(plan.levels) > 1 else torch.empty
        grad_points = make(points, dim, dtype=positions.dtype, device=values.device)
        grad_values = make(values.shape, dtype=positions.dtype if adds else values.dtype, device=values.device)
        grad_positions = grad_points[:keys].view(positions.shape)
        grad_queries = None if queries is None else grad_points[keys:].view(queries.shape)
        if pairs is not None and positions.size(0) > 0:
            all_pairs_backward(
                grad, out, norm, positions, values, queries, pairs, normalise, grad_positions, grad_values, grad_queries
            )
        if plan is not None:
            grads = gradient_rows(_flat(grad), _flat(out), norm.reshape(-1), normalise)
            _backward(plan, made, scheme, _rows(values, norm), grads, normalise, _flat(grad_values), grad_points)
    grad_values = grad_values.to(values.dtype)
    # An op's outputs may not share memory.
    if queries is not None:
        grad_positions = grad_positions.clone()
        assert grad_queries is not None
        grad_queries = grad_queries.clone()
    return grad_positions, grad_values, grad_queries


def _seem_finite(*tensors: Tensor | None) -> bool:
    """A sum is finite only if all terms are; overflow alone causes a closer look, which finds nothing."""
    sums = [tensor.sum(dtype=torch.float64) for tensor in tensors if tensor is not None]
    return bool(torch.stack(sums).isfinite().all())


def _constants(positions: Tensor, scheme: Scheme) -> Constants:
    assert not isinstance(scheme, Exact)
    return constants(scheme, positions.size(2), positions.dtype, positions.device)


_KEPT: dict[int, object] = {}
"""What CUDA graphs read that are recorded, and no cache may free."""


def _recorded(clouds: Clouds, made: Constants) -> bool:
    """Whether a CUDA graph is being recorded, when the host can read nothing, or that is rehearsed."""
    if not capturing(clouds.position):
        return rehearsed()
    _KEPT.update({id(kept): kept for kept in (clouds.sizes, made)})
    return True


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
