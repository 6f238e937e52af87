r"""Points in the very same place, on one rank or on several.

Each rank sends a hash of every place that its points lie in to the rank that the hash belongs to, which tells all ranks those
that several have sent.  Only of such places, usually none, are positions and rows exchanged.
"""

from __future__ import annotations

import numpy as np

from ..lattice.numba.copies import Copies
from .collectives import Ranks
from .lockstep import Array, Gather, Steps, Sum


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


def hash_places(positions: Array, here: Copies | None, ranks: Ranks) -> list[Array]:
    """Hashes the places that this rank's points lie in; returns the hashes that each rank looks after, uint64.

    Args:
        positions (np.ndarray): The positions of this rank's points in double precision, (P, D).
        here (Copies): Which of them lie in the same place; :obj:`None` where there are none.
        ranks (Ranks): The processes.
    """
    codes = np.sort(_hash(positions[_first_points(positions, here)]))
    # Ranks look after ranges of hashes, of about equal size.
    edges = [2**64 * rank // ranks.size for rank in range(1, ranks.size)]
    return np.split(codes, np.searchsorted(codes, np.array(edges, np.uint64)))


def find_copies(positions: Array, here: Copies | None, arrived: list[Array], ranks: Ranks) -> Steps[RankCopies]:
    """Finds the places that points of several ranks lie in.

    Args:
        positions, here, ranks: As in :func:`hash_places`.
        arrived (list of np.ndarray): The hashes that this rank looks after, of each rank.
    """
    none = np.empty(0, np.int64)
    known = np.sort(np.concatenate(arrived))
    several = np.concatenate((yield Gather(np.unique(known[1:][known[1:] == known[:-1]]))))
    if len(several) == 0:
        return RankCopies(here, none, none, 0)
    first = np.arange(len(positions))[_first_points(positions, here)]
    # Two places may have the same hash: positions tell them apart.
    shared = first[np.isin(_hash(positions[first]), several)]
    places = yield Gather(positions[shared])
    _, number = np.unique(np.concatenate(places), axis=0, return_inverse=True)
    begin = sum(len(part) for part in places[: ranks.rank])
    return RankCopies(here, shared, number.reshape(-1)[begin : begin + len(shared)], int(number.max()) + 1)


def _first_points(positions: Array, here: Copies | None) -> Array | slice:
    """Selects one point of each place: the first."""
    if here is None or not here.exist:
        return slice(None)
    first: Array = np.flatnonzero(here.first == np.arange(len(positions)))
    return first


def _hash(positions: Array) -> Array:
    """Hashes positions (P, D) to 64 bits; 0 and -0 are one place."""
    bits = (positions + 0.0).view(np.uint64)
    code = np.zeros(len(bits), np.uint64)
    for k in range(bits.shape[1]):
        code = (code ^ bits[:, k]) * np.uint64(0x9E3779B97F4A7C15)
        code ^= code >> np.uint64(29)
    return code
