r"""Which points belong together.

A *cloud* is the points of one graph and head.  Points are rows: row ``point * heads + head``, keys first, then queries if they
are others.  The host knows how many points each graph has; what else needs a look at the data stays on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from ...kernels.graphs import DeviceGraphs
from .launch import tl, triton
from .rows import PIECE, Rows, sum_runs

CHUNK = 256
"""Points of one cloud that a program looks at together."""

START, PRESENT, FIRST, KEYS, QUERIES = (tl.constexpr(row) for row in range(5))
"""The rows of :class:`Sizes`' table."""


@dataclass(frozen=True)
class Sizes:
    r"""How many points the clouds have, on the device.

    Args:
        table (torch.Tensor): For each graph and behind the last: its first place among points sorted by cloud; the same
            without graphs that are summed exactly; its first chunk of points; its keys; its queries; int64,
            :math:`(5, G+1)`.
        start (torch.Tensor): The first place of each cloud and behind the last, int32.
        key_count (torch.Tensor): How many keys each cloud has, float64.
        chunks (int): How many chunks there are.
        largest (int): No cloud has more points.
    """

    table: Tensor
    start: Tensor
    key_count: Tensor
    chunks: int
    largest: int


@lru_cache(maxsize=8)
def find_sizes(points: tuple, keys: tuple, queries: tuple, exactly: tuple, heads: int, device: torch.device) -> Sizes:
    """The sizes of clouds, kept for the next call, which in training has the same."""
    size, left = np.array(points), np.where(exactly, 0, points)
    chunks = -(-size // CHUNK)
    rows = [np.concatenate([[0], np.cumsum(heads * row)]) for row in (size, left, chunks)]
    rows += [np.append(row, 0) for row in (keys, queries)]
    return Sizes(
        table=torch.from_numpy(np.stack(rows).astype(np.int64)).to(device),
        start=torch.from_numpy(np.append(0, np.cumsum(np.repeat(size, heads))).astype(np.int32)).to(device),
        key_count=torch.from_numpy(np.repeat(keys, heads).astype(np.float64)).to(device),
        chunks=int(heads * chunks.sum()),
        largest=int(size.max()),
    )


@dataclass
class Clouds:
    """The points of all clouds.

    Args:
        position (torch.Tensor): Of all points, :math:`(P, D)`.
        cloud (torch.Tensor): The cloud of each, -1 where a graph is summed exactly, int32; where there is one graph, the
            survey writes it.
        graph (torch.Tensor, optional): The graph of each row of points; :obj:`None` if there is one.
        heads (int): How many heads there are.
        graphs (int): How many graphs there are.
        keys (int): How many of the points are keys: the first.
        begin (int): The first query: 0 where points attend to themselves.
        sizes (Sizes): How many points the clouds have.
    """

    position: Tensor
    cloud: Tensor
    graph: Tensor | None
    heads: int
    graphs: int
    keys: int
    begin: int
    sizes: Sizes

    @property
    def number(self) -> int:
        """How many clouds there are."""
        return self.graphs * self.heads

    @cached_property
    def order(self) -> Tensor | None:
        """The points sorted by graph, then head; :obj:`None` where they are."""
        if self.number == 1:
            return None
        points, device = len(self.position), self.position.device
        if self.graph is None:
            return torch.arange(points, device=device).view(-1, self.heads).T.reshape(-1)
        head = torch.arange(self.heads, device=device)
        return torch.sort((self.graph.unsqueeze(1) * self.heads + head).view(-1), stable=True)[1]

    def sums(self, rows: Rows, begin: int) -> Rows:
        """The sum of the rows of each cloud, for rows of the points from ``begin`` on."""
        long = self.sizes.largest > PIECE
        return sum_runs(rows, self.order, rows.main.new_empty(0), self.sizes.start, self.number, long, shift=begin)


def find_clouds(positions: Tensor, queries: Tensor | None, graphs: DeviceGraphs, left_out: list[bool]) -> Clouds:
    """The clouds of all graphs and heads."""
    heads, dim = positions.shape[1:]
    given = positions if queries is None else torch.cat([positions, queries])
    position = given.contiguous().view(-1, dim)
    device, keys = position.device, positions.size(0) * heads
    points = graphs.keys if queries is None else [k + q for k, q in zip(graphs.keys, graphs.queries, strict=True)]
    sizes = find_sizes(tuple(points), tuple(graphs.keys), tuple(graphs.queries), tuple(left_out), heads, device)
    begin = 0 if queries is None else keys
    if len(points) == 1:
        cloud = torch.empty(position.size(0), dtype=torch.int32, device=device)
        return Clouds(position, cloud, None, heads, 1, keys, begin, sizes)
    assert graphs.of_keys is not None and graphs.of_queries is not None
    graph = graphs.of_keys if queries is None else torch.cat([graphs.of_keys, graphs.of_queries])
    table = sizes.table[PRESENT.value]
    there = torch.where((table[1:] > table[:-1])[graph], graph, -len(points))
    head = torch.arange(heads, device=device)
    cloud = (there.unsqueeze(1) * heads + head).clamp(min=-1).to(torch.int32).view(-1)
    return Clouds(position, cloud, graph, heads, len(points), keys, begin, sizes)


@triton.jit
def graph_of_chunk(table, chunk, graphs, halvings):
    """The graph that a chunk is of: the last one whose first chunk is it or before."""
    low = chunk * 0
    high = low + graphs
    for _ in range(halvings):
        middle = (low + high) // 2
        active = low < high
        below = tl.load(table + FIRST * (graphs + 1) + middle + 1, mask=active, other=0) <= chunk
        low = tl.where(active & below, middle + 1, low)
        high = tl.where(active & (below == 0), middle, high)
    return low
