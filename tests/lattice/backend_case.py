"""What every backend must do, as test classes to inherit: a backend gives only its name."""

from functools import lru_cache
from itertools import product

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


FITTING = ("near field", "separable")
CALLS = {"output": global_attention, "mass": attention_and_mass, "sum": permutohedral_filter}


class BackendCase:
    """Against the sum written out as a matrix, and against the exact mass."""

    backend: str

    @pytest.mark.parametrize("normalise", [True, False])
    @pytest.mark.parametrize("dim", [1, 3])
    def test_exact_is_the_dense_sum_of_scaled_positions(self, dim, normalise):
        points, values = (normal(40, w, seed=w).requires_grad_() for w in (dim, 4))
        decay = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
        call = global_attention if normalise else permutohedral_filter
        got = call(points, values, decay=decay, method="exact", backend=self.backend)
        want = applied(dense_exact(decay * points, decay * points), values, normalise)
        inputs = (points, values, decay)
        for a, b in zip(*(with_grads(out, inputs) for out in (got, want)), strict=True):
            assert relative(a, b) < 1e-11

    @pytest.mark.parametrize("kind", ["near field", "separable"])
    def test_the_mass_of_queries_out_of_reach(self, kind):
        """Without keys it is minus infinity, without a gradient; far from them it falls with the
        distance.
        """
        inputs = [normal(9, 1, seed=4), normal(9, 3, seed=5), normal(4, 1, seed=6)]
        inputs[2][2] += 3000
        points, values, queries = (t.requires_grad_() for t in inputs)
        graphs = {
            "batch": torch.tensor([0] * 5 + [2] * 4),
            "query_batch": torch.tensor([0, 1, 2, 2]),
        }
        options = {"queries": queries, **graphs, "decay": 1.0, "backend": self.backend}
        (_, mass), (_, exact) = (
            global_attention(points, values, method=m, **options, return_mass=True)
            for m in (schemes(1)[kind], "exact")
        )
        assert bool(mass[1] == -torch.inf)
        assert mass[2].item() == pytest.approx(exact[2].item(), abs=0.5)
        of_positions, of_queries = torch.autograd.grad(
            mass, (points, queries), torch.ones_like(mass)
        )
        assert not of_queries[1].any() and of_queries[[0, 3]].all()
        assert of_queries[2].item() == pytest.approx(-1.0, abs=0.01)
        assert of_positions.isfinite().all()

    def test_auto_gives_the_mass_of_each_graph_by_its_own_method(self, monkeypatch):
        monkeypatch.setitem(EXACT_PAIRS, "cpu", dict.fromkeys(range(1, 9), 80))
        batch = torch.tensor([0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0])  # 11 and 5 points
        inputs = [normal(16, 1, seed=4).requires_grad_(), normal(16, 3, seed=5).requires_grad_()]
        options = {"decay": 1.0, "backend": self.backend}
        cotangent = normal(16, 4, seed=6)
        got = with_grads(attention_and_mass(*inputs, batch=batch, **options), inputs, cotangent)
        for graph, method in enumerate(("lattice", "exact")):
            alone = batch == graph
            given = [t.detach()[alone].requires_grad_() for t in inputs]
            want = attention_and_mass(*given, **options, method=method)
            for a, b in zip(got, with_grads(want, given, cotangent[alone]), strict=True):
                assert torch.equal(a[alone], b)


class KernelCase(BackendCase):
    """Also against the reference, for every backend but that."""

    @pytest.mark.parametrize("call", CALLS)
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("dim", [1, 2, 3])
    def test_outputs_and_gradients_are_those_of_the_reference(self, dim, kind, call):
        self.compare(dim, kind, call)

    @pytest.mark.parametrize(
        "dim, count, kind",
        [(4, 15, kind) for kind in KINDS] + [(d, 6, k) for d in (5, 6) for k in FITTING],
    )
    def test_it_agrees_in_high_dimensions(self, dim, count, kind):
        self.compare(dim, kind, "mass", count)

    def compare(self, dim, kind, call, count=21):
        for across, dtype in product((False, True), TOLERANCE):
            given = dim, kind, call, count, across
            wanted = call_and_grads("reference", torch.float64, *given)
            for got, want in zip(call_and_grads(self.backend, dtype, *given), wanted, strict=True):
                assert got.dtype == dtype
                assert relative(got, want) < TOLERANCE[dtype]


@lru_cache(maxsize=8)
def call_and_grads(backend, dtype, dim, kind, call, count, across):
    """The output and the gradients of all inputs: two heads, three graphs in no order, with or
    without queries; keys have weights, a third of them 0, where the mass is asked for.
    """
    shapes = {"positions": (count, 2, dim), "values": (count, 2, 3), "queries": (7, 2, dim)}
    # Rounded to float32, so that both types see the same points.
    inputs = {
        name: normal(*shape, seed=seed, dtype=torch.float32).to(dtype)
        for seed, (name, shape) in enumerate(shapes.items(), start=11)
        if across or name != "queries"
    }
    inputs["decay"] = torch.tensor([1.5, 0.75], dtype=dtype)
    if call == "mass":
        inputs["weights"] = (normal(count, 2, seed=15, dtype=torch.float32).tanh() + 1).to(dtype)
        inputs["weights"][::3] = 0
    graphs = {"batch": torch.arange(count) * 7 % 5 % 3}
    if across:
        graphs["query_batch"] = torch.tensor([2, 0, 1, 0, 2, 1, 1])
    inputs = {name: t.requires_grad_() for name, t in inputs.items()}
    out = CALLS[call](**inputs, **graphs, method=schemes(dim)[kind], backend=backend)
    return with_grads(out, list(inputs.values()))


def with_grads(out, inputs, cotangent=None):
    cotangent = normal(*out.shape, seed=14, dtype=out.dtype) if cotangent is None else cotangent
    return [out.detach(), *torch.autograd.grad(out, inputs, cotangent)]
