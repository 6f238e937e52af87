import pytest
import torch
from clouds import normal, relative
from structural_case import KernelCase, StructuralCase, dense_weights, graph, run

from phgcn import structural_attention


class TestReference(StructuralCase):
    backend = "reference"


class TestNumba(KernelCase):
    backend = "numba"
    hub = (1_000_000, 1e-6)


@pytest.fixture
def example():
    return (
        normal(2500, 8, 4, seed=1, dtype=torch.float32),
        normal(2500, 8, 5, seed=2, dtype=torch.float32),
        graph(2500, 20000),
    )


def identical(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_runs_and_threads_change_no_bit(example, threads):
    mask = normal(20000, 8, seed=3, dtype=torch.float32).abs()
    threads(2)
    want = run(*example, edge_mask=mask)
    assert identical(run(*example, edge_mask=mask), want)
    threads(1)
    assert identical(run(*example, edge_mask=mask), want)


def test_a_hub_among_many_nodes_changes_no_bit(threads):
    positions = normal(3000, 4, seed=1, dtype=torch.float32)
    values = normal(3000, 8, seed=2, dtype=torch.float32)
    nodes = torch.arange(3000)
    star = torch.cat(
        [
            torch.stack([nodes, torch.zeros_like(nodes)]),
            torch.stack([torch.zeros_like(nodes), nodes]),
        ],
        dim=1,
    )
    threads(2)
    want = run(positions, values, star)
    threads(1)
    assert identical(run(positions, values, star), want)


def test_permuting_nodes_permutes_the_output(example):
    positions, values, edge_index = example
    order = torch.randperm(2500, generator=torch.Generator().manual_seed(0))
    place = torch.empty_like(order)
    place[order] = torch.arange(2500)
    want = structural_attention(positions, values, edge_index)
    assert (
        relative(
            structural_attention(positions[order], values[order], place[edge_index]), want[order]
        )
        < 1e-6
    )


def test_permuting_edges_changes_rounding_only(example):
    order = torch.randperm(20000, generator=torch.Generator().manual_seed(0))
    want = structural_attention(*example)
    assert relative(structural_attention(*example[:2], example[2][:, order]), want) < 1e-6


def test_heads_are_separate_calls(example):
    positions, values, edge_index = example
    want = structural_attention(positions, values, edge_index, 0.7)
    for head in range(8):
        alone = structural_attention(positions[:, head], values[:, head], edge_index, 0.7)
        assert relative(alone, want[:, head]) < 1e-6


def test_attention_weights_come_in_the_order_of_the_edges():
    positions = normal(12, 3, 2, seed=1).requires_grad_()
    values = normal(12, 3, 4, seed=2)
    edge_index = graph(12, 9, seed=1)
    edge_index = edge_index[
        :, torch.unique(edge_index, dim=1, return_inverse=True)[1].unique().argsort()
    ]
    edge_index = torch.unique(edge_index, dim=1)[
        :, torch.randperm(torch.unique(edge_index, dim=1).size(1))
    ]
    out, weights = structural_attention(
        positions, values, edge_index, 1.3, return_attention_weights=True
    )
    want = dense_weights(positions, edge_index, 1.3)[edge_index[1], edge_index[0]]
    torch.testing.assert_close(weights, want)
    assert torch.equal(out, structural_attention(positions, values, edge_index, 1.3))
    torch.testing.assert_close(
        *(
            torch.autograd.grad(w.square().sum(), positions, retain_graph=True)[0]
            for w in (weights, want)
        )
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_computed_in_float32(dtype):
    positions = normal(9, 2, 2, seed=1).to(dtype)
    values = normal(9, 2, 4, seed=2).to(dtype)
    edge_index = graph(9, 30)
    out = structural_attention(positions, values, edge_index)
    assert out.dtype == dtype
    assert torch.equal(
        out, structural_attention(positions.float(), values.float(), edge_index).to(dtype)
    )


def test_autocast_takes_what_products_give():
    x = normal(9, 6, seed=1).float()
    weight = normal(6, 6, seed=2).float().requires_grad_()
    edge_index = graph(9, 30)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        f = x @ weight
        out = structural_attention(f[:, :2], f, edge_index)
    assert out.dtype == torch.bfloat16
    out.float().square().sum().backward()
    assert bool(weight.grad.isfinite().all()) and weight.grad.dtype == torch.float32


def test_int32_edges_serve_as_well(example):
    assert identical(run(*example), run(*example[:2], example[2].int()))


def test_edges_may_lie_in_any_memory_layout(example):
    positions, values, edge_index = example
    assert identical(run(*example), run(positions, values, edge_index.t().contiguous().t()))
