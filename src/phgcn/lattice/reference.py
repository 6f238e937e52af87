r"""Splat, blur, slice in plain torch: the specification that every backend is tested against.

Read this first.  It is slow on purpose: vertices are found by their coordinates in a dictionary, the near field looks at all
pairs, and gradients are autograd's.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from ..exact.reference import distances, exact_sum
from .coefficients import FLAT, MultiScaleWeights, multiscale_weights, separable_weights, stencil_weights
from .geometry import kuhn_matrix, locate, origin
from .groups import FLOOR, Groups, finest_level, mean_pairs_cell, summed_exactly
from .scheme import MultiScale, Scheme, Separable


def forward(
    positions: Tensor, values: Tensor, queries: Tensor | None, groups: Groups, scheme: Scheme, normalise: bool
) -> tuple[Tensor, Tensor]:
    r"""The filter of all graphs and heads; differentiable.

    Shapes:
        - **positions:** :math:`(N, H, D)`, **values:** :math:`(N, H, C)`, **queries:** :math:`(M, H, D)`
        - **output:** :math:`(M, H, C)`, and the normaliser, :math:`(M, H)`, if any
    """
    rows = torch.cat([values, values.new_ones(*values.shape[:2], 1)], dim=-1) if normalise else values
    count = len(positions if queries is None else queries)
    heads = []
    for head in range(values.size(1)):
        summed = rows.new_zeros(count, rows.size(2))
        for k, q in groups.slices():
            of_keys = torch.as_tensor(groups.key_order[k], device=rows.device)
            of_queries = torch.as_tensor(groups.query_order[q], device=rows.device)
            query = None if queries is None else queries[of_queries, head]
            part = filter_cloud(positions[of_keys, head], rows[of_keys, head], query, scheme, normalise)
            summed = summed.index_add(0, of_queries, part)
        heads.append(summed)
    out = torch.stack(heads, dim=1) if heads else rows.new_zeros(count, 0, rows.size(2))
    if not normalise:
        return out, out.new_zeros(0, values.size(1))
    norm = out[..., -1]
    return torch.where(norm != 0, 1 / torch.where(norm != 0, norm, 1.0), 0.0).unsqueeze(-1) * out[..., :-1], norm


def filter_cloud(keys: Tensor, rows: Tensor, queries: Tensor | None, scheme: Scheme, normalise: bool) -> Tensor:
    """The filter of one graph and head."""
    asked = keys if queries is None else queries
    if len(keys) == 0 or len(asked) == 0:
        return rows.new_zeros(len(asked), rows.size(1))
    if summed_exactly(scheme, len(keys), len(asked), keys.device.type):
        return exact_sum(asked, keys, rows, shifted=normalise and queries is not None)
    if queries is None and bool((keys == keys[0]).all()):
        return rows.sum(dim=0).expand(len(keys), -1)
    if isinstance(scheme, Separable):
        out = separable(keys, rows, queries, scheme)
    else:
        assert isinstance(scheme, MultiScale)
        out = multiscale(keys, rows, queries, scheme)
    if normalise and queries is not None:
        out = out + FLOOR * rows.mean(dim=0)
    return out


class Simplices:
    """The vertices that keys and queries touch on one lattice, and each point's weights on its simplex."""

    def __init__(self, w: Tensor, key_count: int) -> None:
        self.dim = w.size(1)
        vertices, weights = locate(w)
        unique, index = torch.unique(vertices.reshape(-1, self.dim), dim=0, return_inverse=True)
        self.number = {tuple(v): i for i, v in enumerate(unique.tolist())}
        index = index.reshape(-1, self.dim + 1)
        self.key_index, self.key_weights = index[:key_count], weights[:key_count]
        asked = slice(0, None) if len(w) == key_count else slice(key_count, None)
        self.query_index, self.query_weights = index[asked], weights[asked]

    def splat(self, rows: Tensor) -> Tensor:
        """Adds each key's row, times its barycentric weights, to the vertices of its simplex."""
        spread = (self.key_weights.unsqueeze(-1) * rows.unsqueeze(1)).flatten(0, 1)
        return rows.new_zeros(len(self.number), rows.size(1)).index_add(0, self.key_index.flatten(), spread)

    def blur(self, table: Tensor, offsets: np.ndarray, weights: np.ndarray) -> Tensor:
        """Sums, for every vertex, the rows of the touched vertices at the given offsets, weighted."""
        out = torch.zeros_like(table)
        for offset, weight in zip(offsets.tolist(), weights.tolist(), strict=True):
            pairs = [
                (i, j)
                for v, i in self.number.items()
                if (j := self.number.get(tuple(a + b for a, b in zip(v, offset, strict=True)))) is not None
            ]
            if pairs:
                here, there = torch.tensor(pairs, device=table.device).T
                out = out.index_add(0, here, weight * table[there])
        return out

    def slice(self, table: Tensor) -> Tensor:
        """What the vertices of each query's simplex hold, times its barycentric weights."""
        return (self.query_weights.unsqueeze(-1) * table[self.query_index]).sum(dim=1)


def kuhn_coordinates(points: Tensor, spacing: float, levels: int, lattice: int) -> Tensor:
    """Points in Kuhn coordinates of level 0, in double precision so that a far offset of all points costs no accuracy."""
    dim = points.size(1)
    matrix, shift = kuhn_matrix(dim).to(points.device), origin(dim, lattice).to(points.device)
    return points.double() @ matrix.T / spacing + shift * 2 ** (levels - 1)


