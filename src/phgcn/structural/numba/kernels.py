"""The kernels of attention to neighbours, each for a range of nodes.

Positions are (N, D, H), so that one loop works on a coordinate of all heads; values and outputs are
(N, H, C). The innermost loops run over rows of an array, so that LLVM vectorises them for any
number of heads and channels. Edges are summed in blocks and blocks in float64: in float32, the sum
of a hub's million edges is off by 2e-4. ``flat_`` views join the last two axes, as one long loop
costs less than a few short ones."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.exp import exp_negative
from ...runtime.numba import helper, kernel

BLOCK = 64  # edges of one node that are summed at a time

# factor of weights in a block's sum, so that sums of the largest values do not overflow; a power of
# two, it changes no bit
LEAST = float(np.finfo(np.float32).tiny)
"""Squared distances below this count as 0: a processor's quick root makes infinity of them."""

SCALE = 1 / BLOCK


@kernel(
    "int64, int64, real[:, :, ::1], real[:, :, ::1], int32[::1], int32[::1], int32[::1], "
    "real[:, ::1], real[:, ::1], real[:, :, ::1], real[:, ::1], real[:, ::1]"
)
def attend(
    begin, end, positions, values, start, source, edge, mask, bias, out, nearest, inverse_sum
):
    """Sums the values of each target's sources into ``out`` (N, H, C), divided by the normaliser.
    ``nearest`` and ``inverse_sum`` (N, H) receive the norm. ``mask`` and ``bias`` are (E, H) or
    have no rows."""
    heads, channels, real = values.shape[1], values.shape[2], values.dtype.type
    scale = real(SCALE)
    flat = np.empty((BLOCK + 1) * heads, values.dtype)
    # of the edges; before them, what earlier blocks are scaled by
    weight = flat.reshape(BLOCK + 1, heads)
    sums, weight_sum = np.empty((1, heads, channels), values.dtype), np.empty(heads, values.dtype)
    total, weight_total = np.empty(sums.shape, np.float64), np.empty(heads, np.float64)
    flat_sums, flat_total = sums.reshape(1, heads * channels), total.reshape(1, heads * channels)
    for i in range(begin, end):
        for h in range(heads):
            nearest[i, h], weight_total[h] = real(np.inf), 0.0
        clear(flat_total)
        for lead in range(start[i], start[i + 1], BLOCK):
            count = min(BLOCK, start[i + 1] - lead)
            for h in range(heads):
                weight[0, h], weight_sum[h] = nearest[i, h], real(0)
            for e in range(count):
                square_distances(weight, e + 1, positions, i, np.int64(source[lead + e]))
                for h in range(heads):
                    weight[e + 1, h] = math.sqrt(weight[e + 1, h])
                if bias.shape[0] > 0:
                    for h in range(heads):
                        weight[e + 1, h] -= bias[np.int64(edge[lead + e]), h]
                for h in range(heads):
                    nearest[i, h] = min(nearest[i, h], weight[e + 1, h])
            for e in range(count + 1):
                for h in range(heads):
                    weight[e, h] = nearest[i, h] - weight[e, h]
            for q in range((count + 1) * heads):
                flat[q] = exp_negative(flat[q])
            clear(flat_sums)
            for e in range(count):
                for h in range(heads):
                    weight_sum[h] += weight[e + 1, h]
                    weight[e + 1, h] *= scale
                if mask.shape[0] > 0:
                    for h in range(heads):
                        weight[e + 1, h] *= mask[edge[lead + e], h]
                add_products(sums, weight, e + 1, values, np.int64(source[lead + e]))
            for h in range(heads):
                weight_total[h] = weight_total[h] * weight[0, h] + weight_sum[h]
            if lead > start[i]:
                for h in range(heads):
                    for c in range(channels):
                        total[0, h, c] *= weight[0, h]
            add(flat_total, 0, flat_sums)
        for h in range(heads):
            inverse = 1.0 / weight_total[h] if weight_total[h] > 0 else 0.0
            inverse_sum[i, h] = real(inverse)
            for c in range(channels):
                out[i, h, c] = total[0, h, c] * (inverse * BLOCK)


