r"""Copies over ranks: points in the very same place, which weigh 1 on each other wherever they are.

Ranks exchange one hash of each point's coordinates, and the summed rows of places that several points have.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .lockstep import Array, Gather, Steps, Sum


class RankCopies(NamedTuple):
    """The points of this rank that share their place with others, on any rank.

    Shapes:
        - **point:** their numbers, **place:** the number of the place of each, int64, (S,)
        - **places:** how many such places all ranks have
    """

    point: Array
    place: Array
    places: int

    def sum(self, rows: Array) -> Steps[Array]:
        """Sums the rows of all points in the place of each, (P, C); the rows themselves where there are no copies."""
        if self.places == 0:
            return rows
        sums = np.zeros((self.places, rows.shape[1]))
        np.add.at(sums, self.place, rows[self.point])
        sums = yield Sum(sums)
        out: Array = rows.copy()
        out[self.point] = sums[self.place]
        return out


def find_copies(points: Array) -> Steps[RankCopies]:
    """Finds the points, (P, D), that have the coordinates of others."""
    codes = hash_places(points)
    every = np.concatenate((yield Gather(codes.view(np.float64)[:, None]))).reshape(-1).view(np.uint64)
    code, count = np.unique(every, return_counts=True)
    shared = code[count > 1]
    place = np.searchsorted(shared, codes)
    has_copies = np.append(shared, np.uint64(0))[place] == codes if len(shared) > 0 else np.zeros(len(codes), bool)
    has_copies &= place < len(shared)
    return RankCopies(np.flatnonzero(has_copies), place[has_copies], len(shared))


def hash_places(points: Array) -> Array:
    """Computes a hash of the coordinates of each point, uint64, (P,)."""
    bits = (points.astype(np.float64) + 0.0).view(np.uint64)  # -0 and 0 are one place
    codes = np.zeros(len(points), np.uint64)
    for coordinate in bits.T:
        codes = (codes ^ coordinate) * np.uint64(0x9E3779B97F4A7C15)
        codes ^= codes >> np.uint64(29)
    return codes
