"""The paper's filter of one cloud on the CPU: locate, index, splat, blur, slice. The blur is one
pass per lattice direction over touched vertices."""

from __future__ import annotations

import numpy as np

from ...runtime.numba import kernel
from ...runtime.threads import run_rows
from ..geometry import kuhn_matrix, origin
from ..scheme import Separable
from ..separable import SeparableWeights, directions, separable_weights
from .clouds import Cloud, CloudGradients
from .index import Located, locate_points
from .locate import lay_frame, map_points
from .slice import add_position_gradients, slice_gradients, slice_rows
from .sorting import lower_bound
from .splat import splat

GRAIN = 4096  # least number of vertices that a thread takes


def separable_sum(cloud: Cloud, rows: np.ndarray, out: np.ndarray, scheme: Separable) -> Located:
    weights = separable_weights(scheme, cloud.points.shape[1])
    located = lay_lattice(cloud, weights)
    neighbours = find_neighbours(located, weights)
    table = blur(splat(rows, rows[:0, :0], 0, located), neighbours, weights)
    slice_rows(table, located, cloud.first_query, out, is_first=True)
    return located


def separable_gradients(
    cloud: Cloud, rows, grads, into: CloudGradients, scheme: Separable, found: Located | None
) -> None:
    """Adds the gradients of :func:`separable_sum`. Passes over touched vertices do not commute:
    gradients take them in reverse."""
    weights = separable_weights(scheme, cloud.points.shape[1])
    located = found or lay_lattice(cloud, weights)
    neighbours, matrix = find_neighbours(located, weights), located.frame.matrix
    values = blur(splat(rows, rows[:0, :0], 0, located), neighbours, weights)
    table = splat(rows[:0, :0], grads, cloud.first_query, located)
    blurred = blur(table, neighbours[::-1], weights)
    slope = slice_gradients(values, blurred, located, rows, grads, cloud.first_query, into.rows)
    add_position_gradients(slope[: len(into.keys)], matrix, into.keys)
    if not cloud.to_itself:
        add_position_gradients(slope[cloud.first_query :], matrix, into.queries)


def lay_lattice(cloud: Cloud, weights: SeparableWeights) -> Located:
    dim, hops = cloud.points.shape[1], len(weights.weights) - 1
    matrix = kuhn_matrix(dim).numpy() / weights.spacing
    mapped = map_points(cloud.points, matrix, origin(dim).numpy())
    return locate_points(lay_frame(mapped, matrix, hops, cloud.points.dtype))


def find_neighbours(located: Located, weights: SeparableWeights) -> list[np.ndarray]:
    """Finds for each direction the indices of the vertices 1, 2, ... hops ahead of each vertex,
    then behind it: int32, (V, 2 * hops), -1 for none."""
    key, keys = located.vertices.key, located.frame.keys()
    hops, found = len(weights.weights) - 1, []
    for direction in directions(len(keys.multiplier)):
        neighbours = np.full((len(key), 2 * hops), -1, np.int32)
        step = (direction.astype(np.uint64) * keys.multiplier).sum(dtype=np.uint64)
        run_rows(find_ahead, len(key), GRAIN, key, step, neighbours)
        run_rows(find_behind, hops, 1, neighbours)
        found.append(neighbours)
    return found


def blur(table: np.ndarray, neighbours: list[np.ndarray], weights: SeparableWeights) -> np.ndarray:
    """Blurs a table (V, C) along all directions and scales it. Overwrites ``table``."""
    spare, weight = np.empty_like(table), weights.weights.astype(table.dtype)
    for number, indices in enumerate(neighbours):
        factor = weights.scale if number == 0 else 1.0
        run_rows(
            blur_pass, len(table), GRAIN, table, indices, table.dtype.type(factor) * weight, spare
        )
        table, spare = spare, table
    return table


@kernel("int64, int64, uint64[::1], uint64, int32[:, ::1]")
def find_ahead(begin, end, key, step, neighbours):
    """Writes the indices of the vertices 1, 2, ... times ``step`` ahead of each vertex into
    ``neighbours``. Keys ascend, so that a position in ``key`` moves forward only."""
    hops = neighbours.shape[1] // 2
    for hop in range(hops):
        away = np.uint64(hop + 1) * step
        index = lower_bound(key, key[begin] + away)
        for v in range(begin, end):
            wanted = key[v] + away
            while index < key.shape[0] and key[index] < wanted:
                index += 1
            if index < key.shape[0] and key[index] == wanted:
                neighbours[v, hop] = index


@kernel("int64, int64, int32[:, ::1]")
def find_behind(begin, end, neighbours):
    """Writes the indices of the vertices behind each vertex: the inverse of :func:`find_ahead`."""
    hops = neighbours.shape[1] // 2
    for hop in range(begin, end):
        for v in range(neighbours.shape[0]):
            ahead = neighbours[v, hop]
            if ahead >= 0:
                neighbours[ahead, hops + hop] = v


@kernel("int64, int64, real[:, ::1], int32[:, ::1], real[::1], real[:, ::1]")
def blur_pass(begin, end, table, neighbours, weight, out):
    """Sums the weighted rows of each vertex and of its neighbours ahead and behind."""
    hops, width = neighbours.shape[1] // 2, np.uint64(table.shape[1])
    for v in range(begin, end):
        for c in range(width):
            out[v, c] = weight[0] * table[v, c]
        for n in range(2 * hops):
            p, w = neighbours[v, n], weight[1 + n % hops]
            if p >= 0:
                for c in range(width):
                    out[v, c] += w * table[p, c]
