"""Queries far from all keys: smooth, and the mean in the end."""

import pytest
import torch
from clouds import BACKENDS, normal

from phgcn import global_attention
from phgcn.lattice import Separable
from phgcn.lattice.far import far_gradients, far_weight


def shell(count, dim, nearest, farthest, seed):
    """Points in all directions, at distances from the nearest to the farthest."""
    points = normal(count, dim, seed=seed)
    return (
        points / points.norm(dim=1, keepdim=True) * torch.linspace(nearest, farthest, count, dtype=torch.float64).unsqueeze(1)
    )


@pytest.mark.parametrize("dim", [2, 4])
def test_gradients_of_far_queries_are_bounded(dim):
    """They were up to a million times the exact ones where the lattice's reach ends."""
    keys, values = normal(3000, dim, seed=1) * 0.3, normal(3000, 4, seed=2)
    queries, largest, farthest = shell(6000, dim, 4, 25, seed=3), {}, {}
    for method in ("exact", "lattice"):
        leaf = queries.clone().requires_grad_()
        out = global_attention(keys, values, decay=1.0, queries=leaf, method=method)
        largest[method] = float(torch.autograd.grad(out.sum(), leaf)[0].norm(dim=1).max())
        farthest[method] = float((out.detach() - values.mean(dim=0)).abs().max())
    assert largest["lattice"] < 10 * largest["exact"]
    assert farthest["lattice"] < 2 * farthest["exact"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("method", ["lattice", Separable()])
@pytest.mark.parametrize("dim", [1, 2])
def test_gradients_of_far_queries_are_true(dim, method, backend):
    inputs = [t.requires_grad_() for t in (normal(12, dim, seed=4) * 0.8, normal(12, 2, seed=5), shell(9, dim, 3, 25, seed=6))]

    def attend(keys, values, queries):
        return global_attention(keys, values, decay=1.0, queries=queries, method=method, backend=backend)

    assert torch.autograd.gradcheck(attend, inputs, atol=1e-7, rtol=1e-4, fast_mode=True)


def test_gradients_of_the_weight_are_those_of_autograd():
    inputs = shell(40, 3, 1, 30, seed=7), normal(3, seed=8) - 2, normal(3, seed=9) + 2
    inputs = [t.requires_grad_() for t in inputs]
    grad = normal(40, seed=10)
    want = torch.autograd.grad(far_weight(*inputs), inputs, grad)
    of_queries, of_low, of_high = far_gradients(*(t.detach() for t in inputs), grad)
    for got, wanted in zip((of_queries, of_low.sum(dim=0), of_high.sum(dim=0)), want, strict=True):
        torch.testing.assert_close(got, wanted)


def test_the_weight_begins_outside_and_never_ends():
    low, high = torch.full((2,), -1.0), torch.full((2,), 1.0)
    queries = torch.tensor([[0.0, 0.0], [3.0, 0.0], [5.0, 0.0], [30.0, 0.0]], dtype=torch.float64)
    weight = far_weight(queries, low, high)
    assert weight[:2].tolist() == [0.0, 0.0]
    assert 0 < weight[2] < torch.exp(-torch.tensor(5.0)) * 5
    assert torch.exp(torch.tensor(-30.0)) < weight[3]
    # Of keys that are spread widely, a query beside them sees enough.
    assert far_weight(queries[3:], 20 * low, 20 * high) == 0
