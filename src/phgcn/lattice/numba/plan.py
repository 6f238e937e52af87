r"""The plan of the Numba backend."""

from __future__ import annotations

from torch import Tensor

from ...kernels.points import Points
from ..scheme import Scheme


def empty_plan(points: Points, scheme: Scheme) -> list[Tensor]:
    """Allocates the plan, not filled in."""
    return []
