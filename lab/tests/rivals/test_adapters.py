import math
from pathlib import Path

import pytest
import torch

from phgcn_lab.rivals import low_rank, packages, sliced
from phgcn_lab.rivals.adapters import RIVALS, choose, named
from phgcn_lab.rivals.clouds import HOSTILE, SPREADS, Place, make
from phgcn_lab.rivals.measure import cosine, errors, examine, pose

DIM, COUNT = 2, 600
# The setting, the root mean square error that it may have, and the least cosine of the gradient:
# about twice the error, and twice the distance from 1, of what was measured.  An output without
# attention, the plain mean, has an error of 1.
BOUNDS = {
    "separable": ({}, 0.4, 0.8),
    "lattice": ({}, 0.06, 0.96),
    "lattice-fine": ({}, 0.03, 0.99),
    "exact": ({}, 1e-4, 0.9999),
    "KD-tree": ({"rtol": 0.01}, 0.01, None),
    "ball tree": ({"rtol": 0.01}, 0.01, None),
    "NFFT, 2-D": ({"expansion": 64, "near": 0}, 0.08, None),
    "slicing": ({"slices": 256}, 0.2, 0.98),
    "LSH": ({"rounds": 8, "bucket": 512}, 0.6, 0.99),
    "random features": ({"features": 4096}, 0.2, 0.15),
    "Nyström": ({"landmarks": 300}, 0.1, 0.98),
    "pydensecrf2": ({"gaussians": 8}, 0.2, None),
}
PACKAGES = {
    "KD-tree": "sklearn",
    "ball tree": "sklearn",
    "NFFT, 2-D": "pyNFFT3",
    "pydensecrf2": "pydensecrf",
}


@pytest.fixture(scope="module")
def problem():
    return pose(Place("dense", DIM, COUNT), Path(), "cpu")


def test_every_rival_but_the_compiled_one_has_a_bound():
    assert {rival.name for rival in choose("cpu", DIM)} - set(BOUNDS) == {"pykeops"}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_rival_is_near_the_exact_sum(problem, name):
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    setting, most, least = BOUNDS[name]
    rival = named(name)
    assert set(setting) == set(rival.settings[0])
    measured = examine(rival, setting, problem, "forward")
    assert measured["errors"]["random"]["rms"] < most
    assert measured["errors"]["structured"]["rms"] < most
    assert measured["errors"]["random"]["median"] <= measured["errors"]["random"]["p99"]
    assert measured["seconds"] > 0
    assert (least is not None) == rival.gradients
    if least is not None:
        assert examine(rival, setting, problem, "step")["cosine"] > least


@pytest.mark.parametrize("name", ["slicing", "LSH", "random features", "Nyström"])
def test_a_costlier_setting_is_more_accurate(problem, name):
    cheap, costly = (
        examine(named(name), setting, problem, "forward")["errors"]["random"]["rms"]
        for setting in (named(name).settings[0], BOUNDS[name][0])
    )
    assert costly < cheap / 2


def test_settings_of_a_rival_name_the_same_parameters():
    for rival in RIVALS:
        assert len({tuple(setting) for setting in rival.settings}) == 1, rival.name


def test_the_kernel_along_a_line_in_three_dimensions_is_known():
    step, cells = sliced.grid(10.0)
    distance = step * torch.arange(cells // 2, dtype=torch.float64)
    error = sliced.slice_kernel(3, step, cells)[: cells // 2] - (1 - distance) * torch.exp(
        -distance
    )
    # the tip is cut off by the last frequency
    assert error.abs().max() < 3e-3 and error[1:].abs().max() < 1e-3


def test_points_never_leave_the_grid_of_a_line():
    for radius in (1e-3, 1.0, 30.0, 1e3, 1e5):
        step, cells = sliced.grid(radius)
        assert radius / step < cells // 4 - 1, radius


def test_directions_are_units_and_cover_all_coordinates():
    drawn = sliced.directions(3, 3000, torch.device("cpu"))
    torch.testing.assert_close(drawn.norm(dim=1), torch.ones(3000))
    assert (drawn.square().mean(dim=0) - 1 / 3).abs().max() < 1e-3
    assert drawn.mean(dim=0).abs().max() < 0.05


def test_a_part_is_computed_again_without_a_change(problem, monkeypatch):
    whole = low_rank.random_features(problem.points, problem.values, 64)
    monkeypatch.setattr(low_rank, "ENTRIES", 7 * COUNT)
    torch.testing.assert_close(
        low_rank.random_features(problem.points, problem.values, 64), whole, rtol=1e-3, atol=1e-4
    )


def test_gaussians_add_up_to_the_kernel():
    distance = torch.linspace(0, 8, 50, dtype=torch.float64)
    misses = []
    for count in (1, 2, 4, 8):
        widths, weights = packages.gaussian_mixture(count)
        total = sum(
            a * torch.exp(-(distance**2) / (2 * s**2)) for s, a in zip(widths, weights, strict=True)
        )
        misses.append(float((total - torch.exp(-distance)).abs().max()))
    assert misses == sorted(misses, reverse=True) and misses[-1] < 0.05


@pytest.mark.parametrize("cloud", [*SPREADS, *HOSTILE])
def test_clouds_are_the_same_in_every_process(cloud):
    first, again = (make(Place(cloud, 3, 200), Path()) for _ in range(2))
    assert first[0].shape == (200, 3) and first[1].shape == (200, 8)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_an_unknown_cloud_is_refused():
    with pytest.raises(ValueError, match="cloud is 'fog'; allowed: dense"):
        make(Place("fog", 3, 10), Path())


def test_errors_are_relative_to_the_deviation():
    exact = torch.zeros(200, 8, dtype=torch.float64)
    exact[::2] = 3.0
    off = exact.clone()
    off[:4] += 0.3
    measured = errors(off, exact)["random"]
    assert measured["median"] == 0
    assert math.isclose(measured["p99"], 0.2)
    assert math.isclose(measured["rms"], 0.2 * math.sqrt(0.02))


def test_the_cosine_is_that_of_all_entries():
    assert math.isclose(
        cosine(torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 0.0]], dtype=torch.float64)),
        math.sqrt(0.5),
    )
