r"""Rows: the channels of points or vertices in memory, and one extra column.

The *extra column* holds the ones that become the normaliser, or their gradient; it is stored apart, so that channels stay
aligned.  Every row is written by one program alone, in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...kernels.points import OutputGradients
from ...kernels.triton import block_size, cdiv, kernel, power_of_2, tl, triton

NO_EXTRA, ONES, STORED = 0, 1, 2
"""The extra column: there is none; it is all ones, nowhere stored; it is stored."""

NUMBERS, MAX_ROWS, WARPS = 512, 128, 2
"""Numbers, rows times channels, that one program takes, the rows that it takes at most, and its warps."""


@dataclass
class Rows:
    """Rows of points or vertices.

    Args:
        main (torch.Tensor): The channels, :math:`(R, C)`; those of points may have a half type.
        extra (torch.Tensor): The extra column, :math:`(R,)`, or empty; it has the type of the positions, in which sums are
            taken.
        extra_kind (int): ``NO_EXTRA``, ``ONES`` or ``STORED``.
    """

    main: Tensor
    extra: Tensor
    extra_kind: int

    def like(self, count: int) -> Rows:
        """Allocates other rows with the same columns, in the type that sums are taken in."""
        with_extra, make = self.extra_kind != NO_EXTRA, self.extra.new_empty
        return Rows(make(count, self.main.size(1)), make(count if with_extra else 0), STORED if with_extra else NO_EXTRA)

    def part(self, begin: int, end: int) -> Rows:
        """Returns the rows from ``begin`` to ``end``, a view."""
        return Rows(self.main[begin:end], self.extra[begin:end], self.extra_kind)

    def columns(self, channels: slice) -> Rows:
        """Returns some of the channels, a view; the extra column comes with the first."""
        first = channels.start == 0
        extra_kind = self.extra_kind if first else NO_EXTRA
        return Rows(self.main[:, channels], self.extra if first else self.extra[:0], extra_kind)

    def take(self, order: Tensor) -> Rows:
        """Copies the rows in another order."""
        extra = take(self.extra, order) if self.extra_kind == STORED else self.extra
        return Rows(take(self.main, order), extra, self.extra_kind)


def pointers(rows: Rows | None) -> tuple[Tensor | None, Tensor | None]:
    """Returns channels and extra column as a kernel takes what may be missing."""
    if rows is None:
        return None, None
    return rows.main, rows.extra if rows.extra_kind == STORED else None


def take(table: Tensor, order: Tensor) -> Tensor:
    """Copies the rows of a table, or its numbers, in another order."""
    count, columns = order.size(0), table.numel() // max(1, table.size(0))
    out = table.new_empty(count, *table.shape[1:])
    width = channel_block(columns)
    size = block_size(1024 // width, max(1, count))
    _take[(cdiv(count, size), max(1, cdiv(columns, width)))](table, order, out, count, columns, BLOCK=size, WIDTH=width)
    return out


@kernel(do_not_specialize=["count"])
def _take(table, order, out, count, columns, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    i = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[:, None]
    c = (tl.program_id(1) * WIDTH + tl.arange(0, WIDTH))[None, :]
    mask = (i < count) & (c < columns)
    row = tl.load(order + i, mask=i < count, other=0)
    tl.store(out + i * columns + c, tl.load(table + row * columns + c, mask=mask), mask=mask)


def channel_block(channels: int) -> int:
    """Returns how many channels one program takes."""
    return min(128, power_of_2(max(1, channels)))


def row_block(channels: int, count: int) -> int:
    """Returns how many rows one program takes."""
    return block_size(max(1, min(MAX_ROWS, NUMBERS // channel_block(channels))), max(1, count))


@triton.jit
def load_extra(extra, row, mask, EXTRA_KIND: tl.constexpr, like):
    """Loads the extra column of rows."""
    ones: tl.constexpr = EXTRA_KIND == 1
    return tl.where(mask, 1.0, 0.0).to(like.dtype) if ones else tl.load(extra + row, mask=mask, other=0.0)


def gradient_rows(upstream: OutputGradients, normalise: bool) -> Rows:
    r"""Computes the gradients of the sums: with :math:`y = z / n`, :math:`\bar z = \bar y / n` and
    :math:`\bar n = -\langle \bar y, y \rangle / n`, plus the normaliser's own, which is the extra column."""
    grad, out, norm = upstream.grad.contiguous(), upstream.out.contiguous(), upstream.norm.contiguous()
    grad_norm = None if upstream.grad_norm is None else upstream.grad_norm.contiguous()
    count, channels = grad.size(0) * grad.size(1), grad.size(2)
    if not normalise:
        return Rows(grad.view(count, channels), norm.new_empty(0), NO_EXTRA)
    rows = Rows(norm.new_empty(count, channels), norm.new_empty(count), STORED)
    width = power_of_2(max(1, channels))
    size = block_size(max(1, 1024 // width), max(1, count))
    _gradient_rows[(cdiv(count, size),)](
        grad, grad_norm, out, norm, rows.main, rows.extra, count, channels, BLOCK=size, WIDTH=width
    )
    return rows


@kernel(do_not_specialize=["count"])
def _gradient_rows(grad, grad_norm, out, norm, rows, extra, count, channels, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
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
    grad_extra = -product * factor
    if grad_norm is not None:
        grad_extra += tl.load(grad_norm + i, mask=inside, other=0.0)
    tl.store(extra + i, grad_extra, mask=inside)
