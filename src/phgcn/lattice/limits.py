r"""Limits the coordinates and the dimension of points that a lattice is built for."""

from __future__ import annotations

import math

import numpy as np
import torch

from ..checks import check_coordinates
from ..runtime.graphs import GraphGroups
from ..runtime.points import Points
from .coefficients import separable_weights, warn_if_high
from .filter_call import FilterCall
from .scheme import MAX_DIMENSION, Ladder, Scheme, Separable

KEY_LIMIT = 2.0**28
"""Upper bound of a lattice coordinate: keys hold it exactly, and float64 has 24 bits left for the fraction."""


LADDER_LIMIT = 2.0**40
"""Upper bound of a position's coordinates for a ladder, whose vertices count from the points: float64 has bits left."""


def position_limit(dim: int, scheme: Scheme) -> float:
    """Returns the upper bound of a position's coordinates; refuses more than 16 dimensions, warns above 8."""
    if dim > MAX_DIMENSION:
        raise ValueError(f'positions has {dim} dimensions; allowed for a lattice: up to {MAX_DIMENSION}, else method="exact"')
    warn_if_high(dim)
    if isinstance(scheme, Ladder):
        return LADDER_LIMIT
    spacing = separable_weights(scheme, dim).spacing if isinstance(scheme, Separable) else scheme.spacing
    # The rows of the Kuhn matrix have at most length sqrt(2), and a point with coordinates up to x has length sqrt(dim) x.
    return KEY_LIMIT * spacing / math.sqrt(2 * dim)


def check_limits(points: Points, groups: GraphGroups, call: FilterCall) -> None:
    """Checks the coordinates of the graphs that are filtered."""
    limit = position_limit(points.positions.size(2), call.scheme)
    for name, tensor, order in (
        ("positions", points.positions, groups.key_order),
        ("queries", points.queries, groups.query_order),
    ):
        if tensor is None or tensor.numel() == 0 or max(-float(tensor.min()), float(tensor.max())) <= limit:
            continue
        parts = [pair[name == "queries"] for pair in groups.slices(more_than=call.more_than)]
        filtered = np.sort(np.concatenate([order[:0], *(order[part] for part in parts)]))
        check_coordinates(name, tensor, limit, torch.from_numpy(filtered).to(tensor.device))
