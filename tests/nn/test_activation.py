import pytest
import torch
from clouds import normal

from phgcn.nn.activation import ELU, make_activation


def test_elu_is_torch_s_with_its_gradient():
    x = (
        torch.cat([normal(1000), torch.tensor([0.0, -0.0, -800.0, 800.0, 1e-12, -1e-12])])
        .double()
        .requires_grad_()
    )
    got, want = ELU()(x), torch.nn.functional.elu(x)
    assert torch.allclose(got, want, rtol=1e-12)
    assert torch.allclose(
        *(torch.autograd.grad(out.sum(), x)[0] for out in (got, want)), rtol=1e-12
    )


# shares of three threads that do not fill vector registers
@pytest.mark.parametrize("count", [70_001, 2708 * 128])
def test_elu_has_the_same_bits_for_any_number_of_threads(threads, count):
    x, results = normal(count, dtype=torch.float32).requires_grad_(), []
    for number in (1, 2, 3):
        threads(number)
        out = ELU()(x)
        results.append((out, *torch.autograd.grad(out.square().sum(), x)))
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


def test_activations_go_by_PyG_s_names():
    assert isinstance(make_activation("elu"), ELU)
    assert isinstance(make_activation("relu"), torch.nn.ReLU)
    assert make_activation(torch.tanh) is torch.tanh
