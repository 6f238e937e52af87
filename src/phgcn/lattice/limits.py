"""Limits the coordinates and the dimension of points of a lattice, and the cells that estimate
pairs."""

from __future__ import annotations

import math

from ..runtime.graphs import GraphGroups, checked_groups
from ..runtime.points import Points
from .filter_call import FilterCall
from .scheme import MAX_DIMENSION, Ladder, Scheme
from .separable import separable_weights

# upper bound of a lattice coordinate: keys hold it exactly, and float64 has 24 bits left for the
# fraction
KEY_LIMIT = 2.0**28


# upper bound of a position's coordinates for a ladder, whose vertices count from the points:
# float64 has bits left
LADDER_LIMIT = 2.0**40


def position_limit(dim: int, scheme: Scheme) -> float:
    """Returns the upper bound of coordinates. Refuses too many dimensions."""
    if dim > MAX_DIMENSION:
        raise ValueError(
            f"positions has {dim} dimensions; allowed for a lattice: up to {MAX_DIMENSION}, else "
            f'method="exact"'
        )
    if isinstance(scheme, Ladder):
        return LADDER_LIMIT
    # The rows of the Kuhn matrix have at most length sqrt(2), and a point with coordinates up to x
    # has length sqrt(dim) x.
    return KEY_LIMIT * separable_weights(scheme, dim).spacing / math.sqrt(2 * dim)


def filtered_groups(points: Points, call: FilterCall) -> GraphGroups:
    """Groups points by graph. Checks all values, and the coordinates of filtered graphs."""
    limit = position_limit(points.positions.size(2), call.scheme)
    return checked_groups(points, limit, call.more_than)


# Most coordinates that cells of the near field divide, the widest ones. Each further one would
# triple the rows of cells around a point.
CELL_DIMENSIONS = 4


def mean_pairs_cell(dim: int, radius: float) -> float:
    """Returns the side of the cube with a ball's volume. Points of such a grid cell stand for
    points within the radius, so that counting pairs is linear."""
    side: float = radius * math.pi**0.5 / math.gamma(dim / 2 + 1) ** (1 / dim)
    return side
