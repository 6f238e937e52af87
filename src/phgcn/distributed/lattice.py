r"""The lattice filter over ranks, by the stages of the Numba backend.

Each rank locates and splats its own points.  The ranks agree on the finest level and on the vertices, which they number alike;
sum the rows at the vertices; blur a share of the vertices each; and slice for their own points.  What is exchanged follows the
number of vertices, not of points, but for the near field of sparse clouds, which looks at pairs of points
(:mod:`phgcn.distributed.near`).

A cloud goes through :func:`multiscale` or :func:`separable`, generators that yield what they need of other ranks; all clouds of
a call run in lockstep, so that a call makes few collectives, whatever the number of graphs and heads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..lattice.coefficients import MultiScaleWeights, multiscale_weights, separable_weights
from ..lattice.levels import FLOOR, finest_level
from ..lattice.numba.blur import StencilRows, blur, blur_passes, direct_rows
from ..lattice.numba.filter import GAP, NO_GAP, CloudGradients
from ..lattice.numba.index import Corners, Level, Vertices, coarsen, index, lay_out, merge, planned_vertices
from ..lattice.numba.keys import Keys
from ..lattice.numba.locate import (
    Coordinates,
    Frame,
    Simplices,
    kuhn_map,
    lay_frame,
    locate,
    map_points,
    planned_simplices,
    self_gradients,
    self_weights,
)
from ..lattice.numba.near import cell_counts, pair_grid, pairs_in_cells, sure_pairs
from ..lattice.numba.plan import CloudPlan
from ..lattice.numba.slice import add_coarser, add_position_gradients, add_self_term, slice_gradients, slice_rows
from ..lattice.numba.splat import splat, splat_coarser
from ..lattice.scheme import MultiScale, Scheme, Separable
from .collectives import Ranks
from .lockstep import Array, Fill, Gather, Steps, Sum

Stencils = list[tuple[StencilRows, Array]]
"""The stencil of each level that is used, and its weights by orbit."""


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
        self.finest = 0
        self.is_one_point = False
        self.placed: list[Placed] = []
        self.frames: list[Frame] = []  # kept within the forward pass

    @property
    def dim(self) -> int:
        return int(self.points.shape[1])

    def frame(self, number: int, spacing: float, hops: tuple[int, ...]) -> Frame:
        """Lays one of the lattices over all ranks' points."""
        if self.frames:
            return self.frames[number]
        mapped, matrix = _map(self.points, spacing, hops, number)
        low, high = self.placed[number].extent
        return lay_frame(mapped._replace(low=low, high=high), matrix, hops)

    def levels(self, number: int, frame: Frame, hops: tuple[int, ...], gap: int) -> list[Level]:
        """Lays out the vertices of the finest level and of all coarser ones."""
        levels = [lay_out(self.placed[number].vertices, frame.keys(self.finest), gap)]
        for level in range(self.finest + 1, len(hops)):
            levels.append(lay_out(coarsen(levels[-1].vertices, frame.keys(level)), frame.keys(level), gap))
        return levels


# Locate and index


def lay_lattices(cloud: RankCloud, scheme: Scheme, ranks: Ranks) -> Steps[None]:
    """Agrees on the extent, the finest level and the vertices of a cloud, and locates this rank's points."""
    spacing, hops = _spacing_and_hops(scheme, cloud.dim)
    numbers = range(scheme.lattices if isinstance(scheme, MultiScale) else 1)
    mapped = [_map(cloud.points, spacing, hops, number) for number in numbers]
    box = _box(cloud.points)
    extents = np.stack([*box, *(edge for coordinates, _ in mapped for edge in (coordinates.low, coordinates.high))])
    parts = yield Gather(extents, [len(extents)] * ranks.size)
    all_extents = np.stack(parts)
    low, high = all_extents[:, 0].min(axis=0), all_extents[:, 1].max(axis=0)
    cloud.is_one_point = cloud.to_itself and bool((low == high).all())
    if cloud.is_one_point:
        return
    if isinstance(scheme, MultiScale):
        total = cloud.counts[0] + (0 if cloud.to_itself else cloud.counts[1])
        mean = all_extents[:, 2].sum(axis=0) / total
        cloud.finest = yield from _agree_on_level(cloud, (low, high), mean, scheme)
    for number, (local, matrix) in enumerate(mapped):
        extent = all_extents[:, 3 + 2 * number].min(axis=0), all_extents[:, 4 + 2 * number].max(axis=0)
        frame = lay_frame(local._replace(low=extent[0], high=extent[1]), matrix, hops)
        cloud.frames.append(frame)
        yield from _place(cloud, frame, extent, number, ranks)


