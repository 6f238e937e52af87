r"""Blur: sums over the neighbours of each vertex."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...kernels.numba import helper, kernel
from ...kernels.threads import rows_of_work, run_rows
from ..stencil import stencil
from .index import Level
from .slice import add_coarser
from .sorting import lower_bound
from .splat import splat_coarser

GRAIN = 2**20
"""Products that a thread adds at least."""


ALL = slice(None)


class StencilRows(NamedTuple):
    r"""A stencil whose offsets are grouped into *rows* that share all but the last coordinate, which has no gaps within a row.

    Shapes:
        - **prefix:** the shared coordinates, int64, :math:`(R, D-1)`
        - **span:** the lowest last coordinate of each row, and how many offsets it has, int64, :math:`(R, 2)`
        - **orbit:** the number of the weight of each offset, int64, :math:`(R, \text{longest})`; -1 behind the last one
    """

    prefix: np.ndarray
    span: np.ndarray
    orbit: np.ndarray


def blur(
    table: np.ndarray, level: Level, rows: StencilRows, weights: np.ndarray, out: np.ndarray, segments: slice = ALL
) -> None:
    r"""Sums, for every vertex, the rows of the touched vertices at the offsets of a stencil, weighted by orbit, into ``out``.

    Shapes:
        - **table**, **out:** rows of all sites of the level, :math:`(\text{sites}, C)`; of ``out`` only the sites of
          ``segments`` are written
    """
    first, last, _ = segments.indices(len(level.first))
    grain, *arguments = _blur_arguments(table, level, rows, weights)

    def blur_some(begin: int, end: int, *rest: Any) -> None:
        blur_segments(first + begin, first + end, *rest)

    run_rows(blur_some, last - first, grain, *arguments, out)


def blur_levels(table: np.ndarray, levels: list[Level], stencils: list[StencilRows], weights: list[np.ndarray]) -> np.ndarray:
    r"""Blurs the finest level's rows on every level, finest first, and adds up what the levels give: rows to slice from.

    Shapes:
        - **table**, **output:** rows of all sites of the finest level, :math:`(\text{sites}, C)`
    """
    blurred: list[np.ndarray] = []
    for number, level in enumerate(levels):
        if number > 0:
            table = splat_coarser(table, levels[number - 1], level)
        blurred.append(np.empty_like(table))
        arguments = _blur_arguments(table, level, stencils[number], weights[number])
        run_rows(blur_segments, len(level.first), *arguments, blurred[-1])
    for number in range(len(levels) - 1, 0, -1):
        add_coarser(blurred[number - 1], levels[number - 1], blurred[number], levels[number])
    return blurred[0]


def blur_passes(table: np.ndarray, level: Level, weights: np.ndarray, scale: float, order: int) -> np.ndarray:
    """Blurs along one of the lattice's directions after the other, in ascending or descending order; scales the sum.
    ``table`` is overwritten."""
    dim, spare = level.vertices.coordinate.shape[1], np.empty_like(table)
    directions = range(dim + 1)[::order]
    for direction in directions:
        factor = scale if direction == directions[-1] else 1.0
        blur(table, level, pass_rows(dim, len(weights) - 1, direction), factor * weights, spare)
        table, spare = spare, table
    return table


def _blur_arguments(table: np.ndarray, level: Level, rows: StencilRows, weights: np.ndarray) -> tuple[Any, ...]:
    """Returns the least number of segments of a thread, then the arguments of :func:`blur_segments` up to the table."""
    row_key = level.keys.of_prefix(rows.prefix)
    row_weight = np.append(weights, 0.0).astype(table.dtype)[rows.orbit]
    grain = rows_of_work(len(level.first), table.size * int(rows.span[:, 1].sum()), GRAIN)
    segments = level.first, level.last, level.place, level.prefix
    return grain, *segments, row_key, rows.prefix, rows.span, row_weight, table.reshape(-1)


@lru_cache
def direct_rows(dim: int, hops: int) -> StencilRows:
    """Returns the rows of the stencil of all offsets within a number of hops."""
    full = stencil(dim, hops)
    return _group(full.offsets, full.orbit)


@lru_cache
def pass_rows(dim: int, hops: int, direction: int) -> StencilRows:
    """Returns the rows of a pass along one of the lattice's directions: a unit vector, or all ones."""
    step = np.ones(dim, np.int64) if direction == dim else np.eye(dim, dtype=np.int64)[direction]
    hop = np.arange(-hops, hops + 1)
    return _group(hop[:, None] * step, abs(hop))


