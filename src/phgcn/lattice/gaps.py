"""Closes wide gaps in a cloud, so that one far point does not cost the ladder its resolution.

The key of a vertex has 63 bits: a lattice over a very wide cloud cannot be fine. Most wide clouds
are mostly empty. Coordinates are cut into bins of width :data:`GAP`; points beyond several empty
bins in a row move nearer, so that one is left. The weight of a pair across a gap is next to 0
before and after. All other pairs keep their distance."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

GAP = 64.0  # the width of a bin in units of 1/λ: a weight of less than 1e-27

# offset that makes bin indices positive, and the first bit of the coordinate in a key
FIRST, BITS = 1 << 38, 40


def has_gaps(width: float, dim: int) -> bool:
    """Returns whether the widest coordinate's extent ``width`` requires that gaps are closed."""
    return width > max(4 * GAP, 2.0 ** (63 // dim - 3))


def close_gaps(points: Tensor, union: Callable[[Tensor], Tensor] = lambda key: key) -> Tensor:
    """Moves the points of a cloud (P, D) towards 0 by multiples of :data:`GAP`, until no gap is
    wide. The result has derivative 1 by the points. ``union`` returns the sorted distinct bins of
    all processes."""
    index = (points.detach().double() / GAP).floor().long() + FIRST
    key = index + (torch.arange(points.size(1), device=points.device) << BITS)
    occupied = union(key.unique())
    coordinate, number = occupied >> BITS, (occupied & ((1 << BITS) - 1)) - FIRST
    same = coordinate[1:] == coordinate[:-1]
    empty = torch.where(same, number.diff() - 2, 0).clamp(min=0)
    moved = torch.cat([empty.new_zeros(1), empty.cumsum(0)])
    least = torch.stack([number[coordinate == j].abs().argmin() for j in range(points.size(1))])
    start = torch.searchsorted(coordinate, torch.arange(points.size(1), device=points.device))
    shift = GAP * (moved - moved[start + least][coordinate])
    return points - shift[torch.searchsorted(occupied, key)].to(points.dtype)
