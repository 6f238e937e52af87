r"""Keys: places of a grid as sorted integers, and the runs of equal ones.

A key holds the number of a cloud and, below it, the coordinates of a place, each in bits of its own (a *field*), so that
sorted keys are places in lexicographic order, whatever else is in the batch.  How wide the fields are depends on the data;
that is decided on the device.  Where they do not fit into one word of 63 bits, keys have several words, sorted one after the
other: nothing is hashed and nothing wraps.  Where they fit into half a word, they are sorted, and sought, in half the time.
How many words they have does not change their order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .launch import block, cdiv, kernel, power_of_2, steps, tl, triton

WORD_BITS, HALF_BITS = 62, 30
"""The bits of a word, and of half a one, that fields may take: the sign stays clear, and so does one more bit, in which the
greatest number, that of no key, differs from all others."""

SHORT_BLOCK, LONG_BLOCK, MANY = 1024, 2048, 8_000_000
"""Sorted entries that one program takes, of few and of many; a program counts what all before it have found."""

PATIENCE = 8
"""After so many calls in a row that would have done with fewer words, keys have fewer: layers of a model take turns, and to
begin again with more words takes longer than to sort keys that have too many."""


@dataclass
class Words:
    """The words that keys have, 0 for half a word: a guess for the next call, which in training is right.

    Args:
        number (int): The words. (default: :obj:`1`)
        spared (int): How many calls in a row would have done with fewer. (default: :obj:`0`)
    """

    number: int = 1
    spared: int = 0

    def learn(self, lacking: int) -> None:
        """Takes how many more words were needed, or less than 0 if fewer would have done."""
        self.spared = self.spared + 1 if lacking < 0 else 0
        if lacking > 0 or self.spared == PATIENCE:
            self.number, self.spared = self.number + lacking, 0


@dataclass
class Fields:
    """Where in a key the cloud and each coordinate lie.

    Args:
        table (torch.Tensor): Base, word, shift and bits of the cloud and of each coordinate, int64, :math:`(4, 1+D)`.
        size (int): The words of a key; 0 for half a word.
    """

    table: Tensor
    size: int

    @property
    def words(self) -> int:
        return max(1, self.size)

    def new_keys(self, count: int) -> Tensor:
        """Room for keys, :math:`(W, E)`."""
        kind = torch.int64 if self.size > 0 else torch.int32
        return torch.empty(self.words, count, dtype=kind, device=self.table.device)


@triton.jit
def no_key(keys):
    """The key of what is in no run, the greatest number that keys may be: sorted last."""
    return tl.full([], 2**31 - 1 if keys.dtype.element_ty.primitive_bitwidth == 32 else 2**63 - 1, keys.dtype.element_ty)


@triton.jit
def load_key(keys, at, mask):
    """A word of keys, as wide as steps are; that of no key where there is none."""
    return tl.load(keys + at, mask=mask, other=no_key(keys)).to(tl.int64)


@dataclass
class Runs:
    """Sorted entries, and the runs of those with equal keys.

    Args:
        order (torch.Tensor): The entry at each sorted place, :math:`(E,)`.
        start (torch.Tensor): Where each run starts, and where the last one ends, int32; undefined behind that.
        keys (torch.Tensor): The key of each run, sorted, :math:`(W, E)`; undefined behind the last.
        run (torch.Tensor): The run of each entry, -1 for none, int32, :math:`(E,)`.
    """

    order: Tensor
    start: Tensor
    keys: Tensor
    run: Tensor


def sort_keys(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Sorted keys of one or more words, :math:`(W, E)`, and the place each had before; equal keys keep their order."""
    if keys.size(0) == 1:
        found, order = torch.sort(keys[0], stable=True)
        return found.unsqueeze(0), order
    order = torch.arange(keys.size(1), device=keys.device)
    for word in reversed(range(len(keys))):
        order = order[torch.sort(keys[word][order], stable=True)[1]]
    return keys[:, order].contiguous(), order


def find_runs(keys: Tensor, fields: Fields, facts: Tensor, levels: int, clouds: int, piece: int) -> Runs:
    r"""Sorts entries by key and lists the runs of equal keys; entries without a key are in none.

    Args:
        keys (torch.Tensor): The keys of the entries, :math:`(W, E)`.
        fields (Fields): Of the keys.
        facts (torch.Tensor): Takes how many runs there are before each level and behind the last, and then whether a run
            has more than ``piece`` entries, int64, :math:`(levels + 2,)`; where there are no runs, only the latter.
        levels (int): How many levels there are; a level comes before the cloud in a key.  With 0, ``facts`` takes only the
            number of runs and the latter.
        clouds (int): How many clouds there are.
        piece (int): See ``facts``.
    """
    found, order = sort_keys(keys)
    words, entries = found.shape
    device, size = keys.device, block(LONG_BLOCK if entries > MANY else SHORT_BLOCK, entries)
    programs = cdiv(entries, size)
    heads = torch.empty(2, programs, dtype=torch.int32, device=device)
    _count_heads[(programs,)](found, heads, entries, programs, PIECE=piece, WORDS=words, BLOCK=size)
    start = torch.empty(entries + 1, dtype=torch.int32, device=device)
    key = torch.empty_like(found)
    run = torch.empty(entries, dtype=torch.int32, device=device)
    _list_runs[(programs,)](
        found, order, heads, fields.table, start, key, run, facts, entries, programs, clouds,
        F=fields.table.size(1), LEVELS=levels, WORDS=words, BLOCK=size,
    )  # fmt: skip
    return Runs(order, start, key, run)


