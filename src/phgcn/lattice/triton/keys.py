r"""Keys: places of a grid as integers that sort, and how to find them.

A key holds a *prefix*, the level and cloud, and below it the coordinates of a place, each in bits of its own (a *field*), so
that sorted keys are places in lexicographic order, whatever else is in the batch.  How wide the fields are depends on the
data; that is decided on the device.  Where they do not fit into one word of 63 bits, keys have several words, sorted one after
the other: nothing is hashed and nothing wraps.  Where they fit into half a word, sorting and searching take half the time.
How many words keys have does not change their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...runtime.triton import block_size, cdiv, kernel, power_of_2, search_steps, tl, triton
from ..scheme import Scheme
from .plan import WIDTHS

WORD_BITS, HALF_WORD_BITS = tl.constexpr(62), tl.constexpr(30)
"""Bits of a word, and of half a word, that fields may take: the sign stays clear, and one spare bit, so that the sentinel (all
ones) is not a valid key."""

BASE, WORD, SHIFT, BITS = (tl.constexpr(row) for row in range(4))
"""The rows of a layout's table."""


@dataclass
class KeyLayout:
    """Where in a key the prefix and each coordinate lie.

    Args:
        table (torch.Tensor): Base, word, shift and bits of the prefix and of each coordinate, int64, :math:`(4, 1+D)`.
        width (int): The words of a key; 0 for half a word.
    """

    table: Tensor
    width: int

    @property
    def words(self) -> int:
        return max(1, self.width)

    def new_keys(self, count: int) -> Tensor:
        """Allocates keys, :math:`(W, E)`."""
        dtype = torch.int64 if self.width > 0 else torch.int32
        return torch.empty(self.words, count, dtype=dtype, device=self.table.device)


# Learning the width

SHRINK_AFTER = 8
"""Shrink keys by one word after so many consecutive calls that would have fitted: the layers of a model take turns, and making
keys again with more words takes longer than sorting keys with too many."""


class KeyWidths:
    """A guess of how wide keys must be, from earlier calls.  In training it is right: the points move little.

    Attributes:
        words (list): The words of the keys of the lattice, of pair-counting cells and of near-field cells; 0 for half a word.
        spare_calls (list): For each, how many calls in a row would have fitted into fewer words.
    """

    def __init__(self) -> None:
        self.words = [1] * WIDTHS
        self.spare_calls = [0] * WIDTHS

    def learn(self, missing: Sequence[int]) -> None:
        """Takes how many more words each kind of key needed; less than 0 if fewer would have done."""
        for kind, more in enumerate(missing):
            self.spare_calls[kind] = self.spare_calls[kind] + 1 if more < 0 else 0
            if more > 0 or self.spare_calls[kind] == SHRINK_AFTER:
                self.words[kind] += more
                self.spare_calls[kind] = 0


KEY_WIDTHS: dict[tuple[Scheme, int, torch.device], KeyWidths] = {}
"""The widths that calls of a scheme in a dimension on a device have learned.  A wrong guess costs time, never accuracy: the
device tells that keys do not fit, and they are made again."""


def key_widths(scheme: Scheme, dim: int, device: torch.device) -> KeyWidths:
    """Returns what earlier calls have learned."""
    return KEY_WIDTHS.setdefault((scheme, dim, device), KeyWidths())


# Packing, loading and sorting


@triton.jit
def pack_word(prefix, place, layout, a, DIMS: tl.constexpr, F: tl.constexpr):
    """Packs word ``a`` of the key of a prefix and of a place, a tuple of DIMS coordinates counted from the layout's base; a
    layout has F fields."""
    word = tl.where(tl.load(layout + WORD * F) == a, prefix << tl.load(layout + SHIFT * F), 0)
    for j in tl.static_range(DIMS):
        in_word = tl.load(layout + WORD * F + 1 + j) == a
        word += tl.where(in_word, place[j] << tl.load(layout + SHIFT * F + 1 + j), 0)
    return word


