"""The paper's filter of one cloud in plain torch: locate, index, splat, blur, slice. Gradients are
autograd's."""

from __future__ import annotations

import torch
from torch import Tensor

from ...runtime.reference import unique_rows
from ..geometry import kuhn_matrix, locate, origin
from ..scheme import Separable
from ..separable import directions, separable_weights


def filter_cloud(keys: Tensor, rows: Tensor, queries: Tensor | None, scheme: Separable) -> Tensor:
    """Sums rows over one graph and head, by one pass per lattice direction. Shapes are those of
    :func:`.ladder.filter_cloud`."""
    dim, count = keys.size(1), len(keys)
    points, first_query = (keys, 0) if queries is None else (torch.cat([keys, queries]), count)
    spacing, weights, scale = separable_weights(scheme, dim)
    matrix, shift = kuhn_matrix(dim).to(points.device), origin(dim).to(points.device)
    vertex, weight = locate(points.double() @ matrix.T / spacing + shift)
    vertices, corner = unique_rows(vertex.reshape(-1, dim))
    corner = corner.view(len(points), dim + 1)
    table = splat(rows.double(), corner[:count], weight[:count], len(vertices))
    for direction in torch.as_tensor(directions(dim)).to(points.device):
        table = blur(table, vertices, direction, weights.tolist())
    return (scale * slice_rows(table, corner[first_query:], weight[first_query:])).to(rows.dtype)


def splat(rows: Tensor, corner: Tensor, weight: Tensor, vertices: int) -> Tensor:
    """Adds each key's row (N, C), times weights (N, D + 1), to its simplex, (V, C)."""
    spread = (weight.unsqueeze(-1) * rows.unsqueeze(1)).flatten(0, 1)
    return rows.new_zeros(vertices, rows.size(1)).index_add(0, corner.flatten(), spread)


def blur(table: Tensor, vertices: Tensor, direction: Tensor, weights: list[float]) -> Tensor:
    """Sums for every vertex the rows of touched vertices up to some hops away."""
    out = weights[0] * table
    for hops, weight in enumerate(weights[1:], start=1):
        here, there = find_pairs(vertices, hops * direction)
        out = out.index_add(0, here, weight * table[there]).index_add(
            0, there, weight * table[here]
        )
    return out


def find_pairs(vertices: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the numbers of the touched vertices (V, D) at both ends of a step."""
    count = len(vertices)
    found, index = unique_rows(torch.cat([vertices, vertices + step]))
    number = index.new_full((len(found),), -1)
    number[index[:count]] = torch.arange(count, device=index.device)
    there = number[index[count:]]
    here = (there >= 0).nonzero().squeeze(1)
    return here, there[here]


def slice_rows(table: Tensor, corner: Tensor, weight: Tensor) -> Tensor:
    """Interpolates a table (V, C) at each query by its barycentric weights, (M, C)."""
    out: Tensor = (weight.unsqueeze(-1) * table[corner]).sum(dim=1)
    return out
