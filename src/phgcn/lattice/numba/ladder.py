r"""The ladder filter of one cloud on the cores of the CPU: locate, index, splat, reduce, expand, slice, and the near field.

The same functions in the same order as :mod:`phgcn.lattice.reference.ladder`, which says what each computes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...kernels import KERNELS, Kernel
from ...runtime.numba import kernel
from ..geometry import kuhn_matrix, origin
from ..ladder import FADE_START, QUARTILES, Numbers, Rung, ladder_numbers, own_table
from ..scheme import Ladder
from .cells import NearField, lay_cells
from .clouds import Cloud, CloudGradients
from .index import Corners, Level, index, lay_out, planned_vertices
from .keys import choose_keys
from .levels import mean_pairs
from .locate import (
    NOT_JOINED,
    Frame,
    Simplices,
    locate,
    map_points,
    planned_simplices,
    self_gradients,
    self_weights,
)  # fmt: skip
from .moves import Halving, Smoothing, expand, find_halving, find_smoothing, reduce, vertex_keys
from .near import near_field
from .slice import add_position_gradients, add_self_term, slice_gradients, slice_rows
from .splat import splat

MARGIN = 8
"""Free vertices below and above all points on every level, an even number: smoothing reaches at most six."""


class Steps(NamedTuple):
    """A ladder over one cloud: where its points lie on level 0, and the moves that lead to each further step."""

    frame: Frame
    simplices: Simplices
    corners: Corners
    level: Level
    moves: list[list[Smoothing | Halving]]

    @property
    def located(self) -> tuple[Simplices, Corners, Level]:
        return self.simplices, self.corners, self.level


def ladder_sum(cloud: Cloud, rows: np.ndarray, out: np.ndarray, scheme: Ladder) -> None:
    """Adds the filter's sums to ``out``."""
    rung, numbers = find_numbers(cloud, scheme)
    steps = build(cloud, rung, len(numbers.weight))
    table = expand(reduce(splat(rows, rows[:0, :0], 0, *steps.located), steps.moves), steps.moves, numbers)
    slice_rows(table, *steps.located, cloud.first_query, out, is_first=True)
    add_far_field(cloud, rows, out, numbers)
    if numbers.radius > 0:
        near = near_cells(cloud, numbers, KERNELS[scheme.kernel])
        near_field(near, near.source.take(rows), out)
    if cloud.to_itself:
        add_self_term(1 - own_weights(cloud, steps.frame, numbers), rows, out)


def ladder_gradients(cloud: Cloud, rows, grads, into: CloudGradients, scheme: Ladder) -> None:
    """Adds the gradients of :func:`ladder_sum`.  The filter is symmetric: gradients go through it as values do."""
    rung, numbers = find_numbers(cloud, scheme)
    steps = build(cloud, rung, len(numbers.weight))
    table = expand(reduce(splat(rows, grads, cloud.first_query, *steps.located), steps.moves), steps.moves, numbers)
    slope = slice_gradients(table, table, rows.shape[1], *steps.located, rows, grads, cloud.first_query, into.rows)
    if cloud.to_itself:
        tables = np.array([numbers.weight[1] * own_table(cloud.points.shape[1])])
        self_gradients(steps.frame, tables, 0, rows, grads, slope)
    for part, gradient in ((slice(0, len(into.keys)), into.keys), (slice(cloud.first_query, None), into.queries)):
        if gradient is into.keys or not cloud.to_itself:
            add_position_gradients(slope[part], steps.frame.matrix, gradient)
    add_far_gradients(cloud, rows, grads, into, numbers)
    if cloud.to_itself:
        add_self_term(1 - own_weights(cloud, steps.frame, numbers), grads, into.rows)
    if numbers.radius > 0:
        near = near_cells(cloud, numbers, KERNELS[scheme.kernel])
        if cloud.to_itself:
            products = near.target.take(grads, rows), near.source.take(rows, grads)
            near_field(near, near.source.take(grads), into.rows, *products, into.keys)
        else:
            of_rows, of_grads = near.source.take(rows), near.target.take(grads)
            near_field(near, target_rows=of_grads, source_rows=of_rows, grad=into.queries)
            near_field(near.swapped(), of_grads, into.rows, of_rows, of_grads, into.keys)