def _agree_on_level(cloud: RankCloud, box: tuple[Array, Array], mean: Array, scheme: MultiScale) -> Steps[int]:
    """Chooses the finest level as a single process does, from the counts of all ranks' points in cells."""
    fitted, total = multiscale_weights(scheme, cloud.dim), sum(cloud.counts[:1] if cloud.to_itself else cloud.counts)
    estimates: dict[float, float] = {}
    counted: list[tuple[float, Array]] = []
    nowhere = _nowhere(cloud.dim)
    for radius in fitted.radius[1:] if scheme.near_field is None else ():
        grid = pair_grid(nowhere._replace(low=box[0], high=box[1]), mean, radius)
        sure = sure_pairs(grid, total, cloud.to_itself, scheme.pairs)
        if sure is not None:
            estimates[radius] = sure
            continue
        key, keys, queries = cell_counts(cloud.points.astype(np.float64), cloud.first_query, grid)
        if not cloud.to_itself and cloud.first_query == 0:  # no keys on this rank: all its points are queries
            keys, queries = queries, keys
        counted.append((radius, np.stack([key.view(np.float64), keys, queries], axis=1)))
    for radius, counts in counted:
        rows = np.concatenate((yield Gather(counts)))
        _, cell = np.unique(rows[:, 0].copy().view(np.uint64), return_inverse=True)
        of_keys, of_queries = (np.bincount(cell, rows[:, column]) for column in (1, 2))
        estimates[radius] = pairs_in_cells(of_keys, of_queries, cloud.to_itself)
    return finest_level(scheme, fitted, estimates.__getitem__)


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


def _map(points: Array, spacing: float, hops: tuple[int, ...], number: int) -> tuple[Coordinates, Array]:
    """Maps points to Kuhn coordinates; returns the matrix too.  Without points the extent is that of none."""
    matrix, shift = kuhn_map(points.shape[1], spacing, hops, number)
    return (map_points(points, matrix, shift) if len(points) > 0 else _nowhere(points.shape[1])), matrix


def _box(points: Array) -> tuple[Array, Array, Array]:
    """Returns the lowest and the highest coordinates of points, and their sum, in double precision."""
    if len(points) == 0:
        return *_nowhere(points.shape[1])[1:], np.zeros(points.shape[1])
    return points.min(axis=0).astype(np.float64), points.max(axis=0).astype(np.float64), points.sum(axis=0, dtype=np.float64)


def _nowhere(dim: int) -> Coordinates:
    return Coordinates(np.empty((0, dim)), np.full(dim, np.inf), np.full(dim, -np.inf))


# The filter of one cloud, but for its near field


def filter_cloud(cloud: RankCloud, rows: Array, out: Array, scheme: Scheme, ranks: Ranks) -> Steps[None]:
    """Filters the rows of a cloud's keys; adds to ``out``, (M, W), all but the near field."""
    if not cloud.to_itself:  # the lower bound of the denominator, times the mean of all keys' values
        total = yield Sum(rows.sum(axis=0, dtype=np.float64))
        out += (FLOOR / cloud.counts[0] * total).astype(rows.dtype)
    yield from lay_lattices(cloud, scheme, ranks)
    if cloud.is_one_point:
        out += yield Sum(rows.sum(axis=0, dtype=np.float64))
    elif isinstance(scheme, Separable):
        yield from separable(cloud, rows, out, scheme)
    else:
        yield from multiscale(cloud, rows, out, scheme, ranks)


def filter_cloud_gradients(
    cloud: RankCloud, rows: Array, grads: Array, into: CloudGradients, scheme: Scheme, ranks: Ranks
) -> Steps[None]:
    """Adds the gradients of :func:`filter_cloud`; the cloud is laid out by it."""
    if not cloud.to_itself:
        total = yield Sum(grads.sum(axis=0, dtype=np.float64))
        into.rows[:] += (FLOOR / cloud.counts[0] * total).astype(rows.dtype)
    if cloud.is_one_point:
        into.rows[:] += yield Sum(grads.sum(axis=0, dtype=np.float64))
    elif isinstance(scheme, Separable):
        yield from separable_gradients(cloud, rows, grads, into, scheme)
    else:
        yield from multiscale_gradients(cloud, rows, grads, into, scheme, ranks)


def multiscale(cloud: RankCloud, rows: Array, out: Array, scheme: MultiScale, ranks: Ranks) -> Steps[None]:
    """As :func:`phgcn.lattice.numba.filter.multiscale`: nested lattices and the exact self term."""
    fitted, stencils, tables = _weights(cloud, scheme)
    self_term = np.full(len(cloud.points), fitted.self_target(cloud.finest))
    for number, placed in enumerate(cloud.placed):
        frame = cloud.frame(number, scheme.spacing, scheme.hops)
        levels = cloud.levels(number, frame, scheme.hops, GAP)
        located = placed.simplices, placed.corners, levels[0]
        table = yield from blur_levels((yield Sum(splat(rows, rows[:0, :0], 0, *located))), levels, stencils, ranks)
        slice_rows(table, *located, cloud.first_query, out)
        if cloud.to_itself:
            self_term -= self_weights(frame, tables, cloud.finest)
    if cloud.to_itself:
        add_self_term(self_term, rows, out)


