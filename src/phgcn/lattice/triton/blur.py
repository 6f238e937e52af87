r"""Blur: sums of rows over the neighbours of each vertex, on its own level.

Neighbours are found for one stencil row at a time: they are consecutive in the sorted list of vertices.  Where a vertex has
neighbours on a row is its *segment*: the number of the first of them, and a bit for each offset that is touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ...runtime.triton import block_size, cdiv, grid_size, kernel, search_steps, tl, triton
from .index import Vertices
from .keys import SHIFT, WORD, KeyLayout, bucket_lower_bound, load_key, lower_bound, make_buckets
from .rows import WARPS, Rows, aligned, alignment, channel_block, row_block
from .stencils import Stencil, StencilRows

SLAB = 1 << 21
"""Vertices whose neighbours are in memory at a time."""

INT32_RANGE = 2**31
"""Segments below this number are packed into 32 bits."""

SEARCH_BLOCK, SEARCH_WARPS = 256, 2
"""Vertices that a program finds the neighbours of, on one stencil row, and its warps."""

HALF = 32
"""Channels that threads side by side read together when they blur: as many float32 numbers as a line of the cache has."""

FEW_ROWS = 16
"""A stencil with at most so many rows is small."""

UNROLLED = tl.constexpr(16)
"""Upper bound of the offsets of a stencil whose loop is unrolled: that of a pass, whose rows have equal length."""

REGISTERS = 64
"""Registers that a thread may have when it blurs: left alone, the compiler takes fewer and loads one row after the other."""


class SearchSizes(NamedTuple):
    """What the search for neighbours is compiled for: coordinates, offsets of the longest stencil row, bits of a segment that
    tell which are touched, words of a key, vertices of a program."""

    dim: int
    longest: int
    segment_bits: int
    words: int
    block: int


class BlurSizes(NamedTuple):
    """What the blur is compiled for.

    Args:
        levels, rows, longest, segment_bits (int): Of the stencil: levels, rows, offsets of the longest row, bits of a segment
            that tell which are touched.
        extras, extra_stride (int): Extra columns that are blurred, and that there are.
        alignment (int): See :func:`phgcn.lattice.triton.rows.aligned`.
        halves, block, width (int): A program takes ``block`` vertices and ``halves * width`` channels.
    """

    levels: int
    rows: int
    longest: int
    segment_bits: int
    extras: int
    extra_stride: int
    alignment: int
    halves: int
    block: int
    width: int


class Neighbours(NamedTuple):
    """The neighbours of the vertices from ``begin`` on.

    Shapes:
        - **segments:** ``first vertex << bits | touched offsets``, int32 or int64, :math:`(R, V')`; undefined for vertices that
          are not there
    """

    begin: int
    segments: Tensor


def neighbour_slabs(
    vertices: Vertices, rows: StencilRows, layout: KeyLayout, within: range | None = None
) -> Iterator[Neighbours]:
    """Finds the neighbours of all vertices, or of some, on all stencil rows, a slab of vertices at a time."""
    count, keys, device_count = vertices.count, vertices.keys, vertices.device_count
    bucket_start = make_buckets(keys, count, device_count)
    dtype = torch.int32 if count << rows.bits < INT32_RANGE else torch.int64
    within = range(count) if within is None else within
    for begin in range(within.start, max(1, within.stop), SLAB):
        number = min(within.stop - begin, SLAB)
        segments = torch.empty(rows.count, number, dtype=dtype, device=keys.device)
        size = block_size(SEARCH_BLOCK, number)
        _find_neighbours[(rows.count, grid_size(cdiv(number, size), not vertices.exact, rows.count))](
            keys, device_count, bucket_start, rows.first, rows.length, layout.table, segments,
            begin, begin + number, count, keys.size(1), search_steps(count),
            0 if bucket_start is None else bucket_start.size(0) - 2,
            SIZES=SearchSizes(rows.first.size(1), rows.longest, rows.bits, layout.words, size), num_warps=SEARCH_WARPS,
        )  # fmt: skip
        yield Neighbours(begin, segments)


@kernel(do_not_specialize=["begin", "end", "vertices", "stride", "steps", "buckets"])
def _find_neighbours(
    keys, device_count, bucket_start, offset, length, layout, segments, begin, end, vertices, stride, steps, buckets,
    SIZES: tl.constexpr,
):  # fmt: skip
    D: tl.constexpr = SIZES.dim
    LONGEST: tl.constexpr = SIZES.longest
    WORDS: tl.constexpr = SIZES.words
    BLOCK: tl.constexpr = SIZES.block
    # A program takes consecutive vertices and one row: their neighbours are close, so that threads read the same keys.
    row = tl.program_id(0).to(tl.int64)
    row_length = tl.load(length + row)
    distance = row * 0
    for j in tl.static_range(D):
        distance += tl.abs(tl.load(offset + row * D + j))
    if device_count is not None:
        vertices = tl.minimum(tl.load(device_count), vertices)
    number = tl.minimum(end, vertices) - begin
    for turn in range(tl.program_id(1), tl.cdiv(number, BLOCK), tl.num_programs(1)):
        i = turn * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
        inside = i < number
        target = ()
        at = begin + i
        for a in tl.static_range(WORDS):
            step = row * 0
            for j in tl.static_range(D):
                in_word = tl.load(layout + WORD * (D + 1) + 1 + j) == a
                step += tl.where(in_word, tl.load(offset + row * D + j) << tl.load(layout + SHIFT * (D + 1) + 1 + j), 0)
            target = target + (load_key(keys, at, inside) + step,)  # type: ignore[assignment]  # noqa: RUF005
            at += stride
        zero = i * 0
        first = begin + i
        if distance > 0:  # else it is the vertex itself
            if bucket_start is None:
                first = lower_bound(keys, stride, zero, zero + vertices, target, steps, WORDS)
            else:
                first = bucket_lower_bound(keys, bucket_start, buckets, target[0])  # type: ignore[misc]
        # Of the keys from there on, as many as a row may have, which are loaded at once: how far each is along the row.
        touched = zero
        for q in tl.static_range(LONGEST):
            there = inside & (first + q < vertices) & (q < row_length)
            at, apart = first + q, zero
            for a in tl.static_range(WORDS):
                here = load_key(keys, at, there)
                if a == WORDS - 1:
                    apart = here - target[a]
                else:
                    there = there & (here == target[a])
                at += stride
            there = there & (apart < row_length)
            touched = touched | (there.to(tl.int64) << tl.where(there, apart, 0))
        tl.store(segments + row * (end - begin) + i, (first << SIZES.segment_bits) | touched, mask=inside)


def blur(table: Rows, neighbours: Neighbours, vertices: Vertices, stencil: Stencil, out: Rows, side: int | None = None) -> None:
    """Sums, for every vertex of a slab, the rows of the touched vertices at the stencil's offsets, weighted.

    Args:
        table (Rows): The rows of all vertices, :math:`(V, C)`.
        neighbours (Neighbours): The neighbours of a slab of vertices.
        vertices (Vertices): The vertices.
        stencil (Stencil): The offsets, and the weights of each level.
        out (Rows): Takes the sums of the slab's vertices, :math:`(V, C)`.
        side (int, optional): Blurs only values (0) or gradients (1) of a table that has both. (default: :obj:`None`, all)
    """
    channels, extras, stride, data, out_data = table.channels, table.extras, table.channels, table.data, out.data
    extra_at = table.count * stride
    if side is not None:
        channels, extras = channels // 2, extras // 2
        data, out_data = data[side * channels :], out_data[side * channels :]
        extra_at += side * (extras - channels)
    # Of many channels, a thread takes some of either half.  Extra columns beside them take longer than on their own, unless
    # the stencil is so small that a launch takes longer.
    halves = 2 if channels > HALF else 1
    if extras > 0 and halves == 2 and stencil.rows.count > FEW_ROWS:
        begin = table.count * table.channels
        alone = (Rows(rows.data[begin:], rows.count, rows.extras) for rows in (table, out))
        blur(next(alone), neighbours, vertices, stencil, next(alone))
        extras = 0
    count, rows = neighbours.segments.size(1), stencil.rows
    width = channel_block(channels) if halves == 1 else HALF
    size = row_block(halves * width, count)
    blocks = cdiv(count, size) + stencil.levels - 1  # each level may leave one block that is not full
    _blur[(grid_size(blocks, not vertices.exact), max(1, cdiv(channels, halves * width)))](
        data, neighbours.segments, stencil.weight, stencil.rows_up_to, vertices.level_offset, out_data,
        count, channels, stride, neighbours.begin, extra_at,
        SIZES=BlurSizes(
            stencil.levels, rows.count, rows.longest, rows.bits, extras, table.extras, alignment(channels), halves, size, width
        ),
        num_warps=WARPS, maxnreg=REGISTERS,
    )  # fmt: skip


@triton.jit
def _block_of_one_level(number, level_offset, begin, vertices, LEVELS: tl.constexpr, BLOCK: tl.constexpr):
    """Returns the level of a block, its first vertex, and the end of the level: all vertices of a block are of one level, so
    that they share the weights of the stencil."""
    level, first, end = number * 0, number * 0, number * 0
    for k in tl.static_range(LEVELS):
        low = tl.minimum(tl.maximum(tl.load(level_offset + k) - begin, 0), vertices)
        high = tl.minimum(tl.maximum(tl.load(level_offset + k + 1) - begin, 0), vertices)
        blocks = tl.cdiv(high - low, BLOCK)
        here = (number >= 0) & (number < blocks)
        level = tl.where(here, k, level)
        first = tl.where(here, low + number * BLOCK, first)
        end = tl.where(here, high, end)
        number -= blocks
    return level, first, end


@triton.jit
def _add_row(
    total, total_2, total_extra, segment, weights, table, extra, c, channels, stride, LENGTH: tl.constexpr, SIZES: tl.constexpr
):
    """Adds the touched vertices of one stencil row."""
    # Widened to a row before anything is computed from it: then only the segment itself is passed between threads.
    wide = tl.broadcast_to(segment[:, None], total.shape)
    here = table + (wide >> SIZES.segment_bits).to(tl.int64) * stride + c
    here_extra = extra + (segment >> SIZES.segment_bits).to(tl.int64)[:, None] * SIZES.extra_stride
    width: tl.constexpr = total.shape[1]
    for q in tl.static_range(LENGTH):
        w = tl.load(weights + q)
        there = (wide >> q) & 1
        total += w * tl.load(here, mask=(there > 0) & (c < channels), other=0.0)
        if SIZES.halves == 2:
            total_2 += w * tl.load(here + width, mask=(there > 0) & (c + width < channels), other=0.0)
        here += there * stride
        if SIZES.extras > 0:
            there = ((segment >> q) & 1)[:, None]
            e = tl.arange(0, SIZES.extras)[None, :]
            total_extra += w * tl.load(here_extra + e, mask=(there > 0) & (e >= 0), other=0.0)
            here_extra += there * SIZES.extra_stride
    return total, total_2, total_extra


@kernel(do_not_specialize=["vertices", "begin", "extra_at"])
def _blur(
    table, segments, weight, rows_up_to, level_offset, out, vertices, channels, stride, begin, extra_at, SIZES: tl.constexpr
):
    LEVELS: tl.constexpr = SIZES.levels
    ROWS: tl.constexpr = SIZES.rows
    LONGEST: tl.constexpr = SIZES.longest
    EXTRAS: tl.constexpr = SIZES.extras
    BLOCK: tl.constexpr = SIZES.block
    WIDTH: tl.constexpr = SIZES.width
    channels, stride = aligned(channels, SIZES.alignment), aligned(stride, SIZES.alignment)
    c = (tl.program_id(1) * SIZES.halves * WIDTH + tl.arange(0, WIDTH))[None, :]
    number = tl.minimum(tl.maximum(tl.load(level_offset + LEVELS) - begin, 0), vertices)
    for turn in range(tl.program_id(0), tl.cdiv(number, BLOCK) + LEVELS - 1, tl.num_programs(0)):
        level, first, end = _block_of_one_level(number * 0 + turn, level_offset, begin, vertices, LEVELS, BLOCK)
        v = first + tl.arange(0, BLOCK)
        inside = v < end
        total = tl.zeros([BLOCK, WIDTH], dtype=out.dtype.element_ty)
        total_2 = total
        total_extra = tl.zeros([BLOCK, EXTRAS if EXTRAS > 0 else 1], dtype=out.dtype.element_ty)
        at = segments + v
        if ROWS * LONGEST <= UNROLLED:  # all rows are loaded at once
            for row in tl.static_range(ROWS):
                segment = tl.load(at + row * vertices, mask=inside, other=0)
                weights = weight + (level * ROWS + row) * LONGEST
                total, total_2, total_extra = _add_row(
                    total, total_2, total_extra, segment, weights, table, table + extra_at, c, channels, stride, LONGEST, SIZES
                )
        else:
            segment = tl.load(at, mask=inside, other=0)
            for length in tl.static_range(1, LONGEST + 1):
                for row in range(tl.load(rows_up_to + length - 1), tl.load(rows_up_to + length)):
                    at += vertices
                    next_segment = tl.load(at, mask=inside & (row + 1 < ROWS), other=0)  # loaded before it is needed
                    weights = weight + (level * ROWS + row) * LONGEST
                    total, total_2, total_extra = _add_row(
                        total, total_2, total_extra, segment, weights, table, table + extra_at, c, channels, stride,
                        length, SIZES,
                    )  # fmt: skip
                    segment = next_segment
        v += begin
        to = out + v[:, None] * stride + c
        tl.store(to, total, mask=inside[:, None] & (c < channels))
        if SIZES.halves == 2:
            tl.store(to + WIDTH, total_2, mask=inside[:, None] & (c + WIDTH < channels))
        if EXTRAS > 0:
            e = tl.arange(0, EXTRAS)[None, :]
            once = inside[:, None] & (e >= 0) & (tl.program_id(1) == 0)
            tl.store(out + extra_at + v[:, None] * SIZES.extra_stride + e, total_extra, mask=once)
