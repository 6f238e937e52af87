r"""Rows of values: from points to vertices, among vertices, and to coarser ones.

A row holds the channels of a point or vertex and, apart from them so that channels stay aligned, one *extra* column: the
ones that become the normaliser, or their gradient.  Every row is written by one program alone, in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .build import ROW_BITS, Stencil, neighbours
from .keys import Fields, index_keys
from .launch import block, cdiv, kernel, power_of_2, steps, tl, triton

PIECE = 32
"""Longer runs are cut into pieces of this many entries, which are summed apart, so that no program has much more to do."""

MANY_RUNS = 1 << 15
"""So many runs are looked at by programs that take several of them; most have one piece."""

NUMBERS, WARPS = 512, 2
"""Numbers, rows times channels, that one program takes, and its warps."""

SLAB = 1 << 21
"""Vertices whose neighbours are held at once."""

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
    return block(max(1, NUMBERS // channel_block(channels)), max(1, count))


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
    if not long:
        out = rows.like(count)
        _sum(rows, order, weight, start, limit, False, count, divisor, shift, out, out)
        return out
    entries = rows.main.size(0) if order is None else order.size(0)
    out, channels = rows.like(count), rows.main.size(1)
    pieces = rows.like(count + entries // PIECE)
    _sum(rows, order, weight, start, limit, True, count, divisor, shift, out, pieces)
    width, together = channel_block(channels), 1 if count < MANY_RUNS else 32
    _sum_pieces[(cdiv(count, together), max(1, cdiv(channels, width)))](
        pieces.main, pieces.extra, start, limit, out.main, out.extra, count, channels,
        KIND=pieces.kind, RUNS=together, PIECE=PIECE, BLOCK=max(8, 4096 // width), WIDTH=width,
    )  # fmt: skip
    return out


def _sum(rows, order, weight, start, limit, split: bool, count, divisor, shift, out: Rows, pieces: Rows) -> None:
    """Sums runs into ``out``, or, if they are split, those of several pieces into ``pieces``."""
    bound, channels = pieces.main.size(0), rows.main.size(1)
    size, width = row_block(channels, bound), channel_block(channels)
    _sum_runs[(cdiv(bound, size), max(1, cdiv(channels, width)))](
        rows.main, rows.extra, order, weight, start, limit, out.main, out.extra, pieces.main, pieces.extra,
        count, bound, rows.main.size(0), shift, channels, steps(count),
        DIVISOR=divisor, ORDERED=order is not None, WEIGHTED=weight.numel() > 0, SPLIT=split, KIND=rows.kind,
        PIECE=PIECE, BLOCK=size, WIDTH=width, num_warps=WARPS,
    )  # fmt: skip


@triton.jit
def _pieces(start, run, mask, PIECE: tl.constexpr):
    """Where a run starts, its length, its first piece and how many it has: pieces are numbered with gaps, so that a run and its
    start say where they are."""
    begin = tl.load(start + run, mask=mask, other=0).to(tl.int64)
    length = tl.load(start + run + 1, mask=mask, other=0).to(tl.int64) - begin
    return begin, length, run + begin // PIECE, tl.maximum((length + PIECE - 1) // PIECE, 1)


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
    for run in range(tl.program_id(0) * RUNS, tl.minimum(tl.program_id(0) * RUNS + RUNS, count)):
        _, _, begin, number = _pieces(start, run, run >= 0, PIECE)
        end = begin + number
        if number > 1:
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
    runs, bound, row_count, shift, channels, halvings,
    DIVISOR: tl.constexpr, ORDERED: tl.constexpr, WEIGHTED: tl.constexpr, SPLIT: tl.constexpr, KIND: tl.constexpr,
    PIECE: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    if limit is not None:
        runs = tl.minimum(tl.load(limit), runs)
    if SPLIT:  # the run of a piece is the last one that starts at it or before
        low, high = k * 0, k * 0 + runs
        for _ in range(halvings):
            middle = (low + high) // 2
            active = low < high
            begin = tl.load(start + middle + 1, mask=active, other=0).to(tl.int64)
            below = middle + 1 + begin // PIECE <= k
            low = tl.where(active & below, middle + 1, low)
            high = tl.where(active & (below == 0), middle, high)
        inside = (k < bound) & (low < runs)
        begin, length, first, number = _pieces(start, low, inside, PIECE)
        inside = inside & (k - first < number)
        end = begin + length
        begin += (k - first) * PIECE
        end = tl.minimum(end, begin + PIECE)
        alone = number == 1
    else:
        inside = k < runs
        begin = tl.load(start + k, mask=inside, other=0).to(tl.int64)
        end = tl.load(start + k + 1, mask=inside, other=0).to(tl.int64)
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
        mask = live[:, None] & (c < channels)[None, :]
        here = tl.load(main + row.to(tl.int64)[:, None] * channels + c[None, :], mask=mask, other=0.0).to(total.dtype)
        w = total_extra * 0 + 1
        if WEIGHTED:
            w = tl.load(weight + entry, mask=live, other=0.0)
        total += w[:, None] * here
        if KIND > 0:
            total_extra += w * load_extra(extra, row, live, KIND, total_extra)
    columns = (c < channels)[None, :]
    once = inside & (tl.program_id(1) == 0)
    if SPLIT:
        tl.store(out + low[:, None] * channels + c[None, :], total, mask=(inside & alone)[:, None] & columns)
        tl.store(pieces + k[:, None] * channels + c[None, :], total, mask=(inside & (alone == 0))[:, None] & columns)
        if KIND > 0:
            tl.store(out_extra + low, total_extra, mask=once & alone)
            tl.store(pieces_extra + k, total_extra, mask=once & (alone == 0))
    else:
        tl.store(out + k[:, None] * channels + c[None, :], total, mask=inside[:, None] & columns)
        if KIND > 0:
            tl.store(out_extra + k, total_extra, mask=once)


def blur(
    tables: list[Rows], keys: Tensor, count: int, stencil: Stencil, fields: Fields, before: Tensor, bounded: bool
) -> list[Rows]:
    """Sums, for every vertex, the rows of all vertices within the stencil, in each of several tables; ``before`` says how many
    vertices there are before each level and behind the last: there are that many if ``bounded``, else ``count``."""
    limit = before[stencil.levels :] if bounded else None
    out = [table.like(count) for table in tables]
    index = index_keys(keys, count, limit)
    for begin in range(0, count, SLAB):
        end = min(count, begin + SLAB)
        found = neighbours(keys, count, limit, index, begin, end, stencil.offsets, fields)
        for table, blurred in zip(tables, out, strict=True):
            whole = begin == 0 and end == count
            blur_slab(table, found, stencil, blurred if whole else blurred.part(begin, end), before, begin)
    return out


def blur_slab(table: Rows, found: Tensor, stencil: Stencil, out: Rows, before: Tensor, begin: int = 0) -> None:
    """Sums the rows of the neighbours that were found for the vertices from ``begin`` on."""
    vertices, channels = found.size(1), table.main.size(1)
    size, width = row_block(channels, vertices), channel_block(channels)
    programs = cdiv(vertices, size) + stencil.levels - 1  # each level may leave one that is not full
    _blur[(programs, max(1, cdiv(channels, width)))](
        table.main, table.extra, found, stencil.weight, stencil.upto, before, out.main, out.extra, vertices, channels, begin,
        LEVELS=stencil.levels, ROWS=stencil.offsets.rows, LONGEST=stencil.offsets.longest, KIND=table.kind,
        BLOCK=size, WIDTH=width, num_warps=WARPS,
    )  # fmt: skip


@triton.jit
def _of_one_level(before, begin, vertices, LEVELS: tl.constexpr, BLOCK: tl.constexpr):
    """The level whose vertices a program takes, the first of them, and the one behind the last of the level: vertices of one
    level share the weights of the stencil."""
    number = tl.program_id(0).to(tl.int64)
    level, first, end = number * 0, number * BLOCK, number * 0 + vertices
    if LEVELS > 1:
        end = number * 0
        for k in tl.static_range(LEVELS):
            low = tl.minimum(tl.maximum(tl.load(before + k) - begin, 0), vertices)
            high = tl.minimum(tl.maximum(tl.load(before + k + 1) - begin, 0), vertices)
            blocks = (high - low + BLOCK - 1) // BLOCK
            mine = (number >= 0) & (number < blocks)
            level = tl.where(mine, k, level)
            first = tl.where(mine, low + number * BLOCK, first)
            end = tl.where(mine, high, end)
            number -= blocks
    return level, first, end


@kernel(do_not_specialize=["vertices", "begin"])
def _blur(
    table, extra, found, weight, upto, before, out, out_extra, vertices, channels, begin,
    LEVELS: tl.constexpr, ROWS: tl.constexpr, LONGEST: tl.constexpr, KIND: tl.constexpr,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    level, first, end = _of_one_level(before, begin, vertices, LEVELS, BLOCK)
    v = first + tl.arange(0, BLOCK)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = v < end
    once = inside & (tl.program_id(1) == 0)
    columns = (c < channels)[None, :]
    total = tl.zeros([BLOCK, WIDTH], dtype=out.dtype.element_ty)
    total_extra = tl.zeros([BLOCK], dtype=out.dtype.element_ty)
    at = found + v
    for length in tl.static_range(1, LONGEST + 1):
        for row in range(tl.load(upto + length - 1), tl.load(upto + length)):
            packed = tl.load(at, mask=inside, other=0)
            at += vertices
            # As wide as a row before anything is made of it: then it alone is passed between threads.
            wide = tl.broadcast_to(packed[:, None], [BLOCK, WIDTH])
            here, here_extra = table + (wide >> ROW_BITS) * channels + c[None, :], extra + (packed >> ROW_BITS)
            for q in tl.static_range(length):
                w = tl.load(weight + (level * ROWS + row) * LONGEST + q)
                there = (wide >> q) & 1
                total += w * tl.load(here, mask=(there > 0) & columns, other=0.0)
                here += there * channels
                if KIND > 0:
                    there = (packed >> q) & 1
                    total_extra += w * tl.load(here_extra, mask=there > 0, other=0.0)
                    here_extra += there
    tl.store(out + v[:, None] * channels + c[None, :], total, mask=inside[:, None] & columns)
    if KIND > 0:
        tl.store(out_extra + v, total_extra, mask=once)


def add_coarser(fine: Rows, coarse: Rows, vertex: Tensor, weight: Tensor) -> None:
    """Adds to each vertex the weighted rows of the coarser ones of its entries, -1 for none: the transpose of the way there."""
    count, channels = fine.main.shape
    size, width = row_block(channels, count), channel_block(channels)
    _add_coarser[(cdiv(count, size), max(1, cdiv(channels, width)))](
        fine.main, fine.extra, coarse.main, coarse.extra, vertex, weight, count, channels,
        ENTRIES=vertex.size(0) // max(1, count), KIND=fine.kind, BLOCK=size, WIDTH=width, num_warps=WARPS,
    )  # fmt: skip


@kernel(do_not_specialize=["count"])
def _add_coarser(
    fine, fine_extra, coarse, coarse_extra, vertex, weight, count, channels,
    ENTRIES: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    v = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = v < count
    columns = (c < channels)[None, :]
    once = inside & (tl.program_id(1) == 0)
    to = fine + v[:, None] * channels + c[None, :]
    total = tl.load(to, mask=inside[:, None] & columns, other=0.0)
    total_extra = tl.zeros([BLOCK], dtype=total.dtype)
    if KIND > 0:
        total_extra = tl.load(fine_extra + v, mask=once, other=0.0)
    for entry in range(ENTRIES):
        place = tl.load(vertex + v * ENTRIES + entry, mask=inside, other=-1).to(tl.int64)
        w = tl.load(weight + v * ENTRIES + entry, mask=inside, other=0.0)
        there = place >= 0
        mask = there[:, None] & columns
        total += w[:, None] * tl.load(coarse + place[:, None] * channels + c[None, :], mask=mask, other=0.0)
        if KIND > 0:
            total_extra += w * tl.load(coarse_extra + place, mask=there, other=0.0)
    tl.store(to, total, mask=inside[:, None] & columns)
    if KIND > 0:
        tl.store(fine_extra + v, total_extra, mask=once)


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
