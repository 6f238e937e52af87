"""The ladder filter of one cloud on the CPU: locate, index, splat, reduce, expand, slice, near
field. Functions and their order are those of the specification,
:mod:`phgcn.lattice.reference.ladder`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...kernels import Kernel
from ...runtime.numba import kernel
from ..filter_call import LIMIT, Kept
from ..geometry import kuhn_matrix, origin
from ..ladder import (
    QUARTILES,
    Numbers,
    choose_rung,
    ladder_numbers,
    log_rung,
    own_table,
)
from ..scheme import Ladder
from .cells import NearField, lay_cells
from .clouds import Cloud, CloudGradients
from .index import Located, locate_points
from .locate import Frame, map_points
from .moves import Octave, expand, find_coarsening, find_smoothing, reduce, vertex_key
from .near import mean_pairs, near_field
from .slice import (
    add_position_gradients,
    add_self_gradients,
    add_self_term,
    self_weights,
    slice_gradients,
    slice_rows,
)
from .splat import splat

# free vertices below and above all points on every level, an even number: moves reach at most three
MARGIN = 8


class Filtered(NamedTuple):
    """The lattice of a cloud, built in the forward pass and read again in the backward pass.

    Args:
        numbers (Numbers): The numbers of its ladder.
        located (Located): The simplices of its points on level 0.
        octaves (sequence of Octave): The moves of its steps.
        near (NearField or None): The cells of its near field.
        table (np.ndarray or None): The filtered rows at the vertices of step 0.
    """

    numbers: Numbers
    located: Located
    octaves: Sequence[Octave] = ()
    near: NearField | None = None
    table: np.ndarray | None = None

    def keep(self, kept: Kept) -> None:
        """Keeps moves and table if there is room, else only the points' location."""
        moves = [move for octave in self.octaves for move in (*octave.smooth, *octave.coarsen)]
        size = sum(move.source.nbytes + move.target.nbytes for move in moves)
        assert self.table is not None
        is_whole = kept.has_room(size + self.table.nbytes, LIMIT)
        kept.append(self if is_whole else Filtered(self.numbers, self.located))


def ladder_sum(
    cloud: Cloud, rows: np.ndarray, out: np.ndarray, scheme: Ladder, function: Kernel
) -> Filtered:
    """Filters the ``rows`` of a cloud's keys (N, W) and adds the sums at its queries to ``out`` (M,
    W). Returns the lattice for :func:`ladder_gradients`."""
    cloud.close_gaps()
    filtered = filter_rows(cloud, rows, function, lay_ladder(cloud, scheme, function))
    numbers, located, _, near, table = filtered
    slice_rows(table, located, cloud.first_query, out, is_first=True)
    add_far_field(cloud, rows, out, numbers)
    if near is not None:
        near_field(near, near.source.take(rows), out)
    if cloud.to_itself:
        add_self_term(1 - own_weights(cloud, located, numbers), rows, out)
    return filtered


def ladder_gradients(
    cloud: Cloud,
    rows,
    grads,
    into: CloudGradients,
    scheme: Ladder,
    function: Kernel,
    found: Filtered | None,
) -> None:
    """Adds the gradients of :func:`ladder_sum` to ``into``. The filter is symmetric, so ``grads``
    (M, W) are filtered like values. Without ``found`` the lattice is built again."""
    cloud.close_gaps()
    found = found or lay_ladder(cloud, scheme, function)
    if found.table is None:
        found = filter_rows(cloud, rows, function, found)
    numbers, located, octaves, near, values = found
    table = splat(rows[:0, :0], grads, cloud.first_query, located)
    table = expand(reduce(table, octaves), octaves, numbers)
    slope = slice_gradients(values, table, located, rows, grads, cloud.first_query, into.rows)
    if cloud.to_itself:
        own = numbers.weight[1] * own_table(cloud.points.shape[1])
        add_self_gradients(located, own, rows, grads, slope)
    for part, gradient in (
        (slice(0, len(into.keys)), into.keys),
        (slice(cloud.first_query, None), into.queries),
    ):
        if gradient is into.keys or not cloud.to_itself:
            add_position_gradients(slope[part], located.frame.matrix, gradient)
    add_far_gradients(cloud, rows, grads, into, numbers)
    if cloud.to_itself:
        add_self_term(1 - own_weights(cloud, located, numbers), grads, into.rows)
    if near is not None:
        add_near_gradients(cloud, near, rows, grads, into)


def lay_ladder(cloud: Cloud, scheme: Ladder, function: Kernel) -> Filtered:
    """Chooses the ladder of a cloud, and locates its points on level 0."""
    dim = cloud.points.shape[1]

    def pairs(radius: float) -> float:
        return mean_pairs(cloud.positions, cloud.first_query, radius, scheme.pairs)

    diameter = float(np.linalg.norm(cloud.positions.high - cloud.positions.low))
    rung = choose_rung(scheme, dim, diameter, middle_width(cloud.points), pairs)
    log_rung(len(cloud.points), rung, pairs)
    numbers = ladder_numbers(function, dim, rung)
    # counted from an even vertex below all
    half_steps = len(numbers.weight) // 2
    matrix, shift = kuhn_matrix(dim).numpy() / rung.h, origin(dim).numpy() * 2.0**half_steps
    w, low, high = map_points(cloud.points, matrix, shift)
    base = _even_base(np.floor(low))
    frame = Frame(w, base, high - base, matrix, MARGIN, cloud.points.dtype)
    return Filtered(numbers, locate_points(frame))


