r"""The blur: sums of rows over the neighbours of each vertex, on its own level and, through coarser ones, further off."""

from __future__ import annotations

from torch import Tensor

from .build import Stencil, neighbours
from .keys import Fields, index_keys
from .launch import cdiv, kernel, programs, tl, triton
from .rows import NONE, WARPS, Rows, channel_block, row_block

HALF = 32
"""Channels that threads side by side read together when they blur: as many float32 numbers as a line of the cache has."""

FEW_ROWS = 16
"""Rows of offsets that a small stencil has; that of a pass has one for each."""

UNROLLED = tl.constexpr(16)
"""So few offsets are unrolled: those of a pass, all of whose rows have the same length."""

REGISTERS = 64
"""Registers that a thread may have when it blurs: left alone, the compiler takes fewer and asks for one row after the other."""

SLAB = 1 << 21
"""Vertices whose neighbours are held at once."""


def blur(
    tables: list[Rows], keys: Tensor, count: int, stencil: Stencil, fields: Fields, before: Tensor, bounded: bool,
    near: Tensor | None = None,
) -> list[Rows]:  # fmt: skip
    """Sums, for every vertex, the rows of all vertices within the stencil, in each of several tables; ``before`` says how many
    vertices there are before each level and behind the last: there are that many if ``bounded``, else ``count``.  ``near`` are
    the neighbours of all, if these have been sought."""
    limit = before[stencil.levels :] if bounded else None
    out = [table.like(count) for table in tables]
    index = index_keys(keys, count, limit) if near is None else None
    slab = SLAB if near is None else max(1, count)
    for begin in range(0, count, slab):
        end = min(count, begin + slab)
        found = neighbours(keys, count, limit, index, begin, end, stencil.offsets, fields) if near is None else near
        for table, blurred in zip(tables, out, strict=True):
            whole = begin == 0 and end == count
            blur_slab(table, found, stencil, blurred if whole else blurred.part(begin, end), before, bounded, begin)
    return out


def blur_slab(table: Rows, found: Tensor, stencil: Stencil, out: Rows, before: Tensor, bounded: bool, begin: int = 0) -> None:
    """Sums the rows of the neighbours that were found for the vertices from ``begin`` on."""
    kind, (count, channels) = table.kind, out.main.shape
    # Of many channels, a thread takes some of either half; beside them, the extra column takes longer than on its own, unless
    # the stencil is so small that a launch takes longer.
    halves = 2 if channels > HALF else 1
    if kind != NONE and halves == 2 and stencil.offsets.rows > FEW_ROWS:
        kind = NONE
        extra, to = (Rows(rows.extra.unsqueeze(1), rows.extra, NONE) for rows in (table, out))
        blur_slab(extra, found, stencil, to, before, bounded, begin)
    width = channel_block(channels) if halves == 1 else HALF
    size = row_block(halves * width, count)
    blocks = cdiv(count, size) + stencil.levels - 1  # each level may leave one that is not full
    _blur[(programs(blocks, bounded), max(1, cdiv(channels, halves * width)))](
        table.main, table.extra, found, stencil.weight, stencil.upto, before, out.main, out.extra,
        found.size(1), channels, begin,
        LEVELS=stencil.levels, ROWS=stencil.offsets.rows, LONGEST=stencil.offsets.longest, BITS=stencil.offsets.bits,
        KIND=kind, HALVES=halves, BLOCK=size, WIDTH=width, num_warps=WARPS, maxnreg=REGISTERS,
    )  # fmt: skip


@triton.jit
def _of_one_level(number, before, begin, vertices, LEVELS: tl.constexpr, BLOCK: tl.constexpr):
    """The level whose vertices a block has, the first of them, and the one behind the last of the level: vertices of one level
    share the weights of the stencil."""
    level, first, end = number * 0, number * 0, number * 0
    for k in tl.static_range(LEVELS):
        low = tl.minimum(tl.maximum(tl.load(before + k) - begin, 0), vertices)
        high = tl.minimum(tl.maximum(tl.load(before + k + 1) - begin, 0), vertices)
        blocks = tl.cdiv(high - low, BLOCK)
        mine = (number >= 0) & (number < blocks)
        level = tl.where(mine, k, level)
        first = tl.where(mine, low + number * BLOCK, first)
        end = tl.where(mine, high, end)
        number -= blocks
    return level, first, end


