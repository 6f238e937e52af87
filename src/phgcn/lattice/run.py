r"""Runs a filter: the stages of a backend, then, where keys attend to themselves, lone points beside heavy clusters."""

from __future__ import annotations

import importlib
from typing import NamedTuple, Protocol, cast

import torch
from torch import Tensor

from ..exact.ops import ExactBackend
from ..kernels.graphs import ALL_PAIRS
from ..kernels.points import Gradients, OutputGradients, Points, Sums
from .lone import LonePoints, find_cells, find_roles
from .scheme import MultiScale, Scheme


class FilterCall(NamedTuple):
    """What is asked of a filter.

    Args:
        scheme (Scheme): The lattices and their weights.
        normalise (bool): Whether to divide by the sum of the weights.
        more_than (int): Only graphs with more pairs than this are filtered; the others' output is 0.
    """

    scheme: Scheme
    normalise: bool
    more_than: int = -1


class FilterBackend(Protocol):
    """A backend: ``phgcn.lattice.<name>.filter``."""

    def forward(self, points: Points, call: FilterCall, keep_plan: bool) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Returns output, normaliser and, if ``keep_plan``, the plan, else an empty list."""
        ...

    def backward(self, upstream: OutputGradients, plan: list[Tensor], points: Points, call: FilterCall) -> Gradients:
        """Returns the gradients; makes the plan again where it is empty."""
        ...


def looks_for_lone(points: Points, call: FilterCall) -> bool:
    """Tells whether lone points are treated apart.  The paper's filter stays as it is in the paper."""
    return call.normalise and points.queries is None and isinstance(call.scheme, MultiScale)


def run_filter(points: Points, call: FilterCall, backend: str, keep_plan: bool) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Returns output, normaliser and plan: that of the backend and, where lone points are looked for, the normalisers of the
    lattice and, on the CPU, whether some were replaced."""
    out, norm, plan = _lattice(backend).forward(points, call, keep_plan)
    if not looks_for_lone(points, call):
        return out, norm, plan
    lone = _find_wrong(norm, points)
    if keep_plan:
        plan = [*plan, norm.clone(), torch.tensor([lone is not None])]
    if lone is not None:
        sums = attend_to_cells(lone, points, backend)
        out.flatten(0, 1)[lone.lone], norm.flatten()[lone.lone] = sums.out.to(out.dtype), sums.norm
    return out, norm, plan


def run_gradients(upstream: OutputGradients, plan: list[Tensor], points: Points, call: FilterCall, backend: str) -> Gradients:
    """Returns the gradients of :func:`run_filter`; makes the plan again where it is empty."""
    if not looks_for_lone(points, call):
        return _lattice(backend).backward(upstream, plan, points, call)
    *plan, norm, is_replaced = plan or run_filter(points, call, backend, True)[2]
    lone = _find_replaced(norm, upstream.norm, points) if is_replaced.numpy() else None
    if lone is None:
        return _lattice(backend).backward(upstream, plan, points, call)
    of_cells = cell_gradients(upstream, lone, points, backend)
    grad, grad_norm = (None if t is None else t.clone(memory_format=torch.contiguous_format) for t in upstream[:2])
    assert grad is not None
    for tensor in (grad, grad_norm):
        if tensor is not None:
            tensor.flatten(0, 1)[lone.lone] = 0
    of_lattice = _lattice(backend).backward(upstream._replace(grad=grad, grad_norm=grad_norm), plan, points, call)
    positions, values = (one + other.view_as(one) for one, other in zip(of_lattice[:2], of_cells, strict=True))
    return Gradients(positions, values, None)


def _lattice(name: str) -> FilterBackend:
    return cast(FilterBackend, importlib.import_module(f".{name}.filter", __package__))


# Lone points and cells


def _find_wrong(norm: Tensor, points: Points) -> LonePoints | None:
    """Finds the lone points of clouds in which the lattice, whose normalisers these are, (N, H), is wrong about them."""
    roles = find_roles(norm, points)
    return None if roles is None else find_cells(roles, roles.wrong_clouds())


def _find_replaced(norm: Tensor, replaced: Tensor, points: Points) -> LonePoints | None:
    """Finds the lone points whose normalisers, (N, H), were replaced."""
    roles = find_roles(norm, points)
    return None if roles is None else find_cells(roles, roles.clouds_with((norm != replaced).flatten()) > 0)


def attend_to_cells(lone: LonePoints, points: Points, backend: str) -> Sums:
    """Returns what lone points see: outputs (Q, C) and normalisers (Q,)."""
    cells = _cells(lone, points, backend)
    sums = _exact(backend).forward(cells, False, ALL_PAIRS).out.squeeze(1)
    return Sums(sums[:, :-1] / sums[:, -1:], sums[:, -1])


def cell_gradients(upstream: OutputGradients, lone: LonePoints, points: Points, backend: str) -> tuple[Tensor, Tensor]:
    """Returns what the outputs of lone points give to all positions, (N H, D), and values, (N H, C)."""
    cells = _cells(lone, points, backend)
    grad, out = (t.flatten(0, 1)[lone.lone].to(cells.values.dtype) for t in (upstream.grad, upstream.out))
    norm = upstream.norm.flatten()[lone.lone].unsqueeze(1)
    of_norm = -(grad * out).sum(dim=1, keepdim=True) / norm
    if upstream.grad_norm is not None:
        of_norm = of_norm + upstream.grad_norm.flatten()[lone.lone].unsqueeze(1)
    of_sums = torch.cat([grad / norm, of_norm], dim=1).unsqueeze(1)
    empty = norm.new_empty(0, 1)
    given = OutputGradients(of_sums, None, torch.empty_like(of_sums), empty)
    keys, rows, queries = _exact(backend).backward(given, empty, cells, False, ALL_PAIRS)
    assert queries is not None
    positions, values = (points.positions.new_zeros(*t.flatten(0, 1).shape) for t in points[:2])
    positions[lone.member] = (keys.squeeze(1) / lone.sizes.to(keys.dtype))[lone.cell]
    positions[lone.lone] += queries.squeeze(1)
    values[lone.member] = rows[:, 0, :-1][lone.cell]
    return positions, values.to(points.values.dtype)


def _cells(lone: LonePoints, points: Points, backend: str) -> Points:
    """Returns cells as keys at their centroids, whose values are the sums of their points' values and, last, their numbers of
    points; lone points are the queries."""
    positions, values = (t.flatten(0, 1) for t in points[:2])
    sizes = lone.sizes.to(positions.dtype)
    keys = lone.sum_cells(positions, backend) / sizes
    rows = torch.cat([lone.sum_cells(values.to(positions.dtype), backend), sizes], dim=1)
    return Points(keys.unsqueeze(1), rows.unsqueeze(1), positions[lone.lone].unsqueeze(1), lone.cell_cloud, lone.lone_cloud)


def _exact(name: str) -> ExactBackend:
    return cast(ExactBackend, importlib.import_module(f"phgcn.exact.{name}"))
