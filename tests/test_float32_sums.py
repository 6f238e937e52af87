"""Sums of many float32 numbers, of numbers with a large mean, and of the largest ones, against
float64.
"""

import pytest
import torch
from clouds import normal

from phgcn import global_attention, permutohedral_filter, structural_attention

MANY = 2**18
METHODS = ("exact", "lattice", "lattice-fine", "separable")


def off(got, want):
    return float(((got.double() - want).abs() / want.abs()).max())


@pytest.mark.parametrize("method", ["lattice", "lattice-fine", "separable", "auto"])
def test_the_mean_of_many_equal_values_is_that_value(method):
    out = global_attention(torch.zeros(10**6, 2), torch.full((10**6, 1), 0.1), method=method)
    assert off(out, torch.full((10**6, 1), 0.1, dtype=torch.float32).double()) <= 1e-6


@pytest.mark.parametrize("call", [global_attention, permutohedral_filter])
@pytest.mark.parametrize("method", METHODS)
def test_sums_over_many_points_in_one_cell(method, call):
    p = 1e-3 * torch.rand(MANY, 2, generator=torch.Generator().manual_seed(1))
    f = torch.linspace(0.1, 2, MANY).unsqueeze(1)
    few = {"queries": p[:16]} if method == "exact" else {}
    wide = {name: t.double() for name, t in few.items()}
    want = call(p.double(), f.double(), decay=1.0, method=method, **wide)
    assert off(call(p, f, decay=1.0, method=method, **few), want) <= 1e-6


@pytest.mark.parametrize(("backend", "count"), [("numba", 10**6), ("triton", 20_000)])
def test_a_hub_of_many_edges(backend, count):
    edges = torch.stack([torch.arange(count) % 1000, torch.zeros(count, dtype=torch.long)])
    device = "cuda" if backend == "triton" and torch.cuda.is_available() else "cpu"
    given = (t.to(device) for t in (torch.zeros(1000, 2), torch.full((1000, 1), 0.1), edges))
    out = structural_attention(*given, backend=backend).cpu()
    assert off(out[:1], torch.full((1, 1), 0.1, dtype=torch.float32).double()) <= 1e-6


def position_gradient(attend, p, f):
    p = p.clone().requires_grad_()
    attend(p, f).backward(normal(*f.shape, seed=9, dtype=torch.float32).to(f.dtype))
    return p.grad.double()


@pytest.mark.parametrize("method", [*METHODS, "structural"])
def test_a_large_mean_of_the_values_leaves_the_gradient_of_positions_right(method):
    p = normal(1500, 4, seed=1, dtype=torch.float32)
    f = 1000 + normal(1500, 8, seed=2, dtype=torch.float32)
    edges = torch.randint(1500, (2, 15_000), generator=torch.Generator().manual_seed(1))

    def attend(p, f):
        if method == "structural":
            return structural_attention(p, f, edges)
        return global_attention(p, f, decay=1.0, method=method)

    got, want = position_gradient(attend, p, f), position_gradient(attend, p.double(), f.double())
    # The output, which the gradient depends on, is itself rounded to 6e-5.
    assert (got - want).norm() <= 1e-3 * want.norm()


@pytest.mark.parametrize("value", [1e38, -3.3e38])
@pytest.mark.parametrize("method", [*METHODS, "structural"])
def test_the_largest_numbers_do_not_overflow(method, value):
    p, f = normal(50, 2, seed=1, dtype=torch.float32), torch.full((50, 1), value)
    edges = torch.stack([torch.arange(2500) % 50, torch.arange(2500) // 50])
    if method == "structural":
        out = structural_attention(1e-3 * p, f, edges)
    else:
        out = global_attention(1e-3 * p, f, decay=1.0, method=method)
    torch.testing.assert_close(out, f)


def test_small_numbers_keep_their_digits_beside_large_ones_of_another_graph():
    p = normal(200, 2, seed=1, dtype=torch.float32)
    f = 1e-12 * normal(200, 3, seed=2, dtype=torch.float32)
    alone = global_attention(p, f, decay=1.0, method="lattice")
    want = global_attention(p.double(), f.double(), decay=1.0, method="lattice")
    assert (alone.double() - want).norm() <= 1e-5 * want.norm()
    batch = torch.arange(400) // 200
    beside = global_attention(
        torch.cat([p, p]), torch.cat([f, 1e20 * f]), decay=1.0, method="lattice", batch=batch
    )
    assert torch.equal(beside[:200], alone)
