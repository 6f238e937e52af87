r"""The filter of all graphs and heads: locate, index, splat, blur, slice, and the near field.

It is slow on purpose: vertices are found by their coordinates in a dictionary, the near field looks at all pairs, and gradients
are autograd's.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...checks import check_graph_numbers, check_values
from ...runtime.graphs import ALL_PAIRS, GraphGroups, group_by_graph
from ...runtime.points import Gradients, OutputGradients, Points
from ...runtime.reference import differentiate, sum_clouds
from ..coefficients import multiscale_weights, separable_weights, stencil_weights
from ..filter_call import FilterCall
from ..levels import FLOOR
from ..limits import check_limits
from ..narrow import used_levels
from ..scheme import Ladder, MultiScale, Separable
from . import ladder
from .blur import blur
from .index import index
from .levels import choose_finest
from .locate import kuhn_coordinates, locate, self_weight
from .near import near_field
from .slice import slice_rows
from .splat import splat


def forward(points: Points, call: FilterCall, keep_plan: bool) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Returns output, normaliser and no plan; see :class:`phgcn.lattice.filter_call.FilterBackend`."""
    groups = checked_groups(points, call)
    with torch.no_grad():
        out, norm = filter_clouds(points, groups, call)
    return out.contiguous(), norm.contiguous(), []


def backward(upstream: OutputGradients, plan: list[Tensor], points: Points, call: FilterCall) -> Gradients:
    """Returns the gradients of positions, values and queries, by autograd."""
    groups = checked_groups(points, call)
    return differentiate(lambda p: filter_clouds(p, groups, call), points, upstream)


def checked_groups(points: Points, call: FilterCall) -> GraphGroups:
    """Checks all values, and groups points by graph."""
    check_values(*points[:3])
    check_graph_numbers(batch=points.batch, query_batch=points.query_batch)
    query_count = None if points.queries is None else len(points.queries)
    groups = group_by_graph(len(points.positions), points.batch, query_count, points.query_batch)
    check_limits(points, groups, call)
    return groups


def filter_clouds(points: Points, groups: GraphGroups, call: FilterCall) -> tuple[Tensor, Tensor]:
    """Filters all graphs and heads; differentiable."""

    def cloud_sum(keys: Tensor, rows: Tensor, queries: Tensor | None) -> Tensor:
        return filter_cloud(keys, rows, queries, call)

    return sum_clouds(points, groups, (call.more_than, ALL_PAIRS), call.normalise, cloud_sum)


def filter_cloud(keys: Tensor, rows: Tensor, queries: Tensor | None, call: FilterCall) -> Tensor:
    r"""Filters one graph and head.

    Shapes:
        - **keys:** :math:`(N, D)`, **rows:** :math:`(N, C)`, **queries:** :math:`(M, D)` or :obj:`None`
        - **output:** :math:`(M, C)`
    """
    targets = keys if queries is None else queries
    if len(keys) == 0 or len(targets) == 0:
        return rows.new_zeros(len(targets), rows.size(1))
    if queries is None and bool((keys == keys[0]).all()):
        return rows.sum(dim=0).expand(len(keys), -1)
    if isinstance(call.scheme, Separable):
        out = separable(keys, rows, queries, call.scheme)
    elif isinstance(call.scheme, Ladder):
        out = ladder.filter_cloud(keys, rows, queries, call.scheme)
    else:
        out = multiscale(keys, rows, queries, call.scheme)
    if call.normalise and queries is not None:
        out = out + FLOOR * rows.mean(dim=0)
    return out


def multiscale(keys: Tensor, rows: Tensor, queries: Tensor | None, scheme: MultiScale) -> Tensor:
    """Filters through nested lattices, adds the near field of the finest one used, and the exact self term."""
    dim, count = keys.size(1), len(keys)
    scheme, finest = used_levels(scheme, dim, choose_finest(keys, queries, scheme))
    fitted, levels = multiscale_weights(scheme, dim), len(scheme.hops)
    points, first_query = (keys, 0) if queries is None else (torch.cat([keys, queries]), count)
    out = rows.new_zeros(len(points) - first_query, rows.size(1), dtype=torch.float64)
    self_share = out.new_zeros(len(out))
    for lattice in range(scheme.lattices):
        w = kuhn_coordinates(points, scheme.spacing, scheme.origin_level + 1, lattice)
        for level in range(finest, levels):
            simplices = locate(w, level)
            vertices, weight = index(simplices), simplices.weight
            table = splat(rows.double(), vertices.corner[:count], weight[:count], len(vertices.number))
            table = blur(table, vertices.number, *stencil_weights(dim, scheme.hops[level], fitted.weights[level]))
            out = out + slice_rows(table, vertices.corner[first_query:], weight[first_query:])
            self_share = self_share + self_weight(weight[first_query:], fitted, level)
    out, self_share = out / scheme.lattices, self_share / scheme.lattices
    if fitted.constant > 0:
        out = out + fitted.constant * rows.double().sum(dim=0)
    if finest > 0:
        out = out + near_field(keys if queries is None else queries, keys, rows, fitted, finest)
    if queries is None:
        out = out + self_term(keys, rows.double(), fitted.self_target(finest), self_share)
    return out.to(rows.dtype)


def self_term(keys: Tensor, rows: Tensor, target: float, share: Tensor) -> Tensor:
    r"""Computes what makes the weight of a point on itself, and on points in the very same place, exactly 1.

    With :math:`a_i` what the lattice gives a point of itself, and the target :math:`t`, it is
    :math:`\sum_{p_j = p_i} (t - \tfrac12 (a_i + a_j)) f_j`.  The derivative of a pair in one place is then 0.

    Shapes:
        - **keys:** :math:`(N, D)`, **rows**, **output:** :math:`(N, C)`, **share:** :math:`a`, :math:`(N,)`
    """
    places, place = torch.unique(keys.detach(), dim=0, return_inverse=True)

    def sum_copies(table: Tensor) -> Tensor:
        return table.new_zeros(len(places), table.size(1)).index_add(0, place, table)[place]

    share = share.unsqueeze(-1)
    copies = sum_copies(rows)
    return target * copies - (share * copies + sum_copies(share * rows)) / 2


def separable(keys: Tensor, rows: Tensor, queries: Tensor | None, scheme: Separable) -> Tensor:
    """Filters as the paper does: one pass along each of the lattice's directions, over touched vertices only."""
    dim, hops, count = keys.size(1), scheme.width // 2, len(keys)
    spacing, weights, scale = separable_weights(scheme, dim)
    points, first_query = (keys, 0) if queries is None else (torch.cat([keys, queries]), count)
    simplices = locate(kuhn_coordinates(points, spacing, 1, 0), 0)
    vertices, weight = index(simplices), simplices.weight
    table = splat(rows.double(), vertices.corner[:count], weight[:count], len(vertices.number))
    hop = np.arange(-hops, hops + 1)
    for direction in range(dim + 1):
        step = np.ones(dim, int) if direction == dim else np.eye(dim, dtype=int)[direction]
        table = blur(table, vertices.number, hop[:, None] * step, weights[abs(hop)])
    return (scale * slice_rows(table, vertices.corner[first_query:], weight[first_query:])).to(rows.dtype)
