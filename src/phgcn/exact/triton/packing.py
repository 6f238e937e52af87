r"""The kernels that pack points and rows for exact attention.

Those of a graph lie side by side, coordinate by coordinate, with room for a whole tile behind the last, so that the loops over
sources read whole tiles without a look at orders or ends.  A row of float32 numbers is packed as two bfloat16 parts, *high*
and *low*: tensor cores multiply these.
"""

from __future__ import annotations

from ...kernels.triton import kernel, tl, triton


@triton.jit
def cut(number):
    """A float32 number as two bfloat16 ones: its first 8 bits, and what they leave, rounded.  For weights: to cut the first
    part off takes less time than to round it."""
    bits = number.to(tl.uint32, bitcast=True)
    high = (bits & 0xFFFF0000).to(tl.float32, bitcast=True)
    return (bits >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True), (number - high).to(tl.bfloat16)


@triton.jit
def _store_row(high, low, at, number):
    """Packs numbers: in two parts, or as they are.  Both parts are rounded, which halves the error of products with weights;
    the largest numbers, which would become infinite, are cut off."""
    if low is not None:
        number = number.to(tl.float32)
        first, _ = cut(number)
        rounded = number.to(tl.bfloat16)
        first = tl.where(tl.abs(rounded.to(tl.float32)) < float("inf"), rounded, first)
        tl.store(high + at, first)
        tl.store(low + at, (number - first.to(tl.float32)).to(tl.bfloat16))
    else:
        tl.store(high + at, number)


@triton.jit
def _endless(number):
    """1 where a number is not finite."""
    if number.dtype.primitive_bitwidth == 16:
        number = number.to(tl.float32)
    return 1 - (tl.abs(number) < float("inf")).to(tl.int32)


@triton.jit
def numbers(order, place, count):
    """The points at some places of an order."""
    if order is not None:
        place = tl.load(order + place, mask=place < count, other=0)
    return place.to(tl.int64)


@kernel(do_not_specialize=["count"])
def pack(
    points, rows, order, packed, high, low, flags, point_stride, point_head, row_stride, row_head, count, length, dim,
    channels, width, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Points as (heads, coordinates, ``length``) and rows, if any, as (heads, ``length``, ``width``); 0 behind the last.  Each
    program has one of ``flags``, if given, for numbers that are not finite."""
    place = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    given = place < count
    i = numbers(order, place, count)
    inside = place < length
    bad = tl.zeros((BM,), tl.int32)
    for k in range(dim):
        x = tl.load(points + i * point_stride + head * point_head + k, mask=given, other=0.0)
        tl.store(packed + (head * dim + k) * length + place, x, mask=inside)
        bad += _endless(x)
    if rows is not None:
        for lead in range(0, width, BC):
            c = lead + tl.arange(0, BC)
            mask = given[:, None] & (c < channels)[None, :]
            f = tl.load((rows + i * row_stride + head * row_head)[:, None] + c[None, :], mask=mask, other=0.0)
            at = ((head * length + place) * width)[:, None] + c[None, :]
            _store_row(high, low, at, f)
            bad += tl.max(_endless(f), axis=1)
    if flags is not None:
        tl.store(flags + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), tl.max(bad, axis=0))


@kernel(do_not_specialize=["count"])
def pack_gradients(
    grad, out, norm, order, high, low, bias, grad_stride, grad_head, count, length, heads, channels, width,
    BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    r"""The gradients of sums, packed, from those of their quotients: with :math:`y = z / n`, rows :math:`\bar z = \bar y / n`
    and :math:`\bar n = -\langle \bar y, y \rangle / n`.  Without ``norm``, sums were not divided."""
    place = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    given = place < count
    i = numbers(order, place, count)
    kind: tl.constexpr = bias.dtype.element_ty
    factor = tl.full((BM,), 1.0, kind)
    if norm is not None:
        total = tl.load(norm + i * heads + head, mask=given, other=0.0)
        factor = tl.where(total != 0, 1 / tl.where(total != 0, total, 1.0), 0.0)
    product = tl.zeros((BM,), kind)
    for lead in range(0, width, BC):
        c = lead + tl.arange(0, BC)
        mask = given[:, None] & (c < channels)[None, :]
        g = tl.load((grad + i * grad_stride + head * grad_head)[:, None] + c[None, :], mask=mask, other=0.0)
        g = g.to(kind) * factor[:, None]
        if norm is not None:
            y = tl.load((out + (i * heads + head) * channels)[:, None] + c[None, :], mask=mask, other=0.0)
            product += tl.sum(g * y.to(kind), axis=1)
        _store_row(high, low, ((head * length + place) * width)[:, None] + c[None, :], g)
    tl.store(bias + head * length + place, -product, mask=place < length)
