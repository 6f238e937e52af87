"""The weights of the paper's filter, a few for each dimension."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .scheme import Separable

# spacing, scale and weights by dimension, fitted to exact attention over five clouds; the script is
# gone
FITTED = {
    1: (0.7, 0.93763, (1.0, 0.2269, 0.0677, 0.0731)),
    2: (1.0, 1.06435, (1.0, 0.2774, 0.0886, 0.0735)),
    3: (1.4, 1.17352, (1.0, 0.2642, 0.0673, 0.0549)),
    4: (1.4, 1.08305, (1.0, 0.3598, 0.0838, 0.1521)),
    5: (2.0, 1.17852, (1.0, 0.2382, 0.0382, 0.0787)),
    6: (2.0, 1.21594, (1.0, 0.2763, 0.1144, 0.2313)),
    7: (2.0, 1.18312, (1.0, 0.3059, 0.1036, 0.4317)),
    8: (2.0, 1.14790, (1.0, 0.3632, 0.1583, 0.5875)),
}


class SeparableWeights(NamedTuple):
    """The weights of a separable scheme in one dimension. ``weights`` of the centre and of each hop
    are float64, (hops + 1,); ``scale`` is the factor of plain sums."""

    spacing: float
    weights: NDArray[np.float64]
    scale: float


@lru_cache
def separable_weights(scheme: Separable, dim: int) -> SeparableWeights:
    spacing, scale, weights = FITTED[dim]
    if scheme.weights is None:
        return SeparableWeights(scheme.spacing or spacing, np.array(weights), scale)
    return SeparableWeights(scheme.spacing or spacing, np.array(scheme.weights), 1.0)


def directions(dim: int) -> NDArray[np.int64]:
    """Returns the unit vectors and all ones as the passes' Kuhn directions, (D + 1, D)."""
    return np.concatenate([np.eye(dim, dtype=np.int64), np.ones((1, dim), np.int64)])
