"""The ladder filter of one cloud in plain torch: the specification of every backend, read first.

The stages are locate, index, splat, reduce, expand, slice and near field;
:mod:`phgcn.lattice.ladder` derives the formulas. Vertices come from a sort of all coordinates, the
near field looks at all pairs, and gradients are autograd's."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...exact.reference import distances
from ...kernels import Kernel
from ...runtime.reference import unique_rows
from ..gaps import close_gaps, has_gaps
from ..geometry import kuhn_matrix, locate, origin
from ..ladder import (
    FADE_START,
    QUARTILES,
    Numbers,
    Rung,
    choose_rung,
    ladder_numbers,
    log_rung,
    own_table,
)
from ..limits import mean_pairs_cell
from ..scheme import Ladder


class Move(NamedTuple):
    """A map between two tables: each vertex gives half of its row to target ``first`` and half to
    ``second``, int64, (V,). ``targets`` is their number."""

    first: Tensor
    second: Tensor
    targets: int


class Vertices(NamedTuple):
    """Location of points on level 0, and the moves from step to step.

    Shapes:
        - **corner**, **weight:** each point's simplex, int64, and barycentric weights, :math:`(P,
          D+1)`
        - **steps:** for each step after the first, the moves that lead to it
    """

    corner: Tensor
    weight: Tensor
    vertices: int
    steps: list[list[Move]]


def filter_cloud(
    keys: Tensor, rows: Tensor, queries: Tensor | None, scheme: Ladder, kernel: Kernel
) -> Tensor:
    r"""Sums :math:`\sum_j k(|p_i - p_j|) f_j` over keys (N, D) and rows (N, C), (M, C)."""
    points = (keys if queries is None else torch.cat([keys, queries])).double()
    if has_gaps(float((points.amax(dim=0) - points.amin(dim=0)).max().detach()), points.size(1)):
        points = close_gaps(points)
        keys, queries = points[: len(keys)], None if queries is None else points[len(keys) :]
    rows64, first_query = rows.double(), 0 if queries is None else len(keys)
    rung = find_rung(keys, queries, scheme)
    log_rung(len(points), rung, lambda radius: mean_pairs(keys, queries, radius))
    numbers = ladder_numbers(kernel, keys.size(1), rung)
    ladder = build(points, rung, len(numbers.weight))
    points = points - (points.detach().amin(dim=0) + points.detach().amax(dim=0)) / 2
    tables = reduce(splat(rows64, ladder), ladder.steps)
    out = slice_rows(expand(tables, ladder.steps, numbers), ladder, first_query)
    targets, sources = points[first_query:], points[: len(keys)]
    out = out + far_field(targets, sources, rows64, numbers)
    out = out + near_field(targets, sources, rows64, numbers, kernel)
    if queries is None:
        own = own_weights(points, ladder.weight, numbers) + numbers.at_zero
        out = out + (1 - own).unsqueeze(1) * rows64
    return out.to(rows.dtype)


def find_rung(keys: Tensor, queries: Tensor | None, scheme: Ladder) -> Rung:
    points = (keys if queries is None else torch.cat([keys, queries])).detach().double()
    diameter = float((points.amax(dim=0) - points.amin(dim=0)).norm())
    width = middle_width(points)
    return choose_rung(
        scheme, keys.size(1), diameter, width, lambda radius: mean_pairs(keys, queries, radius)
    )


def middle_width(points: Tensor) -> float:
    """Returns the distance of a coordinate's quartiles, as the standard deviation of a normal
    distribution. The coordinate is the one of lower median width, as single wide coordinates should
    not count. Quartiles ignore points far from a dense core."""
    ordered, count = points.sort(dim=0)[0], len(points)
    width = (ordered[3 * count // 4] - ordered[count // 4]) / QUARTILES
    return float(width.sort()[0][(points.size(1) - 1) // 2])


# Locate and index


def build(points: Tensor, rung: Rung, steps: int) -> Vertices:
    """Locates points on level 0, and finds the vertices of all steps."""
    dim = points.size(1)
    matrix, shift = kuhn_matrix(dim).to(points.device), origin(dim).to(points.device)
    w = points @ matrix.T / rung.h + shift * 2.0 ** (steps // 2)
    vertex, weight = locate(w)
    vertices, corner = unique_rows(vertex.reshape(-1, dim))
    count, moves, unit = len(vertices), [], torch.eye(dim, dtype=torch.int64, device=w.device)
    for step in range(1, steps):
        maps = []
        for direction in (*unit, -unit.sum(dim=0)):
            move, vertices = spread(vertices, vertices, vertices + direction)
            maps.append(move)
        if step % 2 == 0:
            move, vertices = spread(vertices, vertices >> 1, (vertices + 1) >> 1)
            maps.append(move)
        moves.append(maps)
    return Vertices(corner.view(len(points), dim + 1), weight, count, moves)


def spread(vertices: Tensor, first: Tensor, second: Tensor) -> tuple[Move, Tensor]:
    """Builds the move from each vertex to its ``first`` and ``second`` target (V, D). Returns the
    move and the targets' coordinates (V', D)."""
    targets, index = unique_rows(torch.cat([first, second]))
    return Move(index[: len(vertices)], index[len(vertices) :], len(targets)), targets


# Splat, reduce, expand, slice


def splat(rows: Tensor, ladder: Vertices) -> Tensor:
    """Adds each key's weighted row to its simplex: the table of step 0, (V, C)."""
    count = len(rows)
    spread_rows = (ladder.weight[:count].unsqueeze(-1) * rows.unsqueeze(1)).flatten(0, 1)
    return rows.new_zeros(ladder.vertices, rows.size(1)).index_add(
        0, ladder.corner[:count].flatten(), spread_rows
    )


def reduce(table: Tensor, steps: list[list[Move]]) -> list[Tensor]:
    """Moves the table of step 0 (V, C) up the ladder. Returns the tables of all steps."""
    tables = [table]
    for moves in steps:
        for move in moves:
            half = 0.5 * table
            table = (
                table.new_zeros(move.targets, table.size(1))
                .index_add(0, move.first, half)
                .index_add(0, move.second, half)
            )
        tables.append(table)
    return tables


def expand(tables: list[Tensor], steps: list[list[Move]], numbers: Numbers) -> Tensor:
    """Multiplies all steps' tables by weights and moves them down to step 0, (V, C)."""
    weight = numbers.weight.tolist()
    total: Tensor = weight[-1] * tables[-1]
    for step in range(len(steps) - 1, -1, -1):
        for move in reversed(steps[step]):
            total = 0.5 * (total[move.first] + total[move.second])
        total = total + weight[step] * tables[step]
    return total


def slice_rows(table: Tensor, ladder: Vertices, first_query: int) -> Tensor:
    """Interpolates a table (V, C) at each query by its barycentric weights, (M, C)."""
    weight = ladder.weight[first_query:].unsqueeze(-1)
    out: Tensor = (weight * table[ladder.corner[first_query:]]).sum(dim=1)
    return out


# What the ladder does not hold


def own_weights(points: Tensor, weight: Tensor, numbers: Numbers) -> Tensor:
    r"""Computes the filter's weight between each point and itself, (N,): exactly on step 1 and in
    the far field, else on average.

    The weight of step 1 is :math:`c_1 \sum_{l,m} b_l b_m t_{|l-m|}`, with :math:`t` the
    autocorrelation of :math:`A`."""
    dim = points.size(1)
    steps = (torch.arange(dim + 1).unsqueeze(0) - torch.arange(dim + 1).unsqueeze(1)).abs()
    table = torch.tensor(own_table(dim))[steps].to(weight)
    own = numbers.weight[1] * ((weight @ table) * weight).sum(dim=1) + numbers.own
    a, _, q = numbers.far
    square = points.square().sum(dim=1)
    return torch.add(own + a, square.square(), alpha=q)  # of -2 b |p|² + 2 b <p, p> nothing is left


def far_field(targets: Tensor, sources: Tensor, rows: Tensor, numbers: Numbers) -> Tensor:
    """Sums the steps wider than the cloud, (M, C): a positive polynomial of two positions."""
    matrix = torch.from_numpy(numbers.far_matrix(targets.size(1))).to(rows)
    return far_features(targets) @ (matrix @ (far_features(sources).T @ rows))


def far_features(points: Tensor) -> Tensor:
    """Computes 1, the square, and the coordinates of points, (P, D + 2)."""
    square = points.square().sum(dim=1, keepdim=True)
    return torch.cat([torch.ones_like(square), square, points], dim=1)


def near_field(
    targets: Tensor, sources: Tensor, rows: Tensor, numbers: Numbers, kernel: Kernel
) -> Tensor:
    r"""Sums pairs within the radius, (M, C): :math:`k(r) - \sum_s c_s \beta_s(r)`, faded out."""
    if numbers.radius == 0:
        return rows.new_zeros(len(targets), rows.size(1))
    c0, c1, c2 = kernel.coefficients
    out = []
    for part in targets.split(1024):
        r = distances(part, sources)
        x = (r / numbers.radius) ** 2
        s = (kernel.rate * r) ** kernel.power
        given = sum(a * x**n for n, a in enumerate(numbers.near.tolist()))
        t = ((1 - x) / (1 - FADE_START**2)).clamp(0, 1)
        out.append((((c0 + s * (c1 + s * c2)) * torch.exp(-s) - given) * t**2 * (3 - 2 * t)) @ rows)
    return torch.cat(out)


def mean_pairs(keys: Tensor, queries: Tensor | None, radius: float) -> float:
    """Estimates the mean number of a query's keys within a radius: the keys in a cell of the ball's
    volume. The mean of all points is in the middle of a cell, so that a small cloud lies in one."""
    points = (keys if queries is None else torch.cat([keys, queries])).detach().double()
    cells = torch.floor((points - points.mean(dim=0)) / mean_pairs_cell(keys.size(1), radius) + 0.5)
    _, cell = unique_rows(cells)
    key_count = torch.bincount(cell[: len(keys)], minlength=int(cell.max()) + 1).double()
    if queries is None:
        return float((key_count * (key_count - 1)).sum() / len(keys))
    query_count = torch.bincount(cell[len(keys) :], minlength=len(key_count)).double()
    return float((key_count * query_count).sum() / len(queries))
