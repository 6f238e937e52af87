"""Random calls: whatever the shapes, types, graphs, heads, queries and method, a valid call gives a
sensible answer.
"""

import pytest
import torch
from clouds import normal, schemes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phgcn import global_attention, permutohedral_filter

SLACK = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
NAMES = ("auto", "exact", "lattice", "lattice-fine", "separable")
FORCED = ("no near field", "near field", "fine")


@st.composite
def calls(draw):
    """The arguments of a call, and what they were drawn from."""
    dim, heads = draw(st.integers(1, 6)), draw(st.sampled_from([None, 1, 3]))
    count, asked = draw(st.integers(0, 40)), draw(st.sampled_from([None, 0, 1, 9]))
    dtype, seed = draw(st.sampled_from(list(SLACK))), draw(st.integers(0, 10**6))
    spread = draw(st.sampled_from([0.0, 1e-6, 0.1, 1.0, 10.0, 1000.0]))
    graphs = draw(st.sampled_from([None, 1, 4]))
    # Few distinct places make ties and points that coincide.
    rounded = draw(st.booleans())
    between = () if heads is None else (heads,)

    def points(n, offset):
        p = normal(n, *between, dim, seed=seed + offset) * spread
        return (p.round() if rounded else p).to(dtype)

    arguments = {
        "positions": points(count, 0),
        "values": normal(
            count,
            *(between if draw(st.booleans()) else ()),
            draw(st.integers(1, 9)),
            seed=seed + 1,
            dtype=dtype,
        ),
        "decay": draw(st.sampled_from([0.5, 1.0, torch.full((heads or 1,), 3.0)])),
    }
    random = torch.Generator().manual_seed(seed)
    if asked is not None:
        arguments["queries"] = points(asked, 2)
    if graphs is not None:
        arguments["batch"] = torch.randint(graphs, (count,), generator=random)
        if asked is not None:
            arguments["query_batch"] = torch.randint(graphs, (asked,), generator=random)
    kind = draw(st.sampled_from((*NAMES, *FORCED)))
    return arguments, kind, schemes(dim)[kind] if kind in FORCED else kind, draw(st.booleans())


def check(drawn):
    arguments, kind, method, backward = drawn
    tensors = {
        k: v.clone() for k, v in arguments.items() if k in ("positions", "values", "queries")
    }
    arguments = {**arguments, **{k: v.requires_grad_() for k, v in tensors.items()}}
    for call in (global_attention, permutohedral_filter):
        out = call(**arguments, method=method)
        asked = arguments.get("queries", arguments["positions"])
        assert (out.shape[0], out.shape[-1]) == (asked.shape[0], arguments["values"].shape[-1])
        assert out.dtype == arguments["values"].dtype
        assert out.isfinite().all()
        if backward:
            grads = torch.autograd.grad(out.float().sum(), list(tensors.values()))
            assert all(g.isfinite().all() for g in grads)
    check_bounds(arguments, method)
    if kind in ("exact", "auto"):
        check_exact(arguments, method)


def check_bounds(arguments, method):
    """An average lies between the least and the greatest value; the near field's weights may be a
    little negative.
    """
    out, values = global_attention(**arguments, method=method), arguments["values"].detach()
    if values.numel() == 0 or out.numel() == 0:
        return
    low, high = min(float(values.min()), 0), max(float(values.max()), 0)  # 0: graphs without keys
    loose = SLACK[values.dtype] + (
        0 if method in ("exact", "auto", "separable") else 0.05 * (high - low)
    )
    assert float(out.detach().min()) >= low - loose
    assert float(out.detach().max()) <= high + loose


def check_exact(arguments, method):
    arguments = {k: v.detach() if torch.is_tensor(v) else v for k, v in arguments.items()}
    got = global_attention(**arguments, method=method)
    want = global_attention(
        **{
            k: v.double() if torch.is_tensor(v) and v.is_floating_point() else v
            for k, v in arguments.items()
        },
        method="exact",
        backend="reference",
    )
    # Distances, and with them exponents, are as exact as positions are small.
    loose = (
        SLACK[got.dtype]
        * largest(arguments["values"])
        * max(1.0, 3e-3 * largest(arguments["positions"]))
    )
    torch.testing.assert_close(got.double(), want, rtol=0, atol=loose)


def largest(tensor):
    return max([1.0, *tensor.abs().flatten().tolist()])


@settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(calls())
def test_random_calls(drawn):
    check(drawn)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(calls())
def test_many_random_calls(drawn):
    check(drawn)