def multiscale(keys: Tensor, rows: Tensor, queries: Tensor | None, scheme: MultiScale) -> Tensor:
    """Nested lattices, the near field of the finest one used, and the exact self term."""
    dim, levels = keys.size(1), len(scheme.hops)
    fitted = multiscale_weights(scheme, dim)
    level = finest_level(scheme, fitted, lambda radius: mean_pairs(keys, queries, radius))
    points = keys if queries is None else torch.cat([keys, queries])
    out = rows.new_zeros(len(points) if queries is None else len(queries), rows.size(1), dtype=torch.float64)
    given = out.new_zeros(len(out))
    for lattice in range(scheme.lattices):
        w = kuhn_coordinates(points, scheme.spacing, levels, lattice)
        for k in range(level, levels):
            simplices = Simplices(w / 2**k, len(keys))
            offsets, weights = stencil_weights(dim, scheme.hops[k], fitted.weights[k])
            out = out + simplices.slice(simplices.blur(simplices.splat(rows.double()), offsets, weights))
            given = given + self_weight(simplices.query_weights, fitted, k)
    out, given = out / scheme.lattices, given / scheme.lattices
    if level > 0:
        out = out + near_field(keys if queries is None else queries, keys, rows, fitted, level)
    if queries is None:
        out = out + (fitted.own(level) - given).unsqueeze(-1) * rows
    return out.to(rows.dtype)


def self_weight(weights: Tensor, fitted: MultiScaleWeights, level: int) -> Tensor:
    r"""What a level gives a point of itself, :math:`\sum_{l,m} b_l b_m t_{|l-m|}`."""
    dim = weights.size(1) - 1
    steps = (torch.arange(dim + 1).unsqueeze(0) - torch.arange(dim + 1).unsqueeze(1)).abs()
    table = torch.as_tensor(fitted.simplex_tables(dim)[level])[steps].to(weights)
    return ((weights @ table) * weights).sum(dim=1)


def near_field(targets: Tensor, keys: Tensor, rows: Tensor, fitted: MultiScaleWeights, level: int) -> Tensor:
    r"""What levels from :math:`\kappa` on miss, :math:`\sum_{r < \rho_\kappa} R_\kappa(r) f_j`."""
    r = distances(targets.double(), keys.double())
    radius = fitted.radius[level]
    power = torch.exp(-fitted.rate * r.square())
    weight = torch.exp(-r)
    for j, a in enumerate(fitted.amplitude[level].tolist()):
        weight = weight - a * power ** (4**j)
    t = ((radius**2 - r.square()) / (radius**2 * (1 - FLAT**2))).clamp(0, 1)
    return (weight * t**2 * (3 - 2 * t)) @ rows.double()


def mean_pairs(keys: Tensor, queries: Tensor | None, radius: float) -> float:
    """About how many keys a query has within a radius, on average: how many share a cell with the volume of the ball.

    The mean of all points is in the middle of a cell: a small cloud lies in one, and is not cut into :math:`2^D` parts.
    """
    points = (keys if queries is None else torch.cat([keys, queries])).detach().double()
    cells = torch.floor((points - points.mean(dim=0)) / mean_pairs_cell(keys.size(1), radius) + 0.5)
    _, cell = torch.unique(cells, dim=0, return_inverse=True)
    of_keys = torch.bincount(cell[: len(keys)], minlength=int(cell.max()) + 1).double()
    if queries is None:
        return float((of_keys * (of_keys - 1)).sum() / len(keys))
    of_queries = torch.bincount(cell[len(keys) :], minlength=len(of_keys)).double()
    return float((of_keys * of_queries).sum() / len(queries))


def separable(keys: Tensor, rows: Tensor, queries: Tensor | None, scheme: Separable) -> Tensor:
    """The paper's filter: one pass along each of the lattice's directions, over touched vertices only."""
    dim, hops = keys.size(1), scheme.width // 2
    spacing, weights, scale = separable_weights(scheme, dim)
    points = keys if queries is None else torch.cat([keys, queries])
    simplices = Simplices(kuhn_coordinates(points, spacing, 1, 0), len(keys))
    table = simplices.splat(rows.double())
    hop = np.arange(-hops, hops + 1)
    for direction in range(dim + 1):
        step = np.ones(dim, int) if direction == dim else np.eye(dim, dtype=int)[direction]
        table = simplices.blur(table, hop[:, None] * step, weights[abs(hop)])
    return (scale * simplices.slice(table)).to(rows.dtype)


def backward(
    grad: Tensor, positions: Tensor, values: Tensor, queries: Tensor | None, groups: Groups, scheme: Scheme, normalise: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients of positions, values and queries, by autograd.

    Inside an op autograd is switched off for the thread, so the graph is recorded and run in one of its own.
    """
    inputs = [t.detach().requires_grad_() for t in (positions, values, queries) if t is not None]

    def differentiate() -> tuple[Tensor | None, ...]:
        out, _ = forward(inputs[0], inputs[1], inputs[2] if queries is not None else None, groups, scheme, normalise)
        if not out.requires_grad:  # no points at all
            return (None,) * len(inputs)
        return torch.autograd.grad(out, inputs, grad, allow_unused=True)

    with ThreadPoolExecutor(max_workers=1) as own_thread:
        found = own_thread.submit(differentiate).result()
    grads = [torch.zeros_like(t) if g is None else g for t, g in zip(inputs, found, strict=True)]
    return grads[0], grads[1], grads[2] if queries is not None else None
