"""Errors of sums that are not divided by those of the weights."""

import pytest
import torch
from clouds import dense_exact, normal

import phgcn


@pytest.mark.parametrize("kernel", ["exponential", "gaussian"])
def test_the_error_of_a_sum_is_relative_to_the_sums(kernel):
    points = normal(400, 2, seed=1)
    values = normal(400, 3, seed=2) + 5
    weights = normal(400, seed=3).abs()
    asked = {"decay": 1.0, "weights": weights, "kernel": kernel}
    error = phgcn.attention_error(points, values, method="lattice", normalise=False, **asked)
    exact = dense_exact(points, points, kernel) @ (weights.unsqueeze(1) * values)
    out = phgcn.permutohedral_filter(points, values, method="lattice", **asked)
    torch.testing.assert_close(
        error.deviation, (out - exact).norm() / exact.norm(), rtol=1e-6, atol=0
    )
    assert 0 < float(error.deviation) < 0.1
    assert float(error.gradient_cosine) > 0.9


def test_the_exact_sum_has_no_error():
    error = phgcn.attention_error(
        normal(300, 2, seed=1), normal(300, 3, seed=2), method="exact", normalise=False, samples=50
    )
    assert float(error.deviation) < 1e-12 and float(error.gradient_cosine) > 1 - 1e-12


def test_a_tolerance_of_the_filter_is_of_its_sums():
    points, values = normal(1500, 2, seed=1).float(), normal(1500, 3, seed=2).float()
    exact = phgcn.permutohedral_filter(points, values, method="exact")
    tight = phgcn.permutohedral_filter(points, values, method="auto", tolerance=1e-6)
    assert torch.equal(tight, exact)
    loose = phgcn.permutohedral_filter(points, values, method="auto", tolerance=0.2)
    assert 0 < float((loose - exact).norm() / exact.norm()) < 0.2
    with pytest.raises(ValueError, match="tolerance is given with method 'lattice'"):
        phgcn.permutohedral_filter(points, values, tolerance=0.2)