# Which ladder


def find_numbers(cloud: Cloud, scheme: Ladder) -> tuple[Rung, Numbers]:
    """Chooses the rung of a cloud, writes it into the plan or reads it from there, and looks its numbers up."""
    plan = cloud.plan[0].sizes
    if not cloud.planned:
        rung = choose_rung(cloud, scheme)
        plan[0] = _pack_rung(rung)
    else:
        rung = _unpack_rung(int(plan[0]), scheme)
    return rung, ladder_numbers(KERNELS[scheme.kernel], cloud.points.shape[1], rung)


def _pack_rung(rung: Rung) -> int:
    return ((rung.spacing + 512) << 16) | ((rung.extent + 512) << 1) | (rung.reach > 0)


def _unpack_rung(code: int, scheme: Ladder) -> Rung:
    return Rung((code >> 16) - 512, ((code & 0xFFFF) >> 1) - 512, scheme.reach if code & 1 else 0.0)


def choose_rung(cloud: Cloud, scheme: Ladder) -> Rung:
    """Chooses the ladder of a cloud from its points alone; see the reference."""
    positions, first_query, dim = cloud.positions, cloud.first_query, cloud.points.shape[1]
    diameter = max(float(np.linalg.norm(positions.high - positions.low)), 1e-30)
    extent = math.ceil(math.log2(diameter))
    finest = scheme.finest_spacing(max(middle_width(cloud.points), 1e-30), extent, dim)

    def has_few_pairs(spacing: int) -> bool:
        return mean_pairs(positions, first_query, scheme.reach * 2 ** (spacing / 2), scheme.pairs) <= scheme.pairs

    if scheme.pairs == 0 or not has_few_pairs(finest + 1):
        return Rung(finest, extent, 0.0)
    spacing = finest + 1
    while spacing < scheme.coarsest_spacing(extent) and has_few_pairs(spacing + 1):
        spacing += 1
    return Rung(spacing, extent, scheme.reach)


