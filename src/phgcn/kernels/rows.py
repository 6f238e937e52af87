r"""Rows: points, values and gradients of all heads, laid out for the CPU kernels, head by head and graph by graph.

A row holds the channels of a point, then, where the sum is normalised, a 1 whose sum becomes the normaliser, then zeros up to a
multiple of 8, so that rows are added in full vector registers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..kernels.numba import as_array, kernel
from .graphs import GraphGroups
from .points import Gradients, OutputGradients, Points
from .threads import run_rows

GRAIN = 8192
"""Points that a thread packs at least."""


class Packed(NamedTuple):
    r"""All points, those of a graph side by side.

    Shapes:
        - **keys:** :math:`(H, N, D)`, **rows:** :math:`(H, N, W)`, values padded to :math:`W` columns
        - **queries:** :math:`(H, M, D)`; the very same array as **keys** where they attend to themselves
    """

    keys: np.ndarray
    rows: np.ndarray
    queries: np.ndarray


def pack_points(points: Points, groups: GraphGroups, normalise: bool) -> Packed:
    """Packs positions, values and queries."""
    keys = _pack(as_array(points.positions), groups.key_order, False, points.positions.size(2))
    rows = _pack(as_array(points.values), groups.key_order, normalise, row_width(points.values.size(2) + normalise))
    if points.queries is None:
        return Packed(keys, rows, keys)
    return Packed(keys, rows, _pack(as_array(points.queries), groups.query_order, False, points.queries.size(2)))


def row_width(channels: int) -> int:
    """Returns the width of rows of this many channels."""
    return (channels + 7) // 8 * 8


def unpack_output(summed: np.ndarray, points: Points, groups: GraphGroups, normalise: bool) -> tuple[Tensor, Tensor]:
    """Turns summed rows (H, M, W) into output (M, H, C) and normaliser (M, H); divides by it if ``normalise``."""
    out, norm = points.new_output(normalise)
    run_rows(unpack, len(out), GRAIN, summed, groups.query_order, out.numpy(), norm.numpy())
    return out, norm


def pack_gradients(upstream: OutputGradients, groups: GraphGroups, normalise: bool) -> np.ndarray:
    """Turns the gradients of output (M, H, C) and normaliser (M, H) into that of the summed rows, (H, M, W)."""
    grad, out, norm = as_array(upstream.grad), as_array(upstream.out), as_array(upstream.norm)
    count, heads, channels = grad.shape
    grad_norm = norm[:0] if upstream.grad_norm is None else as_array(upstream.grad_norm)
    rows = np.empty((heads, count, row_width(channels + normalise)), out.dtype)
    run_rows(divide_gradients, count, GRAIN, grad, grad_norm, out, norm, groups.query_order, rows)
    return rows


def unpack_gradients(of_keys, of_rows, of_queries, points: Points, groups: GraphGroups) -> Gradients:
    """Turns gradients of packed keys, rows and queries into those of points."""

    def unpacked(rows: np.ndarray, order: np.ndarray, like: Tensor) -> Tensor:
        out = torch.empty(like.shape, dtype=like.dtype)
        run_rows(unpack, len(out), GRAIN, rows, order, out.numpy(), np.empty((0, 0), rows.dtype))
        return out

    positions = unpacked(of_keys, groups.key_order, points.positions)
    values = unpacked(of_rows, groups.key_order, points.values)
    if points.queries is None:
        return Gradients(positions, values, None)
    return Gradients(positions, values, unpacked(of_queries, groups.query_order, points.queries))


def _pack(source: np.ndarray, order: np.ndarray, ones: bool, width: int) -> np.ndarray:
    out = np.empty((source.shape[1], len(order), width), source.dtype)
    run_rows(pack, len(order), GRAIN, source, order, ones, out)
    return out


@kernel("int64, int64, real[:, :, ::1], int64[::1], boolean, real[:, :, ::1]")
def pack(begin, end, source, order, ones, out):
    """Copies rows of all heads in the given order, ``out[h, a] = source[order[a], h]``, and pads them."""
    heads, channels = source.shape[1], source.shape[2]
    for a in range(begin, end):
        i = order[a]
        for h in range(heads):
            for c in range(channels):
                out[h, a, c] = source[i, h, c]
            for c in range(channels, out.shape[2]):
                out[h, a, c] = 0
            if ones:
                out[h, a, channels] = 1


@kernel("int64, int64, real[:, :, ::1], int64[::1], real[:, :, ::1], real[:, ::1]")
def unpack(begin, end, rows, order, out, norm):
    """Copies rows back, ``out[order[a], h] = rows[h, a]``; if ``norm`` is not empty, it gets the column behind the channels,
    and ``out`` is divided by it, or 0 where that is 0."""
    heads, channels, one = out.shape[1], out.shape[2], out.dtype.type(1)
    for a in range(begin, end):
        i = order[a]
        for h in range(heads):
            factor = one
            if norm.shape[0] > 0:
                total = rows[h, a, channels]
                norm[i, h] = total
                factor = one / total if total != 0 else total
            for c in range(channels):
                out[i, h, c] = rows[h, a, c] * factor


@kernel("int64, int64, real[:, :, ::1], real[:, ::1], real[:, :, ::1], real[:, ::1], int64[::1], real[:, :, ::1]")
def divide_gradients(begin, end, grad, grad_norm, out, norm, order, rows):
    r"""Computes the gradients of rows: with :math:`y = z / n`, :math:`\bar z = \bar y / n` and
    :math:`\bar n = -\langle \bar y, y \rangle / n`, plus ``grad_norm`` if not empty; without a normaliser
    :math:`\bar z = \bar y`."""
    heads, channels, one = grad.shape[1], grad.shape[2], grad.dtype.type(1)
    for a in range(begin, end):
        i = order[a]
        for h in range(heads):
            factor = one
            if norm.shape[0] > 0:
                total = norm[i, h]
                factor = one / total if total != 0 else total
            product = grad.dtype.type(0)
            for c in range(channels):
                rows[h, a, c] = grad[i, h, c] * factor
                product += grad[i, h, c] * out[i, h, c]
            for c in range(channels, rows.shape[2]):
                rows[h, a, c] = 0
            if norm.shape[0] > 0:
                rows[h, a, channels] = -product * factor
                if grad_norm.shape[0] > 0:
                    rows[h, a, channels] += grad_norm[i, h]
