r"""Rows of values: from points to vertices, among vertices, and to coarser ones.

A row holds the channels of a point or vertex and, apart from them so that channels stay aligned, one *extra* column: the
ones that become the normaliser, or their gradient.  Every row is written by one program alone, in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .build import MASK, MASK_BITS, Stencil, neighbours
from .keys import Fields
from .launch import block, cdiv, power_of_2, steps, tl, triton

PIECE = 32
"""Longer runs are cut into pieces of this many entries, which are summed apart, so that no program has much more to do."""

SLAB = 1 << 21
"""Vertices whose neighbours are held at once."""

NONE, ONES, COLUMN = 0, 1, 2
"""The extra column: there is none; it is all ones and nowhere stored; it is stored."""


@dataclass
class Rows:
    """Rows of points or vertices: the channels, :math:`(R, C)`, and the extra column, :math:`(R,)` or empty."""

    main: Tensor
    extra: Tensor
    kind: int

    def like(self, count: int) -> Rows:
        """Room for other rows with the same columns."""
        with_extra = self.kind != NONE
        empty = self.main.new_empty
        return Rows(
            empty(count, self.main.size(1)), empty(count if with_extra else 0), COLUMN if with_extra else NONE
        )  # fmt: skip

    def part(self, begin: int, end: int) -> Rows:
        """The rows from ``begin`` to ``end``."""
        return Rows(self.main[begin:end], self.extra[begin:end], self.kind)


def channel_block(channels: int) -> int:
    """The channels that one program takes."""
    return min(128, power_of_2(max(1, channels)))


BLUR_ELEMENTS, BLUR_WARPS = 1024, 4
"""Numbers that a program of the blur sums, and its warps."""


def row_block(channels: int, count: int, elements: int = 1024) -> int:
    """The rows that one program takes."""
    return block(max(1, elements // channel_block(channels)), max(1, count))


@triton.jit
def load_extra(extra, row, mask, KIND: tl.constexpr, like):
    """The extra column of rows."""
    if KIND == 1:
        return tl.where(mask, 1.0, 0.0).to(like.dtype)
    return tl.load(extra + row, mask=mask, other=0.0)


def sum_runs(
    rows: Rows, order: Tensor | None, weight: Tensor, start: Tensor, count: Tensor, longest: int, divisor: int = 1,
    factor: float = 1.0, shift: int = 0,
) -> Rows:  # fmt: skip
    r"""Sums the rows of each run's entries, weighted.

    Args:
        rows (Rows): What is summed: the row of an entry :math:`e` is :math:`\lfloor e / \text{divisor} \rfloor` less
            ``shift``; entries without one count nothing.
        order (torch.Tensor, optional): The entry at each place; :obj:`None` if places are entries.
        weight (torch.Tensor): The weight of each entry, or empty.
        start (torch.Tensor): Where each run starts, :math:`(B+1,)`; 0 behind the end of the last.
        count (torch.Tensor): How many runs there are, on the device.
        longest (int): No run has more entries than this.
        factor (float): Of all weights, exact in float32.
    """
    bound = len(start) - 1
    if longest <= PIECE:
        return _sum(rows, order, weight, start, start, count, bound, divisor, factor, shift, split=False)
    length = (start[1:] - start[:-1]).clamp(min=0)
    first = torch.zeros(bound + 1, dtype=torch.int32, device=start.device)
    torch.cumsum((length + PIECE - 1) // PIECE, 0, dtype=torch.int32, out=first[1:])
    entries = rows.main.size(0) if order is None else len(order)
    pieces = _sum(rows, order, weight, start, first, count, bound + entries // PIECE, divisor, factor, shift, split=True)
    return sum_runs(pieces, None, weight[:0], first, count, cdiv(longest, PIECE))


def _sum(rows, order, weight, start, first, count, bound, divisor, factor, shift, split: bool) -> Rows:
    out = rows.like(bound)
    channels = rows.main.size(1)
    size, width = row_block(channels, bound), channel_block(channels)
    _sum_runs[(cdiv(bound, size), max(1, cdiv(channels, width)))](
        rows.main, rows.extra, order, weight, start, first, count, out.main, out.extra,
        bound, len(rows.main), shift, channels, factor, steps(len(first)),
        DIVISOR=divisor, ORDERED=order is not None, WEIGHTED=weight.numel() > 0, SPLIT=split, KIND=rows.kind, PIECE=PIECE,
        BLOCK=size, WIDTH=width,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["bound", "row_count", "shift", "halvings"])
def _sum_runs(
    main, extra, order, weight, start, first, count, out, out_extra,
    bound, row_count, shift, channels, factor, halvings,
    DIVISOR: tl.constexpr, ORDERED: tl.constexpr, WEIGHTED: tl.constexpr, SPLIT: tl.constexpr, KIND: tl.constexpr,
    PIECE: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    runs = tl.load(count).to(tl.int64)
    if SPLIT:  # the run of a piece is the last one that starts at it or before
        low, high = k * 0, k * 0 + runs
        for _ in range(halvings):
            middle = (low + high) // 2
            active = low < high
            below = tl.load(first + middle + 1, mask=active, other=0) <= k
            low = tl.where(active & below, middle + 1, low)
            high = tl.where(active & (below == 0), middle, high)
        inside = (k < bound) & (low < runs)
        begin = tl.load(start + low, mask=inside, other=0) + (k - tl.load(first + low, mask=inside, other=0)) * PIECE
        end = tl.minimum(tl.load(start + low + 1, mask=inside, other=0), begin + PIECE)
    else:
        inside = (k < bound) & (k < runs)
        begin = tl.load(start + k, mask=inside, other=0).to(tl.int64)
        end = tl.load(start + k + 1, mask=inside, other=0).to(tl.int64)
    total = tl.zeros([BLOCK, WIDTH], dtype=out.dtype.element_ty)
    total_extra = tl.zeros([BLOCK], dtype=out.dtype.element_ty)
    for t in range(tl.max(end - begin).to(tl.int32)):
        place = begin + t
        live = inside & (place < end)
        entry = place
        if ORDERED:
            entry = tl.load(order + place, mask=live, other=0).to(tl.int64)
        row = entry // DIVISOR - shift
        live = live & (row >= 0) & (row < row_count)
        w = total_extra * 0 + factor
        if WEIGHTED:
            w = w * tl.load(weight + entry, mask=live, other=0.0)
        mask = live[:, None] & (c < channels)[None, :]
        total += w[:, None] * tl.load(main + row[:, None] * channels + c[None, :], mask=mask, other=0.0)
        if KIND > 0:
            total_extra += w * load_extra(extra, row, live, KIND, total_extra)
    tl.store(out + k[:, None] * channels + c[None, :], total, mask=inside[:, None] & (c < channels)[None, :])
    if KIND > 0:
        tl.store(out_extra + k, total_extra, mask=inside & (tl.program_id(1) == 0))


def blur(tables: list[Rows], keys: Tensor, count: Tensor, stencil: Stencil, fields: Fields) -> list[Rows]:
    """Sums, for every vertex, the rows of all vertices within the stencil, in each of several tables."""
    bound = keys.size(1)
    out = [table.like(bound) for table in tables]
    for begin in range(0, bound, SLAB):
        end = min(bound, begin + SLAB)
        found = neighbours(keys, count, begin, end, stencil, fields)
        for table, blurred in zip(tables, out, strict=True):
            _blur_slab(table, found, stencil, count, begin, blurred.part(begin, end))
    return out


def _blur_slab(table: Rows, found: Tensor, stencil: Stencil, count: Tensor, begin: int, out: Rows) -> None:
    rows, vertices = found.shape
    channels = table.main.size(1)
    size, width = row_block(channels, vertices, BLUR_ELEMENTS), channel_block(channels)
    _blur[(cdiv(vertices, size), max(1, cdiv(channels, width)))](
        table.main, table.extra, found, stencil.weight, count, out.main, out.extra, begin, vertices, rows, channels,
        LONGEST=stencil.weight.size(1), KIND=table.kind, BLOCK=size, WIDTH=width, num_warps=BLUR_WARPS,
    )  # fmt: skip


@triton.jit(do_not_specialize=["begin", "vertices"])
def _blur(
    table, extra, found, weight, count, out, out_extra, begin, vertices, rows, channels,
    LONGEST: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    v = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = (v < vertices) & (begin + v < tl.load(count))
    if tl.max(inside.to(tl.int32)) == 0:
        return
    total = tl.zeros([BLOCK, WIDTH], dtype=out.dtype.element_ty)
    total_extra = tl.zeros([BLOCK], dtype=out.dtype.element_ty)
    at = v
    for row in range(rows):
        packed = tl.load(found + at, mask=inside, other=0)
        at += vertices
        bits = packed & MASK
        place = packed >> MASK_BITS
        if tl.max(bits) > 0:
            for q in tl.static_range(LONGEST):
                there = (bits >> q) & 1
                w = tl.load(weight + row * LONGEST + q)
                mask = (there > 0)[:, None] & (c < channels)[None, :]
                total += w * tl.load(table + place[:, None] * channels + c[None, :], mask=mask, other=0.0)
                if KIND > 0:
                    total_extra += w * tl.load(extra + place, mask=there > 0, other=0.0)
                place += there
    tl.store(out + v[:, None] * channels + c[None, :], total, mask=inside[:, None] & (c < channels)[None, :])
    if KIND > 0:
        tl.store(out_extra + v, total_extra, mask=inside & (tl.program_id(1) == 0))


def add_coarser(fine: Rows, coarse: Rows, parent: Tensor, count: Tensor) -> None:
    """Adds to each vertex half of either parent's row: the way back up, the transpose of the way down."""
    bound, channels = fine.main.shape
    size, width = row_block(channels, bound), channel_block(channels)
    _add_coarser[(cdiv(bound, size), max(1, cdiv(channels, width)))](
        fine.main, fine.extra, coarse.main, coarse.extra, parent, count, bound, channels,
        KIND=fine.kind, BLOCK=size, WIDTH=width,
    )  # fmt: skip


