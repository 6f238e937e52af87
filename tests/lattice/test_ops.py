import shutil

import pytest
import torch
from clouds import BACKENDS, forced, normal

from phgcn import global_attention
from phgcn.lattice import Exact, Separable
from phgcn.lattice.ops import checked
from phgcn.lattice.scheme import encode

SCHEMES = {"exact": Exact(), "lattice": forced("lattice", 2, 1), "separable": Separable()}


def operands(scheme, backend, across, normalise, grad=True):
    p, f, q = normal(9, 2, 2, seed=1), normal(9, 2, 3, seed=2), normal(4, 2, 2, seed=3)
    batch, query_batch = torch.tensor([0, 1, 1] * 3), torch.tensor([0, 1, 0, 2])
    p, f, q = (t.requires_grad_(grad) for t in (p, f, q))
    return p, f, batch, q if across else None, query_batch if across else None, encode(scheme), normalise, backend


@pytest.mark.parametrize("across, normalise", [(False, True), (True, True), (True, False)])
@pytest.mark.parametrize("kind", SCHEMES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_ops_keep_the_rules_of_torch(backend, kind, across, normalise):
    inputs = operands(SCHEMES[kind], backend, across, normalise)
    torch.library.opcheck(torch.ops.phgcn.filter.default, inputs)
    with torch.no_grad():
        out, norm = torch.ops.phgcn.filter(*inputs)
    inputs = operands(SCHEMES[kind], backend, across, normalise, grad=False)
    torch.library.opcheck(torch.ops.phgcn.filter_backward.default, (torch.ones_like(out), out, norm, *inputs))


def forward_and_grads(call, across):
    p, f, q = (t.requires_grad_() for t in (normal(30, 2, seed=1), normal(30, 3, seed=2), normal(4, 2, seed=3)))
    decay = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    inputs = (p, f, decay, q) if across else (p, f, decay)
    out = call(*inputs)
    return out, *torch.autograd.grad(out.square().sum(), inputs)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("kind", SCHEMES)
def test_a_traced_graph_without_breaks_equals_eager(kind, across):
    def attend(p, f, decay, queries=None):
        return global_attention(p.tanh(), f, decay=decay, queries=queries, method=SCHEMES[kind]).sin()

    torch.compiler.reset()
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    for got, want in zip(forward_and_grads(compiled, across), forward_and_grads(attend, across), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="torch.compile needs a C++ compiler")
def test_a_compiled_graph_equals_eager():
    def attend(p, f, decay):
        return global_attention(p.tanh(), f, decay=decay, method="lattice").sin()

    torch.compiler.reset()
    compiled = torch.compile(attend, fullgraph=True)
    for got, want in zip(forward_and_grads(compiled, False), forward_and_grads(attend, False), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


def test_a_compiled_graph_takes_clouds_of_any_size():
    torch.compiler.reset()
    compiled = torch.compile(lambda p, f: global_attention(p, f, decay=1.0), fullgraph=True, backend="aot_eager", dynamic=True)
    for count in (5, 17, 40):
        p, f = normal(count, 2, seed=count), normal(count, 3, seed=1)
        assert torch.equal(compiled(p, f), global_attention(p, f, decay=1.0))


def test_overflowing_sums_of_finite_numbers_are_no_error():
    p, f = torch.zeros(4, 1, 1, dtype=torch.float64), torch.full((4, 1, 1), 1e308, dtype=torch.float64)
    checked(p, f, None, None, None, Exact())
