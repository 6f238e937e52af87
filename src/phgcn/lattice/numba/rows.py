r"""Rows: values and gradients of all heads, laid out for the kernels, head by head, and the way back.

A row holds the channels of a point, then, where the sum is normalised, a 1 that becomes the normaliser, then zeros up to a
multiple of 8.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ...kernels.legacy import kernel


def padded(channels: int) -> int:
    """The width of rows for this many channels."""
    return (channels + 7) // 8 * 8


@kernel
def pack_points(points, order):
    """The positions of all heads, in the given order, :math:`(H, N, D)`."""
    heads, dim = points.shape[1:]
    out = np.empty((heads, order.shape[0], dim), points.dtype)
    for a in prange(order.shape[0]):
        for h in range(heads):
            for k in range(dim):
                out[h, a, k] = points[order[a], h, k]
    return out


@kernel
def pack_values(values, order, ones, width):
    """The rows of all heads' values, in the given order, :math:`(H, N, width)`."""
    heads, channels = values.shape[1:]
    out = np.empty((heads, order.shape[0], width), values.dtype)
    for a in prange(order.shape[0]):
        for h in range(heads):
            own, row = values[order[a], h], out[h, a]
            for c in range(channels):
                row[c] = own[c]
            for c in range(channels, width):
                row[c] = 0
            if ones:
                row[channels] = 1
    return out


@kernel
def unpack_values(rows, order, ones, out, norm):
    """Writes rows into the output, normalised if a normaliser rides along; 0 where that is 0."""
    heads, channels = out.shape[1:]
    for a in prange(order.shape[0]):
        i = order[a]
        for h in range(heads):
            row, own = rows[h, a], out[i, h]
            factor = rows.dtype.type(1)
            if ones:
                total = row[channels]
                norm[i, h] = total
                factor = 1 / total if total != 0 else total
            for c in range(channels):
                own[c] = row[c] * factor


@kernel
def pack_gradients(grad, out, norm, order, ones, width):
    r"""The gradients of all heads' rows, :math:`(H, N, width)`: with :math:`y = z / n`, :math:`\bar z = \bar y / n` and
    :math:`\bar n = -\langle \bar y, y \rangle / n`."""
    heads, channels = grad.shape[1:]
    rows = np.zeros((heads, order.shape[0], width), grad.dtype)
    for a in prange(order.shape[0]):
        i = order[a]
        for h in range(heads):
            given, made, row = grad[i, h], out[i, h], rows[h, a]
            factor = grad.dtype.type(1)
            if ones:
                total = norm[i, h]
                factor = 1 / total if total != 0 else total
            product = grad.dtype.type(0)
            for c in range(channels):
                row[c] = given[c] * factor
            if ones:
                for c in range(channels):
                    product += given[c] * made[c]
                row[channels] = -product * factor
    return rows


@kernel
def unpack_columns(rows, order, out):
    """Writes the first columns of rows into the output."""
    for a in prange(order.shape[0]):
        for h in range(out.shape[1]):
            row, own = rows[h, a], out[order[a], h]
            for c in range(own.shape[0]):
                own[c] = row[c]


@kernel
def beside(left, right):
    """Two tables side by side."""
    n, width = left.shape
    out = np.empty((n, width + right.shape[1]), left.dtype)
    for a in prange(n):
        for c in range(width):
            out[a, c] = left[a, c]
        for c in range(right.shape[1]):
            out[a, width + c] = right[a, c]
    return out


@kernel
def add_scaled(out, factor, rows):
    """out[a] += factor[a] * rows[a]"""
    for a in prange(out.shape[0]):
        for c in range(rows.shape[1]):
            out[a, c] += factor[a] * rows[a, c]
