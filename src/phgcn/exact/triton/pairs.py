r"""Which queries are summed over which keys, and how they are cut into tiles; on the host."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...runtime.graphs import find_graphs
from ...runtime.points import Points
from ...runtime.triton import cdiv


class Pairs(NamedTuple):
    r"""The points that are summed over each other, graph by graph.

    Args:
        ranges (np.ndarray): For each graph its first query, the end of its queries, its first key
            and the end of its keys: places in the orders below, int64 of shape :math:`(G, 4)`.
            Points in no range are left alone.
        query_order, key_order (torch.Tensor, optional): The points in orders that bring those of a
            graph together, on the device, :math:`(M,)` and :math:`(N,)`. (default: :obj:`None`, as
            they are)
    """

    ranges: np.ndarray
    query_order: Tensor | None = None
    key_order: Tensor | None = None

    def swapped(self) -> Pairs:
        """Returns the same pairs with keys as targets and queries as sources."""
        return Pairs(self.ranges[:, [2, 3, 0, 1]], self.key_order, self.query_order)


class Tiles(NamedTuple):
    r"""The tiles of targets that programs take, as kernels read them.

    Args:
        table (torch.Tensor, optional): For each its first target, the end of its graph's targets,
            its first source and their end, int32 of shape :math:`(count, 4)`; :obj:`None` for one
            graph of all points, which needs no copy to the device and can so be captured in a CUDA
            graph.
        targets, sources (int): How many points that graph has.
        first_source (int): Always 0, passed as an argument: if the compiler knew it, it would
            unroll the loop of the sums further and spill registers. (default: :obj:`0`)
    """

    table: Tensor | None
    targets: int
    sources: int
    first_source: int = 0


def find_pairs(points: Points, at_most: int) -> Pairs | None:
    """Finds the graphs of up to ``at_most`` pairs that have queries; returns :obj:`None` if there
    are none.
    """
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
    """Cuts the targets of each graph into tiles of ``size``; returns how many there are, and where
    they are.
    """
    ranges = pairs.ranges
    if len(ranges) == 1 and ranges[0, 0] == ranges[0, 2] == 0:
        _, targets, _, sources = ranges[0].tolist()
        return cdiv(targets, size), Tiles(None, targets, sources)
    count = -(-(ranges[:, 1] - ranges[:, 0]) // size)
    table = np.repeat(ranges, count, axis=0)
    table[:, 0] += size * (np.arange(len(table)) - np.repeat(count.cumsum() - count, count))
    return len(table), Tiles(torch.from_numpy(table.astype(np.int32)).to(device), 0, 0)
