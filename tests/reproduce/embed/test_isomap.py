import numpy as np
import pytest
from planes import both_ways, distances, line

from phgcn.reproduce.embed import isomap as room
from phgcn.reproduce.embed.isomap import isomap

pytest.importorskip("sklearn")


def test_a_line_keeps_its_distances():
    found = isomap(line(10), 10, 0)
    expected = np.abs(np.subtract.outer(np.arange(10), np.arange(10)))
    assert np.allclose(distances(found), expected, atol=1e-5)


def test_it_is_the_isomap_of_scikit_learn():
    from scipy.sparse import csr_matrix
    from sklearn.manifold import Isomap

    random = np.random.default_rng(0)
    edges = both_ways(np.concatenate([line(40), random.integers(40, size=(30, 2))]))
    links = csr_matrix((np.ones(len(edges)), edges.T), shape=(40, 40))
    given = Isomap(n_neighbors=None, radius=1.0, n_components=2, metric="precomputed").fit_transform(links)
    assert np.allclose(distances(isomap(edges, 40, 0)), distances(given), atol=1e-5)


def test_components_are_further_apart_than_any_two_nodes_of_one():
    edges = np.concatenate([line(6), line(9) + 6, np.array([[15, 16], [16, 15]])])
    found = isomap(edges, 18, 0)
    label = np.array([0] * 6 + [1] * 9 + [2] * 2)
    apart = distances(found[:17])
    same = label[:, None] == label
    assert apart[same].max() < apart[~same].min()
    assert np.isclose(apart[15, 16], 1, atol=1e-5)


def test_a_node_without_edges_has_no_place():
    found = isomap(line(4), 6, 0)
    assert np.isnan(found[4:]).all() and np.isfinite(found[:4]).all()
    assert np.isnan(isomap(np.empty((0, 2), np.int64), 3, 0)).all()
    assert isomap(np.empty((0, 2), np.int64), 0, 0).shape == (0, 2)


def test_nodes_with_the_same_neighbours_have_the_same_place():
    arms = [np.append(0, np.arange(*ends)) for ends in ((6, 10), (10, 17), (17, 28))]  # of a star, with 5 leaves
    chains = [np.stack([arm[:-1], arm[1:]], axis=1) for arm in arms]
    leaves = np.stack([np.zeros(5, np.int64), np.arange(1, 6)], axis=1)
    found = isomap(both_ways(np.concatenate([leaves, *chains])), 28, 0)
    assert len(np.unique(found[1:6], axis=0)) == 1 and len(np.unique(found, axis=0)) == 24


def test_landmarks_place_a_large_component_nearly_as_all_distances_do(monkeypatch):
    side = 30
    grid = np.arange(side * side).reshape(side, side)
    edges = both_ways(np.concatenate([np.stack([grid[:-1].ravel(), grid[1:].ravel()], 1),
                                      np.stack([grid[:, :-1].ravel(), grid[:, 1:].ravel()], 1)]))  # fmt: skip
    whole = distances(isomap(edges, side * side, 0))
    monkeypatch.setattr(room, "MOST_EXACT", 100)
    monkeypatch.setattr(room, "LANDMARKS", 200)
    some = distances(isomap(edges, side * side, 0))
    assert np.corrcoef(whole.ravel(), some.ravel())[0, 1] > 0.99
    assert abs(some.mean() / whole.mean() - 1) < 0.05


def test_the_same_seed_gives_the_same_bits():
    assert np.array_equal(isomap(line(300), 300, 3), isomap(line(300), 300, 3))
