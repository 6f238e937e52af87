r"""Building the lattice: the cells that points lie in, the parents of vertices, and who is whose neighbour.

All clouds, that is graphs and heads, are in one list; a key says which a vertex belongs to.  Coordinates in keys count from a
base that all levels share: a vertex :math:`v` of one level lies between :math:`\lfloor v/2 \rfloor` and
:math:`\lceil v/2 \rceil` of the next, which is true of numbers relative to a base as well if that is even on all levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from .keys import NO_KEY, Fields, indexed_bound, lower_bound
from .launch import block, cdiv, kernel, power_of_2, steps, tl, triton
from .locate import barycentric, fractions, ranks

ROW_BITS = tl.constexpr(16)
"""A row of a stencil has at most this many offsets, a bit each for those that are there; and its number has as many bits."""

MASK = tl.constexpr(2**16 - 1)


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
    keys = torch.empty(fields.words, count, dtype=torch.int64, device=points.device)
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
        tl.store(keys + to, tl.where(present, key, NO_KEY), mask=inside)
        to += count


def coarser_entries(deeper: int, dim: int) -> int:
    """How many entries a vertex has among those of the ``deeper`` next coarser levels."""
    return sum(min(2**step, dim + 1) for step in range(1, deeper + 1))


def coarser_keys(
    keys: Tensor, count: int, limit: Tensor | None, fields: Fields, clouds: int, levels: int, deeper: int, like: Tensor
) -> tuple[Tensor, Tensor]:
    r"""The vertices of all coarser levels between which each vertex lies.

    A vertex :math:`v` lies between :math:`\lfloor v/2 \rfloor` and :math:`\lceil v/2 \rceil` of the next level, halfway,
    and so on: :math:`2^j` steps :math:`\lfloor (v + s) / 2^j \rfloor` of level :math:`j` after its own count
    :math:`2^{-j}` each.  Where these are more, it has one entry for each corner of the simplex that it lies in.

    Args:
        keys (torch.Tensor): The keys of the vertices, a level and a cloud first, :math:`(W, E)`.
        count (int): How many vertices there are.
        limit (torch.Tensor, optional): How many of them are there after all, where only the device knows that.
        fields (Fields): Of the keys.
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
    out = torch.empty(words, count * entries, dtype=torch.int64, device=keys.device)
    weight = like.new_empty(count * entries)
    size = block(128, count)
    _coarser[(cdiv(count, size),)](
        keys, limit, fields.table, out, weight, count, stride, clouds, levels,
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
    keys, limit, fields, out, weight, count, stride, clouds, levels,
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
            here = tl.load(keys + a * stride.to(tl.int64) + v, mask=there, other=0) >> shift
            here = here & (((shift * 0 + 1) << tl.load(fields + 3 * (D + 1) + f)) - 1)
            number += tl.where(tl.load(fields + (D + 1) + f) == a, here, 0)
        found = found + (number,)  # type: ignore[assignment]  # noqa: RUF005
    prefix = found[0]  # type: ignore[misc]
    to = v * ENTRIES
    for step in tl.static_range(1, DEEPER + 1):
        above = prefix // clouds + step < levels
        place = ()
        for j in tl.static_range(D):
            place = place + (found[j + 1].to(tl.float64),)  # type: ignore[assignment]  # noqa: RUF005
        _, fraction = fractions(place, 0.5**step, D)
        rank = ranks(fraction, D)
        share = barycentric(fraction, rank, D)
        for corner in tl.static_range(2**step if 2**step < D + 1 else D + 1):
            place = ()
            for j in tl.static_range(D):
                if 2**step < D + 1:
                    moved = (found[j + 1] + corner) >> step
                else:
                    moved = (found[j + 1] >> step) + (rank[j] < corner).to(tl.int64)
                place = place + (moved,)  # type: ignore[assignment]  # noqa: RUF005
            w = prefix.to(tl.float64) * 0.0 + 0.5**step if 2**step < D + 1 else share[corner]
            present = there & above & (w > 0)
            at = to
            for a in tl.static_range(WORDS):
                key = _joined(prefix + step * clouds, place, fields, a, D)
                tl.store(out + at, tl.where(present, key, NO_KEY), mask=inside)
                at += count.to(tl.int64) * ENTRIES
            tl.store(weight + to, tl.where(present, w, 0.0).to(weight.dtype.element_ty), mask=inside)
            to += 1


@dataclass(frozen=True)
class Stencil:
    r"""The offsets of a stencil, grouped into rows of offsets one apart along the last coordinate; or several of them.

    Args:
        first (torch.Tensor): The first offset of each row, int64, :math:`(R, D)`.
        length (torch.Tensor): How many offsets it has, int32, :math:`(R,)`.
        weight (torch.Tensor): Their weights, on one level after the other, :math:`(KR, L)`.
        part (torch.Tensor): The first row of each stencil and the one behind the last, int64.
    """

    first: Tensor
    length: Tensor
    weight: Tensor
    part: Tensor

    @cached_property
    def rows(self) -> int:
        return self.first.size(0)

    @cached_property
    def levels(self) -> int:
        return self.weight.size(0) // self.rows

    @cached_property
    def longest(self) -> int:
        return self.weight.size(1)

    @cached_property
    def parts(self) -> int:
        return self.part.size(0) - 1

    def joined(self, others: list[Stencil]) -> Stencil:
        """This stencil and others as one."""
        every = [self, *others]
        longest = max(stencil.weight.size(1) for stencil in every)
        return Stencil(
            first=torch.cat([stencil.first for stencil in every]),
            length=torch.cat([stencil.length for stencil in every]),
            weight=torch.cat([pad(stencil.weight, (0, longest - stencil.weight.size(1))) for stencil in every]),
            part=torch.cumsum(torch.cat([self.part[:1], *(stencil.part.diff() for stencil in every)]), 0),
        )


@dataclass
class Neighbours:
    r"""Who is whose neighbour in a stencil.

    Args:
        number (torch.Tensor): How many rows with neighbours each vertex has, for each of several stencils, int32.
        found (torch.Tensor): For each of these the first vertex on it, the number of the row, and a bit for each offset that
            is there, packed, int64, :math:`(R, V)`; undefined behind the last.
    """

    number: Tensor
    found: Tensor

    def split(self, stencils: tuple[Stencil, ...]) -> list[Neighbours]:
        """The neighbours in each of several stencils that were joined."""
        parts = self.found.split([stencil.rows for stencil in stencils])
        return [Neighbours(*pair) for pair in zip(self.number, parts, strict=True)]


NEAR_ROWS = 8
"""Rows of a stencil that are sought together."""


def neighbours(
    keys: Tensor, count: int, limit: Tensor | None, index: Tensor | None, begin: int, end: int, stencil: Stencil, fields: Fields
) -> Neighbours:
    """The neighbours of the vertices from ``begin`` to ``end``, for several stencils one after the other, sought with an
    ``index`` if there is one.  There are ``count`` vertices, or as many as ``limit`` says on the device."""
    words, stride = keys.shape
    rows, dim, parts, number = stencil.rows, stencil.first.size(1), stencil.parts, end - begin
    out = Neighbours(
        torch.empty(parts, number, dtype=torch.int32, device=keys.device),
        torch.empty(rows, number, dtype=torch.int64, device=keys.device),
    )
    together = min(NEAR_ROWS, power_of_2(cdiv(rows, parts)))
    size = block(1024 // together, number)
    _neighbours[(cdiv(number, size), parts)](
        keys, limit, index, stencil.first, stencil.length, stencil.part, fields.table, out.number, out.found,
        begin, end, count, stride, steps(count), 0 if index is None else index.size(0) - 2,
        D=dim, LONGEST=stencil.longest, WORDS=words, ROWS=together, BLOCK=size,
    )  # fmt: skip
    return out


@kernel(do_not_specialize=["begin", "end", "vertices", "stride", "halvings", "buckets"])
def _neighbours(
    keys, limit, index, offset, length, part, fields, number, found, begin, end, vertices, stride, halvings, buckets,
    D: tl.constexpr, LONGEST: tl.constexpr, WORDS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    # Vertices side by side are sought side by side, so that threads read the same keys on their way.
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]
    stored = i < end - begin
    if limit is not None:
        vertices = tl.minimum(tl.load(limit), vertices)
    inside = stored & (begin + i < vertices)
    first_row = tl.load(part + tl.program_id(1))
    last_row = tl.load(part + tl.program_id(1) + 1)
    last_row = tl.where(begin + tl.program_id(0).to(tl.int64) * BLOCK < vertices, last_row, first_row)
    counted = tl.zeros([1, BLOCK], dtype=tl.int64)
    for start in range(first_row, last_row, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        real = row < last_row
        live = inside & real
        target = ()
        at = begin + i
        for a in tl.static_range(WORDS):
            step = row * 0
            for j in tl.static_range(D):
                of_word = tl.load(fields + (D + 1) + 1 + j) == a
                along = tl.load(offset + row * D + j, mask=real, other=0)
                step += tl.where(of_word, along << tl.load(fields + 2 * (D + 1) + 1 + j), 0)
            target = target + (tl.load(keys + at, mask=inside, other=0) + step,)  # type: ignore[assignment]  # noqa: RUF005
            at += stride
        none = target[0] * 0  # type: ignore[misc]
        if index is None:
            first = lower_bound(keys, stride, none, none + vertices, target, halvings, WORDS)
        else:
            first = indexed_bound(keys, index, buckets, target[0])  # type: ignore[misc]
        reach = tl.load(length + row, mask=real, other=0)
        bits = none
        place = first
        for q in tl.static_range(LONGEST):
            there = live & (place < vertices) & (q < reach)
            at = place
            for a in tl.static_range(WORDS):
                here = tl.load(keys + at, mask=there, other=NO_KEY)
                there = there & (here == (target[a] + q if a == WORDS - 1 else target[a]))
                at += stride
            bits = bits | (there.to(tl.int64) << q)
            place += there.to(tl.int64)
        some = (bits > 0).to(tl.int64)
        to = first_row + counted + tl.cumsum(some, axis=0) - 1
        packed = (((first << ROW_BITS) | (row - first_row)) << ROW_BITS) | bits
        tl.store(found + to * (end - begin) + i, packed, mask=some > 0)
        counted += tl.sum(some, axis=0, keep_dims=True)
    tl.store(number + tl.program_id(1) * (end - begin) + i, counted.to(tl.int32), mask=stored)