def _group(offsets: np.ndarray, orbit: np.ndarray) -> StencilRows:
    groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for offset, number in zip(offsets.tolist(), orbit.tolist(), strict=True):
        groups.setdefault(tuple(offset[:-1]), []).append((offset[-1], number))
    prefixes = sorted(groups)
    longest = max(len(group) for group in groups.values())
    padded = [[number for _, number in sorted(groups[p])] + [-1] * (longest - len(groups[p])) for p in prefixes]
    return StencilRows(
        prefix=np.array(prefixes, np.int64).reshape(len(prefixes), -1),
        span=np.array([(min(groups[p])[0], len(groups[p])) for p in prefixes], np.int64),
        orbit=np.array(padded, np.int64),
    )


@helper
def add_run(out, o, weight, table, t, count):
    """Adds weight * table[t : t + count] to out[o : o + count]; unsigned places, which Numba does not check for a sign."""
    for c in range(count):
        out[o + c] += weight * table[t + c]


@helper
def lies_on_row(prefix, a, b, row_prefix, r):
    """Tells whether segment b lies on the r-th row of the stencil around segment a: keys that are hashes may collide."""
    for j in range(prefix.shape[1]):
        if prefix[b, j] - prefix[a, j] != row_prefix[r, j]:
            return False
    return True


@kernel(
    "int64, int64, uint64[::1], uint64[::1], int32[::1], int32[:, ::1], uint64[::1], int64[:, ::1], int64[:, ::1], "
    "real[:, ::1], real[::1], real[:, ::1]"
)
def blur_segments(begin, end, first, last, place, prefix, row_key, row_prefix, row_span, row_weight, table, out):
    """Blurs the rows of segments.

    A row of the stencil takes a segment to one or few other segments, and adds to a run of table rows another such run.  As the
    segment moves up the sorted list, so do those it reads from: they are found by pointers that only move forward.
    """
    segments, width = first.shape[0], out.shape[1]
    flat = out.reshape(-1)
    pointer = np.empty(row_key.shape[0], np.int64)
    for r in range(row_key.shape[0]):
        pointer[r] = lower_bound(last, first[begin] + row_key[r] + np.uint64(row_span[r, 0]))
    for a in range(begin, end):
        count = np.int64(last[a] - first[a]) + 1
        o = np.uint64(place[a] * width)
        for c in range(np.uint64(count * width)):
            flat[o + c] = 0
        for r in range(row_key.shape[0]):
            low, length = row_span[r, 0], row_span[r, 1]
            origin = first[a] + row_key[r]
            lowest = origin + np.uint64(low)
            highest = lowest + np.uint64(count + length - 2)
            b = pointer[r]
            if b > 0 and last[b - 1] >= lowest:
                b = 0  # the hash has wrapped around
            while b < segments and last[b] < lowest:
                b += 1
            pointer[r] = b
            while b < segments and first[b] <= highest:
                if prefix.shape[0] == 0 or lies_on_row(prefix, a, b, row_prefix, r):
                    step = np.int64(first[b] - origin)  # from a's first last coordinate to b's
                    other = np.int64(last[b] - first[b]) + 1
                    for q in range(length):
                        d = step - low - q  # place i of a reads place i - d of b
                        i = max(0, d)
                        run = min(count, other + d) - i
                        if run > 0:
                            o, t = np.uint64((place[a] + i) * width), np.uint64((place[b] + i - d) * width)
                            add_run(flat, o, row_weight[r, q], table, t, np.uint64(run * width))
                b += 1
