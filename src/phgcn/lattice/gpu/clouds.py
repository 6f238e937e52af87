r"""Which points belong together, and the finest level of each cloud, decided on the device.

A *cloud* is the points of one graph and head.  Points are rows: row ``point * heads + head``, keys first, then queries if they
are others.  What needs a look at the data and is not in a ``batch`` stays on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..checks import refuse_graph
from ..groups import summed_exactly
from ..scheme import MultiScale, Scheme
from .build import cell_keys
from .constants import Constants
from .exact import Pairs
from .keys import Fields, find_runs, list_runs
from .rows import NONE, Rows, sum_runs


@dataclass
class Graphs:
    """The keys and queries of each graph.

    Args:
        of_keys, of_queries (torch.Tensor, optional): The graph of each point; :obj:`None` if there is one.
        keys, queries (list): How many points each graph has.
    """

    of_keys: Tensor | None
    of_queries: Tensor | None
    keys: list[int]
    queries: list[int]


def find_graphs(count: int, batch: Tensor | None, asked: int | None, query_batch: Tensor | None) -> Graphs:
    """Groups points by graph.  Without a ``batch``, nothing is read; with one, the numbers of graphs and points are."""
    given = {name: index for name, index in (("batch", batch), ("query_batch", query_batch)) if index is not None}
    given = {name: index for name, index in given.items() if index.numel() > 0}
    if not given:
        return Graphs(None, None, [count], [count if asked is None else asked])
    ends = torch.stack([end.long() for index in given.values() for end in torch.aminmax(index)]).tolist()
    for (name, index), least in zip(given.items(), ends[::2], strict=True):
        if least < 0:
            refuse_graph(name, index)
    graphs = max(ends[1::2]) + 1
    points = [None if index is None else index.long() for index in (batch, query_batch)]
    if graphs > 2 * sum(len(index) for index in given.values()):  # few graphs with far numbers: number them anew
        names = torch.unique(torch.cat([index.long() for index in given.values()]))
        graphs = len(names)
        points = [None if index is None else torch.searchsorted(names, index) for index in points]
    of_keys, of_queries = points
    assert of_keys is not None
    sizes = [torch.bincount(index, minlength=graphs) for index in points if index is not None]
    found = torch.stack(sizes).tolist()
    return Graphs(of_keys, of_keys if asked is None else of_queries, found[0], found[-1])


def exact_pairs(graphs: Graphs, scheme: Scheme, device: torch.device) -> tuple[Pairs | None, list[bool]]:
    """The pairs of all graphs that are summed exactly, if any, and which these are."""
    exactly = [summed_exactly(scheme, k, q, device.type) for k, q in zip(graphs.keys, graphs.queries, strict=True)]
    ranges, key, query = [], 0, 0
    for chosen, k, q in zip(exactly, graphs.keys, graphs.queries, strict=True):
        if chosen and q > 0:
            ranges.append((query, query + q, key, key + k))
        key, query = key + k, query + q
    if not ranges:
        return None, exactly
    orders = [None if index is None else torch.argsort(index, stable=True) for index in (graphs.of_queries, graphs.of_keys)]
    return Pairs(ranges, *orders), exactly


@dataclass
class Clouds:
    """The points of all clouds.

    Args:
        position (torch.Tensor): Of all points, :math:`(P, D)`.
        cloud (torch.Tensor): The cloud of each, -1 where a graph is summed exactly, int32.
        heads (int): How many heads there are.
        graphs (int): How many graphs there are.
        keys (int): How many of the points are keys: the first.
        begin (int): The first query: 0 where points attend to themselves.
        largest (int): No cloud has more points.
        count (torch.Tensor): How many points each cloud has, 0 where a graph is summed exactly, int64.
        key_count, query_count (torch.Tensor): How many of them are keys, and how many queries.
    """

    position: Tensor
    cloud: Tensor
    heads: int
    graphs: int
    keys: int
    begin: int
    largest: int
    count: Tensor
    key_count: Tensor
    query_count: Tensor

    @property
    def number(self) -> int:
        """How many clouds there are."""
        return self.graphs * self.heads

    @cached_property
    def order(self) -> Tensor:
        """The points sorted by cloud; those in none come last."""
        points, device = len(self.position), self.position.device
        if self.graphs == 1:
            return torch.arange(points, device=device).view(-1, self.heads).T.reshape(-1)
        return torch.sort(torch.where(self.cloud < 0, self.number, self.cloud), stable=True)[1]

    @cached_property
    def start(self) -> Tensor:
        """Where each cloud starts in this order, and where the last one ends, int32."""
        start = torch.zeros(self.number + 1, dtype=torch.int32, device=self.position.device)
        torch.cumsum(self.count, 0, dtype=torch.int32, out=start[1:])
        return start

    def sums(self, rows: Rows, begin: int) -> Rows:
        """The sum of the rows of each cloud, for rows of the points from ``begin`` on."""
        count = torch.full((1,), self.number, device=self.cloud.device)
        return sum_runs(rows, self.order, rows.main.new_empty(0), self.start, count, self.largest, shift=begin)


def find_clouds(positions: Tensor, queries: Tensor | None, graphs: Graphs, exactly: list[bool]) -> Clouds:
    """The clouds of all graphs and heads."""
    heads, dim = positions.shape[1:]
    given = positions if queries is None else torch.cat([positions, queries])
    position = given.contiguous().view(-1, dim)
    device = position.device
    head = torch.arange(heads, dtype=torch.int32, device=device)
    sizes = graphs.keys if queries is None else [k + q for k, q in zip(graphs.keys, graphs.queries, strict=True)]
    if len(sizes) == 1:
        cloud = head.repeat(len(given))
        counts = [torch.full((heads,), size, device=device) for size in (sizes[0], graphs.keys[0], graphs.queries[0])]
    else:
        assert graphs.of_keys is not None and graphs.of_queries is not None
        of_points = graphs.of_keys if queries is None else torch.cat([graphs.of_keys, graphs.of_queries])
        left = [0 if exact else size for exact, size in zip(exactly, sizes, strict=True)]
        table = torch.tensor([left, graphs.keys, graphs.queries, exactly], device=device)
        graph = torch.where(table[3][of_points] > 0, -len(sizes), of_points)
        cloud = (graph.unsqueeze(1) * heads + head).clamp(min=-1).to(torch.int32).view(-1)
        counts = [row.repeat_interleave(heads) for row in table[:3]]
    keys = len(positions) * heads
    return Clouds(position, cloud, heads, len(sizes), keys, 0 if queries is None else keys, max(sizes), *counts)


def all_alike(clouds: Clouds, low: Tensor, high: Tensor) -> Tensor:
    """Whether all points of a cloud are one, for each cloud; ``low`` and ``high`` are the ends of all."""
    if clouds.number == 1:
        return (low == high).all().reshape(1)
    last = max(0, len(clouds.order) - 1)
    first = clouds.position[clouds.order[clouds.start[:-1].clamp(max=last).long()]]
    differs = (clouds.position != first[clouds.cloud.clamp(min=0).long()]).any(dim=1)
    return _per_cloud(differs[clouds.order], clouds.start) == 0


def _per_cloud(numbers: Tensor, start: Tensor) -> Tensor:
    """The sum of integers from each start to the next: exact, in whatever order."""
    total = torch.zeros(len(numbers) + 1, dtype=torch.int64, device=numbers.device)
    torch.cumsum(numbers, 0, dtype=torch.int64, out=total[1:])
    at = total[start.long()]
    return at[1:] - at[:-1]


def finest_levels(clouds: Clouds, scheme: Scheme, constants: Constants, fields: list[Fields]) -> Tensor:
    r"""The finest level :math:`\kappa` of each cloud, as :func:`phgcn.lattice.groups.finest_level` chooses it, int32."""
    kappa = torch.zeros(clouds.number, dtype=torch.int32, device=clouds.cloud.device)
    if not isinstance(scheme, MultiScale):
        return kappa
    if scheme.near_field is not None or constants.levels == 1:
        return kappa.fill_(scheme.near_field or 0)
    double = clouds.position.double()
    sums = clouds.sums(Rows(double, double.new_empty(0), NONE), 0).main
    mean = sums / clouds.count.clamp(min=1).unsqueeze(1)
    still = torch.ones_like(kappa, dtype=torch.bool)
    for level in range(1, constants.levels):
        still = still & (_pairs(clouds, mean, constants, level, fields[level - 1]) <= scheme.pairs)
        kappa += still
    return kappa


def _pairs(clouds: Clouds, mean: Tensor, constants: Constants, level: int, fields: Fields) -> Tensor:
    """About how many keys a query has within the radius of a level: see :func:`phgcn.lattice.reference.mean_pairs`.

    Numbers of pairs are integers, so that their sums are exact."""
    side, dim = constants.sides[level], clouds.position.size(1)
    scale = constants.scale.new_full((dim,), 1 / side)
    runs = find_runs(cell_keys(clouds.position, clouds.cloud, clouds.start, -1, mean - side / 2, scale, fields))
    place = torch.arange(len(runs.order), device=mean.device)
    first = list_runs(runs, len(place))[0][(runs.number.long() - 1).clamp(min=0)].long()
    if clouds.begin == 0:
        # Each has as many pairs with those before it as there are, and as many with those after it.
        pairs = 2 * (place - first)
    else:
        is_key = runs.order < clouds.keys
        keys = torch.cumsum(is_key, 0, dtype=torch.int64)  # within a run, keys come before queries
        pairs = torch.where(is_key, 0, keys - keys[first] + is_key[first])
    return _per_cloud(pairs, clouds.start).double() / clouds.query_count.clamp(min=1)
