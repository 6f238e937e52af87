r"""The lattice filter over ranks, by the stages of the Triton backend.

Each rank locates and splats its own points.  The ranks agree on the finest level of each cloud
(:mod:`phgcn.distributed.triton_levels`); on the extent, and so on the layout of keys; on the vertices, by gathering and merging
their keys; and they sum the rows at the vertices.  Each blurs all vertices and slices for its own points.  What is exchanged
follows the number of vertices, not of points, but for the near field of sparse clouds, which looks at pairs of points
(:mod:`phgcn.distributed.triton_near`).

All clouds go through the same launches and collectives, but for narrow ones: the clouds of each step are filtered on their own,
with the scheme of their width.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..lattice.filter_call import FilterCall
from ..lattice.narrow import used_levels
from ..lattice.scheme import MultiScale, Scheme
from ..lattice.triton.cells import NearLevel
from ..lattice.triton.clouds import Clouds
from ..lattice.triton.constants import Constants, constants
from ..lattice.triton.copies import Copies
from ..lattice.triton.filter import backward, forward
from ..lattice.triton.index import MAX_ENTRIES, index
from ..lattice.triton.keys import KeyLayout, key_widths
from ..lattice.triton.locate import locate
from ..lattice.triton.plan import COINCIDENT, COPIES, FLAGS, NARROW, Corners, Plan, has_self_term
from ..lattice.triton.rows import Rows
from ..lattice.triton.runs import find_runs
from ..lattice.triton.survey import HIGH, KUHN_HIGH, KUHN_LOW, LOW, Survey, layouts, survey
from ..runtime.points import Points, Sums, output_gradients
from ..runtime.triton import device_of
from .collectives import Ranks
from .graphs import RankGraphs
from .triton_clouds import RankClouds, clouds_of_graphs, clouds_of_rows
from .triton_copies import find_rank_copies
from .triton_levels import CloudLevels, agree_on_levels
from .triton_near import NearClouds, NearPoints, add_near_gradients, add_near_sums, find_sources


def filter_at_vertices(points: Points, graphs: RankGraphs, scheme: Scheme, more_than: int, ranks: Ranks) -> Sums:
    """Attends to the keys of all ranks; returns normalised sums and their normalisers, differentiable.

    Args:
        points (Points): The keys and queries of this rank.
        graphs (RankGraphs): Their graphs.
        scheme (Scheme): The lattices.
        more_than (int): Only graphs with more pairs than this are filtered; the others' output is 0.
        ranks (Ranks): The processes.
    """
    (count, heads), dim = points.targets.shape[:2], points.positions.size(2)
    nothing = sum(t[:0].sum() for t in points[:3] if t is not None)  # the output depends on all inputs, if only by 0
    out, norm = (t.zero_() + nothing for t in points.new_output(True))
    if not (graphs.pairs > max(more_than, 0)).any():
        return Sums(out, norm)
    _check_entries(graphs, heads, dim, points.queries is None)
    with device_of(points.positions):
        every = clouds_of_graphs(points, graphs, more_than, ranks)
        levels = agree_on_levels(every, scheme, ranks)
        present = every.totals > 0
        steps = np.unique(levels.step[present]).tolist()
        if len(steps) == 1:
            return Sums(*_filter(every, levels, _scheme_of_step(scheme, dim, steps[0]), ranks))
        shapes = out.shape, norm.shape
        out, norm = out.view(count * heads, 1, out.size(2)), norm.view(count * heads, 1)
        for step in steps:
            some = present & (levels.step == step)
            part, _, rows = clouds_of_rows(every, some, ranks)
            of_part = levels.of(some, part.clouds.count)
            part_out, part_norm = _filter(part, of_part, _scheme_of_step(scheme, dim, step), ranks)
            out, norm = out.index_copy(0, rows, part_out.to(out.dtype)), norm.index_copy(0, rows, part_norm)
    return Sums(out.view(shapes[0]), norm.view(shapes[1]))


def _check_entries(graphs: RankGraphs, heads: int, dim: int, to_itself: bool) -> None:
    """Refuses more points of a rank than the kernels can count; the same on all ranks."""
    points = graphs.keys.sum(axis=1) + (0 if to_itself else graphs.queries.sum(axis=1))
    most = heads * int(points.max())
    if most * (dim + 1) >= MAX_ENTRIES:
        raise ValueError(
            f"positions and queries have {most} points on one rank, counted for each head; allowed for a lattice on a GPU in "
            f"{dim} dimensions: fewer than {MAX_ENTRIES // (dim + 1)}"
        )


def _scheme_of_step(scheme: Scheme, dim: int, step: int) -> Scheme:
    return used_levels(scheme, dim, -step)[0] if isinstance(scheme, MultiScale) else scheme


def _filter(given: RankClouds, levels: CloudLevels, scheme: Scheme, ranks: Ranks) -> tuple[Tensor, Tensor]:
    """Filters clouds of one scheme; returns output and normaliser of the queries that are not padding."""
    positions, values, queries = given.points[:3]
    meeting = VertexMeeting(given, levels, ranks)
    out, norm = _Filter.apply(positions, values, queries, scheme, meeting)  # type: ignore[no-untyped-call]
    return out[: given.query_count], norm[: given.query_count]


class _Filter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, positions: Tensor, values: Tensor, queries: Tensor | None, scheme: Scheme, meeting: VertexMeeting
    ) -> tuple[Tensor, Tensor]:
        points = Points(positions.contiguous(), values.contiguous(), None if queries is None else queries.contiguous())
        out, norm, plan = forward(points, FilterCall(scheme, True), True, meeting)
        ctx.save_for_backward(out, norm, *points[:3])
        ctx.options = plan, scheme, meeting
        ctx.set_materialize_grads(False)
        return out, norm

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        (out, norm, *saved), (plan, scheme, meeting) = ctx.saved_tensors, ctx.options
        upstream = output_gradients(grads[0], grads[1], out, norm)
        return *backward(upstream, plan, Points(*saved), FilterCall(scheme, True), meeting), None, None


class VertexMeeting:
    """How ranks meet at the vertices; see :class:`phgcn.lattice.triton.meeting.Meeting`.

    Args:
        given (RankClouds): The clouds, all of one scheme.
        levels (CloudLevels): What ranks have agreed on for each of them.
        ranks (Ranks): The processes.
    """

    def __init__(self, given: RankClouds, levels: CloudLevels, ranks: Ranks) -> None:
        self.given, self.levels, self.ranks = given, levels, ranks
        self.clouds, self.filtered = given.clouds, given.filtered
        self.keys: list[Tensor] = []
        self.copies: Copies | None = None
        device = given.clouds.position.device
        finest = torch.from_numpy(levels.finest.astype(np.int32)).to(device)
        self.near = NearClouds(finest, None if levels.axes is None else torch.from_numpy(levels.axes).to(device))

    def join(self, rows: Rows) -> None:
        self.ranks.sum_in_place(rows.data[: rows.count * (rows.channels + rows.extras)])

    def make_plan(self, clouds: Clouds, scheme: Scheme) -> Plan:
        """Locates points on the finest level."""
        count, dim = clouds.position.shape
        made = constants(scheme, dim, clouds.position.dtype, clouds.position.device)
        surveyed, words = self._survey(scheme, made)
        layout, grids = layouts(surveyed.key_layout, words)[0], made.grids.size(0)
        self_rows = 1 + dim if has_self_term(scheme, clouds.to_itself) else 0
        level = torch.empty(count, dtype=torch.int32, device=clouds.position.device)
        simplices, corners = [], []
        for number in range(made.lattices):
            corner_keys, located = locate(clouds, surveyed.kappa, made, number, layout, self_rows, level)
            facts = surveyed.facts[grids + FLAGS + number * (made.levels + 2) :][: made.levels + 2]
            own, own_keys = index(corner_keys, layout, facts, made.levels, clouds.count)
            merged, keys = _merge_vertices(own, own_keys, facts, layout, made, clouds, self.ranks)
            simplices.append(located)
            corners.append(merged)
            self.keys.append(keys)
        if self_rows > 0:
            self.copies = find_rank_copies(clouds, level >= 0, self.ranks)
        surveyed.facts[grids + COPIES] = int(self.copies is not None)
        host_facts = torch.cat([surveyed.facts.cpu(), torch.tensor(words)])
        return Plan(host_facts, surveyed.facts, surveyed.key_layout, clouds.cloud, level, simplices, corners)

    def _survey(self, scheme: Scheme, made: Constants) -> tuple[Survey, list[int]]:
        """Surveys the points of all ranks, so that keys are the same on all of them; returns their words too.  What a survey
        finds of a cloud is replaced by what ranks have agreed on."""
        position, grids = self.clouds.position, made.grids.size(0)
        widths = key_widths(scheme, position.size(1), position.device)
        while True:
            # What earlier calls taught differs between ranks; keys must not.
            words: list[int] = self.ranks.max(torch.tensor(widths.words, device=position.device)).tolist()
            surveyed = survey(self.clouds, None, made, words, 0, torch.inf, join=self._join_bounds)
            missing: list[int] = surveyed.facts[:grids].tolist()  # the same on all ranks, as bounds are
            widths.words = list(words)
            widths.learn([max(some, default=0) for some in (missing[:1], missing[1:2], missing[2:])])
            if max(missing) <= 0:
                break
        surveyed.kappa.copy_(self.near.level)
        surveyed.facts[grids + COINCIDENT] = int((self.levels.finest < 0).any())
        surveyed.facts[grids + NARROW] = 0
        return surveyed, words

    def _join_bounds(self, bounds: Tensor) -> None:
        """Widens the bounds of all chunks, see :data:`phgcn.lattice.triton.survey.BOUNDS`, to those of all points of all
        ranks; the layout of keys needs no others."""
        dim, here = self.clouds.position.size(1), bounds[: len(bounds) - self.given.padding]
        least, most = (
            torch.cat([torch.arange(place.value * dim, (place.value + 1) * dim) for place in places]).to(bounds.device)
            for places in ((LOW, KUHN_LOW), (HIGH, KUHN_HIGH))
        )
        outermost = here.new_full((1, 4 * dim), -torch.inf)  # on a rank without points
        edges = self.ranks.max(torch.cat([outermost, torch.cat([-here[:, least], here[:, most]], dim=1)]).amax(dim=0))
        bounds[:, least], bounds[:, most] = -edges[: 2 * dim], edges[2 * dim :]

    def sum_near_fields(self, levels: list[NearLevel], point_level: Tensor, values: Rows, sums: Rows) -> None:
        keys, queries = self._near_points(point_level)
        sums.data.zero_()
        sources = find_sources(keys, values, self._count_near(self.given.keys))
        add_near_sums(queries, sources, self.near, levels, self.ranks, sums)

    def near_gradients(
        self, levels: list[NearLevel], point_level: Tensor, values: Rows, grads: Rows, of_values: Rows, of_points: Tensor
    ) -> None:
        (keys, queries), clouds = self._near_points(point_level), self.clouds
        of_values.data.zero_()
        of_points.zero_()
        sources = find_sources(queries, grads, self._count_near(self.given.queries))
        add_near_gradients((keys, values), sources, self.near, levels, self.ranks, of_values, of_points[: clouds.sources])
        sources = find_sources(keys, values, self._count_near(self.given.keys))
        add_near_gradients((queries, grads), sources, self.near, levels, self.ranks, None, of_points[clouds.queries])

    def _near_points(self, point_level: Tensor) -> tuple[NearPoints, NearPoints]:
        """Returns the keys and the queries of this rank."""
        clouds = self.clouds
        points = self.near.points(clouds.position, clouds.cloud)._replace(level=point_level)
        return points.part(slice(0, clouds.sources)), points.part(clouds.queries)

    def _count_near(self, counts: Any) -> list[int]:
        """Counts the points of each rank that have a near field, from those of each cloud, (P, clouds)."""
        numbers: list[int] = counts[:, self.levels.finest > 0].sum(axis=1).tolist()
        return numbers


def _merge_vertices(
    corners: Corners, keys: Tensor, facts: Tensor, layout: KeyLayout, made: Constants, clouds: Clouds, ranks: Ranks
) -> tuple[Corners, Tensor]:
    """Numbers the vertices that points of any rank touch; returns the corners of this rank among them, and all keys.

    Args:
        corners (Corners): The corners of this rank, and its vertices.
        keys (torch.Tensor): The keys of these, (W, V), undefined behind the last.
        facts (torch.Tensor): How many vertices there are before each level and behind the last; becomes that of all ranks.
        layout (KeyLayout), made (Constants), clouds (Clouds): As in :meth:`VertexMeeting.make_plan`.
        ranks (Ranks): The processes.
    """
    count = int(facts[made.levels])
    parts = ranks.gather(keys[:, :count].T)
    begin, entries = sum(len(part) for part in parts[: ranks.rank]), sum(len(part) for part in parts)
    if entries == 0:  # in each cloud all points coincide
        return corners, keys
    if entries >= MAX_ENTRIES:
        raise ValueError(
            f"positions of all ranks touch {entries} vertices of a lattice, counted on each rank; allowed on a GPU: fewer than "
            f"{MAX_ENTRIES}"
        )
    joined = torch.empty_like(facts)
    merged, all_keys = find_runs(torch.cat(parts).T.contiguous(), layout, joined, made.levels, clouds.count)
    # The last number is that of corners without a vertex.
    number = torch.cat([merged.vertex[begin : begin + count].to(torch.int64), merged.vertex.new_full((1,), -1)])
    facts[: made.levels + 1] = joined[: made.levels + 1]
    # The vertices of this rank are in the order of their keys, as all are: their corners stay one after the other.
    size = torch.zeros(int(facts[made.levels]) + 1, dtype=torch.int64, device=keys.device)
    size[number[:-1] + 1] = corners.start[: count + 1].diff().to(torch.int64)
    vertex = number[torch.where(corners.vertex >= 0, corners.vertex, count).to(torch.int64)]
    return Corners(corners.order, vertex.to(torch.int32), size.cumsum(0).to(torch.int32)), all_keys
