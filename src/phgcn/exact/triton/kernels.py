r"""The kernels of exact attention, tile by tile: distances by differences of coordinates, so that points that coincide are at
distance 0, weights, then the product with the sources' rows.

Points and rows are packed (:mod:`.packing`): whole tiles can be read, and rows are in two parts, *high* and *low*.

Arguments in capitals are known when a kernel is compiled: ``D`` coordinates, held in registers if ``UNROLLED``, tiles of
``BM`` targets and ``BN`` sources, ``BC`` channels.  Optional arguments are :obj:`None`, which is known then too.
"""

from __future__ import annotations

import math

from ...kernels.triton import kernel, tl, triton
from .packing import cut, numbers

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
def _coordinates(point, length, D: tl.constexpr, UNROLLED: tl.constexpr):
    """All coordinates, as long as they are few."""
    found = ()
    if UNROLLED:
        for k in tl.static_range(D):
            found = found + (tl.load(point + k * length),)  # type: ignore[assignment]  # noqa: RUF005
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
    own, x, other, y, length, other_length, D: tl.constexpr, UNROLLED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
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
            difference = tl.load(own + k * length)[:, None] - tl.load(other + k * other_length)[None, :]
            square += difference * difference
    return square


@triton.jit
def _multiply(left, left_low, right, right_low, to):
    """``to``, if any, plus the product of two matrices, in parts unless of float64; that of both low parts would be lost in
    rounding."""
    if left.dtype == tl.float64:
        product = tl.dot(left, right, input_precision="ieee", out_dtype=tl.float64)
        if to is not None:
            product += to
        return product
    else:
        if left_low is not None:
            to = tl.dot(left_low, right, to)
        if right_low is not None:
            to = tl.dot(left, right_low, to)
        return tl.dot(left, right, to)


@triton.jit
def _weigh(w, rows, rows_low):
    """The product of weights and rows in parts."""
    if rows.dtype == tl.float64:
        return _multiply(w, None, rows, None, None)
    else:
        high, low = cut(w)
        return _multiply(high, low, rows, rows_low, None)


