"""The kernels of attention to neighbours, each for one node and some heads.

A program goes through its node's edges, a tile of (edges, heads, numbers) at a time. Sizes are
compile-time constants, so that rows are read 16 bytes at a time. ``edge_mask`` and ``edge_bias``
may be :obj:`None`. Half types are computed in the type of positions, and tiles are added in
float64: in float32, the sum of a hub's million edges is off in the fourth digit."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ...runtime.triton import tl, triton


class Tensors(NamedTuple):
    """The tensors of a graph, or their gradients. Values are called features, as Triton's tuples
    have ``values`` of their own."""

    positions: Tensor
    features: Tensor
    edge_index: Tensor | None
    edge_mask: Tensor | None
    edge_bias: Tensor | None


class Sums(NamedTuple):
    """Results of the forward pass, and ``mean``, products of outputs and gradients."""

    out: Tensor
    nearest: Tensor
    inverse_sum: Tensor
    mean: Tensor | None = None


class Width(NamedTuple):
    """The length of a row, and of a program's tile: the next power of two."""

    row: int
    tile: int


class Sizes(NamedTuple):
    """Compile-time constants beside the widths ``C`` of values and ``X`` of positions. A squared
    distance below ``tiny`` is 0."""

    heads: int
    tile_heads: int
    tile_edges: int
    tiny: float


@triton.jit
def attend(graph, edges, found, C: tl.constexpr, X: tl.constexpr, SIZES: tl.constexpr):
    """Sums the values of one target's sources. A nearer source in a later tile scales the sums
    down. ``found`` keeps the nearest distance and the inverse normaliser, (N, H), for the gradient.
    """
    i = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * SIZES.tile_heads
    h = first + tl.arange(0, SIZES.tile_heads)
    real: tl.constexpr = graph.positions.dtype.element_ty
    position = _load_row(graph.positions, i, h, X, SIZES)
    near = tl.full((SIZES.tile_heads,), float("inf"), real)
    weight_sum = tl.full((SIZES.tile_heads,), 0, tl.float64)
    sums = tl.full((SIZES.tile_heads, C.tile), 0, tl.float64)
    end = tl.load(edges.start + i + 1)
    for lead in range(tl.load(edges.start + i), end, SIZES.tile_edges):
        a = lead + tl.arange(0, SIZES.tile_edges)
        valid = a < end
        j = tl.load(edges.other + a, mask=valid, other=0).to(tl.int64)
        # Divided by the number of edges, so that sums of the largest values do not overflow.
        f = _gather_rows(graph.features, j, valid, first, C, SIZES).to(real)
        f *= 1.0 / SIZES.tile_edges
        there = _gather_rows(graph.positions, j, valid, first, X, SIZES)
        difference = position[None, :, :] - there
        r = tl.sqrt(tl.sum(difference * difference, axis=2))
        if graph.edge_bias is not None:
            r -= _gather_of_edges(graph.edge_bias, edges, a, valid, h, SIZES)
        r = tl.where(valid[:, None], r, float("inf"))
        near_before = near
        near = tl.minimum(near, tl.min(r, axis=0))
        scale = tl.exp(near - near_before)
        w = tl.exp(near[None, :] - r)
        weight_sum = weight_sum * scale + tl.sum(w, axis=0).to(tl.float64)
        if graph.edge_mask is not None:
            w *= _gather_of_edges(graph.edge_mask, edges, a, valid, h, SIZES)
        sums = sums * scale[:, None] + tl.sum(w[:, :, None] * f, axis=0).to(tl.float64)
    factor = tl.where(weight_sum > 0, 1 / tl.where(weight_sum > 0, weight_sum, 1.0), 0.0)
    total = (sums * (factor * SIZES.tile_edges)[:, None]).to(real)
    _store_row(found.out, i, h, total, C, SIZES)
    tl.store(found.nearest + i * SIZES.heads + h, near, mask=h < SIZES.heads)
    tl.store(found.inverse_sum + i * SIZES.heads + h, factor.to(real), mask=h < SIZES.heads)


