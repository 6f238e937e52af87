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


CASES = {
    # values that are no numbers
    "nan position": (
        dict(positions=with_bad(P, (2, 1), NAN)),
        "positions[2, 0, 1] is nan; allowed: finite numbers",
    ),
    "inf position": (
        dict(positions=with_bad(P, (5, 0), -INF)),
        "positions[5, 0, 0] is -inf; allowed: finite numbers",
    ),
    "nan value": (
        dict(values=with_bad(F, (0, 1), NAN)),
        "values[0, 0, 1] is nan; allowed: finite numbers",
    ),
    "inf value": (
        dict(values=with_bad(F, (3, 1), INF)),
        "values[3, 0, 1] is inf; allowed: finite numbers",
    ),
    "two infs": (
        dict(values=with_bad(with_bad(F, (3, 1), INF), (4, 0), -INF)),
        "values[3, 0, 1] is inf; allowed",
    ),
    "nan query": (
        dict(queries=with_bad(Q, (1, 2), NAN)),
        "queries[1, 0, 2] is nan; allowed: finite numbers",
    ),
    # shapes
    "flat positions": (
        dict(positions=P[:, 0]),
        "positions has shape (6,); allowed: 2 dimensions, or 3 with heads",
    ),
    "flat values": (dict(values=F[:, 0]), "values has shape (6,); allowed: 2 dimensions"),
    "deep values": (
        dict(values=F.reshape(6, 2, 1, 1)),
        "values has shape (6, 2, 1, 1); allowed: 2 dimensions",
    ),
    "flat queries": (dict(queries=Q[0]), "queries has shape (3,); allowed: 2 dimensions"),
    "no coordinates": (
        dict(positions=P[:, :0]),
        "positions has shape (6, 0); allowed: at least one coordinate",
    ),
    "fewer values": (dict(values=F[:4]), "values has 4 rows; allowed: 6, as positions"),
    "other dimension": (
        dict(queries=Q[:, :2]),
        "queries has shape (4, 2); allowed: ('M', 3), like positions",
    ),
    "heads of queries": (
        dict(queries=Q.unsqueeze(1)),
        "queries has shape (4, 1, 3); allowed: ('M', 3), like positions",
    ),
    "heads of values": (
        dict(positions=P.unsqueeze(1).repeat(1, 2, 1), values=F.unsqueeze(1).repeat(1, 3, 1)),
        "values has 3 heads; allowed: 2, as positions",
    ),
    "no heads": (
        dict(positions=P.unsqueeze(1)[:, :0]),
        "positions has shape (6, 0, 3); allowed: at least one head",
    ),
    # types
    "list": (dict(positions=P.tolist()), "positions is a list; allowed: a tensor"),
    "array": (dict(values=F.numpy()), "values is a ndarray; allowed: a tensor"),
    "query list": (dict(queries=Q.tolist()), "queries is a list; allowed: a tensor"),
    "no values": (dict(values=None), "values is a NoneType; allowed: a tensor"),
    "integers": (
        dict(positions=P.long()),
        "positions is torch.int64; allowed: float16, bfloat16, float32, float64",
    ),
    "complex": (dict(values=F.to(torch.complex64)), "values is torch.complex64; allowed: float16"),
    "mixed values": (
        dict(values=F.float()),
        "values is torch.float32; allowed: torch.float64, as positions",
    ),
    "mixed queries": (
        dict(queries=Q.half()),
        "queries is torch.float16; allowed: torch.float64, as positions",
    ),
    "mixed devices": (dict(values=F.to("meta")), "values is on meta; allowed: cpu, as positions"),
    # graphs
    "short batch": (
        dict(batch=zeros(5)),
        "batch has shape (5,); allowed: (6,), one entry per row of positions",
    ),
    "deep batch": (dict(batch=zeros(6, 1)), "batch has shape (6, 1); allowed: (6,)"),
    "negative batch": (
        dict(batch=torch.tensor([0, 0, 1, -3, 0, -1])),
        "batch[3] is -3; allowed: non-negative",
    ),
    "float batch": (dict(batch=torch.zeros(6)), "batch is torch.float32; allowed: int64, int32"),
    "bool batch": (
        dict(batch=torch.zeros(6, dtype=torch.bool)),
        "batch is torch.bool; allowed: int64, int32",
    ),
    "list batch": (dict(batch=[0] * 6), "batch is a list; allowed: a tensor"),
    "meta batch": (dict(batch=zeros(6).to("meta")), "batch is on meta; allowed: cpu, as positions"),
    "query batch alone": (
        dict(query_batch=zeros(6)),
        "query_batch is given without queries; allowed: both or neither",
    ),
    "no query batch": (
        dict(queries=Q, batch=zeros(6)),
        "query_batch is None though batch is given; allowed: both or neither",
    ),
    "no batch": (
        dict(queries=Q, query_batch=zeros(4)),
        "batch is None though query_batch is given; allowed",
    ),
    "short query batch": (
        dict(queries=Q, batch=zeros(6), query_batch=zeros(6)),
        "query_batch has shape (6,); allowed: (4,), one entry per row of queries",
    ),
    "negative query batch": (
        dict(queries=Q, batch=zeros(6), query_batch=torch.tensor([0, -1, 0, 0])),
        "query_batch[1] is -1; allowed: non-negative",
    ),
    # the rest
    "method": (
        dict(method="fast"),
        "method is 'fast'; allowed: 'auto', 'exact', 'lattice', 'lattice-fine', 'separable'",
    ),
    "no method": (dict(method=None), "method is None; allowed: 'auto'"),
    "backend": (
        dict(backend="cuda"),
        "backend is 'cuda'; allowed: 'auto', 'numba', 'triton', 'reference'",
    ),
    "zero decay": (dict(decay=0), "decay is 0; allowed: a positive number"),
    "negative decay": (dict(decay=-1.5), "decay is -1.5; allowed: a positive number"),
    "nan decay": (dict(decay=NAN), "decay is nan; allowed: a positive number"),
    "infinite decay": (dict(decay=INF), "decay is inf; allowed: a positive number"),
    "no decay": (dict(decay=None), "decay is None; allowed: a positive number"),
    "shape of decay": (
        dict(decay=torch.ones(2)),
        "decay has shape (2,); allowed: a scalar or (1,), one per head",
    ),
    "deep decay": (dict(decay=torch.ones(1, 1)), "decay has shape (1, 1); allowed: a scalar"),
    "device of decay": (
        dict(decay=torch.ones(1, device="meta")),
        "decay is on meta; allowed: cpu, as positions",
    ),
}


@pytest.mark.parametrize("call", [global_attention, permutohedral_filter])
@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_named(case, call):
    change, message = CASES[case]
    with pytest.raises(ValueError, match=re.escape(message)):
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
