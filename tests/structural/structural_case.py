"""What every backend of structural attention must do, as a test class to inherit: a backend gives
only its name.
"""

import pytest
import torch
from clouds import normal, relative

from phgcn import structural_attention

TOLERANCE = {torch.float64: 1e-12, torch.float32: 3e-6}


def graph(nodes, edges, seed=0):
    """Random edges with loops and duplicates; no edge ends at the last node, none begins at the one
    before.
    """
    random = torch.Generator().manual_seed(seed)
    index = torch.randint(0, nodes, (2, edges), generator=random)
    index[0] -= (index[0] == nodes - 2).long()
    index[1] -= (index[1] == nodes - 1).long()
    return index


def dense_weights(positions, edge_index, decay, bias=None):
    """The softmax as a dense (targets, sources, heads) matrix of how often each edge occurs, times
    the exponential of its bias, times that of its distance."""
    nodes, heads = positions.shape[:2]
    factor = (
        torch.ones(edge_index.size(1), heads, dtype=positions.dtype) if bias is None else bias.exp()
    )
    occurs = torch.zeros(nodes, nodes, heads, dtype=positions.dtype)
    occurs = occurs.index_put((edge_index[1], edge_index[0]), factor, accumulate=True)
    square = (positions.unsqueeze(1) - positions.unsqueeze(0)).square().sum(dim=-1)
    distance = torch.where(square > 0, square.clamp_min(1e-300).sqrt(), 0.0)
    weight = occurs * torch.exp(-decay * distance)
    total = weight.sum(dim=1, keepdim=True)
    return weight / torch.where(total > 0, total, 1.0)


def dense(positions, values, edge_index, decay, bias=None):
    return torch.einsum("ijh,jhc->ihc", dense_weights(positions, edge_index, decay, bias), values)


