"""The lattice in Triton: in its interpreter on the CPU, and, where there is one, on a GPU."""

import pytest
import torch
from backend_case import KernelCase, attention_and_mass
from clouds import forced, normal, schemes
from lattice_case import LatticeCase, cloud, quick, set_widths

from phgcn import global_attention, permutohedral_filter
from phgcn.lattice import Separable
from phgcn.lattice.scheme import encode
from phgcn.runtime.backend import choose_backend

pytest.importorskip("triton")
from triton.runtime import interpreter

from phgcn.runtime.triton import INTERPRETED

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
interpreted = pytest.mark.skipif(not INTERPRETED, reason="Triton compiles for the GPU here: TRITON_INTERPRET is not 1")


@interpreted
class TestInterpretedBackend(KernelCase):
    """What every backend must do.  The interpreter is slow, most of all in near fields: small clouds, and of the many
    dimensions and kinds of filters some, each at least once.  The exact sum is tested in ``tests/exact``."""

    backend, slow, count = "triton", True, 8
    test_exact_is_the_dense_sum = None
    test_gradients_of_the_full_stencil_are_true = None
    test_agrees_on_the_full_stencil = None

    @pytest.mark.parametrize("dim, kind", [(1, "two lattices"), (2, "wide near field")])
    def test_lattice_is_its_dense_matrix(self, dim, kind):
        super().test_lattice_is_its_dense_matrix(dim, kind)

    @pytest.mark.parametrize(
        "dim, scheme", [(1, forced("lattice", 1, 3)), (2, quick(2, lattices=2)), (3, Separable()), (4, quick(4))]
    )
    def test_gradients_are_the_true_derivatives(self, dim, scheme):
        self.check_gradients(scheme, dim, global_attention)

    @pytest.mark.parametrize("kind", ["wide near field"])
    def test_gradients_of_the_plain_sum_are_true(self, kind):
        self.check_gradients(schemes(1)[kind], 1, permutohedral_filter)

    @pytest.mark.parametrize("dim, kind", [(1, "near field")])
    def test_the_mass_is_the_log_of_the_dense_sum_of_weights(self, dim, kind):
        super().test_the_mass_is_the_log_of_the_dense_sum_of_weights(dim, kind)

    @pytest.mark.parametrize("dim, scheme", [(1, forced("lattice", 1, 1)), (2, quick(2, lattices=2)), (3, Separable())])
    def test_gradients_of_the_mass_are_true(self, dim, scheme):
        self.check_gradients(scheme, dim, attention_and_mass)

    @pytest.mark.parametrize("kind, dtype", [("separable", torch.float32)])
    def test_agrees_on_the_mass(self, kind, dtype):
        self.compare(2, kind, dtype, attention_and_mass, count=9)

    @pytest.mark.parametrize("dim, kind, dtype", [(3, "separable", torch.float32)])
    def test_agrees_with_the_reference(self, dim, kind, dtype):
        self.compare(dim, kind, dtype, count=9)

    @pytest.mark.parametrize("kind", ["separable"])
    def test_agrees_on_the_plain_sum(self, kind):
        self.compare(2, kind, torch.float64, permutohedral_filter, count=9)

    @pytest.mark.parametrize("dim, kind", [(5, "separable")])
    def test_agrees_in_high_dimensions(self, dim, kind):
        self.compare(dim, kind, torch.float64, count=5)


@interpreted
class TestInterpreted(LatticeCase):
    device = "cpu"

    @pytest.mark.parametrize("scheme, most", [(Separable(), 11), (quick(2), 19)])
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
        set_widths(quick(1), 1, self.which(), 0)  # as learned: a plan holds the width of keys, which must not change meanwhile
        p, f = normal(4, 2, 1, seed=1).requires_grad_(), normal(4, 2, 2, seed=2).requires_grad_()
        given = (p, f, None, torch.tensor([0, 1, 1, 0]), None, encode(quick(1)), True, -1, "triton")
        torch.library.opcheck(torch.ops.phgcn.filter.default, (*given, True))
        given = (p.detach(), f.detach(), *given[2:])
        out, norm, plan = torch.ops.phgcn.filter(*given, True)
        given = torch.ones_like(out), torch.ones_like(norm), out, norm, plan, *given
        torch.library.opcheck(torch.ops.phgcn.filter_backward.default, given)


@cuda
class TestCudaBackend(KernelCase):
    backend, device = "triton", "cuda"
    test_exact_is_the_dense_sum = None


@cuda
class TestCuda(LatticeCase):
    device = "cuda"

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
