r"""Building the lattice: the cells that points lie in, the parents of vertices, and who is whose neighbour.

All clouds, that is graphs and heads, are in one list; a key says which a vertex belongs to.  Coordinates in keys count from a
base that all levels share: a vertex :math:`v` of one level lies between :math:`\lfloor v/2 \rfloor` and
:math:`\lceil v/2 \rceil` of the next, which is true of numbers relative to a base as well if that is even on all levels.  Some
places before it, as many on all levels, are free for neighbours that are sought.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .keys import Fields, indexed_bound, load_key, lower_bound, no_key
from .launch import block, cdiv, kernel, programs, steps, tl, triton
from .locate import barycentric, fractions, ranks

MOST_OFFSETS = 16
"""A row of a stencil has at most so many offsets, a bit each for those that are there."""


def cell_keys(points, cloud, kappa, level: int, scale, fields: Fields) -> Tensor:
    """The key of the cell that each point of the clouds of a level lies in, :math:`(W, P)`.

    Args:
        points (torch.Tensor): Positions, :math:`(P, D)`.
        cloud (torch.Tensor): The cloud of each, -1 for none.
        kappa (torch.Tensor): The finest level of each cloud.
        level (int): The level whose clouds are taken.
        scale (torch.Tensor): One over the side of the cells along each coordinate, float64; as many as count.
        fields (Fields): Of the keys.
    """
    count, dim = points.shape
    keys = fields.new_keys(count)
    size = block(256, count)
    _cell_keys[(cdiv(count, size),)](
        points, cloud, kappa, scale, fields.table, keys, count, level,
        D=dim, DIMS=len(scale), F=fields.table.size(1), WORDS=fields.words, BLOCK=size,
    )  # fmt: skip
    return keys


@kernel(do_not_specialize=["count", "level"])
def _cell_keys(
    points, cloud, kappa, scale, fields, keys, count, level,
    D: tl.constexpr, DIMS: tl.constexpr, F: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    mine = tl.load(cloud + i, mask=inside, other=-1).to(tl.int64)
    present = tl.load(kappa + mine, mask=mine >= 0, other=-2) == level
    to = i
    for a in tl.static_range(WORDS):
        key = mine * 0
        if a == 0:
            key += mine << tl.load(fields + 2 * F)
        for j in tl.static_range(DIMS):
            p = tl.load(points + i * D + j, mask=inside, other=0.0).to(tl.float64)
            place = tl.floor(p * tl.load(scale + j)).to(tl.int64) - tl.load(fields + 1 + j)
            of_word = tl.load(fields + F + 1 + j) == a
            key += tl.where(of_word, place << tl.load(fields + 2 * F + 1 + j), 0)
        tl.store(keys + to, tl.where(present, key, no_key(keys)), mask=inside)
        to += count


def coarser_entries(deeper: int, dim: int) -> int:
    """How many entries a vertex has among those of the ``deeper`` next coarser levels."""
    return sum(min(2**step, dim + 1) for step in range(1, deeper + 1))


def coarser_keys(
    keys: Tensor, count: int, limit: Tensor | None, fields: Fields, free: int, clouds: int, levels: int, deeper: int,
    like: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    r"""The vertices of all coarser levels between which each vertex lies.

    A vertex :math:`v` lies between :math:`\lfloor v/2 \rfloor` and :math:`\lceil v/2 \rceil` of the next level, halfway,
    and so on: :math:`2^j` steps :math:`\lfloor (v + s) / 2^j \rfloor` of level :math:`j` after its own count
    :math:`2^{-j}` each.  Where these are more, it has one entry for each corner of the simplex that it lies in.

    Args:
        keys (torch.Tensor): The keys of the vertices, a level and a cloud first, :math:`(W, E)`.
        count (int): How many vertices there are.
        limit (torch.Tensor, optional): How many of them are there after all, where only the device knows that.
        fields (Fields): Of the keys.
        free (int): The free places before the first that keys count, on all levels.
        clouds (int): How many clouds there are.
        levels (int): How many levels there are.
        deeper (int): How many levels the finest vertices have above them.
        like (torch.Tensor): Of the type that weights have.

    Returns:
        The keys of all entries, none for entries that count nothing, :math:`(W, VM)`, and their weights.
    """
    words, stride = keys.shape
    dim = fields.table.size(1) - 1
    entries = coarser_entries(deeper, dim)
    out = fields.new_keys(count * entries)
    weight = like.new_empty(count * entries)
    size = block(128, count)
    _coarser[(cdiv(count, size),)](
        keys, limit, fields.table, out, weight, count, stride, clouds, levels, free,
        D=dim, DEEPER=deeper, ENTRIES=entries, WORDS=words, BLOCK=size,
    )  # fmt: skip
    return out, weight


@triton.jit
def _joined(prefix, place, fields, a, D: tl.constexpr):
    """A word of the key of a level and cloud and a place."""
    word = tl.where(tl.load(fields + (D + 1)) == a, prefix << tl.load(fields + 2 * (D + 1)), 0)
    for j in tl.static_range(D):
        of_word = tl.load(fields + (D + 1) + 1 + j) == a
        word += tl.where(of_word, place[j] << tl.load(fields + 2 * (D + 1) + 1 + j), 0)
    return word


@kernel(do_not_specialize=["count", "stride", "clouds"])
def _coarser(
    keys, limit, fields, out, weight, count, stride, clouds, levels, free,
    D: tl.constexpr, DEEPER: tl.constexpr, ENTRIES: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    v = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = v < count
    there = inside
    if limit is not None:
        there = there & (v < tl.load(limit))
    found = ()
    for f in tl.static_range(D + 1):
        shift = tl.load(fields + 2 * (D + 1) + f)
        number = v * 0
        for a in tl.static_range(WORDS):
            here = load_key(keys, a * stride.to(tl.int64) + v, there) >> shift
            here = here & (((shift * 0 + 1) << tl.load(fields + 3 * (D + 1) + f)) - 1)
            number += tl.where(tl.load(fields + (D + 1) + f) == a, here, 0)
        found = found + (number,)  # type: ignore[assignment]  # noqa: RUF005
    prefix = found[0]  # type: ignore[misc]
    to = v * ENTRIES
    for step in tl.static_range(1, DEEPER + 1):
        above = prefix // clouds + step < levels
        place = ()
        for j in tl.static_range(D):
            place = place + ((found[j + 1] - free).to(tl.float64),)  # type: ignore[assignment]  # noqa: RUF005
        _, fraction = fractions(place, 0.5**step, D)
        rank = ranks(fraction, D)
        share = barycentric(fraction, rank, D)
        for corner in tl.static_range(2**step if 2**step < D + 1 else D + 1):
            place = ()
            for j in tl.static_range(D):
                if 2**step < D + 1:
                    moved = (found[j + 1] - free + corner) >> step
                else:
                    moved = ((found[j + 1] - free) >> step) + (rank[j] < corner).to(tl.int64)
                place = place + (moved + free,)  # type: ignore[assignment]  # noqa: RUF005
            w = prefix.to(tl.float64) * 0.0 + 0.5**step if 2**step < D + 1 else share[corner]
            present = there & above & (w > 0)
            at = to
            for a in tl.static_range(WORDS):
                key = _joined(prefix + step * clouds, place, fields, a, D)
                tl.store(out + at, tl.where(present, key, no_key(out)), mask=inside)
                at += count.to(tl.int64) * ENTRIES
            tl.store(weight + to, tl.where(present, w, 0.0).to(weight.dtype.element_ty), mask=inside)
            to += 1


@dataclass(frozen=True)
class Offsets:
    r"""The offsets of a stencil, or several, in rows of offsets one apart along the last coordinate.

    Args:
        first (torch.Tensor): The first offset of each row, int64, :math:`(R, D)`.
        length (torch.Tensor): How many offsets each row has, int32, :math:`(R,)`.
        longest (int): No row has more.
        bits (int): The bits that say which offsets of a row are there, behind the number of the first vertex; as many, where
            several stencils are sought together.
    """

    first: Tensor
    length: Tensor
    longest: int
    bits: int

    @cached_property
    def rows(self) -> int:
        return self.first.size(0)


@dataclass(frozen=True)
class Stencil:
    r"""A stencil.

    Args:
        offsets (Offsets): Its offsets; short rows come first.
        upto (torch.Tensor): How many rows have no more than 0, 1, ... offsets, int32, :math:`(L+1,)`.
        weight (torch.Tensor): The weights of the offsets, on one level after the other, :math:`(KR, L)`.
    """

    offsets: Offsets
    upto: Tensor
    weight: Tensor

    @cached_property
    def levels(self) -> int:
        return self.weight.size(0) // self.offsets.rows


MOST_IN_32_BITS = 2**31
"""What is found is packed into 32 bits if it is less."""

SEEKING, SEEKING_WARPS = 256, 2
"""Vertices that a program seeks the neighbours of, on one row of offsets, and its warps."""


def neighbours(
    keys: Tensor, count: int, limit: Tensor | None, index: Tensor | None, begin: int, end: int, offsets: Offsets,
    fields: Fields,
) -> Tensor:  # fmt: skip
    """The neighbours of the vertices from ``begin`` to ``end``, sought with an ``index`` if there is one.

    There are ``count`` vertices, or as many as ``limit`` says on the device.  Returns, for each row of offsets, the
    first vertex on it and a bit for each offset that is there, packed, in 32 bits if they fit, :math:`(R, V)`; undefined for
    vertices that are not there.
    """
    words, stride = keys.shape
    (rows, dim), number = offsets.first.shape, end - begin
    kind = torch.int32 if count << offsets.bits < MOST_IN_32_BITS else torch.int64
    found = torch.empty(rows, number, dtype=kind, device=keys.device)
    size = block(SEEKING, number)
    _neighbours[(rows, programs(cdiv(number, size), limit is not None, rows))](
        keys, limit, index, offsets.first, offsets.length, fields.table, found,
        begin, end, count, stride, steps(count), 0 if index is None else index.size(0) - 2,
        D=dim, LONGEST=offsets.longest, BITS=offsets.bits, WORDS=words, BLOCK=size, num_warps=SEEKING_WARPS,
    )  # fmt: skip
    return found


@kernel(do_not_specialize=["begin", "end", "vertices", "stride", "halvings", "buckets"])
def _neighbours(
    keys, limit, index, offset, length, fields, found, begin, end, vertices, stride, halvings, buckets,
    D: tl.constexpr, LONGEST: tl.constexpr, BITS: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    # Vertices side by side are sought side by side, so that threads read the same keys on their way.
    row = tl.program_id(0).to(tl.int64)
    reach = tl.load(length + row)
    apart = row * 0
    for j in tl.static_range(D):
        apart += tl.abs(tl.load(offset + row * D + j))
    if limit is not None:
        vertices = tl.minimum(tl.load(limit), vertices)
    number = tl.minimum(end, vertices) - begin
    for turn in range(tl.program_id(1), tl.cdiv(number, BLOCK), tl.num_programs(1)):
        i = turn * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
        inside = i < number
        target = ()
        at = begin + i
        for a in tl.static_range(WORDS):
            step = row * 0
            for j in tl.static_range(D):
                of_word = tl.load(fields + (D + 1) + 1 + j) == a
                step += tl.where(of_word, tl.load(offset + row * D + j) << tl.load(fields + 2 * (D + 1) + 1 + j), 0)
            target = target + (load_key(keys, at, inside) + step,)  # type: ignore[assignment]  # noqa: RUF005
            at += stride
        none = i * 0
        first = begin + i
        if apart > 0:  # else it is the vertex itself
            if index is None:
                first = lower_bound(keys, stride, none, none + vertices, target, halvings, WORDS)
            else:
                first = indexed_bound(keys, index, buckets, target[0])  # type: ignore[misc]
        bits = none
        place = first
        for q in tl.static_range(LONGEST):
            there = inside & (place < vertices) & (q < reach)
            at = place
            for a in tl.static_range(WORDS):
                here = load_key(keys, at, there)
                there = there & (here == (target[a] + q if a == WORDS - 1 else target[a]))
                at += stride
            bits = bits | (there.to(tl.int64) << q)
            place += there.to(tl.int64)
        tl.store(found + row * (end - begin) + i, (first << BITS) | bits, mask=inside)
