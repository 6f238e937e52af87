import pytest
import torch
from clouds import dense_exact, normal, relative
from exact_case import ExactCase

from phgcn import global_attention, permutohedral_filter


class TestNumba(ExactCase):
    backend = "numba"
    count = 70


def test_the_exponential_keeps_single_precision():
    """Two points at distances up to 80: each output is one exponential."""
    r = torch.cat([torch.linspace(0, 80, 4001), torch.logspace(-6, 0, 200)])
    values = torch.ones(1, 1)
    got = permutohedral_filter(torch.zeros(1, 1), values, queries=r.unsqueeze(1), method="exact")
    torch.testing.assert_close(got.squeeze(1).double(), torch.exp(-r.double()), rtol=8e-6, atol=0)


def test_weights_of_far_pairs_vanish():
    out = permutohedral_filter(
        torch.tensor([[0.0], [1e6], [1e9]]), torch.ones(3, 1), method="exact"
    )
    assert torch.equal(out, torch.ones(3, 1))


@pytest.mark.parametrize("count", [15, 16, 17, 511, 512, 513, 1100])
def test_any_number_of_points_fills_the_tiles(count):
    points, values = normal(count, 2, seed=1), normal(count, 3, seed=2)
    assert (
        relative(
            permutohedral_filter(points, values, method="exact"),
            dense_exact(points, points) @ values,
        )
        < 1e-13
    )


@pytest.mark.parametrize("channels", [1, 7, 8, 9, 15, 16, 17])
@pytest.mark.parametrize("method", ["exact", "separable"])
def test_any_number_of_channels_fills_the_rows(channels, method):
    points, values = normal(40, 2, seed=1).requires_grad_(), normal(40, channels, seed=2)
    got = global_attention(points, values, decay=1.0, method=method)
    each = torch.cat(
        [
            global_attention(points, values[:, [c]], decay=1.0, method=method)
            for c in range(channels)
        ],
        dim=1,
    )
    torch.testing.assert_close(got, each, rtol=1e-12, atol=1e-12)
    grads = [torch.autograd.grad(out.square().sum(), points)[0] for out in (got, each)]
    torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-10)


def test_a_query_far_from_all_keys_sees_the_nearest():
    keys, values = torch.tensor([[0.0], [5.0]]), torch.tensor([[1.0], [2.0]])
    out = global_attention(
        keys, values, queries=torch.tensor([[1e5], [-1e5]]), decay=10.0, method="exact"
    )
    torch.testing.assert_close(out, torch.tensor([[2.0], [1.0]]))