@triton.jit
def _attend_tile(
    query, x, keys, high, low, s, lead, last, length, key_length, width, summed, total,
    D: tl.constexpr, UNROLLED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
    NORMALISE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Adds a tile of sources, of which all are given unless ``MASKED``."""
    source = lead + tl.arange(0, BN)
    at = source[:, None] * width + tl.arange(0, BC)[None, :]
    f = tl.load(high + at)
    f_low = None
    if low is not None:
        f_low = tl.load(low + at)
    y = _coordinates(keys + source, key_length, D, UNROLLED)
    r = tl.sqrt(_squares(query, x, keys + source, y, length, key_length, D, UNROLLED, BM, BN))
    if s is not None:
        r = r - s[:, None]
    w = tl.exp2(-LOG2E * r)
    if MASKED:
        w = tl.where((source < last)[None, :], w, 0.0)
    # A sum over all tiles in the tensor cores would be cut off at every step, not rounded.
    summed += _weigh(w, f, f_low)
    if NORMALISE:
        total += tl.sum(w, axis=1)
    return summed, total


@kernel()
def attend(
    queries, keys, high, low, query_order, shift, table, begin, end, first, last, out, norm,
    length, key_length, width, heads, channels,
    D: tl.constexpr, UNROLLED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr, NORMALISE: tl.constexpr,
):  # fmt: skip
    r"""The sums :math:`\sum_j e^{s_i - \lVert q_i - k_j \rVert} f_j` of a tile of queries, divided by those of the weights."""
    begin, end, first, last = _tile(table, begin, end, first, last, BM)
    head = tl.program_id(1).to(tl.int64)
    place = begin + tl.arange(0, BM)
    query = queries + head * D * length + place
    x = _coordinates(query, length, D, UNROLLED)
    keys += head * D * key_length
    high += head * key_length * width + tl.program_id(2) * BC
    if low is not None:
        low += head * key_length * width + tl.program_id(2) * BC
    kind: tl.constexpr = queries.dtype.element_ty
    summed = tl.zeros((BM, BC), kind)
    total = tl.zeros((BM,), kind)
    s = None
    if shift is not None:
        s = tl.load(shift + head * length + place)
    whole = first + (last - first) // BN * BN
    for lead in range(first, whole, BN):
        summed, total = _attend_tile(
            query, x, keys, high, low, s, lead, last, length, key_length, width, summed, total,
            D, UNROLLED, BM, BN, BC, NORMALISE, False,
        )  # fmt: skip
    if whole < last:
        summed, total = _attend_tile(
            query, x, keys, high, low, s, whole, last, length, key_length, width, summed, total,
            D, UNROLLED, BM, BN, BC, NORMALISE, True,
        )  # fmt: skip
    asked = place < end
    i = numbers(query_order, place, end)
    if NORMALISE:
        summed = summed * tl.where(total != 0, 1 / tl.where(total != 0, total, 1.0), 0.0)[:, None]
        if tl.program_id(2) == 0:
            tl.store(norm + i * heads + head, total, mask=asked)
    c = tl.program_id(2) * BC + tl.arange(0, BC)
    target = out + (i * heads + head) * channels
    tl.store(target[:, None] + c[None, :], summed, mask=asked[:, None] & (c < channels)[None, :])


@kernel()
def nearest(
    queries, keys, table, begin, end, first, last, shift, length, key_length,
    D: tl.constexpr, UNROLLED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """The distance from each query of a tile to the nearest key of its graph; 0 without keys."""
    begin, end, first, last = _tile(table, begin, end, first, last, BM)
    head = tl.program_id(1).to(tl.int64)
    place = begin + tl.arange(0, BM)
    query = queries + head * D * length + place
    x = _coordinates(query, length, D, UNROLLED)
    least = tl.full((BM,), float("inf"), queries.dtype.element_ty)
    for lead in range(first, last, BN):
        source = lead + tl.arange(0, BN)
        key = keys + head * D * key_length + source
        y = _coordinates(key, key_length, D, UNROLLED)
        square = _squares(query, x, key, y, length, key_length, D, UNROLLED, BM, BN)
        least = tl.minimum(least, tl.min(tl.where((source < last)[None, :], square, float("inf")), axis=1))
    tl.store(shift + head * length + place, tl.where(least < float("inf"), tl.sqrt(least), 0.0), mask=place < end)


# Gradients


@triton.jit
def _load_parts(high, low, at):
    """A tile of packed rows; without a low part, the high one twice, which is not used."""
    first = tl.load(high + at)
    second = first
    if low is not None:
        second = tl.load(low + at)
    return first, second


@triton.jit
def _held(rows, BM: tl.constexpr, BC: tl.constexpr):
    """The same rows, held in registers as the tensor cores take them: from shared memory, through which all that is loaded
    goes, they would wait for these."""
    if rows.dtype == tl.bfloat16:
        return (_nothing(BM, BC, tl.float32) + rows.to(tl.float32)).to(tl.bfloat16)
    else:
        return rows


@triton.jit
def _products(left, left_low, right, right_low, to, LOW: tl.constexpr):
    """``to``, if any, plus all products of rows on the left with rows on the right, in two parts if ``LOW``."""
    if LOW:
        return _multiply(left, left_low, tl.trans(right), tl.trans(right_low), to)
    else:
        return _multiply(left, None, tl.trans(right), None, to)


@triton.jit
def _gradient_tile(
    target, x, other, values, values_low, grads, grads_low, bias, shift,
    own_values, own_values_low, own_grads, own_grads_low, own_bias, own_shift,
    lead, last, length, other_length, width, summed, slopes,
    D: tl.constexpr, UNROLLED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr,
    OF_QUERIES: tl.constexpr, OF_KEYS: tl.constexpr, CLOSE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Adds a tile of sources, of which all are given unless ``MASKED``.

    The products come first: while one program waits for the tensor cores, which take these one after the other, another on
    the same processor computes weights.  ``slopes`` has a sum for each coordinate, or, if they are many, one for all.
    """
    source = lead + tl.arange(0, BN)
    at = source[:, None] * width + tl.arange(0, BC)[None, :]
    product = None
    if OF_QUERIES:
        f, f_low = _load_parts(values, values_low, at)
        product = _products(own_grads, own_grads_low, f, f_low, product, values_low is not None)
    if OF_KEYS:
        g, g_low = _load_parts(grads, grads_low, at)
        product = _products(own_values, own_values_low, g, g_low, product, grads_low is not None)
    point = other + source
    y = _coordinates(point, other_length, D, UNROLLED)
    square = _squares(target, x, point, y, length, other_length, D, UNROLLED, BM, BN)
    inverse = tl.rsqrt(tl.maximum(square, CLOSE))  # where points coincide, it will be multiplied by a difference of 0
    r = square * inverse
    if shift is not None:
        if OF_QUERIES:
            r = r - own_shift[:, None]
        if OF_KEYS:
            r = r - tl.load(shift + source)[None, :]
    w = tl.exp2(-LOG2E * r)
    if MASKED:
        w = tl.where((source < last)[None, :], w, 0.0)
    if OF_KEYS:
        summed += _weigh(w, g, g_low)
    if bias is not None:
        if OF_QUERIES:
            product += own_bias[:, None]
        if OF_KEYS:
            product += tl.load(bias + source, mask=(source >= 0) & (tl.program_id(2) == 0), other=0.0)[None, :]
    slope = w * product * inverse
    if UNROLLED:
        added = ()
        for k in tl.static_range(D):
            along = tl.sum(slope * (x[k][:, None] - y[k][None, :]), axis=1)
            added = added + (slopes[k] - along,)  # type: ignore[assignment]  # noqa: RUF005
        slopes = added
    else:
        d = tl.arange(0, BD)
        for k in range(D):
            difference = tl.load(target + k * length)[:, None] - tl.load(point + k * other_length)[None, :]
            slopes -= tl.where(d[None, :] == k, tl.sum(slope * difference, axis=1)[:, None], 0.0)
    return summed, slopes


@kernel()
def gradients(
    own, other, values, values_low, grads, grads_low, bias, shift, own_order, table, begin, end, first, last,
    grad_positions, grad_values, length, other_length, width, part, heads, channels,
    D: tl.constexpr, UNROLLED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr,
    OF_QUERIES: tl.constexpr, OF_KEYS: tl.constexpr, CLOSE: tl.constexpr,
):  # fmt: skip
    r"""The gradient of the positions of a tile of targets, as queries, as keys or as both, and, as keys, of their values.

    With gradients :math:`\bar z_i` of the sums and :math:`\bar n_i` of the normalisers, a weight has the gradient
    :math:`\langle \bar z_i, f_j \rangle + \bar n_i`.  Targets' points are ``own``, sources' ``other``; ``values`` are the
    keys', ``grads``, ``bias`` and ``shift`` the queries', each of whichever these are.
    """
    begin, end, first, last = _tile(table, begin, end, first, last, BM)
    head = tl.program_id(1).to(tl.int64)
    block = tl.program_id(2)
    place = begin + tl.arange(0, BM)
    target = own + head * D * length + place
    x = _coordinates(target, length, D, UNROLLED)
    other += head * D * other_length
    keys = other_length if OF_QUERIES else length
    queries = length if OF_QUERIES else other_length
    values += head * keys * width + block * BC
    grads += head * queries * width + block * BC
    if values_low is not None:
        values_low += head * keys * width + block * BC
        grads_low += head * queries * width + block * BC
    at = place.to(tl.int64)[:, None] * width + tl.arange(0, BC)[None, :]
    own_values, own_values_low, own_grads, own_grads_low, own_bias, own_shift = None, None, None, None, None, None
    if OF_QUERIES:
        own_grads, own_grads_low = _load_parts(grads, grads_low, at)
        own_grads, own_grads_low = _held(own_grads, BM, BC), _held(own_grads_low, BM, BC)
    if OF_KEYS:
        own_values, own_values_low = _load_parts(values, values_low, at)
        own_values, own_values_low = _held(own_values, BM, BC), _held(own_values_low, BM, BC)
    if bias is not None:
        bias += head * queries
        if OF_QUERIES:
            own_bias = tl.load(bias + place, mask=(place >= 0) & (block == 0), other=0.0)
    if shift is not None:
        shift += head * queries
        if OF_QUERIES:
            own_shift = tl.load(shift + place)
    kind: tl.constexpr = own.dtype.element_ty
    summed = tl.zeros((BM, BC), kind)
    slopes = ()
    if UNROLLED:
        for _ in tl.static_range(D):
            slopes = slopes + (tl.zeros((BM,), kind),)  # type: ignore[assignment]  # noqa: RUF005
    else:
        slopes = tl.zeros((BM, BD), kind)
    whole = first + (last - first) // BN * BN
    for lead in range(first, whole, BN):
        summed, slopes = _gradient_tile(
            target, x, other, values, values_low, grads, grads_low, bias, shift,
            own_values, own_values_low, own_grads, own_grads_low, own_bias, own_shift,
            lead, last, length, other_length, width, summed, slopes,
            D, UNROLLED, BM, BN, BC, BD, OF_QUERIES, OF_KEYS, CLOSE, False,
        )  # fmt: skip
    if whole < last:
        summed, slopes = _gradient_tile(
            target, x, other, values, values_low, grads, grads_low, bias, shift,
            own_values, own_values_low, own_grads, own_grads_low, own_bias, own_shift,
            whole, last, length, other_length, width, summed, slopes,
            D, UNROLLED, BM, BN, BC, BD, OF_QUERIES, OF_KEYS, CLOSE, True,
        )  # fmt: skip
    asked = place < end
    i = numbers(own_order, place, end)
    to = grad_positions + block.to(tl.int64) * part + (i * heads + head) * D
    if UNROLLED:
        for k in tl.static_range(D):
            tl.store(to + k, slopes[k], mask=asked)
    else:
        d = tl.arange(0, BD)
        tl.store(to[:, None] + d[None, :], slopes, mask=asked[:, None] & (d < D)[None, :])
    if OF_KEYS:
        c = block * BC + tl.arange(0, BC)
        to = grad_values + (i * heads + head) * channels
        tl.store(to[:, None] + c[None, :], summed, mask=asked[:, None] & (c < channels)[None, :])
