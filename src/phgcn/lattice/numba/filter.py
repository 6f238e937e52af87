"""The filter of all graphs and heads on the cores of the CPU, cloud by cloud. Other graphs of a
call do not change a bit of a graph's output."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ...runtime.points import Gradients, OutputGradients, Points
from ...runtime.rows import (
    pack_gradients,
    pack_points,
    pack_weights,
    unpack_gradients,
    unpack_output,
    weight_gradients,
)
from ...runtime.threads import parallel_zeros
from ..filter_call import FLOOR, FilterCall, Kept, find, new_ticket, no_ticket
from ..limits import filtered_groups
from ..scheme import Separable
from .clouds import CloudGradients, find_clouds
from .index import Located
from .ladder import Filtered, ladder_gradients, ladder_sum
from .separable import separable_gradients, separable_sum


def forward(points: Points, call: FilterCall, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    groups = filtered_groups(points, call)
    packed, weights = pack_points(points, groups, call.normalise), pack_weights(points, groups)
    all_rows = packed.rows if weights is None else packed.rows * weights
    ticket, kept = new_ticket() if keep else (no_ticket(), None)
    summed = parallel_zeros((*packed.queries.shape[:2], packed.rows.shape[2]), packed.rows.dtype)
    for cloud in find_clouds(points, packed, groups, call):
        rows, sums = all_rows[cloud.head, cloud.key_slice], summed[cloud.head, cloud.query_slice]
        found: Filtered | Located | None = None
        if cloud.is_one_point:
            sums += rows.sum(axis=0, dtype=np.float64)
        elif isinstance(call.scheme, Separable):
            found = separable_sum(cloud, rows, sums, call.scheme)
        else:
            found = ladder_sum(cloud, rows, sums, call.scheme, call.kernel)
        if kept is not None:
            keep_cloud(kept, found)
        if call.normalise and points.shifted:
            _add_sum(rows, FLOOR / len(rows), sums)
    return *unpack_output(summed, packed, points, groups, call.normalise), ticket


def keep_cloud(kept: Kept, found: Filtered | Located | None) -> None:
    if isinstance(found, Filtered):
        found.keep(kept)
    else:
        kept.append(found)


def backward(
    upstream: OutputGradients, ticket: Tensor, points: Points, call: FilterCall
) -> Gradients:
    groups = filtered_groups(points, call)
    packed, weights = pack_points(points, groups, call.normalise), pack_weights(points, groups)
    all_rows = packed.rows if weights is None else packed.rows * weights
    grads = pack_gradients(upstream, packed, groups, call.normalise)
    of_keys, of_rows = (parallel_zeros(array.shape, array.dtype) for array in packed[:2])
    of_queries = of_keys
    if points.queries is not None:
        of_queries = parallel_zeros(packed.queries.shape, packed.queries.dtype)
    kept = find(ticket)
    for number, cloud in enumerate(find_clouds(points, packed, groups, call)):
        k, q = (cloud.head, cloud.key_slice), (cloud.head, cloud.query_slice)
        rows, cloud_grads = all_rows[k], grads[q]
        into = CloudGradients(of_keys[k], of_rows[k], of_queries[q])
        found = None if kept is None else kept[number]
        if cloud.is_one_point:
            into.rows[:] += cloud_grads.sum(axis=0, dtype=np.float64)
        elif isinstance(call.scheme, Separable):
            separable_gradients(cloud, rows, cloud_grads, into, call.scheme, found)
        else:
            ladder_gradients(cloud, rows, cloud_grads, into, call.scheme, call.kernel, found)
        if call.normalise and points.shifted:
            _add_sum(cloud_grads, FLOOR / len(rows), into.rows)
    of_weights = weight_gradients(packed, of_rows, weights, groups)
    return unpack_gradients(of_keys, of_rows, of_queries, points, groups, call.normalise)._replace(
        weights=of_weights
    )


def _add_sum(rows: np.ndarray, factor: float, out: np.ndarray) -> None:
    """Adds the sum of all rows, times a factor, to each row of ``out``."""
    out += (factor * rows.sum(axis=0, dtype=np.float64)).astype(rows.dtype)
