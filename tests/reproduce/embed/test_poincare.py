import os
import subprocess
import sys

import numpy as np
import pytest
from planes import both_ways, line

from phgcn.reproduce.embed import poincare as room
from phgcn.reproduce.embed.poincare import hyperbolic_distance, poincare

pytest.importorskip("gensim")


def test_linked_nodes_are_nearer_than_others():
    parent = np.stack([np.arange(1, 31), np.arange(30) // 2], axis=1)  # a binary tree
    edges = both_ways(parent)
    found = poincare(edges, 31, 0)
    assert np.isfinite(found).all() and (np.hypot(*found.T) < 1).all()
    first, second = np.triu_indices(31, 1)
    apart = hyperbolic_distance(found[first], found[second])
    linked = {tuple(edge) for edge in edges.tolist()}
    near = np.array([(a, b) in linked for a, b in zip(first.tolist(), second.tolist(), strict=True)])
    assert apart[near].mean() < 0.7 * apart[~near].mean()


def test_the_distance_is_that_of_the_disc():
    radius = np.array([0.0, 0.3, 0.9])
    points = np.stack([radius, np.zeros(3)], axis=1)
    assert np.allclose(hyperbolic_distance(points, np.zeros((3, 2))), 2 * np.arctanh(radius))


def test_nodes_without_edges_have_no_place():
    found = poincare(line(5), 7, 0)
    assert np.isnan(found[5:]).all() and np.isfinite(found[:5]).all()
    assert np.isnan(poincare(np.empty((0, 2), np.int64), 3, 0)).all()


def test_a_node_may_be_linked_to_all_others(monkeypatch):
    monkeypatch.setattr(room, "EPOCHS", 3)
    assert np.isfinite(poincare(both_ways([(0, leaf) for leaf in range(1, 6)]), 6, 0)).all()
    assert np.isfinite(poincare(both_ways([(0, 1)]), 2, 0)).all()


def test_the_same_seed_gives_the_same_bits_in_any_process(monkeypatch):
    code = (
        "from planes import line; from phgcn.reproduce.embed import poincare as room; room.EPOCHS = 3; "
        "print(room.poincare(line(12), 12, 5).tolist())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.path.dirname(__file__)}  # here it is another one
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
    monkeypatch.setattr(room, "EPOCHS", 3)
    assert found.strip() == str(poincare(line(12), 12, 5).tolist())
    assert not np.array_equal(poincare(line(12), 12, 5), poincare(line(12), 12, 6))
