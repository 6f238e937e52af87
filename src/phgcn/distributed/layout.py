r"""The lattices over a cloud that lies on several ranks: extent, levels and vertices, on which all ranks agree.

Each rank locates its own points.  Vertices that points of any rank touch are numbered alike on all of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..lattice.coefficients import multiscale_weights, separable_weights
from ..lattice.levels import CANDIDATES, CELL_DIMENSIONS, finest_level
from ..lattice.narrow import narrow_step, used_levels
from ..lattice.numba.copies import Copies
from ..lattice.numba.index import Corners, Level, Vertices, index, lay_out_levels, merge, planned_vertices
from ..lattice.numba.keys import MARGIN, Keys
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
    reduce_points,
    with_extent,
)
from ..lattice.numba.plan import CloudPlan
from ..lattice.numba.sorting import run_starts, sort_keys
from ..lattice.plan import count_lattices
from ..lattice.scheme import MultiScale, Scheme
from .collectives import Ranks
from .copies import RankCopies, find_copies, hash_places
from .lockstep import Array, Exchange, Gather, Request, Steps

KEPT = 4
"""A table is kept for the backward pass if it has at most so many rows per point of this rank; else it is made again."""


class Placed(NamedTuple):
    """Where the points of this rank lie in one of a cloud's lattices, for the backward pass.

    Args:
        simplices (Simplices): Of the points of this rank.
        corners (Corners): Of the same.
        vertices (Vertices): Those of all ranks, with the corners of this rank that are part of them.
    """

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
        self.extents: list[tuple[Array, Array]] = []  # of all ranks' points in each lattice: lowest and highest coordinates
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
        low, high = self.extents[number]
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
    cloud.scheme = scheme
    extent = with_extent(cloud.points) if len(cloud.points) > 0 else _nowhere(cloud.dim)
    box = np.stack([extent.low, extent.high, reduce_points(np.add, extent.w)]).astype(np.float64)
    mapped = _map_all(cloud)
    boxes, edges = yield [Gather(some, [len(some)] * ranks.size) for some in (box, _edges(mapped))]
    boxes = np.stack(boxes)
    low, high = boxes[:, 0].min(axis=0), boxes[:, 1].max(axis=0)
    cloud.is_one_point = cloud.to_itself and bool((low == high).all())
    if cloud.is_one_point:
        return
    if isinstance(scheme, MultiScale):
        mean = boxes[:, 2].sum(axis=0) / cloud.count
        finest = yield from _agree_on_level(cloud, extent._replace(low=low, high=high), mean, scheme)
        if finest == 0:
            finest = -narrow_step(scheme, low, high)
        cloud.scheme, cloud.finest = used_levels(scheme, cloud.dim, finest)
    if cloud.scheme is not scheme:  # a narrow cloud, whose lattices are others
        mapped = _map_all(cloud)
        edges = yield Gather(_edges(mapped), [2 * len(mapped)] * ranks.size)
    all_edges = np.stack(edges)
    for number, (local, matrix) in enumerate(mapped):
        low, high = all_edges[:, 2 * number].min(axis=0), all_edges[:, 2 * number + 1].max(axis=0)
        cloud.extents.append((low, high))
        cloud.frames.append(lay_frame(local._replace(low=low, high=high), matrix, cloud.hops))
    yield from _place(cloud, ranks)


def _agree_on_level(cloud: RankCloud, points: Coordinates, mean: Array, scheme: MultiScale) -> Steps[int]:
    """Chooses the finest level as a single process does, from the counts of all ranks' points in cells.

    Args:
        cloud (RankCloud): The points.
        points (Coordinates): Those of this rank, with the extent of all ranks' points.
        mean (np.ndarray): The mean of all ranks' points, (D,).
        scheme (MultiScale): The levels.
    """
    if scheme.near_field is not None:
        return scheme.near_field
    fitted, whole = multiscale_weights(scheme, cloud.dim), np.arange(cloud.dim)
    axes = [(whole, float(scheme.pairs))]
    if cloud.dim > CELL_DIMENSIONS:
        axes.append((np.sort(np.argsort(points.low - points.high, kind="stable")[:CELL_DIMENSIONS]), float(CANDIDATES)))
    pairs: list[dict[float, float]] = [{} for _ in axes]
    counted, requests = [], []
    for number, (axis, enough) in enumerate(axes):
        some = points if axis is whole else points.take(axis)
        for radius in fitted.radius[1:]:
            grid = pair_grid(some, mean[axis], radius, cloud.dim)
            sure = sure_pairs(grid, cloud.count, cloud.to_itself, enough)
            if sure is None:
                counted.append((number, radius))
                requests.append(Gather(_count_cells(cloud, some.w, grid)))
            else:
                pairs[number][radius] = sure
    cells = (yield [*requests]) if requests else []
    for (number, radius), parts in zip(counted, cells, strict=True):
        pairs[number][radius] = _mean_pairs(np.concatenate(parts), cloud.to_itself)
    return finest_level(scheme, fitted, pairs[0].__getitem__, pairs[1].__getitem__ if len(pairs) > 1 else None)


def _count_cells(cloud: RankCloud, w: Array, grid: PairGrid) -> Array:
    """Counts the points of this rank in each cell: key, keys and queries, (B, 3), the key's bits as a float64."""
    key, keys, queries = cell_counts(w, cloud.first_query, grid)
    if not cloud.to_itself and cloud.first_query == 0:  # no keys on this rank: all its points are queries
        keys, queries = queries, keys
    return np.stack([key.view(np.float64), keys, queries], axis=1)


