"""Bad input is refused at once, by a message that names the argument, what is wrong with it, and
what is allowed.
"""

import re

import pytest
import torch
from clouds import BACKENDS, normal

from phgcn import global_attention, permutohedral_filter

P, F, Q = normal(6, 3, seed=1), normal(6, 2, seed=2), normal(4, 3, seed=3)
NAN, INF = float("nan"), float("inf")


def with_bad(tensor, place, value):
    out = tensor.clone()
    out[place] = value
    return out


def zeros(*shape):
    return torch.zeros(*shape, dtype=torch.int64)


CHANGES = [
    ("positions", with_bad(P, (2, 1), NAN), "[2, 0, 1] is nan; allowed: finite numbers"),
    ("positions", with_bad(P, (5, 0), -INF), "[5, 0, 0] is -inf; allowed: finite numbers"),
    ("values", with_bad(F, (0, 1), NAN), "[0, 0, 1] is nan; allowed: finite numbers"),
    ("values", with_bad(F, (3, 1), INF), "[3, 0, 1] is inf; allowed: finite numbers"),
    ("values", with_bad(with_bad(F, (3, 1), INF), (4, 0), -INF), "[3, 0, 1] is inf; allowed"),
    ("queries", with_bad(Q, (1, 2), NAN), "[1, 0, 2] is nan; allowed: finite numbers"),
    ("positions", P[:, 0], " has shape (6,); allowed: 2 dimensions, or 3 with heads"),
    ("values", F[:, 0], " has shape (6,); allowed: 2 dimensions"),
    ("values", F.reshape(6, 2, 1, 1), " has shape (6, 2, 1, 1); allowed: 2 dimensions"),
    ("queries", Q[0], " has shape (3,); allowed: 2 dimensions"),
    ("positions", P[:, :0], " has shape (6, 0); allowed: at least one coordinate"),
    ("values", F[:4], " has 4 rows; allowed: 6, as positions"),
    ("queries", Q[:, :2], " has shape (4, 2); allowed: ('M', 3), like positions"),
    ("queries", Q.unsqueeze(1), " has shape (4, 1, 3); allowed: ('M', 3), like positions"),
    ("positions", P.unsqueeze(1)[:, :0], " has shape (6, 0, 3); allowed: at least one head"),
    ("positions", P.tolist(), " is a list; allowed: a tensor"),
    ("values", F.numpy(), " is a ndarray; allowed: a tensor"),
    ("queries", Q.tolist(), " is a list; allowed: a tensor"),
    ("values", None, " is a NoneType; allowed: a tensor"),
    ("positions", P.long(), " is torch.int64; allowed: float16, bfloat16, float32, float64"),
    ("values", F.to(torch.complex64), " is torch.complex64; allowed: float16"),
    ("values", F.float(), " is torch.float32; allowed: torch.float64, as positions"),
    ("queries", Q.half(), " is torch.float16; allowed: torch.float64, as positions"),
    ("values", F.to("meta"), " is on meta; allowed: cpu, as positions"),
    ("batch", zeros(5), " has shape (5,); allowed: (6,), one entry per row of positions"),
    ("batch", zeros(6, 1), " has shape (6, 1); allowed: (6,)"),
    ("batch", torch.tensor([0, 0, 1, -3, 0, -1]), "[3] is -3; allowed: non-negative"),
    ("batch", torch.zeros(6), " is torch.float32; allowed: int64, int32"),
    ("batch", torch.zeros(6, dtype=torch.bool), " is torch.bool; allowed: int64, int32"),
    ("batch", [0] * 6, " is a list; allowed: a tensor"),
    ("batch", zeros(6).to("meta"), " is on meta; allowed: cpu, as positions"),
    ("query_batch", zeros(6), " is given without queries; allowed: both or neither"),
    (
        "method",
        "fast",
        " is 'fast'; allowed: 'auto', 'exact', 'lattice', 'lattice-fine', 'separable'",
    ),
    ("method", None, " is None; allowed: 'auto'"),
    ("backend", "cuda", " is 'cuda'; allowed: 'auto', 'numba', 'triton', 'reference'"),
    ("decay", 0, " is 0; allowed: a positive number"),
    ("decay", -1.5, " is -1.5; allowed: a positive number"),
    ("decay", NAN, " is nan; allowed: a positive number"),
    ("decay", INF, " is inf; allowed: a positive number"),
    ("decay", None, " is None; allowed: a positive number"),
    ("decay", torch.ones(2), " has shape (2,); allowed: a scalar or (1,), one per head"),
    ("decay", torch.ones(1, 1), " has shape (1, 1); allowed: a scalar"),
    ("decay", torch.ones(1, device="meta"), " is on meta; allowed: cpu, as positions"),
    ("weights", [1.0], " is a list; allowed: a tensor"),
    ("weights", torch.ones(6, dtype=torch.long), " is torch.int64; allowed: a floating type"),
    ("weights", torch.ones(4), " has shape (4,); allowed: (6,) or (6, 1)"),
    (
        "weights",
        with_bad(torch.ones(6), 2, -1),
        "[2] is -1.0; allowed: finite numbers that are not",
    ),
    ("weights", torch.full((6, 1), NAN), "[0, 0] is nan; allowed: finite numbers that are not neg"),
]
"""An argument, its value, and what is said of it."""
PAIRS = [
    (
        dict(positions=P.unsqueeze(1).repeat(1, 2, 1), values=F.unsqueeze(1).repeat(1, 3, 1)),
        "values has 3 heads; allowed: 2, as positions",
    ),
    (
        dict(queries=Q, batch=zeros(6)),
        "query_batch is None though batch is given; allowed: both or neither",
    ),
    (dict(queries=Q, query_batch=zeros(4)), "batch is None though query_batch is given; allowed"),
    (
        dict(queries=Q, batch=zeros(6), query_batch=zeros(6)),
        "query_batch has shape (6,); allowed: (4,), one entry per row of queries",
    ),
    (
        dict(queries=Q, batch=zeros(6), query_batch=torch.tensor([0, -1, 0, 0])),
        "query_batch[1] is -1; allowed: non-negative",
    ),
]


