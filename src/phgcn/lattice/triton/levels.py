r"""The finest level :math:`\kappa` of each cloud, as :func:`phgcn.lattice.levels.finest_level` chooses it, on the device.

All levels are counted at once: the cells of all of them are sorted in one list.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...runtime.triton import block_size, cdiv, kernel, search_steps, tl, triton
from ..levels import CANDIDATES, CELL_DIMENSIONS
from .bounds import widest_axes
from .clouds import FILTERED_START, QUERIES, Clouds
from .constants import Constants
from .keys import BASE, KeyLayout, load_key, lower_bound, no_key, pack_word, sort_keys
from .survey import Survey


def choose_levels(clouds: Clouds, max_pairs: int, constants: Constants, surveyed: Survey, layout: KeyLayout) -> None:
    """Writes the finest level of each cloud into ``surveyed.kappa``: the coarsest that has, as all finer ones, at most
    ``max_pairs`` pairs per query within its radius, and few enough for the near field to look at."""
    sums, candidates = sum_pairs(clouds, constants.pair_cells, surveyed.mean, layout), None
    if clouds.position.size(1) > CELL_DIMENSIONS:
        axes = widest_axes(clouds)[0]
        has_cells = torch.zeros_like(surveyed.mean).scatter_(1, axes, 1.0)
        candidates = sum_pairs(clouds, constants.pair_cells, surveyed.mean, layout, has_cells)
    size = block_size(64, clouds.count)
    _choose[(cdiv(clouds.count, size),)](
        sums, candidates, clouds.sizes.table, surveyed.kappa, clouds.graphs, clouds.heads, max_pairs, CANDIDATES,
        LEVELS=constants.levels, BLOCK=size,
    )  # fmt: skip


def sum_pairs(clouds: Clouds, pair_cells: Tensor, mean: Tensor, layout: KeyLayout, has_cells: Tensor | None = None) -> Tensor:
    """Counts pairs on all levels from 1 on, as :func:`phgcn.lattice.reference.levels.mean_pairs`.

    Args:
        clouds (Clouds): The points.
        pair_cells (torch.Tensor): Per level, the side of the cells that count pairs, float64.
        mean (torch.Tensor): The mean of each cloud, float64, :math:`(clouds, D)`.
        layout (KeyLayout): Of the keys of cells.
        has_cells (torch.Tensor, optional): 1 for the coordinates of each cloud that cells are laid over, else 0, float64,
            :math:`(clouds, D)`. (default: :obj:`None`, all)

    Returns:
        The prefix sums of the pairs of all points, sorted by level and cloud; integers, so that differences are exact.
    """
    count, dim = clouds.position.shape
    levels, to_itself = len(pair_cells) - 1, clouds.to_itself
    keys = layout.new_keys(levels * count)
    size = block_size(256, count)
    _pack_cells[(cdiv(count, size), levels)](
        clouds.position, clouds.cloud, mean, pair_cells, has_cells, layout.table, keys, count, clouds.sources, clouds.count,
        D=dim, TO_ITSELF=to_itself, WORDS=layout.words, BLOCK=size,
    )  # fmt: skip
    keys, _ = sort_keys(keys)
    entries = keys.size(1)
    pairs = torch.empty(entries, dtype=torch.int64, device=keys.device)
    size = block_size(256, entries)
    _count_pairs[(cdiv(entries, size),)](
        keys, pairs, entries, search_steps(entries), TO_ITSELF=to_itself, WORDS=layout.words, BLOCK=size
    )
    return torch.cumsum(pairs, 0)


@kernel(do_not_specialize=["count", "sources", "clouds"])
def _pack_cells(
    points, cloud, mean, pair_cells, has_cells, layout, keys, count, sources, clouds,
    D: tl.constexpr, TO_ITSELF: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Packs the key of the cell that each point lies in on one level; in cross-attention the lowest bit marks queries."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    level = tl.program_id(1).to(tl.int64)
    inside = i < count
    of_cloud = tl.load(cloud + i, mask=inside, other=-1).to(tl.int64)
    present = of_cloud >= 0
    side = tl.load(pair_cells + level + 1)
    place = ()
    for j in tl.static_range(D):
        p = tl.load(points + i * D + j, mask=present, other=0.0).to(tl.float64)
        p -= tl.load(mean + of_cloud * D + j, mask=present, other=0.0)
        if has_cells is not None:
            p *= tl.load(has_cells + of_cloud * D + j, mask=present, other=0.0)
        cell = tl.floor(p / side + 0.5).to(tl.int64) - tl.load(layout + BASE * (D + 1) + 1 + j)
        place = place + (cell,)  # type: ignore[assignment]  # noqa: RUF005
    to = level * count + i
    for a in tl.static_range(WORDS):
        key = pack_word(level * clouds + of_cloud, place, layout, a, D, D + 1)
        if TO_ITSELF == 0 and a == WORDS - 1:
            key = 2 * key + (i >= sources).to(tl.int64)
        tl.store(keys + to, tl.where(present, key, no_key(keys)), mask=inside)
        to += count * tl.num_programs(1)


@kernel(do_not_specialize=["entries", "steps"])
def _count_pairs(keys, pairs, entries, steps, TO_ITSELF: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """Counts the pairs that each sorted point adds: the last one of a cell all pairs of that cell, or, in cross-attention, a
    query those with the sources of its cell."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = e < entries
    key = ()
    at = e
    ends = e + 1 == entries
    for _ in tl.static_range(WORDS - 1):
        word = load_key(keys, at, inside)
        ends = ends | (load_key(keys, at + 1, e + 1 < entries) != word)
        key = key + (word,)  # type: ignore[assignment]  # noqa: RUF005
        at += entries
    last = load_key(keys, at, inside)
    if TO_ITSELF:  # most points end no cell, and search for nothing
        ends = ends | (load_key(keys, at + 1, e + 1 < entries) != last)
        first = lower_bound(keys, entries, e * 0, tl.where(ends, e, 0), key + (last,), steps, WORDS)  # noqa: RUF005
        count = tl.where(ends, (e - first) * (e - first + 1), 0)
    else:
        first = lower_bound(keys, entries, e * 0, e, key + ((last >> 1) << 1,), steps, WORDS)  # noqa: RUF005
        end = lower_bound(keys, entries, e * 0, e, key + (last,), steps, WORDS)  # noqa: RUF005
        count = tl.where((last & 1) == 1, end - first, 0)
    tl.store(pairs + e, tl.where(last != no_key(keys), count, 0), mask=inside)


