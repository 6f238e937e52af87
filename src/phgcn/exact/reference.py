"""The exact sum in plain torch, in tiles so that memory stays linear: the specification of every
exact backend.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..kernels import EXPONENTIAL, LARGEST, Kernel
from ..runtime.graphs import GraphGroups, checked_groups
from ..runtime.points import Gradients, OutputGradients, Points, Sums, root
from ..runtime.reference import differentiate, sum_clouds
from .call import ExactCall

TILE = 1024


def forward(points: Points, call: ExactCall) -> Sums:
    groups = checked_groups(points)
    with torch.no_grad():
        out, norm = sum_pairs(points, groups, call)
        shift = points.new_shift(call.normalise)
        if call.normalise and points.shifted:
            shift = _shifts(points, groups, call)
    return Sums(out.contiguous(), norm.contiguous(), shift)


def backward(
    upstream: OutputGradients, shift: Tensor, points: Points, call: ExactCall
) -> Gradients:
    groups = checked_groups(points)
    return differentiate(lambda p: sum_pairs(p, groups, call), points, upstream)


def sum_pairs(points: Points, groups: GraphGroups, call: ExactCall) -> tuple[Tensor, Tensor]:
    """Sums all pairs to output (M, H, C) and normaliser (M, H), any number of times
    differentiable."""

    def cloud_sum(keys: Tensor, rows: Tensor, queries: Tensor | None) -> Tensor:
        shifted = call.normalise and points.shifted
        return exact_sum(keys if queries is None else queries, keys, rows, shifted, call.kernel)

    return sum_clouds(points, groups, (-1, call.at_most), call.normalise, cloud_sum)


def _shifts(points: Points, groups: GraphGroups, call: ExactCall) -> Tensor:
    """Returns each query's exponent at its nearest key of positive weight, (M, H)."""

    def cloud_shift(keys: Tensor, rows: Tensor, queries: Tensor | None) -> Tensor:
        return nearest(keys if queries is None else queries, keys[rows[:, 0] > 0], call.kernel)

    weights = points.weights
    if weights is None:
        weights = points.positions.new_ones(points.values.shape[:2])
    only_weights = points._replace(values=weights.unsqueeze(-1))
    return sum_clouds(only_weights, groups, (-1, call.at_most), False, cloud_shift)[0].squeeze(-1)


def distances(queries: Tensor, keys: Tensor) -> Tensor:
    """Computes the distances of queries (M, D) to keys (N, D); the derivative at 0 is 0."""
    return root(_squares(queries, keys))


def _squares(queries: Tensor, keys: Tensor) -> Tensor:
    return (queries.unsqueeze(1) - keys.unsqueeze(0)).square().sum(dim=-1)


def exponents(queries: Tensor, keys: Tensor, kernel: Kernel) -> Tensor:
    """Computes the exponents :math:`s` of all pairs, (M, N)."""
    square = _squares(queries, keys)
    return kernel.rate**2 * square if kernel.power == 2 else kernel.rate * root(square)


@torch.no_grad()
def nearest(queries: Tensor, keys: Tensor, kernel: Kernel) -> Tensor:
    """Returns each query's exponent at its nearest key, (M, 1), or 0 if no distance is finite."""
    if len(keys) == 0:
        return queries.new_zeros(len(queries), 1)
    tiles = [exponents(queries, key, kernel).amin(dim=1, keepdim=True) for key in keys.split(TILE)]
    least = torch.stack(tiles).amin(dim=0)
    return torch.where(least.isfinite(), least, 0.0)


def exact_sum(
    queries: Tensor,
    keys: Tensor,
    rows: Tensor,
    shifted: bool = False,
    kernel: Kernel = EXPONENTIAL,
) -> Tensor:
    r"""Computes :math:`\sum_j e^{s_i} k(\lVert q_i - k_j \rVert) f_j` for positions in units of
    :math:`1/\lambda`. The backward pass computes each tile anew, so that memory stays linear.

    If ``shifted``, the last column of the rows holds the weights of the keys. Then :math:`s_i` is
    the exponent at the nearest key of positive weight, else 0. The shift changes no normalised sum
    and keeps far queries from sums of zeros.

    Shapes:
        - **queries:** :math:`(M, D)`, **keys:** :math:`(N, D)`, **rows:** :math:`(N, C)`
        - **output:** :math:`(M, C)`
    """
    parts = [rows.new_zeros(0, rows.size(1))]
    for query in queries.split(TILE):
        shift = nearest(query, keys[rows[:, -1] > 0], kernel) if shifted else None
        total = rows.new_zeros(len(query), rows.size(1))
        for key, row in zip(keys.split(TILE), rows.split(TILE), strict=True):
            total = total + checkpoint(_tile, query, key, row, shift, kernel, use_reentrant=False)
        parts.append(total)
    return torch.cat(parts)


def _tile(query: Tensor, key: Tensor, row: Tensor, shift: Tensor | None, kernel: Kernel) -> Tensor:
    s = exponents(query, key, kernel)
    exponent = -s
    if shift is not None:
        # The nearest key has a positive weight; that of others is 0 times something finite.
        exponent = torch.where(row[:, -1] > 0, shift - s, 0.0)
    weight = torch.exp(exponent)
    _, c0, c1, c2, _ = kernel.numbers
    if c1 != 0 or c2 != 0:
        s = s.clamp(max=LARGEST)
        weight = (c0 + s * (c1 + s * c2)) * weight
    return weight @ row
