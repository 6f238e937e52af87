r"""The plan: what the forward pass of a filter hands to the backward pass, as tensors of shapes that the inputs determine.

Each backend keeps what its own loops need; here are the shapes, which a compiled graph must know without running a kernel.
"""

from __future__ import annotations

from torch import Tensor

from ..runtime.points import Points
from .scheme import MultiScale, Scheme


def count_lattices(scheme: Scheme) -> int:
    """Returns how many lattices a scheme averages."""
    return scheme.lattices if isinstance(scheme, MultiScale) else 1


def empty_plan(backend: str, points: Points, scheme: Scheme) -> list[Tensor]:
    """Allocates the plan of a backend, not filled in."""
    if backend == "numba":
        from .numba.plan import empty_plan as make
    elif backend == "triton":
        from .triton.plan import empty_plan as make
    else:
        return []  # the reference differentiates by autograd
    return make(points, scheme)
