"""Clouds at the edge of what there is: none, one, all alike, far apart, on vertices."""

import pytest
import torch
from clouds import BACKENDS, applied, normal, relative, schemes

from phgcn import global_attention, permutohedral_filter
from phgcn.lattice.geometry import kuhn_matrix, origin

METHODS = ("auto", "exact", "lattice", "lattice-fine", "separable")
ALL = {**{name: name for name in METHODS}, **schemes(3)}
CALLS = (global_attention, permutohedral_filter)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("method", ALL)
def test_no_points(method, backend, call):
    points, values = normal(0, 3).requires_grad_(), normal(0, 2).requires_grad_()
    out = call(points, values, method=ALL[method], backend=backend)
    assert out.shape == (0, 2)
    assert [g.shape for g in torch.autograd.grad(out.sum(), (points, values))] == [(0, 3), (0, 2)]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("method", ALL)
def test_one_point_is_itself(method, backend, call):
    points, values = normal(1, 3).requires_grad_(), normal(1, 2, seed=1).requires_grad_()
    out = call(points, values, method=ALL[method], backend=backend)
    torch.testing.assert_close(out, values, rtol=1e-14, atol=0)
    grads = torch.autograd.grad(out.sum(), (points, values))
    assert torch.equal(grads[0], torch.zeros(1, 3, dtype=torch.float64))
    torch.testing.assert_close(grads[1], torch.ones(1, 2, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("count, backend", [(10, "numba"), (10, "reference"), (5000, "numba")])
@pytest.mark.parametrize("method", ALL)
def test_points_all_alike_get_the_mean(method, count, backend, dtype):
    points = normal(1, 3, dtype=dtype).expand(count, 3).clone().requires_grad_()
    values = normal(count, 2, seed=1, dtype=dtype) + 1
    out = global_attention(points, values, method=ALL[method], backend=backend)
    want = values.double().mean(dim=0).expand(count, 2)
    assert relative(out, want) < (1e-13 if dtype == torch.float64 else 2e-6)
    (grad,) = torch.autograd.grad(out.square().sum(), points)
    assert torch.equal(grad, torch.zeros_like(grad))


@pytest.mark.parametrize("method", ALL)
def test_points_all_alike_add_up(method):
    points, values = torch.ones(100, 3, dtype=torch.float64), normal(100, 2, seed=1)
    out = permutohedral_filter(points, values, method=ALL[method])
    torch.testing.assert_close(out, values.sum(dim=0).expand(100, 2))


@pytest.mark.parametrize("method", ALL)
def test_a_far_outlier_is_alone_and_disturbs_nobody(method):
    points, values = normal(2200, 3, seed=1), normal(2200, 2, seed=2)
    with_outlier = points.clone()
    with_outlier[7] = 1e6
    rest = torch.arange(2200) != 7
    scheme = ALL[method]
    out = global_attention(with_outlier, values, decay=1.0, method=scheme)
    torch.testing.assert_close(out[7], values[7])
    exact = global_attention(points[rest], values[rest], decay=1.0, method="exact")
    error = (out[rest] - exact).norm() / (exact - exact.mean(dim=0)).norm()
    assert error < (0.5 if method == "separable" else 0.06)


@pytest.mark.parametrize(
    ("method", "error"), [("lattice", 0.01), ("lattice-fine", 0.01), ("separable", 0.12)]
)
def test_many_copies_of_two_points(method, error):
    """The weight of the other place is off, by at most so much; in the paper's filter copies weigh
    less than 1 on each other, too (docs/lattice.md, "Points that coincide")."""
    where = torch.tensor([[0.1, 0.2, 0.3, 0.4], [1.0, 0.2, 0.3, 0.4]])
    value = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    which = torch.arange(100_000) % 3 % 2
    out = global_attention(where[which], value[which], decay=1.0, method=method)
    weight = torch.exp(-torch.tensor([[0.0, 0.9], [0.9, 0.0]])) * which.bincount()
    want = applied(weight, value, True)[which]
    assert float((out - want).abs().max()) < error
    assert (out.sum(dim=1) - 1).abs().max() < 1e-5


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", schemes(3))
def test_points_on_vertices_and_ties(kind, backend):
    """On a vertex, an edge or a face either simplex gives the same weights: near it, nearly the
    same.
    """
    scheme = schemes(3)[kind]
    grid = torch.cartesian_prod(*[torch.arange(3.0, dtype=torch.float64)] * 3)
    vertices, halves = (
        torch.linalg.solve(kuhn_matrix(3) / 0.5, (g - 8 * origin(3)).T).T for g in (grid, grid / 2)
    )
    for points in (grid, grid * 0, vertices, halves):
        inputs = points.clone().requires_grad_(), normal(27, 2, seed=1)
        out = global_attention(*inputs, decay=1.0, method=scheme, backend=backend)
        assert out.isfinite().all()
        assert torch.autograd.grad(out.sum(), inputs[0])[0].isfinite().all()
        if kind != "separable" and points.any():  # all at one place are not filtered but averaged
            moved = global_attention(
                points + 1e-9 * normal(27, 3, seed=2), inputs[1], decay=1.0, method=scheme
            )
            torch.testing.assert_close(moved, out, rtol=0, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("method", METHODS)
def test_strides_do_not_matter(method, backend):
    points, values = normal(30, 3, seed=1), normal(30, 4, seed=2)
    want = global_attention(points, values, method=method, backend=backend)
    wide = torch.zeros(60, 6, dtype=torch.float64)
    wide[::2, ::2] = points
    flipped = values.T.contiguous().T
    for p, f in ((wide[::2, ::2], flipped), (points.T.contiguous().T, values.repeat(1, 2)[:, :4])):
        assert not (p.is_contiguous() and f.is_contiguous())
        assert torch.equal(global_attention(p, f, method=method, backend=backend), want)
    heads = global_attention(
        points.unsqueeze(1).expand(-1, 2, -1), flipped, method=method, backend=backend
    )
    assert torch.equal(heads, want.unsqueeze(1).expand(-1, 2, -1))


def test_gradients_through_strides():
    points, values = normal(3, 30, seed=1).requires_grad_(), normal(4, 30, seed=2).requires_grad_()
    cotangent = normal(4, 30, seed=3)
    got = torch.autograd.grad(global_attention(points.T, values.T).T, (points, values), cotangent)
    p = points.detach().T.contiguous().requires_grad_()
    f = values.detach().T.contiguous().requires_grad_()
    want = torch.autograd.grad(global_attention(p, f), (p, f), cotangent.T.contiguous())
    assert all(torch.equal(a, b.T) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("method", METHODS)
def test_no_queries(method, backend, call):
    inputs = [t.requires_grad_() for t in (normal(9, 3), normal(9, 2), normal(0, 3))]
    out = call(*inputs[:2], queries=inputs[2], method=method, backend=backend)
    assert out.shape == (0, 2)
    assert all(torch.equal(g, torch.zeros_like(g)) for g in torch.autograd.grad(out.sum(), inputs))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("method", ALL)
def test_queries_of_a_graph_without_keys_get_zero(method, backend, call):
    inputs = [
        t.requires_grad_()
        for t in (normal(4, 3, seed=1), normal(4, 2, seed=2), normal(3, 3, seed=3))
    ]
    batch, query_batch = torch.tensor([0, 0, 2, 2]), torch.tensor([1, 0, 5])
    options = {
        "batch": batch,
        "query_batch": query_batch,
        "method": ALL[method],
        "backend": backend,
    }
    out = call(*inputs[:2], queries=inputs[2], **options)
    assert torch.equal(out[[0, 2]], torch.zeros(2, 2, dtype=torch.float64))
    assert (out[1] != 0).all()
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), inputs))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("method", ALL)
def test_a_query_out_of_reach_gets_about_what_is_exact(method, backend):
    points, values = normal(20, 3, seed=1), normal(20, 2, seed=2)
    queries = torch.tensor([[2000.0, 0.0, 0.0]], dtype=torch.float64).requires_grad_()
    out = global_attention(
        points, values, queries=queries, decay=1.0, method=ALL[method], backend=backend
    )
    exact = torch.softmax(-torch.cdist(queries, points), dim=1) @ values
    if method in ("auto", "exact"):
        torch.testing.assert_close(out, exact)
    else:
        assert (out - exact).norm() < 0.5 * (values.mean(dim=0) - exact).norm()
    assert torch.autograd.grad(out.sum(), queries)[0].isfinite().all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("method", METHODS)
def test_no_channels(method, backend):
    out = global_attention(normal(9, 3), normal(9, 0), method=method, backend=backend)
    assert out.shape == (9, 0)
    out = permutohedral_filter(normal(9, 3), normal(9, 0), method=method, backend=backend)
    assert out.shape == (9, 0)


@pytest.mark.parametrize("method", ALL)
def test_a_far_centre_costs_little(method):
    points, values = normal(400, 3, seed=1), normal(400, 2, seed=2)
    exact = global_attention(points, values, decay=1.0, method="exact")
    errors = []
    for centre in (0.0, 1e5):
        out = global_attention(points + centre, values, decay=1.0, method=ALL[method])
        errors.append(float((out - exact).norm() / (exact - exact.mean(dim=0)).norm()))
    assert errors[1] < 1.3 * errors[0] + 1e-9
