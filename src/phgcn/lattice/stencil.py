r"""Lists the vertices that a lattice vertex reads in the blur, and which of them share a weight.

Two vertices whose Kuhn coordinates differ by :math:`d \in \mathbb{Z}^D` are ``hops`` apart, where, with
:math:`v = (d, 0)`, :math:`\text{hops} = \max v - \min v`.  The lattice looks the same after any permutation of the
:math:`D+1` entries of :math:`v` and after :math:`v \to -v`.  Offsets that these symmetries map to each other form one
*orbit*: they have one distance and share one weight.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Stencil:
    r"""All offsets within a number of hops.

    Args:
        offsets (np.ndarray): The offsets, in lexicographic order, int64 of shape :math:`(S, D)`.
        orbit (np.ndarray): The orbit of each offset, int64 of shape :math:`(S,)`.
        distance (np.ndarray): The distance of each orbit in units of the shortest lattice vector, :math:`(\text{orbits},)`.
        hops (np.ndarray): The hops of each orbit, int64 of shape :math:`(\text{orbits},)`.
    """

    offsets: NDArray[np.int64]
    orbit: NDArray[np.int64]
    distance: NDArray[np.float64]
    hops: NDArray[np.int64]


def orbit_key(v: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the representative of an orbit, e.g. ``(0, 0, 0, 1, 2)``: sorted, the smaller of itself and its mirror image."""
    low, high = min(v), max(v)
    return min(tuple(sorted(x - low for x in v)), tuple(sorted(high - x for x in v)))


@lru_cache
def orbits(dim: int, hops: int) -> tuple[tuple[int, ...], ...]:
    """Lists the orbits within a number of hops, ordered by hops, then distance."""
    keys = {orbit_key(v) for v in itertools.combinations_with_replacement(range(hops + 1), dim + 1) if min(v) == 0}
    return tuple(sorted(keys, key=lambda v: (max(v), orbit_distance(v), v)))


def orbit_distance(key: tuple[int, ...]) -> float:
    r"""Computes the length :math:`\sqrt{(D+1)/D}\,\lVert v - \bar v \rVert` of an offset, in shortest lattice vectors."""
    v = np.asarray(key, dtype=np.float64)
    dim = len(key) - 1
    return float(np.sqrt((dim + 1) / dim) * np.linalg.norm(v - v.mean()))


@lru_cache
def stencil(dim: int, hops: int) -> Stencil:
    """Builds the stencil of all offsets within ``hops`` hops in ``dim`` dimensions."""
    keys = orbits(dim, hops)
    number = {key: i for i, key in enumerate(keys)}
    rows = sorted(
        (tuple(x - v[-1] for x in v[:-1]), number[orbit_key(v)])
        for v in itertools.product(range(hops + 1), repeat=dim + 1)
        if min(v) == 0
    )
    return Stencil(
        offsets=np.array([offset for offset, _ in rows], dtype=np.int64).reshape(-1, dim),
        orbit=np.array([orbit for _, orbit in rows], dtype=np.int64),
        distance=np.array([orbit_distance(key) for key in keys]),
        hops=np.array([max(key) for key in keys], dtype=np.int64),
    )
