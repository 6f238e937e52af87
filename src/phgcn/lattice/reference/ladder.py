r"""The ladder filter of one cloud in plain torch: locate, index, splat, reduce, expand, slice, and the near field.

The specification of every backend, read first.  What it computes is in :mod:`phgcn.lattice.ladder`.  Vertices are found by
sorting all coordinates, the near field looks at all pairs, and gradients are autograd's.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...exact.reference import distances
from ...kernels import KERNELS, Kernel
from ..geometry import kuhn_matrix, locate, origin
from ..ladder import FADE_START, QUARTILES, Numbers, Rung, ladder_numbers, own_table
from ..scheme import Ladder
from .levels import mean_pairs


class Move(NamedTuple):
    """A map between two tables of vertices: every vertex gives half of its row to each of two others.

    Shapes:
        - **first**, **second:** the targets of each vertex, int64, :math:`(V,)`; **targets:** their number
    """

    first: Tensor
    second: Tensor
    targets: int


class Vertices(NamedTuple):
    """Where points lie on level 0, and the moves from step to step.

    Shapes:
        - **corner:** the vertices of each point's simplex, int64, **weight:** its barycentric weights, :math:`(P, D+1)`
        - **steps:** for each step after the first, the moves that lead to it
    """

    corner: Tensor
    weight: Tensor
    vertices: int
    steps: list[list[Move]]


def filter_cloud(keys: Tensor, rows: Tensor, queries: Tensor | None, scheme: Ladder) -> Tensor:
    r"""Sums :math:`\sum_j k(|p_i - p_j|) f_j` over one graph and head.

    Shapes:
        - **keys:** :math:`(N, D)`, **rows:** :math:`(N, C)`, **queries:** :math:`(M, D)` or :obj:`None`
        - **output:** :math:`(M, C)`
    """
    points = (keys if queries is None else torch.cat([keys, queries])).double()
    rows64, first_query = rows.double(), 0 if queries is None else len(keys)
    rung, kernel = choose_rung(keys, queries, scheme), KERNELS[scheme.kernel]
    numbers = ladder_numbers(kernel, keys.size(1), rung)
    ladder = build(points, rung, len(numbers.weight))
    points = points - middle(points)
    tables = reduce(splat(rows64, ladder), ladder.steps)
    out = slice_rows(expand(tables, ladder.steps, numbers), ladder, first_query)
    targets, sources = points[first_query:], points[: len(keys)]
    out = out + far_field(targets, sources, rows64, numbers)
    out = out + near_field(targets, sources, rows64, numbers, kernel)
    if queries is None:
        own = own_weights(points, ladder.weight, numbers) + numbers.at_zero
        out = out + (1 - own).unsqueeze(1) * rows64
    return out.to(rows.dtype)


# Which ladder


def choose_rung(keys: Tensor, queries: Tensor | None, scheme: Ladder) -> Rung:
    """Chooses the ladder of a cloud from its points alone.

    The spacing is the largest with at most ``scheme.pairs`` keys within the near field of a query, on average.  Where that is
    no larger than the kernel and the width of the cloud need, there is no near field.
    """
    points = (keys if queries is None else torch.cat([keys, queries])).detach().double()
    low, high = points.amin(dim=0), points.amax(dim=0)
    diameter = max(float((high - low).norm()), 1e-30)
    extent = math.ceil(math.log2(diameter))
    finest = scheme.finest_spacing(max(middle_width(points), 1e-30), extent, points.size(1))

    def has_few_pairs(spacing: int) -> bool:
        return mean_pairs(keys, queries, scheme.reach * 2 ** (spacing / 2)) <= scheme.pairs

    if scheme.pairs == 0 or not has_few_pairs(finest + 1):
        return Rung(finest, extent, 0.0)
    spacing = finest + 1
    while spacing < scheme.coarsest_spacing(extent) and has_few_pairs(spacing + 1):
        spacing += 1
    return Rung(spacing, extent, scheme.reach)


def middle_width(points: Tensor) -> float:
    """The width of the middle half of a cloud, as a standard deviation: that of its lower median coordinate.

    Order statistics see a dense core beside far points, and a wide coordinate beside narrow ones does not matter.
    """
    ordered, count = points.sort(dim=0)[0], len(points)
    width = (ordered[3 * count // 4] - ordered[count // 4]) / QUARTILES
    return float(width.sort()[0][(points.size(1) - 1) // 2])


def middle(points: Tensor) -> Tensor:
    """The middle of the box around points, (D,): the origin of the far field."""
    return (points.detach().amin(dim=0) + points.detach().amax(dim=0)) / 2


# Locate and index


def build(points: Tensor, rung: Rung, steps: int) -> Vertices:
    """Locates points on level 0, and finds the vertices of all steps."""
    dim = points.size(1)
    w = points @ kuhn_matrix(dim).T / rung.h + origin(dim) * 2.0 ** (steps // 2)
    vertex, weight = locate(w)
    vertices, corner = torch.unique(vertex.reshape(-1, dim), dim=0, return_inverse=True)
    count, moves = len(vertices), []
    for step in range(1, steps):
        maps = []
        for direction in (*torch.eye(dim, dtype=torch.int64), -torch.ones(dim, dtype=torch.int64)):
            move, vertices = spread(vertices, vertices, vertices + direction)
            maps.append(move)
        if step % 2 == 0:
            move, vertices = spread(vertices, vertices >> 1, (vertices + 1) >> 1)
            maps.append(move)
        moves.append(maps)
    return Vertices(corner.view(len(points), dim + 1), weight, count, moves)


def spread(vertices: Tensor, first: Tensor, second: Tensor) -> tuple[Move, Tensor]:
    """Numbers the targets of a move, given by their coordinates (V, D); returns the move and the targets' coordinates."""
    targets, index = torch.unique(torch.cat([first, second]), dim=0, return_inverse=True)
    return Move(index[: len(vertices)], index[len(vertices) :], len(targets)), targets


