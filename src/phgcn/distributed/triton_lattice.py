r"""The lattice filter over ranks, by the stages of the Triton backend: for one dense cloud in each head.

Each rank locates and splats its own points.  The ranks agree on the extent, and so on the layout of keys; on the vertices, by
gathering and merging their keys; and they sum the rows at the vertices.  Each blurs all vertices, of which a dense cloud has
few, and slices for its own points.  What is exchanged follows the number of vertices, not of points.

:func:`find_schemes` tells where that is possible: in a cloud that has no near field, whose pairs of points may lie on any two
ranks, and no two points in the very same place.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..kernels.points import Points, Sums, output_gradients
from ..lattice.coefficients import multiscale_weights
from ..lattice.levels import CANDIDATES, CELL_DIMENSIONS, mean_pairs_cell
from ..lattice.narrow import narrow_step, used_levels
from ..lattice.ops import FilterCall
from ..lattice.scheme import MultiScale, Scheme, Separable
from ..lattice.triton.clouds import Clouds
from ..lattice.triton.constants import Constants, constants
from ..lattice.triton.filter import backward, forward
from ..lattice.triton.index import MAX_ENTRIES, index
from ..lattice.triton.keys import KeyLayout, key_widths
from ..lattice.triton.locate import locate
from ..lattice.triton.plan import FLAGS, Corners, Plan, has_self_term
from ..lattice.triton.rows import Rows
from ..lattice.triton.runs import find_runs
from ..lattice.triton.survey import HIGH, KUHN_HIGH, KUHN_LOW, LOW, Survey, layouts, survey
from .collectives import Ranks

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]


# Where ranks can meet at the vertices


def find_schemes(points: Points, counts: Sequence[tuple[int, int]], scheme: Scheme, ranks: Ranks) -> list[Scheme] | None:
    """Returns the scheme of each head, that of its width where it is narrow; :obj:`None` where points must be gathered.

    Args:
        points (Points): Those of this rank.
        counts (sequence): How many keys and queries each rank has.
        scheme (Scheme): Of the call.
        ranks (Ranks): The processes.
    """
    heads, dim = points.positions.shape[1:]
    if points.queries is not None or points.batch is not None or min(keys for keys, _ in counts) == 0:
        return None
    if max(keys for keys, _ in counts) * heads * (dim + 1) >= MAX_ENTRIES:
        return None
    if isinstance(scheme, Separable):
        return [scheme] * heads
    positions = points.positions.detach().double()
    edges = ranks.max(torch.cat([-positions.amin(dim=0), positions.amax(dim=0)], dim=1)).cpu().numpy()  # (H, 2D)
    count = sum(keys for keys, _ in counts)
    mean = (ranks.sum(positions.sum(dim=0)) / count).cpu().numpy()
    schemes: list[Scheme] = []
    for head, (low, high) in enumerate(zip(-edges[:, :dim], edges[:, dim:], strict=True)):
        cloud = _Cloud(positions[:, head], low, high, mean[head], count)
        if (low == high).all() or not _is_dense(cloud, scheme, ranks):
            return None
        schemes.append(used_levels(scheme, dim, -narrow_step(scheme, low, high))[0])
    return None if _has_copies(positions, ranks) else schemes


class _Cloud(NamedTuple):
    """The points of this rank, (N, D) in double precision; bounds, mean and number of those of all ranks."""

    points: Tensor
    low: Floats
    high: Floats
    mean: Floats
    total: int


def _is_dense(cloud: _Cloud, scheme: MultiScale, ranks: Ranks) -> bool:
    """Tells whether a cloud has no near field, as :func:`phgcn.lattice.levels.finest_level` decides."""
    if scheme.near_field is not None or len(scheme.hops) == 1:
        return not scheme.near_field
    dim = len(cloud.low)
    side = mean_pairs_cell(dim, multiscale_weights(scheme, dim).radius[1])
    if _has_more_pairs(cloud, np.arange(dim), side, scheme.pairs, ranks):
        return True
    widest = np.sort(np.argsort(cloud.low - cloud.high, kind="stable")[:CELL_DIMENSIONS])
    return dim > CELL_DIMENSIONS and _has_more_pairs(cloud, widest, side, CANDIDATES, ranks)


def _has_more_pairs(cloud: _Cloud, axes: Ints, side: float, limit: int, ranks: Ranks) -> bool:
    """Tells whether a point shares its cell, over some of the axes, with more than ``limit`` others on average; see
    :func:`phgcn.lattice.reference.levels.mean_pairs`."""
    low, high, mean = cloud.low[axes], cloud.high[axes], cloud.mean[axes]
    first = np.floor((low - mean) / side + 0.5)
    sizes = np.floor((high - mean) / side + 0.5) - first + 1
    if cloud.total > (limit + 1) * np.prod(sizes):
        return True  # however they are spread
    if np.prod(sizes) >= 2.0**62:
        return False  # too wide to number the cells: gathered points are looked at more closely
    device = cloud.points.device
    middle, base, radix = (torch.from_numpy(t).to(device) for t in (mean, first, np.cumprod(np.append(1, sizes[:-1]))))
    place = torch.floor((cloud.points[:, torch.from_numpy(axes).to(device)] - middle) / side + 0.5) - base
    cells, numbers = torch.unique((place.long() * radix.long()).sum(dim=1), return_counts=True)
    rows = torch.cat(ranks.gather(torch.stack([cells, numbers], dim=1)))
    cell = torch.unique(rows[:, 0], return_inverse=True)[1]
    total = torch.zeros(int(cell.max()) + 1, dtype=torch.int64, device=device).index_add_(0, cell, rows[:, 1])
    return int((total * (total - 1)).sum()) > limit * cloud.total


def _has_copies(positions: Tensor, ranks: Ranks) -> bool:
    """Tells whether two points of a head, (N, H, D) in double precision, seem to have the same place, on any ranks.

    Each rank sends a hash of every place to the rank that has its range of hashes.
    """
    bits = (positions + 0.0).view(torch.int64)  # 0 and -0 are one place
    code = torch.arange(bits.size(1), device=bits.device).expand(bits.shape[:2])
    for k in range(bits.size(2)):
        code = (code ^ bits[:, :, k]) * 0x1E3779B97F4A7C15
        code = code ^ (code >> 29)
    codes = torch.sort(code.flatten())[0]
    ends = torch.tensor([2**63 // ranks.size * (2 * rank + 2) - 2**63 for rank in range(ranks.size - 1)], device=codes.device)
    bounds = [0, *torch.searchsorted(codes, ends).tolist(), len(codes)]
    send = [end - begin for begin, end in pairwise(bounds)]
    receive = ranks.gather_equal(torch.tensor(send, device=codes.device))[:, ranks.rank].tolist()
    arrived = torch.sort(ranks.exchange(codes, send, receive))[0]
    has_equal = (arrived[1:] == arrived[:-1]).any().to(torch.int64).unsqueeze(0)
    return bool(ranks.max(has_equal))


# The filter


def filter_at_vertices(points: Points, schemes: Sequence[Scheme], ranks: Ranks) -> Sums:
    """Attends to the keys of all ranks; returns normalised sums and their normalisers, differentiable.

    Args:
        points (Points): The keys of this rank.
        schemes (sequence): Those of :func:`find_schemes`.
        ranks (Ranks): The processes.
    """
    outs: list[Tensor] = []
    norms: list[Tensor] = []
    order: list[int] = []
    for scheme in dict.fromkeys(schemes):
        heads = [head for head, own in enumerate(schemes) if own == scheme]
        out, norm = _Filter.apply(points.positions[:, heads], points.values[:, heads], scheme, ranks)  # type: ignore[no-untyped-call]
        outs, norms, order = [*outs, out], [*norms, norm], order + heads
    place = torch.argsort(torch.tensor(order)).to(outs[0].device)
    return Sums(torch.cat(outs, dim=1)[:, place], torch.cat(norms, dim=1)[:, place])


class _Filter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, positions: Tensor, values: Tensor, scheme: Scheme, ranks: Ranks) -> tuple[Tensor, Tensor]:
        meeting, points = VertexMeeting(ranks), Points(positions.contiguous(), values.contiguous())
        out, norm, plan = forward(points, FilterCall(scheme, True), True, meeting)
        ctx.save_for_backward(out, norm, *points[:2])
        ctx.options = plan, scheme, meeting
        ctx.set_materialize_grads(False)
        return out, norm

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, None, None]:
        (out, norm, *saved), (plan, scheme, meeting) = ctx.saved_tensors, ctx.options
        upstream = output_gradients(grads[0], grads[1], out, norm)
        of_positions, of_values, _ = backward(upstream, plan, Points(*saved), FilterCall(scheme, True), meeting)
        return of_positions, of_values, None, None


class VertexMeeting:
    """How ranks meet at the vertices; see :class:`phgcn.lattice.triton.meeting.Meeting`."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.keys: list[Tensor] = []

    def join(self, rows: Rows) -> None:
        self.ranks.sum_in_place(rows.data[: rows.count * (rows.channels + rows.extras)])

    def make_plan(self, clouds: Clouds, scheme: Scheme) -> Plan:
        """Locates points on the finest level."""
        count, dim = clouds.position.shape
        made = constants(scheme, dim, clouds.position.dtype, clouds.position.device)
        surveyed, words = _survey(clouds, scheme, made, self.ranks)
        layout = layouts(surveyed.key_layout, words)[0]
        self_rows = 1 + dim if has_self_term(scheme, True) else 0
        level = torch.empty(count, dtype=torch.int32, device=clouds.position.device)
        simplices, corners = [], []
        for number in range(made.lattices):
            corner_keys, located = locate(clouds, surveyed.kappa, made, number, layout, self_rows, level)
            facts = surveyed.facts[made.grids.size(0) + FLAGS + number * (made.levels + 2) :][: made.levels + 2]
            own, own_keys = index(corner_keys, layout, facts, made.levels, clouds.count)
            merged, keys = _merge_vertices(own, own_keys, facts, layout, made, clouds, self.ranks)
            simplices.append(located)
            corners.append(merged)
            self.keys.append(keys)
        host_facts = torch.cat([surveyed.facts.cpu(), torch.tensor(words)])
        return Plan(host_facts, surveyed.facts, surveyed.key_layout, clouds.cloud, level, simplices, corners)


