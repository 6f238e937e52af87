"""Graphs whose points lie on several ranks, numbered alike on all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..runtime.graphs import GraphGroups, sort_by_graph
from ..runtime.points import Points
from .collectives import Ranks

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RankGraphs:
    """The graphs of a call on all ranks.

    Args:
        groups (GraphGroups): The points of this rank by graph; a graph may have none here.
        keys, queries (np.ndarray): Each rank's number of keys and queries of each graph, int64,
            :math:`(P, G)`.
    """

    groups: GraphGroups
    keys: Ints
    queries: Ints

    @property
    def pairs(self) -> Ints:
        """Number of pairs of keys and queries of each graph, :math:`(G,)`."""
        pairs: Ints = self.keys.sum(axis=0) * self.queries.sum(axis=0)
        return pairs


def find_rank_graphs(points: Points, counts: list[tuple[int, int]], ranks: Ranks) -> RankGraphs:
    """Numbers the graphs of all ranks by id. ``counts`` holds each rank's keys and queries."""
    to_itself = points.queries is None
    if points.batch is None:
        keys, queries = (
            np.array(numbers, np.int64)[:, None] for numbers in zip(*counts, strict=True)
        )
        of_keys, of_queries = (sort_by_graph(number, None, 1) for number in counts[ranks.rank])
        return RankGraphs(
            GraphGroups(*of_keys, *(of_keys if to_itself else of_queries)),
            keys,
            keys if to_itself else queries,
        )
    key_ids = points.batch.cpu().numpy().astype(np.int64)
    query_ids = (
        key_ids if points.query_batch is None else points.query_batch.cpu().numpy().astype(np.int64)
    )
    ids = np.unique(np.concatenate([key_ids, query_ids]))
    here = np.stack([ids, *(_count(ids, some) for some in (key_ids, query_ids))], axis=1)
    parts = [
        part.cpu().numpy() for part in ranks.gather(torch.from_numpy(here).to(points.batch.device))
    ]
    all_ids = np.unique(np.concatenate([part[:, 0] for part in parts]))
    keys, queries = (np.zeros((ranks.size, len(all_ids)), np.int64) for _ in range(2))
    for rank, part in enumerate(parts):
        indices = np.searchsorted(all_ids, part[:, 0])
        keys[rank, indices], queries[rank, indices] = part[:, 1], part[:, 2]
    of_keys = sort_by_graph(len(key_ids), np.searchsorted(all_ids, key_ids), len(all_ids))
    of_queries = (
        of_keys
        if to_itself
        else sort_by_graph(len(query_ids), np.searchsorted(all_ids, query_ids), len(all_ids))
    )
    return RankGraphs(GraphGroups(*of_keys, *of_queries), keys, queries)


def _count(ids: Ints, numbers: Ints) -> Ints:
    """Counts the occurrences of each of the sorted ids."""
    return np.bincount(np.searchsorted(ids, numbers), minlength=len(ids)).astype(np.int64)


def points_of_graphs(
    points: Points, wanted: NDArray[np.bool_], graphs: RankGraphs
) -> tuple[Points, Tensor, Tensor]:
    """Selects the points of some graphs, and returns them with the numbers of their keys and
    queries. Queries are never :obj:`None`."""
    groups, device = graphs.groups, points.positions.device

    def numbers(order: Ints, start: Ints) -> Tensor:
        chosen = np.repeat(wanted, np.diff(start))
        return torch.from_numpy(np.sort(order[chosen])).to(device)

    key, query = (
        numbers(groups.key_order, groups.key_start),
        numbers(groups.query_order, groups.query_start),
    )
    query_batch = points.batch if points.queries is None else points.query_batch
    return (
        Points(
            points.positions[key],
            points.values[key],
            points.targets[query],
            None if points.batch is None else points.batch[key],
            None if query_batch is None else query_batch[query],
            None if points.weights is None else points.weights[key],
        ),
        key,
        query,
    )
