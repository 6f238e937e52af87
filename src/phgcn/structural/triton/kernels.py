r"""The kernels of attention to neighbours, each for one node and some heads.

A program goes through its node's edges, a tile of (edges, heads, numbers) at a time.  All sizes are known when a kernel is
compiled: only then are rows read 16 bytes at a time.  ``edge_mask`` and ``edge_bias`` may be :obj:`None`.  Values, outputs and
their gradients may be of a half type; everything is computed in the type of positions, but sums of tiles are added up in
float64: in float32, those of a hub's million edges are off in the fourth digit.
"""

from __future__ import annotations

from typing import NamedTuple

from ...runtime.triton import tl, triton


class Sizes(NamedTuple):
    """Sizes of a row, and of the tile that a program takes at a time: powers of two, not less than the row's for channels and
    coordinates."""

    heads: int
    channels: int
    coordinates: int
    tile_edges: int
    tile_heads: int
    tile_channels: int
    tile_coordinates: int
    tiny: float
    """The least normal number: a squared distance below it is 0."""


@triton.jit
def attend(
    positions, values, start, source, edge, edge_mask, edge_bias, out, nearest, inverse_sum, SIZES: tl.constexpr
):  # fmt: skip
    """Sums the values of one target's sources.

    Where a tile has a nearer source than those before, their sums are scaled down.  The nearest distance and the inverse
    normaliser, (N, H) both, are kept for the gradient.
    """
    i = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * SIZES.tile_heads
    h = first + tl.arange(0, SIZES.tile_heads)
    real: tl.constexpr = positions.dtype.element_ty
    position = _load_coordinates(positions, i, h, SIZES)
    near = tl.full((SIZES.tile_heads,), float("inf"), real)
    weight_sum = tl.full((SIZES.tile_heads,), 0, tl.float64)
    sums = tl.full((SIZES.tile_heads, SIZES.tile_channels), 0, tl.float64)
    end = tl.load(start + i + 1)
    for lead in range(tl.load(start + i), end, SIZES.tile_edges):
        a = lead + tl.arange(0, SIZES.tile_edges)
        valid = a < end
        j = tl.load(source + a, mask=valid, other=0).to(tl.int64)
        # Divided by the number of edges, so that sums of the largest values do not overflow.
        f = _gather_channels(values, j, valid, first, SIZES).to(real) * (1.0 / SIZES.tile_edges)
        difference = position[None, :, :] - _gather_coordinates(positions, j, valid, first, SIZES)
        r = tl.sqrt(tl.sum(difference * difference, axis=2))
        if edge_bias is not None:
            r -= _gather_scalars(edge_bias, _load_edges(edge, a, valid), valid, h, SIZES)
        r = tl.where(valid[:, None], r, float("inf"))
        near_before = near
        near = tl.minimum(near, tl.min(r, axis=0))
        scale = tl.exp(near - near_before)
        w = tl.exp(near[None, :] - r)
        weight_sum = weight_sum * scale + tl.sum(w, axis=0).to(tl.float64)
        if edge_mask is not None:
            w *= _gather_scalars(edge_mask, _load_edges(edge, a, valid), valid, h, SIZES)
        sums = sums * scale[:, None] + tl.sum(w[:, :, None] * f, axis=0).to(tl.float64)
    factor = tl.where(weight_sum > 0, 1 / tl.where(weight_sum > 0, weight_sum, 1.0), 0.0)
    _store_channels(out, i, h, (sums * (factor * SIZES.tile_edges)[:, None]).to(real), SIZES)
    tl.store(nearest + i * SIZES.heads + h, near, mask=h < SIZES.heads)
    tl.store(inverse_sum + i * SIZES.heads + h, factor.to(real), mask=h < SIZES.heads)


