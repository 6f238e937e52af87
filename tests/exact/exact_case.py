"""What every backend of exact attention must do, as a test class to inherit: a backend gives its
name and its device.
"""

import pytest
import torch
from clouds import dense_exact, normal, relative

from phgcn import global_attention
from phgcn.exact.ops import attend
from phgcn.runtime.graphs import ALL_PAIRS
from phgcn.runtime.points import Points


def leaves(*shapes, dtype=torch.float64, seed=1):
    """Tensors that want gradients, in memory that is not one block."""
    made = [
        normal(*shape[1:], shape[0], seed=seed + k, dtype=dtype).movedim(-1, 0)
        for k, shape in enumerate(shapes)
    ]
    return [t.detach().requires_grad_() for t in made]


def dense_weights(points, kernel="exponential"):
    """The weights of each head written out as matrices, in float64, 0 between graphs;
    differentiable.
    """
    positions, values, queries, batch, query_batch, weights = points
    targets = points.targets
    batch = torch.zeros(len(positions), dtype=torch.long) if batch is None else batch
    query_batch = (
        torch.zeros(len(targets), dtype=torch.long) if query_batch is None else query_batch
    )
    if queries is None:
        query_batch = batch
    together = query_batch[:, None] == batch[None, :]
    heads = range(values.size(1))
    factor = 1 if weights is None else weights.double()
    together = [together * (factor if weights is None else factor[:, h]) for h in heads]
    return [
        dense_exact(targets[:, h].double(), positions[:, h].double(), kernel) * together[h]
        for h in heads
    ]


def dense(points, normalise, kernel="exponential"):
    """The sums of each graph and head written out as matrices, in float64; differentiable."""
    heads = []
    for head, weight in enumerate(dense_weights(points, kernel)):
        total = weight.sum(dim=1, keepdim=True)
        total = torch.where(total > 0, total, 1.0) if normalise else 1.0
        heads.append(weight @ points.values[:, head].double() / total)
    return torch.stack(heads, dim=1)


