r"""The finest level :math:`\kappa` of each cloud, as :func:`phgcn.lattice.groups.finest_level` chooses it, on the device.

All levels are counted at once: the cells of all of them are sorted in one list.
"""

from __future__ import annotations

import torch

from ..scheme import MultiScale
from .clouds import PRESENT, QUERIES, Clouds
from .constants import Constants
from .keys import load_key, lower_bound, no_key, sort_keys
from .launch import block, cdiv, kernel, steps, tl
from .survey import Survey


def choose_levels(clouds: Clouds, scheme: MultiScale, constants: Constants, found: Survey) -> None:
    """Counts, for each level, about how many keys a query has within its radius, and writes the levels into ``found``.

    See :func:`phgcn.lattice.reference.mean_pairs`.  Numbers of pairs are integers, so that their sums are exact.
    """
    (count, dim), device, fields = clouds.position.shape, clouds.position.device, found.fields[1]
    levels, itself = constants.levels - 1, clouds.begin == 0
    keys = fields.new_keys(levels * count)
    size = block(256, count)
    _cells[(cdiv(count, size), levels)](
        clouds.position, clouds.cloud, found.mean, constants.sides, fields.table, keys, count, clouds.keys, clouds.number,
        D=dim, ITSELF=itself, WORDS=fields.words, BLOCK=size,
    )  # fmt: skip
    keys, _ = sort_keys(keys)
    entries = keys.size(1)
    pairs = torch.empty(entries, dtype=torch.int64, device=device)
    size = block(256, entries)
    _pairs[(cdiv(entries, size),)](keys, pairs, entries, steps(entries), ITSELF=itself, WORDS=fields.words, BLOCK=size)
    size = block(64, clouds.number)
    _choose[(cdiv(clouds.number, size),)](
        torch.cumsum(pairs, 0), clouds.sizes.table, found.alike, found.kappa, clouds.graphs, clouds.heads, levels, scheme.pairs,
        BLOCK=size,
    )  # fmt: skip


@kernel(do_not_specialize=["count", "keys", "clouds"])
def _cells(
    points, cloud, mean, sides, fields, out, count, keys, clouds,
    D: tl.constexpr, ITSELF: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The key of the cell that each point lies in on one level; where others ask, the lowest bit says who does."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    level = tl.program_id(1).to(tl.int64)
    inside = i < count
    mine = tl.load(cloud + i, mask=inside, other=-1).to(tl.int64)
    present = mine >= 0
    side = tl.load(sides + level + 1)
    to = level * count + i
    for a in tl.static_range(WORDS):
        key = mine * 0
        if a == 0:
            key += (level * clouds + mine) << tl.load(fields + 2 * (D + 1))
        for j in tl.static_range(D):
            p = tl.load(points + i * D + j, mask=present, other=0.0).to(tl.float64)
            p -= tl.load(mean + mine * D + j, mask=present, other=0.0)
            place = tl.floor(p / side + 0.5).to(tl.int64) - tl.load(fields + 1 + j)
            of_word = tl.load(fields + (D + 1) + 1 + j) == a
            key += tl.where(of_word, place << tl.load(fields + 2 * (D + 1) + 1 + j), 0)
        if ITSELF == 0 and a == WORDS - 1:
            key = 2 * key + (i >= keys).to(tl.int64)
        tl.store(out + to, tl.where(present, key, no_key(out)), mask=inside)
        to += count * tl.num_programs(1)


@kernel(do_not_specialize=["entries", "halvings"])
def _pairs(keys, pairs, entries, halvings, ITSELF: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """The pairs that each sorted point adds: with those before it in its cell, twice, or with the keys there if it asks."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = e < entries
    key = ()
    at = e
    for _ in tl.static_range(WORDS - 1):
        key = key + (load_key(keys, at, inside),)  # type: ignore[assignment]  # noqa: RUF005
        at += entries
    last = load_key(keys, at, inside)
    if ITSELF:
        first = lower_bound(keys, entries, e * 0, e, key + (last,), halvings, WORDS)  # noqa: RUF005
        found = 2 * (e - first)
    else:
        first = lower_bound(keys, entries, e * 0, e, key + ((last >> 1) << 1,), halvings, WORDS)  # noqa: RUF005
        behind = lower_bound(keys, entries, e * 0, e, key + (last,), halvings, WORDS)  # noqa: RUF005
        found = tl.where((last & 1) == 1, behind - first, 0)
    tl.store(pairs + e, tl.where(last != no_key(keys), found, 0), mask=inside)


@kernel(do_not_specialize=["graphs", "most"])
def _choose(sums, table, alike, kappa, graphs, heads, levels, most, BLOCK: tl.constexpr):
    """The finest level of each cloud: the coarsest whose near field, and those of finer ones, have few enough pairs."""
    cloud = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = cloud < graphs * heads
    graph = cloud // heads
    start = tl.load(table + PRESENT * (graphs + 1) + graph, mask=inside, other=0)
    size = (tl.load(table + PRESENT * (graphs + 1) + graph + 1, mask=inside, other=0) - start) // heads
    queries = tl.load(table + QUERIES * (graphs + 1) + graph, mask=inside, other=1)
    begin = start + cloud % heads * size
    still = inside
    level = tl.zeros([BLOCK], dtype=tl.int32)
    for _ in range(levels):
        upto = tl.load(sums + begin + size - 1, mask=inside & (size > 0), other=0)
        before = tl.load(sums + begin - 1, mask=inside & (size > 0) & (begin > 0), other=0)
        mean = (upto - before).to(tl.float64) / tl.maximum(queries, 1).to(tl.float64)
        still = still & (mean <= most)
        level += still.to(tl.int32)
        begin += tl.load(table + PRESENT * (graphs + 1) + graphs)
    same = tl.load(alike + cloud, mask=inside, other=0)
    tl.store(kappa + cloud, tl.where(same > 0, -1, level), mask=inside)
