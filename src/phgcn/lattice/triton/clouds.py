r"""Which points belong together: the clouds of all graphs and heads.

A *cloud* is the points of one graph and head.  Points are rows: row ``point * heads + head``, sources first, then queries if
they are others.  The host knows how many points each graph has; what else needs a look at the data stays on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from ...runtime.graphs import DeviceGraphs
from ...runtime.points import Points
from ...runtime.triton import tl, triton

CHUNK = tl.constexpr(256)
"""Consecutive points of one cloud that a program looks at together."""

START, FILTERED_START, FIRST_CHUNK, SOURCES, QUERIES = (tl.constexpr(row) for row in range(5))
"""The rows of the table of :class:`CloudSizes`."""


@dataclass(frozen=True)
class CloudSizes:
    r"""How many points the clouds have, on the device.

    Args:
        table (torch.Tensor): For each graph, and behind the last: its first place among points sorted by cloud; the same
            without graphs that are not filtered; its first chunk of points; its sources; its queries; int64,
            :math:`(5, G+1)`.
        start (torch.Tensor): The first place of each cloud and behind the last, int32.
        source_count (torch.Tensor): How many sources each cloud has, float64.
        chunks (int): How many chunks there are.
        largest (int): How many points the largest cloud has.
    """

    table: Tensor
    start: Tensor
    source_count: Tensor
    chunks: int
    largest: int


@lru_cache(maxsize=8)
def cloud_sizes(
    points: tuple[int, ...], sources: tuple[int, ...], queries: tuple[int, ...], filtered: tuple[bool, ...], heads: int,
    device: torch.device,
) -> CloudSizes:  # fmt: skip
    """Computes the sizes of clouds from those of graphs; cached for the next call, which in training has the same."""
    size, filtered_size = np.array(points), np.where(filtered, points, 0)
    chunks = -(-size // CHUNK.value)
    rows = [np.concatenate([[0], np.cumsum(heads * row)]) for row in (size, filtered_size, chunks)]
    rows += [np.append(row, 0) for row in (sources, queries)]
    return CloudSizes(
        table=torch.from_numpy(np.stack(rows).astype(np.int64)).to(device),
        start=torch.from_numpy(np.append(0, np.cumsum(np.repeat(size, heads))).astype(np.int32)).to(device),
        source_count=torch.from_numpy(np.repeat(sources, heads).astype(np.float64)).to(device),
        chunks=int(heads * chunks.sum()),
        largest=int(size.max()),
    )


@dataclass
class Clouds:
    """The points of all clouds.

    Args:
        position (torch.Tensor): Of all points, :math:`(P, D)`.
        cloud (torch.Tensor): The cloud of each point, -1 where its graph is not filtered, int32, :math:`(P,)`; where there is
            one graph, the survey writes it.
        graph (torch.Tensor, optional): The graph of each row of ``heads`` points; :obj:`None` if there is one graph.
        heads (int): How many heads there are.
        graphs (int): How many graphs there are.
        sources (int): How many of the points are sources: the first.
        sizes (CloudSizes): How many points the clouds have.
    """

    position: Tensor
    cloud: Tensor
    graph: Tensor | None
    heads: int
    graphs: int
    sources: int
    sizes: CloudSizes

    @property
    def count(self) -> int:
        """How many clouds there are."""
        return self.graphs * self.heads

    @property
    def to_itself(self) -> bool:
        """True where points attend to themselves, and not queries to sources."""
        return self.sources == self.position.size(0)

    @property
    def first_query(self) -> int:
        return 0 if self.to_itself else self.sources

    @property
    def queries(self) -> slice:
        """The points that attend."""
        return slice(self.first_query, self.position.size(0))

    @cached_property
    def order(self) -> Tensor | None:
        """The points sorted by graph, then head; :obj:`None` where they are."""
        if self.count == 1:
            return None
        points, device = self.position.size(0), self.position.device
        if self.graph is None:
            return torch.arange(points, device=device).view(-1, self.heads).T.reshape(-1)
        head = torch.arange(self.heads, device=device)
        return torch.sort((self.graph.unsqueeze(1) * self.heads + head).view(-1), stable=True)[1]


def find_clouds(points: Points, graphs: DeviceGraphs, filtered: list[bool], cloud: Tensor | None = None) -> Clouds:
    """Lists the points of all graphs and heads.

    Args:
        points (Points): Sources and queries; there is at least one of each.
        graphs (DeviceGraphs): Their graphs.
        filtered (list): Which graphs are filtered; the others' output is 0.
        cloud (torch.Tensor, optional): The cloud of each point, where a plan has it. (default: :obj:`None`)
    """
    positions, queries = points.positions, points.queries
    heads, dim = positions.shape[1:]
    position = (positions if queries is None else torch.cat([positions, queries])).contiguous().view(-1, dim)
    sources = positions.size(0) * heads
    sizes = graphs.keys if queries is None else [k + q for k, q in zip(graphs.keys, graphs.queries, strict=True)]
    table = cloud_sizes(tuple(sizes), tuple(graphs.keys), tuple(graphs.queries), tuple(filtered), heads, position.device)
    if len(sizes) == 1:
        if cloud is None:
            cloud = torch.empty(position.size(0), dtype=torch.int32, device=position.device)
        return Clouds(position, cloud, None, heads, 1, sources, table)
    assert graphs.of_keys is not None and graphs.of_queries is not None
    graph = graphs.of_keys if queries is None else torch.cat([graphs.of_keys, graphs.of_queries])
    if cloud is None:
        filtered_start = table.table[FILTERED_START.value]
        number = torch.where((filtered_start[1:] > filtered_start[:-1])[graph], graph, -len(sizes))
        head = torch.arange(heads, device=position.device)
        cloud = (number.unsqueeze(1) * heads + head).clamp(min=-1).to(torch.int32).view(-1)
    return Clouds(position, cloud, graph, heads, len(sizes), sources, table)


@triton.jit
def graph_of_chunk(table, chunk, graphs):
    """Finds the graph that a chunk belongs to: the last one whose first chunk is it or before."""
    low = chunk * 0
    high = low + graphs
    for bit in range(32):
        if (graphs >> bit) > 0:
            middle = (low + high) // 2
            active = low < high
            below = tl.load(table + FIRST_CHUNK * (graphs + 1) + middle + 1, mask=active, other=0) <= chunk
            low = tl.where(active & below, middle + 1, low)
            high = tl.where(active & (below == 0), middle, high)
    return low
