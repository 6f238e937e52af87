"""Points in the very same place weigh 1 on each other, as a point does on itself."""

import pytest
import torch
from clouds import BACKENDS, forced, normal

from phgcn import global_attention, permutohedral_filter

APART = 60.0
"""Distance between places: too far for any stencil."""


def places(dim, copies):
    """Each of four places that often, in no order."""
    where = normal(4, dim, seed=1)
    where[:, 0] += APART * torch.arange(4)
    return where[torch.arange(4 * copies) * 7 % 4]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "method, dim, level", [("lattice", 4, 0), ("lattice", 4, 1), ("lattice-fine", 2, 0), ("lattice", 6, 1)]
)
def test_copies_count_as_often_as_they_are_there(method, dim, level, backend):
    points = places(dim, 5).requires_grad_()
    scheme = forced(method, dim, level)
    out = permutohedral_filter(points, torch.ones(20, 1, dtype=torch.float64), decay=1.0, method=scheme, backend=backend)
    torch.testing.assert_close(out, torch.full_like(out, 5.0), rtol=1e-12, atol=0)
    # The derivative of e^-r at 0 is taken as 0: copies do not pull at each other, whatever they hold.
    out = global_attention(points, normal(20, 2, seed=2), decay=1.0, method=scheme, backend=backend)
    (grad,) = torch.autograd.grad(out, points, normal(20, 2, seed=3))
    assert grad.abs().max() < 1e-12


@pytest.mark.parametrize("level", [0, 2])
def test_backends_agree_on_copies_beside_others(level):
    points = normal(30, 3, seed=4)[torch.arange(70) % 30 * 3 % 30]
    points[3], points[4] = 0.0, -0.0  # one place
    results = []
    for backend in BACKENDS:
        leaves = points.clone().requires_grad_(), normal(70, 2, seed=5).requires_grad_()
        out = global_attention(*leaves, decay=1.0, method=forced("lattice", 3, level), backend=backend)
        results.append([out, *torch.autograd.grad(out, leaves, normal(70, 2, seed=6))])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-12)


def test_copies_in_another_graph_do_not_count():
    points, values = places(2, 3), torch.ones(12, 1, dtype=torch.float64)
    batch = torch.arange(12) // 4 % 2
    out = permutohedral_filter(points, values, decay=1.0, batch=batch, method="lattice")
    assert sorted(out.round(decimals=9).flatten().tolist()) == [1.0] * 4 + [2.0] * 8


def test_a_million_copies_are_summed_without_loss():
    points = torch.zeros(10**6, 2)
    points[0] = 50.0
    out = global_attention(points, torch.full((10**6, 1), 0.1), decay=1.0, method="lattice")
    torch.testing.assert_close(out, torch.full_like(out, 0.1), rtol=1e-6, atol=0)
