r"""Blur: sums over the neighbours of each vertex."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...runtime.numba import helper, kernel
from ...runtime.threads import rows_of_work, run_rows
from ..coefficients import multiscale_weights
from ..scheme import MultiScale
from ..stencil import stencil
from .index import Level
from .slice import add_coarser
from .sorting import lower_bound
from .splat import splat_coarser

GRAIN = 2**20
"""Least number of products that a thread adds."""

TAPS = 4
"""Offsets of a row that are weighted together, to spare trips to memory."""

PIECE = 64
"""Vertices of a segment that are blurred at a time: what they read of a group of rows stays in the first-level cache."""

STEPS = 3
"""Segments that a pointer passes without a branch, which the processor would often predict wrongly; more are rare."""

NO_KEY = np.uint64(2**64 - 1)
"""Put behind the keys of all segments, so that a search ends there."""

ALL = slice(None)


class StencilRows(NamedTuple):
    r"""A stencil whose offsets are grouped into *rows* that share all but the last coordinate, which has no gaps within a row.

    Rows that have the same weights form a group: what they read is added up before it is weighted, once for all.

    Shapes:
        - **prefix:** the shared coordinates, int64, :math:`(R, D-1)`, group by group
        - **low:** the lowest last coordinate of each row, int64, :math:`(R,)`
        - **start:** the first row of each group, and the end of the last, int64, :math:`(G+1,)`
        - **length:** how many offsets the rows of a group have, int64, :math:`(G,)`
        - **orbit:** the number of the weight of each offset, int64, :math:`(G, L)`; -1 behind the last one, up to a multiple
          of :data:`TAPS`
    """

    prefix: np.ndarray
    low: np.ndarray
    start: np.ndarray
    length: np.ndarray
    orbit: np.ndarray


WeightedRows = tuple[StencilRows, np.ndarray]
"""A stencil and its weights by orbit."""


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


def blur_levels(table: np.ndarray, levels: list[Level], stencils: list[WeightedRows]) -> np.ndarray:
    r"""Blurs the finest level's rows on every level, finest first, and adds up what the levels give: rows to slice from.

    Shapes:
        - **table**, **output:** rows of all sites of the finest level, :math:`(\text{sites}, C)`
    """
    blurred: list[np.ndarray] = []
    for number, level in enumerate(levels):
        if number > 0:
            table = splat_coarser(table, levels[number - 1], level)
        blurred.append(np.empty_like(table))
        arguments = _blur_arguments(table, level, *stencils[number])
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
    row_key = level.keys.of_prefix(rows.prefix) + rows.low.astype(np.uint64)
    weight = np.append(weights, 0.0).astype(table.dtype)[rows.orbit]
    offsets = int((np.diff(rows.start) * rows.length).sum())
    grain = rows_of_work(len(level.first), table.size * offsets, GRAIN)
    first, last = (np.append(keys, NO_KEY) for keys in (level.first, level.last))
    segments = first, last, level.place, level.prefix
    return grain, *segments, row_key, rows.prefix, rows.start, rows.length, weight, table.reshape(-1)


def level_stencils(scheme: MultiScale, dim: int, finest: int) -> list[WeightedRows]:
    """Returns the stencils of the levels from ``finest`` on, with weights for one of the averaged lattices."""
    levels = zip(scheme.hops[finest:], multiscale_weights(scheme, dim).weights[finest:], strict=True)
    return [(direct_rows(dim, hops), weights / scheme.lattices) for hops, weights in levels]


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
    rows: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for offset, number in zip(offsets.tolist(), orbit.tolist(), strict=True):
        rows.setdefault(tuple(offset[:-1]), []).append((offset[-1], number))
    groups: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for prefix in sorted(rows):
        groups.setdefault(tuple(number for _, number in sorted(rows[prefix])), []).append(prefix)
    taps = -(-max(map(len, groups)) // TAPS) * TAPS
    prefixes = [prefix for group in groups.values() for prefix in group]
    return StencilRows(
        prefix=np.array(prefixes, np.int64).reshape(len(prefixes), -1),
        low=np.array([min(rows[prefix])[0] for prefix in prefixes], np.int64),
        start=np.cumsum([0, *map(len, groups.values())], dtype=np.int64),
        length=np.array([len(orbits) for orbits in groups], np.int64),
        orbit=np.array([[*orbits, *[-1] * (taps - len(orbits))] for orbits in groups], np.int64),
    )


# Places in flat arrays are unsigned, which Numba does not check for a sign.


@helper
def add_run(out, o, weight, table, t, count):
    """Adds weight * table[t : t + count] to out[o : o + count]."""
    for c in range(count):
        out[o + c] += weight * table[t + c]


@helper
def add_taps(out, o, weight, g, q, line, t, step, count):
    """Adds to out[o : o + count] four parts of the line, ``step`` apart from t on, times weight[g, q] to weight[g, q + 3]."""
    w0, w1, w2, w3 = weight[g, q], weight[g, q + 1], weight[g, q + 2], weight[g, q + 3]
    t1, t2, t3 = t + step, t + step + step, t + step + step + step
    for c in range(count):
        out[o + c] += w0 * line[t + c] + w1 * line[t1 + c] + w2 * line[t2 + c] + w3 * line[t3 + c]


@helper
def lies_on_row(prefix, a, b, row_prefix, r):
    """Tells whether segment b really lies on the r-th row of the stencil around segment a; hashed keys may collide."""
    for j in range(prefix.shape[1]):
        if prefix[b, j] - prefix[a, j] != row_prefix[r, j]:
            return False
    return True


@helper
def turn_back(last, lead, row_key, pointer):
    """Moves pointers back to the first segment where a hashed key has wrapped around."""
    for r in range(pointer.shape[0]):
        if pointer[r] > 0 and last[pointer[r] - np.uint64(1)] >= lead + row_key[r]:
            pointer[r] = 0


@helper
def find_rows(first, last, lead, span, row_key, begin, end, pointer, found):
    """Lists which of the rows ``begin`` to ``end`` of the stencil meet a segment, and returns how many do.

    A row reads ``span`` places from key ``lead + row_key[r]`` on.  As ``lead`` moves up the sorted segments, so do the segments
    that are read: ``pointer[r]``, the first one that does not end before these places, only moves forward.
    """
    count = 0
    for r in range(begin, end):
        lowest, b = lead + row_key[r], pointer[r]
        for _ in range(STEPS):
            b += np.uint64(last[b] < lowest)
        while last[b] < lowest:
            b += np.uint64(1)
        pointer[r] = b
        found[count] = r
        count += first[b] < lowest + span
    return count


@kernel(
    "int64, int64, uint64[::1], uint64[::1], int32[::1], int32[:, ::1], uint64[::1], int64[:, ::1], int64[::1], int64[::1], "
    "real[:, ::1], real[::1], real[:, ::1]"
)
def blur_segments(begin, end, first, last, place, prefix, row_key, row_prefix, start, length, weight, table, out):
    """Blurs the rows of segments, piece by piece; :data:`NO_KEY` is behind the keys of all segments.

    A row of the stencil takes a piece to one or few segments.  What the rows of a group read there is added up in a line, which
    is longer than the piece by the offsets of a row; its shifted parts, times the weights, are added to the piece.
    """
    segments, width, one = np.uint64(place.shape[0]), np.uint64(out.shape[1]), table.dtype.type(1)
    flat, line = out.reshape(-1), np.empty((PIECE + weight.shape[1] + TAPS) * out.shape[1], table.dtype)
    pointer, found = np.empty(row_key.shape[0], np.uint64), np.empty(row_key.shape[0] + 1, np.int64)
    for r in range(row_key.shape[0]):
        pointer[r] = lower_bound(last, first[begin] + row_key[r])
    for a in range(begin, end):
        sites = np.int64(last[a] - first[a]) + 1
        for skipped in range(0, sites, PIECE):
            count, lead = min(PIECE, sites - skipped), first[a] + np.uint64(skipped)
            o, size = np.uint64(place[a] + skipped) * width, np.uint64(count) * width
            for c in range(size):
                flat[o + c] = 0
            if prefix.shape[0] > 0:
                turn_back(last, lead, row_key, pointer)
            for g in range(length.shape[0]):
                span = np.uint64(count + length[g] - 1)
                rows = find_rows(first, last, lead, span, row_key, start[g], start[g + 1], pointer, found)
                if rows == 0:
                    continue
                if length[g] > 1:
                    for c in range((span + np.uint64(TAPS - 1)) * width):
                        line[c] = 0
                for f in range(rows):
                    r = found[f]
                    b, lowest, highest = pointer[r], lead + row_key[r], lead + row_key[r] + span - np.uint64(1)
                    while b < segments and first[b] <= highest:
                        if prefix.shape[0] == 0 or lies_on_row(prefix, a, b, row_prefix, r):
                            low = max(lowest, first[b])
                            i, t = (low - lowest) * width, (np.uint64(place[b]) + low - first[b]) * width
                            run = (min(highest, last[b]) - low + np.uint64(1)) * width
                            if length[g] > 1:
                                add_run(line, i, one, table, t, run)
                            else:
                                add_run(flat, o + i, weight[g, 0], table, t, run)
                        b += np.uint64(1)
                if length[g] > 1:
                    for q in range(0, length[g], TAPS):
                        add_taps(flat, o, weight, g, q, line, np.uint64(q) * width, width, size)
