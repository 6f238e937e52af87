r"""Chooses the finest level of each cloud, from its points alone: the other graphs of a batch do not matter."""

from __future__ import annotations

import math
from collections.abc import Callable

from .coefficients import MultiScaleWeights
from .scheme import MultiScale

FLOOR = 1e-8
"""Lower bound of the softmax denominator in cross-attention, times the mean of all values in the numerator: a query far from
all keys gets their mean instead of 0 / 0."""


CELL_DIMENSIONS = 4
"""Cells of the near field divide at most so many coordinates, those of largest extent: each further one would triple the rows
of cells around a point."""

CANDIDATES = 1024
"""Upper bound of the mean number of keys in a query's cell, in more dimensions than cells divide: the near field looks at all
of them, though few are near."""


def finest_level(
    scheme: MultiScale, fitted: MultiScaleWeights, mean_pairs: Callable[[float], float],
    mean_candidates: Callable[[float], float] | None = None,
) -> int:  # fmt: skip
    r"""Chooses the finest level :math:`\kappa` of a cloud: the coarsest whose near field has few enough pairs.

    The mean over all points decides: a collapsed cluster has many pairs and keeps the lattice, so the cost stays linear.

    Args:
        scheme (MultiScale): The filter.
        fitted (MultiScaleWeights): Its weights.
        mean_pairs (Callable): Estimates how many keys a query has within a radius, on average.
        mean_candidates (Callable, optional): Estimates how many keys share a query's cell over :data:`CELL_DIMENSIONS`
            coordinates, on average; :obj:`None` where there are no others. (default: :obj:`None`)
    """
    if scheme.near_field is not None:
        return scheme.near_field

    def is_cheap(radius: float) -> bool:
        return mean_pairs(radius) <= scheme.pairs and (mean_candidates is None or mean_candidates(radius) <= CANDIDATES)

    level = 0
    while level + 1 < len(scheme.hops) and is_cheap(fitted.radius[level + 1]):
        level += 1
    return level


def mean_pairs_cell(dim: int, radius: float) -> float:
    """Computes the side of the cube with the volume of a ball of this radius.

    The points of a grid cell then stand for those within the radius, which makes counting pairs linear.
    """
    side: float = radius * math.pi**0.5 / math.gamma(dim / 2 + 1) ** (1 / dim)
    return side