@triton.jit
def target_gradients(
    graph, edges, grad, found, gradients, C: tl.constexpr, X: tl.constexpr, SIZES: tl.constexpr
):
    r"""Computes one target's share of the gradient of its position, the gradient of its edges'
    bias, and ``mean`` :math:`\langle \bar y_i, y_i \rangle`. Formulas are in
    :mod:`phgcn.structural.reference`."""
    i = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * SIZES.tile_heads
    h = first + tl.arange(0, SIZES.tile_heads)
    real: tl.constexpr = graph.positions.dtype.element_ty
    position = _load_row(graph.positions, i, h, X, SIZES)
    g = _load_row(grad, i, h, C, SIZES).to(real)
    mean_i = tl.sum(g * _load_row(found.out, i, h, C, SIZES).to(real), axis=1)
    at = i * SIZES.heads + h
    tl.store(found.mean + at, mean_i, mask=h < SIZES.heads)
    near = tl.load(found.nearest + at, mask=h < SIZES.heads, other=0.0)
    factor = tl.load(found.inverse_sum + at, mask=h < SIZES.heads, other=0.0)
    sums = tl.full((SIZES.tile_heads, X.tile), 0, tl.float64)
    end = tl.load(edges.start + i + 1)
    for lead in range(tl.load(edges.start + i), end, SIZES.tile_edges):
        a = lead + tl.arange(0, SIZES.tile_edges)
        valid = a < end
        j = tl.load(edges.other + a, mask=valid, other=0).to(tl.int64)
        f = _gather_rows(graph.features, j, valid, first, C, SIZES).to(real)
        there = _gather_rows(graph.positions, j, valid, first, X, SIZES)
        difference = position[None, :, :] - there
        square = tl.sum(difference * difference, axis=2)
        inverse_distance = _invert_distance(square, SIZES)
        product = tl.sum(g[None, :, :] * f, axis=2)
        if graph.edge_mask is not None:
            product *= _gather_of_edges(graph.edge_mask, edges, a, valid, h, SIZES)
        exponent = near[None, :] - square * inverse_distance
        if graph.edge_bias is not None:
            exponent += _gather_of_edges(graph.edge_bias, edges, a, valid, h, SIZES)
        grad_distance = tl.exp(exponent) * factor[None, :] * (mean_i[None, :] - product)
        if graph.edge_bias is not None:
            index = (_load_edges(edges, a, valid) * SIZES.heads)[:, None] + h[None, :]
            inside = valid[:, None] & (h < SIZES.heads)[None, :]
            tl.store(gradients.edge_bias + index, -grad_distance, mask=inside)
        slope = tl.where(valid[:, None], grad_distance * inverse_distance, 0.0)
        sums += tl.sum(slope[:, :, None] * difference, axis=0).to(tl.float64)
    _store_row(gradients.positions, i, h, sums.to(real), X, SIZES)


@triton.jit
def source_gradients(
    graph, edges, grad, found, gradients, C: tl.constexpr, X: tl.constexpr, SIZES: tl.constexpr
):
    """Computes the gradient of one source's values, and adds its share to the gradient of its
    position. Edges are sorted by source. Slopes and weights are computed again, so that none is
    kept for every edge."""
    j = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * SIZES.tile_heads
    h = first + tl.arange(0, SIZES.tile_heads)
    real: tl.constexpr = graph.positions.dtype.element_ty
    position = _load_row(graph.positions, j, h, X, SIZES)
    f = _load_row(graph.features, j, h, C, SIZES).to(real)
    position_sums = tl.full((SIZES.tile_heads, X.tile), 0, tl.float64)
    sums = tl.full((SIZES.tile_heads, C.tile), 0, tl.float64)
    end = tl.load(edges.start + j + 1)
    for lead in range(tl.load(edges.start + j), end, SIZES.tile_edges):
        a = lead + tl.arange(0, SIZES.tile_edges)
        valid = a < end
        i = tl.load(edges.other + a, mask=valid, other=0).to(tl.int64)
        g = _gather_rows(grad, i, valid, first, C, SIZES).to(real)
        there = _gather_rows(graph.positions, i, valid, first, X, SIZES)
        difference = position[None, :, :] - there
        square = tl.sum(difference * difference, axis=2)
        inverse_distance = _invert_distance(square, SIZES)
        near = _gather_scalars(found.nearest, i, valid, h, SIZES)
        exponent = near - square * inverse_distance
        if graph.edge_bias is not None:
            exponent += _gather_of_edges(graph.edge_bias, edges, a, valid, h, SIZES)
        w = tl.exp(exponent) * _gather_scalars(found.inverse_sum, i, valid, h, SIZES)
        w = tl.where(valid[:, None], w, 0.0)
        masked = w
        if graph.edge_mask is not None:
            masked = w * _gather_of_edges(graph.edge_mask, edges, a, valid, h, SIZES)
        product = tl.sum(g * f[None, :, :], axis=2)
        sums += tl.sum(masked[:, :, None] * g, axis=0).to(tl.float64)
        slope = w * _gather_scalars(found.mean, i, valid, h, SIZES) - masked * product
        slope *= inverse_distance
        position_sums += tl.sum(slope[:, :, None] * difference, axis=0).to(tl.float64)
    position_sums += _load_row(gradients.positions, j, h, X, SIZES).to(tl.float64)
    _store_row(gradients.positions, j, h, position_sums.to(real), X, SIZES)
    _store_row(gradients.features, j, h, sums.to(real), C, SIZES)


