r"""Nested boxes: clouds most of whose points lie in a small core, with some far outside.

The levels of a narrow cloud follow the diagonal of its bounding box (:mod:`phgcn.lattice.narrow`).  One point far outside makes
that box wide, and then no level resolves the core.  So a chain of boxes leads from the bounding box of a cloud to that of its
core, each about half as wide as the one before.  The *depth* of a point is the number of boxes that contain it: points of depth
:math:`\ge k` are *box* :math:`k`, those of depth :math:`k` its *ring*.  A pair is filtered on the levels of the smallest box
that contains it (:mod:`phgcn.lattice.nested_sums`).

The core is found by counting: along each coordinate, :data:`TRIMMED` of the points at either end are left out, to whole bins
of the box; again and again, as long as that halves the box.  Counts do not depend on the order of points.  All points of
Gaussians, cubes and clusters of about the same size have depth 0.  Clouds are treated each on its own.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .lone import Normalisers
from .narrow import MAX_OCTAVES, may_be_narrow, widest_narrow
from .scheme import MultiScale

LEAST_POINTS = 1024
"""A cloud with fewer points is not looked at."""

BINS = 64
"""Bins of a box along each coordinate in which points are counted."""

TRIMMED = 1 / 64
"""The share of a box's points that the next smaller box leaves out at most, at either end of a coordinate."""

SHRINKS = 2
"""How many times smaller the diagonal of a box must be than that of the one before, or the search ends."""

LEAST_OCTAVES = 2
"""How many octaves narrower than its cloud, or than the widest narrow cloud, a core is at least: else it gains little."""


def least_normaliser(dim: int) -> float:
    """Returns how great the greatest normaliser of a cloud with a core is at least, per point: that of a cube of which the
    outer quarter of points is missing."""
    return 0.75 * math.exp(-0.6 * math.sqrt(dim))


class Boxes(NamedTuple):
    r"""A box of each cloud.

    Shapes:
        - **low**, **high:** :math:`(\text{clouds}, D)`
    """

    low: Tensor
    high: Tensor

    @property
    def diagonal(self) -> Tensor:
        """The length of each diagonal, 0 without points, (clouds,)."""
        square = torch.zeros_like(self.low[:, 0])
        for side in (self.high - self.low).clamp_min(0).unbind(1):  # one by one: the same bits for any number of clouds
            square = square + side.square()
        return square.sqrt()


def find_depths(given: Normalisers, scheme: MultiScale) -> Tensor | None:
    """Finds the depth of each point in each head, int64, (N H,); :obj:`None` where all are 0, as in cross-attention.

    Args:
        given (Normalisers): What a lattice gave.
        scheme (MultiScale): The lattice.
    """
    dim = given.keys.size(1)
    if not given.to_itself or not may_be_narrow(scheme, dim):
        return None
    count = given.count_by_cloud(given.key_cloud)
    is_wanted = (count >= LEAST_POINTS) & (given.greatest >= least_normaliser(dim) * count)
    if not bool(is_wanted.any()):
        return None
    members = (is_wanted if given.clouds == 1 else is_wanted[given.key_cloud]).expand(len(given.keys)).nonzero().squeeze(1)
    full = _bounding_boxes(given, members)
    core, core_count = _find_cores(given, members, full)
    # A near field sums the pairs of a smaller core exactly.
    is_wanted &= core_count.square() > scheme.pairs * count
    widest = full.diagonal.clamp_max(widest_narrow(dim))
    is_wanted &= core.diagonal * 2**LEAST_OCTAVES <= widest
    if not bool(is_wanted.any()):
        return None
    return _number_depths(given, is_wanted, _octaves(given, full, core, widest))


def _bounding_boxes(given: Normalisers, members: Tensor) -> Boxes:
    """Returns the bounding boxes of some points, of which these are the numbers, on all processes."""
    keys, cloud = given.keys[members].double(), given.key_cloud[members]
    edges = torch.cat([-keys, keys], dim=1)
    farthest = edges.new_full((given.clouds, edges.size(1)), -torch.inf)
    farthest = farthest.scatter_reduce(0, cloud.unsqueeze(1).expand_as(edges), edges, "amax")
    low, high = given.joining.most(farthest).tensor_split(2, dim=1)
    return Boxes(-low, high)


