r"""Slice: rows of values from vertices back to points, and the derivatives by their positions."""

from __future__ import annotations

import numpy as np

from ...runtime.numba import helper, kernel
from ...runtime.threads import run_rows
from .index import Corners, Level
from .locate import Simplices
from .splat import TERMS, add_five

CHUNK = 128
"""Points whose gradients are fetched or written together: they lie anywhere in memory, and fetches overlap."""

GRAIN = 4096
"""Least number of points or vertices that a thread takes."""


def add_coarser(table: np.ndarray, finer: Level, coarser_table: np.ndarray, coarser: Level) -> None:
    """Adds half of each parent's row to a vertex, so that slicing from the finer level gives both levels."""
    half = table.dtype.type(0.5)
    run_rows(add_parents, len(finer.site), GRAIN, finer.site, coarser.source_site, half, coarser_table, table)


def slice_rows(
    table, simplices: Simplices, corners: Corners, level: Level, first_query: int, out: np.ndarray, is_first: bool = False
) -> None:
    r"""Adds to each query what the vertices of its simplex hold, times its barycentric weights.

    The queries are the points from ``first_query`` on, as many as ``out`` has rows.  If ``is_first``, their rows are set to it,
    which is faster.

    Shapes:
        - **table:** rows of all sites, :math:`(\text{sites}, C)`, **out:** :math:`(M, C)`
    """
    given = table, simplices.point, corners.number, level.source_site, simplices.weight, first_query, is_first
    run_rows(slice_points, len(simplices.point), GRAIN, *given, out)


