r"""Limits the coordinates and the dimension of points that a lattice is built for."""

from __future__ import annotations

import math

from .coefficients import separable_weights, warn_if_high
from .scheme import MAX_DIMENSION, Scheme, Separable

KEY_LIMIT = 2.0**28
"""Upper bound of a lattice coordinate: keys hold it exactly, and float64 has 24 bits left for the fraction."""


def position_limit(dim: int, scheme: Scheme) -> float:
    """Returns the upper bound of a position's coordinates; refuses more than 16 dimensions, warns above 8."""
    if dim > MAX_DIMENSION:
        raise ValueError(f'positions has {dim} dimensions; allowed for a lattice: up to {MAX_DIMENSION}, else method="exact"')
    warn_if_high(dim)
    spacing = separable_weights(scheme, dim).spacing if isinstance(scheme, Separable) else scheme.spacing
    # The rows of the Kuhn matrix have at most length sqrt(2), and a point with coordinates up to x has length sqrt(dim) x.
    return KEY_LIMIT * spacing / math.sqrt(2 * dim)
