r"""Which points attend to which: the keys and the queries of each graph of a batch.

*Keys* are the points that are attended to, *queries* those that attend; without separate queries they are the same points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from ..checks import refuse_graph_number

ALL_PAIRS = 2**62
"""More pairs than any graph has: the upper limit that leaves no graph out."""


@dataclass(frozen=True)
class GraphGroups:
    r"""Points sorted by graph, on the host.

    Args:
        key_order (np.ndarray): The keys, those of a graph side by side, int64 of shape :math:`(N,)`.
        key_start (np.ndarray): The first place of each graph in ``key_order``, then :math:`N`; :math:`(G + 1,)`.
        query_order, query_start (np.ndarray): The same for queries.
    """

    key_order: np.ndarray
    key_start: np.ndarray
    query_order: np.ndarray
    query_start: np.ndarray

    def slices(self, more_than: int = -1, at_most: int = ALL_PAIRS) -> Iterator[tuple[slice, slice]]:
        """Yields the places of keys and queries of each graph whose number of pairs lies within limits."""
        keys, queries = self.key_start.tolist(), self.query_start.tolist()
        for graph in range(len(keys) - 1):
            key, query = slice(keys[graph], keys[graph + 1]), slice(queries[graph], queries[graph + 1])
            if more_than < (key.stop - key.start) * (query.stop - query.start) <= at_most:
                yield key, query


def group_by_graph(count: int, batch: Tensor | None, query_count: int | None, query_batch: Tensor | None) -> GraphGroups:
    """Groups points by graph; ``query_count`` is :obj:`None` where the points attend to themselves."""
    graphs = 1
    index, query_index = (None if b is None else b.cpu().numpy() for b in (batch, query_batch))
    given = [b for b in (index, query_index) if b is not None and len(b) > 0]
    if given:
        graphs = max(int(b.max()) for b in given) + 1
        if graphs > 2 * sum(len(b) for b in given):  # few graphs with large numbers: number them anew
            names = np.unique(np.concatenate(given))
            graphs = len(names)
            index = None if index is None else np.searchsorted(names, index)
            query_index = None if query_index is None else np.searchsorted(names, query_index)
    keys = _sort_by_graph(count, index, graphs)
    queries = keys if query_count is None else _sort_by_graph(query_count, query_index, graphs)
    return GraphGroups(*keys, *queries)


def _sort_by_graph(count: int, batch: np.ndarray | None, graphs: int) -> tuple[np.ndarray, np.ndarray]:
    if batch is None:
        return np.arange(count), np.array([0] + [count] * graphs)
    return np.argsort(batch, kind="stable"), np.concatenate([[0], np.cumsum(np.bincount(batch, minlength=graphs))])


# On a device that the host should seldom wait for


@dataclass
class DeviceGraphs:
    r"""The graph of each point on the device, and how many points each graph has on the host.

    Args:
        of_keys, of_queries (torch.Tensor, optional): The graph of each point, int64; :obj:`None` if there is one graph.
        keys, queries (list): How many keys and queries each graph has.
    """

    of_keys: Tensor | None
    of_queries: Tensor | None
    keys: list[int]
    queries: list[int]

    def within(self, more_than: int = -1, at_most: int = ALL_PAIRS) -> list[bool]:
        """Tells which graphs have a number of pairs within limits."""
        return [more_than < k * q <= at_most for k, q in zip(self.keys, self.queries, strict=True)]


def find_graphs(count: int, batch: Tensor | None, query_count: int | None, query_batch: Tensor | None) -> DeviceGraphs:
    """Groups points by graph.  Reads the device only where a batch is given that has not been read before."""
    given = {name: index for name, index in (("batch", batch), ("query_batch", query_batch)) if index is not None}
    if not any(index.numel() > 0 for index in given.values()):
        return DeviceGraphs(None, None, [count], [count if query_count is None else query_count])
    sizes = [count_points(name, index) for name, index in given.items()]
    indices = [index.long() for index in given.values()]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):  # few graphs with large numbers: number them anew
        names = torch.unique(torch.cat(indices))
        indices = [torch.searchsorted(names, index) for index in indices]
        known = [torch.bincount(index).tolist() for index in indices]
    graphs = max(len(size) for size in known)
    keys, *queries = [size + [0] * (graphs - len(size)) for size in known]
    return DeviceGraphs(indices[0], indices[-1], keys, queries[0] if queries else keys)


FEW_GRAPHS = 1024
"""The sizes of so many graphs are read together with their number."""

_SIZES = WeakIdKeyDictionary()
"""Index tensor -> (its version, sizes of its graphs).  Training gives the same index to every layer and step."""


def count_points(name: str, index: Tensor) -> list[int] | None:
    """Counts the points of each graph; :obj:`None` where most graph numbers have none.  Refuses negative numbers."""
    if index.numel() == 0:
        return []
    version = None if index.is_inference() else index._version
    known = _SIZES.get(index)
    if version is not None and known is not None and known[0] == version:
        return known[1]
    ordered = index.long().sort()[0]
    first = torch.searchsorted(ordered, torch.arange(FEW_GRAPHS + 1, device=index.device))
    least, most, *start = torch.cat([ordered[:1], ordered[-1:], first]).tolist()
    if least < 0:
        refuse_graph_number(name, index)
    if most >= FEW_GRAPHS and most >= 2 * len(index):
        return None
    if most >= FEW_GRAPHS:
        start = torch.searchsorted(ordered, torch.arange(most + 2, device=index.device)).tolist()
    sizes = np.diff(start[: most + 2]).tolist()
    if version is not None:
        _SIZES[index] = version, sizes
    return sizes
