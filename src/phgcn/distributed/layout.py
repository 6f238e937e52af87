r"""The lattices over a cloud that lies on several ranks: extent, levels and vertices, on which all ranks agree.

Each rank locates its own points.  Vertices that points of any rank touch are numbered alike on all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from ..lattice.coefficients import multiscale_weights, separable_weights
from ..lattice.levels import CANDIDATES, CELL_DIMENSIONS, finest_level
from ..lattice.narrow import narrow_step, used_levels
from ..lattice.numba.copies import Copies
from ..lattice.numba.index import Corners, Level, Vertices, index, lay_out_levels, merge, planned_vertices
from ..lattice.numba.keys import Keys
from ..lattice.numba.levels import PairGrid, cell_counts, pair_grid, pairs_in_cells, sure_pairs
from ..lattice.numba.locate import (
    Coordinates,
    Frame,
    Simplices,
    kuhn_map,
    lay_frame,
    locate,
    map_points,
    planned_simplices,
)
from ..lattice.numba.plan import CloudPlan
from ..lattice.plan import count_lattices
from ..lattice.scheme import MultiScale, Scheme
from .collectives import Ranks
from .copies import RankCopies, find_copies
from .lockstep import Array, Gather, Steps

KEPT = 4
"""A table is kept for the backward pass if it has at most so many rows per point of this rank; else it is made again."""


class Placed(NamedTuple):
    """A cloud in one of its lattices, for the backward pass: the extent of all ranks' points, and where those of this rank lie.

    Args:
        extent (tuple): The lowest and the highest Kuhn coordinates of all points, (D,) each.
        simplices (Simplices): Of the points of this rank.
        corners (Corners): Of the same.
        vertices (Vertices): Those of all ranks, with the corners of this rank that are part of them.
    """

    extent: tuple[Array, Array]
    simplices: Simplices
    corners: Corners
    vertices: Vertices


class RankCloud:
    """The points of one graph and head that this rank has, maybe none.

    Args:
        place (tuple): Its head, its graph, and where its keys and queries lie among the packed points of this rank.
        points (np.ndarray): Its keys, then its queries if these are not the keys themselves, (P, D).
        key_count (int): How many of them are keys.
        to_itself (bool): Whether the keys attend to themselves.
        counts (tuple): How many keys and queries all ranks have of it.
        plan (list[CloudPlan]): Memory for the plan of each lattice.
    """

    def __init__(
        self, place: tuple[int, int, slice, slice], points: Array, key_count: int, to_itself: bool, counts: tuple[int, int],
        plan: list[CloudPlan],
    ) -> None:  # fmt: skip
        self.head, self.graph, self.key_slice, self.query_slice = place
        self.points, self.to_itself, self.counts, self.plan = points, to_itself, counts, plan
        self.first_query = 0 if to_itself else key_count
        self.scheme: Scheme
        self.finest = 0
        self.is_one_point = False
        self.placed: list[Placed] = []
        self.copies: RankCopies
        self.frames: list[Frame] = []  # kept within the forward pass
        self.kept: list[tuple[list[Level], Array] | None] = []  # of each lattice, for the backward pass

    @property
    def dim(self) -> int:
        return int(self.points.shape[1])

    @property
    def count(self) -> int:
        """How many points it has on all ranks."""
        return self.counts[0] if self.to_itself else sum(self.counts)

    @property
    def hops(self) -> tuple[int, ...]:
        """The hops of all levels of its lattices."""
        return _spacing_and_hops(self.scheme, self.dim)[1]

    @property
    def keys(self) -> Array:
        return self.points if self.to_itself else self.points[: self.first_query]

    @property
    def queries(self) -> Array:
        return self.points[self.first_query :]

    def frame(self, number: int) -> Frame:
        """Lays one of the lattices over all ranks' points."""
        if self.frames:
            return self.frames[number]
        mapped, matrix = _map(self, number)
        low, high = self.placed[number].extent
        return lay_frame(mapped._replace(low=low, high=high), matrix, self.hops)

    def keep(self, levels: list[Level], table: Array, ranks: int) -> None:
        """Keeps the levels and the blurred table of the next lattice for the backward pass, unless the table is much larger
        than the rows of a rank's points."""
        self.kept.append((levels, table) if levels[0].sites * ranks <= KEPT * self.count else None)

    def levels(self, number: int, frame: Frame, gap: int) -> list[Level]:
        """Lays out the vertices of the finest level and of all coarser ones."""
        return lay_out_levels(self.placed[number].vertices, frame, range(self.finest, len(self.hops)), gap)