class ExactCase:
    """Against sums written out as matrices, against finite differences, and against itself."""

    backend: str
    device = "cpu"
    count = 40
    """Points of a cloud: more than a tile has."""

    def attend(self, points, normalise=True, at_most=ALL_PAIRS, kernel="exponential"):
        """The output on the CPU, differentiable, of points that may be elsewhere."""
        there = Points(*(None if t is None else t.to(self.device) for t in points))
        return attend(there, normalise, self.backend, at_most, kernel).out.cpu()

    def attend_with_mass(self, points):
        """The output and the mass, differentiable."""
        positions, values, *others = (None if t is None else t.to(self.device) for t in points)
        asked = dict(zip(("queries", "batch", "query_batch", "weights"), others, strict=True))
        options = {"decay": 1.0, "method": "exact", "backend": self.backend, "return_mass": True}
        return tuple(t.cpu() for t in global_attention(positions, values, **asked, **options))

    def output_and_gradients(self, points, normalise=True, at_most=ALL_PAIRS, cotangent=None):
        inputs = [t for t in points[:3] if t is not None]
        out = self.attend(points, normalise, at_most)
        cotangent = normal(*out.shape, seed=9, dtype=out.dtype) if cotangent is None else cotangent
        return [out.detach(), *torch.autograd.grad(out, inputs, cotangent)]

    def compare_with_matrices(self, points, normalise, tolerance=1e-11):
        inputs = [t for t in points[:3] if t is not None]
        want = dense(points, normalise)
        wants = [want, *torch.autograd.grad(want, inputs, normal(*want.shape, seed=9))]
        for got, want in zip(self.output_and_gradients(points, normalise), wants, strict=True):
            assert got.dtype == points.values.dtype
            assert relative(got, want) < tolerance

    @pytest.mark.parametrize("normalise", [True, False])
    @pytest.mark.parametrize("dim, channels, heads", [(1, 3, 2), (2, 1, 1), (4, 20, 1), (6, 3, 1)])
    def test_points_that_attend_to_themselves_are_the_dense_softmax(
        self, dim, channels, heads, normalise
    ):
        n = self.count
        self.compare_with_matrices(
            Points(*leaves((n, heads, dim), (n, heads, channels))), normalise
        )

    @pytest.mark.parametrize("normalise", [True, False])
    def test_queries_that_attend_to_keys_are_the_dense_softmax(self, normalise):
        n = self.count
        self.compare_with_matrices(
            Points(*leaves((n, 2, 3), (n, 2, 5), (n // 2 + 1, 2, 3))), normalise
        )

    @pytest.mark.parametrize("normalise", [True, False])
    @pytest.mark.parametrize("across", [False, True])
    def test_graphs_in_any_order_are_the_dense_softmax(self, across, normalise):
        """Of one of them there are no queries, and of one no keys: its queries get 0."""
        n, m = self.count, self.count // 2
        inputs = leaves((n, 2, 2), (n, 2, 3), (m, 2, 2))
        batch, query_batch = torch.arange(n) * 7 % 5 % 3, torch.arange(m) * 7 % 5 % 3 * 2
        points = Points(*inputs, batch, query_batch) if across else Points(*inputs[:2], None, batch)
        self.compare_with_matrices(points, normalise)

    @pytest.mark.parametrize("batched", [False, True])
    @pytest.mark.parametrize("across", [False, True])
    def test_the_mass_is_the_log_of_the_dense_denominator(self, across, batched):
        """With the gradients of output and mass together, and of the mass alone."""
        n, m = self.count, self.count // 2
        inputs = leaves((n, 2, 2), (n, 2, 3), (m, 2, 2))[: 2 + across]
        batch, query_batch = (
            (torch.arange(n) * 7 % 5 % 3, torch.arange(m) * 3 % 7 % 3) if batched else (None, None)
        )
        points = Points(
            *inputs, *(() if across else (None,)), batch, query_batch if across else None
        )
        got = self.attend_with_mass(points)
        want = (
            dense(points, True),
            torch.stack([w.sum(dim=1).log() for w in dense_weights(points)], dim=1),
        )
        cotangents = [normal(*t.shape, seed=9 + k) for k, t in enumerate(want)]
        for used in (slice(2), slice(1, 2)):
            gots, wants = (
                torch.autograd.grad(
                    t[used], inputs, cotangents[used], retain_graph=True, allow_unused=True
                )
                for t in (got, want)
            )
            for a, b in zip((*got, *gots), (*want, *wants), strict=True):
                assert relative(a, torch.zeros_like(a) if b is None else b) < 1e-11

    def test_the_mass_in_float32_is_accurate(self):
        for across in (False, True):
            shapes = [(100, 1, 4), (100, 1, 64), (70, 1, 4)][: 2 + across]
            points = Points(*leaves(*shapes, dtype=torch.float32))
            inputs = [t for t in (points.positions, points.queries) if t is not None]
            _, got = self.attend_with_mass(points)
            (weight,) = dense_weights(points)
            want, cotangent = weight.sum(dim=1, keepdim=True).log(), normal(*got.shape, seed=9)
            assert got.dtype == torch.float32
            wants = torch.autograd.grad(want, inputs, cotangent)
            for a, b in zip(
                (got, *torch.autograd.grad(got, inputs, cotangent.float())),
                (want, *wants),
                strict=True,
            ):
                assert relative(a, b) < 1e-5

    @pytest.mark.parametrize("dim", [1, 4])
    def test_gradients_of_the_mass_are_the_true_derivatives(self, dim):
        inputs = [
            t.detach().contiguous().requires_grad_()
            for t in leaves((8, 2, dim), (8, 2, 2), (3, 2, dim))
        ]
        batch, query_batch = torch.tensor([1, 0, 1, 1, 0, 1, 0, 1]), torch.tensor([1, 1, 0])

        def itself(positions, values):
            return self.attend_with_mass(Points(positions, values, None, batch))

        def across(positions, values, queries):
            return self.attend_with_mass(Points(positions, values, queries, batch, query_batch))

        for call, given in ((itself, inputs[:2]), (across, inputs)):
            assert torch.autograd.gradcheck(call, given, atol=1e-7, rtol=1e-5, fast_mode=True)

    def test_the_mass_of_a_query_far_from_all_keys_is_finite(self):
        """The distance to the nearest key, nearly; the sum itself would be 0."""
        positions, values, queries = leaves((20, 1, 3), (20, 1, 2), (5, 1, 3))
        queries.data[2] += 3000
        _, got = self.attend_with_mass(Points(positions, values, queries))
        want = torch.logsumexp(-torch.cdist(queries[:, 0], positions[:, 0]), dim=1, keepdim=True)
        torch.testing.assert_close(got, want)
        cotangent = normal(5, 1, seed=9)
        for a, b in zip(
            *(torch.autograd.grad(t, (positions, queries), cotangent) for t in (got, want)),
            strict=True,
        ):
            torch.testing.assert_close(a, b)

    def test_the_mass_of_a_graph_without_keys_is_minus_infinity(self):
        inputs = leaves((6, 2, 2), (6, 2, 3), (4, 2, 2))
        points = Points(*inputs, torch.tensor([0, 0, 2, 2, 2, 0]), torch.tensor([1, 0, 2, 5]))
        out, mass = self.attend_with_mass(points)
        assert torch.equal(
            mass == -torch.inf, torch.tensor([[True], [False], [False], [True]]).expand(4, 2)
        )
        grads = torch.autograd.grad(
            (out, mass), inputs, (normal(4, 2, 3, seed=9), normal(4, 2, seed=10))
        )
        assert all(grad.isfinite().all() for grad in grads)
        assert not grads[2][[0, 3]].any()

    def test_float32_is_accurate(self):
        for across in (False, True):
            shapes = [(100, 1, 4), (100, 1, 64), (70, 1, 4)][: 2 + across]
            self.compare_with_matrices(
                Points(*leaves(*shapes, dtype=torch.float32)), True, tolerance=1e-5
            )

    @pytest.mark.parametrize("normalise", [True, False])
    @pytest.mark.parametrize("dim", [1, 2, 4])
    def test_gradients_are_the_true_derivatives(self, dim, normalise):
        inputs = [
            t.detach().contiguous().requires_grad_()
            for t in leaves((8, 2, dim), (8, 2, 2), (3, 2, dim))
        ]
        batch, query_batch = torch.tensor([1, 0, 1, 1, 0, 1, 0, 1]), torch.tensor([1, 2, 0])

        def itself(positions, values):
            return self.attend(Points(positions, values, None, batch), normalise)

        def across(positions, values, queries):
            return self.attend(Points(positions, values, queries, batch, query_batch), normalise)

        def one_graph(positions, values, queries):
            return self.attend(Points(positions, values, queries), normalise)

        for call, given in ((itself, inputs[:2]), (across, inputs), (one_graph, inputs)):
            assert torch.autograd.gradcheck(call, given, atol=1e-7, rtol=1e-5, fast_mode=True)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    @pytest.mark.parametrize("across", [False, True])
    def test_a_batch_is_its_graphs_one_by_one_to_the_bit(self, across, dtype):
        n, m = self.count, self.count // 2
        inputs = leaves((n, 2, 3), (n, 2, 5), (m, 2, 3), dtype=dtype)
        batch, query_batch = torch.arange(n) * 7 % 5 % 3, torch.arange(m) * 3 % 7 % 3
        points = Points(*inputs, batch, query_batch) if across else Points(*inputs[:2], None, batch)
        cotangent = normal(m if across else n, 2, 5, seed=9, dtype=dtype)
        together = self.output_and_gradients(points, cotangent=cotangent)
        for graph in range(3):
            keys, asked = batch == graph, query_batch == graph
            one = [
                t[rows].detach().requires_grad_()
                for t, rows in zip(inputs, (keys, keys, asked), strict=True)
            ]
            targets = asked if across else keys
            alone = self.output_and_gradients(
                Points(*(one if across else one[:2])), cotangent=cotangent[targets]
            )
            for a, b, rows in zip(alone, together, (targets, keys, keys, asked), strict=False):
                assert torch.equal(a, b[rows])

    def test_graphs_of_too_many_pairs_are_left_zero(self):
        # graph 0 has twelve points, the others six
        inputs, batch = leaves((30, 1, 2), (30, 1, 3)), torch.arange(30) // 6 % 4
        few = batch > 0
        got = self.output_and_gradients(Points(*inputs, None, batch), at_most=36)
        cotangent = normal(30, 1, 3, seed=9)[few]
        part = Points(*(t[few].detach().requires_grad_() for t in inputs), None, batch[few])
        for a, b in zip(got, self.output_and_gradients(part, cotangent=cotangent), strict=True):
            assert torch.equal(a[few], b)
            assert not a[~few].any()

    def test_one_graph_of_too_many_pairs_is_left_zero(self):
        points = Points(*leaves((7, 1, 2), (7, 1, 3)))
        assert not any(t.any() for t in self.output_and_gradients(points, at_most=48))
        assert all(t.any() for t in self.output_and_gradients(points, at_most=49))

    def test_a_query_far_from_all_keys_attends_to_the_nearest(self):
        """A softmax does not know how far: without a shift, all weights would be 0."""
        positions, values, queries = leaves((20, 1, 3), (20, 1, 2), (5, 1, 3))
        queries.data[2] += 3000
        out, *grads = self.output_and_gradients(Points(positions, values, queries))
        want = torch.softmax(-torch.cdist(queries[:, 0], positions[:, 0]), dim=1) @ values[:, 0]
        torch.testing.assert_close(out[:, 0], want.detach())
        wants = torch.autograd.grad(
            want, (positions, values, queries), normal(5, 1, 2, seed=9)[:, 0]
        )
        for got, want in zip(grads, wants, strict=True):
            torch.testing.assert_close(got, want)
        assert not self.attend(Points(positions, values, queries), normalise=False)[2].any()

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_points_that_coincide_have_weight_one_and_derivative_zero(self, dtype):
        # Coordinates whose multiples are not exact: a fused difference of products would not be 0.
        positions = torch.full((20, 1, 3), 0.1234567, dtype=dtype).requires_grad_()
        values = normal(20, 1, 4, seed=2, dtype=dtype).requires_grad_()
        for normalise, want in ((False, values.sum(dim=0)), (True, values.mean(dim=0))):
            out, grad, _ = self.output_and_gradients(Points(positions, values), normalise)
            torch.testing.assert_close(out, want.detach().expand(20, 1, 4), rtol=1e-5, atol=1e-5)
            assert torch.equal(grad, torch.zeros_like(grad))

    @pytest.mark.parametrize(
        "shapes",
        [
            [(0, 1, 3), (0, 1, 2)],
            [(9, 1, 3), (9, 1, 2), (0, 1, 3)],
            [(0, 1, 3), (0, 1, 2), (9, 1, 3)],
        ],
    )
    def test_no_points_give_zeros(self, shapes):
        for normalise in (True, False):
            out, *grads = self.output_and_gradients(Points(*leaves(*shapes)), normalise)
            assert out.shape == (shapes[-1][0], 1, 2)
            assert not any(t.any() for t in (out, *grads))

    def test_no_channels(self):
        out, *grads = self.output_and_gradients(Points(*leaves((9, 1, 3), (9, 1, 0))))
        assert out.shape == (9, 1, 0)
        assert [g.shape for g in grads] == [(9, 1, 3), (9, 1, 0)]

    def test_one_point_gets_its_value(self):
        points = Points(*leaves((1, 1, 2), (1, 1, 3)))
        for normalise in (True, False):
            out, of_positions, of_values = self.output_and_gradients(points, normalise)
            torch.testing.assert_close(out, points.values.detach())
            assert not of_positions.any()
            torch.testing.assert_close(of_values, normal(1, 1, 3, seed=9))

    def test_strides_do_not_matter(self):
        inputs = leaves((30, 2, 3), (30, 1, 4))
        points = Points(inputs[0], inputs[1].expand(-1, 2, -1))
        same = Points(*(t.detach().contiguous().requires_grad_() for t in points[:2]))
        got, want = (self.output_and_gradients(p) for p in (points, same))
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))

    @pytest.mark.parametrize("across, normalise", [(False, True), (True, True), (True, False)])
    @pytest.mark.parametrize("batched, weighted", [(False, False), (True, False), (True, True)])
    def test_ops_keep_the_rules_of_torch(self, batched, weighted, across, normalise):
        p, f, q = (
            t.detach().to(self.device).requires_grad_()
            for t in leaves((9, 2, 2), (9, 2, 3), (4, 2, 2))
        )
        batch, query_batch = (
            torch.tensor([0, 1, 1] * 3, device=self.device),
            torch.tensor([0, 1, 0, 2], device=self.device),
        )
        weights = (
            torch.arange(18.0, dtype=p.dtype, device=self.device).view(9, 2) % 4
            if weighted and normalise
            else None
        )
        graphs = batch if batched else None, query_batch if batched and across else None
        given = p, f, q if across else None, *graphs, weights
        name = "exact_batch" if batched else "exact"
        options = normalise, ALL_PAIRS, "matern32", self.backend
        torch.library.opcheck(getattr(torch.ops.phgcn, name).default, (*given, *options))
        with torch.no_grad():
            out, norm, shift = getattr(torch.ops.phgcn, name)(*given, *options)
        given = (*(None if t is None else t.detach() for t in given),)
        gradient = getattr(torch.ops.phgcn, f"{name}_backward").default
        for grad_norm in (None, torch.ones_like(norm)) if normalise else (None,):
            torch.library.opcheck(
                gradient, (torch.ones_like(out), grad_norm, out, norm, shift, *given, *options)
            )

    @pytest.mark.parametrize("batched", [False, True])
    def test_a_compiled_graph_without_breaks_equals_eager(self, batched):
        inputs, batch = leaves((30, 2, 2), (30, 2, 3)), torch.arange(30) % 3 if batched else None

        def call(positions, values):
            out, mass = self.attend_with_mass(Points(positions.tanh(), values, None, batch))
            return torch.cat([out, mass.unsqueeze(-1)], dim=-1).sin()

        torch.compiler.reset()
        compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
        for got, want in zip(
            *(self.gradients_of(f, inputs) for f in (compiled, call)), strict=True
        ):
            torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)

    @staticmethod
    def gradients_of(call, inputs):
        out = call(*inputs)
        return [out, *torch.autograd.grad(out.square().sum(), inputs)]

    @pytest.mark.parametrize(
        "name, place", [("positions", (3, 0, 1)), ("values", (4, 0, 1)), ("queries", (2, 0, 0))]
    )
    def test_a_number_that_is_not_finite_is_named(self, name, place):
        tensors = dict(
            zip(
                ("positions", "values", "queries"),
                leaves((9, 1, 2), (9, 1, 3), (5, 1, 2)),
                strict=True,
            )
        )
        tensors[name].data[place] = float("nan")
        with pytest.raises(
            ValueError,
            match=rf"{name}\[{', '.join(map(str, place))}\] is nan; allowed: finite numbers",
        ):
            self.attend(Points(**tensors))

    def test_a_negative_graph_number_is_named(self):
        batch = torch.tensor([0, 1, -2, 1])
        with pytest.raises(
            ValueError, match=r"batch\[2\] is -2; allowed: non-negative graph numbers"
        ):
            self.attend(Points(*leaves((4, 1, 2), (4, 1, 3)), None, batch))