def filter_rows(cloud: Cloud, rows: np.ndarray, function: Kernel, found: Filtered) -> Filtered:
    """Finds the moves of a ladder, and takes rows up and down."""
    numbers, located = found[:2]
    octaves = find_octaves(located, numbers)
    table = splat(rows, rows[:0, :0], 0, located)
    table = expand(reduce(table, octaves), octaves, numbers)
    near = None
    if numbers.radius > 0:
        polynomial = numbers.near.tolist()
        near = lay_cells(cloud.positions, cloud.first_query, numbers.radius, function, polynomial)
    return Filtered(numbers, located, octaves, near, table)


def add_near_gradients(cloud: Cloud, near: NearField, rows, grads, into: CloudGradients) -> None:
    if cloud.to_itself:
        products = near.target.take(grads, rows), near.source.take(rows, grads)
        near_field(near, near.source.take(grads), into.rows, *products, into.keys)
    else:
        of_rows, of_grads = near.source.take(rows), near.target.take(grads)
        near_field(near, target_rows=of_grads, source_rows=of_rows, grad=into.queries)
        near_field(near.swapped(), of_grads, into.rows, of_rows, of_grads, into.keys)


def middle_width(points: np.ndarray) -> float:
    quarters = [len(points) // 4, 3 * len(points) // 4]
    ordered = [np.partition(np.ascontiguousarray(line), quarters)[quarters] for line in points.T]
    width = sorted((float(high) - float(low)) / QUARTILES for low, high in ordered)
    return width[(len(width) - 1) // 2]


# Index


def find_octaves(located: Located, numbers: Numbers) -> list[Octave]:
    keys, base, steps = located.frame.keys(), located.frame.base, len(numbers.weight)
    key, octaves = located.vertices.key.astype(np.int64), []
    for step in range(0, steps, 2):
        smooth, smooth_key = (
            find_smoothing(key, keys) if numbers.weight[step + 1 :][:1].any() else ([], key[:0])
        )
        coarsen, following = find_coarsening(key, keys) if step + 2 < steps else ([], key[:0])
        octaves.append(Octave(key, smooth_key, smooth, coarsen))
        # A coarser vertex counts from an even one as well.
        following_base = _even_base(base / 2)
        key = following + vertex_key(base / 2 - following_base, keys)
        base = following_base
    return octaves


def _even_base(lowest: np.ndarray) -> np.ndarray:
    return 2 * np.floor(lowest / 2) - MARGIN


# What the ladder does not hold


def own_weights(cloud: Cloud, located: Located, numbers: Numbers) -> np.ndarray:
    """Computes the filter's weight between each point and itself, float64, (N,)."""
    a, _, q = numbers.far
    own = self_weights(located, numbers.weight[1] * own_table(cloud.points.shape[1]))
    own += numbers.own + numbers.at_zero + a
    if q > 0:
        own += q * far_features(cloud)[:, 1] ** 2
    return own


def far_features(cloud: Cloud) -> np.ndarray:
    """Computes 1, square, and coordinates from the middle of the box, (P, D + 2)."""
    points = cloud.points.astype(np.float64)
    points -= (cloud.positions.low + cloud.positions.high) / 2
    square = (points**2).sum(axis=1, keepdims=True)
    return np.concatenate([np.ones_like(square), square, points], axis=1)


def add_far_field(cloud: Cloud, rows: np.ndarray, out: np.ndarray, numbers: Numbers) -> None:
    """Adds the steps that are wider than the cloud."""
    if numbers.far[0] == 0:
        return
    features = far_features(cloud)
    table = numbers.far_matrix(cloud.points.shape[1]) @ _moments(features[: len(rows)], rows)
    out += (features[cloud.first_query :] @ table).astype(out.dtype)


def add_far_gradients(cloud: Cloud, rows, grads, into: CloudGradients, numbers: Numbers) -> None:
    """Adds the gradients of the far field, and of its weights between a point and itself."""
    if numbers.far[0] == 0:
        return
    features, matrix = far_features(cloud), numbers.far_matrix(cloud.points.shape[1])
    sources, targets = features[: len(rows)], features[cloud.first_query :]
    of_rows, of_grads = matrix @ _moments(sources, rows), matrix @ _moments(targets, grads)
    into.rows[:] += (sources @ of_grads).astype(into.rows.dtype)
    for points, values, table, out in (
        (sources, rows, of_grads, into.keys),
        (targets, grads, of_rows, into.queries),
    ):
        slope = values.astype(np.float64) @ table.T
        out[:] += (slope[:, 2:] + 2 * slope[:, 1:2] * points[:, 2:]).astype(out.dtype)
    q = numbers.far[2]
    if cloud.to_itself and q > 0:
        product = np.einsum("ic,ic->i", rows, grads, dtype=np.float64) * sources[:, 1]
        into.keys[:] -= (4 * q * product[:, None] * sources[:, 2:]).astype(into.keys.dtype)


def _moments(features: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Sums the products of the points' features and rows in float64, (D + 2, C)."""
    sums = np.zeros((features.shape[1], rows.shape[1]))
    add_moments(0, len(rows), features, rows, sums)
    return sums


# Kernels


@kernel("int64, int64, float64[:, ::1], real[:, ::1], float64[:, ::1]")
def add_moments(begin, end, weights, rows, sums):
    r"""Adds :math:`\sum_i w_{ik} f_{ic}` to ``sums`` (K, C), over points ``begin`` to ``end``."""
    for i in range(begin, end):
        for k in range(weights.shape[1]):
            for c in range(rows.shape[1]):
                sums[k, c] += weights[i, k] * rows[i, c]
