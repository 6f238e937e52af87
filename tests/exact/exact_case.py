"""What every backend of exact attention must do, as a test class to inherit: a backend gives its
name and its device.
"""

from itertools import product

import pytest
import torch
from clouds import dense_exact, normal, relative

from phgcn import global_attention, permutohedral_filter
from phgcn.exact.ops import attend
from phgcn.kernels import KERNELS
from phgcn.runtime.graphs import ALL_PAIRS
from phgcn.runtime.points import Points

SHAPES = [(1, 3, 2), (2, 1, 1), (4, 20, 1), (6, 3, 1), (3, 5, 2)]
"""Coordinates, channels and heads."""
USED = {"sum": slice(1), "output": slice(1), "mass": slice(1, 2), "both": slice(2)}
"""The outputs whose gradients are taken; all but sums are normalised and have a mass."""
FLAGS = (False, True)
BOTH_TYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])


def leaves(*shapes, dtype=torch.float64, seed=1):
    """Tensors that want gradients, in memory that is not one block."""
    made = [
        normal(*shape[1:], shape[0], seed=seed + k, dtype=dtype).movedim(-1, 0)
        for k, shape in enumerate(shapes)
    ]
    return [t.detach().requires_grad_() for t in made]


def make_points(n, shape, across=False, batched=False, weighted=False, dtype=torch.float64):
    """Three graphs in any order, where there are several; a third of the weights is 0."""
    (dim, channels, heads), m = shape, n // 2 + 1
    *inputs, queries = leaves((n, heads, dim), (n, heads, channels), (m, heads, dim), dtype=dtype)
    weights = normal(n, heads, seed=5, dtype=dtype).tanh() + 1
    weights[torch.arange(n) % 3 == 1] = 0
    return Points(
        *inputs,
        queries if across else None,
        torch.arange(n) * 7 % 5 % 3 if batched else None,
        torch.arange(m) * 3 % 7 % 3 if across and batched else None,
        weights.requires_grad_() if weighted else None,
    )


def dense_weights(points, kernel="exponential"):
    """The weights of each head written out as matrices, in float64, 0 between graphs."""
    positions, values, queries, batch, query_batch, weights = points
    batch = torch.zeros(len(positions), dtype=torch.long) if batch is None else batch
    if queries is None:
        query_batch = batch
    elif query_batch is None:
        query_batch = torch.zeros(len(queries), dtype=torch.long)
    together = query_batch[:, None] == batch[None, :]
    weights = torch.ones(values.shape[:2]) if weights is None else weights
    return [
        dense_exact(points.targets[:, h].double(), positions[:, h].double(), kernel)
        * (together * weights[:, h].double())
        for h in range(values.size(1))
    ]


def dense(points, normalise, kernel="exponential"):
    """The sums of each graph and head written out as matrices, in float64, and the mass."""
    heads, masses = [], []
    for head, weight in enumerate(dense_weights(points, kernel)):
        total = weight.sum(dim=1, keepdim=True)
        masses.append(total[:, 0].log())
        total = torch.where(total > 0, total, 1.0) if normalise else 1.0
        heads.append(weight @ points.values[:, head].double() / total)
    out = torch.stack(heads, dim=1)
    return (out, torch.stack(masses, dim=1)) if normalise else (out,)


def float_inputs(points):
    return [t for t in points if t is not None and t.requires_grad]


def with_gradients(outputs, inputs, used="output", cotangents=None):
    """The outputs, and the gradients of those that are used."""
    kept = outputs[USED[used]]
    if cotangents is None:
        cotangents = [normal(*t.shape, seed=9 + k, dtype=t.dtype) for k, t in enumerate(kept)]
    grads = torch.autograd.grad(kept, inputs, cotangents, materialize_grads=True)
    return [*(t.detach() for t in outputs), *grads]


