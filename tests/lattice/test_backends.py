import pytest
import torch
from backend_case import CALLS, BackendCase, KernelCase
from clouds import KINDS, normal, relative, schemes

from phgcn import global_attention
from phgcn.backends import choose_backend


class TestReference(BackendCase):
    """Its gradients are the true derivatives; those of other backends are compared with them."""

    backend = "reference"

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("dim, call", [(1, "output"), (2, "sum"), (2, "mass"), (4, "output")])
    def test_gradients_are_the_true_derivatives(self, dim, call, kind):
        points, values = normal(8, 2, dim, seed=7), normal(8, 2, 2, seed=8)
        queries, weights = normal(3, 2, dim, seed=9), normal(8, 2, seed=5).abs() + 0.1
        decay = torch.tensor([0.7, 1.2], dtype=torch.float64)
        batch = torch.tensor([1, 0, 1, 1, 0, 1, 0, 1])
        options = {"method": schemes(dim)[kind], "backend": self.backend}

        def itself(points, values, decay):
            return CALLS[call](points, values, decay=decay, batch=batch, **options)

        def across(points, values, queries, weights):
            asked = {"queries": queries, "weights": weights, "decay": 0.8}
            return CALLS[call](points, values, **asked, **options)

        for function, inputs in (
            (itself, (points, values, decay)),
            (across, (points, values, queries, weights)),
        ):
            inputs = [t.clone().requires_grad_() for t in inputs]
            assert torch.autograd.gradcheck(function, inputs, atol=1e-6, rtol=1e-4, fast_mode=True)


class TestNumba(KernelCase):
    backend = "numba"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_on_a_gpu_is_that_on_the_cpu(kind):
    inputs = [normal(n, 2, w, seed=w) for n, w in ((30, 2), (30, 3), (7, 2))]
    batch, query_batch = torch.arange(30) % 3, torch.arange(7) % 3

    def call(device):
        given = [t.to(device).requires_grad_() for t in inputs]
        graphs = {"batch": batch.to(device), "query_batch": query_batch.to(device)}
        options = {"decay": 1.0, "method": schemes(2)[kind], "backend": "reference"}
        out = global_attention(*given[:2], queries=given[2], **graphs, **options)
        return [t.cpu() for t in (out, *torch.autograd.grad(out.square().sum(), given))]

    for got, want in zip(call("cuda"), call("cpu"), strict=True):
        assert relative(got, want) < 1e-10


def test_auto_is_numba_on_the_cpu_and_the_reference_elsewhere():
    assert choose_backend("auto", torch.device("cpu")).name == "numba"
    assert choose_backend("auto", torch.device("meta")).name == "reference"


def test_numba_is_refused_off_the_cpu():
    message = r'backend is "numba", .* on meta; allowed: "auto", "reference"'
    with pytest.raises(ValueError, match=message):
        choose_backend("numba", torch.device("meta"))
