"""Weights of keys through lattices: exact where the lattice is, and exactly nothing where they are
0.
"""

import pytest
import torch
from clouds import BACKENDS, normal, relative

import phgcn
from phgcn.lattice import Ladder, Separable
from phgcn.lattice.scheme import encode

FEW = Ladder(pairs=5)
SCHEMES = {"ladder": FEW, "separable": Separable()}


def problem(count=600, dim=2, heads=1, dtype=torch.float64):
    """Points, values, and weights of which a third is 0."""
    weights = normal(count, heads, seed=3, dtype=dtype).tanh() + 1
    weights[torch.arange(count) % 3 == 1] = 0
    return (
        normal(count, heads, dim, seed=1, dtype=dtype),
        normal(count, heads, 3, seed=2, dtype=dtype),
        weights,
    )


@pytest.mark.parametrize("method", ["lattice", "lattice-fine", "auto", FEW])
@pytest.mark.parametrize("across", [False, True])
def test_weighted_attention_is_close_to_the_exact_one(method, across):
    points, values, weights = problem(2000, 3)
    asked = {
        "decay": 1.0,
        "weights": weights,
        "queries": normal(500, 1, 3, seed=4) if across else None,
    }
    for call in (phgcn.global_attention, phgcn.permutohedral_filter):
        out, exact = (call(points, values, method=m, **asked) for m in (method, "exact"))
        assert float((out - exact).norm() / (exact - exact.mean(dim=0)).norm()) < 0.1
    masses = [
        phgcn.global_attention(points, values, method=m, return_mass=True, **asked)[1]
        for m in (method, "exact")
    ]
    assert float((masses[0] - masses[1]).abs().mean()) < 0.05


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("across", [False, True])
def test_backends_agree_on_weights(scheme, across):
    points, values, weights = problem(200, 2, heads=2)
    queries, batch = normal(80, 2, 2, seed=4), torch.arange(200) % 2
    asked = {"queries": queries, "query_batch": torch.arange(80) % 2} if across else {}
    found = []
    for backend in BACKENDS:
        leaves = [t.clone().requires_grad_() for t in (points, values, weights)]
        out, mass = phgcn.global_attention(
            *leaves[:2],
            decay=1.0,
            weights=leaves[2],
            batch=batch,
            method=SCHEMES[scheme],
            backend=backend,
            return_mass=True,
            **asked,
        )
        grads = torch.autograd.grad(out.square().sum() + mass.sum(), leaves)
        found.append([out, mass, *grads])
    for one, other in zip(*found, strict=True):
        assert relative(one, other) < 1e-9


def count_for(backend, count):
    """A number of points: few for Triton's interpreter."""
    if backend != "triton":
        return count
    pytest.importorskip("triton")
    return 15


@pytest.mark.parametrize("backend", [*BACKENDS, "triton"])
@pytest.mark.parametrize("method", [*SCHEMES.values(), "exact"])
def test_nobody_attends_to_a_point_of_weight_zero(method, backend):
    points, values, weights = problem(count_for(backend, 300))
    nobody, found = weights[:, 0] == 0, []
    for size in (1.0, 1e9):
        leaf = torch.where(nobody[:, None, None], size * values, values).requires_grad_()
        out = phgcn.global_attention(
            points, leaf, decay=1.0, weights=weights, method=method, backend=backend
        )
        (grad,) = torch.autograd.grad(out.square().sum(), leaf)
        assert not grad[nobody].any() and grad[~nobody].any()
        found.append(out)
    assert torch.equal(*found)


@pytest.mark.parametrize("backend", [*BACKENDS, "triton"])
@pytest.mark.parametrize("method", [*SCHEMES.values(), "exact"])
def test_a_graph_whose_weights_are_all_zero_is_one_without_keys(method, backend):
    points, values, _ = problem(count_for(backend, 60))
    batch = torch.arange(len(points)) % 2
    out, mass = phgcn.global_attention(
        points,
        values,
        decay=1.0,
        weights=batch.double(),
        batch=batch,
        method=method,
        backend=backend,
        return_mass=True,
    )
    assert not out[batch == 0].any() and bool((mass[batch == 0] == -torch.inf).all())
    assert out[batch == 1].any() and bool(mass[batch == 1].isfinite().all())


def test_weights_of_one_change_next_to_nothing():
    points, values, weights = problem()
    for method in (FEW, "exact"):
        plain, weighted = (
            phgcn.global_attention(
                points, values, decay=1.0, weights=w, method=method, return_mass=True
            )
            for w in (None, torch.ones_like(weights))
        )
        for a, b in zip(plain, weighted, strict=True):
            assert relative(b, a) < 1e-7


def test_a_batch_with_weights_is_its_graphs_one_by_one_to_the_bit():
    points, values, weights = problem(500, 3, dtype=torch.float32)
    batch = (torch.arange(500) >= 200).long()
    together = phgcn.global_attention(
        points, values, decay=1.0, weights=weights, batch=batch, method=FEW
    )
    for graph in range(2):
        mine = batch == graph
        alone = phgcn.global_attention(
            points[mine], values[mine], decay=1.0, weights=weights[mine], method=FEW
        )
        assert torch.equal(together[mine], alone)


def test_gradients_with_weights_are_the_true_derivatives():
    points, values, _ = problem(20)
    weights = (normal(20, seed=5).abs() + 0.1).requires_grad_()
    leaves = points[:, 0].clone().requires_grad_(), values[:, 0].clone().requires_grad_(), weights
    for method in (FEW, Ladder(pairs=0)):
        assert torch.autograd.gradcheck(
            lambda p, v, w, m=method: phgcn.global_attention(p, v, decay=1.0, weights=w, method=m),
            leaves,
            eps=1e-7,
            atol=1e-5,
        )


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_op_with_weights_keeps_the_rules_of_torch(backend):
    points, values, weights = (t.requires_grad_() for t in problem(12, heads=2))
    inputs = (
        points,
        values,
        None,
        torch.arange(12) % 2,
        None,
        weights,
        encode(FEW, "gaussian"),
        True,
        -1,
        backend,
    )
    torch.library.opcheck(torch.ops.phgcn.filter.default, (*inputs, True))
    with torch.no_grad():
        out, norm, ticket = torch.ops.phgcn.filter(*inputs, True)
    given = [t.detach() if isinstance(t, torch.Tensor) else t for t in inputs]
    torch.library.opcheck(
        torch.ops.phgcn.filter_backward.default,
        (torch.ones_like(out), None, out, norm, ticket, *given),
    )


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


@pytest.mark.parametrize(
    "weights, message",
    [
        ([1.0], "weights is a list; allowed: a tensor"),
        (torch.ones(5, dtype=torch.long), "weights is torch.int64; allowed: a floating type"),
        (torch.ones(4), r"weights has shape \(4,\); allowed: \(5,\) or \(5, 1\)"),
        (
            torch.tensor([1.0, 0.0, -1.0, 1.0, 1.0]),
            r"weights\[2\] is -1.0; allowed: finite numbers that are not negative",
        ),
        (
            torch.full((5, 1), torch.nan),
            r"weights\[0, 0\] is nan; allowed: finite numbers that are not negative",
        ),
    ],
)
def test_bad_weights_are_named(weights, message):
    with pytest.raises(ValueError, match=message):
        phgcn.global_attention(torch.zeros(5, 2), torch.zeros(5, 1), weights=weights)
