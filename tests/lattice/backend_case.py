"""What every backend must do, as test classes to inherit: a backend gives only its name."""

from functools import lru_cache

import pytest
import torch
from clouds import KINDS, applied, dense_exact, normal, relative, schemes

from phgcn import global_attention, permutohedral_filter
from phgcn.crossings import EXACT_PAIRS

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}


def attention_and_mass(*inputs, **options):
    """The output of global attention, and behind its channels the mass."""
    out, mass = global_attention(*inputs, **options, return_mass=True)
    return torch.cat([out, mass.unsqueeze(-1)], dim=-1)


class BackendCase:
    """Against sums written out as matrices, and against finite differences."""

    backend: str
    device = "cpu"
    count = 60
    slow = False
    """Whether to check gradients along one direction of all inputs together, in turns with queries
    and without: for Triton's interpreter."""

    @pytest.mark.parametrize("normalise", [True, False])
    @pytest.mark.parametrize("dim", [1, 2, 3, 4, 6])
    def test_exact_is_the_dense_sum(self, dim, normalise):
        points, values = (
            normal(40, dim, seed=1).requires_grad_(),
            normal(40, 3, seed=2).requires_grad_(),
        )
        decay, cotangent = (
            torch.tensor(1.7, dtype=torch.float64, requires_grad=True),
            normal(40, 3, seed=3),
        )
        call = global_attention if normalise else permutohedral_filter
        got = call(points, values, decay=decay, method="exact", backend=self.backend)
        want = applied(dense_exact(decay * points, decay * points), values, normalise)
        inputs = (points, values, decay)
        assert relative(got, want) < 1e-12
        for a, b in zip(grads(got, cotangent, inputs), grads(want, cotangent, inputs), strict=True):
            assert relative(a, b) < 1e-11

    @pytest.mark.parametrize("kind", ["near field", "separable"])
    def test_the_mass_of_queries_out_of_reach(self, kind):
        """Without keys it is minus infinity, without a gradient; far from them it falls with the
        distance.
        """
        inputs = [normal(9, 1, seed=4), normal(9, 3, seed=5), normal(4, 1, seed=6)]
        inputs[2][2] += 3000
        inputs = [t.to(self.device).requires_grad_() for t in inputs]
        batch, query_batch = torch.tensor([0] * 5 + [2] * 4), torch.tensor([0, 1, 2, 2])
        points = {
            "queries": inputs[2],
            "batch": batch.to(self.device),
            "query_batch": query_batch.to(self.device),
        }
        options = {
            "decay": 1.0,
            "method": schemes(1)[kind],
            "backend": self.backend,
            "return_mass": True,
        }
        _, mass = global_attention(*inputs[:2], **points, **options)
        assert bool(mass[1] == -torch.inf)
        _, exact = global_attention(*inputs[:2], **points, **{**options, "method": "exact"})
        assert mass[2].item() == pytest.approx(exact[2].item(), abs=0.5)
        of_positions, of_queries = torch.autograd.grad(mass, inputs[::2], torch.ones_like(mass))
        assert not of_queries[1].any() and of_queries[[0, 3]].all()
        assert of_queries[2].item() == pytest.approx(-1.0, abs=0.01)
        assert of_positions.isfinite().all()

    def test_auto_gives_the_mass_of_each_graph_by_its_own_method(self, monkeypatch):
        monkeypatch.setitem(
            EXACT_PAIRS, torch.device(self.device).type, dict.fromkeys(range(1, 9), 80)
        )
        batch = torch.tensor([0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0])  # 11 and 5 points
        inputs = [
            t.to(self.device).requires_grad_()
            for t in (normal(16, 1, seed=4), normal(16, 3, seed=5))
        ]
        options = {"decay": 1.0, "backend": self.backend}
        got = attention_and_mass(*inputs, batch=batch.to(self.device), **options)
        cotangent = normal(16, 4, seed=6).to(self.device)
        gots = got, *torch.autograd.grad(got, inputs, cotangent)
        for graph, method in enumerate(("lattice", "exact")):
            alone = (batch == graph).to(self.device)
            given = [t.detach()[alone].requires_grad_() for t in inputs]
            want = attention_and_mass(*given, **options, method=method)
            for a, b in zip(
                gots, (want, *torch.autograd.grad(want, given, cotangent[alone])), strict=True
            ):
                assert torch.equal(a[alone], b)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("dim", [1, 2, 4])
    def test_gradients_are_the_true_derivatives(self, dim, kind):
        self.check_gradients(schemes(dim)[kind], dim, global_attention)

    @pytest.mark.parametrize("kind", ["exact", "near field", "separable"])
    def test_gradients_of_the_plain_sum_are_true(self, kind):
        self.check_gradients(schemes(2)[kind], 2, permutohedral_filter)

    @pytest.mark.parametrize("kind", ["exact", "near field", "separable"])
    def test_gradients_of_the_mass_are_true(self, kind):
        self.check_gradients(schemes(2)[kind], 2, attention_and_mass)

    def check_gradients(self, scheme, dim, call):
        points, values = normal(8, 2, dim, seed=7), normal(8, 2, 2, seed=8)
        decay = torch.tensor([0.7, 1.2], dtype=torch.float64)
        batch = torch.tensor([1, 0, 1, 1, 0, 1, 0, 1], device=self.device)

        def itself(points, values, decay):
            return call(
                points, values, decay=decay, batch=batch, method=scheme, backend=self.backend
            )

        def across(points, values, queries):
            return call(
                points, values, queries=queries, decay=0.8, method=scheme, backend=self.backend
            )

        cases = [
            (itself, (points, values, decay)),
            (across, (points, values, normal(3, 2, dim, seed=9))),
        ]
        for function, inputs in [cases[dim % 2]] if self.slow else cases:
            inputs = [t.clone().to(self.device).requires_grad_() for t in inputs]
            if self.slow:
                check_one_direction(function, inputs)
                continue
            # Each derivative alone where that is quick, else along one random direction for each
            # input.
            fast = dim != 2 or self.backend == "reference"
            assert torch.autograd.gradcheck(function, inputs, atol=1e-6, rtol=1e-4, fast_mode=fast)


