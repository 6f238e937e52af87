r"""The kernels of exact attention, tile by tile: distances by differences of coordinates, so that points that coincide are at
distance 0, weights, then the product with the sources' rows.

Arguments in capitals are known when a kernel is compiled: ``D`` coordinates, held in registers if ``UNROLLED``, tiles of
``BM`` targets and ``BN`` sources, ``BC`` channels.  Optional arguments are :obj:`None`, which is known then too.
"""

from __future__ import annotations

import math

from ...triton_kernels import tl, triton

LOG2E: tl.constexpr = tl.constexpr(math.log2(math.e))


@triton.jit
def _tile(table, begin, end, first, last, BM: tl.constexpr):
    """The first target of a program's tile and the end of its graph's, the first source and the end of these."""
    tile = tl.program_id(0)
    if table is not None:
        row = table + 4 * tile
        begin, end, first, last = tl.load(row), tl.load(row + 1), tl.load(row + 2), tl.load(row + 3)
    else:
        begin = begin + tile * BM
    return begin, end, first, last


@triton.jit
def _numbers(order, place, end):
    """The points at some places of an order."""
    if order is not None:
        place = tl.load(order + place, mask=place < end, other=0)
    return place.to(tl.int64)


@triton.jit
def _coordinates(point, mask, D: tl.constexpr, UNROLLED: tl.constexpr):
    """All coordinates, as long as they are few."""
    found = ()
    if UNROLLED:
        for k in tl.static_range(D):
            found = found + (tl.load(point + k, mask=mask, other=0.0),)  # type: ignore[assignment]  # noqa: RUF005
    return found


@triton.jit
def _nothing(BM: tl.constexpr, BN: tl.constexpr, kind: tl.constexpr):
    """A tile of zeros.  As a product, which costs little, it makes the compiler hold all that is added to it as the tensor
    cores take it: half the registers, and no way through shared memory."""
    if kind == tl.float32:
        return tl.dot(tl.zeros((BM, 16), tl.bfloat16), tl.zeros((16, BN), tl.bfloat16))
    else:
        return tl.zeros((BM, BN), kind)


