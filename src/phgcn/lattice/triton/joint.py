"""The kernels of :mod:`phgcn.lattice.joint` on a GPU. One program writes each number, in a fixed
order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...runtime.triton import (
    block_size,
    cdiv,
    device_of,
    kernel,
    power_of_2,
    search_steps,
    tl,
    triton,
)
from .pairs import sum_near

# of a program: numbers (rows times channels), the most rows, and warps
NUMBERS, MAX_ROWS, WARPS = 512, 128, 2

KEYS = 256  # keys that a program merges

# longer segments are summed in pieces of this many entries, so that no program has much more to do
# than others
PIECE = 64


def sum_rows(rows: Tensor, index: Tensor | None, weight: Tensor | None, start: Tensor) -> Tensor:
    if start[1:].sub(start[:-1]).max() <= PIECE if len(start) > 1 else True:
        return _sum_short(rows, index, weight, start)
    pieces = (start.diff() + PIECE - 1) // PIECE
    first = torch.cat([pieces.new_zeros(1), pieces.cumsum(0)])
    segment = torch.repeat_interleave(pieces)
    piece = torch.arange(len(segment), device=start.device) - first[segment]
    piece_start = torch.cat([start[segment] + PIECE * piece, start[-1:]])
    return sum_rows(_sum_short(rows, index, weight, piece_start), None, None, first)


def _sum_short(rows: Tensor, index: Tensor | None, weight: Tensor | None, start: Tensor) -> Tensor:
    out = rows.new_empty(len(start) - 1, rows.size(1))
    return _launch(_sum_rows, out, rows, index, weight, start)


def merge_keys(key: Tensor, offset: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    count = len(key)
    index, is_new, first, second = key.new_empty(4, count, dtype=torch.int32)
    if count == 0:
        return index, is_new, first, second, key
    size = block_size(KEYS, count)
    searched = key, offset.contiguous(), count, search_steps(count)
    with device_of(key):
        _find_new[(cdiv(count, size),)](*searched, index, is_new, BLOCK=size)
        number = is_new.cumsum(0, dtype=torch.int32)
        total = count + int(number[-1])
        union = key.new_empty(total)
        own, neighbour = torch.full((2, total), count, dtype=torch.int32, device=key.device)
        _merge[(cdiv(count, size),)](
            *searched, index, is_new, number, first, second, own, neighbour, union, BLOCK=size
        )
    return own, neighbour, first, second, union


def average_rows(table: Tensor, first: Tensor, second: Tensor) -> Tensor:
    out = table.new_empty(len(first), table.size(1))
    return _launch(_average_rows, out, table, first, second, rows=len(table))


def slice_rows(table: Tensor, corner: Tensor, weight: Tensor) -> Tensor:
    out = table.new_empty(len(corner), table.size(1))
    return _launch(_slice_rows, out, table, corner, weight, CORNERS=corner.size(1))


def multiply_rows(table: Tensor, corner: Tensor, rows: Tensor) -> Tensor:
    out = table.new_empty(corner.shape)
    return _launch(_multiply_rows, out, table, corner, rows, CORNERS=corner.size(1))


def _launch(
    function: Any, out: Tensor, table: Tensor, *given: Tensor | None, **sizes: int
) -> Tensor:
    """Runs a kernel that fills the rows of ``out`` from a table. Returns ``out``."""
    count, channels = len(out), table.size(1)
    if out.numel() > 0:
        size, width = _blocks(channels, count)
        columns = 1 if function is _multiply_rows else cdiv(channels, width)
        with device_of(table):
            function[(cdiv(count, size), columns)](
                *(t if t is None else t.contiguous() for t in (table, *given)),
                out,
                count,
                channels=channels,
                **sizes,
                BLOCK=size,
                WIDTH=width,
                num_warps=WARPS,
            )
    return out


def _blocks(channels: int, count: int) -> tuple[int, int]:
    """Returns the rows and channels per program."""
    width = min(128, power_of_2(channels))
    return block_size(max(1, min(MAX_ROWS, NUMBERS // width)), count), width


@triton.jit
def _lower_bound(key, offset, wanted, inside, count, rounds):
    """Finds the first key, moved by its offset, that is not less than the wanted one."""
    low = tl.zeros(wanted.shape, dtype=tl.int32)
    high = low + count
    for _ in range(rounds):
        middle = (low + high) // 2
        searching = inside & (low < high)
        there = tl.load(key + middle, mask=searching, other=0)
        if offset is not None:
            there += tl.load(offset + middle, mask=searching, other=0)
        low = tl.where(searching & (there < wanted), middle + 1, low)
        high = tl.where(searching & (there >= wanted), middle, high)
    return low


@kernel(do_not_specialize=["count", "rounds"])
def _find_new(key, offset, count, rounds, index, is_new, BLOCK: tl.constexpr):
    """Finds the index of each moved key among the keys, and whether it is new."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    moved = tl.load(key + i, mask=inside, other=0) + tl.load(offset + i, mask=inside, other=0)
    at = _lower_bound(key, None, moved, inside, count, rounds)
    there = tl.load(key + at, mask=inside & (at < count), other=0)
    tl.store(index + i, at, mask=inside)
    tl.store(is_new + i, ((at == count) | (there != moved)).to(tl.int32), mask=inside)


