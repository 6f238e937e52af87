"""What a forward pass keeps for its backward pass."""

import gc

import pytest
import torch
from clouds import normal, schemes

from phgcn.lattice import filter_call as kept
from phgcn.lattice.filter_call import FilterCall
from phgcn.lattice.numba import ladder, locate, sorting
from phgcn.lattice.numba.filter import backward, forward
from phgcn.runtime.points import OutputGradients, Points


def some_points(across, dtype=torch.float32):
    """Two heads and three graphs in no order, one of them of one point, another without queries."""
    batch = torch.arange(60) * 7 % 5 % 2 + (torch.arange(60) == 59) * 2
    positions = normal(60, 2, 3, seed=1, dtype=dtype) * 2
    values = normal(60, 2, 5, seed=2, dtype=dtype)
    if not across:
        return Points(positions, values, None, batch, None)
    queries = normal(20, 2, 3, seed=3, dtype=dtype)
    return Points(positions, values, queries, batch, torch.arange(20) % 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("kind", ["no near field", "near field", "separable"])
def test_what_is_kept_changes_no_bit(kind, across, dtype, monkeypatch):
    points, call = some_points(across, dtype), FilterCall(schemes(3)[kind], True)
    out, norm, ticket = forward(points, call, keep=True)
    again, norm_again, empty = forward(points, call, keep=False)
    assert torch.equal(out, again) and torch.equal(norm, norm_again)
    monkeypatch.setattr(ladder, "LIMIT", 0)
    places_only = forward(points, call, keep=True)[2]
    upstream = OutputGradients(normal(*out.shape, seed=4, dtype=dtype), None, out, norm)
    wanted, *others = (backward(upstream, t, points, call) for t in (ticket, empty, places_only))
    for found in others:
        for a, b in zip(wanted, found, strict=True):
            assert (a is None) == (b is None)
            assert a is None or torch.equal(a, b)


def test_the_backward_pass_sorts_neither_points_nor_corners(monkeypatch):
    points, call = some_points(False), FilterCall(schemes(3)["separable"], True)
    out, norm, ticket = forward(points, call, keep=True)
    empty = forward(points, call, keep=False)[2]

    def refuse(*_):
        raise AssertionError("sorted again")

    for module in (sorting, locate):
        monkeypatch.setattr(module, "sort_keys", refuse)
    backward(OutputGradients(torch.ones_like(out), None, out, norm), ticket, points, call)
    with pytest.raises(AssertionError, match="sorted again"):
        backward(OutputGradients(torch.ones_like(out), None, out, norm), empty, points, call)


def test_what_is_kept_goes_with_its_ticket():
    before = len(kept._kept)
    _, _, ticket = forward(
        some_points(False), FilterCall(schemes(3)["near field"], True), keep=True
    )
    found = kept.find(ticket)
    assert found is not None and len(found) == 6 and found.size > 0
    assert kept.find(ticket.clone()) is None
    del ticket
    gc.collect()
    assert len(kept._kept) == before
