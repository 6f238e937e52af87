r"""The lattice filter over ranks, by the stages of the Numba backend.

Each rank locates and splats its own points.  The ranks agree on the finest level and on the vertices, which they number alike;
sum the rows at the vertices; blur a share of each large level's vertices; and slice for their own points.  What is exchanged
follows the number of vertices, not of points, but for the near field of sparse clouds, which looks at pairs of points
(:mod:`phgcn.distributed.near`).

A cloud goes through :func:`multiscale` or :func:`separable`, generators that yield what they need of other ranks; all clouds of
a call run in lockstep, so that a call makes few collectives, whatever the number of graphs and heads.
"""

from __future__ import annotations

import numpy as np

from ..lattice.coefficients import MultiScaleWeights, multiscale_weights, separable_weights
from ..lattice.levels import FLOOR
from ..lattice.numba.blur import WeightedRows, blur, blur_passes, level_stencils
from ..lattice.numba.clouds import CloudGradients
from ..lattice.numba.filter import GAP, NO_GAP, self_products, self_tables
from ..lattice.numba.index import Corners, Level
from ..lattice.numba.locate import Simplices, self_gradients, self_weights
from ..lattice.numba.slice import add_coarser, add_position_gradients, add_self_term, slice_gradients, slice_rows
from ..lattice.numba.splat import splat, splat_coarser
from ..lattice.scheme import MultiScale, Scheme, Separable
from .collectives import Ranks
from .layout import RankCloud, lay_lattices
from .lockstep import Array, Fill, Request, Steps, Sum

SHARED = 2048
"""Least number of sites of a level whose blur is shared: fewer take a rank less time than to exchange them."""

Located = tuple[Simplices, Corners, Level]
"""Where a rank's points lie on the finest level."""


# The filter of one cloud, but for its near field


def filter_cloud(cloud: RankCloud, rows: Array, out: Array, scheme: Scheme, ranks: Ranks) -> Steps[None]:
    """Filters the rows of a cloud's keys; adds to ``out``, (M, W), all but the near field."""
    yield from lay_lattices(cloud, scheme, ranks)
    if cloud.is_one_point:
        out += yield Sum(rows.sum(axis=0, dtype=np.float64))
    elif isinstance(cloud.scheme, Separable):
        yield from separable(cloud, rows, out, cloud.scheme)
    else:
        assert isinstance(cloud.scheme, MultiScale)  # a ladder runs in one process
        yield from multiscale(cloud, rows, out, cloud.scheme, ranks)
    if not cloud.to_itself:
        yield from _add_sum(rows, FLOOR / cloud.counts[0], out)


def filter_cloud_gradients(cloud: RankCloud, rows: Array, grads: Array, into: CloudGradients, ranks: Ranks) -> Steps[None]:
    """Adds the gradients of :func:`filter_cloud`; the cloud is laid out by it."""
    if cloud.is_one_point:
        into.rows[:] += yield Sum(grads.sum(axis=0, dtype=np.float64))
    elif isinstance(cloud.scheme, Separable):
        yield from separable_gradients(cloud, rows, grads, into, cloud.scheme)
    else:
        assert isinstance(cloud.scheme, MultiScale)
        yield from multiscale_gradients(cloud, rows, grads, into, cloud.scheme, ranks)
    if not cloud.to_itself:
        yield from _add_sum(grads, FLOOR / cloud.counts[0], into.rows)


def multiscale(cloud: RankCloud, rows: Array, out: Array, scheme: MultiScale, ranks: Ranks) -> Steps[None]:
    """As :func:`phgcn.lattice.numba.filter.multiscale`: nested lattices and the exact self term."""
    fitted, stencils, tables = _weights(cloud, scheme)
    self_term = np.full(len(cloud.points), fitted.self_target(cloud.finest))
    for number, placed in enumerate(cloud.placed):
        frame = cloud.frame(number)
        levels = cloud.levels(number, frame, GAP)
        located = placed.simplices, placed.corners, levels[0]
        table = yield from _splat_and_blur((rows, rows[:0, :0], 0), located, levels, stencils, ranks)
        cloud.keep(levels, table, ranks.size)
        slice_rows(table, *located, cloud.first_query, out)
        if cloud.to_itself:
            self_term -= self_weights(frame, tables, cloud.finest, rows.dtype)
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
        frame, none = cloud.frame(number), rows[:0, :0]
        levels, values = cloud.kept[number] or (cloud.levels(number, frame, GAP), None)
        cloud.kept[number] = None  # made again if there is another backward pass
        located = placed.simplices, placed.corners, levels[0]
        if values is None:
            values = yield from _splat_and_blur((rows, none, 0), located, levels, stencils, ranks)
        blurred = yield from _splat_and_blur((none, grads, cloud.first_query), located, levels, stencils, ranks)
        slope = slice_gradients(values, blurred, 0, *located, rows, grads, cloud.first_query, into.rows)
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


def _weights(cloud: RankCloud, scheme: MultiScale) -> tuple[MultiScaleWeights, list[WeightedRows], Array]:
    """Returns the fitted weights; stencils of the levels used with their weights; and those of the self term."""
    stencils = level_stencils(scheme, cloud.dim, cloud.finest)
    return multiscale_weights(scheme, cloud.dim), stencils, self_tables(scheme, cloud.dim)


def _splat_and_blur(
    given: tuple[Array, Array, int], located: Located, levels: list[Level], stencils: list[WeightedRows], ranks: Ranks
) -> Steps[Array]:
    """Splats rows, ``given`` as :func:`phgcn.lattice.numba.splat.splat` takes them, sums over ranks, and blurs.  Nothing holds
    the splatted table longer than it is needed."""
    return (yield from blur_levels((yield Sum(splat(*given, *located))), levels, stencils, ranks))


def blur_levels(table: Array, levels: list[Level], stencils: list[WeightedRows], ranks: Ranks) -> Steps[Array]:
    """As :func:`phgcn.lattice.numba.blur.blur_levels`; of a level with many sites each rank blurs a share, for all ranks."""
    blurred: list[Array] = []
    shares: list[Request] = []
    for number, level in enumerate(levels):
        blurred.append(np.empty_like(table))  # only what this rank blurs takes memory yet
        segments = slice(None)
        if level.sites >= SHARED:
            bounds, sites = divide(level, ranks.size)
            segments = slice(*bounds[ranks.rank : ranks.rank + 2])
            shares.append(Fill(blurred[-1], sites))
        blur(table, level, *stencils[number], blurred[-1], segments)
        # Tables are freed before the shares of other ranks arrive.
        table = splat_coarser(table, level, levels[number + 1]) if number + 1 < len(levels) else np.empty((0, 0))
    if shares:
        yield shares
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
    values = blur_passes(summed[0], level, weights, scale, 1)
    blurred = blur_passes(summed[1], level, weights, scale, -1)
    slope = slice_gradients(values, blurred, 0, *located, rows, grads, cloud.first_query, into.rows)
    _add_positions(cloud, slope, frame.matrix, into)