def _mean_pairs(cells: Array, to_itself: bool) -> float:
    """Computes how many keys share a cell with a query, on average, from the counts of all ranks."""
    key, index = sort_keys(cells[:, 0].copy().view(np.uint64), 64)
    of_keys, of_queries = np.add.reduceat(cells[index, 1:], run_starts(key)[:-1], axis=0).T
    return pairs_in_cells(of_keys, of_queries, to_itself)


def _place(cloud: RankCloud, ranks: Ranks) -> Steps[None]:
    """Locates this rank's points on the finest level, numbers the vertices that points of any rank touch, and finds copies of
    points."""
    for plan, frame in zip(cloud.plan, cloud.frames, strict=True):
        if len(cloud.points) > 0:
            locate(frame, cloud.finest, plan)
            index(frame, planned_simplices(plan), cloud.finest, plan)
        else:
            plan.sizes[:] = cloud.finest, 0, 0, 0
    requests: list[Request] = [
        Gather(planned_vertices(plan)[1].coordinate.astype(coordinate_type(frame, cloud.finest)))
        for plan, frame in zip(cloud.plan, cloud.frames, strict=True)
    ]
    has_copies = isinstance(cloud.scheme, MultiScale) and cloud.to_itself
    here = Copies(cloud.points, planned_simplices(cloud.plan[0])) if has_copies and len(cloud.points) > 0 else None
    if has_copies:
        exact = cloud.points.astype(np.float64)
        requests.append(Exchange(hash_places(exact, here, ranks)))
    arrived = yield requests
    for plan, frame, parts in zip(cloud.plan, cloud.frames, arrived, strict=False):
        corners, vertices = planned_vertices(plan)
        shared = _number_vertices(vertices, parts, frame.keys(cloud.finest), ranks)
        cloud.placed.append(Placed(planned_simplices(plan), corners, shared))
    if has_copies:
        cloud.copies = yield from find_copies(exact, here, arrived[-1], ranks)


def _number_vertices(vertices: Vertices, parts: list[Array], keys: Keys, ranks: Ranks) -> Vertices:
    """Numbers the vertices of all ranks, ``parts``, in the order of their keys; their sources are those of this rank."""
    coordinate = np.concatenate(parts).astype(np.int32)
    union = merge(_vertex_keys(coordinate, keys), coordinate, keys)
    begin = sum(len(part) for part in parts[: ranks.rank])
    number_of = np.empty(len(coordinate), np.int64)
    number_of[union.source] = np.repeat(np.arange(len(union.coordinate)), np.diff(union.start))
    sources = np.zeros(len(union.coordinate), np.int64)
    sources[number_of[begin : begin + len(vertices.coordinate)]] = np.diff(vertices.start)
    start = np.concatenate([[0], np.cumsum(sources)]).astype(np.int32)
    # The vertices of this rank are in the order of their keys, as all are: their sources stay one after the other.
    return Vertices(union.coordinate, vertices.source, start)


def coordinate_type(frame: Frame, level: int) -> np.dtype[Any]:
    """Returns the smallest type that holds the coordinates of a level's vertices, for the way to other ranks."""
    return np.min_scalar_type(int((frame.extent * 0.5**level).max()) + frame.reach + MARGIN)


def _vertex_keys(coordinate: Array, keys: Keys) -> Array:
    key = np.zeros(len(coordinate), np.uint64)
    for j, multiplier in enumerate(keys.multiplier):
        key += coordinate[:, j].astype(np.uint64) * multiplier
    return key


def _spacing_and_hops(scheme: Scheme, dim: int) -> tuple[float, tuple[int, ...]]:
    if isinstance(scheme, MultiScale):
        return scheme.spacing, scheme.hops
    spacing, weights, _ = separable_weights(scheme, dim)
    return spacing, (len(weights) - 1,)


def _map_all(cloud: RankCloud) -> list[tuple[Coordinates, Array]]:
    """Maps points to the Kuhn coordinates of each lattice."""
    return [_map(cloud, number) for number in range(count_lattices(cloud.scheme))]


def _map(cloud: RankCloud, number: int) -> tuple[Coordinates, Array]:
    """Maps points to Kuhn coordinates of one of the lattices; returns the matrix too.  Without points the extent is empty."""
    spacing, hops = _spacing_and_hops(cloud.scheme, cloud.dim)
    level = cloud.scheme.origin_level if isinstance(cloud.scheme, MultiScale) else None
    matrix, shift = kuhn_map(cloud.dim, spacing, hops, number, level)
    return (map_points(cloud.points, matrix, shift) if len(cloud.points) > 0 else _nowhere(cloud.dim)), matrix


def _edges(mapped: list[tuple[Coordinates, Array]]) -> Array:
    """Returns the lowest and the highest Kuhn coordinates in each lattice, (2 lattices, D)."""
    return np.stack([edge for coordinates, _ in mapped for edge in (coordinates.low, coordinates.high)])


def _nowhere(dim: int) -> Coordinates:
    return Coordinates(np.empty((0, dim)), np.full(dim, np.inf), np.full(dim, -np.inf))