@triton.jit
def target_gradients(
    positions, values, grad, out, nearest, inverse_sum, start, source, edge, edge_mask, edge_bias, mean, grad_positions,
    grad_bias, SIZES: tl.constexpr,
):  # fmt: skip
    r"""Computes one target's share of the gradient of its position, the gradient of the bias of its edges, and
    :math:`\langle \bar y_i, y_i \rangle` into ``mean``; formulas are in :mod:`phgcn.structural.reference`."""
    i = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * SIZES.tile_heads
    h = first + tl.arange(0, SIZES.tile_heads)
    real: tl.constexpr = positions.dtype.element_ty
    position = _load_coordinates(positions, i, h, SIZES)
    g = _load_channels(grad, i, h, SIZES).to(real)
    mean_i = tl.sum(g * _load_channels(out, i, h, SIZES).to(real), axis=1)
    at = i * SIZES.heads + h
    tl.store(mean + at, mean_i, mask=h < SIZES.heads)
    near = tl.load(nearest + at, mask=h < SIZES.heads, other=0.0)
    factor = tl.load(inverse_sum + at, mask=h < SIZES.heads, other=0.0)
    sums = tl.full((SIZES.tile_heads, SIZES.tile_coordinates), 0, tl.float64)
    end = tl.load(start + i + 1)
    for lead in range(tl.load(start + i), end, SIZES.tile_edges):
        a = lead + tl.arange(0, SIZES.tile_edges)
        valid = a < end
        j = tl.load(source + a, mask=valid, other=0).to(tl.int64)
        f = _gather_channels(values, j, valid, first, SIZES).to(real)
        difference = position[None, :, :] - _gather_coordinates(positions, j, valid, first, SIZES)
        square = tl.sum(difference * difference, axis=2)
        inverse_distance = _invert_distance(square, SIZES)
        product = tl.sum(g[None, :, :] * f, axis=2)
        if edge_mask is not None:
            product *= _gather_scalars(edge_mask, _load_edges(edge, a, valid), valid, h, SIZES)
        exponent = near[None, :] - square * inverse_distance
        if edge_bias is not None:
            exponent += _gather_scalars(edge_bias, _load_edges(edge, a, valid), valid, h, SIZES)
        grad_distance = tl.exp(exponent) * factor[None, :] * (mean_i[None, :] - product)
        if edge_bias is not None:
            place = grad_bias + (_load_edges(edge, a, valid) * SIZES.heads)[:, None] + h[None, :]
            tl.store(place, -grad_distance, mask=valid[:, None] & (h < SIZES.heads)[None, :])
        slope = tl.where(valid[:, None], grad_distance * inverse_distance, 0.0)
        sums += tl.sum(slope[:, :, None] * difference, axis=0).to(tl.float64)
    _store_coordinates(grad_positions, i, h, sums.to(real), SIZES)


@triton.jit
def source_gradients(
    positions, values, grad, nearest, inverse_sum, mean, start, target, edge, edge_mask, edge_bias, grad_positions,
    grad_values, SIZES: tl.constexpr,
):  # fmt: skip
    """Computes the gradient of one source's values, and adds the source's share to the gradient of its position.

    Edges are sorted by source.  Slopes and weights are computed again, so that none is kept for every edge.
    """
    j = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * SIZES.tile_heads
    h = first + tl.arange(0, SIZES.tile_heads)
    real: tl.constexpr = positions.dtype.element_ty
    position = _load_coordinates(positions, j, h, SIZES)
    f = _load_channels(values, j, h, SIZES).to(real)
    position_sums = tl.full((SIZES.tile_heads, SIZES.tile_coordinates), 0, tl.float64)
    sums = tl.full((SIZES.tile_heads, SIZES.tile_channels), 0, tl.float64)
    end = tl.load(start + j + 1)
    for lead in range(tl.load(start + j), end, SIZES.tile_edges):
        a = lead + tl.arange(0, SIZES.tile_edges)
        valid = a < end
        i = tl.load(target + a, mask=valid, other=0).to(tl.int64)
        g = _gather_channels(grad, i, valid, first, SIZES).to(real)
        difference = position[None, :, :] - _gather_coordinates(positions, i, valid, first, SIZES)
        square = tl.sum(difference * difference, axis=2)
        inverse_distance = _invert_distance(square, SIZES)
        near = _gather_scalars(nearest, i, valid, h, SIZES)
        exponent = near - square * inverse_distance
        if edge_bias is not None:
            exponent += _gather_scalars(edge_bias, _load_edges(edge, a, valid), valid, h, SIZES)
        w = tl.exp(exponent) * _gather_scalars(inverse_sum, i, valid, h, SIZES)
        w = tl.where(valid[:, None], w, 0.0)
        masked = w
        if edge_mask is not None:
            masked = w * _gather_scalars(edge_mask, _load_edges(edge, a, valid), valid, h, SIZES)
        product = tl.sum(g * f[None, :, :], axis=2)
        sums += tl.sum(masked[:, :, None] * g, axis=0).to(tl.float64)
        slope = (w * _gather_scalars(mean, i, valid, h, SIZES) - masked * product) * inverse_distance
        position_sums += tl.sum(slope[:, :, None] * difference, axis=0).to(tl.float64)
    position_sums += _load_coordinates(grad_positions, j, h, SIZES).to(tl.float64)
    _store_coordinates(grad_positions, j, h, position_sums.to(real), SIZES)
    _store_channels(grad_values, j, h, sums.to(real), SIZES)


