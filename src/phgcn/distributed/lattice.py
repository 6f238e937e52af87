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
import torch
from torch import Tensor

from ..lattice.coefficients import MultiScaleWeights, multiscale_weights, separable_weights
from ..lattice.far import far_gradients, far_weight
from ..lattice.levels import CANDIDATES, CELL_DIMENSIONS, FLOOR, finest_level
from ..lattice.narrow import narrow_step, used_levels
from ..lattice.numba.blur import StencilRows, blur, blur_passes, direct_rows
from ..lattice.numba.copies import Copies
from ..lattice.numba.filter import GAP, NO_GAP, CloudGradients, self_products
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
from ..lattice.numba.near import PairGrid, cell_counts, pair_grid, pairs_in_cells, sure_pairs
from ..lattice.numba.plan import CloudPlan
from ..lattice.numba.slice import add_coarser, add_position_gradients, add_self_term, slice_gradients, slice_rows
from ..lattice.numba.splat import splat, splat_coarser
from ..lattice.scheme import MultiScale, Scheme, Separable
from .collectives import Ranks
from .copies import RankCopies, find_copies
from .lockstep import Array, Fill, Gather, Steps, Sum

Stencils = list[tuple[StencilRows, Array]]
"""The stencil of each level that is used, and its weights by orbit."""

Located = tuple[Simplices, Corners, Level]
"""Where a rank's points lie on the finest level."""


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
        self.key_boxes: Array  # of each rank's keys the lowest and the highest coordinates, (ranks, 2, D)
        self.row_sum: Array  # of all ranks' keys, in cross-attention
        self.frames: list[Frame] = []  # kept within the forward pass

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

    def levels(self, number: int, frame: Frame, gap: int) -> list[Level]:
        """Lays out the vertices of the finest level and of all coarser ones."""
        levels = [lay_out(self.placed[number].vertices, frame.keys(self.finest), gap)]
        for level in range(self.finest + 1, len(self.hops)):
            levels.append(lay_out(coarsen(levels[-1].vertices, frame.keys(level)), frame.keys(level), gap))
        return levels


# Locate and index


def lay_lattices(cloud: RankCloud, scheme: Scheme, ranks: Ranks) -> Steps[None]:
    """Agrees on the extent, the levels and the vertices of a cloud, and locates this rank's points."""
    boxes = np.stack([*_box(cloud.points), *_box(cloud.keys)[:2]])
    all_boxes = np.stack((yield Gather(boxes, [len(boxes)] * ranks.size)))
    low, high = all_boxes[:, 0].min(axis=0), all_boxes[:, 1].max(axis=0)
    cloud.scheme, cloud.key_boxes = scheme, all_boxes[:, 3:]
    cloud.is_one_point = cloud.to_itself and bool((low == high).all())
    if cloud.is_one_point:
        return
    if isinstance(scheme, MultiScale):
        mean = all_boxes[:, 2].sum(axis=0) / cloud.count
        finest = yield from _agree_on_level(cloud, Coordinates(np.empty((0, cloud.dim)), low, high), mean, scheme)
        if finest == 0:
            finest = -narrow_step(scheme, low, high)
        cloud.scheme, cloud.finest = used_levels(scheme, cloud.dim, finest)
    mapped = [_map(cloud, number) for number in range(_lattices(scheme))]
    edges = np.stack([edge for coordinates, _ in mapped for edge in (coordinates.low, coordinates.high)])
    all_edges = np.stack((yield Gather(edges, [len(edges)] * ranks.size)))
    for number, (local, matrix) in enumerate(mapped):
        extent = all_edges[:, 2 * number].min(axis=0), all_edges[:, 2 * number + 1].max(axis=0)
        frame = lay_frame(local._replace(low=extent[0], high=extent[1]), matrix, cloud.hops)
        cloud.frames.append(frame)
        yield from _place(cloud, frame, extent, number, ranks)
    if isinstance(scheme, MultiScale) and cloud.to_itself:
        exact = cloud.points.astype(np.float64)
        here = Copies(exact, cloud.placed[0].simplices) if len(exact) > 0 else None
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


def _lattices(scheme: Scheme) -> int:
    return scheme.lattices if isinstance(scheme, MultiScale) else 1


def _map(cloud: RankCloud, number: int) -> tuple[Coordinates, Array]:
    """Maps points to Kuhn coordinates of one of the lattices; returns the matrix too.  No points have the extent of none."""
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


# The filter of one cloud, but for its near field