class StructuralCase:
    """Against the sum written out as a matrix, and against finite differences.

    A backend whose kernels are interpreted takes smaller graphs.
    """

    backend: str
    nodes, edges = 40, 300
    batch = ((30, 100), (1, 2), (200, 3000), (7, 9))
    """Nodes and edges of the graphs that are batched."""
    derivatives = (7, 20)
    """Nodes and edges of the graph whose derivatives are checked."""

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    @pytest.mark.parametrize("heads", [1, 2, 3, 4, 7, 8, 9, 17])
    def test_output_and_gradients_are_those_of_the_dense_matrix(self, heads, dtype):
        self.compare(heads, dim=4, channels=8, dtype=dtype)

    def test_positions_whose_distances_overflow_are_named(self):
        positions, values = normal(5, 1, 2, seed=1).float(), normal(5, 1, 3, seed=2).float()
        positions[3, 0, 1] = -1e30
        edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
        with pytest.raises(
            ValueError,
            match=r"positions\[3, 0, 1\] is -1.0.*e\+30; allowed: at most 6.49e\+18 from 0",
        ):
            structural_attention(positions, values, edges, backend=self.backend)
        out = structural_attention(positions.double(), values.double(), edges, backend=self.backend)
        assert bool(out.isfinite().all())
        positions[3, 0, 1] = -6e18
        assert bool(
            structural_attention(positions, values, edges, backend=self.backend).isfinite().all()
        )

    @pytest.mark.parametrize("dim, channels", [(1, 1), (2, 7), (3, 17), (5, 3), (16, 2)])
    def test_any_width_will_do(self, dim, channels):
        self.compare(heads=2, dim=dim, channels=channels, dtype=torch.float64)

    @pytest.mark.parametrize("degree", [1, 63, 64, 65, 128, 129, 300])
    def test_nodes_of_many_edges_are_summed_in_chunks(self, degree):
        # The nearest source comes last, so that every chunk must be scaled down.
        positions = torch.cat(
            [torch.zeros(1, 2, 1), torch.linspace(90, 1, degree).reshape(-1, 1, 1).expand(-1, 2, 1)]
        ).double()
        values = normal(degree + 1, 2, 3, seed=1)
        edge_index = torch.stack(
            [torch.arange(1, degree + 1), torch.zeros(degree, dtype=torch.long)]
        )
        got = structural_attention(positions, values, edge_index, backend=self.backend)
        assert relative(got, dense(positions, values, edge_index, 1.0)) < 1e-13

    def test_sources_far_away_are_weighed_against_each_other(self):
        positions = torch.tensor([[0.0], [5000.0], [5001.0]])
        values = torch.tensor([[0.0], [1.0], [2.0]])
        got = structural_attention(
            positions, values, torch.tensor([[1, 2], [0, 0]]), backend=self.backend
        )
        torch.testing.assert_close(
            got[0], 1 + torch.sigmoid(torch.tensor([-1.0])), rtol=1e-4, atol=0
        )

    @pytest.mark.parametrize("heads", [1, 2, 9])
    def test_gradients_are_the_true_derivatives(self, heads):
        nodes, edges = self.derivatives
        positions = normal(nodes, heads, 3, seed=1).requires_grad_()
        values = normal(nodes, heads, 2, seed=2).requires_grad_()
        decay = torch.linspace(0.7, 1.3, heads, dtype=torch.float64).requires_grad_()
        edge_index, mask = graph(nodes, edges), normal(edges, heads, seed=3).abs()
        bias = normal(edges, heads, seed=4).requires_grad_()

        def itself(positions, values, decay, bias=None):
            given = {"edge_mask": mask, "edge_bias": bias, "backend": self.backend}
            return structural_attention(positions, values, edge_index, decay, **given)

        assert torch.autograd.gradcheck(itself, (positions, values, decay))
        assert torch.autograd.gradcheck(itself, (positions, values, decay, bias), fast_mode=True)

    def test_a_bias_is_added_to_the_exponents(self):
        edge_index, nodes, count = graph(self.nodes, self.edges), self.nodes, self.edges
        inputs = [
            normal(*shape, seed=seed).requires_grad_()
            for seed, shape in enumerate([(nodes, 3, 2), (nodes, 3, 4)])
        ]
        bias = (3 * normal(count, 3, seed=4)).requires_grad_()
        got = structural_attention(*inputs, edge_index, 1.5, edge_bias=bias, backend=self.backend)
        want = dense(*inputs, edge_index, 1.5, bias)
        cotangent = normal(*want.shape, seed=5)
        grads, wants = (torch.autograd.grad(out, (*inputs, bias), cotangent) for out in (got, want))
        for a, b in zip((got, *grads), (want, *wants), strict=True):
            assert relative(a, b) < 1e-12
        shared = structural_attention(
            *inputs, edge_index, edge_bias=bias[:, 0], backend=self.backend
        )
        assert relative(shared, dense(*inputs, edge_index, 1.0, bias[:, :1].expand(-1, 3))) < 1e-12

    def test_a_bias_may_be_large(self):
        """The nearest source with the least bias, and so on: exponents are relative to the
        largest."""
        positions, values = normal(4, 1, 2, seed=1), normal(4, 1, 3, seed=2)
        edge_index = torch.tensor([[0, 1, 2], [3, 3, 3]])
        bias = torch.tensor([[-2000.0], [5000.0], [5001.0]], dtype=torch.float64)
        got = structural_attention(
            positions, values, edge_index, edge_bias=bias, backend=self.backend
        )
        relieved = structural_attention(
            positions, values, edge_index[:, 1:], edge_bias=bias[1:] - 5000, backend=self.backend
        )
        torch.testing.assert_close(got, relieved, rtol=1e-9, atol=1e-9)

    def test_a_mask_multiplies_the_weights(self):
        positions = normal(9, 3, 2, seed=1)
        values = normal(9, 3, 4, seed=2)
        edge_index = graph(9, 30)
        mask = (normal(30, 3, seed=3) > 0) * 2.0
        got = structural_attention(
            positions, values, edge_index, 1.5, edge_mask=mask, backend=self.backend
        )
        _, weights = structural_attention(
            positions, values, edge_index, 1.5, return_attention_weights=True
        )
        want = torch.zeros_like(values).index_add(
            0, edge_index[1], (weights * mask).unsqueeze(-1) * values[edge_index[0]]
        )
        assert relative(got, want) < 1e-14
        one = structural_attention(
            positions, values, edge_index, 1.5, edge_mask=mask[:, 0], backend=self.backend
        )
        three = structural_attention(
            positions,
            values,
            edge_index,
            1.5,
            edge_mask=mask[:, :1].expand(-1, 3),
            backend=self.backend,
        )
        assert torch.equal(one, three)

    def test_a_node_without_edges_gets_zero(self):
        positions = normal(4, 2, seed=1).requires_grad_()
        values = normal(4, 3, seed=2).requires_grad_()
        out = structural_attention(
            positions, values, torch.tensor([[0, 1], [2, 2]]), backend=self.backend
        )
        assert torch.equal(out[[0, 1, 3]], torch.zeros(3, 3, dtype=torch.float64))
        grads = torch.autograd.grad(out.sum(), (positions, values))
        assert all(
            bool(g.isfinite().all()) and torch.equal(g[3], torch.zeros_like(g[3])) for g in grads
        )

    @pytest.mark.parametrize("nodes", [0, 1, 5])
    def test_a_graph_without_edges_gets_zeros(self, nodes):
        positions = normal(nodes, 2, 2, seed=1).requires_grad_()
        values = normal(nodes, 2, 3, seed=2).requires_grad_()
        out = structural_attention(
            positions, values, torch.empty(2, 0, dtype=torch.long), backend=self.backend
        )
        assert torch.equal(out, torch.zeros_like(out)) and out.shape == (nodes, 2, 3)
        for grad in torch.autograd.grad(out.sum(), (positions, values)):
            assert torch.equal(grad, torch.zeros_like(grad))

    def test_coincident_points_have_no_slope(self):
        positions = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
        values = torch.tensor([[1.0], [2.0], [6.0]], dtype=torch.float64)
        out = structural_attention(
            positions, values, torch.tensor([[0, 1, 2, 0], [0, 0, 0, 0]]), backend=self.backend
        )
        torch.testing.assert_close(out[0], torch.tensor([2.5], dtype=torch.float64))
        assert torch.equal(
            torch.autograd.grad(out.sum(), positions)[0], torch.zeros(3, 2, dtype=torch.float64)
        )

    @pytest.mark.parametrize("width", [1e-17, 1e-20, 1e-23])
    def test_points_whose_squared_distances_underflow_have_finite_gradients(self, width):
        edges = graph(self.nodes, self.edges)
        positions = (width * normal(self.nodes, 2, 3)).float().requires_grad_()
        values = normal(self.nodes, 2, 4, seed=1).float()
        out = structural_attention(positions, values, edges, backend=self.backend)
        (slope,) = torch.autograd.grad(out.sum(), positions)
        assert slope.isfinite().all()
        assert slope.abs().max() < 10 * values.abs().max()

    def test_a_batch_of_graphs_is_its_graphs_alone(self):
        random = torch.Generator().manual_seed(0)
        parts = [
            (
                normal(n, 8, 4, seed=n),
                normal(n, 8, 8, seed=n + 1),
                torch.randint(0, n, (2, e), generator=random),
            )
            for n, e in self.batch
        ]
        first = torch.tensor([0, *(n for n, _ in self.batch)]).cumsum(0)
        together = run(
            torch.cat([p for p, _, _ in parts]),
            torch.cat([f for _, f, _ in parts]),
            torch.cat([e + first[g] for g, (_, _, e) in enumerate(parts)], dim=1),
            self.backend,
        )
        for g, (positions, values, edge_index) in enumerate(parts):
            alone = run(
                positions,
                values,
                edge_index,
                self.backend,
                cotangent_rows=slice(first[g], first[g + 1]),
            )
            for a, b in zip(alone, together, strict=True):
                assert torch.equal(a, b[first[g] : first[g + 1]])

    def test_a_duplicate_edge_counts_twice(self):
        positions, values = normal(3, 2, seed=1), normal(3, 2, seed=2)
        twice = torch.tensor([[0, 1, 1], [2, 2, 2]])
        out, weights = structural_attention(
            positions, values, twice, return_attention_weights=True, backend=self.backend
        )
        torch.testing.assert_close(weights[1], weights[2])
        torch.testing.assert_close(weights.sum(), torch.tensor(1.0, dtype=torch.float64))
        torch.testing.assert_close(out[2], weights @ values[twice[0]])

    def test_values_without_heads_are_shared(self):
        positions, values, edge_index = normal(9, 3, 2, seed=1), normal(9, 4, seed=2), graph(9, 30)
        shared = values.unsqueeze(1).expand(-1, 3, -1)
        got = structural_attention(positions, values, edge_index, backend=self.backend)
        assert torch.equal(
            got, structural_attention(positions, shared, edge_index, backend=self.backend)
        )
        got = structural_attention(positions[:, 0], shared, edge_index, backend=self.backend)
        assert torch.equal(
            got[:, 2],
            structural_attention(positions[:, 0], values, edge_index, backend=self.backend),
        )

    def compare(self, heads, dim, channels, dtype):
        edge_index, nodes = graph(self.nodes, self.edges, seed=heads), self.nodes
        # Rounded to float32, so that both types see the same points.
        given = [
            normal(nodes, heads, w, seed=s, dtype=torch.float32)
            for s, w in ((1, dim), (2, channels), (3, channels))
        ]
        decay = torch.linspace(0.5, 2, heads)
        wanted = [t.double().requires_grad_() for t in (*given[:2], decay)]
        want = dense(wanted[0], wanted[1], edge_index, wanted[2])
        wanted_grads = torch.autograd.grad(want, wanted, given[2].double())
        inputs = [t.detach().to(dtype).requires_grad_() for t in wanted]
        got = structural_attention(
            inputs[0], inputs[1], edge_index, inputs[2], backend=self.backend
        )
        grads = torch.autograd.grad(got, inputs, given[2].to(dtype))
        for a, b in zip((got, *grads), (want, *wanted_grads), strict=True):
            assert a.dtype == dtype
            assert relative(a, b) < TOLERANCE[dtype]