class ExactCase:
    """Against sums written out as matrices, and against itself."""

    backend: str
    device = "cpu"
    count = 40
    """Points of a cloud: more than a tile has."""
    every = 1
    """Of the product of options, every how many-th is tried: more for an interpreter."""

    def attend(self, points, normalise=True, kernel="exponential"):
        """The outputs on the CPU, differentiable, of points that may be elsewhere."""
        there = (None if t is None else t.to(self.device) for t in points)
        names = ("positions", "values", "queries", "batch", "query_batch", "weights")
        asked = dict(zip(names, there, strict=True), kernel=kernel, method="exact")
        if not normalise:
            return (permutohedral_filter(**asked, backend=self.backend).cpu(),)
        found = global_attention(**asked, decay=1.0, backend=self.backend, return_mass=True)
        return tuple(t.cpu() for t in found)

    def attend_to_few(self, points, at_most):
        """The output and gradients, where graphs of more pairs are left out."""
        there = Points(*(None if t is None else t.to(self.device) for t in points))
        out = attend(there, True, self.backend, at_most).out.cpu()
        return with_gradients((out,), float_inputs(points))

    def found(self, points, used="output", kernel="exponential", cotangents=None):
        outputs = self.attend(points, used != "sum", kernel)
        return with_gradients(outputs, float_inputs(points), used, cotangents)

    def compare_with_matrices(self, points, used="both", kernel="exponential", tolerance=1e-11):
        got = self.found(points, used, kernel)
        want = with_gradients(dense(points, used != "sum", kernel), float_inputs(points), used)
        if points.weights is not None and used != "sum":
            # The derivative by a weight of 0 is not the true one, but 0.
            want[-1] = torch.where(points.weights > 0, want[-1], 0.0)
        for a, b in zip(got, want, strict=True):
            assert a.dtype == points.values.dtype
            assert relative(a, b) < tolerance

    @pytest.mark.parametrize("used", USED)
    @pytest.mark.parametrize("kernel", KERNELS)
    def test_outputs_and_gradients_are_those_of_matrices(self, kernel, used):
        start = list(KERNELS).index(kernel) + list(USED).index(used)
        for number, options in enumerate(product(FLAGS, FLAGS, FLAGS), start):
            if number % self.every == 0:
                points = make_points(self.count, SHAPES[number % len(SHAPES)], *options)
                self.compare_with_matrices(points, used, kernel)

    @pytest.mark.parametrize("kernel", KERNELS)
    def test_float32_is_accurate(self, kernel):
        for number, (across, weighted) in enumerate(product(FLAGS, FLAGS)):
            if number % self.every == 0:
                points = make_points(100, (4, 64, 1), across, False, weighted, torch.float32)
                self.compare_with_matrices(points, "both", kernel, 1e-5)

    @pytest.mark.parametrize("used", ["sum", "output"])
    def test_queries_of_graphs_without_keys_get_zero(self, used):
        """Of one graph there are no queries, and of one no keys."""
        points = make_points(self.count, (2, 3, 2), across=True, batched=True)
        points = points._replace(query_batch=points.query_batch * 2)
        outputs = self.attend(points, used == "output")
        want = dense(points, used == "output")
        inputs = float_inputs(points)
        for a, b in zip(
            *(with_gradients(t[:1], inputs) for t in (outputs, want)),
            strict=True,
        ):
            assert relative(a, b) < 1e-11

    def test_the_mass_of_a_query_far_from_all_keys_is_finite(self):
        """The distance to the nearest key, nearly; the sum itself would be 0."""
        positions, values, queries = leaves((20, 1, 3), (20, 1, 2), (5, 1, 3))
        queries.data[2] += 3000
        _, got = self.attend(Points(positions, values, queries))
        want = torch.logsumexp(-torch.cdist(queries[:, 0], positions[:, 0]), dim=1, keepdim=True)
        gots, wants = (with_gradients((t,), (positions, queries)) for t in (got, want))
        for a, b in zip(gots, wants, strict=True):
            torch.testing.assert_close(a, b)

    def test_the_mass_of_a_graph_without_keys_is_minus_infinity(self):
        inputs = leaves((6, 2, 2), (6, 2, 3), (4, 2, 2))
        points = Points(*inputs, torch.tensor([0, 0, 2, 2, 2, 0]), torch.tensor([1, 0, 2, 5]))
        _, mass, *grads = self.found(points, "both")
        assert (mass == -torch.inf).tolist() == [[True] * 2, [False] * 2, [False] * 2, [True] * 2]
        assert all(grad.isfinite().all() for grad in grads)
        assert not grads[2][[0, 3]].any()

    @BOTH_TYPES
    @pytest.mark.parametrize("weighted", FLAGS)
    @pytest.mark.parametrize("across", FLAGS)
    def test_a_batch_is_its_graphs_one_by_one_to_the_bit(self, across, weighted, dtype):
        points = make_points(self.count, (3, 5, 2), across, True, weighted, dtype)
        targets = points.query_batch if across else points.batch
        cotangents = [normal(len(targets), 2, *c, seed=9, dtype=dtype) for c in ((5,), ())]
        together = self.found(points, "both", cotangents=cotangents)
        for graph in range(3):
            keys, asked = points.batch == graph, targets == graph
            parts = [
                None if t is None else t[rows].detach().requires_grad_()
                for t, rows in zip(points[:3], (keys, keys, asked), strict=True)
            ]
            weights = points.weights[keys].detach().requires_grad_() if weighted else None
            alone = Points(*parts, weights=weights)
            found = self.found(alone, "both", cotangents=[c[asked] for c in cotangents])
            rows = (asked, asked, keys, keys, *((asked,) if across else ()), keys)
            for a, b, mine in zip(found, together, rows, strict=False):
                assert torch.equal(a, b[mine])

    def test_graphs_of_too_many_pairs_are_left_zero(self):
        # graph 0 has twelve points, the others six
        inputs, batch = leaves((30, 1, 2), (30, 1, 3)), torch.arange(30) // 6 % 4
        few = batch > 0
        out, *grads = self.attend_to_few(Points(*inputs, None, batch), 36)
        part = [t[few].detach().requires_grad_() for t in inputs]
        cotangent = normal(30, 1, 3, seed=9)[few]
        want = self.found(Points(*part, None, batch[few]), cotangents=[cotangent])
        for a, b in zip((out, *grads), (want[0], *want[2:]), strict=True):
            assert torch.equal(a[few], b)
            assert not a[~few].any()

    def test_one_graph_of_too_many_pairs_is_left_zero(self):
        points = Points(*leaves((7, 1, 2), (7, 1, 3)))
        assert not any(t.any() for t in self.attend_to_few(points, 48))
        assert all(t.any() for t in self.attend_to_few(points, 49))

    def test_a_query_far_from_all_keys_attends_to_the_nearest(self):
        """A softmax does not know how far: without a shift, all weights would be 0."""
        positions, values, queries = leaves((20, 1, 3), (20, 1, 2), (5, 1, 3))
        queries.data[2] += 3000
        points = Points(positions, values, queries)
        want = torch.softmax(-torch.cdist(queries[:, 0], positions[:, 0]), dim=1) @ values[:, 0]
        wants = with_gradients((want.unsqueeze(1),), float_inputs(points))
        out, _, *grads = self.found(points)
        for a, b in zip((out, *grads), wants, strict=True):
            torch.testing.assert_close(a, b)
        assert not self.attend(points, normalise=False)[0][2].any()

    @BOTH_TYPES
    @pytest.mark.parametrize("kernel", KERNELS)
    @pytest.mark.parametrize("distance", [300.0, 1e4, 1e7])
    def test_a_far_query_attends_to_the_nearer_of_two_keys(self, distance, kernel, dtype):
        """The softmax of the logarithms of the kernel is all on the nearer one, and finite."""
        positions, values, queries = (
            torch.tensor(cells, dtype=dtype).reshape(2, 1, 1).requires_grad_()
            for cells in ([0.0, distance / 10], [1.0, 2.0], [-distance, 2 * distance])
        )
        out, _, *grads = self.found(Points(positions, values, queries), kernel=kernel)
        want = torch.tensor([1.0, 2.0], dtype=dtype)
        torch.testing.assert_close(out.flatten(), want, rtol=3e-5, atol=0)
        assert all(grad.isfinite().all() for grad in grads)

    @pytest.mark.parametrize("kernel", KERNELS)
    def test_a_far_query_attends_by_the_ratio_of_weights(self, kernel):
        positions, values, queries = leaves((20, 1, 3), (20, 1, 2), (5, 1, 3))
        queries.data[2] += 15
        points = Points(positions, values, queries)
        got, want = self.attend(points, kernel=kernel)[0], dense(points, True, kernel)[0]
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)

    @BOTH_TYPES
    @pytest.mark.parametrize("kernel", KERNELS)
    def test_points_that_coincide_have_weight_one_and_derivative_zero(self, kernel, dtype):
        # Coordinates whose multiples are not exact: a fused difference of products would not be 0.
        positions = torch.full((20, 1, 3), 0.1234567, dtype=dtype).requires_grad_()
        values = normal(20, 1, 4, seed=2, dtype=dtype).requires_grad_()
        for used, want in (("sum", values.sum(dim=0)), ("output", values.mean(dim=0))):
            out, *_, grad, _ = self.found(Points(positions, values), used, kernel)
            torch.testing.assert_close(out, want.detach().expand(20, 1, 4), rtol=1e-5, atol=1e-5)
            assert torch.equal(grad, torch.zeros_like(grad))

    @pytest.mark.parametrize("keys, asked", [(0, None), (9, 0), (0, 9)])
    def test_no_points_give_zeros(self, keys, asked):
        shapes = [(keys, 1, 3), (keys, 1, 2), (asked, 1, 3)][: 2 + (asked is not None)]
        for used in ("sum", "output"):
            points = Points(*leaves(*shapes))
            out, *rest = self.found(points, used)
            grads = rest[used == "output" :]
            assert out.shape == (shapes[-1][0], 1, 2)
            assert not any(t.any() for t in (out, *grads))

    def test_no_channels(self):
        out, _, *grads = self.found(Points(*leaves((9, 1, 3), (9, 1, 0))))
        assert [t.shape for t in (out, *grads)] == [(9, 1, 0), (9, 1, 3), (9, 1, 0)]

    def test_one_point_gets_its_value(self):
        points = Points(*leaves((1, 1, 2), (1, 1, 3)))
        for used in ("sum", "output"):
            out, *_, of_positions, of_values = self.found(points, used)
            torch.testing.assert_close(out, points.values.detach())
            assert not of_positions.any()
            torch.testing.assert_close(of_values, normal(1, 1, 3, seed=9))

    def test_strides_do_not_matter(self):
        inputs = leaves((30, 2, 3), (30, 1, 4))
        points = Points(inputs[0], inputs[1].expand(-1, 2, -1))
        same = Points(*(t.detach().contiguous().requires_grad_() for t in points[:2]))
        given = points[:2], same[:2]
        got, want = (with_gradients(self.attend(Points(*two)), two, "both") for two in given)
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))

    def test_nobody_attends_to_a_point_of_weight_zero(self):
        """Exactly: a number that would show in any rounding does not, and all derivatives by it are
        0.
        """
        points = make_points(30, (2, 3, 1), weighted=True, dtype=torch.float32)
        nobody, found = points.weights[:, 0] == 0, []
        for size in (1.0, 1e30):
            scaled = torch.where(nobody[:, None, None], size * points.values, points.values)
            out, mass = self.attend(points._replace(values=scaled))
            (grad,) = torch.autograd.grad(out.square().sum(), points.values)
            assert not grad[nobody].any() and grad[~nobody].any()
            found.append((out, mass))
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))

    def test_a_query_far_from_all_keys_of_positive_weight_attends_to_the_nearest_of_them(self):
        """It is itself a key of weight 0, and so is another beside it."""
        positions, values, weights = (
            torch.tensor(cells, dtype=torch.float64)
            for cells in (
                [[[0.0, 0.0]], [[1.0, 0.0]], [[2000.0, 0.0]], [[2000.5, 0.0]]],
                [[[1.0]], [[2.0]], [[3.0]], [[4.0]]],
                [[2.0], [1.0], [0.0], [0.0]],
            )
        )
        out, mass = self.attend(Points(positions, values, weights=weights))
        share = torch.softmax(torch.tensor([2.0, 1.0]).log() - torch.tensor([1.0, 0.0]), dim=0)
        want = (share @ torch.tensor([1.0, 2.0])).double().expand(2)
        torch.testing.assert_close(out.flatten()[2:], want, rtol=1e-6, atol=0)
        want = -1999.0 + torch.tensor(1 + 2 * torch.e**-1, dtype=torch.float64).log()
        torch.testing.assert_close(mass.flatten()[2], want)

    @pytest.mark.parametrize("across", FLAGS)
    def test_a_graph_whose_weights_are_all_zero_is_one_without_keys(self, across):
        positions, values, queries = leaves((9, 1, 2), (9, 1, 3), (4, 1, 2))
        batch = torch.arange(9) % 2
        weights = batch.double().unsqueeze(1).requires_grad_()
        asked = (queries, batch, torch.tensor([0, 1, 1, 0])) if across else (None, batch, None)
        points = Points(positions, values, *asked, weights)
        out, mass = self.attend(points)
        empty = (asked[2] if across else batch) == 0
        assert not out[empty].any() and out[~empty].any()
        assert bool((mass[empty] == -torch.inf).all()) and mass[~empty].isfinite().all()
        grads = torch.autograd.grad(out.sum() + mass[~empty].sum(), float_inputs(points))
        assert all(g.isfinite().all() for g in grads)

    @pytest.mark.parametrize(
        "across, batched, weighted, normalise",
        [(0, 0, 0, 1), (1, 0, 0, 0), (1, 1, 0, 1), (0, 1, 0, 0), (0, 1, 1, 1), (1, 0, 1, 1)],
    )
    def test_ops_keep_the_rules_of_torch(self, across, batched, weighted, normalise):
        points = make_points(9, (2, 3, 2), across, batched, weighted)
        given = [
            None
            if t is None
            else t.detach().to(self.device).requires_grad_(t.requires_grad and k < 5)
            for k, t in enumerate(points)
        ]
        name = "exact_batch" if batched else "exact"
        options = bool(normalise), ALL_PAIRS, "matern32", self.backend
        torch.library.opcheck(getattr(torch.ops.phgcn, name).default, (*given, *options))
        with torch.no_grad():
            out, norm, shift = getattr(torch.ops.phgcn, name)(*given, *options)
        given = (*(None if t is None else t.detach() for t in given),)
        gradient = getattr(torch.ops.phgcn, f"{name}_backward").default
        for grad_norm in (None, torch.ones_like(norm)) if normalise else (None,):
            torch.library.opcheck(
                gradient, (torch.ones_like(out), grad_norm, out, norm, shift, *given, *options)
            )

    @pytest.mark.parametrize("batched, weighted", [(False, False), (True, False), (False, True)])
    def test_a_compiled_graph_without_breaks_equals_eager(self, batched, weighted):
        points = make_points(30, (2, 3, 2), False, batched, weighted)

        def call(positions, values):
            out, mass = self.attend(points._replace(positions=positions.tanh(), values=values))
            return torch.cat([out, mass.unsqueeze(-1)], dim=-1).sin()

        torch.compiler.reset()
        compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
        got, want = (with_gradients((f(*points[:2]),), points[:2]) for f in (compiled, call))
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize(
        "name, place", [("positions", (3, 0, 1)), ("values", (4, 0, 1)), ("queries", (2, 0, 0))]
    )
    def test_a_number_that_is_not_finite_is_named(self, name, place):
        given = Points(*leaves((9, 1, 2), (9, 1, 3), (5, 1, 2)))
        getattr(given, name).data[place] = float("nan")
        cell = ", ".join(map(str, place))
        with pytest.raises(ValueError, match=rf"{name}\[{cell}\] is nan; allowed: finite numbers"):
            attend(given, True, self.backend)

    def test_a_negative_graph_number_is_named(self):
        points = Points(*leaves((4, 1, 2), (4, 1, 3)), None, torch.tensor([0, 1, -2, 1]))
        with pytest.raises(ValueError, match=r"batch\[2\] is -2; allowed: non-negative graph num"):
            attend(points, True, self.backend)
