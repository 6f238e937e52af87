r"""How well classes cluster in an embedding, and whether its distances follow those in the graph.

Pairs of nodes are not independent: tests permute nodes, and intervals come from drawing nodes, not pairs, anew.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from .extra import needed


def distances(points: NDArray) -> NDArray:
    r"""Euclidean distances :math:`(N, N)` of points :math:`(N, D)`."""
    return np.sqrt(np.square(points[:, None] - points[None]).sum(axis=-1))


@dataclass(frozen=True)
class Clustering:
    """The silhouette of classes, beside that of classes dealt out at random.

    Args:
        silhouette (float): Of the true labels.
        shuffled (float): The mean over permutations of the labels.
        shuffled_high (float): Their 95 % quantile.
        p (float): The share of permutations, the true labels among them, that reach the true silhouette.
    """

    silhouette: float
    shuffled: float
    shuffled_high: float
    p: float


def clustering(points: NDArray, labels: NDArray, permutations: int, seed: int = 0) -> Clustering:
    """Measures how well classes cluster, by scikit-learn's silhouette (a node alone in its class counts 0).

    Shapes:
        - **points:** :math:`(N, D)`, **labels:** :math:`(N,)`, of 2 classes or more
    """
    needed("sklearn", "scikit-learn", "the silhouette of classes")
    from sklearn.metrics import silhouette_score

    random, between = np.random.default_rng(seed), distances(points)
    true = float(silhouette_score(between, labels, metric="precomputed"))
    shuffled = np.array(
        [silhouette_score(between, random.permutation(labels), metric="precomputed") for _ in range(permutations)]
    )
    p = (1 + int((shuffled >= true).sum())) / (1 + permutations)
    return Clustering(true, float(shuffled.mean()), float(np.quantile(shuffled, 0.95)), p)


@dataclass(frozen=True)
class Correlation:
    """Spearman's correlation of two distances between nodes.

    Args:
        rho (float): Over all pairs of nodes that are connected.
        low, high (float): A 95 % interval, from drawing nodes anew.
        p (float): The share of permutations of the nodes, the true order among them, with a correlation as strong, of either
            sign (Mantel's test).
        explained (float): The share of the variance of the second distance between groups of equal first distance.
    """

    rho: float
    low: float
    high: float
    p: float
    explained: float


def correlation(steps: NDArray, points: NDArray, resamples: int, seed: int = 0) -> Correlation:
    r"""Correlates the distance of points with the number of edges between nodes.

    Shapes:
        - **steps:** :math:`(N, N)`, edges between nodes, infinite where there is no way; **points:** :math:`(N, D)`
    """
    random, apart = np.random.default_rng(seed), distances(points)
    count, upper = len(points), np.triu(np.ones((len(points), len(points)), bool), 1)
    pairs = upper & np.isfinite(steps)
    near, far = steps[pairs], apart[pairs]
    rho = spearman(near, far)
    drawn = [_drawn(steps, apart, random.integers(count, size=count)) for _ in range(resamples)]
    shuffled = []
    for _ in range(resamples):
        order = random.permutation(count)
        shuffled.append(spearman(near, apart[np.ix_(order, order)][pairs]))
    p = (1 + int((np.abs(shuffled) >= abs(rho)).sum())) / (1 + resamples)
    low, high = np.quantile(drawn, [0.025, 0.975])
    groups = np.unique(near, return_inverse=True)[1]
    means = (np.bincount(groups, far) / np.bincount(groups))[groups]
    explained = float(means.var() / far.var()) if far.var() > 0 else 0.0
    return Correlation(rho, float(low), float(high), p, explained)


def _drawn(steps: NDArray, apart: NDArray, nodes: NDArray) -> float:
    """Computes the correlation over nodes drawn with replacement; a node is no pair with itself."""
    table = np.ix_(nodes, nodes)
    pairs = np.triu(np.isfinite(steps[table]) & (nodes[:, None] != nodes[None]), 1)
    return spearman(steps[table][pairs], apart[table][pairs])


def spearman(first: NDArray, second: NDArray) -> float:
    """Computes the correlation of ranks, equal values sharing their mean rank; 0 where one of them does not vary."""
    a, b = rankdata(first), rankdata(second)
    if len(a) < 2 or a.std() == 0 or b.std() == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])
