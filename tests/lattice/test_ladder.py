"""The ladder filter: its numbers, its accuracy, its backends, and what makes it a positive
operator.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import phgcn
from phgcn.kernels import KERNELS
from phgcn.lattice import Ladder
from phgcn.lattice.ladder import (
    bump,
    bump_at,
    ladder_numbers,
    nonnegative_least_squares,
    own_table,
)
from phgcn.lattice.reference import ladder as reference

WITHOUT_PAIRS = Ladder(pairs=0)
BACKENDS = ("reference", "numba")


def gaussian(count: int, dim: int, spread: float = 1.0, seed: int = 0) -> Tensor:
    return spread * torch.randn(
        count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def with_core(count: int, dim: int) -> Tensor:
    """A small core and a twentieth of the points far from it."""
    points = gaussian(count, dim, 0.01)
    points[: count // 20] *= 500
    return points


def kernel_matrix(points: Tensor, queries: Tensor, kernel: str = "exponential") -> Tensor:
    return torch.from_numpy(KERNELS[kernel].value(torch.cdist(queries, points).numpy()))


def deviation(out: Tensor, exact: Tensor) -> float:
    return float((out - exact).norm() / (exact - exact.mean(dim=0)).norm())


CLOUDS = {
    "dense": lambda dim: gaussian(1500, dim),
    "sparse": lambda dim: gaussian(1500, dim, 4.0),
    "narrow": lambda dim: gaussian(1500, dim, 1e-3),
    "core": lambda dim: with_core(1500, dim),
}

# Accuracy

MEASURED = {
    "dense": (0.0037, 0.0104, 0.0280, 0.0474),
    "sparse": (0.0120, 0.0228, 0.0251, 0.0178),
    "narrow": (0.0413, 0.0069, 0.0197, 0.0181),
    "core": (0.0293, 0.0350, 0.0235, 0.0159),
}
"""Deviations from exact attention in 1 to 4 dimensions; limits are half as much again."""


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_attention_is_close_to_the_exact_one(dim: int, cloud: str) -> None:
    points, values = CLOUDS[cloud](dim), gaussian(1500, 4, seed=1)
    out = phgcn.global_attention(points, values, decay=1.0, method=Ladder())
    exact = phgcn.global_attention(points, values, decay=1.0, method="exact")
    assert deviation(out, exact) < 1.5 * MEASURED[cloud][dim - 1]


OF_KERNELS = {
    "exponential": (0.0091, 0.0056, 0.0138, 0.0032, 0.0191, 0.0331),
    "gaussian": (0.1196, 0.0255, 0.0176, 0.0802, 0.0127, 0.0787),
    "matern32": (0.0468, 0.0140, 0.0106, 0.0175, 0.0115, 0.0321),
    "matern52": (0.0903, 0.0212, 0.0104, 0.0205, 0.0121, 0.0314),
}
"""Deviations measured with spread 0.1, then 1, in 1, 2 and 4 dimensions."""


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("spread", [0.1, 1.0])
@pytest.mark.parametrize("dim", [1, 2, 4])
def test_attention_by_every_kernel_is_close_to_the_exact_one(
    dim: int, spread: float, kernel: str
) -> None:
    points, values = gaussian(5000, dim, spread), gaussian(5000, 4, seed=1)
    error = phgcn.attention_error(points, values, decay=1.0, kernel=kernel, method="lattice")
    assert float(error.deviation) < 1.5 * OF_KERNELS[kernel][dim // 2 + 3 * (spread == 1.0)]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("scale", [1e-3, 1.0])
@pytest.mark.parametrize("dim", [1, 2, 3, 4, 6, 8])
def test_without_near_pairs_no_point_gets_more_than_one_of_itself(
    dim: int, scale: float, kernel: str
) -> None:
    """At a vertex of level 0, in the corner of a cloud."""
    spacing = round(4 * np.log2(scale))
    for extent in (spacing // 4 + 2, spacing // 4 + 4, 6):
        numbers = ladder_numbers(KERNELS[kernel], dim, reference.Rung(spacing, extent, 0.0))
        a, _, q = numbers.far
        most = numbers.weight[1] * own_table(dim)[0] + numbers.own + a + q * 2.0 ** (4 * extent - 4)
        assert most <= 1 + 1e-12


SUMS = {
    "exponential": (0.0153, 0.0555),
    "gaussian": (0.0257, 0.0901),
    "matern32": (0.0184, 0.0655),
    "matern52": (0.0191, 0.0657),
}
"""Errors of plain sums measured in 2 and 4 dimensions."""


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dim", [2, 4])
def test_sums_of_every_kernel_are_close_to_the_exact_ones(dim: int, kernel: str) -> None:
    points, values = gaussian(1500, dim, 2.0), gaussian(1500, 4, seed=1)
    out = phgcn.permutohedral_filter(points, values, method=Ladder(), kernel=kernel)
    exact = kernel_matrix(points, points, kernel) @ values
    assert float((out - exact).norm() / exact.norm()) < 1.5 * SUMS[kernel][dim // 4]


# The numbers


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_a_bump_is_the_mean_of_a_step_over_shifts(dim: int, step: int) -> None:
    """The autocorrelation by Fourier integrals against the ladder's own maps at random places."""
    random = np.random.default_rng(step)
    spacing, distance, found = 2.0 ** (step // 2), 0.8, []
    for _ in range(60):
        direction = random.standard_normal(dim)
        pair = np.stack([np.zeros(dim), distance * spacing * direction / np.linalg.norm(direction)])
        points = torch.from_numpy(pair + 50 * random.random(dim))
        rung = reference.Rung(0, 3, 0.0)
        ladder = reference.build(points, rung, step + 1)
        rows = torch.eye(2, dtype=torch.float64)
        table = reference.reduce(reference.splat(rows, ladder), ladder.steps)[-1]
        found.append(float(table[:, 0] @ table[:, 1]))
    expected = float(bump_at(dim, step, np.array([distance]))[0])
    assert np.mean(found) == pytest.approx(
        expected, abs=4 * np.std(found) / 60**0.5 + 1e-3 * expected
    )


def test_bumps_fall_from_their_height_to_zero() -> None:
    for step in range(12):
        value = bump(4, step)[1]
        assert value[0] == value.max()
        assert abs(value[-1]) < 1e-4 * value[0]


@pytest.mark.parametrize("kernel", KERNELS)
def test_weights_are_not_negative_and_add_up_to_the_kernel(kernel: str) -> None:
    numbers = ladder_numbers(KERNELS[kernel], 3, reference.Rung(-8, 3, 0.0))
    assert numbers.weight[0] == 0
    assert numbers.weight.min() >= 0
    at_zero = sum(w * bump(3, s)[1][0] for s, w in enumerate(numbers.weight)) + numbers.far[0]
    assert 0.5 < at_zero < 1.03


def test_least_squares_are_those_of_a_bounded_search() -> None:
    matrix, target = np.array([[1.0, 1.0], [1.0, -1.0], [0.0, 1.0]]), np.array([1.0, 3.0, -1.0])
    assert nonnegative_least_squares(matrix, target) == pytest.approx([2.0, 0.0])


# The operator


def operator(points: Tensor, kernel: str, scheme: Ladder) -> tuple[Tensor, Tensor]:
    """The matrix of a filter, and its eigenvalues, ascending."""
    unit = torch.eye(len(points), dtype=torch.float64)
    matrix = phgcn.permutohedral_filter(points, unit, method=scheme, kernel=kernel)
    assert (matrix - matrix.T).abs().max() < 1e-10
    return matrix, torch.linalg.eigvalsh((matrix + matrix.T) / 2)


def solve(system: Tensor, right: Tensor) -> Tensor:
    """Plain conjugate gradients."""
    solution, residual = torch.zeros_like(right), right.clone()
    direction, square = residual.clone(), residual.square().sum()
    for _ in range(len(right)):
        product = system @ direction
        size = square / (direction * product).sum()
        solution, residual = solution + size * direction, residual - size * product
        following = residual.square().sum()
        direction, square = residual + following / square * direction, following
        if square < 1e-16:
            break
    return solution


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("seed", range(20))
def test_without_near_pairs_the_operator_is_positive(seed: int, kernel: str) -> None:
    spread = (0.001, 0.1, 1.0, 3.0, 10.0)[seed % 5]
    points = gaussian(200, 1 + seed % 4, spread, seed)
    eigenvalues = operator(points, kernel, WITHOUT_PAIRS)[1]
    assert eigenvalues[0] > -1e-6 * eigenvalues[-1]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dim", [2, 4])
def test_conjugate_gradients_converge_without_near_pairs(dim: int, kernel: str) -> None:
    points, right = gaussian(400, dim, 2.0), gaussian(400, 1, seed=1)
    matrix = operator(points, kernel, WITHOUT_PAIRS)[0]
    system = matrix + 1e-2 * torch.eye(400, dtype=torch.float64)
    assert (system @ solve(system, right) - right).norm() < 1e-6 * right.norm()


@pytest.mark.parametrize("dim", [2, 4])
def test_conjugate_gradients_converge_with_near_pairs(dim: int) -> None:
    points, right = gaussian(600, dim, 2.0), gaussian(600, 1, seed=1)
    matrix, eigenvalues = operator(points, "exponential", Ladder())
    assert eigenvalues[0] > -1e-3 * eigenvalues[-1]
    system = matrix + 1e-2 * torch.eye(600, dtype=torch.float64)
    assert (system @ solve(system, right) - right).norm() < 1e-6 * right.norm()


LEAST = {"exponential": -1e-3, "matern32": -3e-3, "matern52": -4e-3, "gaussian": -1e-2}
"""How negative eigenvalues with near pairs may be, over the largest: what docs/lattice.md says."""


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_with_near_pairs_no_eigenvalue_is_very_negative(
    dim: int, spread: float, kernel: str
) -> None:
    once, pairs = gaussian(300, dim, spread, dim), gaussian(75, dim, spread, dim).repeat(4, 1)
    for points, factor in ((once, 1), (pairs, 2)):
        eigenvalues = operator(points, kernel, Ladder())[1]
        assert eigenvalues[0] > factor * LEAST[kernel] * eigenvalues[-1]


# Backends; on ordinary clouds they are compared in backend_case


@pytest.mark.parametrize("kernel", ["exponential", "gaussian"])
@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize(("dim", "count"), [(1, 600), (2, 600), (4, 40)])
def test_backends_agree(dim: int, count: int, cloud: str, kernel: str) -> None:
    # with few of the points that are far from a core
    points = CLOUDS[cloud](dim)[75 - count // 10 : 75 + count - count // 10]
    values, grad = gaussian(count, 3, seed=1), gaussian(count, 3, seed=2)
    options = {"decay": 1.0, "kernel": kernel, "method": Ladder(pairs=20), "return_mass": True}
    found = []
    for backend in BACKENDS:
        leaves = points.clone().requires_grad_(), values.clone().requires_grad_()
        out, mass = phgcn.global_attention(*leaves, **options, backend=backend)
        (out * grad).sum().add(mass.sum()).backward()
        found.append([out.detach(), mass.detach(), *(leaf.grad for leaf in leaves)])
    for one, other in zip(*found, strict=True):
        # Gradients of a Gaussian in a narrow cloud are what is left of numbers 1e7 times as large.
        assert (one - other).norm() <= 3e-8 * other.norm()


@pytest.mark.parametrize("backend", BACKENDS)
def test_queries_in_the_place_of_all_keys_get_the_mean(backend: str) -> None:
    values, ones = gaussian(5, 2), torch.ones(5, 2).double()
    options = {"queries": ones[:3], "method": Ladder(), "backend": backend}
    out = phgcn.global_attention(ones, values, **options)
    assert (out - values.mean(dim=0)).abs().max() < 1e-6
