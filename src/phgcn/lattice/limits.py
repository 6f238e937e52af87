r"""How far from the origin, and in how many dimensions, a lattice can be built."""

from __future__ import annotations

import math

from .coefficients import separable_weights, warn_if_high
from .scheme import MAX_DIMENSION, Scheme, Separable

KEY_LIMIT = 2.0**28
"""The largest lattice coordinate: a key holds it exactly, and double precision leaves a fraction of 24 bits to it."""


def position_limit(dim: int, scheme: Scheme) -> float:
    """Returns the largest coordinate of a position; refuses too many dimensions, and warns of many."""
    if dim > MAX_DIMENSION:
        raise ValueError(f'positions has {dim} dimensions; allowed for a lattice: up to {MAX_DIMENSION}, else method="exact"')
    warn_if_high(dim)
    spacing = separable_weights(scheme, dim)[0] if isinstance(scheme, Separable) else scheme.spacing
    # A row of the Kuhn matrix has at most the length sqrt(2): no coordinate exceeds the sum of a point's by more.
    return KEY_LIMIT * spacing / math.sqrt(2 * dim)
