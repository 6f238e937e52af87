import pytest
import torch
from clouds import normal, schemes

from phgcn.lattice.filter_call import FilterCall
from phgcn.lattice.numba import index, locate, sorting
from phgcn.lattice.numba.filter import backward, forward
from phgcn.lattice.numba.plan import empty_plan
from phgcn.runtime.points import OutputGradients, Points

KINDS = ("all levels", "near field", "two lattices", "separable")


def some_points(across, dim=3, dtype=torch.float32):
    """Two heads and three graphs in no order, one of them of one point, another without queries."""
    batch = torch.arange(60) * 7 % 5 % 2 + (torch.arange(60) == 59) * 2
    positions, values = normal(60, 2, dim, seed=1, dtype=dtype) * 2, normal(60, 2, 5, seed=2, dtype=dtype)
    if not across:
        return Points(positions, values, None, batch, None)
    return Points(positions, values, normal(20, 2, dim, seed=3, dtype=dtype), batch, torch.arange(20) % 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_changes_no_bit(kind, across, dtype):
    points, call = some_points(across, dtype=dtype), FilterCall(schemes(3)[kind], True)
    out, norm, plan = forward(points, call, keep_plan=True)
    again, norm_again, none = forward(points, call, keep_plan=False)
    assert none == []
    assert torch.equal(out, again) and torch.equal(norm, norm_again)
    grad = normal(*out.shape, seed=4, dtype=dtype)
    with_plan, without = (backward(OutputGradients(grad, None, out, norm), p, points, call) for p in (plan, []))
    for a, b in zip(with_plan, without, strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.equal(a, b)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_has_the_shapes_that_the_inputs_tell(kind, across):
    points, call = some_points(across), FilterCall(schemes(3)[kind], True)
    plan, empty = forward(points, call, keep_plan=True)[2], empty_plan(points, call.scheme)
    assert [(t.shape, t.dtype, t.stride()) for t in plan] == [(t.shape, t.dtype, t.stride()) for t in empty]


def test_a_lone_pair_of_a_key_and_a_query_fits_the_plan():
    """Far apart they touch as many vertices as there can be: two simplices of their own."""
    points = Points(torch.zeros(1, 1, 2), torch.ones(1, 1, 1), torch.full((1, 1, 2), 50.0), None, None)
    out, _, plan = forward(points, FilterCall(schemes(2)["all levels"], True), keep_plan=True)
    assert plan[0][0, 0].tolist() == [0, 2, 6, 6]
    torch.testing.assert_close(out, torch.ones(1, 1, 1))


def test_the_backward_pass_sorts_neither_points_nor_corners(monkeypatch):
    points, call = some_points(False), FilterCall(schemes(3)["separable"], True)
    out, norm, plan = forward(points, call, keep_plan=True)

    def refuse(*_):
        raise AssertionError("sorted again")

    for module in (sorting, locate, index):
        monkeypatch.setattr(module, "sort_keys", refuse)
    backward(OutputGradients(torch.ones_like(out), None, out, norm), plan, points, call)
    with pytest.raises(AssertionError, match="sorted again"):
        backward(OutputGradients(torch.ones_like(out), None, out, norm), [], points, call)