@st.composite
def broken_calls(draw):
    """A valid call with one thing broken, and the name of the argument."""
    arguments, _, method, _ = draw(calls().filter(lambda drawn: len(drawn[0]["positions"]) > 1))
    names = [
        name
        for name in ("positions", "values", "queries")
        if name in arguments and arguments[name].numel() > 0
    ]
    name = draw(st.sampled_from(names))
    tensor = arguments[name].clone()
    kind = draw(st.sampled_from(["number", "dimensions", "type", "batch length", "batch sign"]))
    if kind == "number":
        tensor.view(-1)[draw(st.integers(0, tensor.numel() - 1))] = draw(
            st.sampled_from([float("nan"), float("inf")])
        )
    elif kind == "dimensions":
        tensor = tensor.reshape(-1)
    elif kind == "type":
        tensor = tensor.to(torch.int32)
    else:
        name = "batch"
        length = len(arguments["positions"])
        tensor = (
            torch.zeros(length + 1, dtype=torch.int64)
            if kind == "batch length"
            else torch.arange(length) - length
        )
        if "queries" in arguments:
            arguments["query_batch"] = torch.zeros(len(arguments["queries"]), dtype=torch.int64)
    return {**arguments, name: tensor}, name, method


def check_broken(drawn):
    arguments, name, method = drawn
    with pytest.raises(ValueError, match=rf"^{name}[ \[].*; allowed: "):
        global_attention(**arguments, method=method)


@settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(broken_calls())
def test_random_broken_calls_are_refused(drawn):
    check_broken(drawn)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(broken_calls())
def test_many_random_broken_calls_are_refused(drawn):
    check_broken(drawn)


CLOSE = {
    "lattice": (0.13, 0.92),
    "lattice-fine": (0.07, 0.975),
    "separable": (0.6, 0.4),
    "no near field": (0.06, 0.93),
    "near field": (0.12, 0.92),
    "fine": (0.06, 0.945),
}
"""Largest error of values, against the deviation of the exact ones from their mean, and smallest
cosine of the gradients of positions and queries, on :func:`ordinary_clouds`: the worst of 600
draws, loosened by about a half."""


@st.composite
def ordinary_clouds(draw):
    """The arguments of a call on which every lattice must be close to the exact sum, and a method.

    Clouds have 100 to 400 points of spread 1 to 2: they neither collapse, where the exact output
    hardly deviates from its mean, nor are so sparse that hardly a pair counts.  The separable
    filter gets no queries: many lie in simplices that no source touches."""
    kind = draw(st.sampled_from(list(CLOSE)))
    dim = draw(st.sampled_from([4, 3, 2, 1]))
    seed = draw(st.integers(0, 10**6))
    decay, heads = draw(st.sampled_from([0.5, 1.0, 4.0])), draw(st.sampled_from([None, 2]))
    spread, graphs = draw(st.sampled_from([1.0, 1.5, 2.0])), draw(st.sampled_from([None, 2]))
    count = draw(st.sampled_from([100, 200, 400])) * (graphs or 1)
    queries = kind != "separable" and draw(st.booleans())
    between = () if heads is None else (heads,)
    arguments = {
        "positions": normal(count, *between, dim, seed=seed) * spread / decay,
        "values": normal(count, *between, 4, seed=seed + 1),
        "decay": decay,
    }
    if queries:
        arguments["queries"] = normal(100, *between, dim, seed=seed + 2) * spread / decay
    if graphs:
        arguments["batch"] = torch.arange(count) % graphs
        if queries:
            arguments["query_batch"] = torch.arange(100) % graphs
    return arguments, kind, schemes(dim)[kind] if kind in FORCED else kind


def attend(arguments, method):
    """The output, and the gradients of positions and queries in one vector, for a fixed random
    cotangent.
    """
    points = {
        key: arguments[key].clone().requires_grad_()
        for key in ("positions", "queries")
        if key in arguments
    }
    out = global_attention(**{**arguments, **points}, method=method)
    grads = torch.autograd.grad(out, list(points.values()), normal(*out.shape, seed=3))
    return out.detach(), torch.cat([grad.flatten() for grad in grads])


def check_close(drawn):
    arguments, kind, method = drawn
    (got, grad), (want, exact_grad) = attend(arguments, method), attend(arguments, "exact")
    largest_error, smallest_cosine = CLOSE[kind]
    assert float((got - want).norm() / (want - want.mean(dim=0)).norm()) <= largest_error
    assert float(torch.nn.functional.cosine_similarity(grad, exact_grad, dim=0)) >= smallest_cosine


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(ordinary_clouds())
def test_lattices_are_close_to_exact_on_random_clouds(drawn):
    check_close(drawn)


@pytest.mark.slow
@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(ordinary_clouds())
def test_lattices_are_close_to_exact_on_many_random_clouds(drawn):
    check_close(drawn)
