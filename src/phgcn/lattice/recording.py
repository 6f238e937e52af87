r"""Lattices in CUDA graphs: what a filter launches while it is recorded follows from shapes alone.

How many vertices a lattice has is known to the device only.  A filter usually asks it.  While a CUDA graph is recorded it
cannot, and takes every corner of every point's simplex for a vertex of its own, and every level for one that a graph may start
at: the same output, to the bit, with more memory and, for the GPU, more to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

MOST_CORNERS = 2**20
"""Filters of more corners, of all points and heads, are not recorded: they would take gigabytes, and launches are then a small
part of their time."""

_rehearsing = 0  # no context variable: gradients are computed in a thread of their own


def can_be_recorded(points: int, heads: int, dim: int) -> bool:
    """Whether the filter of one graph through a lattice is small enough for a CUDA graph."""
    return points * heads * (dim + 1) <= MOST_CORNERS


@contextmanager
def rehearsal() -> Iterator[None]:
    """Lets filters launch what they will launch while they are recorded, so that all kernels are compiled then."""
    global _rehearsing
    _rehearsing += 1
    try:
        yield
    finally:
        _rehearsing -= 1


def rehearsed() -> bool:
    """Whether this is a rehearsal."""
    return _rehearsing > 0
