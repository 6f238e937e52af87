r"""What is wrong with the values of an input, said at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from .coefficients import separable_weights, warn_if_high
from .scheme import MAX_DIMENSION, Exact, MultiScale, Scheme, Separable

KEY_LIMIT = 2.0**28
"""The largest lattice coordinate: a key holds it exactly, and double precision leaves a fraction of 24 bits to it."""


def check_values(positions: Tensor, values: Tensor, queries: Tensor | None, scheme: Scheme) -> None:
    """Checks what can only be seen by looking at positions and values."""
    for name, tensor in (("positions", positions), ("values", values), ("queries", queries)):
        if tensor is not None:
            check_finite(name, tensor)
    if isinstance(scheme, Exact):
        return
    limit = position_limit(positions.size(2), scheme)
    for name, tensor in (("positions", positions), ("queries", queries)):
        if tensor is not None and tensor.numel() > 0 and max(-float(tensor.min()), float(tensor.max())) > limit:
            bad = (tensor.abs() > limit).nonzero()[0]
            _refuse(name, tensor, bad, f"at most {limit:.3g} from the origin after multiplication by decay, for a lattice key")


def check_graphs(**batches: Tensor | None) -> None:
    """Checks the numbers of graphs."""
    for name, index in batches.items():
        if index is not None and index.numel() > 0 and int(index.min()) < 0:
            refuse_graph(name, index)


def refuse_graph(name: str, index: Tensor) -> None:
    """Says which graph number is negative."""
    first = int((index < 0).nonzero()[0])
    raise ValueError(f"{name}[{first}] is {int(index[first])}; allowed: non-negative graph numbers")


def position_limit(dim: int, scheme: MultiScale | Separable) -> float:
    """The largest coordinate that a lattice takes; refuses too many dimensions, and warns of many."""
    if dim > MAX_DIMENSION:
        raise ValueError(f'positions has {dim} dimensions; allowed for a lattice: up to {MAX_DIMENSION}, else method="exact"')
    warn_if_high(dim)
    spacing = separable_weights(scheme, dim)[0] if isinstance(scheme, Separable) else scheme.spacing
    # A row of the Kuhn matrix has at most the length sqrt(2): no coordinate exceeds the sum of a point's by more.
    return KEY_LIMIT * spacing / math.sqrt(2 * dim)


def check_finite(name: str, tensor: Tensor) -> None:
    # A sum is finite only if all terms are, and costs one pass; overflow alone cannot fool it, only cause the full look.
    if not math.isfinite(float(tensor.sum())):
        bad = (~tensor.isfinite()).nonzero()
        if len(bad) > 0:
            _refuse(name, tensor, bad[0], "finite numbers")


def _refuse(name: str, tensor: Tensor, where: Sequence[int] | Tensor, allowed: str) -> None:
    place = [int(i) for i in where]
    raise ValueError(f"{name}{place} is {float(tensor[tuple(place)])}; allowed: {allowed}")
