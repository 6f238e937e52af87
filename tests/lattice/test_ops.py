import pytest
import torch
from clouds import BACKENDS, normal

from phgcn import global_attention
from phgcn.checks import check_finite
from phgcn.kernels import Matern52
from phgcn.lattice import Ladder, Separable
from phgcn.lattice.scheme import encode

SCHEMES = {"lattice": Ladder(pairs=2), "separable": Separable()}
CALLS = {
    "exact": {"method": "exact"},
    "exact, Matern": {"method": "exact", "kernel": Matern52()},
    "lattice": {"method": Ladder(pairs=2)},
    "lattice, Matern": {"method": "lattice", "kernel": Matern52()},
    "separable": {"method": Separable()},
}


def operands(scheme, backend, across, normalise, grad=True):
    p, f, q = normal(9, 2, 2, seed=1), normal(9, 2, 3, seed=2), normal(4, 2, 2, seed=3)
    batch, query_batch = torch.tensor([0, 1, 1] * 3), torch.tensor([0, 1, 0, 2])
    weights = normal(9, 2, seed=4).tanh() + 1 if normalise else None
    p, f, q = (t.requires_grad_(grad) for t in (p, f, q))
    points = p, f, q if across else None, batch, query_batch if across else None, weights
    return *points, encode(scheme), normalise, -1, backend


@pytest.mark.parametrize("across, normalise", [(False, True), (True, True), (True, False)])
@pytest.mark.parametrize("kind", SCHEMES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_ops_keep_the_rules_of_torch(backend, kind, across, normalise):
    for keep in (False, True):
        inputs = operands(SCHEMES[kind], backend, across, normalise)
        torch.library.opcheck(torch.ops.phgcn.filter.default, (*inputs, keep))
        with torch.no_grad():
            out, norm, ticket = torch.ops.phgcn.filter(*inputs, keep)
        assert (len(ticket) > 0) == (keep and backend != "reference")
        inputs = operands(SCHEMES[kind], backend, across, normalise, grad=False)
        for grad_norm in (None, torch.ones_like(norm)) if normalise else (None,):
            given = torch.ones_like(out), grad_norm, out, norm, ticket, *inputs
            torch.library.opcheck(torch.ops.phgcn.filter_backward.default, given)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("kind", SCHEMES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_kept_changes_no_bit(backend, kind, across):
    inputs = operands(SCHEMES[kind], backend, across, True, grad=False)
    out, norm, ticket = torch.ops.phgcn.filter(*inputs, True)
    without = torch.ops.phgcn.filter(*inputs, False)
    assert torch.equal(out, without[0]) and torch.equal(norm, without[1])
    upstream = normal(*out.shape, seed=4), normal(*norm.shape, seed=5), out, norm
    given = ticket, ticket, without[2], ticket.clone()
    grads = [torch.ops.phgcn.filter_backward(*upstream, one, *inputs) for one in given]
    for first, *others in zip(*grads, strict=True):
        assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("backend", BACKENDS)
def test_graphs_of_few_pairs_are_left_out(backend):
    p, f, *rest = operands(SCHEMES["lattice"], backend, False, True, grad=False)
    rest[-2] = 9  # graph 0 has three points, graph 1 six
    out, norm, _ = torch.ops.phgcn.filter(p, f, *rest, False)
    alone = torch.arange(9) % 3 > 0
    options = {"weights": rest[3][alone], "method": SCHEMES["lattice"], "backend": backend}
    whole = global_attention(p[alone], f[alone], decay=1.0, **options)
    assert torch.equal(out[alone], whole)
    assert not out[~alone].any() and not norm[~alone].any()


def forward_and_grads(call, across):
    p, f, q = (
        t.requires_grad_()
        for t in (normal(30, 2, seed=1), normal(30, 3, seed=2), normal(4, 2, seed=3))
    )
    decay = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    inputs = (p, f, decay, q) if across else (p, f, decay)
    out = call(*inputs)
    return out, *torch.autograd.grad(out.square().sum(), inputs)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("kind", CALLS)
def test_a_traced_graph_without_breaks_equals_eager(kind, across):
    def attend(p, f, decay, queries=None):
        options = {"decay": decay, "queries": queries, "return_mass": True, **CALLS[kind]}
        out, mass = global_attention(p.tanh(), f, **options)
        return torch.cat([out, mass.unsqueeze(-1)], dim=-1).sin()

    torch.compiler.reset()
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    for got, want in zip(
        forward_and_grads(compiled, across), forward_and_grads(attend, across), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_a_compiled_graph_takes_clouds_of_any_size():
    torch.compiler.reset()
    compiled = torch.compile(
        lambda p, f: global_attention(p, f, decay=1.0),
        fullgraph=True,
        backend="aot_eager",
        dynamic=True,
    )
    for count in (5, 17, 40):
        p, f = normal(count, 2, seed=count), normal(count, 3, seed=1)
        assert torch.equal(compiled(p, f), global_attention(p, f, decay=1.0))


def test_overflowing_sums_of_finite_numbers_are_no_error():
    check_finite("values", torch.full((4, 1, 1), 1e308, dtype=torch.float64))


@pytest.mark.parametrize("far", [1e9, 1e30])
@pytest.mark.parametrize("kind", SCHEMES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_graphs_that_are_left_out_may_lie_anywhere(backend, kind, far):
    p, f, *rest = operands(SCHEMES[kind], backend, False, True, grad=False)
    rest[-2] = 9  # graph 0 has three points, graph 1 six
    alone = torch.arange(9) % 3 > 0
    want = torch.ops.phgcn.filter(p, f, *rest, False)[0]
    p = torch.where(alone[:, None, None], p, far * p)
    out = torch.ops.phgcn.filter(p, f, *rest, False)[0]
    assert torch.equal(out, want) and out[alone].any()
