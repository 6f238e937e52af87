import pytest
import torch
from clouds import dense_exact, normal, relative
from exact_case import ExactCase

from phgcn.exact import reference
from phgcn.exact.reference import distances, exact_sum


class TestReference(ExactCase):
    backend = "reference"

    @pytest.fixture(autouse=True)
    def small_tiles(self, monkeypatch):
        """Small enough that few points make several tiles."""
        monkeypatch.setattr(reference, "TILE", 16)


def test_distances_by_hand():
    q, k = torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([[3.0, 4.0], [1.0, 1.0]])
    torch.testing.assert_close(distances(q, k), torch.tensor([[5.0, 2**0.5], [13**0.5, 0.0]]))


def test_coinciding_points_pull_nowhere():
    p = torch.zeros(4, 3, requires_grad=True)
    distances(p, p).sum().backward()
    assert torch.equal(p.grad, torch.zeros(4, 3))


@pytest.mark.parametrize("tile", [1, 7, 100])
def test_tiles_of_any_size_give_the_dense_sum(tile, monkeypatch):
    monkeypatch.setattr(reference, "TILE", tile)
    q, k, f = (
        t.requires_grad_()
        for t in (normal(9, 2, seed=1), normal(20, 2, seed=2), normal(20, 3, seed=3))
    )
    got, want = exact_sum(q, k, f), dense_exact(q, k) @ f
    assert relative(got, want) < 1e-14
    cotangent = normal(9, 3, seed=4)
    for a, b in zip(
        *(torch.autograd.grad(out, (q, k, f), cotangent) for out in (got, want)), strict=True
    ):
        assert relative(a, b) < 1e-13


def test_a_shifted_sum_gives_the_nearest_key_weight_one():
    k, f = torch.tensor([[0.0], [1000.0]]), torch.tensor([[1.0], [2.0]])
    got = exact_sum(torch.tensor([[3000.0], [-2000.0]]), k, f, shifted=True)
    assert got.tolist() == [[2.0], [1.0]]
    assert exact_sum(torch.tensor([[3000.0]]), k, f).tolist() == [[0.0]]


@pytest.mark.parametrize("shifted", [True, False])
def test_no_queries_or_no_keys(shifted):
    assert exact_sum(normal(0, 2), normal(3, 2), normal(3, 5), shifted).shape == (0, 5)
    assert torch.equal(
        exact_sum(normal(3, 2), normal(0, 2), normal(0, 5), shifted), normal(3, 5) * 0
    )