# Locate and index


def lay_lattices(cloud: RankCloud, scheme: Scheme, ranks: Ranks) -> Steps[None]:
    """Agrees on the extent, the levels and the vertices of a cloud, and locates this rank's points."""
    boxes = np.stack(_box(cloud.points))
    all_boxes = np.stack((yield Gather(boxes, [len(boxes)] * ranks.size)))
    low, high = all_boxes[:, 0].min(axis=0), all_boxes[:, 1].max(axis=0)
    cloud.scheme = scheme
    cloud.is_one_point = cloud.to_itself and bool((low == high).all())
    if cloud.is_one_point:
        return
    if isinstance(scheme, MultiScale):
        mean = all_boxes[:, 2].sum(axis=0) / cloud.count
        finest = yield from _agree_on_level(cloud, Coordinates(np.empty((0, cloud.dim)), low, high), mean, scheme)
        if finest == 0:
            finest = -narrow_step(scheme, low, high)
        cloud.scheme, cloud.finest = used_levels(scheme, cloud.dim, finest)
    mapped = [_map(cloud, number) for number in range(count_lattices(scheme))]
    edges = np.stack([edge for coordinates, _ in mapped for edge in (coordinates.low, coordinates.high)])
    all_edges = np.stack((yield Gather(edges, [len(edges)] * ranks.size)))
    for number, (local, matrix) in enumerate(mapped):
        extent = all_edges[:, 2 * number].min(axis=0), all_edges[:, 2 * number + 1].max(axis=0)
        frame = lay_frame(local._replace(low=extent[0], high=extent[1]), matrix, cloud.hops)
        cloud.frames.append(frame)
        yield from _place(cloud, frame, extent, number, ranks)
    if isinstance(scheme, MultiScale) and cloud.to_itself:
        exact = cloud.points.astype(np.float64)
        here = Copies(cloud.points, cloud.placed[0].simplices) if len(exact) > 0 else None
        cloud.copies = yield from find_copies(exact, here, ranks)


def _agree_on_level(cloud: RankCloud, box: Coordinates, mean: Array, scheme: MultiScale) -> Steps[int]:
    """Chooses the finest level as a single process does, from the counts of all ranks' points in cells."""
    if scheme.near_field is not None:
        return scheme.near_field
    fitted, nowhere = multiscale_weights(scheme, cloud.dim), np.empty((0, 0))
    pairs: dict[float, float] = {}
    candidates: dict[float, float] = {}
    axes = [(np.arange(cloud.dim), pairs, float(scheme.pairs))]
    if cloud.dim > CELL_DIMENSIONS:
        axes.append((np.sort(np.argsort(box.low - box.high, kind="stable")[:CELL_DIMENSIONS]), candidates, float(CANDIDATES)))
    for axis, estimates, enough in axes:
        for radius in fitted.radius[1:]:
            grid = pair_grid(Coordinates(nowhere, box.low[axis], box.high[axis]), mean[axis], radius, cloud.dim)
            sure = sure_pairs(grid, cloud.count, cloud.to_itself, enough)
            if sure is None:
                sure = yield from _count_pairs(cloud, cloud.points[:, axis].astype(np.float64), grid)
            estimates[radius] = sure
    return finest_level(
        scheme, fitted, pairs.__getitem__, candidates.__getitem__ if cloud.dim > CELL_DIMENSIONS else None
    )  # fmt: skip


