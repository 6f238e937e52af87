"""The moves of the ladder: from the vertices of one step to the next, and back.

Vertices are sorted by key, and each move keeps the order within a few lists, so that merging sorted
lists finds the vertices behind it. :math:`A` is a pass along every direction, two at a time: a
vertex gives a quarter to each of four.

:math:`R A^2` leads from :math:`T_k` to :math:`T_{k+1}` through many more vertices than either has.
It is the same as :math:`2^D A^3` read at the even vertices only. So the last direction is taken
first, by one pass with the weights 1, 3, 3, 1 over 8. Along each coordinate, a vertex then gives
3/4 and 1/4 to the two nearest vertices that are even in it, which halves the number of vertices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...runtime.numba import helper, kernel
from ...runtime.threads import run_rows
from ..ladder import Numbers
from .keys import KEY_BITS, Keys

GRAIN = 4096  # least number of vertices that a thread takes
LAST = 2**63 - 1  # upper bound of a key


class Move(NamedTuple):
    """A map between two tables of vertices.

    Shapes:
        - **source:** row indices of each target's sources, :math:`V` for none, int32, :math:`(V',
          K)`
        - **target:** row indices of each source's targets, int32, :math:`(V, L)`
        - **source_weight**, **target_weight:** the weight of each column, float64, :math:`(K,)`,
          :math:`(L,)`
    """

    source: np.ndarray
    target: np.ndarray
    source_weight: np.ndarray
    target_weight: np.ndarray


class Octave(NamedTuple):
    """A level of the lattice: its keys, and the moves that lead from it.

    Args:
        key (np.ndarray): The keys of the vertices of :math:`T_k`, ascending, int64, (V,).
        smooth_key (np.ndarray): The keys of the vertices of :math:`U_k`, empty if it has no weight.
        smooth (list[Move]): The moves from :math:`T_k` to :math:`U_k`.
        coarsen (list[Move]): The moves from :math:`T_k` to :math:`T_{k+1}`; empty on the last
            level.
    """

    key: np.ndarray
    smooth_key: np.ndarray
    smooth: list[Move]
    coarsen: list[Move]


# Index


def vertex_key(coordinate: np.ndarray, keys: Keys) -> int:
    return int((coordinate.astype(np.int64) * keys.multiplier.astype(np.int64)).sum())


def find_smoothing(key: np.ndarray, keys: Keys) -> tuple[list[Move], np.ndarray]:
    """Finds the moves of A, and the keys of its vertices."""
    moves, steps = [], keys.multiplier.astype(np.int64)
    offsets = [*steps.tolist(), -int(steps.sum())]
    for first in range(0, len(offsets), 2):
        sums = [0, offsets[first]]
        for offset in offsets[first + 1 : first + 2]:
            sums += [offset, offset + offsets[first]]
        move, key = _find_pass(key, sums, [1.0] * len(sums))
        moves.append(move)
    return moves, key


def find_coarsening(key: np.ndarray, keys: Keys) -> tuple[list[Move], np.ndarray]:
    """Finds the moves of :math:`R A^2`, and the keys of its vertices."""
    back = -int(keys.multiplier.astype(np.int64).sum())
    move, key = _find_pass(key, [0, back, 2 * back, 3 * back], [1.0, 3.0, 3.0, 1.0])
    moves = [move]
    shifts = [int(shift) for shift in keys.shift]
    for shift, end in zip(shifts, [KEY_BITS, *shifts], strict=False):
        halved, order, evens = _halve(key, shift, end - shift)
        unit = 1 << shift
        lists = [(0, evens), (0, evens), (evens, len(key)), (evens, len(key))]
        source, target, key = _unite(halved, order, lists, [unit, 0, 0, unit], [0, 1, 0, 1])
        moves.append(
            Move(source, target, np.array([0.75, 0.25, 0.75, 0.25]), np.array([0.75, 0.25]))
        )
    return moves, key


def _find_pass(
    key: np.ndarray, offsets: list[int], weights: list[float]
) -> tuple[Move, np.ndarray]:
    """Finds the move of each vertex's row to the vertices at ``offsets`` from its key, and their
    keys. ``weights`` are normalised to the sum 1."""
    order, weight = np.arange(len(key), dtype=np.int32), np.array(weights) / sum(weights)
    source, target, key = _unite(
        key, order, [(0, len(key))] * len(offsets), offsets, list(range(len(offsets)))
    )
    return Move(source, target, weight, weight), key


def _halve(key: np.ndarray, shift: int, bits: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Halves one coordinate of ascending keys, rounded up, formerly even ones first. Returns the
    keys, ascending within both parts; the former index of each, int32; and the number of even ones.
    """
    parts = -(-len(key) // GRAIN)
    first = np.zeros(parts + 1, np.int64)
    run_rows(count_even, parts, 1, key, shift, first[1:])
    first.cumsum(out=first)
    halved, order = np.empty_like(key), np.empty(len(key), np.int32)
    run_rows(part_by_parity, parts, 1, key, shift, (1 << bits) - 1, first, halved, order)
    return halved, order, int(first[-1])


def _unite(
    key: np.ndarray,
    order: np.ndarray,
    lists: list[tuple[int, int]],
    offsets: list[int],
    slots: list[int],
):
    """Merges up to four ascending lists of keys. Equal keys become one vertex. Returns sources and
    targets of a :class:`Move`, and the merged keys.

    Args:
        key, order (np.ndarray): Keys, and the row index of each in the source table, (V,).
        lists (list): Begin and end of each list within ``key``.
        offsets (list): The number added to the keys of each list.
        slots (list): The column of ``target`` that each list fills.
    """
    count, offset = len(key), np.array([*offsets, 0, 0][:4], np.int64)
    splits = np.sort(key[GRAIN::GRAIN])
    bounds = np.zeros((len(splits) + 2, 4), np.int64)
    for k, (begin, end) in enumerate(lists):
        bounds[:, k] = [begin, *(begin + np.searchsorted(key[begin:end], splits - offset[k])), end]
    first = np.zeros(len(bounds), np.int64)
    run_rows(count_union, len(bounds) - 1, 1, key, offset, bounds, first[1:])
    first.cumsum(out=first)
    merged, source = np.empty(first[-1], np.int64), np.empty((first[-1], len(lists)), np.int32)
    target, slot = (
        np.empty((count, max(slots) + 1), np.int32),
        np.array([*slots, 0, 0][:4], np.int64),
    )
    run_rows(
        write_union,
        len(bounds) - 1,
        1,
        key,
        order,
        offset,
        bounds,
        slot,
        first,
        merged,
        source,
        target,
    )
    return source, target, merged


# Reduce and expand


def reduce(table: np.ndarray, octaves: Sequence[Octave]) -> list[np.ndarray]:
    """Moves a table (V, C) up the ladder; the table of a step without weight is empty."""
    tables, table = [], np.concatenate([table, np.zeros_like(table[:1])])
    for octave in octaves:
        tables += [table[:-1], _hand_up(table, octave.smooth)[:-1] if octave.smooth else table[:0]]
        table = _hand_up(table, octave.coarsen)
    return tables


def expand(tables: list[np.ndarray], octaves: Sequence[Octave], numbers: Numbers) -> np.ndarray:
    """Multiplies all steps' tables by weights and moves them down to step 0, (V, C)."""
    weight = [*numbers.weight.tolist(), 0.0]
    total = tables[0][:0]
    for level in range(len(octaves) - 1, -1, -1):
        own, smooth = tables[2 * level : 2 * level + 2]
        of_own, of_smooth = weight[2 * level : 2 * level + 2]
        if octaves[level].coarsen:
            total = _hand_down(
                total, octaves[level].coarsen, 1.0, own if of_own > 0 else own[:0], of_own
            )
        else:
            total = own.dtype.type(of_own) * own
        if octaves[level].smooth:
            total = _hand_down(smooth, octaves[level].smooth, of_smooth, total, 1.0)
    return total


def _hand_up(table: np.ndarray, moves: list[Move]) -> np.ndarray:
    """Applies moves to a table (V+1, C): each target gets the weighted sum of its sources. The last
    row is 0 and stands for missing sources."""
    for move in moves:
        out = np.empty((len(move.source) + 1, table.shape[1]), table.dtype)
        out[-1] = 0
        _gather(table, move.source, move.source_weight, table[:0], 0.0, out[:-1])
        table = out
    return table


def _hand_down(
    table: np.ndarray, moves: list[Move], factor: float, added: np.ndarray, added_factor: float
) -> np.ndarray:
    """Applies transposed moves to ``factor * table``, and adds ``added_factor * added``."""
    for number in range(len(moves) - 1, -1, -1):
        move, of_move = moves[number], (factor, added) if number == 0 else (1.0, added[:0])
        out = np.empty((len(move.target), table.shape[1]), table.dtype)
        _gather(table, move.target, of_move[0] * move.target_weight, of_move[1], added_factor, out)
        table = out
    return table


def _gather(
    table: np.ndarray, index: np.ndarray, weight: np.ndarray, added: np.ndarray, factor: float, out
) -> None:
    real = table.dtype.type
    run_rows(
        gather_rows, len(out), GRAIN, table, index, weight.astype(real), added, real(factor), out
    )


# Kernels


@kernel("int64, int64, int64[::1], int64, int64[::1]")
def count_even(begin, end, key, shift, count):
    """Counts the keys with bit ``shift`` 0 in each chunk of ``GRAIN`` keys."""
    for part in range(begin, end):
        total = 0
        for a in range(part * GRAIN, min(key.shape[0], (part + 1) * GRAIN)):
            total += 1 - ((key[a] >> shift) & 1)
        count[part] = total


@kernel("int64, int64, int64[::1], int64, int64, int64[::1], int64[::1], int32[::1]")
def part_by_parity(begin, end, key, shift, mask, first, halved, order):
    """Halves the coordinate at bit ``shift`` of the keys of each chunk. Even keys go to index
    ``first[part]`` and on, odd ones behind all even ones."""
    for part in range(begin, end):
        even = first[part]
        odd = first[first.shape[0] - 1] + part * GRAIN - even
        for a in range(part * GRAIN, min(key.shape[0], (part + 1) * GRAIN)):
            c = (key[a] >> shift) & mask
            p = odd if c & 1 else even
            order[p], halved[p] = a, key[a] - ((c >> 1) << shift)
            odd += c & 1
            even += 1 - (c & 1)


@helper
def head(key, a, last, offset):
    """Returns the key at the head of a list, or ``LAST`` if the list is empty."""
    return key[a] + offset if a < last else np.int64(LAST)


@kernel("int64, int64, int64[::1], int64[::1], int64[:, ::1], int64[::1]")
def count_union(begin, end, key, offset, bounds, count):
    """Counts the distinct keys of each part of four lists."""
    f0, f1, f2, f3 = offset[0], offset[1], offset[2], offset[3]
    for part in range(begin, end):
        a0, a1, a2, a3 = bounds[part, 0], bounds[part, 1], bounds[part, 2], bounds[part, 3]
        b0, b1, b2, b3 = (
            bounds[part + 1, 0],
            bounds[part + 1, 1],
            bounds[part + 1, 2],
            bounds[part + 1, 3],
        )
        total = 0
        while a0 < b0 or a1 < b1 or a2 < b2 or a3 < b3:
            x0, x1, x2, x3 = (
                head(key, a0, b0, f0),
                head(key, a1, b1, f1),
                head(key, a2, b2, f2),
                head(key, a3, b3, f3),
            )
            x = min(min(x0, x1), min(x2, x3))
            a0 += x0 == x
            a1 += x1 == x
            a2 += x2 == x
            a3 += x3 == x
            total += 1
        count[part] = total


@kernel(
    "int64, int64, int64[::1], int32[::1], int64[::1], int64[:, ::1], int64[::1], int64[::1], "
    "int64[::1], int32[:, ::1], "
    "int32[:, ::1]"
)
def write_union(begin, end, key, order, offset, bounds, slot, first, merged, source, target):
    """Writes the union of each chunk of four lists, and the move as ``source`` and ``target``."""
    lists, none = source.shape[1], key.shape[0]
    f0, f1, f2, f3 = offset[0], offset[1], offset[2], offset[3]
    for part in range(begin, end):
        a0, a1, a2, a3 = bounds[part, 0], bounds[part, 1], bounds[part, 2], bounds[part, 3]
        b0, b1, b2, b3 = (
            bounds[part + 1, 0],
            bounds[part + 1, 1],
            bounds[part + 1, 2],
            bounds[part + 1, 3],
        )
        for v in range(first[part], first[part + 1]):
            x0, x1, x2, x3 = (
                head(key, a0, b0, f0),
                head(key, a1, b1, f1),
                head(key, a2, b2, f2),
                head(key, a3, b3, f3),
            )
            x = min(min(x0, x1), min(x2, x3))
            merged[v] = x
            for k in range(lists):
                source[v, k] = none
            if x0 == x:
                source[v, 0] = order[a0]
                target[order[a0], slot[0]] = v
                a0 += 1
            if x1 == x:
                source[v, 1] = order[a1]
                target[order[a1], slot[1]] = v
                a1 += 1
            if x2 == x:
                source[v, 2] = order[a2]
                target[order[a2], slot[2]] = v
                a2 += 1
            if x3 == x:
                source[v, 3] = order[a3]
                target[order[a3], slot[3]] = v
                a3 += 1


@kernel("int64, int64, real[:, ::1], int32[:, ::1], real[::1], real[:, ::1], real, real[:, ::1]")
def gather_rows(begin, end, table, index, weight, added, factor, out):
    """Sums the weighted rows at two or four indices, and adds ``factor`` times the row of ``added``
    unless it is empty."""
    width, is_two = np.uint64(table.shape[1]), index.shape[1] == 2
    a, b = weight[0], weight[1]
    d, e = weight[0] if is_two else weight[2], weight[1] if is_two else weight[3]
    for v in range(begin, end):
        if is_two:
            p, q = index[v, 0], index[v, 1]
            for c in range(width):
                out[v, c] = a * table[p, c] + b * table[q, c]
        else:
            p, q, r, s = index[v, 0], index[v, 1], index[v, 2], index[v, 3]
            for c in range(width):
                out[v, c] = (a * table[p, c] + b * table[q, c]) + (
                    d * table[r, c] + e * table[s, c]
                )
        if added.shape[0] > 0:
            for c in range(width):
                out[v, c] += factor * added[v, c]