@kernel(do_not_specialize=["count", "rounds"])
def _merge(
    key,
    offset,
    count,
    rounds,
    index,
    is_new,
    number,
    first,
    second,
    own,
    neighbour,
    union,
    BLOCK: tl.constexpr,
):
    """Writes the union of keys and moved keys; an index counts the keys that are less."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    here = tl.load(key + i, mask=inside, other=0)
    moved = here + tl.load(offset + i, mask=inside, other=0)
    less = _lower_bound(key, offset, here, inside, count, rounds)
    at = i + tl.load(number + less - 1, mask=inside & (less > 0), other=0)
    tl.store(first + i, at, mask=inside)
    tl.store(own + at, i, mask=inside)
    tl.store(union + at, here, mask=inside)
    new = tl.load(number + i, mask=inside, other=0) - tl.load(is_new + i, mask=inside, other=0)
    at = tl.load(index + i, mask=inside, other=0) + new
    tl.store(second + i, at, mask=inside)
    tl.store(neighbour + at, i, mask=inside)
    tl.store(union + at, moved, mask=inside)


@kernel(do_not_specialize=["count"])
def _sum_rows(
    rows, index, weight, start, out, count, channels, BLOCK: tl.constexpr, WIDTH: tl.constexpr
):
    s = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside, columns = s < count, (c < channels)[None, :]
    begin = tl.load(start + s, mask=inside, other=0)
    end = tl.load(start + s + 1, mask=inside, other=0)
    total = tl.zeros([BLOCK, WIDTH], dtype=out.dtype.element_ty)
    for t in range(tl.max(tl.where(inside, end - begin, 0)).to(tl.int32)):
        place = begin + t
        live = inside & (place < end)
        entry = place.to(tl.int32)  # Triton 3.6 does not compile the loop with 64 bits
        if index is not None:
            entry = tl.load(index + place, mask=live, other=0).to(tl.int32)
        at = rows + entry[:, None].to(tl.int64) * channels + c[None, :]
        row = tl.load(at, mask=live[:, None] & columns, other=0.0)
        if weight is not None:
            row *= tl.load(weight + place, mask=live, other=0.0)[:, None]
        total += row
    tl.store(out + s[:, None] * channels + c[None, :], total, mask=inside[:, None] & columns)


@kernel(do_not_specialize=["count", "rows"])
def _average_rows(
    table, first, second, out, count, rows, channels, BLOCK: tl.constexpr, WIDTH: tl.constexpr
):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = (tl.program_id(1) * WIDTH + tl.arange(0, WIDTH))[None, :]
    inside = i < count
    p = tl.load(first + i, mask=inside, other=0)
    q = tl.load(second + i, mask=inside, other=0)
    columns = inside[:, None] & (c < channels)
    total = tl.load(
        table + p[:, None].to(tl.int64) * channels + c,
        mask=columns & (p < rows)[:, None],
        other=0.0,
    )
    total += tl.load(
        table + q[:, None].to(tl.int64) * channels + c,
        mask=columns & (q < rows)[:, None],
        other=0.0,
    )
    tl.store(out + i[:, None] * channels + c, 0.5 * total, mask=columns)


@kernel(do_not_specialize=["count"])
def _slice_rows(
    table,
    corner,
    weight,
    out,
    count,
    channels,
    CORNERS: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = (tl.program_id(1) * WIDTH + tl.arange(0, WIDTH))[None, :]
    inside = i < count
    mask = inside[:, None] & (c < channels)
    total = tl.zeros([BLOCK, WIDTH], dtype=out.dtype.element_ty)
    for r in tl.static_range(CORNERS):
        v = tl.load(corner + i * CORNERS + r, mask=inside, other=0)
        w = tl.load(weight + i * CORNERS + r, mask=inside, other=0.0)
        total += w[:, None] * tl.load(table + v[:, None] * channels + c, mask=mask, other=0.0)
    tl.store(out + i[:, None] * channels + c, total, mask=mask)


@kernel(do_not_specialize=["count"])
def _multiply_rows(
    table,
    corner,
    rows,
    out,
    count,
    channels,
    CORNERS: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    for r in tl.static_range(CORNERS):
        v = tl.load(corner + i * CORNERS + r, mask=inside, other=0)
        total = tl.zeros([BLOCK], dtype=out.dtype.element_ty)
        for first in range(0, channels, WIDTH):
            c = (first + tl.arange(0, WIDTH))[None, :]
            mask = inside[:, None] & (c < channels)
            row = tl.load(rows + i[:, None] * channels + c, mask=mask, other=0.0)
            total += tl.sum(
                row * tl.load(table + v[:, None] * channels + c, mask=mask, other=0.0), axis=1
            )
        tl.store(out + i * CORNERS + r, total, mask=inside)


__all__ = ["average_rows", "merge_keys", "multiply_rows", "slice_rows", "sum_near", "sum_rows"]