def slice_gradients(
    values, grads, column: int, simplices: Simplices, corners: Corners, level: Level, rows, row_grads, first_query: int, out
) -> np.ndarray:
    r"""Slices blurred gradients to those of the keys' rows, and takes the derivative by the Kuhn coordinates of all points.

    With :math:`t_r` the product of a point's row with the gradients at its simplex's r-th vertex, plus that of its gradient
    with the values there, the Kuhn coordinate that leads from vertex r - 1 to r has the derivative :math:`t_r - t_{r-1}`.

    Args:
        values, grads (np.ndarray): Blurred rows of all sites; those of the gradients are in columns from ``column`` on.
        simplices, corners, level: Where the points lie.
        rows (np.ndarray): The rows of the keys, which are the first points, :math:`(N, C)`.
        row_grads (np.ndarray): The gradients of the queries, which are the points from ``first_query`` on, :math:`(M, C)`.
        out (np.ndarray): Where the gradients of the keys' rows are added, :math:`(N, C)`.

    Returns:
        The derivatives by Kuhn coordinates of the finest level, float64, :math:`(P, D)`.
    """
    slope = np.empty(simplices.order.shape)
    chunks = -(-len(simplices.point) // CHUNK)
    located = simplices.point, simplices.order, corners.number, level.source_site, simplices.weight
    run_rows(
        slice_gradient_chunks, chunks, GRAIN // CHUNK, values, grads, column, *located, rows, row_grads, first_query, out, slope
    )  # fmt: skip
    return slope


def add_position_gradients(slope: np.ndarray, matrix: np.ndarray, out: np.ndarray) -> None:
    """Adds to gradients of positions (P, D) those by Kuhn coordinates, ``slope @ matrix``."""
    run_rows(add_products, len(out), GRAIN, slope, matrix, out)


def add_self_term(self_term: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Adds to each point its own row (P, C), times its self term, (P,)."""
    run_rows(add_scaled_rows, len(out), GRAIN, self_term.astype(rows.dtype), rows, out)


@kernel("int64, int64, int32[::1], int32[::1], real, real[:, ::1], real[:, ::1]")
def add_parents(begin, end, site, source_site, half, coarser, out):
    """Adds half of the rows at sources 2v and 2v + 1 of the coarser level to vertex v."""
    for v in range(begin, end):
        s, p, q = site[v], source_site[2 * v], source_site[2 * v + 1]
        for c in range(out.shape[1]):
            out[s, c] += half * (coarser[p, c] + coarser[q, c])


@helper
def five_corners(number, source_site, weight, a, r):
    """Returns the sites and the weights of a point's corners r to r + 4; beyond the last corner, that one with weight 0."""
    last, zero = number.shape[1] - 1, weight.dtype.type(0)
    r1, r2, r3, r4 = min(r + 1, last), min(r + 2, last), min(r + 3, last), min(r + 4, last)
    return (
        source_site[number[a, r]], source_site[number[a, r1]], source_site[number[a, r2]], source_site[number[a, r3]],
        source_site[number[a, r4]], weight[a, r], weight[a, r1] if r < r1 else zero, weight[a, r2] if r1 < r2 else zero,
        weight[a, r3] if r2 < r3 else zero, weight[a, r4] if r3 < r4 else zero,
    )  # fmt: skip


@kernel("int64, int64, real[:, ::1], int32[::1], int32[:, ::1], int32[::1], real[:, ::1], int64, boolean, real[:, ::1]")
def slice_points(begin, end, table, point, number, source_site, weight, first_query, is_first, out):
    """Adds to each query the rows of its simplex's vertices, times its weights, or sets it to their sum."""
    for a in range(begin, end):
        query = point[a] - first_query
        if 0 <= query < out.shape[0]:
            for r in range(0, number.shape[1], TERMS):
                v0, v1, v2, v3, v4, w0, w1, w2, w3, w4 = five_corners(number, source_site, weight, a, r)
                add_five(out, query, table, v0, v1, v2, v3, v4, w0, w1, w2, w3, w4, is_first and r == 0)


@kernel(
    "int64, int64, real[:, ::1], real[:, ::1], int64, int32[::1], uint8[:, ::1], int32[:, ::1], int32[::1], real[:, ::1], "
    "real[:, ::1], real[:, ::1], int64, real[:, ::1], float64[:, ::1]"
)
def slice_gradient_chunks(
    begin, end, values, grads, column, point, order, number, source_site, weight, rows, row_grads, first_query, out, slope
):
    """Slices the gradients of chunks of points; see :func:`slice_gradients`."""
    width, zero, column = np.uint64(rows.shape[1]), rows.dtype.type(0), np.uint64(column)
    row, asked = np.empty((CHUNK, width), rows.dtype), np.empty((CHUNK, width), rows.dtype)
    total, steps = np.empty((CHUNK, width), rows.dtype), np.empty((CHUNK, slope.shape[1]))
    product = np.empty(number.shape[1] + TERMS, rows.dtype)  # of a point's rows with those at each corner
    for lead in range(begin * CHUNK, min(point.shape[0], end * CHUNK), CHUNK):
        count = min(CHUNK, point.shape[0] - lead)
        for i in range(count):
            key, query = point[lead + i], point[lead + i] - first_query
            if key < rows.shape[0]:
                for c in range(width):
                    row[i, c] = rows[key, c]
            else:
                for c in range(width):
                    row[i, c] = zero
            if 0 <= query < row_grads.shape[0]:
                for c in range(width):
                    asked[i, c] = row_grads[query, c]
            else:
                for c in range(width):
                    asked[i, c] = zero
        for i in range(count):
            a = lead + i
            for r in range(0, number.shape[1], TERMS):
                v0, v1, v2, v3, v4, w0, w1, w2, w3, w4 = five_corners(number, source_site, weight, a, r)
                t0 = t1 = t2 = t3 = t4 = zero
                for c in range(width):
                    x, y, g = row[i, c], asked[i, c], column + c
                    t0 += x * grads[v0, g] + y * values[v0, c]
                    t1 += x * grads[v1, g] + y * values[v1, c]
                    t2 += x * grads[v2, g] + y * values[v2, c]
                    t3 += x * grads[v3, g] + y * values[v3, c]
                    t4 += x * grads[v4, g] + y * values[v4, c]
                for c in range(width):
                    g = column + c
                    z = w0 * grads[v0, g] + w1 * grads[v1, g] + w2 * grads[v2, g] + w3 * grads[v3, g] + w4 * grads[v4, g]
                    total[i, c] = z if r == 0 else total[i, c] + z
                product[r], product[r + 1], product[r + 2], product[r + 3], product[r + 4] = t0, t1, t2, t3, t4
            for r in range(number.shape[1] - 1):
                steps[i, order[a, r]] = product[r + 1] - product[r]
        for i in range(count):
            key = point[lead + i]
            for j in range(slope.shape[1]):
                slope[key, j] = steps[i, j]
            if key < rows.shape[0]:
                for c in range(width):
                    out[key, c] += total[i, c]


@kernel("int64, int64, float64[:, ::1], float64[:, ::1], real[:, ::1]")
def add_products(begin, end, slope, matrix, out):
    """Adds slope @ matrix."""
    for i in range(begin, end):
        for k in range(matrix.shape[1]):
            total = 0.0
            for j in range(matrix.shape[0]):
                total += slope[i, j] * matrix[j, k]
            out[i, k] += total


@kernel("int64, int64, real[::1], real[:, ::1], real[:, ::1]")
def add_scaled_rows(begin, end, factor, rows, out):
    """Adds factor[a] * rows[a] to out[a]."""
    for a in range(begin, end):
        for c in range(rows.shape[1]):
            out[a, c] += factor[a] * rows[a, c]