@triton.jit
def _mean_pairs(sums, begin, size, queries, mask):
    """Returns the mean over the queries of pairs whose prefix sums are given."""
    upto = tl.load(sums + begin + size - 1, mask=mask & (size > 0), other=0)
    before = tl.load(sums + begin - 1, mask=mask & (size > 0) & (begin > 0), other=0)
    return (upto - before).to(tl.float64) / tl.maximum(queries, 1).to(tl.float64)


@kernel(do_not_specialize=["graphs", "max_pairs", "max_candidates"])
def _choose(
    sums, candidates, table, kappa, graphs, heads, max_pairs, max_candidates, LEVELS: tl.constexpr, BLOCK: tl.constexpr
):
    """Chooses the finest level of each cloud, from prefix sums of pairs sorted by level and cloud; not of those whose points
    coincide, which have level -1."""
    cloud = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = cloud < graphs * heads
    graph = cloud // heads
    start = tl.load(table + FILTERED_START * (graphs + 1) + graph, mask=inside, other=0)
    size = (tl.load(table + FILTERED_START * (graphs + 1) + graph + 1, mask=inside, other=0) - start) // heads
    queries = tl.load(table + QUERIES * (graphs + 1) + graph, mask=inside, other=1)
    begin = start + cloud % heads * size
    few = inside & (tl.load(kappa + cloud, mask=inside, other=-1) >= 0)
    level = tl.zeros([BLOCK], dtype=tl.int32)
    for _ in range(1, LEVELS):
        few = few & (_mean_pairs(sums, begin, size, queries, few) <= max_pairs)
        if candidates is not None:
            few = few & (_mean_pairs(candidates, begin, size, queries, few) <= max_candidates)
        level += few.to(tl.int32)
        begin += tl.load(table + FILTERED_START * (graphs + 1) + graphs)
    tl.store(kappa + cloud, level, mask=inside & (level > 0))
