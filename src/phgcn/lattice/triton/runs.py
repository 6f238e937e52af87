r"""Runs: entries sorted by key, those with equal keys side by side.  The entries of a run are one vertex."""

from __future__ import annotations

import torch
from torch import Tensor

from ...runtime.triton import block_size, cdiv, kernel, tl, triton
from .keys import SHIFT, KeyLayout, load_key, no_key, sort_keys
from .plan import Corners

LONG_RUN = 32
"""Longer runs are summed in pieces of this many entries, so that no program has much more to do than others."""

SHORT_BLOCK, LONG_BLOCK, MANY_ENTRIES = 1024, 2048, 8_000_000
"""Sorted entries that one program takes, of few and of many; each program adds up the counts of all before it."""


def find_runs(keys: Tensor, layout: KeyLayout, facts: Tensor, levels: int, clouds: int) -> tuple[Corners, Tensor]:
    r"""Sorts entries by key and lists the runs of equal keys; entries without a key are in none.

    Args:
        keys (torch.Tensor): The keys of the entries, :math:`(W, E)`; their prefix is ``level * clouds + cloud``.
        layout (KeyLayout): Of the keys.
        facts (torch.Tensor): Takes how many runs there are before each level and behind the last, and whether a run has more
            than ``LONG_RUN`` entries, int64, :math:`(levels + 2,)`.
        levels (int): How many levels there are.
        clouds (int): How many clouds there are.

    Returns:
        The sorted entries and their runs, and the key of each run, sorted, :math:`(W, E)`; undefined behind the last.
    """
    ordered, order = sort_keys(keys)
    words, entries = ordered.shape
    device, size = keys.device, block_size(LONG_BLOCK if entries > MANY_ENTRIES else SHORT_BLOCK, entries)
    programs = cdiv(entries, size)
    counts = torch.empty(2, programs, dtype=torch.int32, device=device)
    _count_runs[(programs,)](ordered, counts, entries, programs, LONG_RUN=LONG_RUN, WORDS=words, BLOCK=size)
    corners = Corners(*(torch.empty(size, dtype=torch.int32, device=device) for size in (entries, entries, entries + 1)))
    run_keys = torch.empty_like(ordered)
    _list_runs[(programs,)](
        ordered, order, counts, layout.table, corners, run_keys, facts, entries, programs, clouds,
        F=layout.table.size(1), LEVELS=levels, WORDS=words, BLOCK=size,
    )  # fmt: skip
    return corners, run_keys


@triton.jit
def _load_sorted(keys, e, entries, WORDS: tl.constexpr):
    """Returns, for sorted places: whether they have a key, whether a run starts there, whether one ends there, the first word
    of their key, and that of the place before."""
    inside = e < entries
    present, starts, ends = e < 0, e == 0, e == entries - 1
    at, first, first_before = e, e * 0, e * 0
    for w in tl.static_range(WORDS):
        here = load_key(keys, at, inside)
        before = load_key(keys, at - 1, inside & (e > 0))
        after = load_key(keys, at + 1, e + 1 < entries)
        present = present | (here != no_key(keys))
        starts = starts | (here != before)
        ends = ends | (here != after)
        if w == 0:
            first, first_before = here, before
        at += entries
    return present, starts & present, ends & present, first, first_before


@kernel(do_not_specialize=["entries", "programs"])
def _count_runs(keys, counts, entries, programs, LONG_RUN: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """Counts the runs that start in each block, and notes whether a long one passes or ends there."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    present, starts, _, _, _ = _load_sorted(keys, e, entries, WORDS)
    long = present & (e >= LONG_RUN)
    at = e
    for _ in tl.static_range(WORDS):
        long = long & (load_key(keys, at, long) == load_key(keys, at - LONG_RUN, long))
        at += entries
    tl.store(counts + tl.program_id(0), tl.sum(starts.to(tl.int32), axis=0))
    tl.store(counts + programs + tl.program_id(0), tl.max(long.to(tl.int32), axis=0))


@kernel(do_not_specialize=["entries", "programs", "clouds"])
def _list_runs(
    keys, sorted_order, counts, layout, corners, run_keys, facts, entries, programs, clouds,
    F: tl.constexpr, LEVELS: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Writes where runs start and end, the run of each entry, the keys of runs, and the facts."""
    order, of_entry, start = corners
    program = tl.program_id(0)
    b = tl.arange(0, BLOCK)
    runs_before, all_runs = tl.zeros([BLOCK], dtype=tl.int32), tl.zeros([BLOCK], dtype=tl.int32)
    for begin in range(0, programs, BLOCK):
        number = tl.load(counts + begin + b, mask=begin + b < programs, other=0)
        runs_before += tl.where(begin + b < program, number, 0)
        all_runs += number
    run_count = tl.sum(all_runs, axis=0)
    e = program.to(tl.int64) * BLOCK + b
    inside = e < entries
    present, starts, ends, first, first_before = _load_sorted(keys, e, entries, WORDS)
    v = (tl.sum(runs_before, axis=0) + tl.cumsum(starts.to(tl.int32), 0)).to(tl.int64) - 1
    tl.store(start + v, e.to(tl.int32), mask=starts)
    tl.store(start + e + 1, (e * 0).to(tl.int32), mask=inside & (e >= run_count))
    at, to = e, v
    for _ in tl.static_range(WORDS):
        tl.store(run_keys + to, tl.load(keys + at, mask=starts, other=0), mask=starts)
        at += entries
        to += entries
    entry = tl.load(sorted_order + e, mask=inside, other=0)
    tl.store(order + e, entry.to(tl.int32), mask=inside)
    tl.store(of_entry + entry, tl.where(present, v, -1).to(tl.int32), mask=inside)

    # The last entry with a key closes the last run, and all levels from its own on.
    final = ends & (e == entries - 1)
    final = final | (ends & (e + 1 < entries) & (load_key(keys, e + 1, e + 1 < entries) == no_key(keys)))
    tl.store(start + v + 1, (e + 1).to(tl.int32), mask=final)
    shift = tl.load(layout + SHIFT * F)
    prefix = first >> shift
    prefix_before = tl.where(e > 0, first_before >> shift, -1)
    for k in tl.static_range(LEVELS + 1):
        level_prefix = (shift * 0 + k) * clouds  # of the first cloud of level k
        opens = starts & (prefix_before < level_prefix) & (level_prefix <= prefix)
        tl.store(facts + k + v * 0, v, mask=opens)
        tl.store(facts + k + v * 0, v + 1, mask=final & (level_prefix > prefix))
    if program == 0:
        long = tl.zeros([BLOCK], dtype=tl.int32)
        for begin in range(0, programs, BLOCK):
            long += tl.load(counts + programs + begin + b, mask=begin + b < programs, other=0)
        tl.store(facts + LEVELS + 1, (tl.sum(long, axis=0) > 0).to(tl.int64))
        if run_count == 0:
            tl.store(start, run_count)
            for k in tl.static_range(LEVELS + 1):
                tl.store(facts + k, run_count.to(tl.int64))
