"""Rows of all heads, laid out for the CPU kernels, head by head and graph by graph.

A row holds a point's channels, a 1 where the sum is normalised, and zeros up to a multiple of 4 for
vector registers. Normalised sums subtract the mean of the values first and add it at the end: in
float32, sums of numbers near 1,000 would lose the differences that positions' gradients depend on.
Values are scaled by a power of two, so that sums of the largest numbers do not overflow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .graphs import GraphGroups
from .numba import as_array, kernel
from .points import Gradients, OutputGradients, Points
from .threads import run_rows

GRAIN = 8192  # least number of points that a thread packs
BLOCK = 1024  # points whose values are summed at a time, in float64, for the mean of a graph

# values of up to this many times the mean absolute value of a graph are exact less its mean
HEADROOM = 8

# factor of the values where the sum is normalised: sums of 16 million of the largest numbers do not
# overflow
SCALE = 2.0**-24


class Centres(NamedTuple):
    """The mean of the values of each graph and head, (G, H, C), and the graph of each packed key
    and query, int32. All arrays are empty where values are not centred."""

    mean: np.ndarray
    key_graph: np.ndarray
    query_graph: np.ndarray


class Packed(NamedTuple):
    """All points, those of a graph side by side.

    Shapes:
        - **keys:** :math:`(H, N, D)`, **rows:** :math:`(H, N, W)`, values padded to :math:`W`
          columns
        - **queries:** :math:`(H, M, D)`, the same array as **keys** where they attend to themselves
        - **centres:** subtracted from the values
    """

    keys: np.ndarray
    rows: np.ndarray
    queries: np.ndarray
    centres: Centres


def pack_points(
    points: Points, groups: GraphGroups, normalise: bool, centres: Centres | None = None
) -> Packed:
    """Packs positions, values and queries. ``normalise`` centres and scales values."""
    queries = keys = _pack_positions(points.positions, groups.key_order)
    if points.queries is not None:
        queries = _pack_positions(points.queries, groups.query_order)
    values = as_array(points.values)
    if centres is None and normalise:
        centres = find_centres(values, groups, points.queries is None)
    elif centres is None:
        centres = _no_centres(values)
    count, heads, channels = values.shape
    rows = np.empty((heads, count, row_width(channels + normalise)), values.dtype)
    run_rows(pack, count, GRAIN, values, groups.key_order, centres.mean, centres.key_graph, rows)
    return Packed(keys, rows, queries, centres)


def pack_weights(points: Points, groups: GraphGroups) -> np.ndarray | None:
    """Packs the weights of the keys, (H, N, 1)."""
    if points.weights is None:
        return None
    return np.ascontiguousarray(as_array(points.weights)[groups.key_order].T)[..., None]


def weight_gradients(
    packed: Packed, of_rows: np.ndarray, weights: np.ndarray | None, groups: GraphGroups
) -> Tensor | None:
    """Computes the gradient of the weights, (N, H), from ``of_rows``, the gradient of rows times
    weights, which becomes the gradient of the rows."""
    if weights is None:
        return None
    of_weights = np.empty((packed.rows.shape[1], len(packed.rows)), packed.rows.dtype)
    scale = of_rows.dtype.type(1 / SCALE)
    of_weights[groups.key_order] = (of_rows * packed.rows).sum(axis=2).T * scale
    of_rows *= weights
    return torch.from_numpy(of_weights)


def _pack_positions(positions: Tensor, order: np.ndarray) -> np.ndarray:
    source = as_array(positions)
    out = np.empty((source.shape[1], len(order), source.shape[2]), source.dtype)
    run_rows(pack, len(order), GRAIN, source, order, *_no_centres(source)[:2], out)
    return out


def row_width(channels: int) -> int:
    return (channels + 3) // 4 * 4


def find_centres(values: np.ndarray, groups: GraphGroups, to_itself: bool) -> Centres:
    """Computes the mean of the values (N, H, C) of each graph in blocks that depend on the graph's
    size only. The mean is rounded to the last digit of large values, so that their difference is
    exact."""
    sizes = np.diff(groups.key_start)
    counts = -(-sizes // BLOCK)
    before = np.cumsum(counts) - counts
    first = BLOCK * np.arange(counts.sum())
    first += np.repeat(groups.key_start[:-1] - BLOCK * before, counts)
    last = np.minimum(first + BLOCK, np.repeat(groups.key_start[1:], counts))
    sums = np.empty((len(first), 2, *values.shape[1:]))
    run_rows(sum_blocks, len(first), 8, values, groups.key_order, first, last, sums)
    mean, filled = np.zeros((len(sizes), *values.shape[1:]), values.dtype), sizes > 0
    if len(first) > 0:
        means = np.add.reduceat(sums, before[filled], axis=0) / sizes[filled, None, None, None]
        unit = HEADROOM * np.spacing(means[:, 1].astype(values.dtype)).astype(np.float64)
        mean[filled] = np.rint(means[:, 0] / unit) * unit
    graphs = np.arange(len(sizes), dtype=np.int32)
    query_graph = key_graph = np.repeat(graphs, sizes)
    if not to_itself:
        query_graph = np.repeat(graphs, np.diff(groups.query_start))
    return Centres(mean, key_graph, query_graph)


def _no_centres(values: np.ndarray) -> Centres:
    return Centres(np.empty((0, 0, 0), values.dtype), np.empty(0, np.int32), np.empty(0, np.int32))


def unpack_output(
    summed: np.ndarray, packed: Packed, points: Points, groups: GraphGroups, normalise: bool
) -> tuple[Tensor, Tensor]:
    """Turns summed rows (H, M, W) into output (M, H, C) and normaliser (M, H)."""
    out, norm = points.new_output(normalise)
    if normalise:
        mean, _, query_graph = packed.centres
        given = summed, groups.query_order, mean, query_graph, out.numpy(), norm.numpy()
        run_rows(divide, len(out), GRAIN, *given)
    else:
        factor = as_array(out).dtype.type(1)
        run_rows(unpack, len(out), GRAIN, summed, groups.query_order, factor, out.numpy())
    return out, norm


def pack_gradients(
    upstream: OutputGradients, packed: Packed, groups: GraphGroups, normalise: bool
) -> np.ndarray:
    """Turns gradients of output and normaliser into the rows' gradient, (H, M, W)."""
    grad, out, norm = as_array(upstream.grad), as_array(upstream.out), as_array(upstream.norm)
    count, heads, channels = grad.shape
    grad_norm = norm[:0] if upstream.grad_norm is None else as_array(upstream.grad_norm)
    rows = np.empty((heads, count, row_width(channels + normalise)), out.dtype)
    mean, _, query_graph = packed.centres
    given = grad, grad_norm, out, norm, groups.query_order, mean, query_graph, rows
    run_rows(divide_gradients, count, GRAIN, *given)
    return rows


