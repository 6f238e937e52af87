r"""The kernels of attention to neighbours.

One program has one node and ``BH`` heads, and goes through the node's edges, ``BE`` at a time.  There are ``H``
heads, ``C`` channels and ``D`` coordinates, of which ``BC`` and ``BD`` are the next powers of two; a tile has the shape (edges,
heads, numbers).  All are known when a kernel is compiled: only then are rows read 16 bytes at a time.  ``edge_mask`` may be
:obj:`None`.  Values, outputs and their gradients may be of a half type; what is computed has the type of positions.
"""

from __future__ import annotations

from ...kernels.triton import tl, triton


@triton.jit
def _inside(h, x, H: tl.constexpr, W: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr):
    """Which heads and numbers there are: (heads, numbers); known to be all where powers of two fit."""
    inside = tl.full((BH, BW), 1, tl.int1)
    if H % BH != 0:
        inside = inside & (h < H)[:, None]
    if W != BW:
        inside = inside & (x < W)[None, :]
    return inside


@triton.jit
def _tile(rows, node, given, first, H: tl.constexpr, W: tl.constexpr, BE: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr):
    """The rows of some nodes and of the heads from ``first`` on, 0 where there are none: (edges, heads, numbers).

    They are read as one row of all heads, so that the lanes of a warp share a row: sums over edges then stay in registers.
    """
    x = tl.arange(0, BH * BW)
    at = first * W + x if W == BW else (first + x // BW) * W + x % BW
    mask = given[:, None]
    if H % BH != 0:
        mask = mask & (first + x // BW < H)[None, :]
    if W != BW:
        mask = mask & (x % BW < W)[None, :]
    found = tl.load(rows + (node * (H * W))[:, None] + at[None, :], mask=mask, other=0.0)
    return tl.reshape(found, (BE, BH, BW))


@triton.jit
def _row(rows, node, h, H: tl.constexpr, W: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr):
    """The row of one node and some heads: (heads, numbers)."""
    x = tl.arange(0, BW)
    return tl.load(rows + node * (H * W) + h[:, None] * W + x[None, :], mask=_inside(h, x, H, W, BH, BW), other=0.0)


@triton.jit
def _store_row(rows, node, h, given, H: tl.constexpr, W: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr):
    x = tl.arange(0, BW)
    tl.store(rows + node * (H * W) + h[:, None] * W + x[None, :], given, mask=_inside(h, x, H, W, BH, BW))


@triton.jit
def _scalars(table, node, given, h, H: tl.constexpr):
    """What a table has for some nodes or edges and heads: (edges, heads)."""
    at = (node * H)[:, None] + h[None, :]
    return tl.load(table + at, mask=given[:, None] & (h < H)[None, :], other=0.0)


@triton.jit
def _inverse(square, TINY: tl.constexpr):
    """The inverse of a distance, 0 where that is 0."""
    apart = square >= TINY
    return tl.where(apart, tl.rsqrt(tl.where(apart, square, 1.0)), 0.0)


@triton.jit
def attend(
    positions, values, start, source, edge, edge_mask, out, nearest, inverse_sum,
    H: tl.constexpr, C: tl.constexpr, D: tl.constexpr, TINY: tl.constexpr,
    BE: tl.constexpr, BH: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """The weighted sum of the sources' values, for one target.

    Where a tile has a nearer source than those before, these are scaled down.  The nearest distance and the inverse
    normaliser, (nodes, heads) both, are kept for the gradient.
    """
    i = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * BH
    h = first + tl.arange(0, BH)
    e = tl.arange(0, BE)
    own = _row(positions, i, h, H, D, BH, BD)
    kind: tl.constexpr = positions.dtype.element_ty
    near = tl.full((BH,), float("inf"), kind)
    total = tl.zeros((BH,), kind)
    summed = tl.zeros((BH, BC), kind)
    end = tl.load(start + i + 1)
    for lead in range(tl.load(start + i), end, BE):
        a = lead + e
        given = a < end
        j = tl.load(source + a, mask=given, other=0).to(tl.int64)
        f = _tile(values, j, given, first, H, C, BE, BH, BC).to(kind)
        difference = own[None, :, :] - _tile(positions, j, given, first, H, D, BE, BH, BD)
        r = tl.where(given[:, None], tl.sqrt(tl.sum(difference * difference, axis=2)), float("inf"))
        before = near
        near = tl.minimum(near, tl.min(r, axis=0))
        scale = tl.exp(near - before)
        w = tl.exp(near[None, :] - r)
        total = total * scale + tl.sum(w, axis=0)
        if edge_mask is not None:
            w *= _scalars(edge_mask, tl.load(edge + a, mask=given, other=0).to(tl.int64), given, h, H)
        summed = summed * scale[:, None] + tl.sum(w[:, :, None] * f, axis=0)
    factor = tl.where(total > 0, 1 / tl.where(total > 0, total, 1.0), 0.0)
    _store_row(out, i, h, summed * factor[:, None], H, C, BH, BC)
    tl.store(nearest + i * H + h, near, mask=h < H)
    tl.store(inverse_sum + i * H + h, factor, mask=h < H)


@triton.jit
def target_gradients(
    positions, values, grad, out, nearest, inverse_sum, start, source, edge, edge_mask, mean, grad_positions,
    H: tl.constexpr, C: tl.constexpr, D: tl.constexpr, TINY: tl.constexpr,
    BE: tl.constexpr, BH: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    r"""The gradient of the position of one target, and :math:`\langle \bar y_i, y_i \rangle` into ``mean``.

    With :math:`y_i = \sum_j \alpha_{ij} m_{ij} f_j`, a score :math:`-r_{ij}` has the gradient
    :math:`\alpha_{ij} (m_{ij} \langle \bar y_i, f_j \rangle - \langle \bar y_i, y_i \rangle)`.
    """
    i = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * BH
    h = first + tl.arange(0, BH)
    e = tl.arange(0, BE)
    own = _row(positions, i, h, H, D, BH, BD)
    kind: tl.constexpr = positions.dtype.element_ty
    g = _row(grad, i, h, H, C, BH, BC).to(kind)
    average = tl.sum(g * _row(out, i, h, H, C, BH, BC).to(kind), axis=1)
    at = i * H + h
    tl.store(mean + at, average, mask=h < H)
    near = tl.load(nearest + at, mask=h < H, other=0.0)
    factor = tl.load(inverse_sum + at, mask=h < H, other=0.0)
    slopes = tl.zeros((BH, BD), kind)
    end = tl.load(start + i + 1)
    for lead in range(tl.load(start + i), end, BE):
        a = lead + e
        given = a < end
        j = tl.load(source + a, mask=given, other=0).to(tl.int64)
        f = _tile(values, j, given, first, H, C, BE, BH, BC).to(kind)
        difference = own[None, :, :] - _tile(positions, j, given, first, H, D, BE, BH, BD)
        square = tl.sum(difference * difference, axis=2)
        inverse = _inverse(square, TINY)
        product = tl.sum(g[None, :, :] * f, axis=2)
        if edge_mask is not None:
            product *= _scalars(edge_mask, tl.load(edge + a, mask=given, other=0).to(tl.int64), given, h, H)
        w = tl.exp(near[None, :] - square * inverse) * factor[None, :]
        slope = tl.where(given[:, None], w * (average[None, :] - product) * inverse, 0.0)
        slopes += tl.sum(slope[:, :, None] * difference, axis=0)
    _store_row(grad_positions, i, h, slopes, H, D, BH, BD)


@triton.jit
def source_gradients(
    positions, values, grad, nearest, inverse_sum, mean, start, target, edge, edge_mask, grad_positions, grad_values,
    H: tl.constexpr, C: tl.constexpr, D: tl.constexpr, TINY: tl.constexpr,
    BE: tl.constexpr, BH: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """The gradient of the values of one source, and that of its position, which is added; edges are by source."""
    j = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * BH
    h = first + tl.arange(0, BH)
    e = tl.arange(0, BE)
    own = _row(positions, j, h, H, D, BH, BD)
    kind: tl.constexpr = positions.dtype.element_ty
    f = _row(values, j, h, H, C, BH, BC).to(kind)
    slopes = tl.zeros((BH, BD), kind)
    summed = tl.zeros((BH, BC), kind)
    end = tl.load(start + j + 1)
    for lead in range(tl.load(start + j), end, BE):
        a = lead + e
        given = a < end
        i = tl.load(target + a, mask=given, other=0).to(tl.int64)
        g = _tile(grad, i, given, first, H, C, BE, BH, BC).to(kind)
        difference = own[None, :, :] - _tile(positions, i, given, first, H, D, BE, BH, BD)
        square = tl.sum(difference * difference, axis=2)
        inverse = _inverse(square, TINY)
        w = tl.exp(_scalars(nearest, i, given, h, H) - square * inverse) * _scalars(inverse_sum, i, given, h, H)
        w = tl.where(given[:, None], w, 0.0)
        masked = w
        if edge_mask is not None:
            masked = w * _scalars(edge_mask, tl.load(edge + a, mask=given, other=0).to(tl.int64), given, h, H)
        product = tl.sum(g * f[None, :, :], axis=2)
        summed += tl.sum(masked[:, :, None] * g, axis=0)
        slope = (w * _scalars(mean, i, given, h, H) - masked * product) * inverse
        slopes += tl.sum(slope[:, :, None] * difference, axis=0)
    _store_row(grad_positions, j, h, slopes + _row(grad_positions, j, h, H, D, BH, BD), H, D, BH, BD)
    _store_row(grad_values, j, h, summed, H, C, BH, BC)


@triton.jit
def edges_by_node(key, order, other, start, ends, edge, edges, count, steps, BLOCK: tl.constexpr):
    """From the edges' nodes, sorted, and their order: where those of each node start, the other ends, and the order itself
    in 32 bits."""
    a = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    given = a < edges
    e = tl.load(order + a, mask=given, other=0)
    node = tl.load(other + e, mask=given, other=0)
    tl.store(ends + a, tl.where((node >= 0) & (node < count), node, 0).to(tl.int32), mask=given)
    tl.store(edge + a, e.to(tl.int32), mask=given)
    if tl.program_id(0).to(tl.int64) * BLOCK <= count:  # most programs have edges only
        low = tl.zeros((BLOCK,), tl.int32)
        high = low + edges
        for _ in range(steps):
            middle = low + (high - low) // 2
            between = low < high
            less = tl.load(key + middle, mask=between, other=0) < a
            low = tl.where(between & less, middle + 1, low)
            high = tl.where(between & (less == 0), middle, high)
        tl.store(start + a, low, mask=a <= count)


@triton.jit
def _endless(numbers, size, BLOCK: tl.constexpr):
    """How many of a program's share of numbers are not finite."""
    found = tl.zeros((BLOCK,), tl.int32)
    for lead in range(tl.program_id(0).to(tl.int64) * BLOCK, size, tl.num_programs(0) * BLOCK):
        at = lead + tl.arange(0, BLOCK)
        number = tl.load(numbers + at, mask=at < size, other=0.0)
        if numbers.dtype.element_ty.primitive_bitwidth == 16:
            number = number.to(tl.float32)
        found += (tl.abs(number) < float("inf")).to(tl.int32) == 0
    return tl.max(found, axis=0)


@triton.jit
def look(
    positions, values, edge_mask, edge_index, flags, position_size, value_size, mask_size, index_size, count,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Flags what is not finite, and nodes that are none; each program has its share of all and a flag of its own."""
    bad = _endless(positions, position_size, BLOCK) + _endless(values, value_size, BLOCK)
    if edge_mask is not None:
        bad += _endless(edge_mask, mask_size, BLOCK)
    found = tl.zeros((BLOCK,), tl.int32)
    for lead in range(tl.program_id(0).to(tl.int64) * BLOCK, index_size, tl.num_programs(0) * BLOCK):
        at = lead + tl.arange(0, BLOCK)
        node = tl.load(edge_index + at, mask=at < index_size, other=0)
        found += ((node < 0) | ((node >= count) & (at < index_size))).to(tl.int32)
    tl.store(flags + tl.program_id(0), bad + tl.max(found, axis=0))
