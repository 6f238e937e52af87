r"""The whole filter over ranks as one differentiable function: packs points, runs all clouds, unpacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..lattice.numba.clouds import CloudGradients
from ..lattice.numba.plan import CloudPlan, plan_of_cloud, plan_shapes, unset, zeros
from ..lattice.plan import count_lattices
from ..lattice.scheme import MultiScale, Scheme
from ..runtime.numba import as_array
from ..runtime.points import Gradients, OutputGradients, Points, Sums, output_gradients
from ..runtime.rows import Packed, find_centres, pack_gradients, pack_points, unpack_gradients, unpack_output
from .collectives import Ranks
from .graphs import RankGraphs
from .lattice import filter_cloud, filter_cloud_gradients
from .layout import RankCloud
from .lockstep import run_together
from .near import add_near_fields, add_near_gradients


def filter_over_ranks(points: Points, graphs: RankGraphs, scheme: Scheme, more_than: int, ranks: Ranks) -> Sums:
    """Attends to the keys of all ranks through lattices; returns normalised sums and their normalisers, differentiable.

    Args:
        points (Points): The keys and queries of this rank, on the CPU.
        graphs (RankGraphs): Their graphs.
        scheme (Scheme): The lattices.
        more_than (int): Only graphs with more pairs than this are filtered; the others' output is 0.
        ranks (Ranks): The processes.
    """
    out, norm = _Filter.apply(*points, graphs, scheme, more_than, ranks)  # type: ignore[no-untyped-call]
    return Sums(out, norm)


class _Filter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        points, (graphs, scheme, more_than, ranks) = Points(*inputs[:5]), inputs[5:]
        packed = _pack(points, graphs, ranks)
        clouds = _clouds(points, packed, graphs, scheme, more_than)
        summed = np.zeros((*packed.queries.shape[:2], packed.rows.shape[2]), packed.rows.dtype)
        run_together(
            [filter_cloud(c, packed.rows[c.head, c.key_slice], summed[c.head, c.query_slice], scheme, ranks) for c in clouds],
            ranks,
        )
        for cloud in clouds:
            cloud.frames.clear()
        if isinstance(scheme, MultiScale):
            add_near_fields(clouds, packed.rows, summed, graphs.keys, ranks, scheme)
        out, norm = unpack_output(summed, packed, points, graphs.groups, True)
        ctx.save_for_backward(out, norm, *points)
        # What is packed is packed again: it takes little time, and as much memory as the points.
        ctx.options, ctx.clouds, ctx.centres = (graphs, scheme, ranks), clouds, packed.centres
        ctx.set_materialize_grads(False)
        return out, norm

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        out, norm, *saved = ctx.saved_tensors
        upstream = output_gradients(grads[0], grads[1], out, norm)
        of_positions, of_values, of_queries = _gradients(upstream, Points(*saved), ctx.clouds, ctx.centres, *ctx.options)
        return of_positions, of_values, of_queries, *(None,) * 6


def _gradients(
    upstream: OutputGradients, points: Points, clouds: list[RankCloud], centres: Any, graphs: RankGraphs, scheme: Scheme,
    ranks: Ranks,
) -> Gradients:  # fmt: skip
    packed = pack_points(points, graphs.groups, True, centres)
    grads = pack_gradients(upstream, packed, graphs.groups, True)
    of_keys, of_rows = (np.zeros(array.shape, array.dtype) for array in packed[:2])
    of_queries = of_keys if points.queries is None else np.zeros(packed.queries.shape, packed.queries.dtype)
    given = []
    for cloud in clouds:
        k, q = (cloud.head, cloud.key_slice), (cloud.head, cloud.query_slice)
        given.append((cloud, packed.rows[k], grads[q], CloudGradients(of_keys[k], of_rows[k], of_queries[q])))
    run_together([filter_cloud_gradients(*some, ranks) for some in given], ranks)
    if isinstance(scheme, MultiScale):
        add_near_gradients(given, graphs.keys, graphs.queries, ranks, scheme)
    return unpack_gradients(of_keys, of_rows, of_queries, points, graphs.groups, True)


def _pack(points: Points, graphs: RankGraphs, ranks: Ranks) -> Packed:
    """Packs this rank's points; values less the mean of their graph on all ranks."""
    centres = find_centres(as_array(points.values), graphs.groups, points.queries is None)
    counts = graphs.keys[ranks.rank]
    sums = ranks.sum(torch.from_numpy(centres.mean.astype(np.float64) * counts[:, None, None])).numpy()
    mean = sums / np.maximum(graphs.keys.sum(axis=0), 1)[:, None, None]
    return pack_points(points, graphs.groups, True, centres._replace(mean=mean.astype(centres.mean.dtype)))


def _clouds(points: Points, packed: Packed, graphs: RankGraphs, scheme: Scheme, more_than: int) -> list[RankCloud]:
    """Lists the clouds that go through a lattice, those without points on this rank too."""
    groups, pairs, to_itself = graphs.groups, graphs.pairs, points.queries is None
    keys, queries = graphs.keys.sum(axis=0).tolist(), graphs.queries.sum(axis=0).tolist()
    clouds = []
    for head in range(packed.keys.shape[0]):
        for graph in np.flatnonzero((pairs > more_than) & (pairs > 0)).tolist():
            k, q = (slice(*start[graph : graph + 2].tolist()) for start in (groups.key_start, groups.query_start))
            cloud_points = packed.keys[head, k]
            if not to_itself:
                cloud_points = np.concatenate([cloud_points, packed.queries[head, q]])
            plan = _allocate_plan(points.positions, len(cloud_points), scheme)
            place, counts = (head, graph, k, q), (keys[graph], queries[graph])
            clouds.append(RankCloud(place, cloud_points, k.stop - k.start, to_itself, counts, plan))
    return clouds


def _allocate_plan(positions: Tensor, size: int, scheme: Scheme) -> list[CloudPlan]:
    """Allocates the plans of a cloud of ``size`` points, one for each lattice; without points there is room for one, and no
    stage writes where corners begin: that is 0."""
    allocate = unset if size > 0 else zeros
    memory = allocate(plan_shapes(positions, 1, max(size, 1), scheme))
    plans = [plan_of_cloud(memory, lattice, 0, 0, max(size, 1)) for lattice in range(count_lattices(scheme))]
    return [
        plan._replace(point=plan.point[:size], order=plan.order[:size], weight=plan.weight[:size], corner=plan.corner[:size])
        for plan in plans
    ]
