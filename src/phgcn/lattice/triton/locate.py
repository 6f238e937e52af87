r"""Where points lie: the simplex of each at its cloud's finest level, the weights of its corners, and the self term."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .keys import Fields, no_key
from .launch import block, cdiv, kernel, tl, triton


@dataclass
class Simplices:
    """Where the points lie.

    Args:
        weight (torch.Tensor): Barycentric weights, :math:`(P, D+1)`.
        rank (torch.Tensor): The place of each Kuhn coordinate by descending fraction, four bits each, int64, :math:`(P,)`.
        own (torch.Tensor, optional): What is to be added to each point's weight on itself, :math:`(P,)`.
        slope (torch.Tensor, optional): The derivative of that by the Kuhn coordinates of level 0, :math:`(P, D)`.
    """

    weight: Tensor
    rank: Tensor
    own: Tensor | None
    slope: Tensor | None


def locate(clouds, kappa, constants, number: int, fields: Fields, own: bool, slopes: bool):
    r"""Finds the simplex of each point at its cloud's finest level.

    Args:
        clouds (Clouds): The points.
        kappa (torch.Tensor): The finest level of each cloud, int32.
        constants (Constants): Of the scheme.
        number (int): Which of several averaged lattices.
        fields (Fields): Of the keys.
        own, slopes (bool): Whether to compute self terms and their derivatives.

    Returns:
        The keys of all simplices' vertices, :math:`(W, P(D+1))`, and the :class:`Simplices`.
    """
    count, dim = clouds.position.shape
    device, dtype = clouds.position.device, clouds.position.dtype
    keys = fields.new_keys(count * (dim + 1))
    simplices = Simplices(
        weight=torch.empty(count, dim + 1, dtype=dtype, device=device),
        rank=torch.empty(count, dtype=torch.int64, device=device),
        own=torch.empty(count, dtype=dtype, device=device) if own else None,
        slope=torch.empty(count, dim, dtype=dtype, device=device) if slopes else None,
    )
    size = block(128, count)
    _locate[(cdiv(count, size),)](
        clouds.position, clouds.cloud, kappa, constants.matrix, constants.origin[number], constants.scale,
        constants.tables, constants.own, fields.table, keys, simplices.weight, simplices.rank, simplices.own, simplices.slope,
        count, clouds.number, constants.levels, constants.free,
        D=dim, WORDS=fields.words, OWN=own, SLOPES=slopes, BLOCK=size,
    )  # fmt: skip
    return keys, simplices


# Coordinates are tuples of D vectors over points: a thread has all of its point, and nothing is summed across threads.


@triton.jit
def _kuhn(points, i, inside, matrix, origin, D: tl.constexpr):
    """Kuhn coordinates of level 0 in double precision."""
    p = ()
    for k in tl.static_range(D):
        p = p + (tl.load(points + i * D + k, mask=inside, other=0.0).to(tl.float64),)  # type: ignore[assignment]  # noqa: RUF005
    w = ()
    for j in tl.static_range(D):
        x = p[0] * 0.0 + tl.load(origin + j)  # type: ignore[misc]
        for k in tl.static_range(D):
            x += p[k] * tl.load(matrix + j * D + k)
        w = w + (x,)  # type: ignore[assignment]  # noqa: RUF005
    return w


@triton.jit
def fractions(w, scale, D: tl.constexpr):
    """The integers below coordinates times a scale, and what exceeds them."""
    lowest, fraction = (), ()
    for j in tl.static_range(D):
        x = w[j] * scale
        lowest = lowest + (tl.floor(x),)  # type: ignore[assignment]  # noqa: RUF005
        fraction = fraction + (x - tl.floor(x),)  # type: ignore[assignment]  # noqa: RUF005
    return lowest, fraction


@triton.jit
def ranks(fraction, D: tl.constexpr):
    """The place of each fraction in descending order, ties in the order of the coordinates."""
    rank = ()
    for j in tl.static_range(D):
        ahead = (fraction[j] < 0).to(tl.int32)  # none
        for k in tl.static_range(D):
            if k < j:
                ahead += (fraction[k] >= fraction[j]).to(tl.int32)
            elif k > j:
                ahead += (fraction[k] > fraction[j]).to(tl.int32)
        rank = rank + (ahead,)  # type: ignore[assignment]  # noqa: RUF005
    return rank


@triton.jit
def barycentric(fraction, rank, D: tl.constexpr):
    """The weights 1 - f_1, f_1 - f_2, ..., f_D, from fractions in any order and their ranks."""
    weight = ()
    before = fraction[0] * 0.0 + 1.0
    for r in tl.static_range(D + 1):
        after = before * 0.0
        for k in tl.static_range(D):
            after += tl.where(rank[k] == r, fraction[k], 0.0)
        weight = weight + (before - after,)  # type: ignore[assignment]  # noqa: RUF005
        before = after
    return weight


@kernel(do_not_specialize=["count", "clouds"])
def _locate(
    points, cloud, kappa, matrix, origin, scale, tables, own_levels, fields, keys, weight, rank_out, own, slope,
    count, clouds, levels, free,
    D: tl.constexpr, WORDS: tl.constexpr, OWN: tl.constexpr, SLOPES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    mine = tl.load(cloud + i, mask=inside, other=-1).to(tl.int64)
    level = tl.load(kappa + mine, mask=mine >= 0, other=-1)
    present = level >= 0
    level = tl.where(present, level, 0)
    w = _kuhn(points, i, inside, matrix, origin, D)
    lowest, fraction = fractions(w, tl.load(scale + level), D)
    rank = ranks(fraction, D)
    b = barycentric(fraction, rank, D)
    for r in tl.static_range(D + 1):
        tl.store(weight + i * (D + 1) + r, b[r], mask=inside)
    packed = i * 0
    for j in tl.static_range(D):
        packed += rank[j].to(tl.int64) << (4 * j)
    tl.store(rank_out + i, packed, mask=inside)

    to = i * (D + 1)
    for a in tl.static_range(WORDS):
        key = i * 0
        if a == 0:
            key += (level.to(tl.int64) * clouds + mine) << tl.load(fields + 2 * (D + 1))
        for j in tl.static_range(D):
            of_word = tl.load(fields + (D + 1) + 1 + j) == a
            # The bases are those of level 0; free places are as many on all levels.
            place = lowest[j].to(tl.int64) - (tl.load(fields + 1 + j) >> level.to(tl.int64)) + free
            key += tl.where(of_word, place << tl.load(fields + 2 * (D + 1) + 1 + j), 0)
        for corner in tl.static_range(D + 1):
            step = i * 0
            for j in tl.static_range(D):
                of_word = tl.load(fields + (D + 1) + 1 + j) == a
                step += tl.where(of_word & (rank[j] < corner), (i * 0 + 1) << tl.load(fields + 2 * (D + 1) + 1 + j), 0)
            tl.store(keys + to + corner, tl.where(present, key + step, no_key(keys)), mask=inside)
        to += count * (D + 1)

    if OWN:
        given = w[0] * 0.0
        slopes = ()
        for _ in tl.static_range(D):
            slopes = slopes + (w[0] * 0.0,)  # type: ignore[assignment]  # noqa: RUF005
        for k in range(levels):
            active = k >= level
            given_here, slopes_here = _own_weight(w, tl.load(scale + k), tables + k * (D + 1), D)
            given += tl.where(active, given_here, 0.0)
            added = ()
            for j in tl.static_range(D):
                added = added + (slopes[j] + tl.where(active, slopes_here[j], 0.0),)  # type: ignore[assignment]  # noqa: RUF005
            slopes = added
        tl.store(own + i, tl.load(own_levels + level) - given, mask=inside)
        if SLOPES:
            for j in tl.static_range(D):
                tl.store(slope + i * D + j, slopes[j], mask=inside)


@triton.jit
def _own_weight(w, scale, table, D: tl.constexpr):
    """What one level gives a point of itself, and the derivative of that by its Kuhn coordinates."""
    _, fraction = fractions(w, scale, D)
    rank = ranks(fraction, D)
    b = barycentric(fraction, rank, D)
    given = w[0] * 0.0
    by_weight = ()
    for r in tl.static_range(D + 1):
        reached = w[0] * 0.0
        for m in tl.static_range(D + 1):
            reached += tl.load(table + (r - m if r > m else m - r)) * b[m]
        given += reached * b[r]
        by_weight = by_weight + (reached,)  # type: ignore[assignment]  # noqa: RUF005
    slopes = ()
    for j in tl.static_range(D):
        change = w[0] * 0.0
        for r in tl.static_range(D + 1):
            change += tl.where(rank[j] == r - 1, by_weight[r], 0.0) - tl.where(rank[j] == r, by_weight[r], 0.0)
        slopes = slopes + (2.0 * scale * change,)  # type: ignore[assignment]  # noqa: RUF005
    return given, slopes