@triton.jit
def _squares(
    own, x, own_mask, other, y, other_mask,
    D: tl.constexpr, UNROLLED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """The squared distances of all pairs of a tile; ``x`` and ``y`` are coordinates, if held.

    Nothing may be multiplied before the difference is taken: the compiler would fuse both, with one rounding for the two
    points, and points that coincide would be apart.
    """
    square = _nothing(BM, BN, own.dtype.element_ty)
    if UNROLLED:
        for k in tl.static_range(D):
            difference = x[k][:, None] - y[k][None, :]
            square += difference * difference
    else:
        for k in range(D):
            difference = tl.load(own + k, mask=own_mask, other=0.0)[:, None] - tl.load(other + k, mask=other_mask, other=0.0)
            square += difference * difference
    return square


@triton.jit
def attend(
    queries, keys, values, query_order, key_order, shift, table, begin, end, first, last, out, norm,
    query_stride, query_head, key_stride, key_head, value_stride, value_head, heads, channels,
    D: tl.constexpr, UNROLLED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
    NORMALISE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    r"""The sums :math:`\sum_j e^{s_i - \lVert q_i - k_j \rVert} f_j` of a tile of queries, divided by those of the weights."""
    begin, end, first, last = _tile(table, begin, end, first, last, BM)
    head = tl.program_id(1)
    c = tl.program_id(2) * BC + tl.arange(0, BC)
    place = begin + tl.arange(0, BM)
    asked = place < end
    i = _numbers(query_order, place, end)
    query = queries + i * query_stride + head * query_head
    x = _coordinates(query, asked, D, UNROLLED)
    kind: tl.constexpr = values.dtype.element_ty
    summed = tl.zeros((BM, BC), kind)
    total = tl.zeros((BM,), kind)
    if shift is not None:
        s = tl.load(shift + i * heads + head, mask=asked, other=0.0)
    for lead in range(first, last, BN):
        source = lead + tl.arange(0, BN)
        given = source < last
        j = _numbers(key_order, source, last)
        key = keys + j * key_stride + head * key_head
        y = _coordinates(key, given, D, UNROLLED)
        row = values + j * value_stride + head * value_head
        f = tl.load(row[:, None] + c[None, :], mask=given[:, None] & (c < channels)[None, :], other=0.0)
        r = tl.sqrt(_squares(query, x, asked, key, y, given, D, UNROLLED, BM, BN))
        if shift is not None:
            r = r - s[:, None]
        w = tl.where(given[None, :], tl.exp2(-LOG2E * r), 0.0)
        summed += tl.dot(w, f, input_precision=PRECISION, out_dtype=kind)
        if NORMALISE:
            total += tl.sum(w, axis=1)
    if NORMALISE:
        summed = summed * tl.where(total != 0, 1 / tl.where(total != 0, total, 1.0), 0.0)[:, None]
        if tl.program_id(2) == 0:
            tl.store(norm + i * heads + head, total, mask=asked)
    target = out + (i * heads + head) * channels
    tl.store(target[:, None] + c[None, :], summed, mask=asked[:, None] & (c < channels)[None, :])


@triton.jit
def nearest(
    queries, keys, query_order, key_order, table, begin, end, first, last, shift,
    query_stride, query_head, key_stride, key_head, heads,
    D: tl.constexpr, UNROLLED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """The distance from each query of a tile to the nearest key of its graph; 0 without keys."""
    begin, end, first, last = _tile(table, begin, end, first, last, BM)
    head = tl.program_id(1)
    place = begin + tl.arange(0, BM)
    asked = place < end
    i = _numbers(query_order, place, end)
    query = queries + i * query_stride + head * query_head
    x = _coordinates(query, asked, D, UNROLLED)
    least = tl.full((BM,), float("inf"), queries.dtype.element_ty)
    for lead in range(first, last, BN):
        source = lead + tl.arange(0, BN)
        given = source < last
        j = _numbers(key_order, source, last)
        key = keys + j * key_stride + head * key_head
        y = _coordinates(key, given, D, UNROLLED)
        square = _squares(query, x, asked, key, y, given, D, UNROLLED, BM, BN)
        least = tl.minimum(least, tl.min(tl.where(given[None, :], square, float("inf")), axis=1))
    tl.store(shift + i * heads + head, tl.where(least < float("inf"), tl.sqrt(least), 0.0), mask=asked)


@triton.jit
def gradient_rows(
    grad, out, norm, rows, bias, grad_stride, grad_head, count, heads, channels, BM: tl.constexpr, BC: tl.constexpr
):
    """The gradients of sums and normalisers from those of their quotients."""
    place = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    given = place < count
    total = tl.load(norm + place, mask=given, other=0.0)
    factor = tl.where(total != 0, 1 / tl.where(total != 0, total, 1.0), 0.0)
    product = tl.zeros((BM,), norm.dtype.element_ty)
    source = grad + (place // heads) * grad_stride + (place % heads) * grad_head
    for lead in range(0, channels, BC):
        c = lead + tl.arange(0, BC)
        mask = given[:, None] & (c < channels)[None, :]
        g = tl.load(source[:, None] + c[None, :], mask=mask, other=0.0) * factor[:, None]
        at = place[:, None] * channels + c[None, :]
        product += tl.sum(g * tl.load(out + at, mask=mask, other=0.0), axis=1)
        tl.store(rows + at, g, mask=mask)
    tl.store(bias + place, -product, mask=given)


@triton.jit
def gradients(
    own, other, values, rows, bias, own_order, other_order, shift, table, begin, end, first, last, grad_positions,
    grad_values, own_stride, own_head, other_stride, other_head, value_stride, value_head, row_stride, row_head,
    part, heads, channels,
    D: tl.constexpr, UNROLLED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr,
    OF_QUERIES: tl.constexpr, OF_KEYS: tl.constexpr, PRECISION: tl.constexpr, TINY: tl.constexpr,
):  # fmt: skip
    r"""The gradient of the positions of a tile of targets, as queries, as keys or as both, and, as keys, of their values.

    With gradients :math:`\bar z_i` of the sums and :math:`\bar n_i` of the normalisers, a weight has the gradient
    :math:`\langle \bar z_i, f_j \rangle + \bar n_i`.  Targets' points are ``own``, sources' ``other``.
    """
    begin, end, first, last = _tile(table, begin, end, first, last, BM)
    head = tl.program_id(1)
    c = tl.program_id(2) * BC + tl.arange(0, BC)
    d = tl.arange(0, BD)
    place = begin + tl.arange(0, BM)
    asked = place < end
    i = _numbers(own_order, place, end)
    target = own + i * own_stride + head * own_head
    x = _coordinates(target, asked, D, UNROLLED)
    kind: tl.constexpr = values.dtype.element_ty
    own_mask = asked[:, None] & (c < channels)[None, :]
    if OF_QUERIES:
        own_rows = tl.load((rows + i * row_stride + head * row_head)[:, None] + c[None, :], mask=own_mask, other=0.0)
        if bias is not None:
            own_bias = tl.load(bias + i * heads + head, mask=asked & (tl.program_id(2) == 0), other=0.0)
        if shift is not None:
            own_shift = tl.load(shift + i * heads + head, mask=asked, other=0.0)
    if OF_KEYS:
        own_values = tl.load((values + i * value_stride + head * value_head)[:, None] + c[None, :], mask=own_mask, other=0.0)
    summed = tl.zeros((BM, BC), kind)
    slopes = tl.zeros((BM, BD), kind)
    for lead in range(first, last, BN):
        source = lead + tl.arange(0, BN)
        given = source < last
        j = _numbers(other_order, source, last)
        point = other + j * other_stride + head * other_head
        y = _coordinates(point, given, D, UNROLLED)
        mask = given[:, None] & (c < channels)[None, :]
        square = _squares(target, x, asked, point, y, given, D, UNROLLED, BM, BN)
        apart = square >= TINY
        inverse = tl.where(apart, tl.rsqrt(tl.where(apart, square, 1.0)), 0.0)
        r = square * inverse
        product = tl.zeros((BM, BN), kind)
        if OF_QUERIES:
            f = tl.load((values + j * value_stride + head * value_head)[:, None] + c[None, :], mask=mask, other=0.0)
            product += tl.dot(own_rows, tl.trans(f), input_precision=PRECISION, out_dtype=kind)
            if bias is not None:
                product += own_bias[:, None]
            if shift is not None:
                r = r - own_shift[:, None]
        if OF_KEYS:
            g = tl.load((rows + j * row_stride + head * row_head)[:, None] + c[None, :], mask=mask, other=0.0)
            product += tl.dot(own_values, tl.trans(g), input_precision=PRECISION, out_dtype=kind)
            if bias is not None:
                product += tl.load(bias + j * heads + head, mask=given & (tl.program_id(2) == 0), other=0.0)[None, :]
            if shift is not None:
                r = r - tl.load(shift + j * heads + head, mask=given, other=0.0)[None, :]
        w = tl.where(given[None, :], tl.exp2(-LOG2E * r), 0.0)
        if OF_KEYS:
            summed += tl.dot(w, g, input_precision=PRECISION, out_dtype=kind)
        slope = w * product * inverse
        if UNROLLED:
            for k in tl.static_range(D):
                along = tl.sum(slope * (y[k][None, :] - x[k][:, None]), axis=1)
                slopes += tl.where(d[None, :] == k, along[:, None], 0.0)
        else:
            for k in range(D):
                difference = tl.load(point + k, mask=given, other=0.0) - tl.load(target + k, mask=asked, other=0.0)[:, None]
                slopes += tl.where(d[None, :] == k, tl.sum(slope * difference, axis=1)[:, None], 0.0)
    at = grad_positions + tl.program_id(2).to(tl.int64) * part + (i * heads + head) * D
    tl.store(at[:, None] + d[None, :], slopes, mask=asked[:, None] & (d < D)[None, :])
    if OF_KEYS:
        at = grad_values + (i * heads + head) * channels
        tl.store(at[:, None] + c[None, :], summed, mask=own_mask)
