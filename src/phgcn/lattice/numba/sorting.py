r"""Sorting lattice keys: a stable radix sort on all cores, and the runs of equal keys that come of it."""

from __future__ import annotations

import numpy as np
from numba import prange

from ...kernels.legacy import kernel, serial

DIGIT = 11
"""Bits sorted per pass at most: 2,048 counters stay in the first-level cache."""


@kernel
def radix_sort(keys, bits, parts):
    r"""Sorts unsigned 64-bit keys by their lowest ``bits`` bits.

    Each of ``parts`` parts of the keys is counted and moved on its own; the order is that of a stable sort, whatever
    the number of parts.

    Returns:
        The sorted keys, and the index that each had before.
    """
    n = keys.shape[0]
    passes = (bits + DIGIT - 1) // DIGIT
    digit_bits = (bits + passes - 1) // passes if passes > 0 else 1
    radix = 1 << digit_bits
    mask = np.uint64(radix - 1)
    part = (n + parts - 1) // parts
    key, moved_key = keys.copy(), np.empty_like(keys)
    index, moved_index = np.arange(n).astype(np.int32), np.empty(n, np.int32)
    for shift in range(0, bits, digit_bits):
        by = np.uint64(shift)
        counts = np.zeros((parts, radix), np.int64)
        for p in prange(parts):
            for a in range(p * part, min(n, (p + 1) * part)):
                counts[p, (key[a] >> by) & mask] += 1
        total = 0
        for digit in range(radix):
            for p in range(parts):
                count = counts[p, digit]
                counts[p, digit] = total
                total += count
        for p in prange(parts):
            for a in range(p * part, min(n, (p + 1) * part)):
                digit = (key[a] >> by) & mask
                place = counts[p, digit]
                counts[p, digit] = place + 1
                moved_key[place] = key[a]
                moved_index[place] = index[a]
        key, moved_key = moved_key, key
        index, moved_index = moved_index, index
    return key, index


@serial
def runs(sorted_keys, index):
    r"""Finds the runs of equal keys.

    Returns:
        The unique keys, where each run starts (one entry more than runs), and, for every original entry, its run.
    """
    n = sorted_keys.shape[0]
    unique, start, run = np.empty(n, np.uint64), np.empty(n + 1, np.int32), np.empty(n, np.int32)
    count = 0
    for a in range(n):
        if a == 0 or sorted_keys[a] != sorted_keys[a - 1]:
            unique[count] = sorted_keys[a]
            start[count] = a
            count += 1
        run[index[a]] = count - 1
    start[count] = n
    return unique[:count].copy(), start[: count + 1].copy(), run


@serial
def run_starts(sorted_keys):
    """Where each run of equal keys starts, and, last, where the keys end."""
    n = sorted_keys.shape[0]
    start = np.empty(n + 1, np.int32)
    count = 0
    for a in range(n):
        if a == 0 or sorted_keys[a] != sorted_keys[a - 1]:
            start[count] = a
            count += 1
    start[count] = n
    return start[: count + 1].copy()
