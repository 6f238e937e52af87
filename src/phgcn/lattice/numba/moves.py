r"""The moves of the ladder: from the vertices of one step to those of the next, and back.

Every vertex gives half of its row to each of two others: along one direction of the lattice to itself and to its neighbour
(*smoothing*), or to its two parents on the next coarser level (*halving*).  Vertices are in the order of their keys, so that a
move along a direction is a merge of two sorted lists.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...runtime.numba import helper, kernel
from ...runtime.threads import run_rows
from ..ladder import Numbers
from .index import Vertices, coarsen
from .keys import Keys
from .sorting import lower_bound

GRAIN = 4096
"""Least number of vertices that a thread takes."""


class Smoothing(NamedTuple):
    """A pass of A along one direction: every vertex gives half to itself and half to its neighbour.

    Args:
        own, neighbour (np.ndarray): The places of a target's sources in the table before, its end for none, int32, (V',).
        first_target, second_target (np.ndarray): The places of a source's targets in the table behind, int32, (V,).
    """

    own: np.ndarray
    neighbour: np.ndarray
    first_target: np.ndarray
    second_target: np.ndarray


class Halving(NamedTuple):
    """R: every vertex gives half to either parent.

    Args:
        source (np.ndarray): Sources 2v and 2v + 1 are vertex v; (2V,), target by target from ``start`` on, (V' + 1,).
        first_target, second_target (np.ndarray): The places of a source's targets in the table behind, int32, (V,).
    """

    source: np.ndarray
    start: np.ndarray
    first_target: np.ndarray
    second_target: np.ndarray


# Index


def vertex_keys(coordinate: np.ndarray, keys: Keys) -> np.ndarray:
    return (coordinate.astype(np.uint64) * keys.multiplier).sum(axis=1, dtype=np.uint64)


def find_smoothing(key: np.ndarray, offset: np.uint64) -> tuple[Smoothing, np.ndarray]:
    """Merges ascending keys with the same keys moved by an offset; returns the pass and the merged keys."""
    count, parts = len(key), -(-len(key) // GRAIN)
    first = np.zeros(parts + 1, np.int64)
    run_rows(count_union, parts, 1, key, offset, first[1:])
    first.cumsum(out=first)
    total = first[-1]
    merged, own, neighbour = np.empty(total, np.uint64), np.empty(total, np.int32), np.empty(total, np.int32)
    to_own, to_neighbour = np.empty(count, np.int32), np.empty(count, np.int32)
    run_rows(write_union, parts, 1, key, offset, first, merged, own, neighbour, to_own, to_neighbour)
    return Smoothing(own, neighbour, to_own, to_neighbour), merged


def find_halving(key: np.ndarray, finer: Keys, coarser: Keys, added: np.ndarray) -> tuple[Halving, np.ndarray]:
    """Finds the parents of vertices with these keys; returns the move and the parents' keys, ascending.

    Parents count from another base: ``added``, (D,), is what is added to their coordinates.
    """
    coordinate = np.empty((len(key), len(finer.multiplier)), np.int32)
    run_rows(read_key_coordinates, len(key), GRAIN, key, finer.shift, coordinate)
    coordinate += 2 * added.astype(np.int32)
    vertices = coarsen(Vertices(coordinate, np.empty(0, np.int32), np.empty(0, np.int32)), coarser)
    parent = np.empty(len(vertices.source), np.int32)
    run_rows(number_parents, len(vertices.coordinate), GRAIN, vertices.source, vertices.start, parent)
    first, second = parent.reshape(-1, 2).T.copy()
    return Halving(vertices.source, vertices.start, first, second), vertex_keys(vertices.coordinate, coarser)


# Reduce and expand


def reduce(table: np.ndarray, moves: list[list[Smoothing | Halving]]) -> list[np.ndarray]:
    """Takes the table of step 0 up the ladder; returns the tables of all steps."""
    half, tables = table.dtype.type(0.5), [table]
    # Behind every table is a row of zeros, for sources that are not there.
    table = np.concatenate([table, np.zeros_like(table[:1])])
    for maps in moves:
        for move in maps:
            count = len(move.own) if isinstance(move, Smoothing) else len(move.start) - 1
            out = np.empty((count + 1, table.shape[1]), table.dtype)
            out[-1] = 0
            if isinstance(move, Smoothing):
                run_rows(average_sources, count, GRAIN, table, move.own, move.neighbour, half, out)
            else:
                run_rows(sum_children, count, GRAIN, table, move.source, move.start, half, out)
            table = out
        tables.append(table[:-1])
    return tables


def expand(tables: list[np.ndarray], moves: list[list[Smoothing | Halving]], numbers: Numbers) -> np.ndarray:
    """Weighs the tables of all steps, and hands them down the ladder by the transposed moves; returns a table of step 0."""
    weight = numbers.weight.astype(tables[0].dtype)
    half, total = tables[0].dtype.type(0.5), weight[-1] * tables[-1]
    for step in range(len(moves) - 1, -1, -1):
        for number, move in enumerate(reversed(moves[step])):
            is_last = number + 1 == len(moves[step]) and weight[step] != 0
            added = tables[step] if is_last else total[:0]
            out = np.empty((len(move.first_target), total.shape[1]), total.dtype)
            targets = move.first_target, move.second_target
            run_rows(average_targets, len(out), GRAIN, total, *targets, half, added, weight[step], out)
            total = out
    return total


# Kernels


@helper
def union_part(part, key, offset):
    """Returns where a part begins and ends among the keys, and among the moved keys.

    Moved keys below the first key belong to the first part, those above the last to the last.
    """
    begin, end = part * GRAIN, min(key.shape[0], (part + 1) * GRAIN)
    first, last = np.int64(0), np.int64(key.shape[0])
    if begin > 0 and np.int64(key[begin]) > np.int64(offset):
        first = np.int64(lower_bound(key, key[begin] - offset))
    if end < key.shape[0]:
        last = np.int64(lower_bound(key, key[end] - offset)) if np.int64(key[end]) > np.int64(offset) else np.int64(0)
    return begin, first, end, last


@kernel("int64, int64, uint64[::1], uint64, int64[::1]")
def count_union(begin, end, key, offset, count):
    """Counts the keys of each part, ``GRAIN`` keys and all moved keys up to the next part's first, each once."""
    for part in range(begin, end):
        a, b, last, last_b = union_part(part, key, offset)
        total = 0
        while a < last or b < last_b:
            x = key[a] if a < last else np.uint64(0xFFFFFFFFFFFFFFFF)
            y = key[b] + offset if b < last_b else np.uint64(0xFFFFFFFFFFFFFFFF)
            a += x <= y
            b += y <= x
            total += 1
        count[part] = total


@kernel(
    "int64, int64, uint64[::1], uint64, int64[::1], uint64[::1], int32[::1], int32[::1], int32[::1], int32[::1]"
)  # fmt: skip
def write_union(begin, end, key, offset, first, merged, own, neighbour, to_own, to_neighbour):
    """Writes the union of each part, the places that its keys come from, and the places that they go to."""
    for part in range(begin, end):
        a, b, last, last_b = union_part(part, key, offset)
        place = first[part]
        while a < last or b < last_b:
            x = key[a] if a < last else np.uint64(0xFFFFFFFFFFFFFFFF)
            y = key[b] + offset if b < last_b else np.uint64(0xFFFFFFFFFFFFFFFF)
            merged[place] = min(x, y)
            own[place] = neighbour[place] = key.shape[0]
            if x <= y:
                own[place], to_own[a] = a, place
                a += 1
            if y <= x:
                neighbour[place], to_neighbour[b] = b, place
                b += 1
            place += 1


@kernel("int64, int64, uint64[::1], uint64[::1], int32[:, ::1]")
def read_key_coordinates(begin, end, key, shift, out):
    """Reads the coordinates of vertices from their keys, in which they begin at bits ``shift``."""
    for v in range(begin, end):
        rest = key[v]
        for j in range(out.shape[1]):
            c = rest >> shift[j]
            rest -= c << shift[j]
            out[v, j] = c


@kernel("int64, int64, int32[::1], int32[::1], int32[::1]")
def number_parents(begin, end, source, start, parent):
    """Writes, for every source of a vertex, the vertex."""
    for v in range(begin, end):
        for a in range(start[v], start[v + 1]):
            parent[source[a]] = v


@kernel("int64, int64, real[:, ::1], int32[::1], int32[::1], real, real[:, ::1]")
def average_sources(begin, end, table, own, neighbour, half, out):
    """Averages the rows at two places."""
    width = np.uint64(table.shape[1])
    for v in range(begin, end):
        p, q = own[v], neighbour[v]
        for c in range(width):
            out[v, c] = half * (table[p, c] + table[q, c])


@kernel("int64, int64, real[:, ::1], int32[::1], int32[::1], real, real[:, ::1]")
def sum_children(begin, end, table, source, start, half, out):
    """Sums half of the rows of the sources of each vertex; sources 2v and 2v + 1 are row v."""
    width = np.uint64(table.shape[1])
    for v in range(begin, end):
        for c in range(width):
            out[v, c] = 0
        for a in range(start[v], start[v + 1]):
            p = source[a] >> 1
            for c in range(width):
                out[v, c] += half * table[p, c]


@kernel("int64, int64, real[:, ::1], int32[::1], int32[::1], real, real[:, ::1], real, real[:, ::1]")
def average_targets(begin, end, table, first, second, half, added, weight, out):
    """Averages the rows at two places, and adds the weighted row of ``added``, unless that is empty."""
    width = np.uint64(table.shape[1])
    for v in range(begin, end):
        p, q = first[v], second[v]
        if added.shape[0] > 0:
            for c in range(width):
                out[v, c] = half * (table[p, c] + table[q, c]) + weight * added[v, c]
        else:
            for c in range(width):
                out[v, c] = half * (table[p, c] + table[q, c])