# Splat, reduce, expand, slice


def splat(rows: Tensor, ladder: Vertices) -> Tensor:
    """Adds each key's row, times its barycentric weights, to the vertices of its simplex: the table of step 0, (V, C)."""
    count = len(rows)
    spread_rows = (ladder.weight[:count].unsqueeze(-1) * rows.unsqueeze(1)).flatten(0, 1)
    return rows.new_zeros(ladder.vertices, rows.size(1)).index_add(0, ladder.corner[:count].flatten(), spread_rows)


def reduce(table: Tensor, steps: list[list[Move]]) -> list[Tensor]:
    """Takes the table of step 0 up the ladder; returns the tables of all steps."""
    tables = [table]
    for moves in steps:
        for move in moves:
            half = 0.5 * table
            table = table.new_zeros(move.targets, table.size(1)).index_add(0, move.first, half).index_add(0, move.second, half)
        tables.append(table)
    return tables


def expand(tables: list[Tensor], steps: list[list[Move]], numbers: Numbers) -> Tensor:
    """Weighs the tables of all steps, and hands them down the ladder, by the transposed moves; returns a table of step 0."""
    weight = numbers.weight.tolist()
    total: Tensor = weight[-1] * tables[-1]
    for step in range(len(steps) - 1, -1, -1):
        for move in reversed(steps[step]):
            total = 0.5 * (total[move.first] + total[move.second])
        total = total + weight[step] * tables[step]
    return total


def slice_rows(table: Tensor, ladder: Vertices, first_query: int) -> Tensor:
    """Sums what the vertices of each query's simplex hold, times its barycentric weights, (M, C)."""
    weight = ladder.weight[first_query:].unsqueeze(-1)
    out: Tensor = (weight * table[ladder.corner[first_query:]]).sum(dim=1)
    return out


# What the ladder does not hold


def own_weights(points: Tensor, weight: Tensor, numbers: Numbers) -> Tensor:
    r"""Computes what the filter gives each point of itself, (N,): exactly on step 1 and in the far field, else on average.

    On step 1 it is :math:`c_1 \sum_{l,m} b_l b_m t_{|l-m|}`, with :math:`t` the autocorrelation of :math:`A`.
    """
    dim = points.size(1)
    steps = (torch.arange(dim + 1).unsqueeze(0) - torch.arange(dim + 1).unsqueeze(1)).abs()
    table = torch.tensor(own_table(dim))[steps].to(weight)
    own = numbers.weight[1] * ((weight @ table) * weight).sum(dim=1) + numbers.own
    a, _, q = numbers.far
    square = points.square().sum(dim=1)
    return torch.add(own + a, square.square(), alpha=q)  # of -2 b |p|² + 2 b <p, p> nothing is left


def far_field(targets: Tensor, sources: Tensor, rows: Tensor, numbers: Numbers) -> Tensor:
    """Sums the steps that are wider than the cloud, (M, C): a positive polynomial of two positions."""
    a, b, q = numbers.far
    source_square, target_square = (p.square().sum(dim=1, keepdim=True) for p in (sources, targets))
    total, squares, products = rows.sum(dim=0), (source_square * rows).sum(dim=0), sources.T @ rows
    of_squares = q * target_square * squares - b * (target_square * total + squares)
    return torch.add(a * total + of_squares, targets @ products, alpha=2 * b)


def near_field(targets: Tensor, sources: Tensor, rows: Tensor, numbers: Numbers, kernel: Kernel) -> Tensor:
    r"""Sums what the steps miss of pairs within the radius, (M, C): :math:`k(r) - \sum_s c_s \beta_s(r)`, faded out."""
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