def multiscale_gradients(
    cloud: RankCloud, rows: Array, grads: Array, into: CloudGradients, scheme: MultiScale, ranks: Ranks
) -> Steps[None]:
    """Adds the gradients of :func:`multiscale`."""
    fitted, stencils, tables = _weights(cloud, scheme)
    self_term = np.full(len(cloud.points), fitted.self_target(cloud.finest))
    for number, placed in enumerate(cloud.placed):
        frame = cloud.frame(number, scheme.spacing, scheme.hops)
        levels = cloud.levels(number, frame, scheme.hops, GAP)
        located = placed.simplices, placed.corners, levels[0]
        # Rows and gradients go one after the other, not side by side as on one process: half the memory for tables.
        values = yield from blur_levels((yield Sum(splat(rows, rows[:0, :0], 0, *located))), levels, stencils, ranks)
        splatted = splat(rows[:0, :0], grads, cloud.first_query, *located)
        blurred = yield from blur_levels((yield Sum(splatted)), levels, stencils, ranks)
        slope = slice_gradients(values, blurred, 0, *located, rows, grads, cloud.first_query, into.rows)
        if cloud.to_itself:
            self_term -= self_gradients(frame, tables, cloud.finest, rows, grads, slope)
        _add_positions(cloud, slope, 0.5**cloud.finest * frame.matrix, into)
    if cloud.to_itself:
        add_self_term(self_term, grads, into.rows)


def _weights(cloud: RankCloud, scheme: MultiScale) -> tuple[MultiScaleWeights, Stencils, Array]:
    """Returns the fitted weights; stencils of the levels used with their weights; and those of the self term."""
    fitted, levels = multiscale_weights(scheme, cloud.dim), slice(cloud.finest, None)
    stencils = [
        (direct_rows(cloud.dim, hops), weights / scheme.lattices)
        for hops, weights in zip(scheme.hops[levels], fitted.weights[levels], strict=True)
    ]
    return fitted, stencils, fitted.simplex_tables(cloud.dim) / scheme.lattices


def blur_levels(table: Array, levels: list[Level], stencils: Stencils, ranks: Ranks) -> Steps[Array]:
    """As :func:`phgcn.lattice.numba.blur.blur_levels`; each rank blurs a share of each level's vertices, for all."""
    blurred: list[Array] = []
    for number, level in enumerate(levels):
        if number > 0:
            table = splat_coarser(table, levels[number - 1], level)
        segments, sites = divide(level, ranks.size)
        blurred.append(np.empty_like(table))
        blur(table, level, *stencils[number], blurred[-1], slice(segments[ranks.rank], segments[ranks.rank + 1]))
        yield Fill(blurred[-1], sites)
    for number in range(len(levels) - 1, 0, -1):
        add_coarser(blurred[number - 1], levels[number - 1], blurred[number], levels[number])
    return blurred[0]


def divide(level: Level, parts: int) -> tuple[list[int], list[int]]:
    """Divides the segments of a level into parts of about as many sites; returns the bounds of segments and of sites."""
    segments = np.searchsorted(level.place, level.sites * np.arange(parts + 1) // parts)
    segments[0], segments[-1] = 0, len(level.place)
    sites = np.append(level.place, level.sites)[segments]
    return segments.tolist(), sites.tolist()


def _add_positions(cloud: RankCloud, slope: Array, matrix: Array, into: CloudGradients) -> None:
    """Adds derivatives by Kuhn coordinates to the gradients of keys and queries."""
    add_position_gradients(slope[: len(into.keys)], matrix, into.keys)
    if not cloud.to_itself:
        add_position_gradients(slope[cloud.first_query :], matrix, into.queries)


# The paper's filter: passes depend on each other, and every rank blurs all vertices


def separable(cloud: RankCloud, rows: Array, out: Array, scheme: Separable) -> Steps[None]:
    """As :func:`phgcn.lattice.numba.filter.separable`."""
    spacing, weights, scale = separable_weights(scheme, cloud.dim)
    frame = cloud.frame(0, spacing, (len(weights) - 1,))
    (level,) = cloud.levels(0, frame, (len(weights) - 1,), NO_GAP)
    located = cloud.placed[0].simplices, cloud.placed[0].corners, level
    summed = yield Sum(splat(rows, rows[:0, :0], 0, *located))
    slice_rows(blur_passes(summed, level, weights, scale, 1), *located, cloud.first_query, out)


def separable_gradients(cloud: RankCloud, rows: Array, grads: Array, into: CloudGradients, scheme: Separable) -> Steps[None]:
    """As :func:`phgcn.lattice.numba.filter.separable_gradients`."""
    spacing, weights, scale = separable_weights(scheme, cloud.dim)
    frame = cloud.frame(0, spacing, (len(weights) - 1,))
    (level,) = cloud.levels(0, frame, (len(weights) - 1,), NO_GAP)
    located = cloud.placed[0].simplices, cloud.placed[0].corners, level
    of_rows, of_grads = splat(rows, rows[:0, :0], 0, *located), splat(rows[:0, :0], grads, cloud.first_query, *located)
    summed = yield Sum(np.stack([of_rows, of_grads]))
    values, blurred = (
        blur_passes(*some) for some in ((summed[0], level, weights, scale, 1), (summed[1], level, weights, scale, -1))
    )
    slope = slice_gradients(values, blurred, 0, *located, rows, grads, cloud.first_query, into.rows)
    _add_positions(cloud, slope, frame.matrix, into)
