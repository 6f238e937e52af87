r"""The kernels of :class:`phgcn.nn.linear.Linear`: matrix products in which no row notices the others, nor the threads.

A matrix product of BLAS may round a row differently when rows are added to the matrix, or with another number of threads.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..kernels.legacy import kernel

BLOCK = 4
"""Rows and columns that are computed together: their 16 sums fit the registers, and each number read is used 4 times."""


@kernel
def multiply(x, weight, columns):
    """The product of ``x`` (N, K) and the transpose of ``weight`` (rows a multiple of ``BLOCK``, K): its first columns."""
    n, inner = x.shape
    out = np.empty((n, columns), x.dtype)
    for block in prange((n + BLOCK - 1) // BLOCK):
        # The last block repeats its last row: every row is computed by the same machine code, whichever block it is in.
        i = block * BLOCK
        i1, i2, i3 = min(i + 1, n - 1), min(i + 2, n - 1), min(i + 3, n - 1)
        x0, x1, x2, x3 = x[i], x[i1], x[i2], x[i3]
        for c in range(0, weight.shape[0], BLOCK):
            w0, w1, w2, w3 = weight[c], weight[c + 1], weight[c + 2], weight[c + 3]
            zero = x.dtype.type(0)
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = zero
            for k in range(inner):
                a0 += x0[k] * w0[k]
                a1 += x0[k] * w1[k]
                a2 += x0[k] * w2[k]
                a3 += x0[k] * w3[k]
                b0 += x1[k] * w0[k]
                b1 += x1[k] * w1[k]
                b2 += x1[k] * w2[k]
                b3 += x1[k] * w3[k]
                c0 += x2[k] * w0[k]
                c1 += x2[k] * w1[k]
                c2 += x2[k] * w2[k]
                c3 += x2[k] * w3[k]
                d0 += x3[k] * w0[k]
                d1 += x3[k] * w1[k]
                d2 += x3[k] * w2[k]
                d3 += x3[k] * w3[k]
            rows = ((i, (a0, a1, a2, a3)), (i1, (b0, b1, b2, b3)), (i2, (c0, c1, c2, c3)), (i3, (d0, d1, d2, d3)))
            for row, sums in rows:
                for b in range(BLOCK):
                    if c + b < columns:
                        out[row, c + b] = sums[b]
    return out


ROWS, COLUMNS, CHUNK = 32, 256, 1024
"""Rows and columns of the product that one task takes, and terms that are summed apart, so that long sums lose less."""


@kernel
def multiply_columns(left, right):
    """The product of the transpose of ``left`` (N, M) and ``right`` (N, K): sums over rows, eight at a time."""
    (n, high), wide = left.shape, right.shape[1]
    out = np.zeros((high, wide), right.dtype)
    across = (wide + COLUMNS - 1) // COLUMNS
    for task in prange(across * ((high + ROWS - 1) // ROWS)):
        begin, end = task % across * COLUMNS, min(wide, (task % across + 1) * COLUMNS)
        top, bottom = task // across * ROWS, min(high, (task // across + 1) * ROWS)
        part = np.empty((bottom - top, end - begin), right.dtype)
        for lead in range(0, n, CHUNK):
            part[:] = 0
            last = min(n, lead + CHUNK)
            whole = lead + (last - lead) // 8 * 8
            for i in range(lead, whole, 8):
                r0, r1, r2 = right[i, begin:end], right[i + 1, begin:end], right[i + 2, begin:end]
                r3, r4, r5 = right[i + 3, begin:end], right[i + 4, begin:end], right[i + 5, begin:end]
                r6, r7 = right[i + 6, begin:end], right[i + 7, begin:end]
                for m in range(top, bottom):
                    a0, a1, a2, a3 = left[i, m], left[i + 1, m], left[i + 2, m], left[i + 3, m]
                    a4, a5, a6, a7 = left[i + 4, m], left[i + 5, m], left[i + 6, m], left[i + 7, m]
                    row = part[m - top]
                    for c in range(row.shape[0]):
                        first = a0 * r0[c] + a1 * r1[c] + a2 * r2[c] + a3 * r3[c]
                        row[c] += first + (a4 * r4[c] + a5 * r5[c] + a6 * r6[c] + a7 * r7[c])
            for i in range(whole, last):
                here = right[i, begin:end]
                for m in range(top, bottom):
                    row, a = part[m - top], left[i, m]
                    for c in range(row.shape[0]):
                        row[c] += a * here[c]
            for m in range(top, bottom):
                total, row = out[m, begin:end], part[m - top]
                for c in range(row.shape[0]):
                    total[c] += row[c]
    return out
