from dataclasses import replace

import numpy as np
import pytest
import torch
from clouds import normal

from phgcn import global_attention
from phgcn.lattice import MultiScale, levels
from phgcn.lattice.coefficients import multiscale_weights
from phgcn.lattice.levels import mean_pairs_cell
from phgcn.lattice.numba import levels as numba_levels
from phgcn.lattice.numba.locate import with_extent
from phgcn.lattice.reference.levels import choose_finest, mean_pairs
from phgcn.lattice.scheme import named_scheme


@pytest.mark.parametrize("spread", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("dim", [1, 2, 4])
def test_backends_choose_the_same_near_field(dim, spread):
    """The level that a graph's points decide on must not depend on who counts them."""
    points, values = normal(300, dim, seed=1) * spread, normal(300, 2, seed=2)
    base = named_scheme("lattice", dim)
    counted = [mean_pairs(points, None, r) for r in multiscale_weights(base, dim).radius[1:]]
    # An allowance between two counts, so that the choice is not the trivial one.
    pairs = max(1, int(np.sqrt(max(counted[0], 1) * max(counted[1], 1))))
    want_level = next((k for k, c in enumerate(counted) if c > pairs), len(counted))
    free = MultiScale(base.spacing, base.hops, pairs=pairs)
    fixed = MultiScale(base.spacing, base.hops, near_field=want_level)
    got, want = (global_attention(points, values, decay=1.0, method=scheme, backend="numba") for scheme in (free, fixed))
    assert torch.equal(got, want)


def test_backends_look_at_the_same_candidates(monkeypatch):
    """In more dimensions than cells have, a crowd over the widest coordinates keeps the lattice."""
    points, values = normal(300, 5, seed=1) * 4, normal(300, 2, seed=2)
    points[:, 0] = 0.0
    base = named_scheme("lattice", 5)
    before = choose_finest(points, None, base)
    for room in (levels, numba_levels):
        monkeypatch.setattr(room, "CANDIDATES", 5)
    level = choose_finest(points, None, base)
    assert 0 < level < before
    free, fixed = (global_attention(points, values, decay=1.0, method=m) for m in (base, replace(base, near_field=level)))
    assert torch.equal(free, fixed)


@pytest.mark.parametrize("dim", [1, 2, 3, 5])
def test_a_cell_has_the_volume_of_the_ball(dim):
    volume = {1: 2.0, 2: np.pi, 3: 4 / 3 * np.pi, 5: 8 / 15 * np.pi**2}[dim] * 1.5**dim
    assert mean_pairs_cell(dim, 1.5) ** dim == pytest.approx(volume)


def test_pairs_are_counted_among_neighbours():
    assert mean_pairs(torch.zeros(10, 2), None, 1.0) == 9
    assert mean_pairs(torch.arange(10.0).unsqueeze(1) * 100, None, 1.0) == 0
    assert mean_pairs(torch.zeros(10, 2), torch.zeros(3, 2), 1.0) == 10


@pytest.mark.parametrize("dim", [2, 6])
def test_a_small_dense_cloud_is_not_cut_by_cells(dim):
    """All pairs of these points are near: summing them one by one would take quadratic time."""
    points = normal(500, dim, seed=3) * 0.1
    assert mean_pairs(points, None, 2.0) == 499
    assert numba_levels.mean_pairs(with_extent(points.numpy()), 0, 2.0) == 499


@pytest.mark.parametrize("count", [1, 63, 64, 200])
def test_the_mean_of_positions(count):
    w = normal(count, 3, seed=1).numpy()
    np.testing.assert_allclose(numba_levels.mean_position(w), w.mean(axis=0), atol=1e-15)
