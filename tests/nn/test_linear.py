"""The linear map and the non-linearity: rows and numbers that do not notice those beside them."""

import pytest
import torch
from clouds import normal, relative

from phgcn.nn.elu import ELU, make_activation
from phgcn.nn.linear import Linear

SIZES = ((1, 5, 2), (7, 30, 1), (20, 50, 100), (183, 251, 183))


@pytest.mark.parametrize("dtype, error", [(torch.float32, 1e-6), (torch.float64, 1e-14), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("inner, outer", [(1, 1), (3, 5), (33, 7), (500, 64)])
def test_the_product_and_its_gradients_are_those_of_torch(dtype, error, inner, outer):
    x, weight = (normal(n, inner, seed=n, dtype=dtype).requires_grad_() for n in (19, outer))
    got, want = torch.ops.phgcn.linear(x, weight), torch.nn.functional.linear(x, weight)
    assert got.dtype == dtype and relative(got, want) < error
    for a, b in zip(torch.autograd.grad(got.sum(), (x, weight)), torch.autograd.grad(want.sum(), (x, weight)), strict=True):
        assert relative(a, b) < error


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("inner, outer", [(1, 1), (16, 24), (33, 7), (500, 64), (1433, 8)])
def test_rows_do_not_depend_on_other_rows_or_threads(threads, dtype, inner, outer):
    weight = normal(outer, inner, dtype=dtype)
    for sizes in SIZES:
        parts = [normal(n, inner, seed=i, dtype=dtype) for i, n in enumerate(sizes)]
        threads(2)
        whole = torch.ops.phgcn.linear(torch.cat(parts), weight)
        threads(1)
        assert torch.equal(whole, torch.cat([torch.ops.phgcn.linear(x, weight) for x in parts]))


@pytest.mark.parametrize(("count", "inner", "outer"), [(1, 3, 2), (37, 70, 5), (1030, 64, 16), (2500, 1433, 64)])
def test_gradients_do_not_depend_on_threads(threads, count, inner, outer):
    x, weight, grad = normal(count, inner).float(), normal(outer, inner, seed=1).float(), normal(count, outer, seed=2).float()
    found = []
    for number in (1, 2):
        threads(number)
        leaves = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
        found.append(torch.autograd.grad(torch.ops.phgcn.linear(*leaves), leaves, grad))
    assert all(map(torch.equal, *found))
    assert relative(found[0][1], (grad.double().t() @ x.double())) < 1e-6
    assert relative(found[0][0], grad.double() @ weight.double()) < 1e-6


def test_second_derivatives_are_true():
    x, weight = normal(5, 3).requires_grad_(), normal(4, 3, seed=1).requires_grad_()
    assert torch.autograd.gradgradcheck(torch.ops.phgcn.linear, (x, weight))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_elu_does_not_depend_on_place_or_threads(threads, dtype):
    for count in (1, 3, 17, 999, 70001):
        x = normal(count, dtype=dtype)
        threads(1)
        want = torch.ops.phgcn.elu(x)
        assert relative(want, torch.nn.functional.elu(x)) < 1e-6
        for before in (1, 5, 13):
            threads(2)
            beside = torch.cat([normal(before, seed=1, dtype=dtype), x, normal(37, seed=2, dtype=dtype)])
            assert torch.equal(torch.ops.phgcn.elu(beside)[before : before + count], want)


def test_elu_has_the_gradient_of_torch_s():
    x = torch.cat([normal(100), torch.zeros(1), torch.tensor([-800.0, 800.0])]).double().requires_grad_()
    assert torch.autograd.gradcheck(torch.ops.phgcn.elu, x[:100].detach().requires_grad_())
    got, want = (torch.autograd.grad(f(x).sum(), x)[0] for f in (torch.ops.phgcn.elu, torch.nn.functional.elu))
    assert torch.allclose(got, want, rtol=1e-12)


def test_activations_go_by_PyG_s_names():
    assert isinstance(make_activation("elu"), ELU)
    assert isinstance(make_activation("relu"), torch.nn.ReLU)
    assert make_activation(None) is None


OPS = {
    "linear": (torch.ops.phgcn.linear.default, lambda: (normal(7, 5).requires_grad_(), normal(3, 5).requires_grad_())),
    "elu": (torch.ops.phgcn.elu.default, lambda: (normal(7, 5).requires_grad_(),)),
    "park_self_loops": (torch.ops.phgcn.park_self_loops.default, lambda: (torch.randint(0, 7, (2, 30)), 7)),
}


@pytest.mark.parametrize("op, arguments", OPS.values(), ids=OPS)
def test_the_ops_pass_torch_s_own_check(op, arguments):
    torch.library.opcheck(op, arguments())


def test_sparse_features_and_bias():
    x, lin = normal(9, 5) * (normal(9, 5, seed=1) > 0), Linear(-1, 3).double()
    want = lin(x)
    assert relative(want, x @ lin.weight.t() + lin.bias) < 1e-12
    for sparse in (x.to_sparse_csr(), x.to_sparse_coo()):
        fresh = Linear(-1, 3).double()
        fresh(sparse)
        fresh.load_state_dict(lin.state_dict())
        assert relative(fresh(sparse), want) < 1e-12
