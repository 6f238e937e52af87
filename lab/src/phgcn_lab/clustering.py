r"""How well classes cluster in an embedding, and whether its distances follow those in the graph.

Pairs of nodes are not independent: tests permute nodes, and intervals come from drawing nodes, not
pairs, anew."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import spearmanr

from .arrays import Floats, Ints
from .extra import needed


@dataclass(frozen=True)
class Clustering:
    silhouette: float  # of the true labels
    shuffled: float  # the mean over permutations of the labels
    shuffled_high: float  # their 95 % quantile
    p: float  # share of permutations, the true labels among them, that reach the true silhouette


def clustering(points: Floats, labels: Ints, permutations: int, seed: int = 0) -> Clustering:
    """Computes scikit-learn's silhouette of points (N, D) by labels (N,); a lone node counts 0."""
    metrics = needed("the silhouette of classes", "scikit-learn", "sklearn.metrics")
    random, between = np.random.default_rng(seed), cdist(points, points)
    silhouette = partial(metrics.silhouette_score, between, metric="precomputed")
    true = float(silhouette(labels))
    shuffled = np.array([silhouette(random.permutation(labels)) for _ in range(permutations)])
    p = (1 + int((shuffled >= true).sum())) / (1 + permutations)
    return Clustering(true, float(shuffled.mean()), float(np.quantile(shuffled, 0.95)), p)


@dataclass(frozen=True)
class Correlation:
    rho: float  # over all pairs of nodes that are connected
    low: float  # a 95 % interval, from drawing nodes anew
    high: float
    # The share of permutations of the nodes, the true order among them, with a correlation as
    # strong, of either sign (Mantel's test).
    p: float
    # The share of the variance of the second distance between groups of equal first distance.
    explained: float


def correlation(steps: Floats, points: Floats, resamples: int, seed: int = 0) -> Correlation:
    """Correlates distances of points (N, D) with steps (N, N), infinite without a way."""
    random, apart = np.random.default_rng(seed), cdist(points, points)
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


def _drawn(steps: Floats, apart: Floats, nodes: Ints) -> float:
    """Computes the correlation over nodes drawn with replacement; a node is no pair with itself."""
    table = np.ix_(nodes, nodes)
    pairs = np.triu(np.isfinite(steps[table]) & (nodes[:, None] != nodes[None]), 1)
    return spearman(steps[table][pairs], apart[table][pairs])


def spearman(first: Floats, second: Floats) -> float:
    """Computes the correlation of ranks; 0 where one of them does not vary."""
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(spearmanr(first, second).statistic)
