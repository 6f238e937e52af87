"""Global attention of points that lie on several ranks: agrees on the call, chooses the method,
runs it.

The ranks share one lattice and exchange rows at its vertices (:mod:`phgcn.distributed.ladder`).
For the reference every rank gathers the points of all, filters them, and keeps its own rows: right,
but no faster than one process. Exact sums take keys in chunks on every backend
(:mod:`phgcn.distributed.exact`)."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from ..backends import DEVICES, NAMES
from ..calls import (
    AttentionCall,
    OpInputs,
    check_call,
    choose_method,
    log_call,
    op_inputs,
    run_call,
    user_sums,
    weigh_keys,
)
from ..checks import (
    FLOAT_TYPES,
    check_coordinates,
    check_graph_numbers,
    check_values,
    refuse_transforms,
)
from ..crossings import exact_limit
from ..kernels import EXPONENTIAL, KERNELS
from ..lattice.far import balls_of_queries, draw_near, find_balls
from ..lattice.filter_call import FilterCall
from ..lattice.limits import position_limit
from ..lattice.scheme import MAX_DIMENSION, decode, encode
from ..runtime.points import Points, Sums
from ..tolerance import Tolerance, check_tolerance, check_tolerance_method, choose_within
from .agreement import agree, require_equal
from .collectives import Ranks, gather_rows
from .exact import exact_over_ranks
from .graphs import RankGraphs, find_rank_graphs, points_of_graphs
from .ladder import filter_together
from .tolerance import RankPoints

SAME = (
    "device",
    "positions' type",
    "values' type",
    "dimensions",
    "heads",
    "channels",
    "with heads",
    "queries",
    "batch",
    "weights",
    "kernel",
    "method",
    "backend",
    "tolerance",
)
OWN = ("keys", "queries", "far")


class _Checked(NamedTuple):
    """This rank's arguments after the check."""

    call: AttentionCall
    inputs: OpInputs
    points: Points


def attend_over_ranks(
    call: AttentionCall, tolerance: float | Tolerance | None, with_mass: bool, group: ProcessGroup
) -> tuple[Tensor, Tensor | None]:
    """Computes :func:`phgcn.global_attention` with a group."""
    ranks = Ranks(group)
    checked: list[_Checked] = []

    def check() -> list[int]:
        checked.append(_check(call, tolerance, ranks))
        return _numbers(tolerance, *checked[0])

    rows = agree(ranks, check, (*SAME, *OWN))
    require_equal(rows, SAME, _show)
    call, inputs, points = checked[0]
    counts = [(row[len(SAME)], row[len(SAME) + 1]) for row in rows]
    if tolerance is not None and call.method == "auto":
        points_of_all = RankPoints(
            call, counts, ranks, lambda other: attend_over_ranks(other, None, False, group)[0]
        )
        return attend_over_ranks(choose_within(points_of_all, tolerance), None, with_mass, group)
    far = any(row[-1] for row in rows)
    keys, queries = (sum(numbers) for numbers in zip(*counts, strict=True))
    dim, device = points.positions.size(2), points.positions.device.type
    chosen = choose_method(call.method, keys * queries, dim, device, call.lattice)
    log_call(call, inputs, keys * queries, chosen)
    limit = exact_limit(dim, device) if call.method == "auto" and call.batch is not None else -1
    if chosen != "exact" and not inputs.backend.shares_lattice:
        return _attend_gathered(call, counts, with_mass, ranks)
    with refuse_transforms(*points[:3], points.weights):
        if chosen == "exact":
            sums = [
                exact_over_ranks(
                    points.with_queries(),
                    [k for k, _ in counts],
                    ranks,
                    inputs.backend.name,
                    call.kernel,
                )
            ]
        else:
            graphs = find_rank_graphs(points, counts, ranks)
            filter_call = FilterCall(decode(encode(chosen)), True, limit, KERNELS[call.kernel])
            sums = _filter(points, graphs, filter_call, far, ranks, inputs.backend.name)
    return user_sums(sums, call, inputs, with_mass)


def _filter(
    points: Points, graphs: RankGraphs, call: FilterCall, far: bool, ranks: Ranks, backend: str
) -> list[Sums]:
    """Filters graphs of enough pairs, and sums the others exactly."""
    bound = position_limit(points.positions.size(2), call.scheme)
    filtered = graphs.pairs > call.more_than
    near, shift = points, None
    if points.queries is not None and call.kernel == EXPONENTIAL:
        queries, shift = draw_near(points.queries, balls_over_ranks(points, ranks))
        near = points._replace(queries=queries)
    if far:
        agree(ranks, lambda: _check_coordinates(near, graphs, filtered, bound), ())
    sums = [filter_together(near, graphs, call, ranks, backend)._replace(shift=shift)]
    if not filtered.all():
        small, _, query = points_of_graphs(points, ~filtered, graphs)
        exact = exact_over_ranks(
            small, graphs.keys[:, ~filtered].sum(axis=1).tolist(), ranks, backend, call.kernel.name
        )
        count = len(points.targets)
        rows = (None if t is None else _put_rows(t, query, count) for t in exact)
        sums.append(Sums(*rows))  # type: ignore[arg-type]
    return sums


