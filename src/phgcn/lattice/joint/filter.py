"""The whole filter of all clouds: sorts points by cloud, filters, and restores the order of the
points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...runtime.points import Gradients, OutputGradients, Points
from ..filter_call import FLOOR, FilterCall
from ..gaps import close_gaps, has_gaps
from ..ladder import Rung, ladder_numbers
from ..scheme import Ladder, Separable
from .clouds import (
    CloudCounts,
    Clouds,
    Rows,
    Sorted,
    pack_gradients,
    pack_values,
    sort_by_cloud,
    unpack_gradients,
    unpack_sums,
)
from .kernels import Kernels, Peers, Side
from .keys import of_cloud, take_together
from .ladder import Ladders, key_bits
from .lattice import Floats
from .rungs import Points as PointList
from .rungs import Survey, choose_rungs, survey
from .separable import Passes


class Prepared(NamedTuple):
    """The sorted clouds of a call, their boxes and ladders, which do not depend on values.

    Args:
        clouds (Clouds): The points. Clouds of coinciding points come last, without a lattice.
        lattices (int): The number of clouds that go through a lattice.
        rungs (list): Their ladders, by descending number of steps; empty for the paper's filter.
        box (tuple): Lowest and highest coordinates of each, float64, (B, D).
        kept (list): The lattices with their vertices, if the forward pass has kept them.
    """

    clouds: Clouds
    lattices: int
    rungs: list[Rung]
    box: tuple[Floats, Floats]
    kept: list[Ladders | Passes]

    @property
    def size(self) -> int:
        """Bytes of the kept lattices."""
        return sum(lattice.size for lattice in self.kept)


def prepare(points: Points, counts: CloudCounts, call: FilterCall, peers: Peers) -> Prepared:
    """Surveys all processes' clouds, chooses their ladders, and sorts this process's points."""
    dim, to_itself = points.positions.size(2), points.queries is None
    positions, cloud = points.positions.detach().reshape(-1, dim), counts.of_keys
    if points.queries is not None:
        positions = torch.cat([positions, points.queries.detach().reshape(-1, dim)])
        cloud = torch.cat([cloud, counts.of_queries])
    some = (cloud >= 0).nonzero().squeeze(1)
    keys = int((counts.of_keys >= 0).sum())
    listed = PointList(Side(positions[some].double(), cloud[some]), keys, to_itself)
    found = survey(listed, counts.keys, counts.queries, peers)
    if isinstance(call.scheme, Ladder) and close_all_gaps(listed, found, peers):
        moved = positions.clone()
        moved[some] = listed.side.position.to(moved.dtype)
        points = points._replace(
            positions=moved[: points.positions[..., 0].numel()].view_as(points.positions)
        )
        if points.queries is not None:
            points = points._replace(
                queries=moved[len(moved) - points.queries[..., 0].numel() :].view_as(points.queries)
            )
        found = survey(listed, counts.keys, counts.queries, peers)
    spread = (
        ~(found.low == found.high).all(axis=1) if to_itself else np.ones(len(counts.keys), bool)
    )
    count, rungs = np.zeros(len(spread), np.int64), [Rung(0, 0, 0.0)] * len(spread)
    if isinstance(call.scheme, Ladder) and spread.any():
        rungs = choose_rungs(listed, found, call.scheme, peers)
        count[spread] = [
            len(ladder_numbers(call.kernel, dim, rungs[cloud]).weight)
            for cloud in np.flatnonzero(spread)
        ]
    order = np.lexsort([-count, ~spread])
    lattices = int(spread.sum())
    box = found.low[order[:lattices]], found.high[order[:lattices]]
    return Prepared(
        sort_by_cloud(points, counts, order),
        lattices,
        [rungs[i] for i in order[:lattices]],
        box,
        [],
    )


def close_all_gaps(listed: PointList, found: Survey, peers: Peers) -> bool:
    """Closes the gaps of wide clouds (:mod:`phgcn.lattice.gaps`), and returns whether there are
    any. Coinciding points still coincide."""
    position, cloud = listed.side
    width = (found.high - found.low).max(axis=1)
    wide = [
        number for number in range(len(width)) if has_gaps(float(width[number]), position.size(1))
    ]
    for number in wide:
        own = (cloud == number).nonzero().squeeze(1)
        position[own] = close_gaps(position[own], peers.union)
    return len(wide) > 0


def filter_rows(
    points: Points,
    prepared: Prepared,
    call: FilterCall,
    kernels: Kernels,
    peers: Peers,
    keep: bool = False,
) -> tuple[Tensor, Tensor]:
    """Filters all clouds. ``keep`` stores the lattices for the backward pass."""
    clouds = prepared.clouds
    rows = pack_values(points, clouds, call.normalise, kernels, peers)
    data = rows.data
    sums = data.new_zeros(len(clouds.queries.row), data.size(1))
    for lattice in _lattices(prepared, call, kernels, peers):
        sums[lattice.query_part] = lattice.sum(data[lattice.key_part])
        if keep:
            prepared.kept.append(lattice)
    with_floor = call.normalise and points.shifted
    _add_cloud_sums(sums, clouds.keys, data, clouds.queries, prepared, with_floor, kernels, peers)
    return unpack_sums(sums, rows, points, clouds)


def filter_gradients(
    upstream: OutputGradients,
    points: Points,
    prepared: Prepared,
    call: FilterCall,
    kernels: Kernels,
    peers: Peers,
) -> Gradients:
    clouds = prepared.clouds
    rows: Rows = pack_values(points, clouds, call.normalise, kernels, peers)
    grads = pack_gradients(upstream, rows, clouds)
    data, with_floor = rows.data, call.normalise and points.shifted
    of_rows = torch.zeros_like(data)
    of_keys, of_queries = (
        torch.zeros_like(some.side.position) for some in (clouds.keys, clouds.queries)
    )
    for lattice in prepared.kept or _lattices(prepared, call, kernels, peers):
        k, q = lattice.key_part, lattice.query_part
        of_rows[k], key_slopes, query_slopes = lattice.gradients(data[k], grads[q])
        of_keys[k], of_queries[q] = key_slopes.to(of_keys.dtype), query_slopes.to(of_keys.dtype)
    _add_cloud_sums(
        of_rows, clouds.queries, grads, clouds.keys, prepared, with_floor, kernels, peers
    )
    return unpack_gradients(of_keys, of_rows, of_queries, rows, points, clouds)


def _lattices(
    prepared: Prepared, call: FilterCall, kernels: Kernels, peers: Peers
) -> Iterator[Ladders | Passes]:
    clouds, _, rungs, box, _ = prepared
    if isinstance(call.scheme, Separable):
        for part in take_together(Passes.key_bits(box, call.scheme)):
            yield Passes(clouds, part, box, call.scheme, kernels, peers)
        return
    dim = clouds.keys.side.position.size(1)
    counts = [len(ladder_numbers(call.kernel, dim, rung).weight) for rung in rungs]
    diagonals = np.linalg.norm(box[1] - box[0], axis=1).tolist()
    bits = [
        key_bits(rung, count, size, dim)
        for rung, count, size in zip(rungs, counts, diagonals, strict=True)
    ]
    for part in take_together(bits):
        yield Ladders(clouds, part, rungs, box, call.kernel, kernels, peers)


def _add_cloud_sums(
    out: Tensor,
    sources: Sorted,
    rows: Tensor,
    targets: Sorted,
    prepared: Prepared,
    with_floor: bool,
    kernels: Kernels,
    peers: Peers,
) -> None:
    """Adds the sum of each cloud's rows to its targets. The factor is 1 where all its points
    coincide. ``with_floor`` adds :data:`FLOOR` times the mean row, the floor of the normaliser."""
    clouds, lattices, _, _, _ = prepared
    coincide = clouds.to_itself and lattices < len(clouds.key_count)
    if not (coincide or with_floor):
        return
    factor = torch.zeros_like(clouds.key_count)
    if coincide:
        factor[lattices:] = 1
    if with_floor:
        factor += FLOOR / clouds.key_count
    totals = peers.sum(kernels.sum_rows(rows, None, None, sources.start.to(rows.device)))
    out += of_cloud(factor.unsqueeze(1) * totals, targets.side.cloud)