class KernelCase(StructuralCase):
    """Also against the reference's intermediate results, for every backend but that."""

    hub = (1_000_000, 1e-5)
    """Edges to one node, and the error of their sum; one running sum of float32 numbers is off by
    7e-4 (20,000: 3e-5).
    """

    def test_what_is_kept_for_the_gradient_is_that_of_the_reference(self):
        bias = normal(self.edges, 3, seed=3)
        inputs = (
            normal(self.nodes, 3, 2, seed=1),
            normal(self.nodes, 3, 5, seed=2),
            graph(self.nodes, self.edges),
            None,
            bias,
        )
        got, want = (
            torch.ops.phgcn.structural(*move(inputs, backend), backend)
            for backend in (self.backend, "reference")
        )
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a.cpu(), b, rtol=1e-12, atol=1e-14)

    def test_a_hub_of_many_edges_is_summed_accurately(self):
        count, error = self.hub
        positions = normal(64, 1, 2, seed=1, dtype=torch.float32)
        values = normal(64, 1, 3, seed=2).abs().float()
        source = torch.randint(64, (count,), generator=torch.Generator().manual_seed(0))
        star = torch.stack([source, torch.zeros_like(source)])
        got = structural_attention(positions, values, star, 0.1, backend=self.backend)[0]
        want = structural_attention(
            positions.double(), values.double(), star, 0.1, backend="reference"
        )[0]
        assert float((got.cpu() / want.cpu() - 1).abs().max()) < error


def move(inputs, backend):
    """Moves tensors to where a backend computes."""
    device = "cuda" if backend == "triton" and torch.cuda.is_available() else "cpu"
    return [None if t is None else t.to(device) for t in inputs]


def run(positions, values, edge_index, backend="auto", cotangent_rows=slice(None), **options):
    """The output and the gradients of positions and values."""
    inputs = positions.clone().requires_grad_(), values.clone().requires_grad_()
    out = structural_attention(*inputs, edge_index, backend=backend, **options)
    cotangent = normal(4000, *out.shape[1:], seed=9, dtype=out.dtype)[cotangent_rows][: len(out)]
    return [out.detach(), *torch.autograd.grad(out, inputs, cotangent)]
