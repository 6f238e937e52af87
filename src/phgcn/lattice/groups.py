r"""Which points attend to which, and the choices that are made for each graph and head on its own.

Every choice that depends on the data is made here, from one graph and head alone: what is batched beside a graph never
changes its output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from .coefficients import MultiScaleWeights
from .scheme import Exact, MultiScale, Scheme, Separable

EXACT_PAIRS = 1200**2
"""Graphs of at most this many pairs are summed exactly: about there the lattice becomes faster, as ``benchmarks/crossing.py``
measures on the CPU for D = 1 to 6; in higher dimensions a little later."""

EXACT_PAIRS_CUDA = 24_000**2
"""The same on a GPU, as ``benchmarks/gpu.py`` measures on an H200 for D = 2 to 6."""

FLOOR = 1e-8
"""In normalised cross-attention through a lattice, a query has at least this weight on each key's n-th part: one out of
reach of every key gets the mean of its graph's values instead of 0 / 0."""


@dataclass(frozen=True)
class Groups:
    """The keys and the queries of each graph: orders that bring those of a graph together, and where graphs start."""

    key_order: np.ndarray
    key_start: np.ndarray
    query_order: np.ndarray
    query_start: np.ndarray

    def slices(self) -> Iterator[tuple[slice, slice]]:
        """The places of each graph's keys and queries in these orders."""
        keys, queries = self.key_start.tolist(), self.query_start.tolist()
        for graph in range(len(keys) - 1):
            yield slice(keys[graph], keys[graph + 1]), slice(queries[graph], queries[graph + 1])


def make_groups(count: int, batch: np.ndarray | None, query_count: int | None, query_batch: np.ndarray | None) -> Groups:
    """Groups points by graph.  ``query_count`` is :obj:`None` where the points attend to themselves."""
    graphs = 1
    given = [index for index in (batch, query_batch) if index is not None and len(index) > 0]
    if given:
        graphs = max(int(index.max()) for index in given) + 1
        if graphs > 2 * sum(len(index) for index in given):  # few graphs with far numbers: number them anew
            names = np.unique(np.concatenate(given))
            graphs = len(names)
            batch = None if batch is None else np.searchsorted(names, batch)
            query_batch = None if query_batch is None else np.searchsorted(names, query_batch)
    keys = _by_graph(count, batch, graphs)
    queries = keys if query_count is None else _by_graph(query_count, query_batch, graphs)
    return Groups(*keys, *queries)


def _by_graph(count: int, batch: np.ndarray | None, graphs: int) -> tuple[np.ndarray, np.ndarray]:
    if batch is None:
        return np.arange(count), np.array([0] + [count] * graphs)
    return np.argsort(batch, kind="stable"), np.concatenate([[0], np.cumsum(np.bincount(batch, minlength=graphs))])


def summed_exactly(scheme: Scheme | str, keys: int, queries: int, device: str = "cpu") -> bool:
    """Whether a graph's sum is taken over all pairs, by a scheme or the method of a name, on a type of device."""
    if isinstance(scheme, Exact) or scheme == "exact":
        return True
    if isinstance(scheme, Separable) or scheme == "separable" or getattr(scheme, "near_field", None) is not None:
        return False
    most = getattr(scheme, "exact_pairs", None)
    if most is None:
        most = EXACT_PAIRS_CUDA if device == "cuda" else EXACT_PAIRS
    return keys * queries <= most


def finest_level(scheme: MultiScale, fitted: MultiScaleWeights, mean_pairs: Callable[[float], float]) -> int:
    r"""The finest level :math:`\kappa` of a graph's lattice: the coarsest whose near field has few enough pairs.

    The mean over all points decides: a collapsed cluster has many pairs, keeps the lattice, and the cost stays linear.
    """
    if scheme.near_field is not None:
        return scheme.near_field
    level = 0
    while level + 1 < len(scheme.hops) and mean_pairs(fitted.radius[level + 1]) <= scheme.pairs:
        level += 1
    return level


def mean_pairs_cell(dim: int, radius: float) -> float:
    """The side of a cube with the volume of a ball."""
    return radius * math.pi**0.5 / math.gamma(dim / 2 + 1) ** (1 / dim)