@triton.jit(do_not_specialize=["bound"])
def _add_coarser(
    fine, fine_extra, coarse, coarse_extra, parent, count, bound, channels,
    KIND: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    v = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = (v < bound) & (v < tl.load(count))
    if tl.max(inside.to(tl.int32)) == 0:
        return
    mask = inside[:, None] & (c < channels)[None, :]
    low = tl.load(parent + 2 * v, mask=inside, other=0).to(tl.int64)
    high = tl.load(parent + 2 * v + 1, mask=inside, other=0).to(tl.int64)
    to = fine + v[:, None] * channels + c[None, :]
    total = tl.load(coarse + low[:, None] * channels + c[None, :], mask=mask, other=0.0)
    total += tl.load(coarse + high[:, None] * channels + c[None, :], mask=mask, other=0.0)
    tl.store(to, tl.load(to, mask=mask, other=0.0) + 0.5 * total, mask=mask)
    if KIND > 0:
        once = inside & (tl.program_id(1) == 0)
        total = tl.load(coarse_extra + low, mask=once, other=0.0) + tl.load(coarse_extra + high, mask=once, other=0.0)
        tl.store(fine_extra + v, tl.load(fine_extra + v, mask=once, other=0.0) + 0.5 * total, mask=once)


def gradient_rows(grad: Tensor, out: Tensor, norm: Tensor, normalise: bool) -> Rows:
    r"""The gradients of the sums: with :math:`y = z / n`, :math:`\bar z = \bar y / n` and
    :math:`\bar n = -\langle \bar y, y \rangle / n`."""
    if not normalise:
        return Rows(grad, grad.new_empty(0), NONE)
    count, channels = grad.shape
    rows = Rows(torch.empty_like(grad), grad.new_empty(count), COLUMN)
    width = power_of_2(max(1, channels))
    size = block(max(1, 1024 // width), max(1, count))
    _gradient_rows[(cdiv(count, size),)](grad, out, norm, rows.main, rows.extra, count, channels, BLOCK=size, WIDTH=width)
    return rows


@triton.jit(do_not_specialize=["count"])
def _gradient_rows(grad, out, norm, rows, extra, count, channels, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, WIDTH)
    inside = i < count
    mask = inside[:, None] & (c < channels)[None, :]
    at = i[:, None] * channels + c[None, :]
    total = tl.load(norm + i, mask=inside, other=0.0)
    factor = tl.where(total != 0, 1 / tl.where(total != 0, total, 1.0), 0.0)
    given = tl.load(grad + at, mask=mask, other=0.0)
    product = tl.sum(given * tl.load(out + at, mask=mask, other=0.0), axis=1)
    tl.store(rows + at, given * factor[:, None], mask=mask)
    tl.store(extra + i, -product * factor, mask=inside)
