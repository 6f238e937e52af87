r"""The ladder filter of one cloud on the cores of the CPU: locate, index, splat, reduce, expand, slice, and the near field.

The same functions in the same order as :mod:`phgcn.lattice.reference.ladder`, which says what each computes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...kernels import KERNELS, Kernel
from ...runtime.numba import helper, kernel
from ...runtime.threads import run_rows
from ..geometry import kuhn_matrix, origin
from ..ladder import FADE_START, QUARTILES, Numbers, Rung, ladder_numbers, own_table
from ..scheme import Ladder
from .cells import NearField, lay_cells
from .clouds import Cloud, CloudGradients
from .index import Corners, Level, Vertices, coarsen, index, lay_out, planned_vertices
from .keys import Keys, choose_keys
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
from .near import near_field
from .slice import add_position_gradients, add_self_term, slice_gradients, slice_rows
from .sorting import lower_bound
from .splat import splat

GRAIN = 4096
"""Least number of vertices that a thread takes."""

MARGIN = 8
"""Free vertices below and above all points on every level, an even number: smoothing reaches at most six."""


class Smoothing(NamedTuple):
    """A pass of A along one direction: every vertex gives half to itself and half to its neighbour.

    Args:
        own, neighbour (np.ndarray): The places of a target's sources in the table before, its end for none, int32, (V',).
        first_target, second_target (np.ndarray): The places of a source's targets in the table behind, int32, (V,).
    """

    own: np.ndarray
    neighbour: np.ndarray
    first_target: np.ndarray
    second_target: np.ndarray


class Halving(NamedTuple):
    """R: every vertex gives half to either parent.

    Args:
        source (np.ndarray): Sources 2v and 2v + 1 are vertex v; (2V,), target by target from ``start`` on, (V' + 1,).
        first_target, second_target (np.ndarray): The places of a source's targets in the table behind, int32, (V,).
    """

    source: np.ndarray
    start: np.ndarray
    first_target: np.ndarray
    second_target: np.ndarray


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
    key, moves = _vertex_keys(vertices.coordinate, keys), []
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


def _vertex_keys(coordinate: np.ndarray, keys: Keys) -> np.ndarray:
    return (coordinate.astype(np.uint64) * keys.multiplier).sum(axis=1, dtype=np.uint64)


def find_smoothing(key: np.ndarray, offset: np.uint64) -> tuple[Smoothing, np.ndarray]:
    """Merges ascending keys with the same keys moved by an offset; returns the pass and the merged keys."""
    count, parts = len(key), -(-len(key) // GRAIN)
    first = np.zeros(parts + 1, np.int64)
    run_rows(count_union, parts, 1, key, offset, first[1:])
    first.cumsum(out=first)
    total = first[-1]
    merged, own, neighbour = np.empty(total, np.uint64), np.empty(total, np.int32), np.empty(total, np.int32)
    to_own, to_neighbour = np.empty(count, np.int32), np.empty(count, np.int32)
    run_rows(write_union, parts, 1, key, offset, first, merged, own, neighbour, to_own, to_neighbour)
    return Smoothing(own, neighbour, to_own, to_neighbour), merged


def find_halving(key: np.ndarray, finer: Keys, coarser: Keys, added: np.ndarray) -> tuple[Halving, np.ndarray]:
    """Finds the parents of vertices with these keys; returns the move and the parents' keys, ascending.

    Parents count from another base: ``added``, (D,), is what is added to their coordinates.
    """
    coordinate = np.empty((len(key), len(finer.multiplier)), np.int32)
    run_rows(read_key_coordinates, len(key), GRAIN, key, finer.shift, coordinate)
    coordinate += 2 * added.astype(np.int32)
    vertices = coarsen(Vertices(coordinate, np.empty(0, np.int32), np.empty(0, np.int32)), coarser)
    parent = np.empty(len(vertices.source), np.int32)
    run_rows(number_parents, len(vertices.coordinate), GRAIN, vertices.source, vertices.start, parent)
    first, second = parent.reshape(-1, 2).T.copy()
    return Halving(vertices.source, vertices.start, first, second), _vertex_keys(vertices.coordinate, coarser)


# Reduce and expand


def reduce(table: np.ndarray, moves: list[list[Smoothing | Halving]]) -> list[np.ndarray]:
    """Takes the table of step 0 up the ladder; returns the tables of all steps."""
    half, tables = table.dtype.type(0.5), [table]
    # Behind every table is a row of zeros, for sources that are not there.
    table = np.concatenate([table, np.zeros_like(table[:1])])
    for maps in moves:
        for move in maps:
            count = len(move.own) if isinstance(move, Smoothing) else len(move.start) - 1
            out = np.empty((count + 1, table.shape[1]), table.dtype)
            out[-1] = 0
            if isinstance(move, Smoothing):
                run_rows(average_sources, count, GRAIN, table, move.own, move.neighbour, half, out)
            else:
                run_rows(sum_children, count, GRAIN, table, move.source, move.start, half, out)
            table = out
        tables.append(table[:-1])
    return tables


def expand(tables: list[np.ndarray], moves: list[list[Smoothing | Halving]], numbers: Numbers) -> np.ndarray:
    """Weighs the tables of all steps, and hands them down the ladder by the transposed moves; returns a table of step 0."""
    weight = numbers.weight.astype(tables[0].dtype)
    half, total = tables[0].dtype.type(0.5), weight[-1] * tables[-1]
    for step in range(len(moves) - 1, -1, -1):
        for number, move in enumerate(reversed(moves[step])):
            is_last = number + 1 == len(moves[step]) and weight[step] != 0
            added = tables[step] if is_last else total[:0]
            out = np.empty((len(move.first_target), total.shape[1]), total.dtype)
            targets = move.first_target, move.second_target
            run_rows(average_targets, len(out), GRAIN, total, *targets, half, added, weight[step], out)
            total = out
    return total


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


@helper
def union_part(part, key, offset):
    """Returns where a part begins and ends among the keys, and among the moved keys.

    Moved keys below the first key belong to the first part, those above the last to the last.
    """
    begin, end = part * GRAIN, min(key.shape[0], (part + 1) * GRAIN)
    first, last = np.int64(0), np.int64(key.shape[0])
    if begin > 0 and np.int64(key[begin]) > np.int64(offset):
        first = np.int64(lower_bound(key, key[begin] - offset))
    if end < key.shape[0]:
        last = np.int64(lower_bound(key, key[end] - offset)) if np.int64(key[end]) > np.int64(offset) else np.int64(0)
    return begin, first, end, last


@kernel("int64, int64, uint64[::1], uint64, int64[::1]")
def count_union(begin, end, key, offset, count):
    """Counts the keys of each part, ``GRAIN`` keys and all moved keys up to the next part's first, each once."""
    for part in range(begin, end):
        a, b, last, last_b = union_part(part, key, offset)
        total = 0
        while a < last or b < last_b:
            x = key[a] if a < last else np.uint64(0xFFFFFFFFFFFFFFFF)
            y = key[b] + offset if b < last_b else np.uint64(0xFFFFFFFFFFFFFFFF)
            a += x <= y
            b += y <= x
            total += 1
        count[part] = total


@kernel(
    "int64, int64, uint64[::1], uint64, int64[::1], uint64[::1], int32[::1], int32[::1], int32[::1], int32[::1]"
)  # fmt: skip
def write_union(begin, end, key, offset, first, merged, own, neighbour, to_own, to_neighbour):
    """Writes the union of each part, the places that its keys come from, and the places that they go to."""
    for part in range(begin, end):
        a, b, last, last_b = union_part(part, key, offset)
        place = first[part]
        while a < last or b < last_b:
            x = key[a] if a < last else np.uint64(0xFFFFFFFFFFFFFFFF)
            y = key[b] + offset if b < last_b else np.uint64(0xFFFFFFFFFFFFFFFF)
            merged[place] = min(x, y)
            own[place] = neighbour[place] = key.shape[0]
            if x <= y:
                own[place], to_own[a] = a, place
                a += 1
            if y <= x:
                neighbour[place], to_neighbour[b] = b, place
                b += 1
            place += 1


@kernel("int64, int64, uint64[::1], uint64[::1], int32[:, ::1]")
def read_key_coordinates(begin, end, key, shift, out):
    """Reads the coordinates of vertices from their keys, in which they begin at bits ``shift``."""
    for v in range(begin, end):
        rest = key[v]
        for j in range(out.shape[1]):
            c = rest >> shift[j]
            rest -= c << shift[j]
            out[v, j] = c


@kernel("int64, int64, int32[::1], int32[::1], int32[::1]")
def number_parents(begin, end, source, start, parent):
    """Writes, for every source of a vertex, the vertex."""
    for v in range(begin, end):
        for a in range(start[v], start[v + 1]):
            parent[source[a]] = v


@kernel("int64, int64, real[:, ::1], int32[::1], int32[::1], real, real[:, ::1]")
def average_sources(begin, end, table, own, neighbour, half, out):
    """Averages the rows at two places."""
    width = np.uint64(table.shape[1])
    for v in range(begin, end):
        p, q = own[v], neighbour[v]
        for c in range(width):
            out[v, c] = half * (table[p, c] + table[q, c])


@kernel("int64, int64, real[:, ::1], int32[::1], int32[::1], real, real[:, ::1]")
def sum_children(begin, end, table, source, start, half, out):
    """Sums half of the rows of the sources of each vertex; sources 2v and 2v + 1 are row v."""
    width = np.uint64(table.shape[1])
    for v in range(begin, end):
        for c in range(width):
            out[v, c] = 0
        for a in range(start[v], start[v + 1]):
            p = source[a] >> 1
            for c in range(width):
                out[v, c] += half * table[p, c]


@kernel("int64, int64, real[:, ::1], int32[::1], int32[::1], real, real[:, ::1], real, real[:, ::1]")
def average_targets(begin, end, table, first, second, half, added, weight, out):
    """Averages the rows at two places, and adds the weighted row of ``added``, unless that is empty."""
    width = np.uint64(table.shape[1])
    for v in range(begin, end):
        p, q = first[v], second[v]
        if added.shape[0] > 0:
            for c in range(width):
                out[v, c] = half * (table[p, c] + table[q, c]) + weight * added[v, c]
        else:
            for c in range(width):
                out[v, c] = half * (table[p, c] + table[q, c])


@kernel("int64, int64, float64[:, ::1], real[:, ::1], float64[:, ::1]")
def add_moments(begin, end, weights, rows, sums):
    """Adds the products of all pairs of a weight and a value of the same point."""
    for i in range(begin, end):
        for k in range(weights.shape[1]):
            for c in range(rows.shape[1]):
                sums[k, c] += weights[i, k] * rows[i, c]
