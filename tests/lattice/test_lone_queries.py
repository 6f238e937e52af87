"""Queries far from all keys, but between them: summed over cells instead of through the lattice."""

import pytest
import torch
from clouds import BACKENDS, normal, relative
from replaced_case import check_replanned, check_traced

from phgcn import global_attention


def clusters_and_queries(dim, queries=800):
    """Three clusters of different weight, and queries anywhere between them."""
    keys = torch.cat([0.3 * normal(2000, dim, seed=1) + 8, 0.3 * normal(400, dim, seed=2) - 8, 0.5 * normal(100, dim, seed=3)])
    between = torch.rand(queries, dim, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    return keys, torch.sin(keys) + normal(len(keys), dim, seed=5), 18 * between - 9


def attend(keys, values, queries, method, weight):
    """Output, and the gradients of keys, values and queries."""
    leaves = [t.clone().requires_grad_() for t in (keys, values, queries)]
    out = global_attention(*leaves[:2], decay=1.0, queries=leaves[2], method=method)
    return out.detach(), *torch.autograd.grad((out * weight).sum(), leaves)


@pytest.mark.parametrize("method", ["lattice", "lattice-fine"])
@pytest.mark.parametrize("dim", [2, 4, 6, 8])
def test_queries_between_clusters_see_what_exact_ones_see(dim, method):
    """Outputs were off by up to 2.4 of the deviation, gradients by up to 50 times, and their cosine was near 0."""
    points = clusters_and_queries(dim)
    weight = normal(800, dim, seed=6)
    (out, *slopes), (exact, *exact_slopes) = (attend(*points, m, weight) for m in (method, "exact"))
    assert (out - exact).norm() < 0.15 * (exact - exact.mean(dim=0)).norm()
    of_queries, of_exact = slopes[2], exact_slopes[2]
    assert of_queries.norm(dim=1).max() < 5 * of_exact.norm(dim=1).max()
    assert (of_queries * of_exact).sum() > (0.8 if dim == 2 else 0.9) * of_queries.norm() * of_exact.norm()


def test_the_mass_is_right_down_to_that_of_the_lattice():
    keys, values, queries = clusters_and_queries(4)
    masses = [
        global_attention(keys, values, decay=1.0, queries=queries, method=method, return_mass=True)[1]
        for method in ("lattice", "exact")
    ]
    mass, exact = masses
    seen = exact > -18
    assert seen.sum() > 400 and (mass - exact)[seen].abs().mean() < 0.1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_changes_the_output_by_its_gradient(backend):
    keys = torch.cat([0.5 * normal(9, 2, seed=1) + 6, 0.5 * normal(6, 2, seed=2) - 6])
    inputs = [t.requires_grad_() for t in (keys, normal(15, 2, seed=3), 1.5 * normal(8, 2, seed=4))]

    def call(keys, values, queries):
        return global_attention(keys, values, decay=1.0, queries=queries, method="lattice", backend=backend, return_mass=True)

    assert call(*inputs)[1].max() < -3  # all are lone
    assert torch.autograd.gradcheck(call, inputs, atol=1e-7, rtol=1e-4, fast_mode=True)


def test_beyond_all_keys_is_their_mean():
    keys = torch.cat([normal(500, 2, seed=1) + 60, normal(500, 2, seed=2) - 60])
    values = normal(1000, 2, seed=3)
    out = global_attention(keys, values, decay=1.0, queries=torch.zeros(1, 2).double(), method="lattice")
    torch.testing.assert_close(out[0], values.mean(dim=0))


def test_graphs_and_heads_are_each_on_their_own():
    """A graph whose queries are lone in one head, one whose are not, and a query without keys."""
    keys, values, queries = (t.float() for t in clusters_and_queries(4, 300))
    both = torch.stack([keys, 0.1 * keys], dim=1), values.unsqueeze(1).expand(-1, 2, -1), torch.stack([queries, queries], dim=1)
    order = torch.randperm(2500, generator=torch.Generator().manual_seed(0))
    batch, query_batch = (torch.arange(count) % 2 * 3 for count in (2500, 300))
    query_batch[-1] = 7
    keys, values = both[0][order], both[1][order]
    options = {"decay": 1.0, "method": "lattice"}
    out = global_attention(keys, values, queries=both[2], batch=batch, query_batch=query_batch, **options)
    assert not out[-1].any()
    for graph in (0, 3):
        mine, asked = batch == graph, query_batch == graph
        for head in range(2):
            alone = global_attention(keys[mine, head], values[mine, head], queries=both[2][asked, head], **options)
            assert torch.equal(out[asked, head], alone)


def test_too_many_queries_are_left_to_the_lattice():
    keys, values, queries = clusters_and_queries(6, 20_000)
    keys[:, :] = 12 * normal(2500, 6, seed=8)  # nearly every key is a cell of its own
    few, many = (global_attention(keys, values, decay=1.0, queries=queries[:n], method="lattice")[:50] for n in (50, 20_000))
    exact = global_attention(keys, values, decay=1.0, queries=queries[:50], method="exact")
    assert relative(few, exact) < 0.05 < relative(many, exact)


@pytest.mark.parametrize("backend", BACKENDS)
def test_ops_keep_the_rules_of_torch(backend):
    keys = torch.cat([0.5 * normal(9, 2, seed=1) + 5, 0.5 * normal(6, 2, seed=2) - 5]).unsqueeze(1).requires_grad_()
    values, queries = normal(15, 1, 3, seed=3).requires_grad_(), (1.5 * normal(8, 1, 2, seed=4)).requires_grad_()
    inputs = keys, values, queries, None, None, "lattice", True, -1, backend
    torch.library.opcheck(torch.ops.phgcn.filter.default, (*inputs, True))
    plan, norm = check_replanned(inputs)
    assert (plan[-2] != norm).any() and plan[-1].tolist() == [False, True]


def test_a_traced_graph_without_breaks_equals_eager():
    check_traced(*clusters_and_queries(3, 200))
