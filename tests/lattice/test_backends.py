import pytest
import torch
from backend_case import BackendCase, KernelCase
from clouds import KINDS, normal, relative, schemes

from phgcn import global_attention
from phgcn.backends import choose_backend


class TestReference(BackendCase):
    backend = "reference"


class TestNumba(KernelCase):
    backend = "numba"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_on_a_gpu_is_that_on_the_cpu(kind):
    points, values, queries = (
        normal(30, 2, 2, seed=1),
        normal(30, 2, 3, seed=2),
        normal(7, 2, 2, seed=3),
    )
    batch, query_batch = torch.arange(30) % 3, torch.arange(7) % 3

    def call(device):
        given = [t.to(device).requires_grad_() for t in (points, values, queries)]
        out = global_attention(
            *given[:2],
            queries=given[2],
            batch=batch.to(device),
            query_batch=query_batch.to(device),
            decay=1.0,
            method=schemes(2)[kind],
            backend="reference",
        )
        return [t.cpu() for t in (out, *torch.autograd.grad(out.square().sum(), given))]

    for got, want in zip(call("cuda"), call("cpu"), strict=True):
        assert relative(got, want) < 1e-10


def test_auto_is_numba_on_the_cpu_and_the_reference_elsewhere():
    assert choose_backend("auto", torch.device("cpu")).name == "numba"
    assert choose_backend("auto", torch.device("meta")).name == "reference"


def test_numba_is_refused_off_the_cpu():
    with pytest.raises(
        ValueError, match=r'backend is "numba", .* on meta; allowed: "auto", "reference"'
    ):
        choose_backend("numba", torch.device("meta"))