def _count_pairs(cloud: RankCloud, exact: Array, grid: PairGrid) -> Steps[float]:
    """Counts how many keys of all ranks share a cell with a query, on average."""
    key, keys, queries = cell_counts(np.ascontiguousarray(exact), cloud.first_query, grid)
    if not cloud.to_itself and cloud.first_query == 0:  # no keys on this rank: all its points are queries
        keys, queries = queries, keys
    rows = np.concatenate((yield Gather(np.stack([key.view(np.float64), keys, queries], axis=1))))
    _, cell = np.unique(rows[:, 0].copy().view(np.uint64), return_inverse=True)
    of_keys, of_queries = (np.bincount(cell, rows[:, column]) for column in (1, 2))
    return pairs_in_cells(of_keys, of_queries, cloud.to_itself)


def _place(cloud: RankCloud, frame: Frame, extent: tuple[Array, Array], number: int, ranks: Ranks) -> Steps[None]:
    """Locates this rank's points on the finest level, and numbers the vertices that points of any rank touch."""
    plan, keys = cloud.plan[number], frame.keys(cloud.finest)
    if len(cloud.points) > 0:
        locate(frame, cloud.finest, plan)
        index(frame, planned_simplices(plan), cloud.finest, plan)
    else:
        plan.sizes[:] = cloud.finest, 0, 0, 0
    corners, vertices = planned_vertices(plan)
    parts = yield Gather(vertices.coordinate)
    coordinate = np.concatenate(parts)
    union = merge(_vertex_keys(coordinate, keys), coordinate, keys)
    begin = sum(len(part) for part in parts[: ranks.rank])
    number_of = np.empty(len(coordinate), np.int64)
    number_of[union.source] = np.repeat(np.arange(len(union.coordinate)), np.diff(union.start))
    sources = np.zeros(len(union.coordinate), np.int64)
    sources[number_of[begin : begin + len(vertices.coordinate)]] = np.diff(vertices.start)
    start = np.concatenate([[0], np.cumsum(sources)]).astype(np.int32)
    # The vertices of this rank are in the order of their keys, as all are: their sources stay one after the other.
    shared = Vertices(union.coordinate, vertices.source, start)
    cloud.placed.append(Placed(extent, planned_simplices(plan), corners, shared))


def _vertex_keys(coordinate: Array, keys: Keys) -> Array:
    key: Array = (coordinate.astype(np.uint64) * keys.multiplier).sum(axis=1, dtype=np.uint64)
    return key


def _spacing_and_hops(scheme: Scheme, dim: int) -> tuple[float, tuple[int, ...]]:
    if isinstance(scheme, MultiScale):
        return scheme.spacing, scheme.hops
    spacing, weights, _ = separable_weights(scheme, dim)
    return spacing, (len(weights) - 1,)


def _map(cloud: RankCloud, number: int) -> tuple[Coordinates, Array]:
    """Maps points to Kuhn coordinates of one of the lattices; returns the matrix too.  Without points the extent is empty."""
    spacing, hops = _spacing_and_hops(cloud.scheme, cloud.dim)
    level = cloud.scheme.origin_level if isinstance(cloud.scheme, MultiScale) else None
    matrix, shift = kuhn_map(cloud.dim, spacing, hops, number, level)
    return (map_points(cloud.points, matrix, shift) if len(cloud.points) > 0 else _nowhere(cloud.dim)), matrix


def _box(points: Array) -> tuple[Array, Array, Array]:
    """Returns the lowest and the highest coordinates of points, and their sum, in double precision."""
    if len(points) == 0:
        return *_nowhere(points.shape[1])[1:], np.zeros(points.shape[1])
    tensor = torch.from_numpy(points)  # along the first dimension torch is five times as fast as NumPy
    low, high = tensor.aminmax(dim=0)
    return low.double().numpy(), high.double().numpy(), tensor.sum(dim=0, dtype=torch.float64).numpy()


def _nowhere(dim: int) -> Coordinates:
    return Coordinates(np.empty((0, dim)), np.full(dim, np.inf), np.full(dim, -np.inf))