@triton.jit
def _invert_distance(square, SIZES: tl.constexpr):
    apart = square >= SIZES.tiny
    return tl.where(apart, tl.rsqrt(tl.where(apart, square, 1.0)), 0.0)


# Rows of one node: (heads, numbers)


@triton.jit
def _load_row(rows, node, h, WIDTH: tl.constexpr, SIZES: tl.constexpr):
    x = tl.arange(0, WIDTH.tile)
    index = rows + (node * SIZES.heads + h)[:, None] * WIDTH.row + x[None, :]
    return tl.load(index, mask=_inside(h, x, WIDTH, SIZES), other=0.0)


@triton.jit
def _store_row(rows, node, h, row, WIDTH: tl.constexpr, SIZES: tl.constexpr):
    x = tl.arange(0, WIDTH.tile)
    index = rows + (node * SIZES.heads + h)[:, None] * WIDTH.row + x[None, :]
    tl.store(index, row, mask=_inside(h, x, WIDTH, SIZES))


@triton.jit
def _inside(h, x, WIDTH: tl.constexpr, SIZES: tl.constexpr):
    """Masks heads and numbers that do not exist."""
    inside = tl.full((SIZES.tile_heads, WIDTH.tile), 1, tl.int1)
    if SIZES.heads % SIZES.tile_heads != 0:
        inside = inside & (h < SIZES.heads)[:, None]
    if WIDTH.row != WIDTH.tile:
        inside = inside & (x < WIDTH.row)[None, :]
    return inside


# Rows of some nodes: (edges, heads, numbers)


@triton.jit
def _gather_rows(rows, node, valid, first, WIDTH: tl.constexpr, SIZES: tl.constexpr):
    """Loads the rows of some nodes and of the heads from ``first`` on, or 0.

    All heads of a node are read as one row, which the lanes of a warp share: sums over edges stay
    in registers."""
    x = tl.arange(0, SIZES.tile_heads * WIDTH.tile)
    at = first * WIDTH.row + x
    if WIDTH.row != WIDTH.tile:
        at = (first + x // WIDTH.tile) * WIDTH.row + x % WIDTH.tile
    mask = valid[:, None]
    if SIZES.heads % SIZES.tile_heads != 0:
        mask = mask & (first + x // WIDTH.tile < SIZES.heads)[None, :]
    if WIDTH.row != WIDTH.tile:
        mask = mask & (x % WIDTH.tile < WIDTH.row)[None, :]
    index = rows + (node * (SIZES.heads * WIDTH.row))[:, None] + at[None, :]
    tile = tl.load(index, mask=mask, other=0.0)
    return tl.reshape(tile, (SIZES.tile_edges, SIZES.tile_heads, WIDTH.tile))


@triton.jit
def _load_edges(edges, a, valid):
    """Loads the columns of ``edge_index`` of sorted edges."""
    return tl.load(edges.edge + a, mask=valid, other=0).to(tl.int64)


@triton.jit
def _gather_of_edges(table, edges, a, valid, h, SIZES: tl.constexpr):
    """Loads the rows of a table of edges for some sorted edges and heads, (edges, heads)."""
    return _gather_scalars(table, _load_edges(edges, a, valid), valid, h, SIZES)


@triton.jit
def _gather_scalars(table, node, valid, h, SIZES: tl.constexpr):
    """Loads the rows of a table for some nodes or edges and heads, (edges, heads)."""
    at = (node * SIZES.heads)[:, None] + h[None, :]
    return tl.load(table + at, mask=valid[:, None] & (h < SIZES.heads)[None, :], other=0.0)
