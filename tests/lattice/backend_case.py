"""What every backend must do, as test classes to inherit: a backend gives only its name."""

from dataclasses import replace
from functools import lru_cache

import pytest
import torch
from clouds import FULL, KINDS, applied, dense_exact, dense_lattice, normal, relative, schemes, with_cells

from phgcn import functional, global_attention, permutohedral_filter
from phgcn.lattice import lone, nested
from phgcn.lattice.levels import FLOOR
from phgcn.lattice.scheme import named_scheme

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
    """Whether to check gradients along one direction of all inputs together, in turns with queries and without: for Triton's
    interpreter."""

    @pytest.mark.parametrize("normalise", [True, False])
    @pytest.mark.parametrize("dim", [1, 2, 3, 4, 6])
    def test_exact_is_the_dense_sum(self, dim, normalise):
        points, values = normal(40, dim, seed=1).requires_grad_(), normal(40, 3, seed=2).requires_grad_()
        decay, cotangent = torch.tensor(1.7, dtype=torch.float64, requires_grad=True), normal(40, 3, seed=3)
        call = global_attention if normalise else permutohedral_filter
        got = call(points, values, decay=decay, method="exact", backend=self.backend)
        want = applied(dense_exact(decay * points, decay * points), values, normalise)
        inputs = (points, values, decay)
        assert relative(got, want) < 1e-12
        for a, b in zip(grads(got, cotangent, inputs), grads(want, cotangent, inputs), strict=True):
            assert relative(a, b) < 1e-11

    @pytest.mark.parametrize("kind", ["all levels", "near field", "wide near field", "two lattices"])
    @pytest.mark.parametrize("dim", [1, 2, 3, 4])
    def test_lattice_is_its_dense_matrix(self, dim, kind):
        shapes = {"positions": (self.count, dim), "values": (self.count, 3), "queries": (self.count // 2, dim)}
        inputs = {name: normal(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items(), start=4)}
        points, values, queries = inputs["positions"] * 2, inputs["values"], inputs["queries"] * 2
        scheme, asked = schemes(dim)[kind], queries.to(self.device)
        for itself, options in ((True, {}), (False, {"queries": asked})):
            given = points.to(self.device), values.to(self.device)
            got = permutohedral_filter(*given, **options, method=scheme, backend=self.backend)
            want = applied(dense_lattice(points if itself else queries, points, scheme, itself), values, False)
            assert relative(got.cpu(), want) < 1e-11

    @pytest.mark.parametrize("dim, kind", [(1, "near field"), (2, "two lattices")])
    def test_the_mass_is_the_log_of_the_dense_sum_of_weights(self, dim, kind):
        points, values, queries = (normal(*shape, seed=4) for shape in ((self.count, dim), (self.count, 3), (9, dim)))
        scheme = schemes(dim)[kind]
        for asked in (None, queries):
            given = [None if t is None else t.to(self.device) for t in (points, values, asked)]
            options = {"queries": given[2], "decay": 1.0, "method": scheme, "backend": self.backend}
            out, mass = global_attention(*given[:2], **options, return_mass=True)
            weight = dense_lattice(points if asked is None else asked, points, scheme, asked is None)
            assert relative(mass.cpu(), (weight.sum(dim=1) + (0 if asked is None else FLOOR)).log()) < 1e-11
            assert torch.equal(out, global_attention(*given[:2], **options))

    @pytest.mark.parametrize("kind", ["all levels", "two lattices"])
    def test_lone_points_are_summed_over_cells(self, kind, monkeypatch):
        """In a small cloud, with bounds to match: also their gradients, and those of the heavy points that they see."""
        for name, value in {"LONE": 0.2, "WIDER": 1.0, "HEAVY": 2.5, "WRONG": {1: (0.0, 0.0), 2: (0.0, 0.0)}}.items():
            monkeypatch.setattr(lone, name, value)
        points = torch.cat([0.7 * normal(24, 2, seed=1), 5 * normal(4, 2, seed=2) + 6]).requires_grad_()
        values, scheme = normal(28, 3, seed=3).requires_grad_(), schemes(2)[kind]
        weight = dense_lattice(points.detach(), points.detach(), scheme, True)
        mass = weight.sum(dim=1)
        is_lone, is_heavy = mass < 0.2 * mass.max(), mass >= 0.5 * mass.max()
        assert 0 < is_lone.sum() < (~is_heavy).sum() and is_heavy.sum() > 10
        weight = with_cells(weight, points, is_lone, is_heavy)
        given = [t.detach().to(self.device).requires_grad_() for t in (points, values)]
        got = attention_and_mass(*given, decay=1.0, method=scheme, backend=self.backend)
        want = torch.cat([applied(weight, values, True), weight.sum(dim=1).log().unsqueeze(1)], dim=1)
        assert relative(got.cpu(), want) < 1e-11
        cotangent = normal(28, 4, seed=4) * is_lone.unsqueeze(1)  # of the others' gradients other tests tell
        of_got, of_want = grads(got, cotangent.to(self.device), given), grads(want, cotangent, (points, values))
        for a, b in zip(of_got, of_want, strict=True):
            assert relative(a.cpu(), b) < 1e-10

    @pytest.mark.parametrize("pairs, of_ring", [(1, "lattice"), (2, "exact")])
    def test_a_core_is_filtered_on_levels_of_its_own(self, pairs, of_ring, monkeypatch):
        """In a small cloud, with bounds to match: the same as its parts, put together by hand.  A ring of four points is
        filtered, or summed exactly both ways."""
        monkeypatch.setattr(lone, "LONE", 0.05)
        points = torch.cat([0.01 * normal(20, 1, seed=1), torch.tensor([[1.8], [2.0], [-1.9], [-2.0]])])
        inputs = [t.to(self.device).requires_grad_() for t in (points, normal(24, 3, seed=2))]
        scheme = replace(named_scheme("lattice", 1), pairs=pairs)
        options = {"decay": 1.0, "method": scheme, "backend": self.backend}
        whole = attention_and_mass(*inputs, **options)
        core, far = ([t[part] for t in inputs] for part in (slice(20), slice(20, None)))
        if of_ring == "exact":
            exact = options | {"method": "exact"}
            from_far, of_far = (
                attention_and_mass(*far, queries=core[0], **exact),
                attention_and_mass(*inputs, queries=far[0], **exact),
            )
        else:
            from_far, of_far = attention_and_mass(*far, queries=core[0], **options), whole[20:]
        parts = attention_and_mass(*core, **options), from_far
        weights = [part[:, -1:].exp() for part in parts]
        mean = sum(weight * part[:, :-1] for weight, part in zip(weights, parts, strict=True)) / sum(weights)
        want = torch.cat([torch.cat([mean, sum(weights).log()], dim=1), of_far])
        monkeypatch.setattr(nested, "LEAST_POINTS", 24)
        monkeypatch.setattr(nested, "TRIMMED", 8)
        got, cotangent = attention_and_mass(*inputs, **options), normal(24, 4, seed=3).to(self.device)
        assert relative(whole, want) > 1e-3 and relative(got, want) < 1e-12
        for a, b in zip(grads(got, cotangent, inputs), grads(want, cotangent, inputs), strict=True):
            assert relative(a, b) < 1e-11

    @pytest.mark.parametrize("kind", ["near field", "separable"])
    def test_the_mass_of_queries_out_of_reach(self, kind):
        """Without keys it is minus infinity, without a gradient; far from them it falls with the distance."""
        inputs = [normal(9, 1, seed=4), normal(9, 3, seed=5), normal(4, 1, seed=6)]
        inputs[2][2] += 3000
        inputs = [t.to(self.device).requires_grad_() for t in inputs]
        batch, query_batch = torch.tensor([0] * 5 + [2] * 4), torch.tensor([0, 1, 2, 2])
        points = {"queries": inputs[2], "batch": batch.to(self.device), "query_batch": query_batch.to(self.device)}
        options = {"decay": 1.0, "method": schemes(1)[kind], "backend": self.backend, "return_mass": True}
        _, mass = global_attention(*inputs[:2], **points, **options)
        assert bool(mass[1] == -torch.inf)
        _, exact = global_attention(*inputs[:2], **points, **{**options, "method": "exact"})
        assert mass[2].item() == pytest.approx(exact[2].item(), abs=0.5)
        of_positions, of_queries = torch.autograd.grad(mass, inputs[::2], torch.ones_like(mass))
        assert not of_queries[1].any() and of_queries[[0, 3]].all()
        assert of_queries[2].item() == pytest.approx(-1.0, abs=0.01)
        assert of_positions.isfinite().all()

    def test_auto_gives_the_mass_of_each_graph_by_its_own_method(self, monkeypatch):
        monkeypatch.setitem(functional.EXACT_PAIRS, torch.device(self.device).type, 80)
        batch = torch.tensor([0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0])  # 11 and 5 points
        inputs = [t.to(self.device).requires_grad_() for t in (normal(16, 1, seed=4), normal(16, 3, seed=5))]
        options = {"decay": 1.0, "backend": self.backend}
        got = attention_and_mass(*inputs, batch=batch.to(self.device), **options)
        cotangent = normal(16, 4, seed=6).to(self.device)
        gots = got, *torch.autograd.grad(got, inputs, cotangent)
        for graph, method in enumerate(("lattice", "exact")):
            alone = (batch == graph).to(self.device)
            given = [t.detach()[alone].requires_grad_() for t in inputs]
            want = attention_and_mass(*given, **options, method=method)
            for a, b in zip(gots, (want, *torch.autograd.grad(want, given, cotangent[alone])), strict=True):
                assert torch.equal(a[alone], b)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("dim", [1, 2, 4])
    def test_gradients_are_the_true_derivatives(self, dim, kind):
        self.check_gradients(schemes(dim)[kind], dim, global_attention)

    @pytest.mark.parametrize("kind", ["exact", "near field", "separable"])
    def test_gradients_of_the_plain_sum_are_true(self, kind):
        self.check_gradients(schemes(2)[kind], 2, permutohedral_filter)

    @pytest.mark.parametrize("kind", ["exact", "near field", "two lattices", "separable"])
    def test_gradients_of_the_mass_are_true(self, kind):
        self.check_gradients(schemes(2)[kind], 2, attention_and_mass)

    def test_gradients_of_the_full_stencil_are_true(self):
        self.check_gradients(FULL, 2, global_attention)

    def check_gradients(self, scheme, dim, call):
        points, values = normal(8, 2, dim, seed=7), normal(8, 2, 2, seed=8)
        decay = torch.tensor([0.7, 1.2], dtype=torch.float64)
        batch = torch.tensor([1, 0, 1, 1, 0, 1, 0, 1], device=self.device)

        def itself(points, values, decay):
            return call(points, values, decay=decay, batch=batch, method=scheme, backend=self.backend)

        def across(points, values, queries):
            return call(points, values, queries=queries, decay=0.8, method=scheme, backend=self.backend)

        cases = [(itself, (points, values, decay)), (across, (points, values, normal(3, 2, dim, seed=9)))]
        for function, inputs in [cases[dim % 2]] if self.slow else cases:
            inputs = [t.clone().to(self.device).requires_grad_() for t in inputs]
            if self.slow:
                check_one_direction(function, inputs)
                continue
            # Each derivative alone where that is quick, else along one random direction for each input.
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
    @pytest.mark.parametrize("kind", ["exact", "wide near field", "separable"])
    def test_agrees_on_the_mass(self, kind, dtype):
        self.compare(3, kind, dtype, attention_and_mass)

    @pytest.mark.parametrize("dim", [5, 6])
    @pytest.mark.parametrize("kind", ["wide near field", "separable"])
    def test_agrees_in_high_dimensions(self, kind, dim):
        self.compare(dim, kind, torch.float64, count=9)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_agrees_on_the_full_stencil(self, dtype):
        self.compare(4, "full", dtype, count=18)

    def compare(self, dim, kind, dtype, call=global_attention, count=21):
        for across in (False, True):
            wanted = call_and_grads("reference", "cpu", torch.float64, dim, kind, call, count, across)
            found = call_and_grads(self.backend, self.device, dtype, dim, kind, call, count, across)
            for got, want in zip(found, wanted, strict=True):
                assert got.dtype == dtype
                assert relative(got.cpu(), want) < TOLERANCE[dtype]


@lru_cache(maxsize=8)
def call_and_grads(backend, device, dtype, dim, kind, call, count, across):
    """The output and the gradients of all inputs: two heads, three graphs in no order, with or without queries."""
    shapes = [(count, 2, dim), (count, 2, 3), (7, 2, dim)][: 2 + across]
    # Rounded to float32, so that both types see the same points.
    inputs = [normal(*shape, seed=seed, dtype=torch.float32).to(dtype) for seed, shape in enumerate(shapes, start=11)]
    inputs = [t.to(device) for t in (*inputs, torch.tensor([1.5, 0.75], dtype=dtype))]
    points, values, *queries, decay = [t.requires_grad_() for t in inputs]
    asked = {"queries": queries[0], "query_batch": torch.tensor([2, 0, 1, 0, 2, 1, 1], device=device)} if across else {}
    scheme = FULL if kind == "full" else schemes(dim)[kind]
    batch = (torch.arange(count) * 7 % 5 % 3).to(device)
    out = call(points, values, decay=decay, batch=batch, **asked, method=scheme, backend=backend)
    return out, *grads(out, normal(*out.shape, seed=14, dtype=dtype).to(device), inputs)


def check_one_direction(function, inputs, step=1e-6):
    """Compares gradients with the difference quotient along one random direction of all inputs together."""
    out = function(*inputs)
    cotangent, direction = normal(*out.shape, seed=21), [normal(*t.shape, seed=22 + k) for k, t in enumerate(inputs)]
    slope = sum((g * d).sum() for g, d in zip(grads(out, cotangent, inputs), direction, strict=True))
    with torch.no_grad():
        ahead, behind = (
            (function(*(t + sign * step * d for t, d in zip(inputs, direction, strict=True))) * cotangent).sum()
            for sign in (1, -1)
        )
    torch.testing.assert_close(slope, (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-6)


def grads(out, cotangent, inputs):
    return torch.autograd.grad(out, inputs, cotangent)