def unpack_gradients(
    of_keys, of_rows, of_queries, points: Points, groups: GraphGroups, normalise: bool
) -> Gradients:
    """Turns gradients of packed keys, rows and queries into gradients of points."""
    # positions have gradients of scaled values
    scale = of_rows.dtype.type(1 / SCALE if normalise else 1)

    def unpacked(rows: np.ndarray, order: np.ndarray, factor: float, like: Tensor) -> Tensor:
        out = torch.empty(like.shape, dtype=like.dtype)
        run_rows(unpack, len(out), GRAIN, rows, order, factor, out.numpy())
        return out

    positions = unpacked(of_keys, groups.key_order, scale, points.positions)
    values = unpacked(of_rows, groups.key_order, scale.dtype.type(1), points.values)
    queries = None
    if points.queries is not None:
        queries = unpacked(of_queries, groups.query_order, scale, points.queries)
    return Gradients(positions, values, queries)


@kernel("int64, int64, real[:, :, ::1], int64[::1], int64[::1], int64[::1], float64[:, :, :, ::1]")
def sum_blocks(begin, end, values, order, first, last, sums):
    """Sums the values (N, H, C) of blocks of points, and their absolute values, to (B, 2, H, C)."""
    for block in range(begin, end):
        sums[block] = 0
        for a in range(first[block], last[block]):
            i = order[a]
            for h in range(values.shape[1]):
                for c in range(values.shape[2]):
                    sums[block, 0, h, c] += values[i, h, c]
                    sums[block, 1, h, c] += abs(values[i, h, c])


