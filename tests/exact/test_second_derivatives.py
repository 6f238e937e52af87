"""Second derivatives of exact attention: by autograd, of the reference, whatever the backend of the
first.
"""

import pytest
import torch
from clouds import BACKENDS, normal

from phgcn import global_attention, permutohedral_filter

BATCH, QUERY_BATCH = torch.tensor([1, 0, 1, 1, 0, 1]), torch.tensor([1, 1, 0])
CALLS = {
    "itself": (global_attention, {}),
    "a batch": (global_attention, {"batch": BATCH, "return_mass": True}),
    "queries": (global_attention, {"return_mass": True}),
    "queries of a batch": (
        global_attention,
        {"batch": BATCH, "query_batch": QUERY_BATCH, "return_mass": True},
    ),
    "sums": (permutohedral_filter, {}),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_they_are_the_true_ones(name, backend):
    call, options = CALLS[name]
    points = [
        normal(*shape, seed=seed).requires_grad_()
        for seed, shape in enumerate([(6, 2, 2), (6, 2, 2), (3, 2, 2)])
    ]

    def attend(positions, values, queries=None):
        return call(
            positions,
            values,
            decay=1.0,
            queries=queries,
            method="exact",
            backend=backend,
            **options,
        )

    given = points if "queries" in name else points[:2]
    assert torch.autograd.gradgradcheck(attend, given, atol=1e-6, rtol=1e-5, fast_mode=True)


def test_several_tiles_give_the_same(monkeypatch):
    found = []
    for tile in (1024, 4):
        monkeypatch.setattr("phgcn.exact.reference.TILE", tile)
        x = normal(10, 2, seed=1).requires_grad_()
        (grad,) = torch.autograd.grad(
            global_attention(x, x, method="exact").square().sum(), x, create_graph=True
        )
        found.append(torch.autograd.grad(grad.square().sum(), x)[0])
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)
