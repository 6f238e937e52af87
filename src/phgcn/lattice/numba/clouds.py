"""A *cloud*: the points of one graph and head."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from ...runtime.graphs import GraphGroups
from ...runtime.points import Points
from ...runtime.rows import Packed
from ..filter_call import FilterCall
from ..gaps import close_gaps, has_gaps
from .locate import Coordinates, with_extent


class Cloud:
    """The points of one graph and head.

    Args:
        head (int), key_slice, query_slice (slice): Its keys and queries among all packed points.
        points (np.ndarray): Its keys, then its queries if these are not the keys, :math:`(P, D)`.
        first_query (int): The first query among its points; 0 where the keys attend to themselves.
    """

    def __init__(
        self, index: tuple[int, slice, slice], points: np.ndarray, first_query: int
    ) -> None:
        self.head, self.key_slice, self.query_slice = index
        self.points, self.first_query = points, first_query

    @cached_property
    def is_one_point(self) -> bool:
        """Returns whether all points coincide and attend to themselves."""
        first, last = self.points[0], self.points[-1]
        return self.to_itself and np.array_equal(first, last) and bool((self.points == first).all())

    def close_gaps(self) -> None:
        """Moves the points of a cloud that is too wide (:mod:`phgcn.lattice.gaps`)."""
        if has_gaps(float((self.positions.high - self.positions.low).max()), self.points.shape[1]):
            self.points = close_gaps(torch.from_numpy(self.points)).numpy()
            del self.positions

    @property
    def to_itself(self) -> bool:
        return self.first_query == 0

    @cached_property
    def positions(self) -> Coordinates:
        """Returns its points with their extent."""
        return with_extent(self.points)


class CloudGradients(NamedTuple):
    """Receives the gradients of a cloud's keys (N, D), rows (N, C) and queries (M, D)."""

    keys: np.ndarray
    rows: np.ndarray
    queries: np.ndarray


def find_clouds(
    points: Points, packed: Packed, groups: GraphGroups, call: FilterCall
) -> Iterator[Cloud]:
    """Yields all clouds that go through a lattice and are not empty."""
    for head in range(len(packed.keys)):
        for k, q in groups.slices(more_than=call.more_than):
            if k.stop == k.start or q.stop == q.start:
                continue
            cloud_points, first_query = packed.keys[head, k], 0
            if points.queries is not None:
                cloud_points = np.concatenate([cloud_points, packed.queries[head, q]])
                first_query = k.stop - k.start
            yield Cloud((head, k, q), cloud_points, first_query)
