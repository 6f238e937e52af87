r"""Packs points and rows for the kernels over pairs.

Points of a graph lie side by side, coordinate by coordinate, and the last are followed by a tile of zeros: loops over sources
read whole tiles without looking at orders or ends.  A row of float32 numbers is packed in two bfloat16 parts, *high* and *low*,
which tensor cores multiply.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...kernels.points import OutputGradients
from ...kernels.triton import cdiv, kernel, tl, triton
from .tiles import split

PACKED_POINTS, PACKED_CHANNELS = 64, 16
"""Points that one program packs, and their channels at a time: the fewest that a program of the sums takes."""

LARGEST_TILE = 128
"""Packed points are followed by so many zeros: no tile is larger."""


class Packed(NamedTuple):
    r"""Points as the kernels read them.

    Args:
        points (torch.Tensor): Positions, :math:`(H, D, L)`.
        flags (torch.Tensor): Not all 0 if a position or a row is not finite.
        rows (torch.Tensor, optional): Rows of :math:`W` channels in one or two parts, :math:`(2, H, L, W)`.
    """

    points: Tensor
    flags: Tensor
    rows: Tensor | None = None

    @property
    def length(self) -> int:
        return self.points.size(2)


def pack_points(
    points: Tensor, rows: Tensor | None, order: Tensor | None, width: int = 0, exact_in_one: bool = False
) -> Packed:
    r"""Packs positions and, if any, rows.

    Args:
        points (torch.Tensor): Positions, :math:`(N, H, D)`, in any layout.
        rows (torch.Tensor, optional): Rows, :math:`(N, H, C)`, in any layout.
        order (torch.Tensor, optional): The order in which they are packed, :math:`(N,)`.
        width (int, optional): Channels of packed rows, at least :math:`C`; the rest is 0. (default: :obj:`0`)
        exact_in_one (bool, optional): Packs bfloat16 rows in one part, which holds them. (default: :obj:`False`)
    """
    count, heads, dim = points.shape
    length = cdiv(count + LARGEST_TILE, PACKED_POINTS) * PACKED_POINTS  # rows start at multiples of 16 bytes
    packed = points.new_empty(heads, dim, length)
    flags = points.new_empty(cdiv(length, PACKED_POINTS), heads, dtype=torch.int32)
    points = _unit_stride(points)
    if rows is None:
        packed_rows, channels, parts, strides = None, 0, 1, (0, 0)
    else:
        one = exact_in_one and rows.dtype == torch.bfloat16
        packed_rows = _new_rows(points.dtype, heads, length, width, one, points.device)
        rows = _unit_stride(rows)
        channels, parts, strides = rows.size(2), len(packed_rows), (rows.stride(0), rows.stride(1))
    _pack[cdiv(length, PACKED_POINTS), heads](
        points, rows, order, packed, packed_rows, flags, *points.stride()[:2], *strides, count, length, dim, channels, width,
        PARTS=parts, BM=PACKED_POINTS, BC=PACKED_CHANNELS,
    )  # fmt: skip
    return Packed(packed, flags, packed_rows)


def pack_gradients(
    upstream: OutputGradients, shift: Tensor, normalise: bool, order: Tensor | None, queries: Packed, width: int, terms: Tensor
) -> Tensor:
    r"""Packs the gradients of the queries' sums, :math:`(2, H, L, W)`.

    Writes to ``terms``, :math:`(1, H, L)` or :math:`(2, H, L)`, the gradients of their normalisers, 0 where sums were not
    divided, and, where there are shifts, these."""
    count, heads, channels = upstream.out.shape
    grad, out, norm = _unit_stride(upstream.grad), upstream.out, upstream.norm if normalise else None
    grad_norm = None if upstream.grad_norm is None else upstream.grad_norm.contiguous()
    rows = _new_rows(queries.points.dtype, heads, queries.length, width, False, grad.device)
    _pack_gradients[cdiv(queries.length, PACKED_POINTS), heads](
        grad, grad_norm, out, norm, shift if len(terms) == 2 else None, order, rows, terms,
        *grad.stride()[:2], count, queries.length, channels, width,
        PARTS=len(rows), BM=PACKED_POINTS, BC=PACKED_CHANNELS,
    )  # fmt: skip
    return rows


def _new_rows(dtype: torch.dtype, heads: int, length: int, width: int, one: bool, device: torch.device) -> Tensor:
    """Allocates packed rows: float64 as they are, others in two bfloat16 parts, or in one."""
    if dtype == torch.float64:
        return torch.empty(1, heads, length, width, dtype=dtype, device=device)
    return torch.empty(1 if one else 2, heads, length, width, dtype=torch.bfloat16, device=device)


def _unit_stride(tensor: Tensor) -> Tensor:
    """Returns the tensor itself where its last dimension is contiguous, else a copy."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