def _find_cores(given: Normalisers, members: Tensor, full: Boxes) -> tuple[Boxes, Tensor]:
    """Returns the box of each cloud's core and how many points it has, (clouds,), from the numbers of the clouds' points and
    their bounding boxes; the whole cloud where nothing is left out."""
    core, core_count = full, given.count_by_cloud(given.key_cloud[members])
    while True:
        inside = members[_is_inside(given, members, core, core_count)]
        smaller, count = _bounding_boxes(given, inside), given.count_by_cloud(given.key_cloud[inside])
        shrinks = (smaller.diagonal * SHRINKS <= core.diagonal) & (core.diagonal > 0) & (count > 0)
        if not bool(shrinks.any()):
            return core, core_count
        core = Boxes(*(torch.where(shrinks.unsqueeze(1), *edges) for edges in zip(smaller, core, strict=True)))
        core_count = torch.where(shrinks, count, core_count)
        members = inside[shrinks[given.key_cloud[inside]]]


def _is_inside(given: Normalisers, members: Tensor, boxes: Boxes, count: Tensor) -> Tensor:
    """Tells which points, of which these are the numbers, are left when the ends of each coordinate are trimmed."""
    cloud, dim = given.key_cloud[members], given.keys.size(1)
    side = boxes.high - boxes.low
    place = (given.keys[members].double() - boxes.low[cloud]) / torch.where(side > 0, side, 1)[cloud]
    bins = (place * BINS).long().clamp_max(BINS - 1)
    coordinate = cloud.unsqueeze(1) * dim + torch.arange(dim, device=cloud.device)
    counts = torch.bincount((coordinate * BINS + bins).flatten(), minlength=given.clouds * dim * BINS)
    below = given.joining.total(counts).view(given.clouds, dim, BINS).cumsum(dim=2)
    allowed = (count * TRIMMED).long().view(-1, 1, 1)
    first, last = (below <= allowed).sum(dim=2), (below < count.view(-1, 1, 1) - allowed).sum(dim=2)
    return ((bins >= first[cloud]) & (bins <= last[cloud])).all(dim=1)


def _octaves(given: Normalisers, full: Boxes, core: Boxes, widest: Tensor) -> Tensor:
    """Counts the boxes that contain each point, (N H,): that of the core, twice as wide ones, and so on up to half ``widest``,
    (clouds,)."""
    cloud, keys = given.key_cloud, given.keys.double()
    outside = torch.zeros_like(keys[:, 0])  # 0 in the core, 1 at the edge of the cloud
    for d in range(keys.size(1)):
        for edge, end, sign in ((core.low, full.low, -1), (core.high, full.high, 1)):
            gap = (sign * (end - edge)[:, d]).clamp_min(torch.finfo(torch.float64).tiny)
            outside = torch.maximum(outside, sign * (keys[:, d] - edge[cloud, d]) / gap[cloud])
    diagonal = core.diagonal[cloud] + (full.diagonal - core.diagonal)[cloud] * outside
    edge, octaves = core.diagonal.clamp_min(widest * 0.5**MAX_OCTAVES), torch.zeros_like(cloud)
    for _ in range(MAX_OCTAVES):
        octaves += (diagonal <= edge[cloud]) & (2 * edge <= widest)[cloud]
        edge = 2 * edge
    return octaves


def _number_depths(given: Normalisers, is_wanted: Tensor, octaves: Tensor) -> Tensor:
    """Numbers the octaves of each cloud that have points: 0, 1, ...; clouds that are not wanted have depth 0."""
    per_cloud = MAX_OCTAVES + 1
    code = given.key_cloud * per_cloud + octaves
    has_points = given.joining.total(torch.bincount(code, minlength=given.clouds * per_cloud)) > 0
    number = has_points.view(-1, per_cloud).cumsum(dim=1) - 1
    return torch.where(is_wanted.unsqueeze(1), number, 0).flatten()[code]
