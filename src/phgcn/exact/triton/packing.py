r"""Packs points and rows for the kernels over pairs.

Points of a graph lie side by side, coordinate by coordinate, and the last are followed by a tile of zeros: loops over sources
read whole tiles without looking at orders or ends.  A row of float32 numbers is packed in two bfloat16 parts, *high* and *low*,
which tensor cores multiply.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...runtime.triton import cdiv, kernel, tl, triton
from .tiles import split

PACKED_POINTS, PACKED_CHANNELS = 64, 16
"""Points that one program packs, and channels that it packs at a time: the smallest block of the kernels that sum."""

LARGEST_TILE = 128
"""Packed points are followed by so many zeros: no tile is larger."""


class QueryGradients(NamedTuple):
    r"""What the gradients of the queries' sums are computed from.

    Args:
        grad, out (torch.Tensor): The output and its gradient, :math:`(M, H, C)`.
        grad_norm (torch.Tensor, optional): The gradient of the normaliser, :math:`(M, H)`.
        norm (torch.Tensor, optional): The normaliser, :math:`(M, H)`; :obj:`None` where sums were not divided.
        shift (torch.Tensor, optional): The shifts, :math:`(M, H)`.
        terms (torch.Tensor): Takes, packed, :math:`(1, H, L)` or :math:`(2, H, L)`, the normaliser's gradients, those through
            the output included, 0 without ``norm``, and the shifts, if any.
    """

    grad: Tensor
    grad_norm: Tensor | None
    out: Tensor
    norm: Tensor | None
    shift: Tensor | None
    terms: Tensor


class Packed(NamedTuple):
    r"""Points as the kernels read them.

    Args:
        points (torch.Tensor): Positions, :math:`(H, D, L)`.
        flags (torch.Tensor): Not all 0 if a position or a row is not finite.
        rows, grads (torch.Tensor, optional): Rows of :math:`W` channels in one or two parts, :math:`(2, H, L, W)`: values, and
            gradients of the queries' sums.
    """

    points: Tensor
    flags: Tensor
    rows: Tensor | None
    grads: Tensor | None

    @property
    def length(self) -> int:
        return self.points.size(2)


class PackSizes(NamedTuple):
    """What packing is compiled for.

    Args:
        dim, width (int): Coordinates, and channels of packed rows.
        row_parts, grad_parts (int): Parts of packed rows and gradients; 0 where there are none.
        points, channels (int): Of a program, and of these at a time.
    """

    dim: int
    width: int
    row_parts: int
    grad_parts: int
    points: int
    channels: int


def packed_length(count: int) -> int:
    """Returns how many points are packed, with the zeros behind ``count``: rows start at multiples of 16 bytes."""
    return cdiv(count + LARGEST_TILE, PACKED_POINTS) * PACKED_POINTS


def pack_points(
    points: Tensor, rows: Tensor | None, order: Tensor | None, width: int = 0, *, exact_in_one: bool = False,
    gradients: QueryGradients | None = None,
) -> Packed:  # fmt: skip
    r"""Packs positions and, if any, rows and gradients.

    Args:
        points (torch.Tensor): Positions, :math:`(N, H, D)`, in any layout, as all that is packed.
        rows (torch.Tensor, optional): Rows, :math:`(N, H, C)`.
        order (torch.Tensor, optional): The order in which they are packed, :math:`(N,)`.
        width (int, optional): Channels of packed rows, at least :math:`C`; the rest is 0. (default: :obj:`0`)
        exact_in_one (bool, optional): Packs bfloat16 rows in one part, which holds them. (default: :obj:`False`)
        gradients (QueryGradients, optional): Packs the gradients of the queries' sums too. (default: :obj:`None`)
    """
    count, heads, dim = points.shape
    length = packed_length(count)
    blocks = length // PACKED_POINTS
    one = exact_in_one and rows is not None and rows.dtype == torch.bfloat16
    packed = Packed(
        points.new_empty(heads, dim, length),
        points.new_empty(blocks, heads, dtype=torch.int32),
        None if rows is None else _new_rows(points, heads, length, width, one),
        None if gradients is None else _new_rows(points, heads, length, width, False),
    )
    if gradients is not None:
        grad_norm = None if gradients.grad_norm is None else gradients.grad_norm.contiguous()
        gradients = gradients._replace(grad=gradients.grad.contiguous(), grad_norm=grad_norm)
    given = rows if gradients is None else gradients.grad
    channels = 0 if given is None else given.size(2)
    row_parts, grad_parts = (0 if some is None else len(some) for some in (packed.rows, packed.grads))
    _pack[blocks, heads](
        points.contiguous(), None if rows is None else rows.contiguous(), gradients, order, packed, count, length, channels,
        SIZES=PackSizes(dim, width, row_parts, grad_parts, PACKED_POINTS, PACKED_CHANNELS),
    )  # fmt: skip
    return packed


def _new_rows(points: Tensor, heads: int, length: int, width: int, one: bool) -> Tensor:
    """Allocates packed rows: where positions are float64 as they are, else in two bfloat16 parts, or in one."""
    if points.dtype == torch.float64:
        return points.new_empty(1, heads, length, width)
    return points.new_empty(1 if one else 2, heads, length, width, dtype=torch.bfloat16)


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
    points, rows, gradients, order, packed, count, length, channels, SIZES: tl.constexpr
):  # fmt: skip
    r"""Packs ``points``, and ``rows`` and ``gradients``, if any, into ``packed``, of ``length`` points; 0 behind the last.

    The gradients of sums :math:`z` follow from those of quotients :math:`y = z / n`: rows :math:`\bar z = \bar y / n`, and
    ``terms`` :math:`\bar n = -\langle \bar y, y \rangle / n`, plus ``grad_norm`` if any, then ``shift`` if any,
    (1 or 2, H, length).

    Each program has one of the flags: not 0 if a position or row is not finite.  Grid: blocks of points, heads.
    """
    D: tl.constexpr = SIZES.dim
    WIDTH: tl.constexpr = SIZES.width
    BM: tl.constexpr = SIZES.points
    place = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    head, heads = tl.program_id(1).to(tl.int64), tl.num_programs(1)
    inside = place < count
    i = points_at(order, place, count) * heads + head
    bad = tl.zeros((BM,), tl.int32)
    for k in range(D):
        x = tl.load(points + i * D + k, mask=inside, other=0.0)
        tl.store(packed.points + (head * D + k) * length + place, x)
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
        at, to = (i * channels)[:, None] + c[None, :], ((head * length + place) * WIDTH)[:, None] + c[None, :]
        if rows is not None:
            f = tl.load(rows + at, mask=mask, other=0.0)
            _store_rows(packed.rows, to, part_stride, f, SIZES.row_parts)
            bad += tl.max(_not_finite(f), axis=1)
        if SIZES.grad_parts > 0:
            g = tl.load(gradients.grad + at, mask=mask, other=0.0).to(dtype) * factor[:, None]
            _store_rows(packed.grads, to, part_stride, g, SIZES.grad_parts)
            if norm is not None:
                product += tl.sum(g * tl.load(gradients.out + at, mask=mask, other=0.0).to(dtype), axis=1)
    if SIZES.grad_parts > 0:
        bias = -product
        if gradients.grad_norm is not None:
            bias += tl.load(gradients.grad_norm + i, mask=inside, other=0.0)
        to = gradients.terms + head * length + place
        tl.store(to, bias)
        if gradients.shift is not None:
            tl.store(to + heads.to(tl.int64) * length, tl.load(gradients.shift + i, mask=inside, other=0.0))
    tl.store(packed.flags + tl.program_id(0) * heads + tl.program_id(1), tl.max(bad, axis=0))
