"""Wide clouds: points far outside do not cost a ladder its resolution."""

import pytest
import torch
from clouds import normal, relative

from phgcn import global_attention
from phgcn.lattice import Ladder
from phgcn.lattice.gaps import GAP, close_gaps


def test_only_points_across_wide_gaps_move():
    points = torch.tensor(
        [[0.0, 5.0], [130.0, 5.0], [1e6, 5.0], [1e6 + 3, -9e5], [-100.0, 5.0]], dtype=torch.float64
    )
    moved = close_gaps(points)
    assert torch.equal(moved[[0, 1, 4]], points[[0, 1, 4]])
    assert torch.equal(moved[3, :1] - moved[2, :1], points[3, :1] - points[2, :1])
    apart = torch.cdist(moved, moved)
    assert ((torch.cdist(points, points) == apart) | (apart > GAP)).all()
    assert moved.abs().max() < 5 * GAP


@pytest.mark.parametrize("backend", ["reference", "numba", "triton"])
def test_outliers_change_nothing_for_the_rest(backend):
    if backend == "triton":
        pytest.importorskip("triton")
    count = 60 if backend == "triton" else 300
    points, values = normal(count, 4, seed=1), normal(count, 2, seed=2)
    points[:3] = torch.tensor([[1e6, 0, 0, 0], [0, -3e7, 0, 0], [2e6, 1e6, -1e6, 0]])
    inputs = points.requires_grad_(), values.requires_grad_()
    out = global_attention(*inputs, decay=1.0, method="lattice", backend=backend)
    exact = global_attention(*inputs, decay=1.0, method="exact")
    assert relative(out, exact) < 0.05
    assert relative(out[:3], values[:3]) < 1e-9
    for got, want in zip(
        *(torch.autograd.grad(o.square().sum(), inputs) for o in (out, exact)), strict=True
    ):
        assert relative(got, want) < 0.3


@pytest.mark.parametrize("backend", ["reference", "numba", "triton"])
def test_a_dense_cloud_that_keys_cannot_hold_is_summed_pair_by_pair(backend):
    if backend == "triton":
        pytest.importorskip("triton")
    points, values = 0.3 * normal(60, 8), normal(60, 3, seed=1)
    points[::2] += 100
    inputs = points.requires_grad_(), values.requires_grad_()
    out = global_attention(*inputs, decay=1.0, method=Ladder(pairs=5), backend=backend)
    exact = global_attention(*inputs, decay=1.0, method="exact")
    assert relative(out, exact) < 1e-6
    for got, want in zip(
        *(torch.autograd.grad(o.square().sum(), inputs) for o in (out, exact)), strict=True
    ):
        assert relative(got, want) < 1e-6
