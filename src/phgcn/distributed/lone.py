r"""Lone points beside heavy clusters, and lone queries, over ranks: :mod:`phgcn.lattice.lone` with points on several processes.

Each rank puts its heavy points together in cells.  The ranks exchange the sums of their cells, and the points that are no part
of a cell, and add up cells of the same cube; then each sums over all of them for its own lone points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..exact import ops as exact
from ..lattice.lone import (
    LEAST,
    LONE_QUERY,
    Joining,
    LonePoints,
    Normalisers,
    find_cubes,
    find_normalisers,
    find_wrong,
    sought_share,
)
from ..runtime.points import Points, Sums
from .collectives import Ranks, gather_rows


class Extremes(NamedTuple):
    """The greatest and the least normaliser of each head, over all graphs, of all ranks, both (H,)."""

    greatest: Tensor
    least: Tensor


def find_extremes(norm: Tensor, ranks: Ranks) -> Extremes:
    """Returns the greatest and the least of normalisers (M, H), in one collective.

    Queries that no lattice has filtered have the normaliser 0, which does not count.
    """
    both = norm.new_full((2, norm.size(1)), -torch.inf)
    if len(norm) > 0:
        both[0], both[1] = norm.amax(dim=0), -torch.where(norm != 0, norm, torch.inf).amin(dim=0)
    greatest, least = ranks.max(both)
    return Extremes(greatest, -least)


def find_rank_normalisers(sums: Sums, points: Points, lattices: int, ranks: Ranks) -> Normalisers | None:
    """As :func:`phgcn.lattice.lone.find_normalisers`, with clouds on several ranks; detached."""
    joining = Joining(ranks.sum, ranks.max, lambda rows: torch.cat(ranks.gather(rows)))
    batches = [batch for batch in (points.batch, points.query_batch) if batch is not None]
    graphs = joining.rows(torch.cat(batches).unique()).unique() if batches else None
    detached = Points(*(None if tensor is None else tensor.detach() for tensor in points))  # type: ignore[arg-type]
    return find_normalisers(sums.norm.detach(), detached, lattices, graphs, joining)


def replace_lone(sums: Sums, extremes: Extremes, points: Points, lattices: int, ranks: Ranks, backend: str) -> Sums:
    """Replaces the outputs and normalisers of lone points and queries that the lattice is wrong about, differentiably.

    Args:
        sums (Sums): Of a lattice over ranks.
        extremes (Extremes): Of the normalisers.
        points (Points): Those of this rank.
        lattices (int): How many lattices are averaged.
        ranks (Ranks): The processes.
        backend (str): Whose kernels sum.
    """
    bound = sought_share(points.positions.size(2)) * extremes.greatest if points.queries is None else LONE_QUERY
    if not bool((extremes.least < bound).any()):
        return sums
    lone = find_wrong(find_rank_normalisers(sums, points, lattices, ranks))
    if lone is None:
        return sums
    cells = _join_cells(lone, points, ranks, backend)
    rows = exact.attend(cells, False, backend).out.squeeze(1)
    out, norm = sums.out.flatten(0, 1), sums.norm.flatten()
    kept = rows[:, -1].detach() > LEAST
    replaced, rows = lone.lone[kept], rows[kept]
    out = out.index_copy(0, replaced, (rows[:, :-1] / rows[:, -1:]).to(out.dtype))
    norm = norm.index_copy(0, replaced, rows[:, -1])
    return Sums(out.view_as(sums.out), norm.view_as(sums.norm), sums.shift)


def _join_cells(lone: LonePoints, points: Points, ranks: Ranks, backend: str) -> Points:
    """Returns the cells of all ranks as keys, whose values are the sums of their points' values and, last, their numbers of
    points; the lone points of this rank are the queries."""
    positions, values = (t.flatten(0, 1) for t in points[:2])
    first = lone.member[torch.searchsorted(lone.cell, torch.arange(len(lone.cell_cloud), device=positions.device))]
    # A cell of several points is the same on all ranks if its cloud and its cube are.
    names = torch.cat([lone.cell_cloud.unsqueeze(1), find_cubes(positions.detach()[first]).long()], dim=1)
    about = ranks.gather(torch.cat([names, lone.sizes], dim=1))
    cubes = ranks.gather_equal(torch.tensor([lone.cubes], device=positions.device)).flatten().tolist()
    rows = torch.cat([positions, values.to(positions.dtype)], dim=1)
    sums = gather_rows(_SumCells.apply(rows, lone, backend), ranks, [len(part) for part in about])  # type: ignore[no-untyped-call]
    joined, names = _add_up_cubes(sums.split([len(part) for part in about]), about, cubes)
    sizes = names[:, -1:].to(joined.dtype)
    keys, rows = joined[:, : positions.size(1)] / sizes, torch.cat([joined[:, positions.size(1) :], sizes], dim=1)
    queries = points.targets.flatten(0, 1)[lone.lone]
    return Points(keys.unsqueeze(1), rows.unsqueeze(1), queries.unsqueeze(1), names[:, 0].contiguous(), lone.lone_cloud)


def _add_up_cubes(sums: Sequence[Tensor], about: Sequence[Tensor], cubes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Adds up the cells of several ranks that are of the same cube.

    Args:
        sums (sequence of torch.Tensor): The sums of each rank's cells, :math:`(K_r, W)`.
        about (sequence of torch.Tensor): Their clouds, cubes and sizes, int64, :math:`(K_r, D + 2)`.
        cubes (sequence of int): How many of them, the first, may be shared; the others are single points.

    Returns:
        The sums of all cells, :math:`(K, W)`, and their clouds, cubes and sizes, :math:`(K, D + 2)`.
    """
    shared = torch.cat([part[:count] for part, count in zip(about, cubes, strict=True)])
    names, place = torch.unique(shared[:, :-1], dim=0, return_inverse=True)
    total, sizes = sums[0].new_zeros(len(names), sums[0].size(1)), shared.new_zeros(len(names))
    for part, numbers, where, count in zip(sums, about, place.split(list(cubes)), cubes, strict=True):
        # No cell comes twice from one rank, so the order of the sum is that of the ranks.
        total = total.index_add(0, where, part[:count])
        sizes = sizes.index_add(0, where, numbers[:count, -1])
    singles = [(part[count:], numbers[count:]) for part, numbers, count in zip(sums, about, cubes, strict=True)]
    joined = torch.cat([names, sizes.unsqueeze(1)], dim=1)
    return torch.cat([total, *(part for part, _ in singles)]), torch.cat([joined, *(numbers for _, numbers in singles)])


class _SumCells(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, lone: LonePoints, backend: str) -> Tensor:
        ctx.lone, ctx.shape = lone, rows.shape
        return lone.sum_cells(rows, backend)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        of_rows = grads[0].new_zeros(ctx.shape)
        of_rows[ctx.lone.member] = grads[0][ctx.lone.cell]
        return of_rows, None, None
