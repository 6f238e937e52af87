import numpy as np
import pytest
import torch
from clouds import normal

from phgcn.lattice.coefficients import multiscale_weights
from phgcn.lattice.numba import keys as numba_keys
from phgcn.lattice.numba.cells import find_cells
from phgcn.lattice.numba.locate import with_extent
from phgcn.lattice.numba.near import near_field as numba_near_field
from phgcn.lattice.reference.near import near_field
from phgcn.lattice.scheme import named_scheme


def near_sums(points, first_query, values, fitted):
    """The near field of level 1 of the queries from a point on, or of all points."""
    points, rows = points.numpy(), np.zeros((len(values), 8))
    rows[:, : values.size(1)] = values.numpy()
    out = np.zeros((len(points) - first_query, 8))
    found = find_cells(with_extent(points), first_query, fitted, 1)
    numba_near_field(found, found.source.take(rows), out)
    return out[:, : values.size(1)]


@pytest.mark.parametrize("key_bits", [63, 0])
@pytest.mark.parametrize("spread", [0.1, 1.0, 20.0, 1e5])
@pytest.mark.parametrize("dim", [1, 2, 4, 6])
def test_pairs_within_the_radius_are_all_found(dim, spread, key_bits, monkeypatch):
    monkeypatch.setattr(numba_keys, "KEY_BITS", key_bits)  # 0: all keys wrap around
    keys, queries, values = normal(400, dim, seed=1) * spread, normal(100, dim, seed=2) * spread, normal(400, 3, seed=3)
    keys[200:] = keys[:200] + normal(200, dim, seed=4)  # neighbours, however far the spread
    fitted = multiscale_weights(named_scheme("lattice", dim), dim)
    want = near_field(keys, keys, values, fitted, 1)
    np.testing.assert_allclose(near_sums(keys, 0, values, fitted), want.numpy(), atol=1e-11)
    want = near_field(queries, keys, values, fitted, 1)
    np.testing.assert_allclose(near_sums(torch.cat([keys, queries]), 400, values, fitted), want.numpy(), atol=1e-11)


def test_more_candidates_than_fit_at_once():
    """A crowd in one cell is taken in parts."""
    keys, values = normal(9000, 2, seed=1) * 0.01, normal(9000, 1, seed=3)
    fitted = multiscale_weights(named_scheme("lattice", 2), 2)
    some = near_field(keys[:50], keys, values, fitted, 1)
    np.testing.assert_allclose(near_sums(keys, 0, values, fitted)[:50], some.numpy(), atol=1e-9)


def test_cells_are_laid_over_the_widest_coordinates():
    """Over the first four, all points would lie in one cell, and all pairs be looked at."""
    points = normal(500, 6, seed=1).numpy() * 100
    points[:, :4] = 0
    fitted = multiscale_weights(named_scheme("lattice", 6), 6)
    for given in (points, np.ascontiguousarray(points[:, ::-1])):
        assert len(find_cells(with_extent(given), 0, fitted, 1).target.key) > 450