def middle_width(points: np.ndarray) -> float:
    """The width of the middle half of a cloud; see the reference."""
    quarters = [len(points) // 4, 3 * len(points) // 4]
    ordered = [np.partition(np.ascontiguousarray(line), quarters)[quarters] for line in points.T]
    width = sorted((float(high) - float(low)) / QUARTILES for low, high in ordered)
    return width[(len(width) - 1) // 2]


# Locate and index


def build(cloud: Cloud, rung: Rung, steps: int) -> Steps:
    """Locates points on level 0, or reads them from the plan, and finds the vertices of all steps."""
    frame = lay_frame(cloud, rung, steps)
    plan = cloud.plan[0]
    if not cloud.planned:
        locate(frame, 0, plan)
        index(frame, planned_simplices(plan), 0, plan)
    corners, vertices = planned_vertices(plan)
    keys, base, high = frame.keys(0), frame.base, frame.extent + frame.base
    level = lay_out(vertices, keys, 1)
    key, moves = vertex_keys(vertices.coordinate, keys), []
    for step in range(1, steps):
        maps: list[Smoothing | Halving] = []
        for offset in (*keys.multiplier, ~keys.multiplier.sum() + np.uint64(1)):  # minus the sum, which wraps around
            smoothing, key = find_smoothing(key, offset)
            maps.append(smoothing)
        if step % 2 == 0:
            finer, coarser_base, high = keys, _even_base(base / 2), high / 2
            keys = choose_keys(high - coarser_base + MARGIN)
            halving, key = find_halving(key, finer, keys, base / 2 - coarser_base)
            maps.append(halving)
            base = coarser_base
        moves.append(maps)
    return Steps(frame, planned_simplices(plan), corners, level, moves)


def lay_frame(cloud: Cloud, rung: Rung, steps: int) -> Frame:
    """Maps points to Kuhn coordinates of level 0, counted from an even vertex below all."""
    dim = cloud.points.shape[1]
    matrix, shift = kuhn_matrix(dim).numpy() / rung.h, origin(dim).numpy() * 2.0 ** (steps // 2)
    w, low, high = map_points(cloud.points, matrix, shift)
    base = _even_base(np.floor(low))
    return Frame(w, base, high - base, matrix, MARGIN, NOT_JOINED)


def _even_base(lowest: np.ndarray) -> np.ndarray:
    return 2 * np.floor(lowest / 2) - MARGIN


# What the ladder does not hold


def own_weights(cloud: Cloud, frame: Frame, numbers: Numbers) -> np.ndarray:
    """Computes what the filter gives each point of itself, float64, (N,); see the reference."""
    tables = np.array([numbers.weight[1] * own_table(cloud.points.shape[1])])
    a, _, q = numbers.far
    own = self_weights(frame, tables, 0, cloud.points.dtype) + (numbers.own + numbers.at_zero + a)
    if q > 0:
        own += q * (_centred(cloud) ** 2).sum(axis=1) ** 2
    return own


def _centred(cloud: Cloud) -> np.ndarray:
    return cloud.points.astype(np.float64) - (cloud.positions.low + cloud.positions.high) / 2


def add_far_field(cloud: Cloud, rows: np.ndarray, out: np.ndarray, numbers: Numbers) -> None:
    """Adds the steps that are wider than the cloud; see the reference."""
    a, b, q = numbers.far
    if a == 0:
        return
    points = _centred(cloud)
    sources, targets = points[: len(rows)], points[cloud.first_query :]
    total, squares, products = _moments(sources, rows)
    square = (targets**2).sum(axis=1, keepdims=True)
    out += (a * total - b * (square * total + squares) + q * square * squares + 2 * b * (targets @ products)).astype(out.dtype)


def add_far_gradients(cloud: Cloud, rows, grads, into: CloudGradients, numbers: Numbers) -> None:
    """Adds the gradients of the far field, and of what it gives a point of itself."""
    a, b, q = numbers.far
    if a == 0:
        return
    points = _centred(cloud)
    sources, targets = points[: len(rows)], points[cloud.first_query :]
    of_rows, of_grads = _moments(sources, rows), _moments(targets, grads)
    square = (sources**2).sum(axis=1, keepdims=True)
    total, squares, products = of_grads
    into.rows[:] += (a * total - b * (square * total + squares) + q * square * squares + 2 * b * (sources @ products)).astype(
        into.rows.dtype
    )

    def position_gradient(points: np.ndarray, values: np.ndarray, moments) -> np.ndarray:
        total, squares, products = moments
        by_square = -b * (values @ total) + q * (values @ squares)
        return 2 * points * by_square[:, None] + 2 * b * (values @ products.T)

    into.keys[:] += position_gradient(sources, rows.astype(np.float64), of_grads).astype(into.keys.dtype)
    into.queries[:] += position_gradient(targets, grads.astype(np.float64), of_rows).astype(into.queries.dtype)
    if cloud.to_itself and q > 0:
        product = np.einsum("ic,ic->i", rows, grads, dtype=np.float64)
        into.keys[:] -= (4 * q * (product * square[:, 0])[:, None] * points).astype(into.keys.dtype)


def _moments(points: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums rows, rows times squares, and rows times coordinates, in float64: (C,), (C,) and (D, C)."""
    weights = np.concatenate([np.ones((len(points), 1)), (points**2).sum(axis=1, keepdims=True), points], axis=1)
    sums = np.zeros((weights.shape[1], rows.shape[1]))
    add_moments(0, len(points), weights, rows, sums)
    return sums[0], sums[1], sums[2:]


def near_cells(cloud: Cloud, numbers: Numbers, function: Kernel) -> NearField:
    """Sorts the points into the cells of the near field."""
    square = numbers.radius**2
    constants = [square, 1 / (square * (1 - FADE_START**2)), function.rate, *function.coefficients, function.power]
    table = np.concatenate([constants[2:], numbers.near]).astype(cloud.points.dtype)
    return lay_cells(cloud.positions, cloud.first_query, numbers.radius, np.array(constants[:2], cloud.points.dtype), table)


# Kernels


@kernel("int64, int64, float64[:, ::1], real[:, ::1], float64[:, ::1]")
def add_moments(begin, end, weights, rows, sums):
    """Adds the products of all pairs of a weight and a value of the same point."""
    for i in range(begin, end):
        for k in range(weights.shape[1]):
            for c in range(rows.shape[1]):
                sums[k, c] += weights[i, k] * rows[i, c]
