r"""Points in the very same place, on one rank or on several.

Each rank sends a hash of every place that its points lie in to the rank that the hash belongs to, which tells whether others
have it too.  Only of places that several ranks have, usually none, are positions and rows exchanged.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..lattice.numba.copies import Copies
from .collectives import Ranks
from .lockstep import Array, Exchange, Gather, Steps, Sum


class RankCopies:
    """Which points of this rank lie in the same place as others, of this rank or of any.

    Args:
        here (Copies): Those of this rank among themselves; :obj:`None` where it has no points.
        shared (np.ndarray): The first points of places that other ranks have too, int64, (S,).
        number (np.ndarray): The numbers of these places among those of all ranks, int64, (S,).
        count (int): How many such places there are.
    """

    def __init__(self, here: Copies | None, shared: Array, number: Array, count: int) -> None:
        self.here, self.shared, self.number, self.count = here, shared, number, count

    def sum(self, rows: Array) -> Steps[Array]:
        """Sums the rows of all points, of all ranks, in the place of each, (P, C)."""
        sums: Array = rows if self.here is None else self.here.sum(rows)
        if self.count == 0:
            return sums
        places = np.zeros((self.count, rows.shape[1]))
        places[self.number] = sums[self.shared]
        total = yield Sum(places)
        if len(self.shared) == 0 or self.here is None:
            return sums
        of_first = np.full(len(rows), -1, np.int64)
        of_first[self.shared] = self.number
        place = of_first[self.here.first]
        return np.where(place[:, None] >= 0, total[place].astype(rows.dtype), sums)


def find_copies(positions: Array, here: Copies | None, ranks: Ranks) -> Steps[RankCopies]:
    """Finds the places that points of several ranks lie in.

    Args:
        positions (np.ndarray): The positions of this rank's points in double precision, (P, D).
        here (Copies): Which of them lie in the same place; :obj:`None` where there are none.
        ranks (Ranks): The processes.
    """
    none = np.empty(0, np.int64)
    if ranks.size == 1:
        return RankCopies(here, none, none, 0)
    first = none if here is None else np.flatnonzero(here.first == np.arange(len(positions)))
    codes = _hash(positions[first])
    home = (codes >> np.uint64(33)) % np.uint64(ranks.size)
    order = np.argsort(home.astype(np.uint16), kind="stable")
    bounds = np.searchsorted(home[order], np.arange(ranks.size + 1))
    arrived = yield Exchange([codes[order[a:b]] for a, b in pairwise(bounds)])
    known = np.sort(np.concatenate(arrived))
    twice = np.unique(known[1:][known[1:] == known[:-1]])
    if (yield Sum(np.array([len(twice)]))).item() == 0:
        return RankCopies(here, none, none, 0)
    on_other_ranks = yield Exchange([np.isin(part, twice) for part in arrived])
    shared = first[order[np.concatenate(on_other_ranks)]]
    places = yield Gather(positions[shared])
    _, number = np.unique(np.concatenate(places), axis=0, return_inverse=True)
    begin = sum(len(part) for part in places[: ranks.rank])
    return RankCopies(here, shared, number.reshape(-1)[begin : begin + len(shared)], int(number.max()) + 1)


def _hash(positions: Array) -> Array:
    """Hashes positions (P, D) to 64 bits; 0 and -0 are one place."""
    bits = (positions + 0.0).view(np.uint64)
    code = np.zeros(len(bits), np.uint64)
    for k in range(bits.shape[1]):
        code = (code ^ bits[:, k]) * np.uint64(0x9E3779B97F4A7C15)
        code ^= code >> np.uint64(29)
    return code
