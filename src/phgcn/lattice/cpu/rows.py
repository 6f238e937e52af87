r"""Rows: values and gradients of one head, laid out for the kernels, and the way back.

A row holds the channels of a point, then, where the sum is normalised, a 1 that becomes the normaliser, then zeros up to a
multiple of 8.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ...compile import kernel


def padded(channels: int) -> int:
    """The width of rows for this many channels."""
    return (channels + 7) // 8 * 8


@kernel
def pack_points(points, head, order):
    """The positions of one head, in the given order."""
    n, dim = order.shape[0], points.shape[2]
    out = np.empty((n, dim), points.dtype)
    for a in prange(n):
        for k in range(dim):
            out[a, k] = points[order[a], head, k]
    return out


@kernel
def pack_values(values, head, order, ones, width):
    """The rows of one head's values, in the given order."""
    n, channels = order.shape[0], values.shape[2]
    out = np.empty((n, width), values.dtype)
    for a in prange(n):
        own = values[order[a], head]
        for c in range(channels):
            out[a, c] = own[c]
        for c in range(channels, width):
            out[a, c] = 0
        if ones:
            out[a, channels] = 1
    return out


@kernel
def unpack_values(rows, head, order, ones, out, norm):
    """Writes the rows of one head into the output, normalised if a normaliser rides along; 0 where that is 0."""
    channels = out.shape[2]
    for a in prange(order.shape[0]):
        i = order[a]
        factor = rows.dtype.type(1)
        if ones:
            total = rows[a, channels]
            norm[i, head] = total
            factor = 1 / total if total != 0 else total
        for c in range(channels):
            out[i, head, c] = rows[a, c] * factor


@kernel
def pack_gradients(grad, out, norm, head, order, ones, width):
    r"""The gradients of one head's rows: with :math:`y = z / n`, :math:`\bar z = \bar y / n` and
    :math:`\bar n = -\langle \bar y, y \rangle / n`."""
    n, channels = order.shape[0], grad.shape[2]
    rows = np.zeros((n, width), grad.dtype)
    for a in prange(n):
        i = order[a]
        factor = grad.dtype.type(1)
        if ones:
            total = norm[i, head]
            factor = 1 / total if total != 0 else total
        product = grad.dtype.type(0)
        for c in range(channels):
            rows[a, c] = grad[i, head, c] * factor
            if ones:
                product += grad[i, head, c] * out[i, head, c]
        if ones:
            rows[a, channels] = -product * factor
    return rows


@kernel
def unpack_columns(rows, head, order, out):
    """Writes the first columns of rows into one head of the output."""
    for a in prange(order.shape[0]):
        for c in range(out.shape[2]):
            out[order[a], head, c] = rows[a, c]


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