def filter_cloud(cloud: RankCloud, rows: Array, out: Array, scheme: Scheme, ranks: Ranks) -> Steps[None]:
    """Filters the rows of a cloud's keys; adds to ``out``, (M, W), all but the near field."""
    yield from lay_lattices(cloud, scheme, ranks)
    if cloud.is_one_point:
        out += yield Sum(rows.sum(axis=0, dtype=np.float64))
    elif isinstance(cloud.scheme, Separable):
        yield from separable(cloud, rows, out, cloud.scheme)
    else:
        yield from multiscale(cloud, rows, out, cloud.scheme, ranks)
    if not cloud.to_itself:
        yield from _add_far(cloud, rows, out)


def filter_cloud_gradients(cloud: RankCloud, rows: Array, grads: Array, into: CloudGradients, ranks: Ranks) -> Steps[None]:
    """Adds the gradients of :func:`filter_cloud`; the cloud is laid out by it."""
    if cloud.is_one_point:
        into.rows[:] += yield Sum(grads.sum(axis=0, dtype=np.float64))
    elif isinstance(cloud.scheme, Separable):
        yield from separable_gradients(cloud, rows, grads, into, cloud.scheme)
    else:
        yield from multiscale_gradients(cloud, rows, grads, into, cloud.scheme, ranks)
    if not cloud.to_itself:
        yield from _add_far_gradients(cloud, grads, into, ranks)


def _far(cloud: RankCloud) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the queries of this rank, and the lowest and the highest coordinates of all ranks' keys."""
    low, high = cloud.key_boxes[:, 0].min(axis=0), cloud.key_boxes[:, 1].max(axis=0)
    return torch.from_numpy(cloud.queries), torch.from_numpy(low), torch.from_numpy(high)


def _add_far(cloud: RankCloud, rows: Array, out: Array) -> Steps[None]:
    """Adds what queries in cross-attention get of all keys alike: the lower bound of the denominator, and far queries more."""
    cloud.row_sum = yield Sum(rows.sum(axis=0, dtype=np.float64))
    weight = FLOOR / cloud.counts[0] + far_weight(*_far(cloud)).numpy()
    out += (weight[:, None] * cloud.row_sum).astype(rows.dtype)


def _add_far_gradients(cloud: RankCloud, grads: Array, into: CloudGradients, ranks: Ranks) -> Steps[None]:
    """Adds the gradients of :func:`_add_far`.  The box of the keys is that of a few of them, which may lie on other ranks."""
    far = _far(cloud)
    weight = FLOOR / cloud.counts[0] + far_weight(*far).numpy()
    products = torch.from_numpy(np.einsum("ic,c->i", grads, cloud.row_sum))
    of_queries, *of_edges = (t.numpy() for t in far_gradients(*far, products))
    into.queries[:] += of_queries.astype(grads.dtype)
    of_rows = np.einsum("i,ic->c", weight, grads)
    total = yield Sum(np.concatenate([of_rows, *(of_edge.sum(axis=0) for of_edge in of_edges)]))
    into.rows[:] += total[: len(of_rows)].astype(grads.dtype)
    by_edge = total[len(of_rows) :].reshape(2, cloud.dim)
    for edge, least in enumerate((np.argmin, np.argmax)):
        mine = np.flatnonzero(least(cloud.key_boxes[:, edge], axis=0) == ranks.rank)
        if len(mine) > 0:
            place = least(cloud.keys[:, mine], axis=0)
            np.add.at(into.keys, (place, mine), by_edge[edge, mine].astype(grads.dtype))


def multiscale(cloud: RankCloud, rows: Array, out: Array, scheme: MultiScale, ranks: Ranks) -> Steps[None]:
    """As :func:`phgcn.lattice.numba.filter.multiscale`: nested lattices and the exact self term."""
    fitted, stencils, tables = _weights(cloud, scheme)
    self_term = np.full(len(cloud.points), fitted.self_target(cloud.finest))
    for number, placed in enumerate(cloud.placed):
        frame = cloud.frame(number)
        levels = cloud.levels(number, frame, GAP)
        located = placed.simplices, placed.corners, levels[0]
        table = yield from _splat_and_blur((rows, rows[:0, :0], 0), located, levels, stencils, ranks)
        slice_rows(table, *located, cloud.first_query, out)
        if cloud.to_itself:
            self_term -= self_weights(frame, tables, cloud.finest)
    yield from _add_sum(rows, fitted.constant, out)
    if cloud.to_itself:
        add_self_term(self_term, (yield from cloud.copies.sum(rows)), out)