@triton.jit
def points_at(order, place, count):
    """The points at some places of an order, int64."""
    if order is not None:
        place = tl.load(order + place, mask=place < count, other=0)
    return place.to(tl.int64)


@triton.jit
def _store_rows(rows, at, part_stride, number, PARTS: tl.constexpr):
    """Stores numbers in two parts, or as they are.  Both parts are rounded, which halves the error of products with weights;
    the largest numbers, which rounding would make infinite, are cut off."""
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
    """1 where a number is not finite."""
    if number.dtype.primitive_bitwidth == 16:
        number = number.to(tl.float32)
    return 1 - (tl.abs(number) < float("inf")).to(tl.int32)


@kernel(do_not_specialize=["count"])
def _pack(
    points, rows, order, packed_points, packed_rows, flags, point_stride, point_head_stride, row_stride, row_head_stride,
    count, length, dim, channels, width, PARTS: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Packs ``points`` as (H, dim, length) and ``rows``, if any, as (PARTS, H, length, width); 0 behind the last.

    Each program has one of ``flags``: not 0 if a number is not finite.  Grid: blocks of points, heads.
    """
    place = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    head, heads = tl.program_id(1).to(tl.int64), tl.num_programs(1)
    inside = place < count
    i = points_at(order, place, count)
    bad = tl.zeros((BM,), tl.int32)
    for k in range(dim):
        x = tl.load(points + i * point_stride + head * point_head_stride + k, mask=inside, other=0.0)
        tl.store(packed_points + (head * dim + k) * length + place, x, mask=place < length)
        bad += _not_finite(x)
    if rows is not None:
        row = rows + i * row_stride + head * row_head_stride
        for lead in range(0, width, BC):
            c = lead + tl.arange(0, BC)
            f = tl.load(row[:, None] + c[None, :], mask=inside[:, None] & (c < channels)[None, :], other=0.0)
            at = ((head * length + place) * width)[:, None] + c[None, :]
            _store_rows(packed_rows, at, heads.to(tl.int64) * length * width, f, PARTS)
            bad += tl.max(_not_finite(f), axis=1)
    tl.store(flags + tl.program_id(0) * heads + tl.program_id(1), tl.max(bad, axis=0))


@kernel(do_not_specialize=["count"])
def _pack_gradients(
    grad, grad_norm, out, norm, shift, order, rows, terms, grad_stride, grad_head_stride, count, length, channels, width,
    PARTS: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    r"""Packs the gradients of sums :math:`z` from those of quotients :math:`y = z / n`: rows :math:`\bar z = \bar y / n`, and
    ``terms`` :math:`\bar n = -\langle \bar y, y \rangle / n`, plus ``grad_norm`` if any, and ``shift`` if any, (1 or 2, H,
    length).  Grid: blocks of points, heads."""
    place = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    head, heads = tl.program_id(1).to(tl.int64), tl.num_programs(1)
    inside = place < count
    i = points_at(order, place, count)
    dtype: tl.constexpr = terms.dtype.element_ty
    factor = tl.full((BM,), 1.0, dtype)
    if norm is not None:
        total = tl.load(norm + i * heads + head, mask=inside, other=0.0)
        factor = tl.where(total != 0, 1 / tl.where(total != 0, total, 1.0), 0.0)
    product = tl.zeros((BM,), dtype)
    for lead in range(0, width, BC):
        c = lead + tl.arange(0, BC)
        mask = inside[:, None] & (c < channels)[None, :]
        g = tl.load((grad + i * grad_stride + head * grad_head_stride)[:, None] + c[None, :], mask=mask, other=0.0)
        g = g.to(dtype) * factor[:, None]
        if norm is not None:
            y = tl.load((out + (i * heads + head) * channels)[:, None] + c[None, :], mask=mask, other=0.0)
            product += tl.sum(g * y.to(dtype), axis=1)
        at = ((head * length + place) * width)[:, None] + c[None, :]
        _store_rows(rows, at, heads.to(tl.int64) * length * width, g, PARTS)
    bias = -product
    if grad_norm is not None:
        bias += tl.load(grad_norm + i * heads + head, mask=inside, other=0.0)
    to = terms + head * length + place
    tl.store(to, bias, mask=place < length)
    if shift is not None:
        shifts = tl.load(shift + i * heads + head, mask=inside, other=0.0)
        tl.store(to + heads.to(tl.int64) * length, shifts, mask=place < length)
