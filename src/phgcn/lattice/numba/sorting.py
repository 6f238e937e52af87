"""A stable radix sort of keys on all cores, and the runs of equal keys."""

from __future__ import annotations

import numpy as np
import torch

from ...runtime.numba import helper, kernel
from ...runtime.threads import run_rows

# upper bound of the bits sorted per pass: keys of 23 to 33 bits, as most lattices have, take three
# passes, and the places that a pass writes to fit into the second-level cache
DIGIT = 11

# fewer keys than this are sorted by NumPy, if they have no bits above those sorted by: there would
# be more counters of digits than keys
FEW = 2048

PART = 16384  # least number of keys that a thread sorts


def sort_keys(keys: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Sorts unsigned 64-bit keys by their lowest bits, stably for any number of threads. Returns
    the sorted keys, and the index that each had before, int32."""
    count = len(keys)
    if count < FEW:
        index = np.argsort(keys, kind="stable").astype(np.int32)
        return keys[index], index
    digit = -(-bits // -(-bits // DIGIT))
    parts = max(1, min(torch.get_num_threads(), count // PART))
    size = -(-count // parts)
    # empty: the keys are in the order that they were given in
    sorted_keys, index = keys, np.empty(0, np.int32)
    spare = [(np.empty_like(keys), np.empty(count, np.int32)) for _ in range(2)]
    counts = np.empty((parts, 1 << digit), np.int64)
    for number, shift in enumerate(range(0, bits, digit)):
        run_rows(count_digits, parts, 1, sorted_keys, size, shift, counts)
        by_digit = counts.T.ravel()
        # of each part's keys with each digit
        first = (by_digit.cumsum() - by_digit).reshape(-1, parts).T.copy()
        moved_keys, moved_index = spare[number % 2]
        run_rows(
            move_by_digit, parts, 1, sorted_keys, index, size, shift, first, moved_keys, moved_index
        )
        sorted_keys, index = moved_keys, moved_index
    return sorted_keys, index


def run_starts(sorted_keys: np.ndarray) -> np.ndarray:
    """Returns the first index of each run of equal keys and, last, the end of the keys; int32."""
    parts = -(-len(sorted_keys) // PART)
    first = np.zeros(parts + 1, np.int64)  # the number of the first run that starts in each part
    run_rows(count_runs, parts, 1, sorted_keys, PART, first[1:])
    first.cumsum(out=first)
    start = np.empty(first[-1] + 1, np.int32)
    start[-1] = len(sorted_keys)
    run_rows(list_runs, parts, 1, sorted_keys, PART, first, start)
    return start


@kernel("int64, int64, uint64[::1], int64, int64, int64[:, ::1]")
def count_digits(begin, end, keys, size, shift, counts):
    """Counts the keys of each chunk of ``size`` keys by their digit from bit ``shift`` on."""
    by, mask = np.uint64(shift), np.uint64(counts.shape[1] - 1)
    for part in range(begin, end):
        for digit in range(counts.shape[1]):
            counts[part, digit] = 0
        for a in range(part * size, min(keys.shape[0], (part + 1) * size)):
            counts[part, (keys[a] >> by) & mask] += 1


@kernel(
    "int64, int64, uint64[::1], int32[::1], int64, int64, int64[:, ::1], uint64[::1], int32[::1]"
)
def move_by_digit(begin, end, keys, index, size, shift, first, moved_keys, moved_index):
    """Moves the keys of each chunk and their indices to ``first``, the position of their digit,
    which is counted up. An empty ``index`` stands for 0, 1, 2, ..."""
    by, mask = np.uint64(shift), np.uint64(first.shape[1] - 1)
    for part in range(begin, end):
        for a in range(part * size, min(keys.shape[0], (part + 1) * size)):
            digit = (keys[a] >> by) & mask
            place = first[part, digit]
            first[part, digit] = place + 1
            moved_keys[place] = keys[a]
            moved_index[place] = index[a] if index.shape[0] > 0 else a


@kernel("int64, int64, uint64[::1], int64, int64[::1]")
def count_runs(begin, end, keys, size, count):
    """Counts the runs of equal keys that start in each chunk of ``size`` keys."""
    for part in range(begin, end):
        total = 0
        for a in range(part * size, min(keys.shape[0], (part + 1) * size)):
            total += a == 0 or keys[a] != keys[a - 1]
        count[part] = total


@kernel("int64, int64, uint64[::1], int64, int64[::1], int32[::1]")
def list_runs(begin, end, keys, size, first, start):
    """Lists the starts of each chunk's runs, from ``first[part]`` to ``first[part + 1]``. No
    branch, which the processor would often predict wrongly: the next start overwrites an index that
    is none."""
    for part in range(begin, end):
        run, a = first[part], part * size
        while run < first[part + 1]:
            start[run] = a
            run += a == 0 or keys[a] != keys[a - 1]
            a += 1


@helper
def lower_bound(sorted_keys, key):
    low, high = 0, sorted_keys.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if sorted_keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low