@triton.jit
def _load_sorted(keys, e, entries, WORDS: tl.constexpr):
    """Of sorted places: whether they have a key, whether a run starts or ends there, and their first word and that before."""
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
def _count_heads(keys, heads, entries, programs, PIECE: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """How many runs start in each block, and whether one of more than a piece passes or ends there."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    present, starts, _, _, _ = _load_sorted(keys, e, entries, WORDS)
    long = present & (e >= PIECE)
    at = e
    for _ in tl.static_range(WORDS):
        long = long & (load_key(keys, at, long) == load_key(keys, at - PIECE, long))
        at += entries
    tl.store(heads + tl.program_id(0), tl.sum(starts.to(tl.int32), axis=0))
    tl.store(heads + programs + tl.program_id(0), tl.max(long.to(tl.int32), axis=0))


@kernel(do_not_specialize=["entries", "programs", "clouds"])
def _list_runs(
    keys, order, heads, fields, start, key, run, facts, entries, programs, clouds,
    F: tl.constexpr, LEVELS: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Writes where runs start and end, their keys, the run of each entry, and the facts."""
    program = tl.program_id(0)
    b = tl.arange(0, BLOCK)
    counted = tl.zeros([BLOCK], dtype=tl.int32)
    for begin in range(0, program, BLOCK):
        counted += tl.load(heads + begin + b, mask=begin + b < program, other=0)
    e = program.to(tl.int64) * BLOCK + b
    inside = e < entries
    present, starts, ends, first, first_before = _load_sorted(keys, e, entries, WORDS)
    v = (tl.sum(counted, axis=0) + tl.cumsum(starts.to(tl.int32), 0)).to(tl.int64) - 1
    tl.store(start + v, e.to(tl.int32), mask=starts)
    at, to = e, v
    for _ in tl.static_range(WORDS):
        tl.store(key + to, tl.load(keys + at, mask=starts, other=0), mask=starts)
        at += entries
        to += entries
    place = tl.load(order + e, mask=inside, other=0)
    tl.store(run + place, tl.where(present, v, -1).to(tl.int32), mask=inside)

    # The last of all that are present closes the last run and all levels from its own on.
    final = ends & (e == entries - 1)
    final = final | (ends & (e + 1 < entries) & (load_key(keys, e + 1, e + 1 < entries) == no_key(keys)))
    tl.store(start + v + 1, (e + 1).to(tl.int32), mask=final)
    if LEVELS == 0:
        tl.store(facts + v * 0, v + 1, mask=final)
    else:
        shift = tl.load(fields + 2 * F)
        cloud = first >> shift
        cloud_before = tl.where(e > 0, first_before >> shift, -1)
        for k in tl.static_range(LEVELS + 1):
            level = (shift * 0 + k) * clouds  # the first cloud of a level
            tl.store(facts + k + v * 0, v, mask=starts & (cloud_before < level) & (level <= cloud))
            tl.store(facts + k + v * 0, v + 1, mask=final & (level > cloud))
    if program == 0:
        counted = tl.zeros([BLOCK], dtype=tl.int32)
        for begin in range(0, programs, BLOCK):
            counted += tl.load(heads + programs + begin + b, mask=begin + b < programs, other=0)
        tl.store(facts + LEVELS + 1, (tl.sum(counted, axis=0) > 0).to(tl.int64))


FEW_KEYS, MOST_BUCKETS = 1 << 15, 1 << 18
"""Fewer keys are searched without an index, which takes a launch of its own; and the most buckets of one."""


def index_keys(keys: Tensor, count: int, limit: Tensor | None) -> Tensor | None:
    """Where to search among many sorted keys of one word: the first key of each of many buckets of equal width, and of none
    behind the last, then the bits that a bucket leaves open, int32.  :obj:`None` where a search without is as good."""
    if count < FEW_KEYS or keys.size(0) > 1:
        return None
    buckets = min(MOST_BUCKETS, power_of_2(count))
    index = torch.empty(buckets + 2, dtype=torch.int32, device=keys.device)
    size = block(256, buckets + 2)
    _index[(cdiv(buckets + 2, size),)](keys, limit, index, count, buckets, steps(count), BLOCK=size)
    return index


@kernel(do_not_specialize=["count", "buckets", "halvings"])
def _index(keys, limit, index, count, buckets, halvings, BLOCK: tl.constexpr):
    b = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if limit is not None:
        count = tl.minimum(tl.load(limit), count)
    least = tl.load(keys).to(tl.int64)
    wide = (tl.load(keys + tl.maximum(count - 1, 0)).to(tl.int64) - least) // buckets
    open_bits = wide * 0
    for bit in range(63):
        open_bits += ((wide >> bit) > 0).to(tl.int64)
    first = lower_bound(keys, 0, b * 0, b * 0 + count, (least + (b << open_bits),), halvings, 1)
    first = tl.where(b < buckets, first, tl.where(b == buckets, count, open_bits))
    tl.store(index + b, first.to(tl.int32), mask=b < buckets + 2)


@triton.jit
def indexed_bound(keys, index, buckets, target):
    """The first key that is not below the target, found with an index."""
    open_bits = tl.load(index + buckets + 1).to(tl.int64)
    bucket = (target - tl.load(keys)) >> open_bits
    low = tl.load(index + tl.minimum(tl.maximum(bucket, 0), buckets)).to(tl.int64)
    high = tl.load(index + tl.minimum(tl.maximum(bucket + 1, 0), buckets)).to(tl.int64)
    most = tl.max(high - low)
    halvings = 0
    for bit in tl.static_range(32):
        halvings += ((most >> bit) > 0).to(tl.int32)
    return lower_bound(keys, 0, low, high - low, (target,), halvings, 1)


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
            here = load_key(keys, at, active)
            at += stride
            below = below | (equal & (here < target[w]))
            equal = equal & (here == target[w])
        low = tl.where(active & below, middle + 1, low)
        high = tl.where(active & (below == 0), middle, high)
    return low
