import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch
from clouds import BACKENDS, applied, dense_exact, normal, relative
from torch.autograd import forward_ad

from phgcn import explain_method, global_attention, permutohedral_filter, structural_attention
from phgcn.crossings import CROSSINGS, Crossing
from phgcn.functional import observe_attention
from phgcn.lattice import Ladder

METHODS = ("auto", "exact", "lattice", "lattice-fine", "separable")


class Attention(torch.nn.Module):
    """The smallest module that attends globally."""

    def __init__(self):
        super().__init__()
        self.embed, self.project = torch.nn.Linear(3, 2), torch.nn.Linear(3, 4)
        self.decay = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        scheme = Ladder(pairs=2)
        return global_attention(self.embed(x), self.project(x), decay=self.decay, method=scheme)


def test_defaults_are_those_of_the_paper():
    p, f = normal(20, 3, seed=1), normal(20, 2, seed=2)
    assert relative(global_attention(p, f), applied(dense_exact(10 * p, 10 * p), f, True)) < 1e-12
    assert torch.equal(
        permutohedral_filter(p, f), permutohedral_filter(p, f, decay=1.0, method="lattice")
    )


@pytest.mark.parametrize("method", METHODS)
def test_decay_scales_distances(method):
    p, f = normal(50, 3, seed=1), normal(50, 2, seed=2)
    want = global_attention(4 * p, f, decay=1.0, method=method)
    for decay in (4, 4.0, torch.tensor(4.0), torch.tensor([4.0], dtype=torch.float64)):
        assert torch.equal(global_attention(p, f, decay=decay, method=method), want)


@pytest.mark.parametrize("backend", ("auto", *BACKENDS))
def test_heads_may_decay_differently(backend):
    p = normal(30, 3, 2, seed=1)
    f = normal(30, 3, 4, seed=2)
    decay = torch.tensor([1.0, 3.0, 10.0], dtype=torch.float64)
    got = global_attention(p, f, decay=decay, backend=backend)
    for head in range(3):
        q = decay[head] * p[:, head]
        assert relative(got[:, head], applied(dense_exact(q, q), f[:, head], True)) < 1e-12


def test_values_without_heads_are_shared_by_all():
    p, f = normal(30, 3, 2, seed=1), normal(30, 4, seed=2).requires_grad_()
    got = global_attention(p, f)
    assert torch.equal(got, global_attention(p, f.unsqueeze(1).expand(-1, 3, -1).contiguous()))
    (grad,) = torch.autograd.grad(got.sum(), f)
    assert grad.shape == f.shape
    # Attention is an average: the gradient of the sum of all outputs is one per output, shared out.
    assert relative(grad.sum(), torch.tensor(30 * 3 * 4)) < 1e-12


def test_positions_without_heads_serve_every_head_of_the_values():
    p, f = normal(30, 2, seed=1), normal(30, 3, 4, seed=2)
    got = global_attention(p, f)
    assert got.shape == (30, 3, 4)
    for head in range(3):
        assert torch.equal(got[:, head], global_attention(p, f[:, head]))