@kernel(
    "int64, int64, real[:, :, ::1], real[:, :, ::1], real[:, :, ::1], real[:, :, ::1], "
    "real[:, ::1], real[:, ::1], int32[::1], int32[::1], int32[::1], real[:, ::1], real[:, ::1], "
    "real[:, ::1], real[:, :, ::1], real[:, ::1]"
)
def target_gradients(
    begin,
    end,
    positions,
    values,
    grad,
    out,
    nearest,
    inverse_sum,
    start,
    source,
    edge,
    mask,
    bias,
    edge_rows,
    grad_positions,
    grad_bias,
):
    """Computes slopes and masked weights of the edges, the targets' share of the gradient of
    positions, and the gradient of the bias.

    Rows :math:`2e` and :math:`2e + 1` of ``edge_rows`` (2E, H) are slope and weight of column ``e``
    of ``edge_index``. Formulas are in :mod:`phgcn.structural.reference`."""
    heads, dim, real = values.shape[1], positions.shape[1], values.dtype.type
    flat_weight = np.empty(BLOCK * heads, values.dtype)
    flat_distance = np.empty(BLOCK * heads, values.dtype)
    weight = flat_weight.reshape(BLOCK, heads)
    inverse_distance = flat_distance.reshape(BLOCK, heads)
    product, sums = np.empty((BLOCK, heads), values.dtype), np.empty((1, dim, heads), values.dtype)
    factor = np.ones((BLOCK, heads), values.dtype)  # of the weights after the softmax
    flat_sums, flat_total = sums.reshape(1, dim * heads), np.empty((1, dim * heads), np.float64)
    flat_grad = grad_positions.reshape(len(grad_positions), dim * heads)
    for i in range(begin, end):
        clear(flat_total)
        for lead in range(start[i], start[i + 1], BLOCK):
            count = min(BLOCK, start[i + 1] - lead)
            for e in range(count):
                j = np.int64(source[lead + e])
                square_distances(inverse_distance, e, positions, i, j)
                for h in range(heads):
                    weight[e, h] = nearest[i, h]
                if bias.shape[0] > 0:
                    for h in range(heads):
                        weight[e, h] += bias[np.int64(edge[lead + e]), h]
                if mask.shape[0] > 0:
                    for h in range(heads):
                        factor[e, h] = mask[np.int64(edge[lead + e]), h]
                multiply_differences(product, e, grad, out, i, factor, values, j)
            for q in range(count * heads):
                square = flat_distance[q]
                distance = math.sqrt(max(square, real(LEAST)))
                flat_weight[q] = exp_negative(flat_weight[q] - distance)
                flat_distance[q] = real(1) / distance if square >= real(LEAST) else real(0)
            clear(flat_sums)
            for e in range(count):
                at = np.int64(edge[lead + e])
                slope_row, weight_row = 2 * at, 2 * at + 1
                for h in range(heads):
                    w = weight[e, h] * inverse_sum[i, h]
                    edge_rows[weight_row, h] = w * factor[e, h]
                    edge_rows[slope_row, h] = w * product[e, h] * inverse_distance[e, h]
                if bias.shape[0] > 0:
                    for h in range(heads):
                        grad_bias[at, h] = -weight[e, h] * inverse_sum[i, h] * product[e, h]
                add_differences(
                    sums, edge_rows, slope_row, positions, i, np.int64(source[lead + e])
                )
            add(flat_total, 0, flat_sums)
        assign(flat_grad, i, flat_total)


@kernel(
    "int64, int64, real[:, :, ::1], real[:, :, ::1], int32[::1], int32[::1], int32[::1], "
    "real[:, ::1], real[:, :, ::1], real[:, :, ::1]"
)
def source_gradients(
    begin, end, positions, grad, start, target, edge, edge_rows, grad_positions, grad_values
):
    """Computes the gradient of the sources' values, and adds the sources' share to the gradient of
    positions. Edges are sorted by source, ``edge_rows`` comes from :func:`target_gradients`."""
    dim, heads, channels = positions.shape[1], grad.shape[1], grad.shape[2]
    sums = np.empty((1, heads, channels), grad.dtype)
    position_sums = np.empty((1, dim, heads), grad.dtype)
    flat_sums = sums.reshape(1, heads * channels)
    flat_position_sums = position_sums.reshape(1, dim * heads)
    total = np.empty(flat_sums.shape, np.float64)
    position_total = np.empty(flat_position_sums.shape, np.float64)
    flat_grad_positions = grad_positions.reshape(len(positions), dim * heads)
    flat_grad_values = grad_values.reshape(len(grad), heads * channels)
    for j in range(begin, end):
        clear(total)
        clear(position_total)
        for lead in range(start[j], start[j + 1], BLOCK):
            clear(flat_sums)
            clear(flat_position_sums)
            for e in range(lead, min(lead + BLOCK, start[j + 1])):
                i, at = np.int64(target[e]), np.int64(edge[e])
                add_products(sums, edge_rows, 2 * at + 1, grad, i)
                add_differences(position_sums, edge_rows, 2 * at, positions, j, i)
            add(total, 0, flat_sums)
            add(position_total, 0, flat_position_sums)
        assign(flat_grad_values, j, total)
        add(flat_grad_positions, j, position_total)


# Rows of tables, named by their index: a view of a row would be counted as a reference, which costs
# more than a short row


@helper
def square_distances(square, e, positions, i, j):
    """square[e] = |positions[i] - positions[j]|^2, per head"""
    for h in range(square.shape[1]):
        difference = positions[i, 0, h] - positions[j, 0, h]
        square[e, h] = difference * difference
    for k in range(1, positions.shape[1]):
        for h in range(square.shape[1]):
            difference = positions[i, k, h] - positions[j, k, h]
            square[e, h] += difference * difference


@helper
def add_differences(sums, slopes, e, positions, i, j):
    """sums[0] += slopes[e] * (positions[i] - positions[j]), per head"""
    for k in range(sums.shape[1]):
        for h in range(sums.shape[2]):
            sums[0, k, h] += slopes[e, h] * (positions[i, k, h] - positions[j, k, h])


@helper
def add_products(sums, weights, e, values, j):
    """sums[0] += weights[e] * values[j], per head"""
    for h in range(sums.shape[1]):
        weight = weights[e, h]
        for c in range(sums.shape[2]):
            sums[0, h, c] += weight * values[j, h, c]


@helper
def multiply_differences(products, e, grad, out, i, factors, values, j):
    """products[e] = <grad[i], out[i] - factors[e] * values[j]>, per head. The difference comes
    first, as values may have a large mean."""
    for h in range(products.shape[1]):
        product, factor = products.dtype.type(0), factors[e, h]
        for c in range(grad.shape[2]):
            product += grad[i, h, c] * (out[i, h, c] - factor * values[j, h, c])
        products[e, h] = product


@helper
def add(rows, i, sums):
    for q in range(rows.shape[1]):
        rows[i, q] += sums[0, q]


@helper
def assign(rows, i, sums):
    for q in range(rows.shape[1]):
        rows[i, q] = sums[0, q]


@helper
def clear(sums):
    for q in range(sums.shape[1]):
        sums[0, q] = 0
