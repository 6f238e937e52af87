r"""Numbers of the near field that all backends share."""

from __future__ import annotations

import math

# Most coordinates that cells of the near field divide, the widest ones.  Each further one would
# triple the rows of cells around a point.
CELL_DIMENSIONS = 4


def mean_pairs_cell(dim: int, radius: float) -> float:
    """Returns the side of the cube with a ball's volume. Points of such a grid cell stand for
    points within the radius, so that counting pairs is linear."""
    side: float = radius * math.pi**0.5 / math.gamma(dim / 2 + 1) ** (1 / dim)
    return side
