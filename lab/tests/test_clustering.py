import sys

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from phgcn_lab.clustering import clustering, correlation, spearman

pytest.importorskip("sklearn")


def blobs(apart, count=40, seed=0):
    random = np.random.default_rng(seed)
    labels = np.repeat([0, 1, 2], [count, count // 2, 3])
    return random.normal(size=(len(labels), 2)) + apart * np.c_[labels, labels**2], labels


def test_the_silhouette_of_four_points_by_hand():
    points = np.array([[0.0], [1.0], [10.0], [12.0]])
    scores = [(11 - 1) / 11, (10 - 1) / 10, (9.5 - 2) / 9.5, (11.5 - 2) / 11.5]
    assert clustering(points, np.array([0, 0, 1, 1]), permutations=1).silhouette == pytest.approx(
        np.mean(scores)
    )


def test_a_class_of_one_node_counts_nothing():
    points = np.array([[0.0], [1.0], [30.0]])
    scores = [(30 - 1) / 30, (29 - 1) / 29, 0]
    assert clustering(points, np.array([0, 0, 1]), permutations=1).silhouette == pytest.approx(
        np.mean(scores)
    )


def test_without_scikit_learn_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.metrics", None)
    with pytest.raises(
        ValueError, match=r"needs the package scikit-learn: pip install scikit-learn"
    ):
        clustering(*blobs(1.0), permutations=1)


def test_clusters_are_told_from_chance():
    far, near = (clustering(*blobs(apart), permutations=99) for apart in (20.0, 0.0))
    assert far.p == 0.01 and far.silhouette > 0.8 > far.shuffled_high > far.shuffled
    assert near.p > 0.05 and near.silhouette < near.shuffled_high + 0.05


def test_what_does_not_vary_has_no_correlation():
    assert spearman(np.ones(5), np.arange(5.0)) == 0.0


def test_an_embedding_that_follows_a_path_is_found_and_one_at_random_is_not():
    count = 40
    path = np.arange(count, dtype=float)
    steps = cdist(path[:, None], path[:, None])
    follows = correlation(steps, path[:, None] * [1.0, 0.5], resamples=50)
    assert follows.rho == pytest.approx(1.0)
    assert follows.low > 0.99
    assert follows.p < 0.03
    assert follows.explained > 0.99
    chance = correlation(steps, np.random.default_rng(2).normal(size=(count, 2)), resamples=50)
    assert abs(chance.rho) < 0.2
    assert chance.low < 0 < chance.high
    assert chance.p > 0.03
    assert chance.explained < 0.2


def test_pairs_without_a_way_do_not_count():
    path = np.arange(12, dtype=float)[:, None]
    steps = cdist(path, path)
    steps[:6, 6:] = steps[6:, :6] = np.inf
    points = np.r_[path[:6], path[:6][::-1] + 500]  # the distance between the parts says nothing
    assert correlation(steps, points, resamples=20).rho == pytest.approx(1.0)
