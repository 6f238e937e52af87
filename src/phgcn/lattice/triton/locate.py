r"""Locate: the simplex that each point lies in at its cloud's finest level, its barycentric weights, and the self term.

A program of the kernel holds the coordinates of its points as a tuple of D vectors: nothing is summed across threads.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...runtime.triton import block_size, cdiv, kernel, tl, triton
from .clouds import Clouds
from .constants import Constants
from .keys import BASE, SHIFT, WORD, KeyLayout, no_key, pack_word
from .plan import Simplices

NOT_FILTERED = tl.constexpr(-2)
"""The level of points whose graph is not filtered; -1 is that of clouds whose points all coincide."""


class LocateSizes(NamedTuple):
    """What locating is compiled for: coordinates, words of a key, rows of the self term, points of a program."""

    dim: int
    words: int
    self_rows: int
    block: int


def locate(
    clouds: Clouds, kappa: Tensor, constants: Constants, lattice: int, layout: KeyLayout, self_rows: int, level: Tensor
) -> tuple[Tensor, Simplices]:
    r"""Finds the simplex of each point at its cloud's finest level.

    Args:
        clouds (Clouds): The points.
        kappa (torch.Tensor): The finest level of each cloud, int32.
        constants (Constants): Of the scheme.
        lattice (int): Which of several averaged lattices.
        layout (KeyLayout): Of the keys.
        self_rows (int): The rows of the self term: 0 without, 1 for its weight, 1+D with its derivative.
        level (torch.Tensor): Takes the finest level of each point, int32, :math:`(P,)`.

    Returns:
        The keys of all corners, :math:`(W, P(D+1))`, and the simplices.
    """
    count, dim = clouds.position.shape
    make = clouds.position.new_empty
    keys = layout.new_keys(count * (dim + 1))
    cell, rank = make(count, dim, dtype=torch.int32), make(count, dtype=torch.int64)
    simplices = Simplices(make(count, dim + 1), cell, rank, make(self_rows, count))
    size = block_size(128, count)
    _locate[(cdiv(count, size),)](
        clouds.position, clouds.cloud, kappa, constants.lattice_map[lattice], layout.table, keys, simplices, level,
        count, clouds.count, constants.levels, constants.free, SIZES=LocateSizes(dim, layout.words, self_rows, size),
    )  # fmt: skip
    return keys, simplices


@kernel(do_not_specialize=["count", "clouds"])
def _locate(
    points, cloud, kappa, lattice_map, layout, keys, simplices, level_out, count, clouds, levels, free, SIZES: tl.constexpr
):
    D: tl.constexpr = SIZES.dim
    WORDS: tl.constexpr = SIZES.words
    i = tl.program_id(0).to(tl.int64) * SIZES.block + tl.arange(0, SIZES.block)
    inside = i < count
    of_cloud = tl.load(cloud + i, mask=inside, other=-1).to(tl.int64)
    level = tl.load(kappa + of_cloud, mask=of_cloud >= 0, other=NOT_FILTERED)
    tl.store(level_out + i, level, mask=inside)
    present = level >= 0
    level = tl.where(present, level, 0)
    w = _kuhn_coordinates(points, i, inside, lattice_map, D)
    lowest, fraction = fractions(w, level_scale(lattice_map, level, D), D)
    rank = ranks(fraction, D)
    b = barycentric(fraction, rank, D)
    for r in tl.static_range(D + 1):
        tl.store(simplices.weight + i * (D + 1) + r, b[r], mask=inside)
    packed_rank = i * 0
    place = ()
    for j in tl.static_range(D):
        packed_rank += rank[j].to(tl.int64) << (4 * j)
        tl.store(simplices.cell + i * D + j, lowest[j].to(tl.int32), mask=inside)
        # The bases are those of level 0; each level has as many free places.
        base = tl.load(layout + BASE * (D + 1) + 1 + j) >> level.to(tl.int64)
        place = place + (lowest[j].to(tl.int64) - base + free,)  # type: ignore[assignment]  # noqa: RUF005
    tl.store(simplices.rank + i, packed_rank, mask=inside)

    to = i * (D + 1)
    for a in tl.static_range(WORDS):
        key = pack_word(level.to(tl.int64) * clouds + of_cloud, place, layout, a, D, D + 1)
        for corner in tl.static_range(D + 1):
            step = i * 0
            for j in tl.static_range(D):
                moves = (tl.load(layout + WORD * (D + 1) + 1 + j) == a) & (rank[j] < corner)
                step += tl.where(moves, (i * 0 + 1) << tl.load(layout + SHIFT * (D + 1) + 1 + j), 0)
            tl.store(keys + to + corner, tl.where(present, key + step, no_key(keys)), mask=inside)
        to += count * (D + 1)

    if SIZES.self_rows > 0:
        lattice_weight = w[0] * 0.0
        slopes = ()
        for _ in tl.static_range(D):
            slopes = slopes + (w[0] * 0.0,)  # type: ignore[assignment]  # noqa: RUF005
        for k in range(levels):
            active = k >= level
            weight_here, slopes_here = _self_weight(w, lattice_map, k, D)
            lattice_weight += tl.where(active, weight_here, 0.0)
            added = ()
            for j in tl.static_range(D):
                added = added + (slopes[j] + tl.where(active, slopes_here[j], 0.0),)  # type: ignore[assignment]  # noqa: RUF005
            slopes = added
        target = tl.load(lattice_map + 1 + D * D + D + level * (D + 3) + 1)
        tl.store(simplices.self_term + i, target - lattice_weight, mask=inside)
        if SIZES.self_rows > 1:
            for j in tl.static_range(D):
                tl.store(simplices.self_term + (1 + j) * count.to(tl.int64) + i, slopes[j], mask=inside)


@triton.jit
def _kuhn_coordinates(points, i, inside, lattice_map, D: tl.constexpr):
    """Computes Kuhn coordinates of level 0, in double precision: a far offset of all points costs no accuracy."""
    p = ()
    for k in tl.static_range(D):
        p = p + (tl.load(points + i * D + k, mask=inside, other=0.0).to(tl.float64),)  # type: ignore[assignment]  # noqa: RUF005
    w = ()
    for j in tl.static_range(D):
        x = p[0] * 0.0 + tl.load(lattice_map + 1 + D * D + j)  # type: ignore[misc]
        for k in tl.static_range(D):
            x += p[k] * tl.load(lattice_map + 1 + j * D + k)
        w = w + (x,)  # type: ignore[assignment]  # noqa: RUF005
    return w


@triton.jit
def level_scale(lattice_map, level, D: tl.constexpr):
    """Loads the scale from Kuhn coordinates of level 0 to those of a level; see ``Constants.lattice_map``."""
    return tl.load(lattice_map + 1 + D * D + D + level * (D + 3))


@triton.jit
def fractions(w, scale, D: tl.constexpr):
    """Splits coordinates times a scale into the integers below and the fractions."""
    lowest, fraction = (), ()
    for j in tl.static_range(D):
        x = w[j] * scale
        lowest = lowest + (tl.floor(x),)  # type: ignore[assignment]  # noqa: RUF005
        fraction = fraction + (x - tl.floor(x),)  # type: ignore[assignment]  # noqa: RUF005
    return lowest, fraction


@triton.jit
def ranks(fraction, D: tl.constexpr):
    """Returns the place of each fraction in descending order, ties in the order of the coordinates."""
    rank = ()
    for j in tl.static_range(D):
        ahead = (fraction[j] < 0).to(tl.int32)  # 0
        for k in tl.static_range(D):
            if k < j:
                ahead += (fraction[k] >= fraction[j]).to(tl.int32)
            elif k > j:
                ahead += (fraction[k] > fraction[j]).to(tl.int32)
        rank = rank + (ahead,)  # type: ignore[assignment]  # noqa: RUF005
    return rank


@triton.jit
def barycentric(fraction, rank, D: tl.constexpr):
    """Computes the weights 1 - f_1, f_1 - f_2, ..., f_D, from fractions in any order and their ranks."""
    weight = ()
    before = fraction[0] * 0.0 + 1.0
    for r in tl.static_range(D + 1):
        after = before * 0.0
        for k in tl.static_range(D):
            after += tl.where(rank[k] == r, fraction[k], 0.0)
        weight = weight + (before - after,)  # type: ignore[assignment]  # noqa: RUF005
        before = after
    return weight


@triton.jit
def _self_weight(w, lattice_map, level, D: tl.constexpr):
    """Computes what a level gives a point of itself, and the derivative of that by its Kuhn coordinates of level 0."""
    scale = level_scale(lattice_map, level, D)
    table = lattice_map + 1 + D * D + D + level * (D + 3) + 2
    _, fraction = fractions(w, scale, D)
    rank = ranks(fraction, D)
    b = barycentric(fraction, rank, D)
    total = w[0] * 0.0
    by_weight = ()
    for r in tl.static_range(D + 1):
        reached = w[0] * 0.0
        for m in tl.static_range(D + 1):
            reached += tl.load(table + (r - m if r > m else m - r)) * b[m]
        total += reached * b[r]
        by_weight = by_weight + (reached,)  # type: ignore[assignment]  # noqa: RUF005
    slopes = ()
    for j in tl.static_range(D):
        change = w[0] * 0.0
        for r in tl.static_range(D + 1):
            change += tl.where(rank[j] == r - 1, by_weight[r], 0.0) - tl.where(rank[j] == r, by_weight[r], 0.0)
        slopes = slopes + (2.0 * scale * change,)  # type: ignore[assignment]  # noqa: RUF005
    return total, slopes
