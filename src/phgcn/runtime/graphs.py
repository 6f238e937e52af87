"""Groups points by graph: the *keys* that are attended to and the *queries* that attend."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from ..checks import check_coordinates, check_graph_numbers, check_values, refuse_graph_number
from .points import Points

ALL_PAIRS = 2**62  # a limit on the pairs of a graph that leaves no graph out

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class GraphGroups:
    """Points sorted by graph, on the host.

    Args:
        key_order (np.ndarray): The keys, stably sorted by graph, int64, :math:`(N,)`.
        key_start (np.ndarray): Index in ``key_order`` of each graph's first key, and :math:`N` at
            the end, int64, :math:`(G + 1,)`.
        query_order, query_start (np.ndarray): The same for queries.
    """

    key_order: Ints
    key_start: Ints
    query_order: Ints
    query_start: Ints

    def slices(
        self, more_than: int = -1, at_most: int = ALL_PAIRS
    ) -> Iterator[tuple[slice, slice]]:
        """Yields slices of ``key_order`` and ``query_order`` by graph, filtered by pairs."""
        keys, queries = pairwise(self.key_start.tolist()), pairwise(self.query_start.tolist())
        for (key, key_end), (query, query_end) in zip(keys, queries, strict=True):
            if more_than < (key_end - key) * (query_end - query) <= at_most:
                yield slice(key, key_end), slice(query, query_end)


def checked_groups(points: Points, limit: float | None = None, more_than: int = -1) -> GraphGroups:
    """Checks values and groups points; graphs of ``more_than`` pairs have a ``limit``."""
    check_values(*points[:3])
    check_graph_numbers(batch=points.batch, query_batch=points.query_batch)
    groups = group_points(points)
    if limit is None:
        return groups
    for side, name, tensor in ((0, "positions", points.positions), (1, "queries", points.queries)):
        if tensor is None or tensor.numel() == 0:
            continue
        if max(-float(tensor.min()), float(tensor.max())) > limit:
            order = groups.query_order if side else groups.key_order
            parts = [order[pair[side]] for pair in groups.slices(more_than=more_than)]
            rows = np.sort(np.concatenate([order[:0], *parts]))
            check_coordinates(name, tensor, limit, torch.from_numpy(rows).to(tensor.device))
    return groups


def group_points(points: Points) -> GraphGroups:
    graphs = 1
    index, query_index = (
        None if b is None else b.cpu().numpy() for b in (points.batch, points.query_batch)
    )
    indices = [b for b in (index, query_index) if b is not None and len(b) > 0]
    if indices:
        graphs = max(int(b.max()) for b in indices) + 1
        # sparse graph numbers: renumber, to keep memory linear in the points
        if graphs > 2 * sum(len(b) for b in indices):
            numbers = np.unique(np.concatenate(indices))
            graphs = len(numbers)
            index = None if index is None else np.searchsorted(numbers, index)
            query_index = None if query_index is None else np.searchsorted(numbers, query_index)
    keys = queries = sort_by_graph(len(points.positions), index, graphs)
    if points.queries is not None:
        queries = sort_by_graph(len(points.queries), query_index, graphs)
    return GraphGroups(*keys, *queries)


def sort_by_graph(count: int, batch: Ints | None, graphs: int) -> tuple[Ints, Ints]:
    """Returns order and starts of :class:`GraphGroups`. Without a batch, graph 0 has all points."""
    if batch is None:
        return np.arange(count), np.array([0] + [count] * graphs)
    start = np.cumsum(np.bincount(batch, minlength=graphs))
    return np.argsort(batch, kind="stable"), np.concatenate([[0], start])


# On a device, with as few reads of it as possible


@dataclass
class DeviceGraphs:
    """The graph of each point on the device, int64 or :obj:`None` for one graph, and each graph's
    number of keys and queries on the host."""

    of_keys: Tensor | None
    of_queries: Tensor | None
    keys: list[int]
    queries: list[int]

    def within(self, more_than: int = -1, at_most: int = ALL_PAIRS) -> list[bool]:
        """Returns for each graph whether ``more_than < pairs <= at_most``."""
        return [more_than < k * q <= at_most for k, q in zip(self.keys, self.queries, strict=True)]


def find_graphs(points: Points) -> DeviceGraphs:
    """Finds the graph of each point. Reads the device only for a new batch."""
    named = ("batch", points.batch), ("query_batch", points.query_batch)
    batches = {name: index for name, index in named if index is not None}
    if not any(index.numel() > 0 for index in batches.values()):
        return DeviceGraphs(None, None, [points.positions.size(0)], [points.targets.size(0)])
    indices = [index.long() for index in batches.values()]
    counted = [count_points(name, index) for name, index in batches.items()]
    sizes = [size for size in counted if size is not None]
    # sparse graph numbers: renumber, to keep memory linear in the points
    if len(sizes) < len(counted):
        numbers = torch.unique(torch.cat(indices))
        indices = [torch.searchsorted(numbers, index) for index in indices]
        sizes = [torch.bincount(index).tolist() for index in indices]
    graphs = max(len(size) for size in sizes)
    keys, *queries = [size + [0] * (graphs - len(size)) for size in sizes]
    return DeviceGraphs(indices[0], indices[-1], keys, queries[0] if queries else keys)


# the sizes of so many graphs are read together with their number; more take a second read
FEW_GRAPHS = 1024

# Index tensor -> (its version, sizes of its graphs). Training passes the same index to every layer
# and step.
_SIZES: MutableMapping[Tensor, tuple[int, list[int]]] = WeakIdKeyDictionary()


def count_points(name: str, index: Tensor) -> list[int] | None:
    """Counts the points of each graph of an ``index`` (N,), or returns :obj:`None` if most graph
    numbers are empty. Refuses negative numbers."""
    if index.numel() == 0:
        return []
    version = None if index.is_inference() else index._version
    cached = _SIZES.get(index)
    if version is not None and cached is not None and cached[0] == version:
        return cached[1]
    ordered = index.long().sort()[0]
    first_index = torch.searchsorted(ordered, torch.arange(FEW_GRAPHS + 1, device=index.device))
    least, most, *start = torch.cat([ordered[:1], ordered[-1:], first_index]).tolist()
    if least < 0:
        refuse_graph_number(name, index)
    if most >= FEW_GRAPHS and most >= 2 * len(index):
        return None
    if most >= FEW_GRAPHS:
        start = torch.searchsorted(ordered, torch.arange(most + 2, device=index.device)).tolist()
    sizes = [after - first for first, after in pairwise(start[: most + 2])]
    if version is not None:
        _SIZES[index] = version, sizes
    return sizes
