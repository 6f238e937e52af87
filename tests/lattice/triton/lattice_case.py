"""What the lattice in Triton must do, wherever its kernels run: a class to inherit."""

import functools
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from clouds import forced, normal, relative

from phgcn import global_attention, permutohedral_filter
from phgcn.lattice import MultiScale, Separable
from phgcn.lattice.coefficients import multiscale_weights
from phgcn.lattice.filter_call import FilterCall
from phgcn.lattice.geometry import locate
from phgcn.lattice.levels import finest_level
from phgcn.lattice.reference.levels import mean_pairs
from phgcn.lattice.reference.locate import kuhn_coordinates
from phgcn.lattice.scheme import named_scheme
from phgcn.lattice.stencil import orbits
from phgcn.runtime.points import OutputGradients, Points

pytest.importorskip("triton")
from phgcn.lattice.triton import blur, filter, keys, near, splat
from phgcn.lattice.triton.keys import key_widths
from phgcn.lattice.triton.plan import empty_plan

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}


def quick(dim, **options):
    """Two levels of one hop, with weights of their own, which need no fit."""
    count = len(orbits(dim, 1))
    weights = tuple(tuple(a * 0.5**k for k in range(count)) for a in (0.7, 0.3))
    return MultiScale(spacing=0.8, hops=(1, 1), near_field=0, weights=weights, **options)


def run(device, backend, dtype, call, scheme, inputs, indices):
    """The output and the gradients of all inputs."""
    # Copies: an input that requires a gradient would make those that are computed from it depend on it, on the CPU only.
    leaves = {name: tensor.detach().to(device, dtype, copy=True).requires_grad_() for name, tensor in inputs.items()}
    with poisoned():
        out = call(**leaves, **{k: v.to(device) for k, v in indices.items()}, decay=1.0, method=scheme, backend=backend)
        cotangent = normal(*out.shape, seed=14).to(device, dtype)
        return [out.detach().cpu(), *(g.cpu() for g in torch.autograd.grad(out, list(leaves.values()), cotangent))]


