r"""Joins small clouds into one lattice, far apart from each other, so that a batch of thousands of graphs sets up one lattice
and not thousands.

Each cloud keeps its own coordinates.  A whole number, different for each cloud, is added to the first coordinate of its
vertices after rounding down: no bit of a cloud's output depends on the others.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..coefficients import multiscale_weights, separable_weights
from ..scheme import Ladder, MultiScale, Scheme, Separable
from .cells import count_cells
from .keys import choose_keys
from .locate import NOT_JOINED, kuhn_coordinates, with_extent

SMALL = 64
"""Upper bound of the points of a cloud that is joined with others."""

MOST = 4096
"""Upper bound of the points of all clouds that are joined together."""

Slices = tuple[slice, slice]


def join_clouds(points: np.ndarray, slices: list[Slices], scheme: Scheme) -> Iterator[tuple[Slices, np.ndarray]]:
    """Yields the clouds of a head that attend to themselves, small ones joined where they lie side by side.

    Args:
        points (np.ndarray): Packed positions of all clouds, (N, D).
        slices (list): Where each cloud's keys, and queries, lie among them.
        scheme (Scheme): The lattices.

    Yields:
        Where the points lie, and the first point of each joined cloud, counted from there; none for one cloud.
    """
    small = 0 if isinstance(scheme, Ladder) else SMALL
    if isinstance(scheme, MultiScale):  # so few points that all clouds have the coarsest level as their finest
        small = min(SMALL, scheme.pairs) if len(scheme.hops) > 1 else 0
    waiting: list[Slices] = []
    for pair in slices:
        key = pair[0]
        size = key.stop - key.start
        alone = size > small or bool((points[key] == points[key.start]).all())
        if waiting and (alone or waiting[-1][0].stop != key.start or key.stop - waiting[0][0].start > MOST):
            yield from _joined(points, waiting, scheme)
            waiting = []
        if alone:
            yield pair, NOT_JOINED
        else:
            waiting.append(pair)
    yield from _joined(points, waiting, scheme)


def _joined(points: np.ndarray, clouds: list[Slices], scheme: Scheme) -> Iterator[tuple[Slices, np.ndarray]]:
    if len(clouds) > 1:
        whole = slice(clouds[0][0].start, clouds[-1][0].stop)
        starts = np.array([key.start - whole.start for key, _ in clouds])
        if _fit_keys(points[whole], starts, scheme):
            yield (whole, whole), starts
            return
    for pair in clouds:
        yield pair, NOT_JOINED


def _fit_keys(points: np.ndarray, starts: np.ndarray, scheme: Scheme) -> bool:
    """Tells whether the keys of the joined clouds' vertices and cells fit without hashing; hashes would sort in another
    order."""
    dim = points.shape[1]
    assert not isinstance(scheme, Ladder)
    if isinstance(scheme, Separable):
        spacing, weights, _ = separable_weights(scheme, dim)
        return not kuhn_coordinates(points, spacing, (len(weights) - 1,), 0, starts).keys(0).hashed
    frames = (kuhn_coordinates(points, scheme.spacing, scheme.hops, number, starts) for number in range(scheme.lattices))
    if any(frame.keys(0).hashed for frame in frames):
        return False
    radii = multiscale_weights(scheme, dim).radius[1:]
    return not any(choose_keys(count_cells(with_extent(points), r, starts)[2]).hashed for r in radii)
