import numpy as np
import pytest
import torch
from clouds import normal

from phgcn.lattice import MultiScale, Separable
from phgcn.lattice.coefficients import multiscale_weights, separable_weights
from phgcn.lattice.fit import fit_multiscale, near_radius
from phgcn.lattice.geometry import kuhn_matrix
from phgcn.lattice.pairs import Levels, orbit_products, sample_pairs


@pytest.fixture(scope="module")
def fit():
    return fit_multiscale(2, Levels(0.5, (4, 4, 4, 4)), count=400, seed=1)


def test_weights_are_not_negative(fit):
    assert min(min(level) for level in fit["weights"]) >= 0
    assert max(fit["weights"][0]) > 0.1


def test_fitted_weights_give_the_kernel(fit):
    # on pairs that the fit has not seen
    first = normal(2000, 2, seed=5) * 3
    second = first + normal(2000, 2, seed=6)
    w1, w2 = (p @ kuhn_matrix(2).T / 0.5 for p in (first, second))
    given = sum(orbit_products(w1 / 2**k, w2 / 2**k, 4) @ np.array(fit["weights"][k]) for k in range(4))
    want = torch.exp(-(first - second).norm(dim=1)).numpy()
    assert np.linalg.norm(given - want) / np.linalg.norm(want) < 0.12


def test_a_fit_repeats_itself(fit):
    assert fit_multiscale(2, Levels(0.5, (4, 4, 4, 4)), count=400, seed=1) == fit


def test_the_near_field_reaches_as_far_as_the_level_it_replaces():
    assert [near_radius(0.5, (2, 2, 2), level) for level in range(3)] == [0.0, 1.75, 3.5]


def test_pairs_are_drawn_anew_by_seed():
    first, again, other = (sample_pairs(3, 10, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first[0][0], again[0][0])
    assert (first[0][0] != other[0][0]).any()


def test_a_scheme_without_weights_on_file_is_fitted():
    scheme = MultiScale(0.7, (1, 1), near_field=0)
    fitted = multiscale_weights(scheme, 1)
    assert [len(w) for w in fitted.weights] == [2, 2]
    assert fitted.weights[0][0] > fitted.weights[0][1] > 0
    assert multiscale_weights(scheme, 1) is fitted


def test_the_papers_filter_is_fitted_for_other_widths():
    spacing, weights, scale = separable_weights(Separable(width=3, spacing=1.0), 1)
    assert spacing == 1.0
    assert weights[0] == 1.0 > weights[1] > 0
    assert scale > 0
