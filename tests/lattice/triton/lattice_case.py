"""What the lattice in Triton must do, wherever its kernels run: a class to inherit."""

import functools
import weakref

import pytest
import torch
from clouds import forced, normal, relative

from phgcn import global_attention, permutohedral_filter
from phgcn.lattice import Exact, MultiScale, Separable, groups
from phgcn.lattice.geometry import locate
from phgcn.lattice.reference import kuhn_coordinates
from phgcn.lattice.stencil import orbits

pytest.importorskip("triton")
from phgcn.lattice.triton import backend, blurring, build, keys, lattice, near, rows
from phgcn.lattice.triton.constants import constants

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
    out = call(**leaves, **{k: v.to(device) for k, v in indices.items()}, decay=1.0, method=scheme, backend=backend)
    cotangent = normal(*out.shape, seed=14).to(device, dtype)
    return [out.detach().cpu(), *(g.cpu() for g in torch.autograd.grad(out, list(leaves.values()), cotangent))]


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


def give_words(made, number):
    """Lets the next call guess that keys have so many words."""
    for words in made.words:
        words.number, words.spared = number, 0


def noted_plans(monkeypatch):
    """A list that takes a weak reference to every plan from now on."""
    plans, make = [], backend.make_plan

    def noted(*given):
        plan = make(*given)
        plans.append(weakref.ref(plan))
        return plan

    monkeypatch.setattr(backend, "make_plan", noted)
    return plans


