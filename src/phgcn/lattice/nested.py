r"""Nested boxes: clouds most of whose points lie in a small core, with some far outside.

The levels of a narrow cloud follow the diagonal of its bounding box (:mod:`phgcn.lattice.narrow`).  One point far outside makes
that box wide, and then no level resolves the core.  So a chain of boxes leads from the bounding box of a cloud to that of its
core, each about half as wide as the one before.  Points in box :math:`k` that are in no smaller one are its *ring*; rings that
have few points together are one.  The *depth* of a point is the number of its ring, from the outside.  A pair is filtered on
the levels of the smallest box that contains it; where a ring has few points, its pairs are summed
(:mod:`phgcn.lattice.nested_sums`).

The core is found by counting: along each coordinate, :data:`TRIMMED` of the points at either end are left out, to whole bins
of the box; again and again, as long as the box shrinks much.  Counts do not depend on the order of points.  All points of
Gaussians, cubes and clusters of about the same size have depth 0.  Clouds are treated each on its own.
"""

from __future__ import annotations

import importlib
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

TRIMMED = 16
"""One point of so many is left out at most at either end of a coordinate."""

SHRINKS = 4.0
"""How many times smaller the diagonal must be without these, or the search ends.  That of a Gaussian is 3.5 times smaller with
10 million points."""

LEAST_OCTAVES = 2
"""How many octaves narrower than its cloud, or than the widest narrow cloud, a core is at least: else it gains little."""


def least_normaliser(dim: int) -> float:
    """Returns how great the greatest normaliser of a cloud with a core is at least, per point: that of a cube, as large as a
    core can be, with three quarters of the points."""
    return 0.75 * math.exp(-0.6 * math.sqrt(dim))


def few_points(scheme: MultiScale) -> int:
    """Returns up to how many points of a ring are summed exactly: twice as many as a near field has pairs."""
    return 2 * scheme.pairs


