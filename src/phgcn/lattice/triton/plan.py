r"""The plan of the Triton backend: what the forward pass hands to the backward pass, as tensors of known shapes.

All shapes follow from those of the inputs, so that a compiled graph knows them without running a kernel; nothing here imports
Triton.  The keys of vertices are not part of it, since how many words they have depends on the data: the backward pass packs
them again from the cell and the rank of one corner of each vertex.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...runtime.points import Points
from ..scheme import MultiScale, Scheme

FAR, NOT_FINITE, COINCIDENT, COPIES, NARROW, FLAGS = range(6)
"""Places of the flags among the facts, and their number: whether a position is beyond the limit, whether a value is not finite,
whether all points of some cloud coincide, whether some points have the same place, and whether some cloud is narrow."""

WIDTHS = 3
"""Keys have three widths: those of the lattice, of the cells that count pairs, and of the near field's cells."""


class Simplices(NamedTuple):
    """Where points lie in one lattice, each at the finest level of its cloud.

    Shapes:
        - **weight:** barycentric weights, :math:`(P, D+1)`
        - **cell:** Kuhn coordinates of the first corner, int32, :math:`(P, D)`
        - **rank:** the place of each coordinate by descending fraction, four bits each, int64, :math:`(P,)`; corner :math:`r`
          is the cell plus one along all coordinates whose rank is less than :math:`r`
        - **self_term:** in row 0, what must be added to each point's weight on itself, and in the others minus its derivative
          by the Kuhn coordinates of level 0, :math:`(1+D, P)`; only row 0 if no gradient follows, no rows in cross-attention
          and in the paper's filter
    """

    weight: Tensor
    cell: Tensor
    rank: Tensor
    self_term: Tensor


class Corners(NamedTuple):
    """The corners of all simplices, or other entries, sorted by vertex: those of a vertex are a run.

    Shapes:
        - **order:** the corner at each sorted place, int32, :math:`(P(D+1),)`
        - **vertex:** the vertex of each corner, -1 for none, int32, :math:`(P(D+1),)`
        - **start:** where the run of each vertex starts, and where the last one ends, int32, :math:`(P(D+1) + 1,)`; 0 behind
    """

    order: Tensor
    vertex: Tensor
    start: Tensor


class Plan(NamedTuple):
    """What locate and index find.

    Shapes:
        - **host_facts:** the facts, then the widths of keys, int64 on the CPU, so that backward reads nothing from the device
        - **facts:** missing words of the keys of each grid, the flags, and for each lattice how many vertices there are before
          each level and behind the last, and whether a run is long; int64, :math:`(Q + 5 + lattices (K+2),)`
        - **key_layout:** where the fields of each grid's keys are, int64, :math:`(Q, 4, 1+D)`
        - **cloud:** the cloud of each point, -1 where its graph is not filtered, int32, :math:`(P,)`
        - **level:** the finest level of each point's cloud, -1 where all points of the cloud coincide, -2 where its graph is
          not filtered, int32, :math:`(P,)`
        - **simplices**, **corners:** of each lattice
    """

    host_facts: Tensor
    facts: Tensor
    key_layout: Tensor
    cloud: Tensor
    level: Tensor
    simplices: list[Simplices]
    corners: list[Corners]

    def as_outputs(self) -> list[Tensor]:
        """Lists all tensors, as the op returns them."""
        lattices = zip(self.simplices, self.corners, strict=True)
        return [*self[:5], *(tensor for simplices, corners in lattices for tensor in (*simplices, *corners))]


def read_plan(tensors: list[Tensor]) -> Plan:
    """Makes a plan of what :meth:`Plan.as_outputs` listed."""
    located = len(Simplices._fields)
    size = located + len(Corners._fields)
    lattices = [tensors[place : place + size] for place in range(5, len(tensors), size)]
    simplices, corners = [Simplices(*some[:located]) for some in lattices], [Corners(*some[located:]) for some in lattices]
    host_facts, facts, key_layout, cloud, level = tensors[:5]
    return Plan(host_facts, facts, key_layout, cloud, level, simplices, corners)


def empty_plan(points: Points, scheme: Scheme) -> list[Tensor]:
    """Allocates the plan, not filled in."""
    positions = points.positions
    heads, dim = positions.shape[1:]
    count = heads * (positions.size(0) + (0 if points.queries is None else points.queries.size(0)))
    levels, lattices = count_levels(scheme)
    grids = count_grids(levels)
    facts = grids + FLAGS + lattices * (levels + 2)
    rows = 1 + dim if has_self_term(scheme, points.queries is None) else 0
    corners = count * (dim + 1)
    make = positions.new_empty
    plan = [
        torch.empty(facts + WIDTHS, dtype=torch.int64),
        make(facts, dtype=torch.int64),
        make(grids, 4, 1 + dim, dtype=torch.int64),
        make(count, dtype=torch.int32),
        make(count, dtype=torch.int32),
    ]
    for _ in range(lattices):
        cell, rank = make(count, dim, dtype=torch.int32), make(count, dtype=torch.int64)
        plan += Simplices(make(count, dim + 1), cell, rank, make(rows, count))
        plan += Corners(*(make(size, dtype=torch.int32) for size in (corners, corners, corners + 1)))
    return plan


def count_levels(scheme: Scheme) -> tuple[int, int]:
    """Returns how many levels and how many lattices a scheme has."""
    return (len(scheme.hops), scheme.lattices) if isinstance(scheme, MultiScale) else (1, 1)


def count_grids(levels: int) -> int:
    """Returns how many grids keys are made of; see :class:`phgcn.lattice.triton.constants.Constants`."""
    return 1 + levels if levels > 1 else 1


def has_self_term(scheme: Scheme, to_itself: bool) -> bool:
    """True where a point's weight on itself is made exactly 1."""
    return isinstance(scheme, MultiScale) and to_itself
