r"""Keys: places of a grid as sorted integers, and the runs of equal ones.

A key holds the number of a cloud and, below it, the coordinates of a place, each in bits of its own (a *field*), so that
sorted keys are places in lexicographic order, whatever else is in the batch.  How wide the fields are depends on the data;
that is decided on the device.  Where they do not fit into one word of 63 bits, keys have several words, sorted one after the
other: nothing is hashed and nothing wraps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .launch import block, cdiv, power_of_2, tl, triton

WORD_BITS = 62
"""The bits of a word that fields may take: the sign stays clear, and so does the greatest number, ``NO_KEY``."""

NO_KEY = tl.constexpr(2**63 - 1)
"""The key of what is in no run: sorted last."""


@dataclass
class Fields:
    """Where in a key the cloud and each coordinate lie.

    Args:
        table (torch.Tensor): Base, word, shift and bits of the cloud and of each coordinate, int64, :math:`(4, 1+D)`.
        words (int): The words of a key.
    """

    table: Tensor
    words: int


def narrow_fields(low: Tensor, high: Tensor, grids, levels: int, clouds: int, limit: float) -> tuple[Tensor, Tensor]:
    r"""Fields for keys of one word, for several grids at once, without a look at the data.

    Args:
        low, high (torch.Tensor): The lowest and the highest position, :math:`(D,)`.
        grids (Grids): The grids.
        levels (int): The grids from 1 on and before this are laid around the mean of each cloud.
        clouds (int): The number of clouds, times that of levels.
        limit (float): How far from the origin a position may be.

    Returns:
        The tables of the fields, :math:`(Q, 4, 1+D)`; and how many bits a key needs in each grid (if more than
        ``WORD_BITS``, its table is of no use), followed by whether a position is not within the limit, :math:`(Q+1,)`.
    """
    number, dim = grids.used.shape
    tables = torch.empty(number, 4, 1 + dim, dtype=torch.int64, device=low.device)
    facts = torch.empty(number + 1, dtype=torch.int64, device=low.device)
    # A little less than the limit, since the kernel takes it as a float32: a closer look decides.
    _fields[(number,)](
        low, high, grids.matrices, grids.spare, grids.step, grids.used, tables, facts,
        number, levels, clouds.bit_length(), 0.999 * limit, D=dim, DP=power_of_2(dim), WORD_BITS=WORD_BITS,
    )  # fmt: skip
    return tables, facts


@triton.jit(do_not_specialize=["cloud_bits"])
def _fields(
    low, high, matrices, spare, step, used, tables, facts, grids, levels, cloud_bits, limit,
    D: tl.constexpr, DP: tl.constexpr, WORD_BITS: tl.constexpr,
):  # fmt: skip
    grid = tl.program_id(0)
    j = tl.arange(0, DP)
    least = tl.zeros([DP], dtype=tl.float64)
    most = tl.zeros([DP], dtype=tl.float64)
    within = grid >= 0
    for k in tl.static_range(D):
        lowest, highest = tl.load(low + k).to(tl.float64), tl.load(high + k).to(tl.float64)
        within = within & (lowest > -limit) & (highest < limit)
        factor = tl.load(matrices + (grid * D + j) * D + k, mask=j < D, other=0.0)
        up, down = tl.maximum(factor, 0.0), tl.minimum(factor, 0.0)
        least += up * lowest + down * highest
        most += up * highest + down * lowest
    # Cells that count pairs are laid around the mean of each cloud: a point is at most as far from it as from any.
    centred = (grid > 0) & (grid < levels)
    spread = most - least
    least = tl.where(centred, -spread - 1, least)
    most = tl.where(centred, spread + 1, most)
    unit, room = tl.load(step + grid), tl.load(spare + grid)
    most += tl.where(grid == 0, unit, 0.0)  # the origin of a lattice
    least = (tl.floor(least / unit) - room) * unit
    top = tl.floor(most) + room + 1 - least
    top = tl.where(within, top, 0.0)
    bits = tl.zeros([DP], dtype=tl.int64)
    power = tl.full([DP], 1.0, dtype=tl.float64)
    for _ in range(WORD_BITS):
        bits += (top >= power).to(tl.int64)
        power *= 2
    bits = tl.where(tl.load(used + grid * D + j, mask=j < D, other=0) != 0, bits, 0)
    below = tl.sum(tl.where(j[None, :] > j[:, None], bits[None, :], 0), axis=1)
    total = tl.sum(bits, axis=0)
    to = tables + grid * 4 * (D + 1)
    tl.store(to + 1 + j, tl.where(within, least, 0.0).to(tl.int64), mask=j < D)
    tl.store(to + (D + 1) + 1 + j, bits * 0, mask=j < D)
    tl.store(to + 2 * (D + 1) + 1 + j, tl.minimum(below, WORD_BITS), mask=j < D)
    tl.store(to + 3 * (D + 1) + 1 + j, bits, mask=j < D)
    tl.store(to, total * 0)
    tl.store(to + (D + 1), total * 0)
    tl.store(to + 2 * (D + 1), tl.minimum(total, WORD_BITS))
    tl.store(to + 3 * (D + 1), total * 0 + cloud_bits)
    tl.store(facts + grid, total + cloud_bits)
    tl.store(facts + grids, (within == 0).to(tl.int64), mask=grid == 0)


def wide_fields(table: Tensor) -> Fields:
    """The same fields laid out over as many words as they need; reads the table."""
    bits = table[3].tolist()
    word, shift, used, current = [0] * len(bits), [0] * len(bits), 0, 0
    for f in range(len(bits) - 1, -1, -1):  # the last coordinate is lowest in its word: neighbours along it are one apart
        if used + bits[f] > WORD_BITS:
            used, current = 0, current + 1
        word[f], shift[f] = current, used
        used += bits[f]
    words = current + 1
    rest = torch.tensor([[current - w for w in word], shift], dtype=torch.int64, device=table.device)
    return Fields(torch.stack([table[0], rest[0], rest[1], table[3]]), words)


@dataclass
class Runs:
    """Sorted entries, and the runs of those with equal keys.

    Args:
        order (torch.Tensor): The entry at each sorted place, :math:`(E,)`.
        number (torch.Tensor): The run of each sorted place, :math:`(E,)`.
        keys (torch.Tensor): The sorted keys, :math:`(W, E)`.
        count (torch.Tensor): How many runs there are, :math:`(1,)`, on the device.
    """

    order: Tensor
    number: Tensor
    keys: Tensor
    count: Tensor


def sort_keys(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Sorted keys of one or more words, :math:`(W, E)`, and the place each had before; equal keys keep their order."""
    if len(keys) == 1:
        found, order = torch.sort(keys[0], stable=True)
        return found.unsqueeze(0), order
    order = torch.arange(keys.size(1), device=keys.device)
    for word in reversed(range(len(keys))):
        order = order[torch.sort(keys[word][order], stable=True)[1]]
    return keys[:, order].contiguous(), order


