"""Weights of keys, for every backend of exact attention; see :mod:`exact_case`."""

import pytest
import torch
from clouds import normal, relative
from exact_case import dense, dense_weights, leaves

from phgcn import global_attention, permutohedral_filter
from phgcn.runtime.points import Points


def some_weights(count, heads=2, dtype=torch.float64, seed=5):
    """Weights between 0 and 2, of which a third is 0."""
    weights = normal(count, heads, seed=seed, dtype=dtype).tanh() + 1
    weights[torch.arange(count) % 3 == 1] = 0
    return weights.requires_grad_()


class WeightCase:
    """Mixed into a subclass of :class:`exact_case.ExactCase`, which attends."""

    @pytest.mark.parametrize("across", [False, True])
    @pytest.mark.parametrize("batched", [False, True])
    def test_weights_are_factors_of_the_dense_softmax(self, batched, across):
        n, m = self.count, self.count // 2
        inputs = leaves((n, 2, 2), (n, 2, 3), (m, 2, 2))[: 2 + across]
        batch, query_batch = (
            (torch.arange(n) * 7 % 5 % 3, torch.arange(m) * 3 % 7 % 3) if batched else (None, None)
        )
        weights = some_weights(n)
        points = Points(
            *inputs, *(() if across else (None,)), batch, query_batch if across else None, weights
        )
        got = self.attend_with_mass(points)
        want = (
            dense(points, True),
            torch.stack([w.sum(dim=1).log() for w in dense_weights(points)], dim=1),
        )
        cotangents = [normal(*t.shape, seed=9 + k) for k, t in enumerate(want)]
        gots, wants = (torch.autograd.grad(t, (*inputs, weights), cotangents) for t in (got, want))
        wants = *wants[:-1], torch.where(weights > 0, wants[-1], 0.0)
        for a, b in zip((*got, *gots), (*want, *wants), strict=True):
            assert relative(a, b) < 1e-11

    def test_weights_in_float32_are_accurate(self):
        inputs = leaves((100, 1, 4), (100, 1, 40), dtype=torch.float32)
        weights = some_weights(100, 1, torch.float32)
        points = Points(*inputs, weights=weights)
        out, want = self.attend_with_mass(points)[0], dense(points, True)
        cotangent = normal(*out.shape, seed=9)
        gots, wants = (
            torch.autograd.grad(t, (*inputs, weights), cotangent.to(t)) for t in (out, want)
        )
        wants = *wants[:-1], torch.where(weights > 0, wants[-1], 0.0)
        for a, b in zip((out, *gots), (want, *wants), strict=True):
            assert relative(a, b) < 2e-5

    def test_nobody_attends_to_a_point_of_weight_zero(self):
        """Exactly: a number that would show in any rounding does not, and all derivatives by it are
        0.
        """
        weights = some_weights(30, 1).detach()
        positions, values = leaves((30, 1, 2), (30, 1, 3), dtype=torch.float32)
        nobody = weights[:, 0] == 0
        found = []
        for size in (1.0, 1e30):
            scaled = torch.where(nobody[:, None, None], size * values, values)
            out, mass = self.attend_with_mass(Points(positions, scaled, weights=weights.float()))
            (grad,) = torch.autograd.grad(out.square().sum(), values)
            assert not grad[nobody].any() and grad[~nobody].any()
            found.append((out, mass))
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))

    def test_a_query_far_from_all_keys_of_positive_weight_attends_to_the_nearest_of_them(self):
        """It is itself a key of weight 0, and so is another beside it."""
        positions = torch.tensor(
            [[0.0, 0.0], [1.0, 0.0], [2000.0, 0.0], [2000.5, 0.0]], dtype=torch.float64
        )
        values = torch.tensor([[1.0], [2.0], [3.0], [4.0]], dtype=torch.float64)
        weights = torch.tensor([2.0, 1.0, 0.0, 0.0], dtype=torch.float64)
        out, mass = self.attend_with_mass(
            Points(positions[:, None], values[:, None], weights=weights[:, None])
        )
        share = torch.softmax(torch.tensor([2.0, 1.0]).log() - torch.tensor([1.0, 0.0]), dim=0)
        torch.testing.assert_close(
            out.flatten()[2:],
            (share @ torch.tensor([1.0, 2.0])).double().expand(2),
            rtol=1e-6,
            atol=0,
        )
        want = -1999.0 + torch.tensor(1 + 2 * torch.e**-1, dtype=torch.float64).log()
        torch.testing.assert_close(mass.flatten()[2], want)

    @pytest.mark.parametrize("across", [False, True])
    def test_a_graph_whose_weights_are_all_zero_is_one_without_keys(self, across):
        positions, values, queries = leaves((9, 1, 2), (9, 1, 3), (4, 1, 2))
        batch, weights = (
            torch.arange(9) % 2,
            (torch.arange(9.0, dtype=torch.float64) % 2).unsqueeze(1).requires_grad_(),
        )
        asked = (queries, batch, torch.tensor([0, 1, 1, 0])) if across else (None, batch, None)
        out, mass = self.attend_with_mass(Points(positions, values, *asked, weights))
        empty = (asked[2] if across else batch) == 0
        assert (
            not out[empty].any()
            and bool((mass[empty] == -torch.inf).all())
            and mass[~empty].isfinite().all()
        )
        leaf = (positions, values, weights, *((queries,) if across else ()))
        assert all(
            g.isfinite().all() for g in torch.autograd.grad(out.sum() + mass[~empty].sum(), leaf)
        )

    @pytest.mark.parametrize("dim", [1, 3])
    def test_gradients_with_weights_are_the_true_derivatives(self, dim):
        inputs = [
            t.detach().contiguous().requires_grad_()
            for t in leaves((8, 2, dim), (8, 2, 2), (3, 2, dim))
        ]
        weights = (normal(8, 2, seed=7).abs() + 0.1).requires_grad_()

        def itself(positions, values, weights):
            return self.attend_with_mass(Points(positions, values, weights=weights))

        def across(positions, values, queries, weights):
            return self.attend_with_mass(Points(positions, values, queries, weights=weights))

        assert torch.autograd.gradcheck(
            itself, (*inputs[:2], weights), atol=1e-7, rtol=1e-5, fast_mode=True
        )
        assert torch.autograd.gradcheck(
            across, (*inputs, weights), atol=1e-7, rtol=1e-5, fast_mode=True
        )

    def test_with_weights_a_batch_is_its_graphs_one_by_one_to_the_bit(self):
        n = self.count
        inputs, weights, batch = (
            leaves((n, 2, 3), (n, 2, 5), dtype=torch.float32),
            some_weights(n).float(),
            torch.arange(n) % 3,
        )
        together = self.attend_with_mass(Points(*inputs, None, batch, None, weights))
        for graph in range(3):
            mine = batch == graph
            alone = self.attend_with_mass(Points(*(t[mine] for t in inputs), weights=weights[mine]))
            assert all(torch.equal(a[mine], b) for a, b in zip(together, alone, strict=True))

    def test_sums_take_weights(self):
        inputs, weights = leaves((20, 2, 3), (20, 2, 5)), some_weights(20)
        there = [t.detach().to(self.device) for t in (*inputs, weights)]
        out = permutohedral_filter(
            *there[:2], weights=there[2], method="exact", backend=self.backend
        ).cpu()
        assert relative(out, dense(Points(*inputs, weights=weights), False)) < 1e-11

    def test_a_compiled_graph_with_weights_equals_eager(self):
        positions, values = (t.detach().to(self.device) for t in leaves((30, 2, 2), (30, 2, 3)))
        weights = some_weights(30).detach().to(self.device)

        def call(positions, values, weights):
            return global_attention(
                positions, values, decay=1.0, weights=weights, method="exact", backend=self.backend
            )

        torch.compiler.reset()
        compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(positions, values, weights), call(positions, values, weights))
