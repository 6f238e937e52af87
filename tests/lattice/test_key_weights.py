"""Weights of keys through lattices: exact where the lattice is, and exactly nothing where they are
0.  What backends make of them is compared in :mod:`backend_case` and :mod:`exact_case`.
"""

import pytest
import torch
from clouds import BACKENDS, normal, relative

import phgcn
from phgcn.lattice import Ladder, Separable

FEW = Ladder(pairs=5)
EVERY_BACKEND = pytest.mark.parametrize("backend", [*BACKENDS, "triton"])
LATTICES = pytest.mark.parametrize("method", [FEW, Separable()])


def problem(count=600, dim=2, dtype=torch.float64):
    """Points, values, and weights of which a third is 0."""
    weights = normal(count, 1, seed=3, dtype=dtype).tanh() + 1
    weights[torch.arange(count) % 3 == 1] = 0
    return (
        normal(count, 1, dim, seed=1, dtype=dtype),
        normal(count, 1, 3, seed=2, dtype=dtype),
        weights,
    )


@pytest.mark.parametrize(
    "method, limit", [("lattice", 0.06), ("lattice-fine", 0.027), ("auto", 0.06), (FEW, 0.06)]
)
@pytest.mark.parametrize("across", [False, True])
def test_weighted_attention_is_close_to_the_exact_one(method, limit, across):
    points, values, weights = problem(2000, 3)
    queries = normal(500, 1, 3, seed=4) if across else None
    asked = {"decay": 1.0, "weights": weights, "queries": queries}
    out, exact = (
        phgcn.global_attention(points, values, method=m, return_mass=True, **asked)
        for m in (method, "exact")
    )
    sums = [
        phgcn.permutohedral_filter(points, values, method=m, **asked) for m in (method, "exact")
    ]
    for got, want in ((out[0], exact[0]), sums):
        assert float((got - want).norm() / (want - want.mean(dim=0)).norm()) < 1.2 * limit
    assert float((out[1] - exact[1]).abs().mean()) < 0.0033


def count_for(backend, count):
    """A number of points: few for Triton's interpreter."""
    if backend != "triton":
        return count
    pytest.importorskip("triton")
    return 15


@EVERY_BACKEND
@LATTICES
def test_nobody_attends_to_a_point_of_weight_zero(method, backend):
    points, values, weights = problem(count_for(backend, 300))
    asked = {"decay": 1.0, "weights": weights, "method": method, "backend": backend}
    nobody, found = weights[:, 0] == 0, []
    for size in (1.0, 1e9):
        leaf = torch.where(nobody[:, None, None], size * values, values).requires_grad_()
        out = phgcn.global_attention(points, leaf, **asked)
        (grad,) = torch.autograd.grad(out.square().sum(), leaf)
        assert not grad[nobody].any() and grad[~nobody].any()
        found.append(out)
    assert torch.equal(*found)


@EVERY_BACKEND
@LATTICES
def test_a_graph_whose_weights_are_all_zero_is_one_without_keys(method, backend):
    points, values, _ = problem(count_for(backend, 60))
    batch = torch.arange(len(points)) % 2
    asked = {"weights": batch.double(), "batch": batch, "method": method, "backend": backend}
    out, mass = phgcn.global_attention(points, values, decay=1.0, **asked, return_mass=True)
    assert not out[batch == 0].any() and bool((mass[batch == 0] == -torch.inf).all())
    assert out[batch == 1].any() and bool(mass[batch == 1].isfinite().all())


@pytest.mark.parametrize("method", [FEW, "exact"])
def test_weights_of_one_change_next_to_nothing(method):
    points, values, weights = problem()
    asked = {"decay": 1.0, "method": method, "return_mass": True}
    plain = phgcn.global_attention(points, values, **asked)
    weighted = phgcn.global_attention(points, values, weights=torch.ones_like(weights), **asked)
    for a, b in zip(plain, weighted, strict=True):
        assert relative(b, a) < 1e-7


def test_a_batch_with_weights_is_its_graphs_one_by_one_to_the_bit():
    points, values, weights = problem(500, 3, dtype=torch.float32)
    batch = (torch.arange(500) >= 200).long()

    def attend(rows, **options):
        given = points[rows], values[rows]
        options = {"weights": weights[rows], "decay": 1.0, "method": FEW, **options}
        return phgcn.global_attention(*given, **options)

    together = attend(slice(None), batch=batch)
    for graph in range(2):
        assert torch.equal(together[batch == graph], attend(batch == graph))


@pytest.mark.parametrize("method", [FEW, "exact"])
def test_weights_in_compiled_and_vmapped_calls(method):
    points, values, weights = problem(60)

    def call(p, v, w):
        return phgcn.global_attention(p, v, decay=1.0, weights=w, method=method)

    torch.compiler.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(points, values, weights), call(points, values, weights))
    clouds = (
        torch.stack([points, points + 1]),
        torch.stack([values, -values]),
        torch.stack([weights, weights.flip(0)]),
    )
    each = torch.stack([call(*one) for one in zip(*clouds, strict=True)])
    assert torch.equal(torch.vmap(call)(*clouds), each)
