import numpy as np
import pytest
from planes import both_ways, distances, line
from small_graphs import small_graph

from phgcn.reproduce.embed import METHODS
from phgcn.reproduce.embed.latent import latent_pairs, neighbourhood, quadrants, undirected
from phgcn.reproduce.embed.poincare import hyperbolic_distance


def random_places(count=200, seed=0):
    """Places in the unit disc."""
    found = np.random.default_rng(seed).normal(size=(count, 2))
    return found / (1 + np.hypot(*found.T))[:, None]


@pytest.mark.parametrize("method", METHODS)
def test_the_wanted_number_of_nearest_pairs_is_found(method):
    places = random_places()
    count = len(places)
    first, second = (part.ravel() for part in np.indices((count, count)))
    apart = distances(places).ravel()
    if method == "poincare":
        apart = hyperbolic_distance(places[first], places[second])
    apart[first == second] = np.inf
    pairs, radius = latent_pairs(places, 600, method)
    assert len(pairs) == 600 and (apart < radius).sum() == 600
    expected = np.flatnonzero(apart < radius)
    assert np.array_equal(pairs, np.stack([first[expected], second[expected]], axis=1))


def test_pairs_of_one_distance_are_all_in_or_all_out():
    square = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    assert len(latent_pairs(square, 5, "isomap")[0]) == 8  # the four sides, both ways; 12 with the diagonals
    assert len(latent_pairs(square, 3, "isomap")[0]) == 0
    assert len(latent_pairs(square, 11, "isomap")[0]) == 12
    assert len(latent_pairs(square, 1000, "isomap")[0]) == 12


def test_nodes_in_the_same_place_are_no_neighbours_but_have_the_same_ones():
    places = np.array([[0.0, 0], [0, 0], [0, 0], [1, 0], [5, 0]])
    pairs, _ = latent_pairs(places, 6, "isomap")
    assert pairs.tolist() == [[0, 3], [1, 3], [2, 3], [3, 0], [3, 1], [3, 2]]


def test_nodes_without_a_place_have_no_neighbours():
    places = np.array([[0.0, 0], [np.nan, np.nan], [1, 0]])
    assert latent_pairs(places, 2, "isomap")[0].tolist() == [[0, 2], [2, 0]]
    nowhere = np.full((4, 2), np.nan)
    assert latent_pairs(nowhere, 2, "poincare")[0].shape == (0, 2)
    assert latent_pairs(nowhere[:0], 0, "isomap")[0].shape == (0, 2)


def test_quadrants_are_seen_from_the_first_node():
    places = np.array([[0.0, 0], [1, 1], [-1, 1], [1, -1], [-1, -1], [0, 0], [np.nan, np.nan]])
    pairs = np.array([[0, other] for other in range(1, 7)])
    assert quadrants(places, pairs).tolist() == [0, 1, 2, 3, 0, 0]
    assert quadrants(places, pairs[:4, ::-1]).tolist() == [3, 2, 1, 0]


def test_both_neighbourhoods_stand_one_after_the_other():
    edges, places = line(6), random_places(6, seed=3)
    found = neighbourhood(edges, places, "struc2vec")
    assert np.array_equal(found.pairs[~found.latent], edges)
    assert np.array_equal(found.pairs[found.latent], latent_pairs(places, len(edges), "struc2vec")[0])
    assert np.array_equal(found.quadrant, quadrants(places, found.pairs))


def test_the_order_of_nodes_makes_no_difference():
    places, edges = random_places(60, seed=4), both_ways(np.random.default_rng(1).integers(50, size=(80, 2)))
    new = np.random.default_rng(2).permutation(len(places))
    moved = np.empty_like(places)
    moved[new] = places
    first, second = neighbourhood(edges, places, "poincare"), neighbourhood(both_ways(new[edges]), moved, "poincare")
    rows = {
        (int(new[a]), int(new[b]), int(q), bool(s))
        for (a, b), q, s in zip(first.pairs, first.quadrant, first.latent, strict=True)
    }
    assert rows == {
        (int(a), int(b), int(q), bool(s)) for (a, b), q, s in zip(second.pairs, second.quadrant, second.latent, strict=True)
    }


def test_edges_are_taken_in_both_directions_without_self_loops():
    data = small_graph(nodes=10)
    data.edge_index = data.edge_index.new_tensor([[0, 3, 3, 0], [3, 0, 3, 2]])
    assert undirected(data).tolist() == [[0, 2], [0, 3], [2, 0], [3, 0]]
