"""The same bits from run to run, for any number of threads, and whatever is batched beside a
graph."""

import pytest
import torch
from clouds import BACKENDS, KINDS, normal, relative, schemes

from phgcn import global_attention

METHODS = ("auto", "exact", "lattice", "lattice-fine", "separable")


def run(points, values, queries=None, **options):
    """The output and the gradients of everything."""
    inputs = [t.clone().requires_grad_() for t in (points, values, queries) if t is not None]
    asked = {"queries": inputs[2]} if queries is not None else {}
    out = global_attention(*inputs[:2], **asked, decay=1.0, **options)
    return [
        out.detach(),
        *torch.autograd.grad(out, inputs, normal(*out.shape, seed=9, dtype=out.dtype)),
    ]


def identical(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def all_methods(dim):
    return {**schemes(dim), **{name: name for name in METHODS}}


@pytest.mark.parametrize("method", all_methods(3))
@pytest.mark.parametrize("across", [False, True])
def test_runs_and_threads_change_no_bit(method, across, threads):
    method = all_methods(3)[method]
    points, values = (normal(3000, w, seed=w, dtype=torch.float32) for w in (3, 5))
    queries = normal(2500, 3, seed=3, dtype=torch.float32) if across else None
    threads(2)
    want = run(points, values, queries, method=method)
    assert identical(run(points, values, queries, method=method), want)
    threads(1)
    assert identical(run(points, values, queries, method=method), want)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_graphs_is_its_graphs_alone(kind, backend):
    points, values = normal(24, 2, seed=1) * 2, normal(24, 3, seed=2)
    check_batch(points, values, torch.arange(24) * 11 % 7 % 3, schemes(2)[kind], backend)


@pytest.mark.parametrize("method", METHODS)
def test_small_and_large_graphs_in_no_order_are_alike_alone(method):
    """Under ``auto`` and ``lattice`` the small ones are summed exactly, the large ones by lattices
    of their own.
    """
    sizes, spreads = (2500, 30, 2300, 1), (0.3, 1.0, 8.0, 1.0)
    points = torch.cat(
        [normal(n, 4, seed=n, dtype=torch.float32) * s for n, s in zip(sizes, spreads, strict=True)]
    )
    batch = torch.repeat_interleave(torch.arange(4), torch.tensor(sizes))
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0))
    check_batch(
        points[order],
        normal(len(batch), 3, seed=2, dtype=torch.float32),
        batch[order],
        method,
        "auto",
    )


def check_batch(points, values, batch, method, backend):
    out = global_attention(points, values, decay=1.0, batch=batch, method=method, backend=backend)
    together = run(points, values, batch=batch, method=method, backend=backend)
    assert torch.equal(together[0], out)
    cotangent = normal(*out.shape, seed=9, dtype=out.dtype)
    for graph in batch.unique().tolist():
        here = batch == graph
        inputs = [t[here].clone().requires_grad_() for t in (points, values)]
        alone = global_attention(*inputs, decay=1.0, method=method, backend=backend)
        found = [alone, *torch.autograd.grad(alone, inputs, cotangent[here])]
        assert identical(found, [t[here] for t in together])


@pytest.mark.parametrize("method", METHODS)
def test_queries_of_a_batch_are_those_of_its_graphs_alone(method):
    points, values, queries = (
        normal(n, 3, seed=seed, dtype=torch.float32) for seed, n in enumerate((5200, 5200, 4000))
    )
    batch, query_batch = torch.arange(5200) % 2, torch.arange(4000) % 3 % 2
    asked = {"queries": queries, "batch": batch, "query_batch": query_batch}
    together = global_attention(points, values, decay=1.0, **asked, method=method)
    for graph in range(2):
        k, q = batch == graph, query_batch == graph
        alone = global_attention(points[k], values[k], decay=1.0, queries=queries[q], method=method)
        assert torch.equal(alone, together[q])


@pytest.mark.parametrize("numbers", [(0, 1, 2), (7, 3, 5), (10**15, 2, 10**9)])
def test_graphs_may_have_any_numbers(numbers):
    points, values = normal(30, 2, seed=1), normal(30, 3, seed=2)
    batch = torch.arange(30) % 3
    want = global_attention(points, values, batch=batch)
    assert torch.equal(global_attention(points, values, batch=torch.tensor(numbers)[batch]), want)


def test_int32_graph_numbers_serve_as_well():
    points, values, batch = normal(30, 2, seed=1), normal(30, 3, seed=2), torch.arange(30) % 3
    want = global_attention(points, values, batch=batch)
    assert torch.equal(global_attention(points, values, batch=batch.int()), want)


@pytest.mark.parametrize("method", all_methods(3))
def test_heads_are_separate_calls(method):
    method = all_methods(3)[method]
    points, values = (normal(2100, 3, w, seed=w, dtype=torch.float32) for w in (3, 4))
    # each with a near field of its own
    points = points * torch.tensor([0.3, 1.0, 8.0]).reshape(1, 3, 1)
    out = run(points, values, method=method)
    cotangent = normal(2100, 3, 4, seed=9, dtype=torch.float32)
    for head in range(3):
        inputs = [t[:, head].clone().requires_grad_() for t in (points, values)]
        alone = global_attention(*inputs, decay=1.0, method=method)
        found = [alone, *torch.autograd.grad(alone, inputs, cotangent[:, head])]
        assert identical(found, [t[:, head] for t in out])


@pytest.mark.parametrize("dtype, limit", [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("method", all_methods(3))
def test_permuting_points_or_queries_permutes_the_output(method, dtype, limit):
    # Not to the last bit: the points of a vertex, and the pairs of a point, are summed in the order
    # they come.
    options = {"decay": 1.0, "method": all_methods(3)[method]}
    points, values, queries = (normal(n, 3, seed=n, dtype=dtype) for n in (2500, 2500, 2300))
    order = torch.randperm(2300, generator=torch.Generator().manual_seed(0))
    of_points = torch.cat([order, torch.arange(2300, 2500)])
    out = global_attention(points, values, **options)
    moved = global_attention(points[of_points], values[of_points], **options)
    assert relative(moved, out[of_points]) < limit
    out, moved = (
        global_attention(points, values, queries=q, **options) for q in (queries, queries[order])
    )
    assert relative(moved, out[order]) < limit
