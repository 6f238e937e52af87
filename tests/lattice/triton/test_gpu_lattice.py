"""The lattice in Triton: in its interpreter on the CPU, and, where there is one, on a GPU."""

import pytest
import torch
from clouds import FULL, KINDS, forced, normal, schemes
from lattice_case import LatticeCase, cloud, quick

from phgcn import global_attention
from phgcn.lattice import Separable
from phgcn.lattice.ops import choose_backend
from phgcn.lattice.scheme import encode

pytest.importorskip("triton")
from triton.runtime import interpreter

from phgcn.kernels.triton import INTERPRETED

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
interpreted = pytest.mark.skipif(not INTERPRETED, reason="Triton compiles for the GPU here: TRITON_INTERPRET is not 1")


@interpreted
class TestInterpreted(LatticeCase):
    device = "cpu"

    # Kernels look at each target of a near field on their own, which takes the interpreter long: few points.
    @pytest.mark.parametrize("dim, level, asked", [(1, 4, 4), (2, 4, 0), (2, 4, 4), (4, 3, 0), (5, 3, 3)])
    def test_the_near_field_agrees_with_the_reference(self, dim, level, asked):
        self.compare(forced("lattice", dim, level), cloud(dim, count=7, asked=asked, channels=2, spread=2.0))

    def test_gradients_are_the_true_derivatives(self):
        points, values = normal(5, 1, seed=7), normal(5, 2, seed=8)
        inputs = [t.requires_grad_() for t in (points, values)]

        def attend(points, values):
            return global_attention(points, values, decay=0.8, method=quick(1), backend="triton")

        assert torch.autograd.gradcheck(attend, inputs, atol=1e-6, rtol=1e-4, fast_mode=True)

    @pytest.mark.parametrize("scheme, most", [(Separable(), 12), (quick(2), 18)])
    def test_small_clouds_take_few_launches(self, monkeypatch, scheme, most):
        """On a GPU the host takes longer to launch the kernels of a small cloud than the device to run them."""
        launched = []
        run = interpreter.InterpretedFunction.run

        def noted(self, *given, **named):
            launched.append(self.fn.__name__)
            return run(self, *given, **named)

        monkeypatch.setattr(interpreter.InterpretedFunction, "run", noted)
        global_attention(normal(9, 2, seed=1), normal(9, 2, seed=2), method=scheme, backend="triton")
        assert 0 < len(launched) <= most, launched

    def test_ops_keep_the_rules_of_torch(self):
        p, f = normal(4, 2, 1, seed=1).requires_grad_(), normal(4, 2, 2, seed=2).requires_grad_()
        given = (p, f, torch.tensor([0, 1, 1, 0]), None, None, encode(quick(1)), True, "triton")
        torch.library.opcheck(torch.ops.phgcn.filter.default, given)
        given = (p.detach(), f.detach(), *given[2:])
        out, norm = torch.ops.phgcn.filter(*given)
        torch.library.opcheck(torch.ops.phgcn.filter_backward.default, (torch.ones_like(out), out, norm, *given))


@cuda
class TestCuda(LatticeCase):
    device = "cuda"

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    @pytest.mark.parametrize("asked", [0, 7])
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("dim", [1, 2, 3, 4])
    def test_agrees_with_the_reference(self, dim, kind, asked, dtype):
        self.compare(schemes(dim)[kind], cloud(dim, count=21, asked=asked), dtype)

    @pytest.mark.parametrize("dim", [5, 6])
    @pytest.mark.parametrize("kind", ["wide near field", "separable"])
    def test_agrees_in_high_dimensions(self, kind, dim):
        self.compare(schemes(dim)[kind], cloud(dim, count=9))

    def test_agrees_on_the_full_stencil(self):
        self.compare(FULL, cloud(4, count=18))

    @pytest.mark.parametrize("method", ["auto", "exact", "lattice", "lattice-fine", "separable"])
    @pytest.mark.parametrize("across", [False, True])
    def test_runs_change_no_bit(self, method, across):
        given = cloud(3, count=9000, asked=8000 * across)
        first, again = (self.run(torch.float32, global_attention, method, *given) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_auto_is_triton_on_a_gpu():
    assert choose_backend("auto", torch.device("cuda")) == "triton"


def test_triton_is_refused_off_the_gpu(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match='backend is "triton", but positions are on cpu; allowed: "auto", "reference"'):
        choose_backend("triton", torch.device("cpu"))