CASES = PAIRS + [({name: value}, name + said) for name, value, said in CHANGES]


@pytest.mark.parametrize("call", [global_attention, permutohedral_filter])
@pytest.mark.parametrize("change, said", CASES, ids=[said for _, said in CASES])
def test_bad_input_is_named(change, said, call):
    with pytest.raises(ValueError, match=re.escape(said)):
        call(**{"positions": P, "values": F, **change})


@pytest.mark.parametrize("method", ["exact", "lattice"])
@pytest.mark.parametrize("value", [0.0, -2.0, NAN, INF])
@pytest.mark.parametrize("shape", [(), (1,), (2,)])
def test_a_bad_tensor_of_decays_is_named(shape, value, method):
    decay = torch.full(shape, 3.0)
    decay.view(-1)[-1] = value
    points = P.unsqueeze(1).repeat(1, 2, 1)
    with pytest.raises(ValueError, match=rf"decay.* is {value}; allowed"):
        global_attention(points, F, decay=decay, method=method)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("method", ["exact", "lattice", "separable"])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_every_backend_and_method_looks_at_every_number(value, method, backend):
    for place in ((0, 0), (5, 2)):
        with pytest.raises(ValueError, match=rf"positions\[{place[0]}, 0, {place[1]}\] is {value}"):
            global_attention(with_bad(P, place, value), F, method=method, backend=backend)


@pytest.mark.parametrize("method", ["lattice", "lattice-fine", "separable"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_coordinates_too_large_for_a_key_are_refused(backend, method):
    with pytest.raises(
        ValueError,
        match=r"positions\[1, 0, 2\] is 10000000000000.0; allowed: at most .* for a lattice key",
    ):
        global_attention(with_bad(P, (1, 2), 1e13), F, decay=1.0, method=method, backend=backend)
    far = {
        "queries": with_bad(Q, (3, 0), -1e13),
        "decay": 1.0,
        "method": method,
        "backend": backend,
    }
    with pytest.raises(
        ValueError, match=r"queries\[3, 0, 0\] is -10000000000000.0; allowed: at most"
    ):
        permutohedral_filter(P, F, **far)
    assert global_attention(P, F, **far).isfinite().all()  # queries are drawn near to the keys


def test_what_is_too_large_depends_on_the_decay():
    with pytest.raises(ValueError, match=r"positions\[1, 0, 2\] is"):
        global_attention(with_bad(P, (1, 2), 1e9), F, decay=1e4, method="lattice")
    assert (
        global_attention(with_bad(P, (1, 2), 1e9), F, decay=1e-4, method="lattice").isfinite().all()
    )


def test_exact_attention_has_no_largest_coordinate():
    out = global_attention(with_bad(P, (1, 2), 1e13), F, decay=1.0, method="exact")
    torch.testing.assert_close(out[1], F[1])


def test_positions_that_overflow_with_the_decay_are_named():
    with pytest.raises(ValueError, match="positions"):
        global_attention(
            torch.full((3, 1), 1e300, dtype=torch.float64),
            torch.ones(3, 1, dtype=torch.float64),
            decay=1e10,
        )