@triton.jit
def no_key(keys):
    """Returns the sentinel, the greatest number that a word may be: sorted last."""
    return tl.full([], 2**31 - 1 if keys.dtype.element_ty.primitive_bitwidth == 32 else 2**63 - 1, keys.dtype.element_ty)


@triton.jit
def load_key(keys, at, mask):
    """Loads words of keys as int64; the sentinel where masked."""
    return tl.load(keys + at, mask=mask, other=no_key(keys)).to(tl.int64)


def sort_keys(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Sorts keys of one or more words, :math:`(W, E)`; returns them and the place each had.  Equal keys keep their order."""
    if keys.size(0) == 1:
        ordered, order = torch.sort(keys[0], stable=True)
        return ordered.unsqueeze(0), order
    order = torch.arange(keys.size(1), device=keys.device)
    for word in reversed(range(len(keys))):
        order = order[torch.sort(keys[word][order], stable=True)[1]]
    return keys[:, order].contiguous(), order


# Searching

MIN_KEYS, MAX_BUCKETS = 1 << 15, 1 << 22
"""Fewer keys are searched without buckets, which take a launch of their own; and how many buckets there are at most."""


def make_buckets(keys: Tensor, count: int, device_count: Tensor | None) -> Tensor | None:
    """Cuts many sorted keys of one word into buckets of equal width, to shorten searches.

    Args:
        keys (torch.Tensor): Sorted keys, :math:`(W, E)`.
        count (int): How many there are, or an upper bound.
        device_count (torch.Tensor, optional): How many there are, where only the device knows.

    Returns:
        ``bucket_start[b]``, the index of the first key in bucket ``b``, one sentinel at the end, then the width of a bucket
        in bits, int32; :obj:`None` where a search without buckets is as good.
    """
    if count < MIN_KEYS or keys.size(0) > 1:
        return None
    buckets = min(MAX_BUCKETS, power_of_2(count))
    bucket_start = torch.empty(buckets + 2, dtype=torch.int32, device=keys.device)
    size = block_size(256, buckets + 2)
    _make_buckets[(cdiv(buckets + 2, size),)](keys, device_count, bucket_start, count, buckets, search_steps(count), BLOCK=size)
    return bucket_start


@kernel(do_not_specialize=["count", "buckets", "steps"])
def _make_buckets(keys, device_count, bucket_start, count, buckets, steps, BLOCK: tl.constexpr):
    b = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if device_count is not None:
        count = tl.minimum(tl.load(device_count), count)
    least = tl.load(keys).to(tl.int64)
    bucket_width = (tl.load(keys + tl.maximum(count - 1, 0)).to(tl.int64) - least) // buckets
    bits = bucket_width * 0
    for bit in range(63):
        bits += ((bucket_width >> bit) > 0).to(tl.int64)
    first = lower_bound(keys, 0, b * 0, b * 0 + count, (least + (b << bits),), steps, 1)
    first = tl.where(b < buckets, first, tl.where(b == buckets, count, bits))
    tl.store(bucket_start + b, first.to(tl.int32), mask=b < buckets + 2)


@triton.jit
def bucket_lower_bound(keys, bucket_start, buckets, target):
    """Finds the first key that is not below the target, by its bucket."""
    bits = tl.load(bucket_start + buckets + 1).to(tl.int64)
    bucket = (target - tl.load(keys)) >> bits
    low = tl.load(bucket_start + tl.minimum(tl.maximum(bucket, 0), buckets)).to(tl.int64)
    high = tl.load(bucket_start + tl.minimum(tl.maximum(bucket + 1, 0), buckets)).to(tl.int64)
    largest = tl.max(high - low)
    steps = 0
    for bit in tl.static_range(32):
        steps += ((largest >> bit) > 0).to(tl.int32)
    return lower_bound(keys, 0, low, high - low, (target,), steps, 1)


@triton.jit
def lower_bound(keys, stride, begin, count, target, steps, WORDS: tl.constexpr):
    """Finds the first of ``count`` sorted keys from ``begin`` on that is not below the target, a tuple of words."""
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