def balls_over_ranks(points: Points, ranks: Ranks) -> Tensor:
    """Computes :func:`phgcn.lattice.far.query_balls` around the keys of all ranks."""
    positions, batch, count = points.positions.detach(), points.batch, len(points.targets)
    graphs = (
        positions.new_zeros(1, dtype=torch.int64)
        if batch is None
        else torch.cat(ranks.gather(batch.unique())).unique()
    )
    balls = find_balls(positions, batch, graphs, lambda rows: ranks.gather_equal(rows).amax(dim=0))
    return balls_of_queries(balls, graphs, points.query_batch, count)


def _put_rows(rows: Tensor, indices: Tensor, count: int) -> Tensor:
    """Returns ``count`` rows of 0 with ``rows`` at their indices."""
    return rows.new_zeros(count, *rows.shape[1:]).index_copy(0, indices, rows)


def _attend_gathered(
    call: AttentionCall, counts: list[tuple[int, int]], with_mass: bool, ranks: Ranks
) -> tuple[Tensor, Tensor | None]:
    """Attends with the points of all ranks, and returns the rows of this rank's queries."""
    key_counts, query_counts = (
        [int(number) for number in numbers] for numbers in zip(*counts, strict=True)
    )

    def gathered(tensor: Tensor | None, numbers: list[int]) -> Any:
        if tensor is None:
            return None
        return (
            gather_rows(tensor, ranks, numbers)
            if tensor.is_floating_point()
            else torch.cat(ranks.gather(tensor, numbers))
        )

    everything = call._replace(
        positions=gathered(call.positions, key_counts),
        values=gathered(call.values, key_counts),
        batch=gathered(call.batch, key_counts),
        weights=gathered(call.weights, key_counts),
        queries=gathered(call.queries, query_counts),
        query_batch=gathered(call.query_batch, query_counts),
    )
    out, mass = run_call(everything, True, with_mass)
    begin = sum(query_counts[: ranks.rank])
    mine = slice(begin, begin + query_counts[ranks.rank])
    return out[mine], None if mass is None else mass[mine]


# The agreement


def _largest_error(tolerance: float | Tolerance) -> float:
    return tolerance.error if isinstance(tolerance, Tolerance) else tolerance


def _check(call: AttentionCall, tolerance: float | Tolerance | None, ranks: Ranks) -> _Checked:
    """Checks this rank's arguments, and that the group can exchange them."""
    check_call(call)
    if tolerance is not None:
        check_tolerance_method(call.method)
        check_tolerance(_largest_error(tolerance))
    device = call.positions.device.type
    if device not in ranks.devices:
        raise ValueError(
            f"positions are on {call.positions.device}; allowed with this group: "
            f"{', '.join(ranks.devices)}"
        )
    inputs = op_inputs(call.positions, call.values, call.queries, call.decay, call.backend)
    points = weigh_keys(call, inputs, normalise=True)
    check_values(*(None if tensor is None else tensor.detach() for tensor in points[:3]))  # type: ignore[arg-type]
    check_graph_numbers(batch=call.batch, query_batch=call.query_batch)
    return _Checked(call, inputs, points)


def _numbers(
    tolerance: float | Tolerance | None, call: AttentionCall, inputs: OpInputs, points: Points
) -> list[int]:
    """Returns the numbers that must be equal on all ranks (:data:`SAME`), then :data:`OWN`."""
    dim, far = points.positions.size(2), False
    method = encode(call.lattice if call.method == "auto" else call.method)
    if method != "exact" and dim <= MAX_DIMENSION:
        limit = position_limit(dim, decode(method))
        given = [
            t.detach()
            for t in (points.positions, points.queries)
            if t is not None and t.numel() > 0
        ]
        far = any(float(t.abs().max()) > limit for t in given)
    return [
        DEVICES.index(points.positions.device.type),
        FLOAT_TYPES.index(call.positions.dtype),
        FLOAT_TYPES.index(call.values.dtype),
        dim,
        inputs.heads,
        points.values.size(2),
        inputs.with_heads,
        call.queries is not None,
        call.batch is not None,
        call.weights is not None,
        tuple(KERNELS).index(call.kernel),
        zlib.crc32(encode(call.method).encode()),
        NAMES.index(inputs.backend.name),
        0 if tolerance is None else np.float64(_largest_error(tolerance)).view(np.int64).item(),
        len(points.positions),
        len(points.targets),
        far,
    ]


def _show(name: str, number: int) -> str:
    if name == "method":
        return f"another one (checksum {number:08x})"
    if name == "tolerance":
        return str(np.int64(number).view(np.float64)) if number else "None"
    words: dict[str, tuple[object, ...]] = {
        "device": DEVICES,
        "positions' type": FLOAT_TYPES,
        "values' type": FLOAT_TYPES,
        "backend": NAMES,
        "kernel": tuple(KERNELS),
        "queries": ("not given", "given"),
        "batch": ("not given", "given"),
        "weights": ("not given", "given"),
        "with heads": (False, True),
    }
    return str(words[name][number]) if name in words else str(number)


def _check_coordinates(
    points: Points, graphs: RankGraphs, filtered: np.ndarray[Any, Any], limit: float
) -> list[int]:
    """Checks the coordinates of this rank's points in graphs that go through a lattice."""
    few, key, query = points_of_graphs(points, filtered, graphs)
    check_coordinates("positions", points.positions, limit, key)
    if points.queries is not None and few.queries is not None:
        check_coordinates("queries", points.queries, limit, query)
    return []
