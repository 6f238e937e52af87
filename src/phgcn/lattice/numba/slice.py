"""Slice: rows of values from vertices back to points, and the derivatives by their positions."""

from __future__ import annotations

import numpy as np

from ...runtime.numba import helper, kernel
from ...runtime.threads import run_rows
from .index import Located

# points whose gradients are fetched or written together: they lie anywhere in memory, and fetches
# overlap
CHUNK = 128

GRAIN = 4096  # least number of points that a thread takes

# rows that are weighted and added in one loop, to spare trips to memory: the corners of a simplex
# in four dimensions
TERMS = 5


def slice_rows(
    table, located: Located, first_query: int, out: np.ndarray, is_first: bool = False
) -> None:
    """Interpolates ``table`` (V, C) at each query by its barycentric weights and adds the result to
    ``out`` (M, C). Queries are the points from ``first_query`` on. ``is_first`` overwrites ``out``,
    which is faster."""
    _, simplices, corners, vertices = located
    lie = simplices.point, corners.number, vertices.vertex_of, simplices.weight
    run_rows(slice_points, len(simplices.point), GRAIN, table, *lie, first_query, is_first, out)


def slice_gradients(
    values, grads, located: Located, rows, row_grads, first_query: int, out
) -> np.ndarray:
    r"""Slices blurred gradients to the keys' rows, and returns the derivatives by the Kuhn
    coordinates of all points on the finest level, float64, (P, D).

    Let :math:`t_r` be :math:`\langle f_i, g_v \rangle + \langle g_i, f_v \rangle` of a point
    :math:`i` and the r-th vertex :math:`v` of its simplex, with rows :math:`f` and gradients
    :math:`g`. The Kuhn coordinate from vertex r - 1 to r has the derivative :math:`t_r - t_{r-1}`.

    Args:
        values, grads (np.ndarray): Blurred rows and blurred gradients of all vertices, :math:`(V,
            C)`.
        located (Located): The simplices of the points.
        rows (np.ndarray): The rows of the keys, which are the first points, :math:`(N, C)`.
        row_grads (np.ndarray): The gradients of the queries, the points from ``first_query`` on,
            :math:`(M, C)`.
        out (np.ndarray): The gradients of the keys' rows, added to, :math:`(N, C)`.
    """
    _, simplices, corners, vertices = located
    point, order, weight, _ = simplices
    slope, chunks = np.empty(order.shape), -(-len(point) // CHUNK)
    lie = point, order, corners.number, vertices.vertex_of, weight
    given = values, grads, *lie, rows, row_grads, first_query
    run_rows(slice_gradient_chunks, chunks, GRAIN // CHUNK, *given, out, slope)
    return slope


def add_position_gradients(slope: np.ndarray, matrix: np.ndarray, out: np.ndarray) -> None:
    """Adds ``slope @ matrix`` to gradients of positions (P, D)."""
    run_rows(add_products, len(out), GRAIN, slope, matrix, out)


def add_self_term(self_term: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Adds to each point its own row (P, C), times its self term, (P,)."""
    run_rows(add_scaled_rows, len(out), GRAIN, self_term.astype(rows.dtype), rows, out)


def self_weights(located: Located, table: np.ndarray) -> np.ndarray:
    r"""Computes a filter's weight between each point and itself, :math:`a_i = \sum_{l,m} b_l b_m
    t_{|l-m|}`, float64, (P,), with barycentric weights :math:`b` and ``table`` :math:`t`, (D+1,).
    """
    point, _, weight, _ = located.simplices
    own = np.empty(len(point))
    run_rows(weigh_points, len(point), GRAIN, point, weight, table.astype(weight.dtype), own)
    return own


def add_self_gradients(located: Located, table: np.ndarray, rows, grads, slope: np.ndarray) -> None:
    r"""Subtracts from ``slope`` (P, D) the derivatives of :func:`self_weights` by the Kuhn
    coordinates, times :math:`\langle f_i, g_i \rangle`."""
    point, order, weight, _ = located.simplices
    product = np.empty(len(point))  # apart from the rest, in the order of the points in memory
    run_rows(multiply_rows, len(point), GRAIN, rows, grads, product)
    given = point, order, weight, table.astype(weight.dtype), product
    run_rows(differentiate_points, len(point), GRAIN, *given, slope)


@helper
def add_five(out, o, rows, p0, p1, p2, p3, p4, w0, w1, w2, w3, w4, is_set):
    """Adds five weighted rows to out[o], or sets it to their sum."""
    if is_set:
        for c in range(np.uint64(rows.shape[1])):
            out[o, c] = (
                w0 * rows[p0, c]
                + w1 * rows[p1, c]
                + w2 * rows[p2, c]
                + w3 * rows[p3, c]
                + w4 * rows[p4, c]
            )
    else:
        for c in range(np.uint64(rows.shape[1])):
            out[o, c] += (
                w0 * rows[p0, c]
                + w1 * rows[p1, c]
                + w2 * rows[p2, c]
                + w3 * rows[p3, c]
                + w4 * rows[p4, c]
            )


@helper
def five_corners(number, vertex_of, weight, a, r):
    """Returns vertices and weights of corners r to r + 4, with weight 0 beyond the last."""
    last, zero = number.shape[1] - 1, weight.dtype.type(0)
    r1, r2, r3, r4 = min(r + 1, last), min(r + 2, last), min(r + 3, last), min(r + 4, last)
    return (
        vertex_of[number[a, r]],
        vertex_of[number[a, r1]],
        vertex_of[number[a, r2]],
        vertex_of[number[a, r3]],
        vertex_of[number[a, r4]],
        weight[a, r],
        weight[a, r1] if r < r1 else zero,
        weight[a, r2] if r1 < r2 else zero,
        weight[a, r3] if r2 < r3 else zero,
        weight[a, r4] if r3 < r4 else zero,
    )


@kernel(
    "int64, int64, real[:, ::1], int32[::1], int32[:, ::1], int32[::1], real[:, ::1], int64, "
    "boolean, real[:, ::1]"
)
def slice_points(begin, end, table, point, number, vertex_of, weight, first_query, is_first, out):
    """Adds to each query the weighted rows of its simplex's vertices, or sets it to their sum."""
    for a in range(begin, end):
        query = point[a] - first_query
        if 0 <= query < out.shape[0]:
            for r in range(0, number.shape[1], TERMS):
                v0, v1, v2, v3, v4, w0, w1, w2, w3, w4 = five_corners(
                    number, vertex_of, weight, a, r
                )
                add_five(
                    out, query, table, v0, v1, v2, v3, v4, w0, w1, w2, w3, w4, is_first and r == 0
                )


@kernel(
    "int64, int64, real[:, ::1], real[:, ::1], int32[::1], uint8[:, ::1], int32[:, ::1], "
    "int32[::1], real[:, ::1], "
    "real[:, ::1], real[:, ::1], int64, real[:, ::1], float64[:, ::1]"
)
def slice_gradient_chunks(
    begin,
    end,
    values,
    grads,
    point,
    order,
    number,
    vertex_of,
    weight,
    rows,
    row_grads,
    first_query,
    out,
    slope,
):
    width, zero = np.uint64(rows.shape[1]), rows.dtype.type(0)
    row, asked = np.empty((CHUNK, width), rows.dtype), np.empty((CHUNK, width), rows.dtype)
    total, steps = np.empty((CHUNK, width), rows.dtype), np.empty((CHUNK, slope.shape[1]))
    # of a point's rows with those at each corner
    product = np.empty(number.shape[1] + TERMS, rows.dtype)
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
                v0, v1, v2, v3, v4, w0, w1, w2, w3, w4 = five_corners(
                    number, vertex_of, weight, a, r
                )
                t0 = t1 = t2 = t3 = t4 = zero
                for c in range(width):
                    x, y = row[i, c], asked[i, c]
                    t0 += x * grads[v0, c] + y * values[v0, c]
                    t1 += x * grads[v1, c] + y * values[v1, c]
                    t2 += x * grads[v2, c] + y * values[v2, c]
                    t3 += x * grads[v3, c] + y * values[v3, c]
                    t4 += x * grads[v4, c] + y * values[v4, c]
                for c in range(width):
                    z = (
                        w0 * grads[v0, c]
                        + w1 * grads[v1, c]
                        + w2 * grads[v2, c]
                        + w3 * grads[v3, c]
                        + w4 * grads[v4, c]
                    )
                    total[i, c] = z if r == 0 else total[i, c] + z
                product[r], product[r + 1], product[r + 2], product[r + 3], product[r + 4] = (
                    t0,
                    t1,
                    t2,
                    t3,
                    t4,
                )
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
    for i in range(begin, end):
        for k in range(matrix.shape[1]):
            total = 0.0
            for j in range(matrix.shape[0]):
                total += slope[i, j] * matrix[j, k]
            out[i, k] += total


@kernel("int64, int64, real[::1], real[:, ::1], real[:, ::1]")
def add_scaled_rows(begin, end, factor, rows, out):
    for a in range(begin, end):
        for c in range(rows.shape[1]):
            out[a, c] += factor[a] * rows[a, c]


@kernel("int64, int64, int32[::1], real[:, ::1], real[::1], float64[::1]")
def weigh_points(begin, end, point, weight, table, own):
    for a in range(begin, end):
        total = 0.0
        for l in range(weight.shape[1]):
            reached = table.dtype.type(0)
            for m in range(weight.shape[1]):
                reached += table[abs(l - m)] * weight[a, m]
            total += weight[a, l] * reached
        own[point[a]] = total


@kernel("int64, int64, real[:, ::1], real[:, ::1], float64[::1]")
def multiply_rows(begin, end, rows, others, product):
    for i in range(begin, end):
        total = rows.dtype.type(0)
        for c in range(rows.shape[1]):
            total += rows[i, c] * others[i, c]
        product[i] = total


@kernel(
    "int64, int64, int32[::1], uint8[:, ::1], real[:, ::1], real[::1], float64[::1], float64[:, "
    "::1]"
)
def differentiate_points(begin, end, point, order, weight, table, product, slope):
    """Adds the derivatives of the weights of points on themselves by their Kuhn coordinates."""
    for a in range(begin, end):
        i = point[a]
        for r in range(order.shape[1]):
            by_step = table.dtype.type(0)
            for m in range(weight.shape[1]):
                by_step += (table[abs(r + 1 - m)] - table[abs(r - m)]) * weight[a, m]
            slope[i, order[a, r]] -= 2 * product[i] * by_step
