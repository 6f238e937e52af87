"""Kernel functions of the distance, from their formulas to the calls that take them."""

import numpy as np
import pytest
import torch
from clouds import dense_exact, normal, relative

import phgcn
from phgcn.kernels import KERNELS, Exponential, Gaussian, Kernel, Matern32, Matern52
from phgcn.lattice import Ladder, Separable

OTHERS = tuple(name for name in KERNELS if name != "exponential")


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_is_its_formula(kernel):
    r = np.linspace(0, 9, 50)
    want = dense_exact(torch.zeros(1, 1).double(), torch.from_numpy(r).unsqueeze(1), kernel)[0]
    assert np.allclose(KERNELS[kernel].value(r), want, rtol=1e-12, atol=0)
    assert KERNELS[kernel].value(0.0) == 1


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_derivative_is_the_slope_of_the_value(kernel):
    function, r, step = KERNELS[kernel], np.linspace(0.01, 9, 50), 1e-6
    slope = (function.value(r + step) - function.value(r - step)) / (2 * step)
    assert np.allclose(function.derivative(r), slope, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_fall_and_their_polynomials_are_positive(kernel):
    r = np.linspace(0.001, 30, 1000)
    assert (np.diff(KERNELS[kernel].value(r)) < 0).all()
    assert (KERNELS[kernel].value(r) > 0).all()


ERRORS = {"gaussian": 0.0551, "matern32": 0.0399, "matern52": 0.0432}
"""Of output and sum by the lattice; those of the mass are a fifteenth."""


@pytest.mark.parametrize("kernel", OTHERS)
@pytest.mark.parametrize("method", ["exact", "auto", "lattice", "lattice-fine", Ladder()])
def test_every_method_sums_the_kernel(kernel, method):
    limit = 1e-12 if method == "exact" else 1.5 * ERRORS[kernel]
    points, values = normal(1500, 3, seed=1), normal(1500, 4, seed=2)
    weight = dense_exact(1.5 * points, 1.5 * points, kernel)
    sums = phgcn.permutohedral_filter(points, values, decay=1.5, kernel=kernel, method=method)
    assert relative(sums, weight @ values) < limit
    out, mass = phgcn.global_attention(
        points, values, decay=1.5, kernel=kernel, method=method, return_mass=True
    )
    total = weight.sum(dim=1, keepdim=True)
    assert relative(out, weight @ values / total) < limit
    assert relative(mass, total.squeeze(1).log()) < (limit if method == "exact" else limit / 15)


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_a_new_kernel_is_one_entry(monkeypatch, backend):
    class New(Kernel):
        name, coefficients, rate = "new", (1.0, 0.5, 0.1), 1.3

    monkeypatch.setitem(KERNELS, "new", New())
    points, values = normal(300, 2, seed=1).requires_grad_(), normal(300, 3, seed=2)
    r = 1.3 * torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    weight = (1 + 0.5 * r + 0.1 * r.square()) * torch.exp(-r)
    want = weight @ values / weight.sum(dim=1, keepdim=True)
    (slope,) = torch.autograd.grad(want.square().sum(), points)
    for kernel, method, most in (("new", "exact", 1e-10), (New(), "lattice", 0.05)):
        out = phgcn.global_attention(
            points, values, decay=1.0, kernel=kernel, method=method, backend=backend
        )
        assert relative(out, want) < most
        (of_points,) = torch.autograd.grad(out.square().sum(), points)
        assert relative(of_points, slope) < 5 * most


@pytest.mark.parametrize("kernel", [Exponential, Gaussian, Matern32, Matern52])
def test_an_object_is_taken_wherever_its_name_is(kernel):
    points, values = normal(1500, 2, seed=1), normal(1500, 2, seed=2)
    assert KERNELS[kernel.name] == kernel() and repr(kernel()) == f"{kernel.__name__}()"
    for method in ("exact", "lattice"):
        for call in (
            lambda k, m=method: phgcn.global_attention(points, values, kernel=k, method=m),
            lambda k, m=method: phgcn.permutohedral_filter(points, values, kernel=k, method=m),
            lambda k, m=method: phgcn.attention_error(points, values, kernel=k, method=m).deviation,
        ):
            assert torch.equal(call(kernel()), call(kernel.name))
    assert phgcn.explain_method(10, kernel=kernel()) == phgcn.explain_method(10, kernel=kernel.name)


def test_times_of_another_kernel_are_said_to_be_those_of_the_exponential():
    assert "measured by the kernel 'exponential', not by 'gaussian'" in str(
        phgcn.explain_method(5000, kernel=Gaussian())
    )
    assert "exponential" not in str(phgcn.explain_method(5000))


@pytest.mark.parametrize("method", ["separable", Separable()])
def test_a_method_without_the_kernel_is_refused(method):
    with pytest.raises(
        ValueError, match=r"method is .*; allowed with the kernel 'gaussian': .*Ladder"
    ):
        phgcn.global_attention(normal(5, 2), normal(5, 1), kernel="gaussian", method=method)


class Unknown(Kernel):
    name, coefficients = "gaussian", (1.0, 0.0, 0.0)


@pytest.mark.parametrize("kernel", ["cosine", Gaussian, Unknown(), 3, None])
def test_an_unknown_kernel_is_refused_and_the_known_ones_are_listed(kernel):
    allowed = "allowed: 'exponential', 'gaussian', 'matern32', 'matern52', or one of phgcn.kernels"
    points, values = normal(5, 2), normal(5, 1)
    for call in (phgcn.permutohedral_filter, phgcn.global_attention, phgcn.attention_error):
        with pytest.raises(ValueError, match=rf"kernel is .*; {allowed}"):
            call(points, values, kernel=kernel)
    with pytest.raises(ValueError, match=f"kernel is .*; {allowed}"):
        phgcn.explain_method(5, kernel=kernel)


def test_auto_is_exact_where_no_lattice_is_built():
    points, values = normal(1500, 9, seed=1), normal(1500, 1, seed=2)
    out, exact = (
        phgcn.global_attention(points, values, kernel="gaussian", method=m)
        for m in ("auto", "exact")
    )
    assert torch.equal(out, exact)
    with pytest.raises(
        ValueError, match="positions has 9 dimensions; allowed for a lattice: up to 8"
    ):
        phgcn.global_attention(points, values, kernel="gaussian", method="lattice")
    assert phgcn.explain_method(5000, 9, kernel="gaussian").method == "exact"
    assert phgcn.explain_method(5000, 3, kernel="gaussian").method == "lattice"


@pytest.mark.parametrize("kernel", OTHERS)
def test_errors_and_tolerances_are_those_of_the_kernel(kernel):
    points, values = normal(2000, 2, seed=1).float(), normal(2000, 3, seed=2).float()
    error = phgcn.attention_error(points, values, decay=1.0, kernel=kernel, method="lattice")
    assert 1e-6 < float(error.deviation) < 0.1 and float(error.gradient_cosine) > 0.9
    within = phgcn.global_attention(points, values, decay=1.0, kernel=kernel, tolerance=1e-5)
    assert torch.equal(
        within, phgcn.global_attention(points, values, decay=1.0, kernel=kernel, method="exact")
    )
