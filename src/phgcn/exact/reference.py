r"""The exact sum in plain torch, in tiles so that memory stays linear: the specification of every exact backend."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..checks import check_graph_numbers, check_values
from ..runtime.graphs import GraphGroups, group_by_graph
from ..runtime.points import Gradients, OutputGradients, Points, Sums
from ..runtime.reference import differentiate, sum_clouds

TILE = 1024


def forward(points: Points, normalise: bool, at_most: int) -> Sums:
    """Returns output, normaliser and shifts; see :func:`phgcn.exact.ops.attend`."""
    groups = checked_groups(points)
    with torch.no_grad():
        out, norm = sum_pairs(points, groups, normalise, at_most)
        shift = _shifts(points, groups, at_most) if normalise and points.queries is not None else None
    return Sums(out.contiguous(), norm.contiguous(), shift)


def backward(upstream: OutputGradients, shift: Tensor, points: Points, normalise: bool, at_most: int) -> Gradients:
    """Returns the gradients of positions, values and queries."""
    groups = checked_groups(points)
    return differentiate(lambda p: sum_pairs(p, groups, normalise, at_most), points, upstream)


def checked_groups(points: Points) -> GraphGroups:
    """Checks all values, and groups points by graph."""
    check_values(*points[:3])
    check_graph_numbers(batch=points.batch, query_batch=points.query_batch)
    return group_points(points)


def group_points(points: Points) -> GraphGroups:
    """Groups points by graph."""
    query_count = None if points.queries is None else len(points.queries)
    return group_by_graph(len(points.positions), points.batch, query_count, points.query_batch)


def sum_pairs(points: Points, groups: GraphGroups, normalise: bool, at_most: int) -> tuple[Tensor, Tensor]:
    """Returns output and normaliser; differentiable any number of times."""

    def cloud_sum(keys: Tensor, rows: Tensor, queries: Tensor | None) -> Tensor:
        shifted = normalise and queries is not None
        return exact_sum(keys if queries is None else queries, keys, rows, shifted)

    return sum_clouds(points, groups, (-1, at_most), normalise, cloud_sum)


def _shifts(points: Points, groups: GraphGroups, at_most: int) -> Tensor:
    """Returns the distance from each query to its nearest key, (M, H)."""

    def cloud_shift(keys: Tensor, rows: Tensor, queries: Tensor | None) -> Tensor:
        assert queries is not None
        return nearest(queries, keys)

    one_column = points._replace(values=points.positions.new_zeros(*points.values.shape[:2], 1))
    return sum_clouds(one_column, groups, (-1, at_most), False, cloud_shift)[0].squeeze(-1)


def distances(queries: Tensor, keys: Tensor) -> Tensor:
    r"""All distances, with derivative 0 where two points coincide.

    Shapes:
        - **queries:** :math:`(M, D)`, **keys:** :math:`(N, D)`
        - **output:** :math:`(M, N)`
    """
    square = (queries.unsqueeze(1) - keys.unsqueeze(0)).square().sum(dim=-1)
    apart = square > 0
    return torch.where(apart, torch.where(apart, square, 1.0).sqrt(), 0.0)


def nearest(queries: Tensor, keys: Tensor) -> Tensor:
    """The distance from each query (M, D) to the nearest key (N, D), (M, 1); 0 without keys.  A constant to the gradient."""
    if len(keys) == 0:
        return queries.new_zeros(len(queries), 1)
    with torch.no_grad():
        tiles = [distances(queries, key).amin(dim=1, keepdim=True) for key in keys.split(TILE)]
        return torch.stack(tiles).amin(dim=0)


def exact_sum(queries: Tensor, keys: Tensor, rows: Tensor, shifted: bool = False) -> Tensor:
    r"""Computes :math:`\sum_j e^{s_i - \lVert q_i - k_j \rVert} f_j`.

    Each tile is computed anew in the backward pass, so that neither pass holds more than one.

    Args:
        queries (torch.Tensor): Positions :math:`q_i` in units of :math:`1/\lambda`.
        keys (torch.Tensor): Positions :math:`k_j`.
        rows (torch.Tensor): The :math:`f_j`.
        shifted (bool, optional): If set to :obj:`True`, :math:`s_i` is the distance to the nearest key and not 0: a normalised
            sum stays the same, and a query far from all keys does not sum zeros. (default: :obj:`False`)

    Shapes:
        - **queries:** :math:`(M, D)`, **keys:** :math:`(N, D)`, **rows:** :math:`(N, C)`
        - **output:** :math:`(M, C)`
    """
    parts = [rows.new_zeros(0, rows.size(1))]
    for query in queries.split(TILE):
        shift = nearest(query, keys) if shifted else rows.new_zeros(len(query), 1)
        total = rows.new_zeros(len(query), rows.size(1))
        for key, row in zip(keys.split(TILE), rows.split(TILE), strict=True):
            total = total + checkpoint(_tile, query, key, row, shift, use_reentrant=False)
        parts.append(total)
    return torch.cat(parts)


def _tile(query: Tensor, key: Tensor, row: Tensor, shift: Tensor) -> Tensor:
    return torch.exp(shift - distances(query, key)) @ row