@pytest.mark.parametrize("method", METHODS)
def test_shapes(method):
    p, f, q = normal(20, 2, seed=1), normal(20, 5, seed=2), normal(7, 2, seed=3)
    assert global_attention(p, f, method=method).shape == (20, 5)
    assert global_attention(p, f, queries=q, method=method).shape == (7, 5)
    heads = (
        p.unsqueeze(1).repeat(1, 4, 1),
        f.unsqueeze(1).repeat(1, 4, 1),
        q.unsqueeze(1).repeat(1, 4, 1),
    )
    assert global_attention(heads[0], heads[1], queries=heads[2], method=method).shape == (7, 4, 5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("heads", [(), (2,)])
def test_without_keys_the_output_is_0_and_the_mass_minus_infinity(method, heads):
    keys, queries = normal(0, 3), normal(5, 3)
    for weights in (None, torch.ones(0, *heads)):
        given = {"queries": queries, "weights": weights, "method": method}
        out, mass = global_attention(keys, normal(0, *heads, 4), return_mass=True, **given)
        assert torch.equal(out, torch.zeros(5, *heads, 4, dtype=out.dtype))
        assert torch.equal(mass, torch.full((5, *heads), -torch.inf, dtype=mass.dtype))


def test_masks_and_biases_of_no_edges():
    rows = {"edge_mask": torch.zeros(0), "edge_bias": torch.zeros(0)}
    out = structural_attention(normal(3, 2), normal(3, 2), torch.empty(2, 0).long(), **rows)
    assert torch.equal(out, torch.zeros_like(out))


@pytest.mark.parametrize("method", METHODS)
def test_shapes_of_the_mass(method):
    p, f, q = normal(20, 2, seed=1), normal(20, 5, seed=2), normal(7, 2, seed=3)
    for given, queries, shape in (
        ((p, f), None, (20,)),
        ((p, f), q, (7,)),
        ((p.unsqueeze(1).repeat(1, 4, 1), f), None, (20, 4)),
        ((p, f.unsqueeze(1).repeat(1, 4, 1)), q, (7, 4)),
    ):
        out, mass = global_attention(*given, queries=queries, method=method, return_mass=True)
        assert torch.equal(out, global_attention(*given, queries=queries, method=method))
        assert mass.shape == shape


@pytest.mark.parametrize(("method", "error"), [("exact", 1e-5), ("lattice", 5e-3)])
def test_the_mass_counts_points_that_are_close(method, error):
    """A thousand points in one place, and one alone."""
    p = torch.zeros(1001, 3)
    p[1000] = 100.0
    _, mass = global_attention(p, torch.ones(1001, 1), method=method, return_mass=True)
    torch.testing.assert_close(
        mass.exp()[[0, 1000]], torch.tensor([1000.0, 1.0]), rtol=error, atol=0
    )


@pytest.mark.parametrize("spread", [1.0, 10.0])
def test_the_mass_of_the_lattice_is_close_to_the_exact_one(spread):
    p, f = spread * normal(2000, 4, seed=1), normal(2000, 1, seed=2)
    lattice, exact = (
        global_attention(p, f, decay=1.0, method=m, return_mass=True)[1]
        for m in ("lattice", "exact")
    )
    assert (lattice - exact).abs().max() < 0.3
    assert (lattice - exact).square().mean().sqrt() < 0.1


@pytest.mark.parametrize("method", ["exact", "lattice", "separable"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_computed_in_float32_and_returned_in_their_own(dtype, method):
    p = normal(40, 2, seed=1, dtype=dtype).requires_grad_()
    f = normal(40, 3, seed=2, dtype=dtype).requires_grad_()
    got = global_attention(p, f, decay=2.0, method=method)
    assert got.dtype == dtype
    assert torch.equal(
        got, global_attention(p.float(), f.float(), decay=2.0, method=method).to(dtype)
    )
    assert [g.dtype for g in torch.autograd.grad(got.sum(), (p, f))] == [dtype, dtype]


@pytest.mark.parametrize("method", ["exact", "lattice", "separable"])
def test_the_mass_has_the_type_of_the_positions(method):
    p = normal(40, 2, seed=1, dtype=torch.float32).requires_grad_()
    f = normal(40, 3, seed=2, dtype=torch.bfloat16)
    out, want = global_attention(p, f, decay=2.0, method=method, return_mass=True)
    assert (out.dtype, want.dtype) == (torch.bfloat16, torch.float32)
    half = p.detach().bfloat16().requires_grad_()
    _, got = global_attention(half, f, decay=2.0, method=method, return_mass=True)
    assert got.dtype == torch.bfloat16
    assert relative(got, want) < 0.02
    (grad,) = torch.autograd.grad(got.sum(), half)
    assert grad.dtype == torch.bfloat16
    assert relative(grad, torch.autograd.grad(want.sum(), p)[0]) < 0.1


def test_works_under_autocast():
    module, x = Attention(), normal(20, 3, seed=1, dtype=torch.float32)
    want = module(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = module(x)
    assert got.dtype == torch.bfloat16
    assert relative(got, want) < 0.05
    got.sum().backward()
    assert all(
        p.grad.isfinite().all() and p.grad.dtype == torch.float32 for p in module.parameters()
    )


def test_modules_survive_copies_and_pickles():
    module, x = Attention(), normal(20, 3, seed=1, dtype=torch.float32)
    want = module(x)
    want.sum().backward()
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        twin.zero_grad()
        got = twin(x)
        assert torch.equal(got, want)
        got.sum().backward()
        assert torch.equal(twin.embed.weight.grad, module.embed.weight.grad)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_second_derivative_of_a_lattice_is_refused(backend):
    p, f = normal(10, 2, seed=1).requires_grad_(), normal(10, 2, seed=2).requires_grad_()
    out = global_attention(p, f, method=Ladder(pairs=2), backend=backend)
    (grad,) = torch.autograd.grad(out.square().sum(), p, create_graph=True)
    with pytest.raises(
        RuntimeError, match='a lattice has no second derivatives; use method="exact"'
    ):
        torch.autograd.grad(grad.sum(), p)


@pytest.mark.parametrize("method", ["exact", Ladder(pairs=2)])
@pytest.mark.parametrize("across", [False, True])
def test_vmap_equals_a_loop(method, across):
    inputs = [
        normal(4, *shape, seed=seed)
        for seed, shape in enumerate([(10, 2), (10, 3), (6, 2)][: 2 + across])
    ]

    def attend(p, f, q=None):
        return global_attention(p, f, queries=q, method=method, return_mass=True)

    got = torch.func.vmap(attend)(*inputs)
    for a, b in zip(got, zip(*map(attend, *inputs), strict=True), strict=True):
        assert torch.equal(a, torch.stack(b))


def attend_points(method):
    return lambda p: global_attention(p, normal(10, 3, seed=2), method=method)


def attend_neighbours(p):
    return structural_attention(p, normal(10, 3, seed=2), torch.arange(10).repeat(2, 2))


DERIVED = {
    "exact": attend_points("exact"),
    "lattice": attend_points("lattice"),
    "decay": lambda p: global_attention(
        normal(10, 2, seed=1), normal(10, 3, seed=2), decay=p.exp().mean()
    ),
    "structural": attend_neighbours,
}


@pytest.mark.parametrize("call", DERIVED.values(), ids=DERIVED)
def test_forward_derivatives_are_refused(call):
    p = normal(10, 2, seed=1)
    with pytest.raises(RuntimeError, match=r"phgcn: forward-mode derivatives .* use backward\(\)"):
        torch.func.jvp(call, (p,), (torch.ones_like(p),))
    with (
        forward_ad.dual_level(),
        pytest.raises(RuntimeError, match="phgcn: forward-mode derivatives"),
    ):
        call(forward_ad.make_dual(p, torch.ones_like(p)))
    with forward_ad.dual_level():
        assert torch.equal(call(p), call(p))  # without a tangent there is nothing to refuse


@pytest.mark.parametrize("call", DERIVED.values(), ids=DERIVED)
def test_functional_gradients_are_refused(call):
    p = normal(10, 2, seed=1)
    with pytest.raises(
        RuntimeError,
        match=r"phgcn: torch.func.grad, vjp and jacrev are not implemented; use backward\(\)",
    ):
        torch.func.grad(lambda p: call(p).sum())(p)


def test_functional_gradients_of_a_batch_are_refused():
    with pytest.raises(RuntimeError, match=r"phgcn: torch.func.grad"):
        torch.func.vmap(torch.func.grad(lambda p: DERIVED["lattice"](p).sum()))(
            normal(2, 10, 2, seed=1)
        )


@pytest.mark.parametrize("decay", [np.float32(3), np.float64(3), np.int64(3), Fraction(3)])
def test_a_decay_is_any_real_number(decay):
    p, f = normal(10, 2, seed=1), normal(10, 3, seed=2)
    assert torch.equal(global_attention(p, f, decay=decay), global_attention(p, f, decay=3.0))


def test_inputs_are_left_alone():
    tensors = [normal(30, 2, seed=1), normal(30, 3, seed=2), normal(5, 2, seed=3)]
    before = [t.clone() for t in tensors]
    for method in METHODS:
        global_attention(tensors[0], tensors[1], queries=tensors[2], method=method)
    assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))


@pytest.mark.parametrize("method", ["lattice", "lattice-fine", "separable"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_method_is_what_it_says_on_few_points_too(method, backend):
    # the near field holds all pairs of a hundred points
    p, f = normal(400, 2, seed=1), normal(400, 3, seed=2)
    exact = global_attention(p, f, decay=1.0, method="exact", backend=backend)
    assert (
        global_attention(p, f, decay=1.0, method=method, backend=backend) - exact
    ).abs().max() > 1e-4


def test_lattice_and_exact_differ_on_500_points():
    p, f = normal(500, 4, seed=1), normal(500, 3, seed=2)
    exact, lattice = (
        global_attention(p, f, decay=1.0, method=method) for method in ("exact", "lattice")
    )
    assert 1e-3 < relative(lattice, exact) < 0.3


@pytest.mark.parametrize("more", [-200, 0, 1, 1500])
def test_auto_is_the_method_that_it_says_it_picks(more):
    limit = CROSSINGS["cpu"][3].points
    count = limit + more
    p, f = normal(count, 3, seed=1), normal(count, 2, seed=2)
    choice = explain_method(count, 3, p.device)
    assert choice.method == ("exact" if more <= 0 else "lattice")
    assert f"{count:,} points" in str(choice) and f"faster above {limit:,}" in str(choice)
    assert torch.equal(
        global_attention(p, f, decay=1.0), global_attention(p, f, decay=1.0, method=choice.method)
    )


def test_times_and_errors_of_both_methods_are_told():
    few, many = explain_method(300, 4), explain_method(100_000, 4)
    assert few.exact_seconds > 0
    assert 0 < many.lattice_seconds < many.exact_seconds
    assert few.lattice_error == many.lattice_error > 0
    assert f"error of about {many.lattice_error:.2g}" in str(many)
    assert few.exact_error == 0
    assert explain_method(100_000, 4, "cuda").exact_seconds is None


def test_what_was_not_measured_is_said():
    assert "in 4 dimensions on cuda the lattice is faster above" in str(
        explain_method(9, 4, "cuda")
    )
    assert "(measured in the next dimension)" in str(explain_method(9, 3, "cuda"))
    assert "not worth it at any size that was measured" in str(explain_method(9, 6, "cuda"))
    assert "was not measured, and the sum is exact" in str(explain_method(9, 8, "cuda"))


def test_auto_is_exact_where_no_lattice_can_be_built():
    p, f = normal(3000, 9, seed=1), normal(3000, 2, seed=2)
    assert explain_method(3000, 9).method == "exact"
    assert torch.equal(global_attention(p, f), global_attention(p, f, method="exact"))


def test_auto_limits_only_the_coordinates_of_graphs_that_go_through_a_lattice():
    p, f = normal(1500, 2, seed=1), normal(1500, 2, seed=2)
    p[:10] *= 1e13
    batch = (torch.arange(1500) >= 10).long()
    out = global_attention(p, f, batch=batch)
    assert torch.equal(out[:10], global_attention(p[:10], f[:10], method="exact"))
    p[20] = 1e13
    with pytest.raises(
        ValueError, match=r"positions\[20, 0, 0\] is 100000000000000.0; allowed: at most"
    ):
        global_attention(p, f, batch=batch)


def test_auto_treats_each_graph_of_a_batch_by_its_own_size():
    p, f = (normal(1900, size, seed=seed).requires_grad_() for size, seed in ((3, 1), (2, 2)))
    batch = (torch.arange(1900) % 19 < 4).long()  # 1,500 and 400 points
    out = global_attention(p, f, decay=1.0, batch=batch)
    grads = torch.autograd.grad(out.square().sum(), (p, f))
    for graph, method in enumerate(("lattice", "exact")):
        own = batch == graph
        inputs = [t.detach()[own].requires_grad_() for t in (p, f)]
        alone = global_attention(*inputs, decay=1.0, method=method)
        assert torch.equal(out[own], alone)
        for got, want in zip(grads, torch.autograd.grad(alone.square().sum(), inputs), strict=True):
            assert torch.equal(got[own], want)


@pytest.mark.parametrize(
    ("forward", "gradients", "points"),
    [(900, 1000, 1000), (1000, 900, 1000), (0, 900, 900), (None, 900, None), (900, None, None)],
)
def test_auto_leaves_the_exact_sum_where_the_lattice_is_faster_with_and_without_gradients(
    forward, gradients, points
):
    assert Crossing(gradients, forward).points == points


def test_bad_input_of_explain_method_is_named():
    with pytest.raises(ValueError, match="device is 'mps'; allowed: 'cpu', 'cuda'"):
        explain_method(9, device="mps")
    with pytest.raises(ValueError, match="n is -1; allowed: a non-negative integer"):
        explain_method(-1)


def test_calls_of_global_attention_can_be_observed():
    p, f = normal(10, 2, seed=1), normal(10, 3, seed=2)
    with observe_attention() as outer:
        global_attention(p, f, decay=2.0)
        with observe_attention() as inner:
            global_attention(p, f, method="exact")
    global_attention(p, f)
    assert [call.method for call in outer] == ["auto", "exact"] and [
        call.method for call in inner
    ] == ["exact"]
    assert outer[0].positions is p and outer[0].decay == 2.0
