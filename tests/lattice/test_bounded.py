"""An upper bound for every pair: nothing far is invented."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from clouds import normal

from phgcn import global_attention, permutohedral_filter
from phgcn.lattice import bounded as bounded_room
from phgcn.lattice.bounded import FITTED_BOUND, bounded_least_squares, largest_ratio
from phgcn.lattice.coefficients import multiscale_weights
from phgcn.lattice.fit import fit_multiscale, wide_search
from phgcn.lattice.narrow import STEPS, narrow_scheme, widest_narrow
from phgcn.lattice.pairs import Levels
from phgcn.lattice.scheme import BOUNDED_DIMENSIONS, named_scheme

BOUNDED = [(method, dim) for method, most in BOUNDED_DIMENSIONS.items() for dim in range(1, most + 1)]


def pairs_at(distance, dim, seed):
    """Pairs of points at these distances, anywhere in their simplices: (P, D) each."""
    rng = np.random.default_rng(seed)
    step = rng.standard_normal((len(distance), dim))
    first = rng.uniform(-20, 20, (len(distance), dim))
    return first, first + step / np.linalg.norm(step, axis=1, keepdims=True) * distance[:, None]


def pair_weights(first, second, scheme):
    """What the filter gives the first point of each pair of the second: every pair is a graph of its own."""
    points = torch.as_tensor(np.stack([first, second], axis=1)).flatten(0, 1)
    values = torch.tensor([0.0, 1.0], dtype=torch.float64).repeat(len(first)).unsqueeze(1)
    graphs = torch.arange(len(first)).repeat_interleave(2)
    return permutohedral_filter(points, values, batch=graphs, method=scheme)[::2, 0].numpy()


@pytest.mark.parametrize(("method", "dim"), BOUNDED)
def test_no_pair_gets_more_than_twice_its_weight(method, dim):
    scheme = named_scheme(method, dim)
    reach = Levels(scheme.spacing, scheme.hops).reach(dim)
    distance = np.linspace(0.01, reach, 500)
    first, second = pairs_at(distance, dim, seed=1)
    for finest in (0, len(scheme.hops) // 2):
        weight = pair_weights(first, second, replace(scheme, near_field=finest))
        ratio = weight * np.exp(distance)
        assert ratio.max() <= 2
        assert 0.9 < ratio[distance < 5].mean() < 1.1  # near pairs are right on average


@pytest.mark.parametrize("method", ["lattice", "lattice-fine"])
@pytest.mark.parametrize("step", [1, STEPS // 2, STEPS, 2 * STEPS])
def test_no_pair_of_a_narrow_cloud_gets_more_than_twice_its_weight(step, method):
    dim = BOUNDED_DIMENSIONS[method]
    distance = np.linspace(0.01, widest_narrow(dim) * 0.5 ** ((step - 1) / STEPS), 400)
    first, second = pairs_at(distance, dim, seed=2)
    scheme = narrow_scheme(named_scheme(method, dim), dim, step)
    weights = np.concatenate(scheme.weights)
    levels = Levels(scheme.spacing, scheme.hops, scheme.lattices)
    assert ((levels.products(first, second) @ weights + scheme.constant) * np.exp(distance)).max() <= 2


@pytest.mark.parametrize("method", ["lattice", "lattice-fine"])
def test_a_search_uphill_finds_no_such_pair(method):
    scheme = named_scheme(method, 2)
    search = wide_search(2, Levels(scheme.spacing, scheme.hops, scheme.lattices), 2.0)
    weights = np.concatenate(multiscale_weights(scheme, 2).weights)
    worst = largest_ratio(search, weights, 1000, seed=3)
    assert 0.5 < worst <= 1
    # What is looked for is found: with a heavier tail there are such pairs.
    assert largest_ratio(search, weights * np.where(np.arange(len(weights)) > len(weights) - 20, 3, 1), 1000, seed=3) > 1


def test_a_fit_under_a_bound(monkeypatch):
    levels = Levels(1.0, (3, 3, 3))
    monkeypatch.setattr(bounded_room, "CANDIDATES", 1000)
    free, bounded = (np.concatenate(fit_multiscale(1, levels, bound, count=300)["weights"]) for bound in (None, FITTED_BOUND))
    search = wide_search(1, levels, 2.0)
    assert largest_ratio(search, free, 1000, seed=4) > 1 > largest_ratio(search, bounded, 1000, seed=4)
    assert bounded.min() >= 0
    assert bounded[0] == pytest.approx(free[0], rel=0.2)


def test_least_squares_under_bounds():
    a, b = normal(30, 3, seed=5).numpy(), normal(30, seed=6).numpy()
    bounds = np.array([[1.0, 2.0, 0.5], [3.0, 0.0, 4.0]]) * 20
    x = bounded_least_squares(a, b, bounds)
    assert (x >= 0).all()
    assert (bounds @ x <= 1 + 1e-9).all()
    rng = np.random.default_rng(7)
    others = np.abs(x + rng.standard_normal((5000, 3)) * 0.01)
    others = others[(others @ bounds.T <= 1).all(axis=1)]
    assert len(others) > 50
    assert np.linalg.norm(a @ x - b) <= np.linalg.norm(others @ a.T - b, axis=1).min() + 1e-9


@pytest.mark.parametrize(
    ("dim", "distance", "method"), [(3, 20.0, "lattice"), (3, 20.0, "lattice-fine"), (4, 12.0, "lattice-fine")]
)
def test_the_share_of_a_far_heavy_cluster_is_not_invented(dim, distance, method):
    count, lone = 20_000, 60
    direction = normal(lone, dim, seed=8)
    points = torch.cat([normal(count, dim, seed=9) * 0.2, direction / direction.norm(dim=1, keepdim=True) * distance])
    in_cluster = (torch.arange(len(points)) < count).double().unsqueeze(1)
    exact = global_attention(points, in_cluster, decay=1.0, queries=points[count:], method="exact")
    share = global_attention(points, in_cluster, decay=1.0, method=method)[count:]
    assert float((share - exact).mean()) <= 0.02
