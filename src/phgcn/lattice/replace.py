r"""Replaces what a lattice gives lone points by sums over cells, and the gradients of these; see :mod:`phgcn.lattice.lone`."""

from __future__ import annotations

import torch
from torch import Tensor

from ..exact.ops import exact_backend
from ..runtime.graphs import ALL_PAIRS
from ..runtime.points import Gradients, OutputGradients, Points, Sums
from .lone import LEAST, LonePoints, Normalisers, find_cells, find_normalisers, find_wrong


def replace_lone(out: Tensor, norm: Tensor, points: Points, given: Normalisers | None, backend: str) -> bool:
    """Overwrites outputs (M, H, C) and normalisers (M, H) of lone points and queries that the lattice is wrong about.

    Args:
        out, norm (torch.Tensor): What the lattice gives, which is overwritten.
        points (Points): Keys and queries.
        given (Normalisers, optional): The same normalisers, cloud by cloud.
        backend (str): Whose kernels sum.

    Returns:
        Whether there were any.
    """
    lone = find_wrong(given)
    if lone is not None:
        sums = attend_to_cells(lone, points, backend)
        kept = sums.norm > LEAST
        replaced = lone.lone[kept]
        out.flatten(0, 1)[replaced], norm.flatten()[replaced] = sums.out[kept].to(out.dtype), sums.norm[kept]
    return lone is not None


def without_rows(upstream: OutputGradients, numbers: Tensor) -> OutputGradients:
    """Returns the gradients of outputs and normalisers with those of some points in some heads set to 0."""
    grad, grad_norm = (None if t is None else t.clone(memory_format=torch.contiguous_format) for t in upstream[:2])
    assert grad is not None
    for tensor in (grad, grad_norm):
        if tensor is not None:
            tensor.flatten(0, 1)[numbers] = 0
    return upstream._replace(grad=grad, grad_norm=grad_norm)


def add_cell_gradients(gradients: Gradients, upstream: OutputGradients, lone: LonePoints, points: Points, backend: str) -> None:
    """Adds what the outputs of lone points, or queries, give to positions, values and queries, in place."""
    keys, rows, queries = cell_gradients(upstream, lone, points, backend)
    # Keys of other clouds are in no cell: they get the row of zeros behind all cells.
    cell = lone.cell.new_full((gradients.positions.flatten(0, 1).size(0),), len(lone.cell_cloud))
    cell[lone.member] = lone.cell
    for all_keys, of_cells in ((gradients.positions, keys), (gradients.values, rows)):
        of_keys = torch.cat([of_cells, of_cells.new_zeros(1, of_cells.size(1))]).to(all_keys.dtype).index_select(0, cell)
        all_keys += of_keys.view_as(all_keys)
    of_queries = gradients.positions if gradients.queries is None else gradients.queries
    of_queries.flatten(0, 1)[lone.lone] += queries


def find_replaced(norm: Tensor, replaced: Tensor, points: Points, lattices: int) -> LonePoints | None:
    """Finds the lone points whose normalisers, (M, H), were replaced."""
    given, is_replaced = find_normalisers(norm, points, lattices), (norm != replaced).flatten()
    lone = None if given is None else find_cells(given, given.count_by_cloud(given.query_cloud, is_replaced) > 0)
    if lone is None:
        return None
    kept = is_replaced[lone.lone]
    return lone._replace(lone=lone.lone[kept], lone_cloud=lone.lone_cloud[kept])


def attend_to_cells(lone: LonePoints, points: Points, backend: str) -> Sums:
    """Returns what lone points see: outputs (Q, C) and normalisers (Q,)."""
    cells = _cells(lone, points, backend)
    sums = exact_backend(backend).forward(cells, False, ALL_PAIRS).out.squeeze(1)
    return Sums(sums[:, :-1] / sums[:, -1:], sums[:, -1])


def cell_gradients(upstream: OutputGradients, lone: LonePoints, points: Points, backend: str) -> tuple[Tensor, Tensor, Tensor]:
    """Returns what the outputs of lone points give to the position of each key of a cell, (K, D), to its values, (K, C), and to
    the lone points themselves, (Q, D)."""
    cells = _cells(lone, points, backend)
    grad, out = (t.flatten(0, 1)[lone.lone].to(cells.values.dtype) for t in (upstream.grad, upstream.out))
    norm = upstream.norm.flatten()[lone.lone].unsqueeze(1)
    of_norm = -(grad * out).sum(dim=1, keepdim=True) / norm
    if upstream.grad_norm is not None:
        of_norm = of_norm + upstream.grad_norm.flatten()[lone.lone].unsqueeze(1)
    of_sums = torch.cat([grad / norm, of_norm], dim=1).unsqueeze(1)
    empty = norm.new_empty(0, 1)
    given = OutputGradients(of_sums, None, torch.empty_like(of_sums), empty)
    keys, rows, queries = exact_backend(backend).backward(given, empty, cells, False, ALL_PAIRS)
    assert queries is not None
    return keys.squeeze(1) / lone.sizes.to(keys.dtype), rows[:, 0, :-1], queries.squeeze(1)


def _cells(lone: LonePoints, points: Points, backend: str) -> Points:
    """Returns cells as keys at their centroids, whose values are the sums of their points' values and, last, their numbers of
    points; lone points are the queries."""
    positions, values = (t.flatten(0, 1) for t in points[:2])
    sizes = lone.sizes.to(positions.dtype)
    keys = lone.sum_cells(positions, backend) / sizes
    rows = torch.cat([lone.sum_cells(values.to(positions.dtype), backend), sizes], dim=1)
    queries = points.targets.flatten(0, 1)[lone.lone]
    return Points(keys.unsqueeze(1), rows.unsqueeze(1), queries.unsqueeze(1), lone.cell_cloud, lone.lone_cloud)