class LatticeCase:
    device: str
    backend = "triton"

    def run(self, dtype, call, scheme, inputs, indices):
        return run(self.device, self.backend, dtype, call, scheme, inputs, indices)

    def which(self):
        return torch.zeros(1, device=self.device).device

    def compare(self, scheme, given, dtype=torch.float64, call=global_attention, slack=1.0):
        want = run("cpu", "reference", torch.float64, call, scheme, *given)
        for got, exact in zip(self.run(dtype, call, scheme, *given), want, strict=True):
            assert got.dtype == dtype
            assert relative(got, exact) < slack * TOLERANCE[dtype]

    @pytest.mark.parametrize("asked", [0, 5])
    @pytest.mark.parametrize("dim", [1, 2, 3, 4])
    def test_the_papers_filter_agrees_with_the_reference(self, dim, asked):
        self.compare(Separable(), cloud(dim, asked=asked))

    @pytest.mark.parametrize("asked", [0, 5])
    @pytest.mark.parametrize("dim", [1, 2, 4])
    def test_nested_levels_agree_with_the_reference(self, dim, asked):
        self.compare(quick(dim), cloud(dim, asked=asked))

    @pytest.mark.parametrize("dim, hops", [(1, (2, 0, 1, 1)), (2, (1, 2, 1, 0)), (3, (1, 1, 0, 1))])
    def test_many_levels_of_other_stencils_agree_with_the_reference(self, dim, hops):
        """Steps of two levels and more, with fewer and with more entries than a simplex has corners."""
        weights = tuple(tuple(0.9**level * 0.4**k for k in range(len(orbits(dim, h)))) for level, h in enumerate(hops))
        self.compare(MultiScale(0.4, hops, near_field=0, weights=weights), cloud(dim, asked=3, spread=2.0, channels=2))

    def test_two_lattices_agree_with_the_reference(self):
        self.compare(quick(2, lattices=2), cloud(2))

    def test_float32_agrees_with_the_reference(self):
        self.compare(quick(3), cloud(3, asked=5), torch.float32)
        self.compare(Separable(), cloud(3), torch.float32)

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
        given = cloud(2, count=90, channels=2, spread=0.3)
        scheme = forced("lattice", 2, 2)
        want = self.run(torch.float32, global_attention, scheme, *given)
        monkeypatch.setattr(near, "LIST", near.LOOK + near.CANDIDATES)
        assert all(map(torch.equal, self.run(torch.float32, global_attention, scheme, *given), want))
        self.compare(scheme, given)

    def test_how_many_words_keys_have_is_kept_for_the_next_call(self, monkeypatch):
        positions, values = normal(6, 1, 4, seed=1).to(self.device), normal(6, 1, 2, seed=2).to(self.device)
        positions[3] = 4e6
        give_words(constants(Separable(), 4, positions.dtype, positions.device), 1)
        reads = noted_reads(monkeypatch)
        for expected in (2, 1):
            reads.clear()
            global_attention(positions, values, method=Separable(), backend=self.backend)
            assert len(reads) == expected, reads

    @pytest.mark.parametrize("words, asked", [(1, 0), (3, 5)])
    def test_keys_of_more_words_than_they_need_give_the_same_bits(self, monkeypatch, words, asked):
        monkeypatch.setattr(keys, "PATIENCE", 1)
        for scheme, dim in ((Separable(), 2), (quick(2), 2), (forced("lattice", 1, 2), 1)):
            given = cloud(dim, count=9, asked=asked, channels=2)
            made = constants(scheme, dim, torch.float32, self.which())
            give_words(made, words)
            want = self.run(torch.float32, global_attention, scheme, *given)
            # For the next call, half a word will do, of keys that there are.
            assert [of.number for of in made.words] == ([0, 0, 0] if made.levels > 1 else [0, words, words])
            got = self.run(torch.float32, global_attention, scheme, *given)
            assert all(map(torch.equal, got, want))

    @pytest.mark.parametrize("scheme", [Separable(), quick(2)])
    def test_in_how_many_bits_neighbours_are_found_changes_nothing(self, monkeypatch, scheme):
        given = cloud(2)
        want = self.run(torch.float32, global_attention, scheme, *given)
        monkeypatch.setattr(build, "MOST_IN_32_BITS", 0)
        assert all(map(torch.equal, self.run(torch.float32, global_attention, scheme, *given), want))
        self.compare(scheme, given)

    @pytest.mark.parametrize("scheme, dim, asked", [(Separable(), 2, 0), (quick(2), 2, 5), (forced("lattice", 1, 2), 1, 0)])
    def test_a_backward_pass_takes_the_plan_of_the_forward_pass_once(self, monkeypatch, scheme, dim, asked):
        plans = noted_plans(monkeypatch)
        inputs, indices = cloud(dim, asked=asked, channels=2)
        leaves = {name: tensor.to(self.device).requires_grad_() for name, tensor in inputs.items()}
        indices = {name: index.to(self.device) for name, index in indices.items()}
        out = global_attention(**leaves, **indices, decay=1.0, method=scheme, backend=self.backend)
        backward = functools.partial(torch.autograd.grad, out, list(leaves.values()), torch.ones_like(out), retain_graph=True)
        first = backward()
        assert len(plans) == 1
        assert plans[0]() is None  # though the output is still there
        assert all(map(torch.equal, backward(), first))
        assert len(plans) == 2

    def test_without_a_backward_pass_no_plan_is_kept(self, monkeypatch):
        plans = noted_plans(monkeypatch)
        inputs, indices = cloud(2)
        leaves = {name: tensor.to(self.device).requires_grad_() for name, tensor in inputs.items()}
        with torch.no_grad():
            global_attention(**leaves, batch=indices["batch"].to(self.device), method=Separable(), backend=self.backend)
        assert [plan() for plan in plans] == [None]

    def test_keys_that_outgrow_half_a_word_have_a_whole_one(self):
        inputs = {"positions": normal(6, 1, 4, seed=1), "values": normal(6, 1, 2, seed=2)}
        made = constants(Separable(), 4, torch.float64, self.which())
        give_words(made, 0)
        inputs["positions"][3] = 300.0
        self.compare(Separable(), (inputs, {}))
        assert made.words[0].number == 1

    def test_the_finest_levels_are_those_of_the_reference(self, monkeypatch):
        """Three clouds of other densities: one starts at the finest level, the others coarser, and all together."""
        monkeypatch.setattr(groups, "EXACT_PAIRS", 0)
        monkeypatch.setattr(groups, "EXACT_PAIRS_CUDA", 0)
        inputs, indices = cloud(1, count=24, asked=0, channels=2)
        spread = torch.tensor([0.1, 2.0, 40.0], dtype=torch.float64)[indices["batch"]].reshape(-1, 1, 1)
        inputs = {"positions": (inputs["positions"] * spread).float().double(), "values": inputs["values"]}
        scheme = MultiScale(0.125, (4,) * 6, pairs=5)
        self.compare(scheme, (inputs, indices))
        asked = {**inputs, "queries": inputs["positions"][:9] + 0.01}
        self.compare(scheme, (asked, {**indices, "query_batch": indices["batch"][:9]}))

    def test_small_graphs_are_summed_exactly_beside_large_ones(self, monkeypatch):
        monkeypatch.setattr(groups, "EXACT_PAIRS", 20)
        monkeypatch.setattr(groups, "EXACT_PAIRS_CUDA", 20)
        inputs, _ = cloud(1, count=12, asked=6, channels=2)
        indices = {"batch": torch.tensor([3, 0, 3, 1, 0, 3, 0, 0, 1, 0, 1, 0]), "query_batch": torch.tensor([0, 2, 1, 0, 0, 0])}
        scheme = MultiScale(0.125, (4,) * 6, pairs=2)
        self.compare(scheme, (inputs, indices))  # 24 pairs by a lattice, 3 exactly, a graph without keys, one without queries
        del inputs["queries"]
        self.compare(scheme, (inputs, {"batch": indices["batch"]}))

    @pytest.mark.parametrize("scheme", [Separable(), quick(2, lattices=2), forced("lattice", 2, 4)])
    def test_half_values_are_summed_in_float32_and_rounded_once(self, scheme):
        inputs, indices = cloud(2, count=9, channels=2)
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

    def test_coarser_levels_are_found_and_have_room(self, monkeypatch):
        blurred = []
        blur = blurring.blur

        def noted(tables, keys, count, stencil, fields, before, bounded, *near):
            there = before[stencil.levels].item() if bounded else count
            blurred.append((there, count, keys[:, :there].cpu()))
            return blur(tables, keys, count, stencil, fields, before, bounded, *near)

        monkeypatch.setattr(lattice, "blur", noted)
        positions, values = normal(40, 1, seed=3).to(self.device), normal(40, 2, seed=4).to(self.device)
        weights = ((0.7, 0.3), (0.5, 0.2), (0.4, 0.1))
        scheme = MultiScale(spacing=0.8, hops=(1, 1, 1), near_field=0, weights=weights)
        global_attention(positions, values, decay=1.0, method=scheme, backend=self.backend)
        w = kuhn_coordinates(positions.cpu(), 0.8, 3, 0)
        vertices = [len(locate(w / 2**level)[0].flatten(0, 1).unique(dim=0)) for level in range(3)]
        assert [there for there, _, _ in blurred] == [vertices[0], sum(vertices[1:])]
        assert [count for _, count, _ in blurred] == [vertices[0], 2 * vertices[0]]
        assert all((keys[0].diff() > 0).all() for _, _, keys in blurred)

    def test_channels_of_coarser_levels_in_turns_give_the_same_bits(self, monkeypatch):
        given = cloud(1, count=9, channels=40)
        scheme = MultiScale(0.8, (1, 1, 1), near_field=0, weights=((0.7, 0.3), (0.5, 0.2), (0.4, 0.1)))
        at_once = self.run(torch.float32, global_attention, scheme, *given)
        monkeypatch.setattr(lattice, "ROOM", 0)
        in_turns = self.run(torch.float32, global_attention, scheme, *given)
        assert all(map(torch.equal, in_turns, at_once))

    @pytest.mark.parametrize("scheme", [Separable(), quick(2), MultiScale(0.125, (2,) * 4, pairs=5), Exact()])
    def test_the_host_reads_once(self, monkeypatch, scheme):
        """Forward: the backward pass takes what was found.  An index of graphs is read when it is new."""
        monkeypatch.setattr(groups, "EXACT_PAIRS", 0)
        monkeypatch.setattr(groups, "EXACT_PAIRS_CUDA", 0)
        batch = torch.tensor([0] * 9 + [1] * 6, device=self.device)
        positions, values = normal(15, 2, 2, seed=1).to(self.device), normal(15, 2, 3, seed=2).to(self.device)
        positions.requires_grad_()
        global_attention(positions, values, method=scheme, backend=self.backend)  # makes constants, which are kept
        reads = noted_reads(monkeypatch)
        for index, moved, expected in ((None, 0, 1), (batch, 0, 2), (batch, 0, 1), (batch, 1, 2)):
            reads.clear()
            if moved:
                batch += moved
            out = global_attention(positions, values, batch=index, method=scheme, backend=self.backend)
            out.backward(values)
            assert len(reads) == expected, reads

    @pytest.mark.parametrize(
        "scheme", [Separable(), quick(2, lattices=2), forced("lattice", 1, 4), MultiScale(0.125, (2,) * 4, pairs=5)]
    )
    @pytest.mark.parametrize("asked", [0, 5])
    def test_what_is_launched_without_a_look_at_the_data_gives_the_same_bits(self, monkeypatch, scheme, asked):
        """As while a CUDA graph is recorded."""
        monkeypatch.setattr(groups, "EXACT_PAIRS", 0)
        monkeypatch.setattr(groups, "EXACT_PAIRS_CUDA", 0)
        dim = 2 if getattr(scheme, "lattices", 1) == 2 else 1
        given = cloud(dim, count=9, asked=asked, channels=2, spread=3.0)
        given[0]["positions"][:, 0] *= 0.01  # another density, another level
        want = self.run(torch.float32, global_attention, scheme, *given)
        monkeypatch.setattr(backend, "capturing", lambda tensor: True)
        assert all(
            torch.equal(a, b) for a, b in zip(self.run(torch.float32, global_attention, scheme, *given), want, strict=True)
        )

    def test_keys_that_do_not_fit_are_no_numbers_where_nobody_looks(self, monkeypatch):
        """They fit where a call before, which looked, has found how many words they need."""
        inputs = {"positions": normal(4, 1, 4, seed=1), "values": normal(4, 1, 2, seed=2)}
        inputs["positions"][2] = 4e6
        give_words(constants(Separable(), 4, torch.float64, self.which()), 1)
        with monkeypatch.context() as recording:
            recording.setattr(backend, "capturing", lambda tensor: True)
            out, *_ = self.run(torch.float64, global_attention, Separable(), inputs, {})
        assert out.isnan().all()
        want = self.run(torch.float64, global_attention, Separable(), inputs, {})
        monkeypatch.setattr(backend, "capturing", lambda tensor: True)
        got = self.run(torch.float64, global_attention, Separable(), inputs, {})
        assert all(map(torch.equal, got, want))

    @pytest.mark.parametrize("scheme, dim", [(quick(2), 2), (forced("lattice", 1, 2), 1)])
    def test_many_keys_are_sought_with_an_index(self, monkeypatch, scheme, dim):
        given = cloud(dim, asked=5)
        want = self.run(torch.float32, global_attention, scheme, *given)
        monkeypatch.setattr(keys, "FEW_KEYS", 1)
        for most in (1, 8, 1 << 18):
            monkeypatch.setattr(keys, "MOST_BUCKETS", most)
            got = self.run(torch.float32, global_attention, scheme, *given)
            assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))

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

    @pytest.mark.parametrize("scheme", [Separable(), quick(3)])
    def test_points_all_alike_get_the_mean_beside_others(self, scheme):
        inputs, indices = cloud(3, count=12, channels=2)
        inputs = {name: tensor.clone() for name, tensor in inputs.items()}
        inputs["positions"][indices["batch"] == 1] = 0.5
        self.compare(scheme, (inputs, indices))

    @pytest.mark.parametrize("many", [rows.MANY_RUNS, 1])
    def test_long_runs_are_summed_in_pieces(self, monkeypatch, many):
        monkeypatch.setattr(rows, "MANY_RUNS", many)
        inputs = {"positions": normal(70, 1, 1, seed=1) * 1e-3, "values": normal(70, 1, 2, seed=2)}
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
            self.run(torch.float64, global_attention, Separable(), inputs, {})

    def test_a_negative_graph_is_named(self):
        inputs = {"positions": normal(4, 1, 2, seed=1), "values": normal(4, 1, 2, seed=2)}
        with pytest.raises(ValueError, match=r"batch\[2\] is -3; allowed: non-negative graph numbers"):
            self.run(torch.float64, global_attention, Separable(), inputs, {"batch": torch.tensor([0, 1, -3, 0])})