class Boxes(NamedTuple):
    r"""A box of each cloud.

    Shapes:
        - **low**, **high:** float64, :math:`(\text{clouds}, D)`
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


def find_depths(given: Normalisers, scheme: MultiScale, backend: str) -> Tensor | None:
    """Finds the depth of each point in each head, int64, (N H,); :obj:`None` where all are 0, as in cross-attention.

    Args:
        given (Normalisers): What a lattice gave.
        scheme (MultiScale): The lattice.
        backend (str): Whose kernels count.
    """
    dim = given.keys.size(1)
    if not given.to_itself or not may_be_narrow(scheme, dim):
        return None
    count = given.count_by_cloud(given.key_cloud)
    may_have_core = (count >= LEAST_POINTS) & (given.greatest >= least_normaliser(dim) * count)
    looked_at = may_have_core.nonzero().squeeze(1)
    if len(looked_at) == 0:
        return None
    search = Search(given, looked_at, backend)
    full = search.bounding_boxes(search.cloud)
    core, core_count = search.find_cores(full, count[looked_at])
    if core is full:
        return None
    widest = full.diagonal.clamp_max(widest_narrow(dim))
    has_core = core.diagonal * 2**LEAST_OCTAVES <= widest
    has_core &= core_count.square() > scheme.pairs * count[looked_at]  # the near field sums the pairs of fewer exactly
    return search.find_depths(core, widest, has_core, few_points(scheme)) if bool(has_core.any()) else None


class Search:
    """A search for the cores of some clouds.

    Args:
        given (Normalisers): All points.
        looked_at (torch.Tensor): The numbers of the clouds that are looked at, (L,); they are numbered anew.
        backend (str): Whose kernels count.
    """

    def __init__(self, given: Normalisers, looked_at: Tensor, backend: str) -> None:
        self.keys, self.joining, self.clouds = given.keys, given.joining, len(looked_at)
        number = given.key_cloud.new_full((given.clouds,), -1)
        number[looked_at] = torch.arange(self.clouds, device=number.device)
        self.cloud = number[given.key_cloud]  # -1 for points of other clouds
        # On a GPU torch's own kernels count, as in the reference.
        self.kernels = importlib.import_module(f"phgcn.lattice.{'numba' if backend == 'numba' else 'reference'}.boxes")

    def bounding_boxes(self, cloud: Tensor) -> Boxes:
        """Returns the bounding boxes of the points of each cloud, of all processes; those of cloud -1 are left out."""
        low, high = self.kernels.bounding_boxes(self.keys, cloud, self.clouds)
        low, high = self.joining.most(torch.cat([-low, high], dim=1)).tensor_split(2, dim=1)
        return Boxes(-low, high)

    def find_cores(self, full: Boxes, count: Tensor) -> tuple[Boxes, Tensor]:
        """Returns the box of each cloud's core and how many points it has, (L,), from the bounding boxes of the clouds and
        their numbers of points; the whole cloud where nothing is left out."""
        core, core_count, cloud = full, count, self.cloud
        while True:
            scale = BINS / torch.where(core.high > core.low, core.high - core.low, torch.inf)
            below = self.joining.total(self.kernels.count_in_bins(self.keys, cloud, core.low, scale, BINS)).cumsum(dim=2)
            trimmed, most = (core_count // TRIMMED).view(-1, 1, 1), core_count.view(-1, 1, 1)
            # Of each coordinate the first and the last bin that stay.
            first, last = (below <= trimmed).sum(dim=2), (below < most - trimmed).sum(dim=2)
            width = last + 1 - first
            if not bool((width * SHRINKS <= BINS).any()):  # quicker to tell than diagonals
                return core, core_count
            side = (core.high - core.low) * width / BINS
            shrinks = Boxes(torch.zeros_like(side), side).diagonal * SHRINKS <= core.diagonal
            shrinks &= (core.diagonal > 0) & (below[:, 0, -1] > 0)
            if not bool(shrinks.any()):
                return core, core_count
            cloud = torch.where((cloud >= 0) & shrinks[cloud], cloud, -1)
            bins = ((self.keys.double() - core.low[cloud]) * scale[cloud]).long().clamp_max(BINS - 1)
            cloud = torch.where(((bins >= first[cloud]) & (bins <= last[cloud])).all(dim=1), cloud, -1)
            smaller, points = self.bounding_boxes(cloud), torch.bincount(cloud + 1, minlength=self.clouds + 1)[1:]
            core = Boxes(*(torch.where(shrinks.unsqueeze(1), *ends) for ends in zip(smaller, core, strict=True)))
            core_count = torch.where(shrinks, self.joining.total(points), core_count)

    def find_depths(self, core: Boxes, widest: Tensor, has_core: Tensor, few: int) -> Tensor:
        """Numbers the rings of each cloud from the outside and returns the number of each point's, (N H,): 0, 1, ... or, where
        the outermost has few points and is summed exactly too, 1, 2, ...; 0 in clouds without a core."""
        boxes, per_cloud = self._count_boxes(core, widest), MAX_OCTAVES + 1
        is_inside, code = self.cloud >= 0, self.cloud * per_cloud + boxes
        counts = self.joining.total(torch.bincount(code[is_inside], minlength=self.clouds * per_cloud))
        number, size, numbers = torch.zeros_like(has_core, dtype=torch.int64), torch.zeros_like(counts[: self.clouds]), []
        counts = counts.view(-1, per_cloud)
        for count in counts.unbind(1):
            is_next = (size > 0) & (count > 0) & (size + count > few)  # rings that have few points together are one
            number, size = number + is_next, torch.where(is_next, count, size + count)
            numbers.append(number)
        depth = torch.stack(numbers, dim=1)
        outermost = torch.where(depth == 0, counts, 0).sum(dim=1, keepdim=True)
        depth = torch.where(has_core.unsqueeze(1), depth + (outermost <= few), 0)
        return torch.where(is_inside, depth.flatten()[code], 0)

    def _count_boxes(self, core: Boxes, widest: Tensor) -> Tensor:
        """Counts the boxes that contain each point, (N H,): one twice as wide as the core, others twice as wide each, up to
        half ``widest``, (L,)."""
        cloud, keys = self.cloud, self.keys.double()
        margin = torch.zeros_like(keys[:, 0])  # how far outside of the core
        for d, coordinate in enumerate(keys.unbind(1)):
            margin = torch.maximum(margin, core.low[cloud, d] - coordinate)
            margin = torch.maximum(margin, coordinate - core.high[cloud, d])
        square = torch.zeros_like(margin)
        for side in (core.high - core.low).unbind(1):
            square = square + (side[cloud] + 2 * margin).square()
        diagonal, boxes = 2 * core.diagonal.clamp_min(widest * 0.5**MAX_OCTAVES), torch.zeros_like(cloud)
        while bool((2 * diagonal <= widest).any()):
            boxes += square <= torch.where(2 * diagonal <= widest, diagonal.square(), -1.0)[cloud]
            diagonal = 2 * diagonal
        return boxes