@kernel("int64, int64, real[:, :, ::1], int64[::1], real[:, :, ::1], int32[::1], real[:, :, ::1]")
def pack(begin, end, source, order, mean, graph, out):
    """Copies rows, ``out[h, a] = source[order[a], h]``, and pads them. If ``mean`` is not empty,
    rows are centred and scaled, and the column behind the channels is 1."""
    heads, channels, scale = source.shape[1], source.shape[2], source.dtype.type(SCALE)
    for a in range(begin, end):
        i = order[a]
        for h in range(heads):
            for c in range(channels):
                out[h, a, c] = source[i, h, c]
            for c in range(channels, out.shape[2]):
                out[h, a, c] = 0
            if mean.shape[0] > 0:
                for c in range(channels):
                    out[h, a, c] = out[h, a, c] * scale - mean[graph[a], h, c] * scale
                out[h, a, channels] = 1


@kernel("int64, int64, real[:, :, ::1], int64[::1], real, real[:, :, ::1]")
def unpack(begin, end, rows, order, factor, out):
    """Copies rows back, ``out[order[a], h] = factor * rows[h, a]``."""
    for a in range(begin, end):
        i = order[a]
        for h in range(out.shape[1]):
            for c in range(out.shape[2]):
                out[i, h, c] = rows[h, a, c] * factor


@kernel(
    "int64, int64, real[:, :, ::1], int64[::1], real[:, :, ::1], int32[::1], real[:, :, ::1], "
    "real[:, ::1]"
)
def divide(begin, end, rows, order, mean, graph, out, norm):
    """Copies rows back, divided by the column behind the channels, which ``norm`` receives, and
    adds the mean; 0 where the column is 0."""
    heads, channels, one = out.shape[1], out.shape[2], out.dtype.type(1)
    scale, inverse = out.dtype.type(SCALE), out.dtype.type(1 / SCALE)
    for a in range(begin, end):
        i = order[a]
        for h in range(heads):
            total = rows[h, a, channels]
            norm[i, h] = total
            if total != 0:
                factor = one / total
                for c in range(channels):
                    out[i, h, c] = (rows[h, a, c] * factor + mean[graph[a], h, c] * scale) * inverse
            else:
                for c in range(channels):
                    out[i, h, c] = 0


@kernel(
    "int64, int64, real[:, :, ::1], real[:, ::1], real[:, :, ::1], real[:, ::1], int64[::1], "
    "real[:, :, ::1], int32[::1], real[:, :, ::1]"
)
def divide_gradients(begin, end, grad, grad_norm, out, norm, order, mean, graph, rows):
    r"""Computes the gradients of rows. With :math:`y = z / n`, :math:`\bar z = \bar y / n` and
    :math:`\bar n = -\langle \bar y, y \rangle / n` plus ``grad_norm``; without a normaliser
    :math:`\bar z = \bar y`. :math:`y` is centred and scaled like the rows."""
    heads, channels = grad.shape[1], grad.shape[2]
    one, scale = grad.dtype.type(1), grad.dtype.type(SCALE)
    for a in range(begin, end):
        i = order[a]
        for h in range(heads):
            factor, product = one, grad.dtype.type(0)
            if norm.shape[0] > 0:
                total = norm[i, h]
                factor = one / total if total != 0 else total
                for c in range(channels):
                    product += grad[i, h, c] * (out[i, h, c] * scale - mean[graph[a], h, c] * scale)
            for c in range(channels):
                rows[h, a, c] = grad[i, h, c] * factor
            for c in range(channels, rows.shape[2]):
                rows[h, a, c] = 0
            if norm.shape[0] > 0:
                rows[h, a, channels] = -product * factor
                if grad_norm.shape[0] > 0:
                    rows[h, a, channels] += grad_norm[i, h] * scale