class KernelCase(BackendCase):
    """Also against the reference, for every backend but that."""

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("dim", [1, 2, 3, 4])
    def test_agrees_with_the_reference(self, dim, kind, dtype):
        self.compare(dim, kind, dtype)

    @pytest.mark.parametrize("kind", KINDS)
    def test_agrees_on_the_plain_sum(self, kind):
        self.compare(2, kind, torch.float64, permutohedral_filter)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    @pytest.mark.parametrize("kind", ["exact", "near field", "separable"])
    def test_agrees_on_the_mass(self, kind, dtype):
        self.compare(3, kind, dtype, attention_and_mass)

    @pytest.mark.parametrize("dim", [5, 6])
    @pytest.mark.parametrize("kind", ["near field", "separable"])
    def test_agrees_in_high_dimensions(self, kind, dim):
        self.compare(dim, kind, torch.float64, count=9)

    def compare(self, dim, kind, dtype, call=global_attention, count=21):
        for across in (False, True):
            wanted = call_and_grads(
                "reference", "cpu", torch.float64, dim, kind, call, count, across
            )
            found = call_and_grads(self.backend, self.device, dtype, dim, kind, call, count, across)
            for got, want in zip(found, wanted, strict=True):
                assert got.dtype == dtype
                assert relative(got.cpu(), want) < TOLERANCE[dtype]


@lru_cache(maxsize=8)
def call_and_grads(backend, device, dtype, dim, kind, call, count, across):
    """The output and the gradients of all inputs: two heads, three graphs in no order, with or
    without queries.
    """
    shapes = [(count, 2, dim), (count, 2, 3), (7, 2, dim)][: 2 + across]
    # Rounded to float32, so that both types see the same points.
    inputs = [
        normal(*shape, seed=seed, dtype=torch.float32).to(dtype)
        for seed, shape in enumerate(shapes, start=11)
    ]
    inputs = [t.to(device) for t in (*inputs, torch.tensor([1.5, 0.75], dtype=dtype))]
    points, values, *queries, decay = [t.requires_grad_() for t in inputs]
    asked = (
        {"queries": queries[0], "query_batch": torch.tensor([2, 0, 1, 0, 2, 1, 1], device=device)}
        if across
        else {}
    )
    batch = (torch.arange(count) * 7 % 5 % 3).to(device)
    out = call(
        points,
        values,
        decay=decay,
        batch=batch,
        **asked,
        method=schemes(dim)[kind],
        backend=backend,
    )
    return out, *grads(out, normal(*out.shape, seed=14, dtype=dtype).to(device), inputs)


def check_one_direction(function, inputs, step=1e-6):
    """Compares gradients with the difference quotient along one random direction of all inputs
    together.
    """
    out = function(*inputs)
    cotangent, direction = (
        normal(*out.shape, seed=21),
        [normal(*t.shape, seed=22 + k) for k, t in enumerate(inputs)],
    )
    slope = sum(
        (g * d).sum() for g, d in zip(grads(out, cotangent, inputs), direction, strict=True)
    )
    with torch.no_grad():
        ahead, behind = (
            (
                function(*(t + sign * step * d for t, d in zip(inputs, direction, strict=True)))
                * cotangent
            ).sum()
            for sign in (1, -1)
        )
    torch.testing.assert_close(slope, (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-6)


def grads(out, cotangent, inputs):
    return torch.autograd.grad(out, inputs, cotangent)
