r"""Chooses the finest level of each cloud, from its points alone: the other graphs of a batch do not matter."""

from __future__ import annotations

import math
from collections.abc import Callable

from .coefficients import MultiScaleWeights
from .scheme import MultiScale

FLOOR = 1e-8
"""Lower bound of the softmax denominator in cross-attention, times the mean of all values in the numerator: a query far from
all keys gets their mean instead of 0 / 0."""


def finest_level(scheme: MultiScale, fitted: MultiScaleWeights, mean_pairs: Callable[[float], float]) -> int:
    r"""Chooses the finest level :math:`\kappa` of a cloud: the coarsest whose near field has few enough pairs.

    The mean over all points decides: a collapsed cluster has many pairs and keeps the lattice, so the cost stays linear.

    Args:
        scheme (MultiScale): The filter.
        fitted (MultiScaleWeights): Its weights.
        mean_pairs (Callable): Estimates how many keys a query has within a radius, on average.
    """
    if scheme.near_field is not None:
        return scheme.near_field
    level = 0
    while level + 1 < len(scheme.hops) and mean_pairs(fitted.radius[level + 1]) <= scheme.pairs:
        level += 1
    return level


def mean_pairs_cell(dim: int, radius: float) -> float:
    """Computes the side of the cube with the volume of a ball of this radius.

    The points of a grid cell then stand for those within the radius, which makes counting pairs linear.
    """
    side: float = radius * math.pi**0.5 / math.gamma(dim / 2 + 1) ** (1 / dim)
    return side
