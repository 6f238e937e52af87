import os
import subprocess
import sys

import numpy as np
import pytest
from planes import both_ways, line

from phgcn.reproduce.embed import struc2vec as room
from phgcn.reproduce.embed.struc2vec import candidates, struc2vec
from phgcn.reproduce.embed.walks import MAX_HOPS, compare, rings, running_weights, walks

pytest.importorskip("gensim")


def links(edges, count):
    """Where each node's neighbours begin, the neighbours, and degrees."""
    degree = np.bincount(edges[:, 0], minlength=count)
    return np.append(0, np.cumsum(degree)), edges[:, 1].copy(), degree


def random_edges(count=30, edges=60, seed=0):
    return both_ways(np.random.default_rng(seed).integers(count, size=(edges, 2)))


def hops_from(edges, count, source):
    hops = np.full(count, -1)
    hops[source], ring = 0, [source]
    while ring:
        new = {int(b) for a, b in edges if a in ring and hops[b] < 0}
        hops[list(new)] = hops[ring[0]] + 1
        ring = list(new)
    return hops


def test_rings_hold_the_degrees_at_each_distance():
    edges, count = random_edges(), 31  # the last node has no edges
    begin, degrees, often = rings(*links(edges, count))
    degree = links(edges, count)[2]
    for node in range(count):
        hops = hops_from(edges, count, node)
        for hop in range(MAX_HOPS + 1):
            place = slice(begin[node * (MAX_HOPS + 1) + hop], begin[node * (MAX_HOPS + 1) + hop + 1])
            expected = np.unique(degree[hops == hop], return_counts=True)
            assert np.array_equal(degrees[place], expected[0]) and np.array_equal(often[place], expected[1])


def warped(first, second):
    """Dynamic time warping by its definition, over (degree, how often)."""
    from functools import cache

    @cache
    def least(i, j):
        if i < 0 or j < 0:
            return 0.0 if i == j == -1 else np.inf
        (a, m), (b, n) = first[i], second[j]
        own = ((max(a, b) + 0.5) / (min(a, b) + 0.5) - 1) * max(m, n)
        return own + min(least(i - 1, j), least(i, j - 1), least(i - 1, j - 1))

    return least(len(first) - 1, len(second) - 1)


def test_pairs_differ_as_warped_rings_do_until_a_ring_is_empty():
    edges, count = random_edges(25, 22, seed=2), 25
    begin, degrees, often = rings(*links(edges, count))
    pairs = np.array([(a, b) for a in range(count) for b in range(a)])
    cost = compare(begin, degrees, often, pairs)
    for (a, b), row in zip(pairs.tolist(), cost, strict=True):
        total = 0.0
        for hop in range(MAX_HOPS + 1):
            spans = [slice(begin[v * (MAX_HOPS + 1) + hop], begin[v * (MAX_HOPS + 1) + hop + 1]) for v in (a, b)]
            first, second = (tuple(zip(degrees[s].tolist(), often[s].tolist(), strict=True)) for s in spans)
            total = total + warped(first, second) if first and second else np.inf
            assert np.isclose(row[hop], total) if np.isfinite(total) else row[hop] == np.inf


def test_nodes_are_compared_with_those_of_the_nearest_degree():
    degree = np.arange(100)[::-1]
    pairs = candidates(degree)
    assert {b - a for a, b in pairs.tolist()} == set(range(1, 8))  # 7 below and above: 2 log2(100)
    assert len(candidates(np.array([3]))) == 0 and len(candidates(np.array([], np.int64))) == 0
    assert candidates(np.array([1, 1])).tolist() == [[0, 1]]


def test_weights_are_running_sums_however_small():
    sums = running_weights(np.array([0, 3, 3, 5]), np.array([1.0, 2.0, 1.0, 5000.0, 5001.0]))
    assert np.allclose(sums, [1, 1 + np.exp(-1), 2 + np.exp(-1), 1, 1 + np.exp(-1)])


def test_walks_go_along_links_in_proportion_to_their_weights():
    starts = np.array([[0, 2, 3, 4]])
    others, sums = np.array([1, 2, 0, 0]), np.array([3.0, 4.0, 1.0, 1.0])
    found = walks(starts, others, sums, np.full((1, 3), 0.5), 200, 50, 7)
    assert found.shape == (600, 50) and np.array_equal(found[:, 0], np.tile(np.arange(3), 200))
    steps = found[:, :-1][found[:, 1:] != 0], found[:, 1:][found[:, 1:] != 0]
    assert (steps[0] == 0).all()
    assert abs((steps[1] == 1).mean() - 0.75) < 0.02
    assert not np.array_equal(found, walks(starts, others, sums, np.full((1, 3), 0.5), 200, 50, 8))


def test_nodes_with_the_same_surroundings_are_near_wherever_they_are():
    stars = [both_ways([(0, leaf) for leaf in range(1, 6)]) + 6 * star for star in range(6)]
    rings_of_six = [both_ways([(i, (i + 1) % 6) for i in range(6)]) + 36 + 6 * ring for ring in range(6)]
    found = struc2vec(np.concatenate(stars + rings_of_six), 72, 0)
    kind = np.array([0, 1, 1, 1, 1, 1] * 6 + [2] * 36)
    centres = np.stack([found[kind == one].mean(axis=0) for one in range(3)])
    own = np.linalg.norm(found - centres[kind], axis=1).mean()
    other = np.mean([np.linalg.norm(centres[a] - centres[b]) for a, b in ((0, 1), (0, 2), (1, 2))])
    assert own < 0.5 * other


def test_every_node_has_a_place_also_one_without_edges():
    assert np.isfinite(struc2vec(line(5), 7, 0)).all()
    assert np.isfinite(struc2vec(np.empty((0, 2), np.int64), 3, 0)).all()
    assert np.isfinite(struc2vec(np.empty((0, 2), np.int64), 1, 0)).all()


def test_the_same_seed_gives_the_same_bits_in_any_process_and_with_any_number_of_threads(threads):
    code = (
        "import torch; torch.set_num_threads(1); from planes import line; "
        "from phgcn.reproduce.embed.struc2vec import struc2vec; "
        "print(struc2vec(line(12), 12, 5).tolist())"
    )
    threads(2)
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.path.dirname(__file__)}  # here it is another one
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
    assert found == f"{room.struc2vec(line(12), 12, 5).tolist()}\n"