@triton.jit
def _invert_distance(square, SIZES: tl.constexpr):
    """Returns one over a distance, 0 where that is 0."""
    apart = square >= SIZES.tiny
    return tl.where(apart, tl.rsqrt(tl.where(apart, square, 1.0)), 0.0)


# Rows of one node: (heads, numbers)


@triton.jit
def _load_channels(rows, node, h, SIZES: tl.constexpr):
    return _load_row(rows, node, h, SIZES.channels, SIZES.tile_channels, SIZES)


@triton.jit
def _load_coordinates(rows, node, h, SIZES: tl.constexpr):
    return _load_row(rows, node, h, SIZES.coordinates, SIZES.tile_coordinates, SIZES)


@triton.jit
def _store_channels(rows, node, h, row, SIZES: tl.constexpr):
    _store_row(rows, node, h, row, SIZES.channels, SIZES.tile_channels, SIZES)


@triton.jit
def _store_coordinates(rows, node, h, row, SIZES: tl.constexpr):
    _store_row(rows, node, h, row, SIZES.coordinates, SIZES.tile_coordinates, SIZES)


@triton.jit
def _load_row(rows, node, h, WIDTH: tl.constexpr, TILE: tl.constexpr, SIZES: tl.constexpr):
    x = tl.arange(0, TILE)
    place = rows + (node * SIZES.heads + h)[:, None] * WIDTH + x[None, :]
    return tl.load(place, mask=_inside(h, x, WIDTH, TILE, SIZES), other=0.0)


@triton.jit
def _store_row(rows, node, h, row, WIDTH: tl.constexpr, TILE: tl.constexpr, SIZES: tl.constexpr):
    x = tl.arange(0, TILE)
    place = rows + (node * SIZES.heads + h)[:, None] * WIDTH + x[None, :]
    tl.store(place, row, mask=_inside(h, x, WIDTH, TILE, SIZES))


@triton.jit
def _inside(h, x, WIDTH: tl.constexpr, TILE: tl.constexpr, SIZES: tl.constexpr):
    """Masks heads and numbers that do not exist; the compiler sees where the mask is true everywhere."""
    inside = tl.full((SIZES.tile_heads, TILE), 1, tl.int1)
    if SIZES.heads % SIZES.tile_heads != 0:
        inside = inside & (h < SIZES.heads)[:, None]
    if WIDTH != TILE:
        inside = inside & (x < WIDTH)[None, :]
    return inside


# Rows of some nodes: (edges, heads, numbers)


@triton.jit
def _gather_channels(rows, node, valid, first, SIZES: tl.constexpr):
    return _gather_rows(rows, node, valid, first, SIZES.channels, SIZES.tile_channels, SIZES)


@triton.jit
def _gather_coordinates(rows, node, valid, first, SIZES: tl.constexpr):
    return _gather_rows(rows, node, valid, first, SIZES.coordinates, SIZES.tile_coordinates, SIZES)


@triton.jit
def _gather_rows(rows, node, valid, first, WIDTH: tl.constexpr, TILE: tl.constexpr, SIZES: tl.constexpr):
    """Loads the rows of some nodes and of the heads from ``first`` on, 0 where there are none.

    All heads of a node are read as one row, so that the lanes of a warp share a row: sums over edges then stay in registers.
    """
    x = tl.arange(0, SIZES.tile_heads * TILE)
    at = first * WIDTH + x if WIDTH == TILE else (first + x // TILE) * WIDTH + x % TILE
    mask = valid[:, None]
    if SIZES.heads % SIZES.tile_heads != 0:
        mask = mask & (first + x // TILE < SIZES.heads)[None, :]
    if WIDTH != TILE:
        mask = mask & (x % TILE < WIDTH)[None, :]
    tile = tl.load(rows + (node * (SIZES.heads * WIDTH))[:, None] + at[None, :], mask=mask, other=0.0)
    return tl.reshape(tile, (SIZES.tile_edges, SIZES.tile_heads, TILE))


@triton.jit
def _load_edges(edge, a, valid):
    """Loads the columns of ``edge_index`` that sorted edges came from."""
    return tl.load(edge + a, mask=valid, other=0).to(tl.int64)


@triton.jit
def _gather_scalars(table, node, valid, h, SIZES: tl.constexpr):
    """Loads what a table has for some nodes or edges and heads: (edges, heads)."""
    at = (node * SIZES.heads)[:, None] + h[None, :]
    return tl.load(table + at, mask=valid[:, None] & (h < SIZES.heads)[None, :], other=0.0)
