"""Sums over neighbours, in every backend: against the product with the dense adjacency matrix."""

import pytest
import torch
from clouds import BACKENDS, normal, relative
from structural_case import graph

from phgcn.structural.sums import sort_neighbours, sum_neighbours

CUDA = torch.cuda.is_available()
every_backend = pytest.mark.parametrize("backend", [*BACKENDS, "triton"])


def device_of(backend):
    if backend == "triton":
        pytest.importorskip("triton")
    return "cuda" if backend == "triton" and CUDA else "cpu"


def adjacency(edge_index, nodes, self_loops):
    """How often each edge occurs, as a dense (targets, sources) matrix."""
    occurs = torch.zeros(nodes, nodes, dtype=torch.float64)
    occurs.index_put_(
        (edge_index[1], edge_index[0]), torch.ones((), dtype=torch.float64), accumulate=True
    )
    return occurs if self_loops else occurs.fill_diagonal_(0)


def total(values, edge_index, backend, self_loops=True):
    return sum_neighbours(
        values, sort_neighbours(edge_index, len(values), self_loops, backend), backend
    )


@every_backend
@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("channels", [1, 7, 64, 300])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_sums_and_gradients_are_those_of_the_dense_matrix(backend, self_loops, channels, dtype):
    device = device_of(backend)
    edge_index = graph(30, 150)
    assert bool((edge_index[0] == edge_index[1]).any())
    matrix = adjacency(edge_index, 30, self_loops)
    values = normal(30, channels, seed=1, dtype=dtype).to(device).requires_grad_()
    cotangent = normal(30, channels, seed=2, dtype=dtype)
    out = total(values, edge_index.to(device), backend, self_loops)
    (grad,) = torch.autograd.grad(out, values, cotangent.to(device))
    error = 1e-14 if dtype == torch.float64 else 1e-6
    assert (
        out.dtype == dtype and relative(out.cpu(), matrix @ values.detach().cpu().double()) < error
    )
    assert relative(grad.cpu(), matrix.T @ cotangent.double()) < error


@pytest.mark.parametrize("dtype, error", [(torch.float16, 5e-4), (torch.bfloat16, 4e-3)])
def test_triton_sums_half_types_in_float32(dtype, error):
    """The error is that of rounding the output: many terms of a sum in a half type would make it
    larger.
    """
    device, edge_index = device_of("triton"), graph(20, 3000)
    values = normal(20, 5, seed=1).to(dtype).to(device)
    out = total(values, edge_index.to(device), "triton")
    assert (
        out.dtype == dtype
        and relative(out.cpu(), adjacency(edge_index, 20, True) @ values.cpu().double()) < error
    )


@every_backend
def test_first_and_second_derivatives_are_true(backend):
    device, edge_index = device_of(backend), graph(6, 15)
    values = normal(6, 2).to(device).requires_grad_()
    edge_index = edge_index.to(device)
    assert torch.autograd.gradcheck(lambda v: total(v, edge_index, backend).square(), values)
    assert torch.autograd.gradgradcheck(lambda v: total(v, edge_index, backend).square(), values)


@every_backend
@pytest.mark.parametrize("nodes", [0, 1, 5])
def test_a_graph_without_edges_sums_to_zeros(backend, nodes):
    device = device_of(backend)
    out = total(
        torch.ones(nodes, 3, device=device),
        torch.empty(2, 0, dtype=torch.long, device=device),
        backend,
        False,
    )
    assert out.shape == (nodes, 3) and not bool(out.any())


@every_backend
def test_a_node_number_that_does_not_exist_is_named(backend):
    edge_index = torch.tensor([[0, 1], [2, 4]], device=device_of(backend))
    with pytest.raises(ValueError, match=r"edge_index\[1, 1\] is 4; allowed: 0 to 3"):
        sort_neighbours(edge_index, 4, False, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_ops_keep_the_rules_of_torch(backend):
    edge_index = graph(9, 30)
    torch.library.opcheck(torch.ops.phgcn.sort_neighbours.default, (edge_index, 9, False, backend))
    neighbours = sort_neighbours(edge_index, 9, False, backend)
    values = normal(9, 4).requires_grad_()
    torch.library.opcheck(torch.ops.phgcn.sum_neighbours.default, (values, *neighbours, backend))


def test_runs_and_threads_change_no_bit(threads):
    values, edge_index = normal(3000, 40, dtype=torch.float32), graph(3000, 40_000)
    edge_index[1, ::3] = 5  # a hub
    threads(2)
    want = total(values, edge_index, "numba")
    assert torch.equal(total(values, edge_index, "numba"), want)
    threads(1)
    assert torch.equal(total(values, edge_index, "numba"), want)


def test_a_hub_of_many_edges_is_summed_accurately():
    values = normal(64, 3).abs().float()
    source = torch.randint(64, (1_000_000,), generator=torch.Generator().manual_seed(0))
    star = torch.stack([source, torch.zeros_like(source)])
    got, want = total(values, star, "numba")[0], total(values.double(), star, "reference")[0]
    assert float((got / want - 1).abs().max()) < 1e-6
