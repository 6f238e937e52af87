r"""Clouds on GPUs whose points lie on several ranks: numbered alike on all of them, as the Triton backend takes them.

Kernels need at least one point.  A rank without any has one in a graph that is not filtered, behind all others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..lattice.triton.clouds import Clouds, find_clouds
from ..runtime.graphs import DeviceGraphs
from ..runtime.points import Points
from .collectives import Ranks
from .graphs import RankGraphs

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Graphs = tuple[Tensor | None, Tensor | None]
"""The graphs of keys and of queries."""


@dataclass(frozen=True)
class RankClouds:
    r"""Clouds on several ranks.

    Args:
        points (Points): The points of this rank, padded; without graphs.
        clouds (Clouds): The same, with their clouds.
        filtered (list): Which graphs are filtered.
        keys, queries (np.ndarray): How many keys and queries each rank has of each cloud that is filtered, int64,
            :math:`(P, clouds)`.
        query_count (int): How many of the queries are not padding.
        padding (int): How many chunks of this rank's points are padding: the last.
    """

    points: Points
    clouds: Clouds
    filtered: list[bool]
    keys: Ints
    queries: Ints
    query_count: int
    padding: int

    @property
    def totals(self) -> Ints:
        """How many points all ranks have of each cloud."""
        totals: Ints = self.keys.sum(axis=0) + (0 if self.clouds.to_itself else self.queries.sum(axis=0))
        return totals

    def has_points(self, rank: int) -> Bools:
        """Tells which clouds have points on a rank."""
        found: Bools = self.keys[rank] + self.queries[rank] > 0
        return found


def make_clouds(points: Points, graph: Graphs, keys: Ints, queries: Ints, filtered: Bools, ranks: Ranks) -> RankClouds:
    """Lists the clouds of some graphs.

    Args:
        points (Points): The points of this rank; their graphs are not looked at.
        graph (tuple): The graph of each key and of each query, int64; :obj:`None` if there is one graph.
        keys, queries (np.ndarray): How many each rank has of each graph, int64, (P, G).
        filtered (np.ndarray): Which graphs are filtered.
        ranks (Ranks): The processes.
    """
    heads, device, query_count = points.positions.size(1), points.positions.device, len(points.targets)
    sizes, padding = [keys[ranks.rank].tolist(), queries[ranks.rank].tolist()], 0
    if min(keys.sum(axis=1).min(), queries.sum(axis=1).min()) == 0:
        points, graph, more = _pad(points, graph, len(filtered))
        sizes, padding = [[*some, number] for some, number in zip(sizes, more, strict=True)], heads if max(more) > 0 else 0
        keys, queries = (np.pad(numbers, ((0, 0), (0, 1))) for numbers in (keys, queries))
        filtered = np.append(filtered, False)
    of_keys, of_queries = graph[0], graph[0] if points.queries is None else graph[1]
    bare = Points(*(None if t is None else t.detach() for t in points[:3]))  # type: ignore[arg-type]
    cloud = None
    if of_keys is None:
        count = len(points.positions) + (0 if points.queries is None else len(points.queries))
        cloud = torch.arange(heads, dtype=torch.int32, device=device).repeat(count)
    clouds = find_clouds(bare, DeviceGraphs(of_keys, of_queries, *sizes), filtered.tolist(), cloud)
    keys, queries = (np.repeat(np.where(filtered, numbers, 0), heads, axis=1) for numbers in (keys, queries))
    source_count = torch.from_numpy(keys.sum(axis=0).astype(np.float64)).to(device)  # of all ranks
    clouds = replace(clouds, sizes=replace(clouds.sizes, source_count=source_count))
    return RankClouds(points, clouds, filtered.tolist(), keys, queries, query_count, padding)


def _pad(points: Points, graph: Graphs, number: int) -> tuple[Points, Graphs, tuple[int, int]]:
    """Adds a key where this rank has none, and a query where it has none, of the graph ``number``; returns how many keys and
    queries were added, too."""
    positions, values, queries = points[:3]
    more_keys = int(len(positions) == 0)
    more_queries = more_keys if queries is None else int(len(queries) == 0)
    graphs = []
    for rows, of_rows, more in zip((positions, points.targets), graph, (more_keys, more_queries), strict=True):
        known = torch.zeros(len(rows), dtype=torch.int64, device=rows.device) if of_rows is None else of_rows
        graphs.append(F.pad(known, (0, more), value=number))
    padded = Points(
        _add_rows(positions, more_keys),
        _add_rows(values, more_keys),
        None if queries is None else _add_rows(queries, more_queries),
    )
    return padded, (graphs[0], graphs[1]), (more_keys, more_queries)


def _add_rows(rows: Tensor, count: int) -> Tensor:
    """Adds rows of 0 behind the last, (N, H, C)."""
    return F.pad(rows, (0, 0, 0, 0, 0, count))


def clouds_of_graphs(points: Points, graphs: RankGraphs, more_than: int, ranks: Ranks) -> RankClouds:
    """Lists the clouds of all graphs; those with more than ``more_than`` pairs are filtered."""
    groups, device = graphs.groups, points.positions.device
    of_points: list[Tensor | None] = [None, None]
    if graphs.keys.shape[1] != 1:
        for place, (order, start) in enumerate(
            ((groups.key_order, groups.key_start), (groups.query_order, groups.query_start))
        ):
            number = np.empty(len(order), np.int64)
            number[order] = np.repeat(np.arange(len(start) - 1), np.diff(start))
            of_points[place] = torch.from_numpy(number).to(device)
    filtered = graphs.pairs > max(more_than, 0)
    return make_clouds(points, (of_points[0], of_points[1]), graphs.keys, graphs.queries, filtered, ranks)


def clouds_of_rows(given: RankClouds, wanted: Bools, ranks: Ranks) -> tuple[RankClouds, Tensor, Tensor]:
    """Selects some clouds, each as a graph of one head; returns them, and the rows of point and head that their keys and
    queries have among those of ``given``, int64."""
    clouds, points, device = given.clouds, given.points, given.points.positions.device
    number = torch.from_numpy(np.where(wanted, np.cumsum(wanted) - 1, -1)).to(device)
    cloud = clouds.cloud.to(torch.int64)
    graph = torch.where(cloud >= 0, number[cloud.clamp(min=0)], -1)
    of_keys, of_queries = graph[: clouds.sources], graph[clouds.first_query :]
    keys, queries = ((numbers >= 0).nonzero().squeeze(1) for numbers in (of_keys, of_queries))
    positions, values = (t.reshape(-1, 1, t.size(2))[keys] for t in (points.positions, points.values))
    asked = None if points.queries is None else points.queries.reshape(-1, 1, points.queries.size(2))[queries]
    some = Points(positions, values, asked)
    counts = given.keys[:, wanted], given.queries[:, wanted]
    part = make_clouds(some, (of_keys[keys], of_queries[queries]), *counts, np.full(wanted.sum(), True), ranks)
    return part, keys, queries
