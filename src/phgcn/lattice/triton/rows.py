r"""Rows: the channels of points or vertices in memory, and their extra columns.

An *extra column* holds the ones that become the normaliser, or their gradient; it is stored behind all rows, so that channels
stay aligned.  Every row is written by one program alone, in a fixed order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from ...runtime.points import OutputGradients
from ...runtime.triton import block_size, cdiv, kernel, power_of_2, tl, triton

NUMBERS, MAX_ROWS, WARPS = 512, 128, 2
"""Of a program: numbers (rows times channels), the most rows, and warps."""


@dataclass
class Rows:
    """Rows of points or vertices, in one tensor.

    Args:
        data (torch.Tensor): The channels, :math:`R C` numbers row by row, then the extra columns, :math:`R E`; those of points
            may have a half type.
        count (int): How many rows there are, :math:`R`.
        channels (int): How many channels there are, :math:`C`.
        extras (int): How many extra columns there are, :math:`E`. (default: :obj:`0`)
        ones (bool): Whether there is one extra column that is all ones, nowhere stored. (default: :obj:`False`)
    """

    data: Tensor
    count: int
    channels: int
    extras: int = 0
    ones: bool = False

    @property
    def main(self) -> Tensor:
        """The channels, (R, C)."""
        return self.data.view(-1)[: self.count * self.channels].view(self.count, self.channels)

    @property
    def extra(self) -> Tensor:
        """The stored extra columns, (R, E)."""
        begin = self.count * self.channels
        return self.data.view(-1)[begin : begin + self.count * self.extras].view(self.count, self.extras)

    def take(self, order: Tensor) -> Rows:
        """Copies the rows in another order."""
        count, columns = order.size(0), self.channels
        out = new_rows(self.data, count, columns, self.extras)
        width = channel_block(columns)
        size = block_size(1024 // width, max(1, count))
        _take[(cdiv(count, size), max(1, cdiv(columns, width)))](
            self.data, order, out.data, count, self.count, columns,
            EXTRAS=self.extras, ALIGNMENT=alignment(columns), BLOCK=size, WIDTH=width,
        )  # fmt: skip
        out.ones = self.ones
        return out


def new_rows(like: Tensor, count: int, channels: int, extras: int) -> Rows:
    """Allocates rows, in the type and on the device of a tensor."""
    return Rows(like.new_empty(count * (channels + extras)), count, channels, extras)


def pad_channels(rows: Tensor) -> Tensor:
    """Pads rows of more than 4 channels, (N, H, C), with 0 to a multiple of 4; see :func:`aligned`."""
    channels = rows.size(2)
    return F.pad(rows, (0, -channels % 4)) if channels > 4 and channels % 4 > 0 else rows


def alignment(channels: int) -> int:
    """Returns the greatest power of 2, up to 16, that divides the number of channels; see :func:`aligned`."""
    return math.gcd(channels, 16)


@triton.jit
def aligned(channels, ALIGNMENT: tl.constexpr):
    """Returns the number of channels such that the compiler knows it to be a multiple of ``ALIGNMENT``: a thread reads 16 bytes
    at a time only from rows that start at multiples of 16 bytes.  On its own, Triton looks for multiples of 16 only."""
    if ALIGNMENT < 16:
        return channels // ALIGNMENT * ALIGNMENT
    else:
        return channels


@kernel(do_not_specialize=["count", "row_count"])
def _take(
    table, order, out, count, row_count, columns,
    EXTRAS: tl.constexpr, ALIGNMENT: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    columns = aligned(columns, ALIGNMENT)
    i = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[:, None]
    c = (tl.program_id(1) * WIDTH + tl.arange(0, WIDTH))[None, :]
    mask = (i < count) & (c < columns)
    row = tl.load(order + i, mask=i < count, other=0)
    tl.store(out + i * columns + c, tl.load(table + row * columns + c, mask=mask), mask=mask)
    if EXTRAS > 0:
        mask = (i < count) & (c < EXTRAS)
        extra = tl.load(table + row_count.to(tl.int64) * columns + row * EXTRAS + c, mask=mask)
        tl.store(out + count.to(tl.int64) * columns + i * EXTRAS + c, extra, mask=mask)


def channel_block(channels: int) -> int:
    """Returns how many channels one program takes."""
    return min(128, power_of_2(max(1, channels)))


def row_block(channels: int, count: int) -> int:
    """Returns how many rows one program takes."""
    return block_size(max(1, min(MAX_ROWS, NUMBERS // channel_block(channels))), max(1, count))


def gradient_rows(upstream: OutputGradients, normalise: bool) -> Rows:
    r"""Computes the gradients of the sums: with :math:`y = z / n`, :math:`\bar z = \bar y / n` and
    :math:`\bar n = -\langle \bar y, y \rangle / n`, plus the normaliser's own, which is the extra column."""
    grad, out, norm = upstream.grad.contiguous(), upstream.out.contiguous(), upstream.norm.contiguous()
    grad_norm = None if upstream.grad_norm is None else upstream.grad_norm.contiguous()
    count, channels = grad.size(0) * grad.size(1), grad.size(2)
    if not normalise:
        return Rows(grad, count, channels)
    rows = new_rows(norm, count, channels, 1)
    width = power_of_2(max(1, channels))
    size = block_size(max(1, 1024 // width), max(1, count))
    _gradient_rows[(cdiv(count, size),)](grad, grad_norm, out, norm, rows.data, count, channels, BLOCK=size, WIDTH=width)
    return rows


@kernel(do_not_specialize=["count"])
def _gradient_rows(grad, grad_norm, out, norm, rows, count, channels, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, WIDTH)
    inside = i < count
    mask = inside[:, None] & (c < channels)[None, :]
    at = i[:, None] * channels + c[None, :]
    total = tl.load(norm + i, mask=inside, other=0.0)
    factor = tl.where(total != 0, 1 / tl.where(total != 0, total, 1.0), 0.0)
    grad_row = tl.load(grad + at, mask=mask, other=0.0).to(total.dtype)
    product = tl.sum(grad_row * tl.load(out + at, mask=mask, other=0.0).to(total.dtype), axis=1)
    tl.store(rows + at, grad_row * factor[:, None], mask=mask)
    extra = -product * factor
    if grad_norm is not None:
        extra += tl.load(grad_norm + i, mask=inside, other=0.0)
    tl.store(rows + count.to(tl.int64) * channels + i, extra, mask=inside)