def multiscale_gradients(
    cloud: RankCloud, rows: Array, grads: Array, into: CloudGradients, scheme: MultiScale, ranks: Ranks
) -> Steps[None]:
    """Adds the gradients of :func:`multiscale`."""
    fitted, stencils, tables = _weights(cloud, scheme)
    self_term = np.full(len(cloud.points), fitted.self_target(cloud.finest))
    summed = (yield from _copy_sums(cloud, rows, grads)) if cloud.to_itself else (rows, grads)
    for number, placed in enumerate(cloud.placed):
        frame = cloud.frame(number)
        levels = cloud.levels(number, frame, GAP)
        located = placed.simplices, placed.corners, levels[0]
        if 2 * levels[0].sites * ranks.size <= cloud.count:  # a table of both is smaller than a rank's rows
            values = blurred = yield from _splat_and_blur((rows, grads, cloud.first_query), located, levels, stencils, ranks)
            column = rows.shape[1]
        else:  # one after the other takes longer, and half the memory
            none, column = rows[:0, :0], 0
            values = yield from _splat_and_blur((rows, none, 0), located, levels, stencils, ranks)
            blurred = yield from _splat_and_blur((none, grads, cloud.first_query), located, levels, stencils, ranks)
        slope = slice_gradients(values, blurred, column, *located, rows, grads, cloud.first_query, into.rows)
        if cloud.to_itself:
            products = self_products(rows, grads, *summed)
            self_term -= self_gradients(frame, tables, cloud.finest, *products, slope)
        _add_positions(cloud, slope, 0.5**cloud.finest * frame.matrix, into)
    yield from _add_sum(grads, fitted.constant, into.rows)
    if cloud.to_itself:
        add_self_term(self_term, summed[1], into.rows)


def _add_sum(rows: Array, factor: float, out: Array) -> Steps[None]:
    """Adds the sum of all ranks' rows, times a factor, to each row of ``out``."""
    if factor > 0:
        total = yield Sum(rows.sum(axis=0, dtype=np.float64))
        out += (factor * total).astype(rows.dtype)


def _copy_sums(cloud: RankCloud, rows: Array, grads: Array) -> Steps[tuple[Array, Array]]:
    """Sums rows and gradients over copies."""
    return (yield from cloud.copies.sum(rows)), (yield from cloud.copies.sum(grads))


def _weights(cloud: RankCloud, scheme: MultiScale) -> tuple[MultiScaleWeights, Stencils, Array]:
    """Returns the fitted weights; stencils of the levels used with their weights; and those of the self term."""
    fitted, levels = multiscale_weights(scheme, cloud.dim), slice(cloud.finest, None)
    stencils = [
        (direct_rows(cloud.dim, hops), weights / scheme.lattices)
        for hops, weights in zip(scheme.hops[levels], fitted.weights[levels], strict=True)
    ]
    return fitted, stencils, fitted.simplex_tables(cloud.dim) / scheme.lattices


def _splat_and_blur(
    given: tuple[Array, Array, int], located: Located, levels: list[Level], stencils: Stencils, ranks: Ranks
) -> Steps[Array]:
    """Splats rows, ``given`` as :func:`phgcn.lattice.numba.splat.splat` takes them, sums over ranks, and blurs.  Nothing holds
    the splatted table longer than it is needed."""
    return (yield from blur_levels((yield Sum(splat(*given, *located))), levels, stencils, ranks))


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
    _, weights, scale = separable_weights(scheme, cloud.dim)
    frame = cloud.frame(0)
    (level,) = cloud.levels(0, frame, NO_GAP)
    located = cloud.placed[0].simplices, cloud.placed[0].corners, level
    summed = yield Sum(splat(rows, rows[:0, :0], 0, *located))
    slice_rows(blur_passes(summed, level, weights, scale, 1), *located, cloud.first_query, out)


def separable_gradients(cloud: RankCloud, rows: Array, grads: Array, into: CloudGradients, scheme: Separable) -> Steps[None]:
    """As :func:`phgcn.lattice.numba.filter.separable_gradients`."""
    _, weights, scale = separable_weights(scheme, cloud.dim)
    frame = cloud.frame(0)
    (level,) = cloud.levels(0, frame, NO_GAP)
    located = cloud.placed[0].simplices, cloud.placed[0].corners, level
    of_rows, of_grads = splat(rows, rows[:0, :0], 0, *located), splat(rows[:0, :0], grads, cloud.first_query, *located)
    summed = yield Sum(np.stack([of_rows, of_grads]))
    values, blurred = (
        blur_passes(*some) for some in ((summed[0], level, weights, scale, 1), (summed[1], level, weights, scale, -1))
    )
    slope = slice_gradients(values, blurred, 0, *located, rows, grads, cloud.first_query, into.rows)
    _add_positions(cloud, slope, frame.matrix, into)
