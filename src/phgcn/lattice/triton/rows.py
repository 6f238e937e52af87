r"""Rows of values, and their sums over runs of entries: from points to vertices, and from these to coarser ones.

A row holds the channels of a point or vertex and, apart from them so that channels stay aligned, one *extra* column: the
ones that become the normaliser, or their gradient.  Every row is written by one program alone, in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .launch import block, cdiv, kernel, power_of_2, programs, steps, tl, triton

PIECE = 32
"""Longer runs are cut into pieces of this many entries, which are summed apart, so that no program has much more to do."""

MANY_RUNS = 1 << 15
"""So many runs are looked at by programs that take several of them; most have one piece."""

NUMBERS, MOST_ROWS, WARPS = 512, 128, 2
"""Numbers, rows times channels, that one program takes, the rows that it takes at most, and its warps."""

NONE, ONES, COLUMN = 0, 1, 2
"""The extra column: there is none; it is all ones and nowhere stored; it is stored."""


@dataclass
class Rows:
    """Rows of points or vertices: the channels, :math:`(R, C)`, and the extra column, :math:`(R,)` or empty.  The channels of
    points may have a half type; sums, and with them the extra column, are in the type of the positions."""

    main: Tensor
    extra: Tensor
    kind: int

    def like(self, count: int) -> Rows:
        """Room for other rows with the same columns, in the type that sums are taken in."""
        with_extra, empty = self.kind != NONE, self.extra.new_empty
        return Rows(empty(count, self.main.size(1)), empty(count if with_extra else 0), COLUMN if with_extra else NONE)

    def part(self, begin: int, end: int) -> Rows:
        """The rows from ``begin`` to ``end``."""
        return Rows(self.main[begin:end], self.extra[begin:end], self.kind)

    def columns(self, some: slice) -> Rows:
        """Some of the channels; the extra column comes with the first."""
        first = some.start == 0
        return Rows(self.main[:, some], self.extra if first else self.extra[:0], self.kind if first else NONE)

    def taken(self, order: Tensor) -> Rows:
        """The rows in another order."""
        return Rows(take(self.main, order), take(self.extra, order) if self.kind == COLUMN else self.extra, self.kind)


def take(table: Tensor, order: Tensor) -> Tensor:
    """The rows of a table, or its numbers, in another order."""
    count, columns = order.size(0), table.numel() // max(1, table.size(0))
    out = table.new_empty(count, *table.shape[1:])
    width = channel_block(columns)
    size = block(1024 // width, max(1, count))
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
    """The channels that one program takes."""
    return min(128, power_of_2(max(1, channels)))


def row_block(channels: int, count: int) -> int:
    """The rows that one program takes."""
    return block(max(1, min(MOST_ROWS, NUMBERS // channel_block(channels))), max(1, count))


@triton.jit
def load_extra(extra, row, mask, KIND: tl.constexpr, like):
    """The extra column of rows."""
    if KIND == 1:
        return tl.where(mask, 1.0, 0.0).to(like.dtype)
    return tl.load(extra + row, mask=mask, other=0.0)


def sum_runs(
    rows: Rows, order: Tensor | None, weight: Tensor, start: Tensor, count: int, long: bool, divisor: int = 1, shift: int = 0,
    limit: Tensor | None = None,
) -> Rows:  # fmt: skip
    r"""Sums the rows of each run's entries, weighted.

    Runs are cut into pieces, whose sums are summed: a run's sum does not depend on how long others are.

    Args:
        rows (Rows): What is summed: the row of an entry :math:`e` is :math:`\lfloor e / \text{divisor} \rfloor` less
            ``shift``; entries without one count nothing.
        order (torch.Tensor, optional): The entry at each place; :obj:`None` if places are entries.
        weight (torch.Tensor): The weight of each entry, or empty.
        start (torch.Tensor): Where each run starts, and where the last one ends, int32.
        count (int): How many runs there are.
        long (bool): Whether a run may have more than ``PIECE`` entries.
        limit (torch.Tensor, optional): How many of the runs are there after all, where only the device knows that; the sums of
            others are undefined.
    """
    out, channels = rows.like(count), rows.main.size(1)
    entries = rows.main.size(0) if order is None else order.size(0)
    pieces = rows.like(max(1, 2 * (entries // PIECE))) if long else out
    bound = count + entries // PIECE if long else count
    size, width = row_block(channels, bound), channel_block(channels)
    across = max(1, cdiv(channels, width))
    _sum_runs[(programs(cdiv(bound, size), limit is not None), across)](
        rows.main, rows.extra, order, weight, start, limit, out.main, out.extra, pieces.main, pieces.extra,
        count, bound, rows.main.size(0), shift, rows.main.stride(0), channels, steps(count),
        DIVISOR=divisor, ORDERED=order is not None, WEIGHTED=weight.numel() > 0, SPLIT=long, KIND=rows.kind,
        PIECE=PIECE, BLOCK=size, WIDTH=width, num_warps=WARPS,
    )  # fmt: skip
    if long:
        together = 1 if count < MANY_RUNS else 32 if limit is None else 4
        _sum_pieces[(programs(cdiv(count, together), limit is not None), across)](
            pieces.main, pieces.extra, start, limit, out.main, out.extra, count, channels,
            KIND=pieces.kind, RUNS=together, PIECE=PIECE, BLOCK=max(8, 4096 // width), WIDTH=width,
        )  # fmt: skip
    return out


@triton.jit
def _pieces(start, run, mask, PIECE: tl.constexpr):
    """Where a run starts, its length, and how many pieces it has."""
    begin = tl.load(start + run, mask=mask, other=0).to(tl.int64)
    length = tl.load(start + run + 1, mask=mask, other=0).to(tl.int64) - begin
    return begin, length, tl.maximum((length + PIECE - 1) // PIECE, 1)


@triton.jit
def _room(begin, PIECE: tl.constexpr):
    """Where the sums of a run's pieces are kept, if it has several: with gaps, so that its start says where they are.  A run of
    n > PIECE entries has at most 2 (n // PIECE) pieces, so that those of the next one begin behind them."""
    return 2 * (begin // PIECE)


@kernel(do_not_specialize=["count"])
def _sum_pieces(
    pieces, pieces_extra, start, limit, out, out_extra, count, channels,
    KIND: tl.constexpr, RUNS: tl.constexpr, PIECE: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Sums the pieces of runs that have several."""
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    b = tl.arange(0, BLOCK)
    if limit is not None:
        count = tl.minimum(tl.load(limit), count).to(tl.int32)
    for turn in range(tl.program_id(0), tl.cdiv(count, RUNS), tl.num_programs(0)):
        some = turn * RUNS + tl.arange(0, RUNS)
        if tl.max(_pieces(start, some, some < count, PIECE)[2]) > 1:
            for run in range(turn * RUNS, tl.minimum(turn * RUNS + RUNS, count)):
                begin, _, number = _pieces(start, run, run >= 0, PIECE)
                if number > 1:
                    begin = _room(begin, PIECE)
                    end = begin + number
                    total = tl.zeros([BLOCK, WIDTH], dtype=out.dtype.element_ty)
                    total_extra = tl.zeros([BLOCK], dtype=out.dtype.element_ty)
                    for k in range(begin, end, BLOCK):
                        live = k + b < end
                        mask = live[:, None] & (c < channels)[None, :]
                        total += tl.load(pieces + (k + b)[:, None] * channels + c[None, :], mask=mask, other=0.0)
                        if KIND > 0:
                            total_extra += tl.load(pieces_extra + k + b, mask=live, other=0.0)
                    tl.store(out + (begin * 0 + run) * channels + c, tl.sum(total, axis=0), mask=c < channels)
                    if KIND > 0:
                        tl.store(out_extra + run, tl.sum(total_extra, axis=0), mask=tl.program_id(1) == 0)


@kernel(do_not_specialize=["runs", "bound", "row_count", "shift", "halvings"])
def _sum_runs(
    main, extra, order, weight, start, limit, out, out_extra, pieces, pieces_extra,
    runs, bound, row_count, shift, stride, channels, halvings,
    DIVISOR: tl.constexpr, ORDERED: tl.constexpr, WEIGHTED: tl.constexpr, SPLIT: tl.constexpr, KIND: tl.constexpr,
    PIECE: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Sums runs, or, if they are split, their pieces: the p-th of a run r has the number r + begin // PIECE + p, where begin is
    the run's first place, so that no two have the same."""
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    columns = (c < channels)[None, :]
    if limit is not None:
        runs = tl.minimum(tl.load(limit), runs)
        bound = runs
        if SPLIT:  # where there is no run, none ends
            bound += tl.load(start + runs, mask=runs > 0, other=0) // PIECE
    for turn in range(tl.program_id(0), tl.cdiv(bound, BLOCK), tl.num_programs(0)):
        k = turn * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
        run, piece = k, k * 0
        if SPLIT:  # the run of a piece is the last one that starts at it or before
            run, high = k * 0, k * 0 + runs
            for _ in range(halvings):
                middle = (run + high) // 2
                active = run < high
                begin = tl.load(start + middle + 1, mask=active, other=0).to(tl.int64)
                below = middle + 1 + begin // PIECE <= k
                run = tl.where(active & below, middle + 1, run)
                high = tl.where(active & (below == 0), middle, high)
        inside = (k < bound) & (run < runs)
        begin, length, number = _pieces(start, run, inside, PIECE)
        end = begin + length
        room = _room(begin, PIECE)
        if SPLIT:
            piece = k - run - begin // PIECE
            inside = inside & (piece < number)
            begin += piece * PIECE
            end = tl.minimum(end, begin + PIECE)
        total = tl.zeros([BLOCK, WIDTH], dtype=out.dtype.element_ty)
        total_extra = tl.zeros([BLOCK], dtype=out.dtype.element_ty)
        for t in range(tl.max(tl.where(inside, end - begin, 0)).to(tl.int32)):
            place = begin + t
            live = inside & (place < end)
            entry = place.to(tl.int32)  # there are fewer than 2^31, and 64 bits take longer to divide
            if ORDERED:
                entry = tl.load(order + place, mask=live, other=0).to(tl.int32)
            row = entry // DIVISOR - shift
            live = live & (row >= 0) & (row < row_count)
            mask = live[:, None] & columns
            here = tl.load(main + row.to(tl.int64)[:, None] * stride + c[None, :], mask=mask, other=0.0).to(total.dtype)
            w = total_extra * 0 + 1
            if WEIGHTED:
                w = tl.load(weight + entry, mask=live, other=0.0)
            total += w[:, None] * here
            if KIND > 0:
                total_extra += w * load_extra(extra, row, live, KIND, total_extra)
        alone = inside
        if SPLIT:
            alone = inside & (number == 1)
            split = inside & (number > 1)
            tl.store(pieces + (room + piece)[:, None] * channels + c[None, :], total, mask=split[:, None] & columns)
            if KIND > 0:
                tl.store(pieces_extra + room + piece, total_extra, mask=split & (tl.program_id(1) == 0))
        tl.store(out + run[:, None] * channels + c[None, :], total, mask=alone[:, None] & columns)
        if KIND > 0:
            tl.store(out_extra + run, total_extra, mask=alone & (tl.program_id(1) == 0))


def gradient_rows(grad: Tensor, out: Tensor, norm: Tensor, normalise: bool) -> Rows:
    r"""The gradients of the sums: with :math:`y = z / n`, :math:`\bar z = \bar y / n` and
    :math:`\bar n = -\langle \bar y, y \rangle / n`; ``norm`` has the type that sums are taken in."""
    if not normalise:
        return Rows(grad, norm.new_empty(0), NONE)
    count, channels = grad.shape
    rows = Rows(norm.new_empty(count, channels), norm.new_empty(count), COLUMN)
    width = power_of_2(max(1, channels))
    size = block(max(1, 1024 // width), max(1, count))
    _gradient_rows[(cdiv(count, size),)](grad, out, norm, rows.main, rows.extra, count, channels, BLOCK=size, WIDTH=width)
    return rows


@kernel(do_not_specialize=["count"])
def _gradient_rows(grad, out, norm, rows, extra, count, channels, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, WIDTH)
    inside = i < count
    mask = inside[:, None] & (c < channels)[None, :]
    at = i[:, None] * channels + c[None, :]
    total = tl.load(norm + i, mask=inside, other=0.0)
    factor = tl.where(total != 0, 1 / tl.where(total != 0, total, 1.0), 0.0)
    given = tl.load(grad + at, mask=mask, other=0.0).to(total.dtype)
    product = tl.sum(given * tl.load(out + at, mask=mask, other=0.0).to(total.dtype), axis=1)
    tl.store(rows + at, given * factor[:, None], mask=mask)
    tl.store(extra + i, -product * factor, mask=inside)
