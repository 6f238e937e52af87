"""The paper in one file, examples/minimal.py: its filter is that of the library, and its network
learns cora."""

import importlib.util
from pathlib import Path

import pytest
import torch
from real_graphs import needs

import phgcn

FILE = Path(__file__).resolve().parents[2] / "examples" / "minimal.py"
MAJORITY = 0.31
"""The share of the largest class of cora."""


@pytest.fixture(scope="module")
def minimal():
    spec = importlib.util.spec_from_file_location("minimal_example", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("spread", [0.3, 3.0, 30.0])
def test_its_filter_is_the_separable_one(minimal, spread):
    random = torch.Generator().manual_seed(0)
    points, values, grad = (
        torch.randn(300, 2, size, generator=random, dtype=torch.float64) for size in (4, 3, 3)
    )
    points = (spread * points).requires_grad_()
    values.requires_grad_()
    ours = minimal.global_attention(points, values)
    library = phgcn.global_attention(points, values, decay=1.0, method=phgcn.lattice.Separable())
    torch.testing.assert_close(ours, library, rtol=0, atol=1e-13)
    for one, other in zip(
        *(torch.autograd.grad(out, (points, values), grad) for out in (ours, library)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_it_stands_alone_and_fits_in_two_hundred_lines():
    text = FILE.read_text(encoding="utf-8")
    assert "import phgcn" not in text and "from phgcn" not in text and len(text.splitlines()) <= 200


@needs("cora")
def test_its_network_learns_cora(minimal, threads):
    threads(1)
    assert minimal.train(epochs=20) > 0.75 > 2 * MAJORITY
