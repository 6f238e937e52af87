"""The filter of all graphs and heads, one by one: by :mod:`phgcn.lattice.reference.ladder`, or by
the paper's filter.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...runtime.graphs import ALL_PAIRS, GraphGroups
from ...runtime.points import Gradients, OutputGradients, Points
from ...runtime.reference import differentiate, sum_clouds
from ..filter_call import FLOOR, FilterCall, no_ticket
from ..limits import filtered_groups
from ..scheme import Separable
from . import ladder, separable


def forward(points: Points, call: FilterCall, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Returns output, normaliser and an empty ticket."""
    groups = filtered_groups(points, call)
    with torch.no_grad():
        out, norm = filter_clouds(points, groups, call)
    return out.contiguous(), norm.contiguous(), no_ticket()


def backward(
    upstream: OutputGradients, ticket: Tensor, points: Points, call: FilterCall
) -> Gradients:
    groups = filtered_groups(points, call)
    return differentiate(lambda p: filter_clouds(p, groups, call), points, upstream)


def filter_clouds(points: Points, groups: GraphGroups, call: FilterCall) -> tuple[Tensor, Tensor]:
    """Filters all graphs and heads; differentiable."""

    def cloud_sum(keys: Tensor, rows: Tensor, queries: Tensor | None) -> Tensor:
        out = filter_cloud(keys, rows, queries, call)
        return (
            out + FLOOR * rows.mean(dim=0)
            if call.normalise and points.shifted and len(rows) > 0
            else out
        )

    return sum_clouds(points, groups, (call.more_than, ALL_PAIRS), call.normalise, cloud_sum)


def filter_cloud(keys: Tensor, rows: Tensor, queries: Tensor | None, call: FilterCall) -> Tensor:
    """Filters keys (N, D), rows (N, C) and queries (M, D) of one graph and head to (M, C)."""
    targets = keys if queries is None else queries
    if len(keys) == 0 or len(targets) == 0:
        return rows.new_zeros(len(targets), rows.size(1))
    if queries is None and bool((keys == keys[0]).all()):
        return rows.sum(dim=0).expand(len(keys), -1)
    if isinstance(call.scheme, Separable):
        out = separable.filter_cloud(keys, rows, queries, call.scheme)
    else:
        out = ladder.filter_cloud(keys, rows, queries, call.scheme, call.kernel)
    return out
