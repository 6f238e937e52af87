import re

import pytest
import torch
from clouds import BACKENDS, normal
from structural_case import dense, graph

from phgcn import structural_attention


@pytest.mark.parametrize("with_rows", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_ops_keep_the_rules_of_torch(backend, with_rows):
    edge_rows = (
        (normal(30, 2, seed=3).abs(), normal(30, 2, seed=4).requires_grad_())
        if with_rows
        else (None, None)
    )
    nodes = normal(9, 2, 3, seed=1).requires_grad_(), normal(9, 2, 4, seed=2).requires_grad_()
    given = *nodes, graph(9, 30), *edge_rows, backend
    torch.library.opcheck(torch.ops.phgcn.structural.default, given)
    with torch.no_grad():
        kept = torch.ops.phgcn.structural(*given)
    grad = torch.ones_like(kept[0]).requires_grad_()
    torch.library.opcheck(torch.ops.phgcn.structural_backward.default, (grad, *kept, *given))


def forward_and_grads(call, nodes=30):
    inputs = (
        normal(nodes, 2, 3, seed=1).requires_grad_(),
        normal(nodes, 2, 4, seed=2).requires_grad_(),
    )
    decay = torch.tensor([1.5, 0.5], dtype=torch.float64, requires_grad=True)
    out = call(*inputs, decay, graph(nodes, 4 * nodes))
    return out, *torch.autograd.grad(out.square().sum(), (*inputs, decay))


def attend(positions, values, decay, edge_index):
    return structural_attention(positions.tanh(), values, edge_index, decay).sin()


def attend_with_weights(positions, values, decay, edge_index):
    out, weights = structural_attention(
        positions.tanh(), values, edge_index, decay, return_attention_weights=True
    )
    return out.sum() + weights.square().sum()


@pytest.mark.parametrize("call", [attend, attend_with_weights])
def test_a_traced_graph_without_breaks_equals_eager(call):
    torch.compiler.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for got, want in zip(forward_and_grads(compiled), forward_and_grads(call), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_a_compiled_graph_takes_graphs_of_any_size():
    torch.compiler.reset()
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager", dynamic=True)
    for nodes in (5, 17, 40):
        for got, want in zip(
            forward_and_grads(compiled, nodes), forward_and_grads(attend, nodes), strict=True
        ):
            torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_second_derivatives_are_the_true_ones(backend):
    inputs = [
        normal(*shape, seed=seed).requires_grad_()
        for seed, shape in enumerate([(7, 2, 3), (7, 2, 2), (20, 2)])
    ]
    edge_index, mask = graph(7, 20), normal(20, 2, seed=3).abs()

    def attend(positions, values, bias):
        return structural_attention(
            positions, values, edge_index, 1.3, edge_mask=mask, edge_bias=bias, backend=backend
        )

    assert torch.autograd.gradgradcheck(attend, inputs, fast_mode=True)


def test_a_third_derivative_is_that_of_the_dense_matrix():
    edge_index, values = graph(7, 20), normal(7, 1, 2, seed=2)
    found = []
    for attend in (structural_attention, dense):
        x = normal(7, 1, 3, seed=1).requires_grad_()
        out = attend(x, values, edge_index, 1.0)
        for _ in range(3):
            (out,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        found.append(out.detach())
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


def test_a_mask_gets_no_gradient():
    mask = torch.ones(30, dtype=torch.float64, requires_grad=True)
    values = normal(9, 2, seed=2).requires_grad_()
    structural_attention(
        normal(9, 2, seed=1), values, graph(9, 30), edge_mask=mask
    ).sum().backward()
    assert mask.grad is None


# What is wrong with an input

NAN = float("nan")


def broken(**changes):
    given = {
        "positions": normal(4, 2, 3, seed=1),
        "values": normal(4, 2, 3, seed=2),
        "edge_index": torch.tensor([[0, 1], [2, 3]]),
    }
    return {**given, **changes}


def with_entry(tensor, place, value):
    tensor = tensor.clone()
    tensor[place] = value
    return tensor


CHANGES = [
    ("edge_index", torch.tensor([[0, 1, 7], [2, 4, 9]]), "[1, 1] is 4; allowed: 0 to 3, as pos"),
    ("edge_index", torch.tensor([[0, -1], [2, 3]]), "[0, 1] is -1; allowed: 0 to 3"),
    ("edge_index", torch.tensor([[0.0], [1.0]]), " is torch.float32; allowed: int64, int32"),
    ("edge_index", torch.tensor([0, 1]), " has shape (2,), layout torch.strided; allowed: a"),
    ("edge_index", torch.zeros(3, 2, dtype=torch.long), " has shape (3, 2)"),
    ("edge_index", torch.eye(4).to_sparse_csr(), " has shape (4, 4), layout torch.sparse_csr"),
    ("edge_index", [[0], [1]], " is a list; allowed: a tensor"),
    ("edge_index", torch.zeros(2, 1, dtype=torch.long, device="meta"), " is on meta; allowed: cpu"),
    ("edge_mask", torch.ones(3, 2), " has shape (3, 2); allowed: (2,) or (2, 2)"),
    ("edge_mask", torch.ones(2, 2).long(), " is torch.int64; allowed: a floating type or bool"),
    ("edge_mask", [1, 1], " is a list; allowed: a tensor"),
    ("edge_mask", torch.tensor([1.0, NAN]), "[1, 0] is nan; allowed: finite numbers"),
    ("edge_bias", torch.ones(3, 2), " has shape (3, 2); allowed: (2,) or (2, 2)"),
    ("edge_bias", torch.ones(2) > 0, " is torch.bool; allowed: a floating type"),
    ("edge_bias", torch.tensor([1.0, NAN]), "[1, 0] is nan; allowed: finite numbers"),
    ("positions", with_entry(normal(4, 2, 3), (2, 1, 0), NAN), "[2, 1, 0] is nan; allowed: finite"),
    (
        "values",
        with_entry(normal(4, 2, 3), (3, 0, 2), NAN),
        "[3, 0, 2] is nan; allowed: finite num",
    ),
    ("values", normal(5, 2, 3), " has 5 rows; allowed: 4, as positions"),
    ("decay", -1.0, " is -1.0; allowed: a positive number"),
    ("decay", torch.ones(3), " has shape (3,); allowed: a scalar or (2,)"),
]
"""An argument, its value, and what is said of it."""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name, value, said", CHANGES)
def test_broken_input_is_named(name, value, said, backend):
    with pytest.raises(ValueError, match=re.escape(name + said)):
        structural_attention(**broken(**{name: value}), backend=backend)


def test_an_unknown_backend_is_named():
    with pytest.raises(
        ValueError, match="backend is 'cuda'; allowed: 'auto', 'numba', 'triton', 'reference'"
    ):
        structural_attention(**broken(), backend="cuda")


def test_no_edge_fits_a_graph_without_nodes():
    with pytest.raises(
        ValueError, match=r"edge_index\[0, 0\] is 0; allowed: no edges, as positions has no rows"
    ):
        structural_attention(torch.empty(0, 2), torch.empty(0, 2), torch.tensor([[0], [0]]))
