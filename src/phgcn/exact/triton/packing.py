"""Packs points and rows for the kernels over pairs.

Points of a graph lie side by side, coordinate by coordinate, followed by a tile of zeros, so that
loops read whole tiles. A float32 row becomes two bfloat16 parts, *high* and *low*, which tensor
cores multiply."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...runtime.triton import cdiv, kernel, tl, triton
from .tiles import split

# points that a program packs, and channels at a time: the smallest block of the kernels that sum
PACKED_POINTS, PACKED_CHANNELS = 64, 16

LARGEST_TILE = 128  # packed points are followed by so many zeros: no tile is larger


class QueryGradients(NamedTuple):
    """The gradients of output (M, H, C) and normaliser (M, H), and the forward pass's results.
    ``norm`` is None where sums were not divided."""

    grad: Tensor
    grad_norm: Tensor | None
    out: Tensor
    norm: Tensor | None
    shift: Tensor | None


class Packed(NamedTuple):
    r"""Points as the kernels read them. :math:`L` is the ``length``: points with the zeros behind
    them.

    Shapes:
        - **points:** positions, :math:`(H, D, L)`
        - **flags:** not all 0 if a position or a row is not finite
        - **rows, grads:** values, and gradients of the queries' sums, :math:`(1\text{ or }2, H, L,
          W)`
        - **bias:** the gradients of the queries' normalisers, with their share of the output's,
          :math:`(H, L)`
        - **shift:** :math:`(H, L)`
    """

    points: Tensor
    flags: Tensor
    length: int
    rows: Tensor | None
    grads: Tensor | None
    bias: Tensor | None
    shift: Tensor | None


class PackSizes(NamedTuple):
    """Compile-time constants of packing; 0 parts where there are no rows or gradients."""

    dim: int
    width: int
    row_parts: int
    grad_parts: int
    points: int
    channels: int


def pack_points(
    points: Tensor,
    rows: Tensor | None,
    order: Tensor | None,
    width: int = 0,
    *,
    exact_in_one: bool = False,
    gradients: QueryGradients | None = None,
) -> Packed:
    """Packs positions (N, H, D), rows (N, H, C) and gradients of the sums in an order (N,).
    Channels up to ``width`` are 0. ``exact_in_one`` packs bfloat16 rows in one part."""
    count, heads, dim = points.shape
    length = cdiv(count + LARGEST_TILE, PACKED_POINTS) * PACKED_POINTS
    blocks = length // PACKED_POINTS
    # Rows of float64 are packed as they are, others in two bfloat16 parts.
    parts, dtype = (1, points.dtype) if points.dtype == torch.float64 else (2, torch.bfloat16)
    row_parts = 0 if rows is None else parts
    if exact_in_one and rows is not None and rows.dtype == torch.bfloat16:
        row_parts = 1
    given, grad_parts, bias, shift = rows, 0, None, None
    if gradients is not None:
        grad_norm = None if gradients.grad_norm is None else gradients.grad_norm.contiguous()
        gradients = gradients._replace(grad=gradients.grad.contiguous(), grad_norm=grad_norm)
        given, grad_parts = gradients.grad, parts
        bias = None if gradients.norm is None else points.new_empty(heads, length)
        shift = None if gradients.shift is None else points.new_empty(heads, length)
    packed_rows, packed_grads = (
        points.new_empty(count, heads, length, width, dtype=dtype) if count > 0 else None
        for count in (row_parts, grad_parts)
    )
    flags = points.new_empty(blocks, heads, dtype=torch.int32)
    packed = Packed(
        points.new_empty(heads, dim, length), flags, length, packed_rows, packed_grads, bias, shift
    )
    _pack[blocks, heads](
        points.contiguous(),
        None if rows is None else rows.contiguous(),
        gradients,
        order,
        packed,
        count,
        0 if given is None else given.size(2),
        SIZES=PackSizes(dim, width, row_parts, grad_parts, PACKED_POINTS, PACKED_CHANNELS),
    )
    return packed


@triton.jit
def points_at(order, index, count):
    """Returns the points at some positions of an order, int64."""
    if order is not None:
        index = tl.load(order + index, mask=index < count, other=0)
    return index.to(tl.int64)


@triton.jit
def _store_rows(rows, at, part_stride, number, PARTS: tl.constexpr):
    """Stores numbers as they are, or in two rounded parts. Rounding halves the error of products
    with weights; the largest numbers are cut off, as rounding would make them infinite."""
    if PARTS == 2:
        number = number.to(tl.float32)
        cut, _ = split(number)
        rounded = number.to(tl.bfloat16)
        high = tl.where(tl.abs(rounded.to(tl.float32)) < float("inf"), rounded, cut)
        tl.store(rows + at, high)
        tl.store(rows + part_stride + at, (number - high.to(tl.float32)).to(tl.bfloat16))
    else:
        tl.store(rows + at, number)


@triton.jit
def _not_finite(number):
    if number.dtype.primitive_bitwidth == 16:
        number = number.to(tl.float32)
    return 1 - (tl.abs(number) < float("inf")).to(tl.int32)


@kernel(do_not_specialize=["count"])
def _pack(points, rows, gradients, order, packed, count, channels, SIZES: tl.constexpr):
    r"""Packs ``points``, ``rows`` and ``gradients`` into ``packed``, with 0 behind the last.

    The gradients of sums :math:`z` follow from the quotients :math:`y = z / n`: rows :math:`\bar z
    = \bar y / n`, and ``bias`` :math:`\bar n = -\langle \bar y, y \rangle / n` plus ``grad_norm``.
    Each program writes one flag. Grid: blocks of points, heads."""
    length = packed.length
    D: tl.constexpr = SIZES.dim
    WIDTH: tl.constexpr = SIZES.width
    BM: tl.constexpr = SIZES.points
    index = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    head, heads = tl.program_id(1).to(tl.int64), tl.num_programs(1)
    inside = index < count
    i = points_at(order, index, count) * heads + head
    bad = tl.zeros((BM,), tl.int32)
    for k in range(D):
        x = tl.load(points + i * D + k, mask=inside, other=0.0)
        tl.store(packed.points + (head * D + k) * length + index, x)
        bad += _not_finite(x)
    dtype: tl.constexpr = packed.points.dtype.element_ty
    part_stride = heads.to(tl.int64) * length * WIDTH
    factor = tl.full((BM,), 1.0, dtype)
    norm = None
    if SIZES.grad_parts > 0:
        norm = gradients.norm
    if norm is not None:
        total = tl.load(norm + i, mask=inside, other=0.0)
        factor = tl.where(total != 0, 1 / tl.where(total != 0, total, 1.0), 0.0)
    product = tl.zeros((BM,), dtype)
    for lead in range(0, WIDTH, SIZES.channels):
        c = lead + tl.arange(0, SIZES.channels)
        mask = inside[:, None] & (c < channels)[None, :]
        at = (i * channels)[:, None] + c[None, :]
        to = ((head * length + index) * WIDTH)[:, None] + c[None, :]
        if rows is not None:
            f = tl.load(rows + at, mask=mask, other=0.0)
            _store_rows(packed.rows, to, part_stride, f, SIZES.row_parts)
            bad += tl.max(_not_finite(f), axis=1)
        if SIZES.grad_parts > 0:
            g = tl.load(gradients.grad + at, mask=mask, other=0.0).to(dtype) * factor[:, None]
            _store_rows(packed.grads, to, part_stride, g, SIZES.grad_parts)
            if norm is not None:
                y = tl.load(gradients.out + at, mask=mask, other=0.0).to(dtype)
                product += tl.sum(g * y, axis=1)
    if packed.bias is not None:
        bias = -product
        if gradients.grad_norm is not None:
            bias += tl.load(gradients.grad_norm + i, mask=inside, other=0.0)
        tl.store(packed.bias + head * length + index, bias)
    if packed.shift is not None:
        shift = tl.load(gradients.shift + i, mask=inside, other=0.0)
        tl.store(packed.shift + head * length + index, shift)
    tl.store(packed.flags + tl.program_id(0) * heads + tl.program_id(1), tl.max(bad, axis=0))
