"""The filter as a backend of the custom ops, for backends that run all clouds together."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ...checks import check_coordinates, check_values
from ...runtime.graphs import find_graphs
from ...runtime.points import Gradients, OutputGradients, Points
from ..filter_call import GPU_LIMIT, FilterCall, find, new_ticket, no_ticket
from ..limits import position_limit
from .clouds import CloudCounts, number_clouds
from .filter import filter_gradients, filter_rows, prepare
from .kernels import Alone, Kernels


def forward(
    points: Points, call: FilterCall, kernels: Kernels, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns output, normaliser and ticket."""
    check_values(*points[:3])
    ticket, kept = new_ticket() if keep else (no_ticket(), None)
    counts = _counts(points, call)
    if len(counts.keys) == 0:
        out, norm = points.new_output(call.normalise)
        return out.zero_(), norm.zero_(), ticket
    _check_limits(points, counts, position_limit(points.positions.size(2), call.scheme))
    prepared = prepare(points, counts, call, Alone())
    out, norm = filter_rows(points, prepared, call, kernels, Alone(), keep)
    if kept is not None and kept.has_room(prepared.size, GPU_LIMIT):
        kept.append(prepared)
    return out, norm, ticket


def backward(
    upstream: OutputGradients, ticket: Tensor, points: Points, call: FilterCall, kernels: Kernels
) -> Gradients:
    if kept := find(ticket):
        return filter_gradients(upstream, points, kept[0], call, kernels, Alone())
    counts = _counts(points, call)
    if len(counts.keys) == 0:
        return Gradients.zeros(points)
    prepared = prepare(points, counts, call, Alone())
    return filter_gradients(upstream, points, prepared, call, kernels, Alone())


def _counts(points: Points, call: FilterCall) -> CloudCounts:
    graphs = find_graphs(points)
    keys, queries = (np.array(numbers, np.int64) for numbers in (graphs.keys, graphs.queries))
    filtered = np.array(graphs.within(more_than=call.more_than), bool)
    return number_clouds(points, (graphs.of_keys, graphs.of_queries), keys, queries, filtered)


def _check_limits(points: Points, counts: CloudCounts, limit: float) -> None:
    rows = (
        ("positions", points.positions, counts.of_keys),
        ("queries", points.queries, counts.of_queries),
    )
    for name, tensor, cloud in rows:
        if tensor is not None and tensor.numel() > 0 and float(tensor.abs().max()) > limit:
            filtered = (cloud.view(len(tensor), -1)[:, 0] >= 0).nonzero().squeeze(1)
            check_coordinates(name, tensor, limit, filtered)