def find_runs(keys: Tensor) -> Runs:
    """Sorts entries by key and numbers the runs of equal keys; entries without a key are in none."""
    found, order = sort_keys(keys)
    words, entries = found.shape
    head = torch.empty(entries, dtype=torch.int32, device=keys.device)
    size = block(1024, entries)
    _heads[(cdiv(entries, size),)](found, head, entries, WORDS=words, BLOCK=size)
    number = torch.cumsum(head, 0, dtype=torch.int32)
    return Runs(order, number, found, number[-1:])


def list_runs(runs: Runs, bound: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where each run starts, :math:`(B+1,)`, its key, :math:`(W, B)`, and the run of each entry, for at most ``bound`` runs.

    Beyond the last run's end, starts are 0."""
    words, entries = runs.keys.shape
    start = torch.zeros(bound + 2, dtype=torch.int32, device=runs.keys.device)
    key = torch.empty(words, bound, dtype=torch.int64, device=runs.keys.device)
    run = torch.empty(entries, dtype=torch.int32, device=runs.keys.device)
    size = block(1024, entries)
    _list[(cdiv(entries, size),)](runs.keys, runs.order, runs.number, start, key, run, entries, bound, WORDS=words, BLOCK=size)
    return start[: bound + 1], key, run


@triton.jit(do_not_specialize=["entries"])
def _heads(keys, head, entries, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """1 where a run starts, else 0."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = e < entries
    differs = e == 0
    present = e < 0
    at = e
    for _ in tl.static_range(WORDS):
        here = tl.load(keys + at, mask=inside, other=NO_KEY)
        before = tl.load(keys + at - 1, mask=inside & (e > 0), other=NO_KEY)
        at += entries
        differs = differs | (here != before)
        present = present | (here != NO_KEY)
    tl.store(head + e, (differs & present).to(tl.int32), mask=inside)


@triton.jit(do_not_specialize=["entries", "bound"])
def _list(keys, order, number, start, key, run, entries, bound, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """Writes where runs start and end, their keys, and the run of each entry."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = e < entries
    present = e < 0
    last = e == entries - 1
    at = e
    for _ in tl.static_range(WORDS):
        here = tl.load(keys + at, mask=inside, other=NO_KEY)
        after = tl.load(keys + at + 1, mask=inside & (e + 1 < entries), other=NO_KEY)
        at += entries
        present = present | (here != NO_KEY)
        last = last | (here != after)
    v = tl.load(number + e, mask=inside, other=0).to(tl.int64) - 1
    before = tl.load(number + e - 1, mask=inside & (e > 0), other=0).to(tl.int64) - 1
    before = tl.where(e > 0, before, -1)
    first = inside & present & (v != before) & (v < bound)
    tl.store(start + v, e.to(tl.int32), mask=first)
    tl.store(start + v + 1, (e + 1).to(tl.int32), mask=inside & present & last & (v < bound))
    at, to = e, v
    for _ in tl.static_range(WORDS):
        here = tl.load(keys + at, mask=first, other=NO_KEY)
        tl.store(key + to, here, mask=first)
        at += entries
        to += bound
    place = tl.load(order + e, mask=inside, other=0)
    tl.store(run + place, tl.where(present, v, -1).to(tl.int32), mask=inside)


@triton.jit
def lower_bound(keys, stride, begin, count, target, steps, WORDS: tl.constexpr):
    """The first of ``count`` sorted keys from ``begin`` on that is not below the target; ``target`` is a tuple of words."""
    low = begin
    high = begin + count
    for _ in range(steps):
        middle = (low + high) // 2
        active = low < high
        below = low < 0
        equal = low >= 0
        at = middle
        for w in tl.static_range(WORDS):
            here = tl.load(keys + at, mask=active, other=NO_KEY)
            at += stride
            below = below | (equal & (here < target[w]))
            equal = equal & (here == target[w])
        low = tl.where(active & below, middle + 1, low)
        high = tl.where(active & (below == 0), middle, high)
    return low
