r"""Building the lattice: where points lie, the parents of vertices, and who is whose neighbour.

All clouds, that is graphs and heads, are in one list; a key says which a vertex belongs to.  Coordinates in keys count from a
base that all levels share: a vertex :math:`v` of one level lies between :math:`\lfloor v/2 \rfloor` and
:math:`\lceil v/2 \rceil` of the next, which is true of numbers relative to a base as well if that is even on all levels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .keys import NO_KEY, Fields, lower_bound
from .launch import block, cdiv, power_of_2, steps, tl, triton

MASK_BITS = tl.constexpr(16)
"""A row of a stencil has at most this many offsets: a bit each for those that are there."""

MASK = tl.constexpr(2**16 - 1)


@dataclass
class Simplices:
    """Where the points lie.

    Args:
        weight (torch.Tensor): Barycentric weights, :math:`(P, D+1)`.
        rank (torch.Tensor): The place of each Kuhn coordinate by descending fraction, four bits each, int64, :math:`(P,)`.
        own (torch.Tensor): What is to be added to each point's weight on itself, :math:`(P,)`, or empty.
        slope (torch.Tensor): The derivative of that by the Kuhn coordinates of level 0, :math:`(P, D)`, or empty.
    """

    weight: Tensor
    rank: Tensor
    own: Tensor
    slope: Tensor


def locate(points, cloud, kappa, constants, number: int, fields: Fields, own: bool, slopes: bool):
    r"""Finds the simplex of each point at its cloud's finest level.

    Args:
        points (torch.Tensor): Positions, :math:`(P, D)`.
        cloud (torch.Tensor): The cloud of each, -1 for none, int32, :math:`(P,)`.
        kappa (torch.Tensor): The finest level of each cloud, int32.
        constants (Constants): Of the scheme.
        number (int): Which of several averaged lattices.
        fields (Fields): Of the keys.
        own, slopes (bool): Whether to compute self terms and their derivatives.

    Returns:
        The keys of all simplices' vertices, :math:`(W, P(D+1))`, and the :class:`Simplices`.
    """
    count, dim = points.shape
    device, dtype = points.device, points.dtype
    keys = torch.empty(fields.words, count * (dim + 1), dtype=torch.int64, device=device)
    simplices = Simplices(
        weight=torch.empty(count, dim + 1, dtype=dtype, device=device),
        rank=torch.empty(count, dtype=torch.int64, device=device),
        own=torch.empty(count if own else 0, dtype=dtype, device=device),
        slope=torch.empty(count if slopes else 0, dim, dtype=dtype, device=device),
    )
    size = block(64 if dim <= 4 else 32 if dim <= 8 else 8, count)
    size = min(size, 256) if dim > 4 else size
    _locate[(cdiv(count, size),)](
        points, cloud, kappa, constants.matrix, constants.origin[number], constants.scale, constants.tables, constants.own,
        fields.table, keys, simplices.weight, simplices.rank, simplices.own, simplices.slope,
        count, len(kappa), constants.levels,
        D=dim, DP=power_of_2(dim), RP=power_of_2(dim + 1), WORDS=fields.words, OWN=own, SLOPES=slopes, BLOCK=size,
    )  # fmt: skip
    return keys, simplices


@triton.jit
def _kuhn(points, i, inside, matrix, origin, D: tl.constexpr, DP: tl.constexpr):
    """Kuhn coordinates of level 0 in double precision, (BLOCK, DP)."""
    j = tl.arange(0, DP)
    w = tl.load(origin + j, mask=j < D, other=0.0)[None, :]
    for k in tl.static_range(D):
        p = tl.load(points + i * D + k, mask=inside, other=0.0).to(tl.float64)
        column = tl.load(matrix + j * D + k, mask=j < D, other=0.0)
        w = w + p[:, None] * column[None, :]
    return w


@triton.jit
def _ranks(fraction, DP: tl.constexpr):
    """The place of each fraction in descending order, ties in the order of the coordinates."""
    j = tl.arange(0, DP)
    here, there = fraction[:, :, None], fraction[:, None, :]
    ahead = (there > here) | ((there == here) & (j[None, None, :] < j[None, :, None]))
    return tl.sum(ahead.to(tl.int32), axis=2)


@triton.jit
def _barycentric(fraction, rank, D: tl.constexpr, DP: tl.constexpr, RP: tl.constexpr):
    """The weights 1 - f_1, f_1 - f_2, ..., f_D, (BLOCK, RP), from fractions in any order and their ranks."""
    j, r = tl.arange(0, DP), tl.arange(0, RP)
    real = tl.where((j < D)[None, :], fraction, 0.0)[:, :, None]
    after = tl.sum(tl.where(rank[:, :, None] == r[None, None, :], real, 0.0), axis=1)
    before = tl.sum(tl.where(rank[:, :, None] == r[None, None, :] - 1, real, 0.0), axis=1)
    before = tl.where((r == 0)[None, :], 1.0, before)
    return tl.where((r <= D)[None, :], before - after, 0.0)


@triton.jit(do_not_specialize=["count", "clouds"])
def _locate(
    points, cloud, kappa, matrix, origin, scale, tables, own_levels, fields, keys, weight, rank_out, own, slope,
    count, clouds, levels,
    D: tl.constexpr, DP: tl.constexpr, RP: tl.constexpr, WORDS: tl.constexpr, OWN: tl.constexpr, SLOPES: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    j, r = tl.arange(0, DP), tl.arange(0, RP)
    real = (j < D)[None, :]
    mine = tl.load(cloud + i, mask=inside, other=-1).to(tl.int64)
    level = tl.load(kappa + mine, mask=mine >= 0, other=-1)
    present = level >= 0
    level = tl.where(present, level, 0)
    w = _kuhn(points, i, inside, matrix, origin, D, DP)
    x = w * tl.load(scale + level)[:, None]
    lowest = tl.floor(x)
    rank = _ranks(tl.where(real, x - lowest, -1.0), DP)
    b = _barycentric(x - lowest, rank, D, DP, RP)
    tl.store(weight + i[:, None] * (D + 1) + r[None, :], b, mask=inside[:, None] & (r <= D)[None, :])
    packed = tl.sum(tl.where(real, rank.to(tl.int64) << (4 * j)[None, :], 0), axis=1)
    tl.store(rank_out + i, packed, mask=inside)

    base = tl.load(fields + 1 + j, mask=j < D, other=0)
    word = tl.load(fields + (D + 1) + 1 + j, mask=j < D, other=-1)
    shift = tl.load(fields + 2 * (D + 1) + 1 + j, mask=j < D, other=0)
    # The bases are those of level 0.
    place = lowest.to(tl.int64) - (base[None, :] >> level[:, None].to(tl.int64))
    to = i * (D + 1)
    for a in tl.static_range(WORDS):
        of_word = (word == a)[None, :]
        key = tl.sum(tl.where(of_word, place << shift[None, :], 0), axis=1)
        if a == 0:
            key += (level.to(tl.int64) * clouds + mine) << tl.load(fields + 2 * (D + 1))
        for corner in tl.static_range(D + 1):
            step = tl.sum(tl.where(of_word & (rank < corner), (shift * 0 + 1)[None, :] << shift[None, :], 0), axis=1)
            tl.store(keys + to + corner, tl.where(present, key + step, NO_KEY), mask=inside)
        to += count * (D + 1)

    if OWN or SLOPES:
        given = tl.sum(w * 0.0, axis=1)
        slopes = w * 0.0
        for k in range(levels):
            active = (k >= level)[:, None]
            x = w * tl.load(scale + k)
            x = x - tl.floor(x)
            rank = _ranks(tl.where(real, x, -1.0), DP)
            b = _barycentric(x, rank, D, DP, RP)
            # Threads may hold the same number twice. Sums in which all terms but one are 0 are the same for all of them,
            # whatever their order; others are not, to the last bit.
            by_weight = b * 0.0
            for m in tl.static_range(D + 1):
                table = tl.load(tables + k * (D + 1) + tl.abs(r - m), mask=tl.abs(r - m) <= D, other=0.0)
                by_weight += table[None, :] * tl.sum(tl.where((r == m)[None, :], b, 0.0), axis=1)[:, None]
            for m in tl.static_range(D + 1):
                given += tl.sum(tl.where(active & (r == m)[None, :], by_weight * b, 0.0), axis=1)
            if SLOPES:
                at = rank[:, :, None] - r[None, None, :]
                change = tl.where(at == -1, 1.0, 0.0) - tl.where(at == 0, 1.0, 0.0)
                by_coordinate = tl.sum(change * by_weight[:, None, :], axis=2)
                slopes += tl.where(active & real, 2.0 * tl.load(scale + k) * by_coordinate, 0.0)
        if OWN:
            tl.store(own + i, tl.load(own_levels + level) - given, mask=inside)
        if SLOPES:
            tl.store(slope + i[:, None] * D + j[None, :], slopes, mask=inside[:, None] & real)


def cell_keys(points, cloud, kappa, level: int, corner, scale, fields: Fields) -> Tensor:
    """The key of the cell that each point of the clouds of a level lies in, :math:`(W, P)`.

    Args:
        points (torch.Tensor): Positions, :math:`(P, D)`.
        cloud (torch.Tensor): The cloud of each, -1 for none.
        kappa (torch.Tensor): The finest level of each cloud.
        level (int): The level whose clouds are taken, or -1 for all.
        corner (torch.Tensor): A corner of some cell of each cloud, float64, :math:`(clouds, D)`.
        scale (torch.Tensor): One over the side of the cells along each coordinate, float64; as many as count.
        fields (Fields): Of the keys.
    """
    count, dim = points.shape
    keys = torch.empty(fields.words, count, dtype=torch.int64, device=points.device)
    size = block(256, count)
    _cell_keys[(cdiv(count, size),)](
        points, cloud, kappa, corner, scale, fields.table, keys, count, level,
        D=dim, DIMS=len(scale), F=fields.table.size(1), WORDS=fields.words, BLOCK=size,
    )  # fmt: skip
    return keys


@triton.jit(do_not_specialize=["count", "level"])
def _cell_keys(
    points, cloud, kappa, corner, scale, fields, keys, count, level,
    D: tl.constexpr, DIMS: tl.constexpr, F: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    mine = tl.load(cloud + i, mask=inside, other=-1).to(tl.int64)
    present = mine >= 0
    present = present & ((level < 0) | (tl.load(kappa + mine, mask=present, other=-2) == level))
    to = i
    for a in tl.static_range(WORDS):
        key = mine * 0
        if a == 0:
            key += mine << tl.load(fields + 2 * F)
        for j in tl.static_range(DIMS):
            p = tl.load(points + i * D + j, mask=inside, other=0.0).to(tl.float64)
            p -= tl.load(corner + mine * D + j, mask=present, other=0.0)
            place = tl.floor(p * tl.load(scale + j)).to(tl.int64) - tl.load(fields + 1 + j)
            of_word = tl.load(fields + F + 1 + j) == a
            key += tl.where(of_word, place << tl.load(fields + 2 * F + 1 + j), 0)
        tl.store(keys + to, tl.where(present, key, NO_KEY), mask=inside)
        to += count


def parent_keys(keys: Tensor, count: Tensor, fields: Fields) -> Tensor:
    """The keys of the two vertices of the next level that each vertex lies between, entries 2v and 2v+1."""
    words, bound = keys.shape
    out = torch.empty(words, 2 * bound, dtype=torch.int64, device=keys.device)
    size = block(256, bound)
    _parents[(cdiv(bound, size),)](keys, count, fields.table, out, bound, F=fields.table.size(1), WORDS=words, BLOCK=size)
    return out


@triton.jit(do_not_specialize=["bound"])
def _parents(keys, count, fields, out, bound, F: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    v = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = v < bound
    present = v < tl.load(count)
    at, to = v, 2 * v
    for a in tl.static_range(WORDS):
        key = tl.load(keys + at, mask=inside & present, other=0)
        for half in tl.static_range(2):
            parent = key * 0
            for f in tl.static_range(F):
                of_word = tl.load(fields + F + f) == a
                shift = tl.load(fields + 2 * F + f)
                u = (key >> shift) & (((shift * 0 + 1) << tl.load(fields + 3 * F + f)) - 1)
                if f > 0:  # the cloud has no parents
                    u = (u + half) >> 1
                parent += tl.where(of_word, u << shift, 0)
            tl.store(out + to + half, tl.where(present, parent, NO_KEY), mask=inside)
        at += bound
        to += 2 * bound


@dataclass(frozen=True)
class Stencil:
    r"""The offsets of a stencil, grouped into rows of offsets one apart along the last coordinate.

    Args:
        first (torch.Tensor): The first offset of each row, int64, :math:`(R, D)`.
        length (torch.Tensor): How many offsets it has, int32, :math:`(R,)`.
        weight (torch.Tensor): Their weights, :math:`(R, L)`.
    """

    first: Tensor
    length: Tensor
    weight: Tensor


def neighbours(keys: Tensor, count: Tensor, begin: int, end: int, stencil: Stencil, fields: Fields) -> Tensor:
    r"""For the vertices from ``begin`` to ``end`` and each row of a stencil, the first vertex on the row and a bit for each
    offset that is there, packed, int64, :math:`(R, \text{end} - \text{begin})`."""
    words, bound = keys.shape
    number, dim = stencil.first.shape
    out = torch.empty(number, end - begin, dtype=torch.int64, device=keys.device)
    size = block(128, number * (end - begin))
    _neighbours[(cdiv(number * (end - begin), size),)](
        keys, count, stencil.first, stencil.length, fields.table, out, begin, end, bound, number, steps(bound),
        D=dim, LONGEST=stencil.weight.size(1), WORDS=words, BLOCK=size,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["begin", "end", "bound", "halvings"])
def _neighbours(
    keys, count, offset, length, fields, out, begin, end, bound, rows, halvings,
    D: tl.constexpr, LONGEST: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row = pair // (end - begin)
    v = begin + pair % (end - begin)
    vertices = tl.load(count).to(tl.int64)
    inside = row < rows
    present = inside & (v < vertices)
    if tl.max(present.to(tl.int32)) == 0:
        return
    target = ()
    at = v
    for a in tl.static_range(WORDS):
        key = tl.load(keys + at, mask=present, other=0)
        for j in tl.static_range(D):
            of_word = tl.load(fields + (D + 1) + 1 + j) == a
            step = tl.load(offset + row * D + j, mask=inside, other=0)
            key += tl.where(of_word, step << tl.load(fields + 2 * (D + 1) + 1 + j), 0)
        target = target + (key,)  # type: ignore[assignment]  # noqa: RUF005
        at += bound
    first = lower_bound(keys, bound, v * 0, v * 0 + vertices, target, halvings, WORDS)
    reach = tl.load(length + row, mask=inside, other=0)
    bits = v * 0
    place = first
    for q in tl.static_range(LONGEST):
        there = present & (place < vertices) & (q < reach)
        found = there
        at = place
        for a in tl.static_range(WORDS):
            here = tl.load(keys + at, mask=there, other=NO_KEY)
            at += bound
            found = found & (here == (target[a] + q if a == WORDS - 1 else target[a]))
        bits = bits | (found.to(tl.int64) << q)
        place += found.to(tl.int64)
    tl.store(out + pair, (first << MASK_BITS) | bits, mask=inside)
