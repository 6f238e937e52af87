r"""Which points belong together: a *cloud* is the points of one graph and head."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from torch import Tensor

from ...runtime.graphs import GraphGroups
from ...runtime.points import Points
from ...runtime.rows import Packed
from ..filter_call import FilterCall
from ..plan import count_lattices
from .copies import Copies
from .join import join_clouds
from .locate import NOT_JOINED, Coordinates, planned_simplices, with_extent
from .plan import CloudPlan, plan_of_cloud, plan_shapes, unset


class Cloud:
    r"""The points of one graph and head.

    Args:
        head (int), key_slice, query_slice (slice): Where its keys and queries lie among all packed points.
        points (np.ndarray): Its keys, then its queries if these are not the keys themselves, :math:`(P, D)`.
        first_query (int): The number of the first query among its points; 0 where the keys attend to themselves.
        starts (np.ndarray): The first points of small clouds that are joined, and go through one lattice far apart from each
            other; empty for one cloud.
        plan (list[CloudPlan]): The plan of each lattice.
        planned (bool): Whether the plan is filled in.
    """

    def __init__(
        self, place: tuple[int, slice, slice], points: np.ndarray, first_query: int, plan, planned: bool,
        starts: np.ndarray = NOT_JOINED,
    ) -> None:  # fmt: skip
        self.head, self.key_slice, self.query_slice = place
        self.starts = starts
        self.points, self.first_query = points, first_query
        self.plan: list[CloudPlan] = plan
        self.planned = planned

    @cached_property
    def is_one_point(self) -> bool:
        """Whether all points coincide and attend to themselves."""
        if len(self.starts) > 0:
            return False
        first, last = self.points[0], self.points[-1]
        return self.to_itself and np.array_equal(first, last) and bool((self.points == first).all())

    @property
    def to_itself(self) -> bool:
        return self.first_query == 0

    @cached_property
    def copies(self) -> Copies:
        """Which points lie in the same place; known when they are located."""
        return Copies(self.points, planned_simplices(self.plan[0]))

    @cached_property
    def positions(self) -> Coordinates:
        """Its points, and their extent."""
        return with_extent(self.points)


class CloudGradients(NamedTuple):
    """Where the gradients of a cloud's keys (N, D), rows (N, C) and queries (M, D) are added."""

    keys: np.ndarray
    rows: np.ndarray
    queries: np.ndarray


def find_clouds(
    points: Points, packed: Packed, groups: GraphGroups, call: FilterCall, plan: list[Tensor], planned: bool
) -> Iterator[Cloud]:
    """Yields all clouds that go through a lattice and are not empty; without a plan to keep, they share the memory of one."""
    heads, keys = packed.keys.shape[:2]
    itself = points.queries is None
    queries = 0 if itself else packed.queries.shape[1]
    slices = [(k, q) for k, q in groups.slices(more_than=call.more_than) if k.stop > k.start and q.stop > q.start]
    lattices = count_lattices(call.scheme)
    sizes = [k.stop - k.start + (0 if itself else q.stop - q.start) for k, q in slices]
    scratch = [] if plan else unset(plan_shapes(points.positions, 1, max(keys if itself else 0, *sizes, 0), call.scheme))
    number = 0
    for head in range(heads):
        joined = join_clouds(packed.keys[head], slices, call.scheme) if itself else [(pair, NOT_JOINED) for pair in slices]
        for (k, q), starts in joined:
            cloud_points, size = packed.keys[head, k], k.stop - k.start
            if not itself:
                cloud_points, size = np.concatenate([cloud_points, packed.queries[head, q]]), size + q.stop - q.start
            begin = head * (keys + queries) + k.start + (0 if itself else q.start)
            parts = [
                plan_of_cloud(plan, lattice, number, begin, size) if plan else plan_of_cloud(scratch, lattice, 0, 0, size)
                for lattice in range(lattices)
            ]
            yield Cloud((head, k, q), cloud_points, 0 if itself else k.stop - k.start, parts, planned, starts)
            number += 1