@triton.jit
def _add_row(
    total, total_2, total_extra, packed, weights, table, extra, c, channels,
    LENGTH: tl.constexpr, BITS: tl.constexpr, KIND: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    """Adds what was found on one row of offsets, if anything."""
    # As wide as a row before anything is made of it: then it alone is passed between threads.
    wide = tl.broadcast_to(packed[:, None], total.shape)
    here, here_extra = table + (wide >> BITS).to(tl.int64) * channels + c, extra + (packed >> BITS)
    width: tl.constexpr = total.shape[1]
    for q in tl.static_range(LENGTH):
        w = tl.load(weights + q)
        there = (wide >> q) & 1
        total += w * tl.load(here, mask=(there > 0) & (c < channels), other=0.0)
        if HALVES == 2:
            total_2 += w * tl.load(here + width, mask=(there > 0) & (c + width < channels), other=0.0)
        here += there * channels
        if KIND > 0:
            there = (packed >> q) & 1
            total_extra += w * tl.load(here_extra, mask=there > 0, other=0.0)
            here_extra += there
    return total, total_2, total_extra


@kernel(do_not_specialize=["vertices", "begin"])
def _blur(
    table, extra, found, weight, upto, before, out, out_extra, vertices, channels, begin,
    LEVELS: tl.constexpr, ROWS: tl.constexpr, LONGEST: tl.constexpr, BITS: tl.constexpr, KIND: tl.constexpr,
    HALVES: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    c = (tl.program_id(1) * HALVES * WIDTH + tl.arange(0, WIDTH))[None, :]
    there_are = tl.minimum(tl.maximum(tl.load(before + LEVELS) - begin, 0), vertices)
    for turn in range(tl.program_id(0), tl.cdiv(there_are, BLOCK) + LEVELS - 1, tl.num_programs(0)):
        level, first, end = _of_one_level(there_are * 0 + turn, before, begin, vertices, LEVELS, BLOCK)
        v = first + tl.arange(0, BLOCK)
        inside = v < end
        total = tl.zeros([BLOCK, WIDTH], dtype=out.dtype.element_ty)
        total_2 = total
        total_extra = tl.zeros([BLOCK], dtype=out.dtype.element_ty)
        at = found + v
        if ROWS * LONGEST <= UNROLLED:  # all rows are asked for at once
            for row in tl.static_range(ROWS):
                packed = tl.load(at + row * vertices, mask=inside, other=0)
                weights = weight + (level * ROWS + row) * LONGEST
                total, total_2, total_extra = _add_row(
                    total, total_2, total_extra, packed, weights, table, extra, c, channels, LONGEST, BITS, KIND, HALVES
                )
        else:
            packed = tl.load(at, mask=inside, other=0)
            for length in tl.static_range(1, LONGEST + 1):
                for row in range(tl.load(upto + length - 1), tl.load(upto + length)):
                    at += vertices
                    coming = tl.load(at, mask=inside & (row + 1 < ROWS), other=0)  # asked for before it is needed
                    weights = weight + (level * ROWS + row) * LONGEST
                    total, total_2, total_extra = _add_row(
                        total, total_2, total_extra, packed, weights, table, extra, c, channels, length, BITS, KIND, HALVES
                    )
                    packed = coming
        to = out + v[:, None] * channels + c
        tl.store(to, total, mask=inside[:, None] & (c < channels))
        if HALVES == 2:
            tl.store(to + WIDTH, total_2, mask=inside[:, None] & (c + WIDTH < channels))
        if KIND > 0:
            tl.store(out_extra + v, total_extra, mask=inside & (tl.program_id(1) == 0))


def add_coarser(fine: Rows, coarse: Rows, vertex: Tensor, weight: Tensor) -> None:
    """Adds to each vertex the weighted rows of the coarser ones of its entries, -1 for none: the transpose of the way there."""
    count, channels = fine.main.shape
    size, width = row_block(channels, count), channel_block(channels)
    _add_coarser[(cdiv(count, size), max(1, cdiv(channels, width)))](
        fine.main, fine.extra, coarse.main, coarse.extra, vertex, weight, count, fine.main.stride(0), channels,
        ENTRIES=vertex.size(0) // max(1, count), KIND=fine.kind, BLOCK=size, WIDTH=width, num_warps=WARPS,
    )  # fmt: skip


@kernel(do_not_specialize=["count"])
def _add_coarser(
    fine, fine_extra, coarse, coarse_extra, vertex, weight, count, stride, channels,
    ENTRIES: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    v = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = v < count
    columns = (c < channels)[None, :]
    once = inside & (tl.program_id(1) == 0)
    to = fine + v[:, None] * stride + c[None, :]
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