@contextmanager
def poisoned():
    """Fills what is allocated with NaN, or the greatest integer: what is read before it is written is seen."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def cloud(dim, count=13, asked=0, spread=1.0, channels=3):
    """Two heads, three graphs in no order; rounded to float32, so that both types see the same points."""
    shapes = {"positions": (count, 2, dim), "values": (count, 2, channels)}
    if asked:
        shapes["queries"] = (asked, 2, dim)
    inputs = {name: normal(*shape, seed=seed).float().double() for seed, (name, shape) in enumerate(shapes.items(), start=11)}
    for name in set(inputs) - {"values"}:
        inputs[name] = (inputs[name] * spread).float().double()
    indices = {"batch": torch.arange(count) * 7 % 5 % 3}
    if asked:
        indices["query_batch"] = torch.arange(asked) % 3
    return inputs, indices


def noting(function, reads):
    """The function, which adds its name to a list when it is called."""

    @functools.wraps(function)
    def noted(*given, **named):
        reads.append(function.__name__)
        return function(*given, **named)

    return noted


def noted_reads(monkeypatch):
    """A list that takes the name of every way by which the host reads a tensor from now on."""
    reads = []
    for name in ("tolist", "item", "cpu", "__bool__", "__int__", "__float__", "__index__", "nonzero"):
        monkeypatch.setattr(torch.Tensor, name, noting(getattr(torch.Tensor, name), reads))
    return reads


def set_widths(scheme, dim, device, words):
    """Lets the next call guess that keys have so many words; returns the widths."""
    widths = key_widths(scheme, dim, device)
    widths.words, widths.spare_calls = [words] * 3, [0] * 3
    return widths


class LatticeCase:
    device: str
    backend = "triton"

    def run(self, dtype, call, scheme, inputs, indices):
        return run(self.device, self.backend, dtype, call, scheme, inputs, indices)

    def which(self):
        return torch.zeros(1, device=self.device).device

    def tensors(self, dim, asked=0, channels=2, spread=1.0, count=9):
        """Points of two heads and three graphs, on the device."""
        inputs, indices = cloud(dim, count=count, asked=asked, channels=channels, spread=spread)
        names = ("positions", "values", "queries", "batch", "query_batch")
        every = {name: tensor.to(self.device) for name, tensor in (inputs | indices).items()}
        return Points(*(every.get(name) for name in names))

    def compare(self, scheme, given, dtype=torch.float64, call=global_attention, slack=1.0):
        want = run("cpu", "reference", torch.float64, call, scheme, *given)
        for got, exact in zip(self.run(dtype, call, scheme, *given), want, strict=True):
            assert got.dtype == dtype
            assert relative(got, exact) < slack * TOLERANCE[dtype]

    @pytest.mark.parametrize("dim, asked", [(2, 5), (4, 0)])
    def test_nested_levels_agree_with_the_reference(self, dim, asked):
        self.compare(quick(dim), cloud(dim, asked=asked))

    @pytest.mark.parametrize("dim, hops", [(1, (2, 0, 1, 1)), (2, (1, 2, 1, 0))])
    def test_many_levels_of_other_stencils_agree_with_the_reference(self, dim, hops):
        """Steps of two levels and more, with fewer and with more entries than a simplex has corners."""
        weights = tuple(tuple(0.9**level * 0.4**k for k in range(len(orbits(dim, h)))) for level, h in enumerate(hops))
        self.compare(MultiScale(0.4, hops, near_field=0, weights=weights), cloud(dim, asked=3, spread=2.0, channels=2))

    def test_the_plain_sum_agrees_with_the_reference(self):
        self.compare(quick(2), cloud(2, asked=5), call=permutohedral_filter)

    def test_many_channels_agree_with_the_reference(self):
        self.compare(quick(1), cloud(1, channels=150))

    def test_keys_of_several_words_agree_with_the_reference(self):
        inputs, indices = cloud(4, asked=5, channels=2)
        inputs = {name: tensor.clone() for name, tensor in inputs.items()}
        inputs["positions"][3] = 4e6
        self.compare(Separable(), (inputs, indices), slack=1e4)  # coordinates of millions have lost ten digits

    def test_lists_of_the_near_field_that_are_full_give_the_same_bits(self, monkeypatch):
        """They are summed in blocks that do not depend on when, nor on the targets beside."""
        given = cloud(1, count=78, channels=2, spread=0.1)
        scheme = forced("lattice", 1, 3)
        want = self.run(torch.float32, global_attention, scheme, *given)
        monkeypatch.setattr(near, "LIST", near.LOOK + near.CANDIDATES)
        got = self.run(torch.float32, global_attention, scheme, *given)
        assert all(map(torch.equal, got, want))

    def test_how_many_words_keys_have_is_remembered_for_the_next_call(self, monkeypatch):
        positions, values = normal(6, 1, 4, seed=1).to(self.device), normal(6, 1, 2, seed=2).to(self.device)
        positions[3] = 4e6
        set_widths(Separable(), 4, self.which(), 1)
        reads = noted_reads(monkeypatch)
        for expected in (2, 1):
            reads.clear()
            global_attention(positions, values, method=Separable(), backend=self.backend)
            assert len(reads) == expected, reads

    @pytest.mark.parametrize("scheme, dim, words, asked", [(Separable(), 2, 3, 0), (forced("lattice", 1, 2), 1, 2, 4)])
    def test_keys_of_more_words_than_they_need_give_the_same_bits(self, monkeypatch, scheme, dim, words, asked):
        monkeypatch.setattr(keys, "SHRINK_AFTER", 1)
        given = cloud(dim, count=9, asked=asked, channels=2)
        widths = set_widths(scheme, dim, self.which(), words)
        want = self.run(torch.float32, global_attention, scheme, *given)
        # In the next call, half a word will do, of keys that there are.
        assert widths.words == ([0, 0, 0] if isinstance(scheme, MultiScale) else [0, words, words])
        got = self.run(torch.float32, global_attention, scheme, *given)
        assert all(map(torch.equal, got, want))

    def test_in_how_many_bits_neighbours_are_packed_changes_nothing(self, monkeypatch):
        given = cloud(2)
        want = self.run(torch.float32, global_attention, quick(2), *given)
        monkeypatch.setattr(blur, "INT32_RANGE", 0)
        assert all(map(torch.equal, self.run(torch.float32, global_attention, quick(2), *given), want))

    @pytest.mark.parametrize("scheme", [Separable(), quick(1)])
    def test_neighbours_of_some_vertices_at_a_time_give_the_same_bits(self, monkeypatch, scheme):
        given = cloud(1, count=9, channels=2)
        want = self.run(torch.float32, global_attention, scheme, *given)
        for room in (blur, filter):
            monkeypatch.setattr(room, "SLAB", 8)
        assert all(map(torch.equal, self.run(torch.float32, global_attention, scheme, *given), want))

    @pytest.mark.parametrize("scheme, dim, asked", [(Separable(), 2, 0), (forced("lattice", 1, 5, lattices=2), 1, 4)])
    def test_the_plan_changes_no_bit(self, scheme, dim, asked):
        """Nor does a second backward pass; and where the plan is not kept there is none."""
        points, call = self.tensors(dim, asked), FilterCall(scheme, True)
        out, norm, plan = filter.forward(points, call, True)
        grad, grad_norm = (normal(*t.shape, seed=4).to(self.device) for t in (out, norm))
        before = [tensor.clone() for tensor in plan]
        upstream = OutputGradients(grad, grad_norm, out, norm)
        first, again, without = (filter.backward(upstream, p, points, call) for p in (plan, plan, []))
        assert all(map(torch.equal, plan, before))
        for a, b, c in zip(first, again, without, strict=True):
            assert a is None or (torch.equal(a, b) and torch.equal(a, c))
        bare = filter.forward(points, call, False)
        assert torch.equal(bare[0], out) and torch.equal(bare[1], norm) and bare[2] == []

    @pytest.mark.parametrize("scheme, dim, asked", [(Separable(), 2, 0), (quick(1), 1, 4), (quick(1, lattices=2), 1, 0)])
    def test_the_plan_has_the_shapes_that_follow_from_the_inputs(self, scheme, dim, asked):
        points = self.tensors(dim, asked)
        plan = filter.forward(points, FilterCall(scheme, True), True)[2]
        for got, want in zip(plan, empty_plan(points, scheme), strict=True):
            assert (got.shape, got.dtype, got.device, got.stride()) == (want.shape, want.dtype, want.device, want.stride())

    def test_keys_that_outgrow_half_a_word_have_a_whole_one(self):
        inputs = {"positions": normal(6, 1, 4, seed=1), "values": normal(6, 1, 2, seed=2)}
        widths = set_widths(Separable(), 4, self.which(), 0)
        inputs["positions"][3] = 300.0
        self.compare(Separable(), (inputs, {}))
        assert widths.words[0] == 1

    def test_the_finest_levels_are_those_of_the_reference(self):
        """Three clouds of other densities: one starts at the finest level, the others coarser, and all together."""
        inputs, indices = cloud(1, count=24, asked=0, channels=2)
        spread = torch.tensor([0.1, 2.0, 40.0], dtype=torch.float64)[indices["batch"]].reshape(-1, 1, 1)
        inputs = {"positions": (inputs["positions"] * spread).float().double(), "values": inputs["values"]}
        scheme = MultiScale(0.125, (2,) * 4, pairs=5)
        clouds = [inputs["positions"][indices["batch"] == graph, 0] for graph in range(3)]
        fitted = multiscale_weights(scheme, 1)
        levels = [finest_level(scheme, fitted, functools.partial(mean_pairs, points, None)) for points in clouds]
        assert len(set(levels)) > 1, levels
        self.compare(scheme, (inputs, indices))
        asked = {**inputs, "queries": inputs["positions"][:9] + 0.01}
        self.compare(scheme, (asked, {**indices, "query_batch": indices["batch"][:9]}))

    def test_copies_weigh_one_on_each_other(self):
        inputs, indices = cloud(1, count=10, channels=2)
        inputs["positions"] = inputs["positions"][torch.tensor([0, 1, 2, 3, 1, 0, 2, 7, 7, 9])]
        inputs["positions"][7:9] = torch.tensor([0.0, -0.0], dtype=torch.float64).view(2, 1, 1)
        self.compare(forced("lattice", 1, 4, lattices=2), (inputs, {"batch": indices["batch"] % 2}))

    def test_far_queries_agree_with_the_reference(self):
        inputs, indices = cloud(1, count=8, asked=5, channels=2, spread=0.5)
        inputs["queries"] += torch.tensor([4.0, -9.0, 0.0, 14.0, -5.0], dtype=torch.float64).view(5, 1, 1)
        self.compare(forced("lattice", 1, 4), (inputs, indices))

    @pytest.mark.parametrize("asked", [0, 3])
    def test_narrow_clouds_agree_with_the_reference_beside_others(self, asked):
        inputs, indices = cloud(1, count=12, asked=asked, channels=2)
        spread = torch.tensor([0.02, 3.0], dtype=torch.float64)
        indices = {name: graph % 2 for name, graph in indices.items()}
        for name, graph in zip(("positions", "queries"), indices.values(), strict=False):
            inputs[name] = (inputs[name] * spread[graph].view(-1, 1, 1)).float().double()
        self.compare(replace(named_scheme("lattice", 1), pairs=3), (inputs, indices))

    @pytest.mark.parametrize("scheme", [Separable(), MultiScale(0.125, (2,) * 4, pairs=2)])
    @pytest.mark.parametrize("asked", [0, 6])
    def test_graphs_of_few_pairs_are_left_out(self, scheme, asked):
        """Their output and gradients are 0; the others' bits are those of the graphs alone."""
        points = self.tensors(1, asked, count=12)
        batch = torch.tensor([3, 0, 3, 1, 0, 3, 0, 0, 1, 0, 1, 0], device=self.device)
        query_batch = torch.tensor([0, 2, 1, 0, 0, 0], device=self.device) if asked else None
        points = points._replace(batch=batch, query_batch=query_batch)
        found = self.filtered(points, FilterCall(scheme, True, more_than=20))
        some = [batch == 0, batch == 0, query_batch == 0 if asked else None]  # 24 or 36 pairs
        one = [None if t is None else t[s] for t, s in zip(points[:3], some, strict=True)]
        alone = self.filtered(Points(*one), FilterCall(scheme, True))
        of_targets = some[2] if asked else some[0]
        for got, want, mask in zip(found, alone, [of_targets, *some], strict=True):
            if want is not None:
                assert torch.equal(got[mask], want) and not got[~mask].any()

    def filtered(self, points, call):
        """The output and the gradients."""
        out, norm, plan = filter.forward(points, call, True)
        return [out, *filter.backward(OutputGradients(torch.ones_like(out), None, out, norm), plan, points, call)]

    @pytest.mark.parametrize("scheme", [quick(2, lattices=2), forced("lattice", 1, 4)])
    def test_half_values_are_summed_in_float32_and_rounded_once(self, scheme):
        dim = 2 if scheme.lattices == 2 else 1
        inputs, indices = cloud(dim, count=9, channels=2)
        inputs = {name: tensor.float().to(self.device) for name, tensor in inputs.items()}
        batch, values = indices["batch"].to(self.device), inputs["values"].half()
        made = []
        for given in (values, values.float()):
            leaves = [inputs["positions"].clone().requires_grad_(), given.requires_grad_()]
            out = global_attention(*leaves, batch=batch, decay=1.0, method=scheme, backend=self.backend)
            made.append([out.detach(), *torch.autograd.grad(out, leaves, torch.ones_like(out))])
        assert [t.dtype for t in made[0]] == [torch.float16, torch.float32, torch.float16]
        assert torch.equal(made[0][0], made[1][0].half())
        assert all(relative(a, b) < 2e-3 for a, b in zip(made[0], made[1], strict=True))  # the output was rounded

    def test_coarser_vertices_are_those_of_each_level_and_within_their_bound(self, monkeypatch):
        coarsened, coarsen = [], filter.coarsen
        monkeypatch.setattr(
            filter, "coarsen", lambda fine, *rest: (coarsened.append((fine, coarsen(fine, *rest))), coarsened[-1][1])[1]
        )
        positions, values = normal(40, 1, seed=3).to(self.device), normal(40, 2, seed=4).to(self.device)
        weights = ((0.7, 0.3), (0.5, 0.2), (0.4, 0.1))
        scheme = MultiScale(spacing=0.8, hops=(1, 1, 1), near_field=0, weights=weights)
        global_attention(positions, values, decay=1.0, method=scheme, backend=self.backend)
        w = kuhn_coordinates(positions.cpu(), 0.8, 3, 0)
        vertices = [len(locate(w / 2**level)[0].flatten(0, 1).unique(dim=0)) for level in range(3)]
        ((fine, coarse),) = coarsened
        assert fine.level_offset.tolist() == [0] + 3 * [vertices[0]]
        assert coarse.level_offset.tolist() == [0, 0, vertices[1], vertices[1] + vertices[2]]
        assert (fine.count, coarse.count) == (vertices[0], 2 * vertices[0])
        assert (coarse.keys[0, : sum(vertices[1:])].diff() > 0).all()

    def test_coarser_vertices_that_are_counted_give_the_same_bits(self, monkeypatch):
        given = cloud(1, count=9, channels=40)
        scheme = MultiScale(0.8, (1, 1, 1), near_field=0, weights=((0.7, 0.3), (0.5, 0.2), (0.4, 0.1)))
        bounded = self.run(torch.float32, global_attention, scheme, *given)
        monkeypatch.setattr(filter, "COARSE_NUMBERS", 0)
        reads = noted_reads(monkeypatch)
        counted = self.run(torch.float32, global_attention, scheme, *given)
        assert reads.count("__int__") == 2  # forward and backward
        assert all(map(torch.equal, counted, bounded))

    @pytest.mark.parametrize("scheme", [Separable(), MultiScale(0.125, (2,) * 4, pairs=5)])
    def test_the_host_reads_once(self, monkeypatch, scheme):
        """In the forward pass: the backward pass takes the plan.  An index of graphs is read when it is new."""
        batch = torch.tensor([0] * 9 + [1] * 6, device=self.device)
        positions, values = normal(15, 1, 1, seed=1).to(self.device), normal(15, 1, 3, seed=2).to(self.device)
        positions.requires_grad_()
        global_attention(positions, values, method=scheme, backend=self.backend)  # makes constants, which are cached
        reads = noted_reads(monkeypatch)
        for index, moved, expected in ((None, 0, 1), (batch, 0, 2), (batch, 0, 1), (batch, 1, 2)):
            reads.clear()
            if moved:
                batch += moved
            out = global_attention(positions, values, batch=index, method=scheme, backend=self.backend)
            out.backward(values)
            assert len(reads) == expected, reads

    def test_many_keys_are_searched_with_buckets(self, monkeypatch):
        given, scheme = cloud(1, count=9, asked=5), forced("lattice", 1, 5)
        want = self.run(torch.float32, global_attention, scheme, *given)
        monkeypatch.setattr(keys, "MIN_KEYS", 1)
        for buckets in (1, 8):
            monkeypatch.setattr(keys, "MAX_BUCKETS", buckets)
            got = self.run(torch.float32, global_attention, scheme, *given)
            assert all(map(torch.equal, got, want))

    def test_a_batch_is_its_graphs_alone_to_the_bit(self):
        inputs, indices = cloud(2, count=14, channels=2)
        inputs["positions"][indices["batch"] == 1] *= 20
        together = self.run(torch.float32, global_attention, Separable(), inputs, indices)
        cotangent = normal(*inputs["values"].shape, seed=14).float()
        for graph in range(3):
            mine = indices["batch"] == graph
            leaves = [t[mine].float().to(self.device).requires_grad_() for t in inputs.values()]
            out = global_attention(*leaves, decay=1.0, method=Separable(), backend=self.backend)
            alone = [out, *torch.autograd.grad(out, leaves, cotangent[mine].to(self.device))]
            assert all(torch.equal(a.cpu(), b[mine]) for a, b in zip(alone, together, strict=True))

    @pytest.mark.parametrize("scheme, dim", [(Separable(), 3), (quick(2), 2), (forced("lattice", 1, 3), 1)])
    def test_points_that_coincide_get_the_mean_beside_others(self, scheme, dim):
        inputs, indices = cloud(dim, count=12, channels=2)
        inputs = {name: tensor.clone() for name, tensor in inputs.items()}
        inputs["positions"][indices["batch"] == 1] = 0.5
        self.compare(scheme, (inputs, indices))

    @pytest.mark.parametrize("channels", [5, 6])
    def test_padded_channels_agree_with_the_reference(self, channels):
        self.compare(Separable(), cloud(1, count=9, channels=channels))

    @pytest.mark.parametrize("many", [splat.MANY_RUNS, 1])
    def test_long_runs_are_summed_in_pieces(self, monkeypatch, many):
        monkeypatch.setattr(splat, "MANY_RUNS", many)
        inputs = {"positions": normal(70, 1, 1, seed=1) * 1e-3, "values": normal(70, 1, 3, seed=2)}
        self.compare(Separable(), (inputs, {}))

    @pytest.mark.parametrize("count, asked", [(0, None), (1, None), (3, 0), (0, 2)])
    def test_few_points(self, count, asked):
        inputs = {"positions": normal(count, 1, 2, seed=1), "values": normal(count, 1, 2, seed=2)}
        if asked is not None:
            inputs["queries"] = normal(asked, 1, 2, seed=3)
        out, *grads = self.run(torch.float64, global_attention, Separable(), inputs, {})
        if count == 1:
            torch.testing.assert_close(out, inputs["values"])
        else:
            assert out.shape == (count if asked is None else asked, 1, 2)
            assert not out.any()
            assert not any(g.any() for g in grads)

    @pytest.mark.parametrize(
        "name, place, value, message",
        [
            ("positions", (2, 0, 1), float("nan"), r"positions\[2, 0, 1\] is nan; allowed: finite numbers"),
            ("values", (1, 0, 0), float("inf"), r"values\[1, 0, 0\] is inf; allowed: finite numbers"),
            ("queries", (1, 0, 0), 1e12, r"queries\[1, 0, 0\] is 1000000000000.0; allowed: at most .* for a lattice key"),
        ],
    )
    def test_bad_values_are_named(self, name, place, value, message):
        inputs = {"positions": normal(4, 1, 2, seed=1), "values": normal(4, 1, 2, seed=2), "queries": normal(2, 1, 2, seed=3)}
        inputs[name][place] = value
        with pytest.raises(ValueError, match=message):
            self.run(torch.float64, permutohedral_filter, Separable(), inputs, {})

    def test_a_negative_graph_is_named(self):
        inputs = {"positions": normal(4, 1, 2, seed=1), "values": normal(4, 1, 2, seed=2)}
        with pytest.raises(ValueError, match=r"batch\[2\] is -3; allowed: non-negative graph numbers"):
            self.run(torch.float64, global_attention, Separable(), inputs, {"batch": torch.tensor([0, 1, -3, 0])})
