"""Attention compiled to C++; what is only traced is compared with eager calls beside each op."""

import shutil

import pytest
import torch
from clouds import normal

from phgcn import global_attention, structural_attention

EDGES = torch.randint(30, (2, 120), generator=torch.Generator().manual_seed(0))


@pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))),
    reason="torch.compile needs a C++ compiler",
)
def test_a_compiled_graph_equals_eager():
    def attend(positions, values, decay):
        points = positions.tanh()
        every, near = (
            global_attention(points, values, decay=decay, method=m) for m in ("lattice", "exact")
        )
        return every.sin() + near.cos() + structural_attention(points, values, EDGES, decay).sin()

    decay = torch.tensor(1.5, dtype=torch.float64)
    inputs = [t.requires_grad_() for t in (normal(30, 2, seed=1), normal(30, 3, seed=2), decay)]
    torch.compiler.reset()
    found = []
    for call in (torch.compile(attend, fullgraph=True), attend):
        out = call(*inputs)
        found.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)
