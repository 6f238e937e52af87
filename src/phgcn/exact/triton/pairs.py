"""Cuts queries and keys of each graph into tiles, on the host."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...runtime.graphs import find_graphs
from ...runtime.points import Points
from ...runtime.triton import cdiv


class Pairs(NamedTuple):
    """The points that are summed over each other, graph by graph.

    Args:
        ranges (np.ndarray): For each graph, first and end of its queries, first and end of its keys
            in the orders, int64, :math:`(G, 4)`. Other points are ignored.
        query_order, key_order (torch.Tensor, optional): Orders that bring the points of a graph
            together, :math:`(M,)` and :math:`(N,)`. (default: :obj:`None`, as they are)
    """

    ranges: np.ndarray
    query_order: Tensor | None = None
    key_order: Tensor | None = None

    def swapped(self) -> Pairs:
        """Exchanges queries and keys."""
        return Pairs(self.ranges[:, [2, 3, 0, 1]], self.key_order, self.query_order)


class Tiles(NamedTuple):
    """The tiles of targets that programs take.

    Args:
        table (torch.Tensor, optional): For each tile, first target, end of its graph's targets,
            first source and end, int32, :math:`(count, 4)`; :obj:`None` for one graph of all
            points, which needs no copy to the device.
        targets, sources (int): The sizes of this one graph.
        first_source (int): Always 0. A constant would make the compiler unroll the sums and spill
            registers. (default: :obj:`0`)
    """

    table: Tensor | None
    targets: int
    sources: int
    first_source: int = 0


def find_pairs(points: Points, at_most: int) -> Pairs | None:
    """Finds the graphs of up to ``at_most`` pairs that have queries."""
    if points.empty:
        return None
    graphs = find_graphs(points)
    if graphs.of_keys is None:
        ranges = np.array([[0, graphs.queries[0], 0, graphs.keys[0]]])
        return Pairs(ranges) if points.pairs <= at_most else None
    keys, queries = np.array(graphs.keys, np.int64), np.array(graphs.queries, np.int64)
    last_key, last_query = keys.cumsum(), queries.cumsum()
    ranges = np.stack([last_query - queries, last_query, last_key - keys, last_key], axis=1)
    ranges = ranges[np.array(graphs.within(at_most=at_most)) & (queries > 0)]
    if len(ranges) == 0:
        return None
    orders = [
        None if index is None else torch.argsort(index, stable=True)
        for index in (graphs.of_queries, graphs.of_keys)
    ]
    return Pairs(ranges, *orders)


def cut_tiles(pairs: Pairs, size: int, device: torch.device) -> tuple[int, Tiles]:
    """Cuts the targets of each graph into tiles of ``size``; returns their count and the tiles."""
    ranges = pairs.ranges
    if len(ranges) == 1 and ranges[0, 0] == ranges[0, 2] == 0:
        _, targets, _, sources = ranges[0].tolist()
        return cdiv(targets, size), Tiles(None, targets, sources)
    count = -(-(ranges[:, 1] - ranges[:, 0]) // size)
    table = np.repeat(ranges, count, axis=0)
    table[:, 0] += size * (np.arange(len(table)) - np.repeat(count.cumsum() - count, count))
    return len(table), Tiles(torch.from_numpy(table.astype(np.int32)).to(device), 0, 0)