def _survey(clouds: Clouds, scheme: Scheme, made: Constants, ranks: Ranks) -> tuple[Survey, list[int]]:
    """Surveys the points of all ranks, so that keys are the same on all of them; returns their words too."""
    widths = key_widths(scheme, clouds.position.size(1), clouds.position.device)
    while True:
        # What earlier calls taught differs between ranks; keys must not.
        words = ranks.max(torch.tensor(widths.words, device=clouds.position.device)).tolist()
        surveyed = survey(clouds, None, made, words, 0, torch.inf, join=lambda bounds: _join_bounds(bounds, clouds, ranks))
        missing: list[int] = surveyed.facts[: made.grids.size(0)].tolist()  # the same on all ranks, as bounds are
        widths.words = list(words)
        widths.learn([max(some, default=0) for some in (missing[:1], missing[1:2], missing[2:])])
        if max(missing) <= 0:
            return surveyed, words


def _join_bounds(bounds: Tensor, clouds: Clouds, ranks: Ranks) -> None:
    """Widens the bounds of the first chunk of each head, see :data:`phgcn.lattice.triton.survey.BOUNDS`, to all ranks'."""
    dim, by_head = clouds.position.size(1), bounds.view(clouds.heads, -1, bounds.size(1))
    least, most = (
        torch.cat([torch.arange(place.value * dim, (place.value + 1) * dim) for place in places]).to(bounds.device)
        for places in ((LOW, KUHN_LOW), (HIGH, KUHN_HIGH))
    )
    edges = ranks.max(torch.cat([-by_head[:, :, least].amin(dim=1), by_head[:, :, most].amax(dim=1)], dim=1))
    by_head[:, 0, least], by_head[:, 0, most] = -edges[:, : 2 * dim], edges[:, 2 * dim :]


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
    begin, joined = sum(len(part) for part in parts[: ranks.rank]), torch.empty_like(facts)
    merged, all_keys = find_runs(torch.cat(parts).T.contiguous(), layout, joined, made.levels, clouds.count)
    number = merged.vertex[begin : begin + count].to(torch.int64)
    facts[: made.levels + 1] = joined[: made.levels + 1]
    # The vertices of this rank are in the order of their keys, as all are: their corners stay one after the other.
    size = torch.zeros(int(facts[made.levels]) + 1, dtype=torch.int64, device=keys.device)
    size[number + 1] = corners.start[: count + 1].diff().to(torch.int64)
    vertex = torch.where(corners.vertex >= 0, number[corners.vertex.clamp(min=0).to(torch.int64)], -1)
    return Corners(corners.order, vertex.to(torch.int32), size.cumsum(0).to(torch.int32)), all_keys
