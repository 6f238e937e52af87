"""Global attention over 1, 2, 3 and 4 ranks is that of one process: output, mass and every
gradient.

The Triton backend is tested in ``test_triton_ranks.py``.
"""

import pytest
import torch
from attention_cases import Case, attend, choose_within, join_parts, largest_error, make_cloud

from phgcn.lattice import Ladder

FEW = Ladder(pairs=20)
"""So that small clouds have levels too."""

CASES = {
    "exact": Case("exact"),
    "exact, graphs and queries": Case("exact", graphs=6, queries=300),
    "exact, empty ranks": Case("exact", share="last"),
    "exact, Gaussian kernel": Case("exact", queries=300, kernel="gaussian"),
    "Matérn kernel": Case("lattice", 2.0, kernel="matern32"),
    "dense": Case(FEW, 0.7),
    "sparse": Case(FEW, 10.0),
    "lattice": Case("lattice", 2.0),
    "fine": Case("lattice-fine", 3.0, keys=300),
    "without a near field, backward twice": Case(Ladder(pairs=0), 1.0, keys=200, twice=True, dim=2),
    "narrow, copies": Case("lattice", 0.1, copies=True, dim=4, keys=200),
    "queries": Case(FEW, 8.0, queries=300),
    "queries on other ranks than keys": Case(FEW, 8.0, queries=300, share="apart"),
    "far queries": Case("lattice", 0.5, queries=200, away=4.0),
    "graphs": Case(FEW, 4.0, graphs=6),
    "graphs of several widths and queries": Case(
        FEW, 2.0, graphs=4, queries=200, by_graph=(10.0, 0.1, 2.0, 0.0), heads=1
    ),
    "graphs, each by its own method": Case("auto", 2.0, keys=600, graphs=6, limit=100**2),
    "empty ranks": Case(FEW, 8.0, share="last"),
    "all points in one place": Case("lattice", 0.0, keys=60),
    "points far outside": Case(FEW, 1.0, keys=500, lone=20, dim=4, apart=1e5),
    "six dimensions": Case("lattice", 4.0, keys=300, heads=1, dim=6),
    "separable": Case("separable", 3.0),
    "separable, queries": Case("separable", 3.0, queries=200, heads=1),
    "separable, graphs, empty ranks": Case("separable", 1.0, graphs=4, share="last"),
    "float32": Case("lattice", 3.0, dtype="float32"),
    "float32, exact": Case("exact", dtype="float32"),
    "reference": Case("lattice", 3.0, keys=40, heads=1, backend="reference"),
    "weights": Case(FEW, 4.0, weighted=True),
    "weights, queries, graphs": Case(FEW, 4.0, graphs=4, queries=200, weighted=True),
    "weights, separable, graphs": Case("separable", 2.0, graphs=4, weighted=True),
    "weights, exact, graphs": Case("exact", graphs=4, weighted=True),
    "weights, exact, queries": Case("exact", queries=200, weighted=True, dtype="float32"),
    "weights, each by its own method": Case(
        "auto", 2.0, keys=600, graphs=6, limit=100**2, weighted=True
    ),
    "weights, reference": Case("lattice", 3.0, keys=40, backend="reference", weighted=True),
}


@pytest.mark.parametrize("name", CASES)
def test_ranks_are_one_process(pool, name):
    case = CASES[name]
    whole = attend(case, make_cloud(case))
    tolerance = 1e-12 if case.dtype == "float64" else 1e-5
    for size in (1, 2, 3, 4) if case.backend == "auto" else (3,):
        parts = pool.run("attention_cases:attend_on_rank", size, case=case)
        joined = join_parts(whole, parts)
        for key, value in whole.items():
            error = largest_error(joined[key], value)
            assert error <= tolerance, f"{key} on {size} ranks is off by {error:.1e}"


def test_the_same_number_of_ranks_gives_the_same_bits(pool):
    case = Case("lattice", 6.0, graphs=3, dtype="float32")
    first, second = (pool.run("attention_cases:attend_on_rank", 3, case=case) for _ in range(2))
    for (one, *_), (other, *_) in zip(first, second, strict=True):
        assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize(
    ("how", "said", "told"),
    [
        ("width", "channels is 5 on rank 1; allowed: 4, as on rank 0", None),
        ("dimensions", "dimensions is 2 on rank 1; allowed: 3, as on rank 0", None),
        (
            "type",
            "positions' type is torch.float64 on rank 1; allowed: torch.float32, as on rank 0",
            None,
        ),
        ("method", "method is", None),
        ("kernel", "kernel is gaussian on rank 1; allowed: exponential, as on rank 0", None),
        ("weights", "weights is given on rank 1; allowed: not given, as on rank 0", None),
        (
            "not finite",
            "values[3, 0, 1] is nan; allowed: finite numbers",
            "rank 1 refused its arguments: values[3, 0, 1]",
        ),
        ("too far", "positions[7, 0, 0] is 1", "rank 1 refused its arguments: positions[7, 0, 0]"),
        ("decay", "decay is -1.0; allowed", "rank 1 refused its arguments: decay is -1.0"),
        ("tolerance", "tolerance is 0.2 on rank 1; allowed: 0.1, as on rank 0", None),
        ("device", "positions are on meta; allowed with this group: cpu", None),
    ],
)
def test_wrong_use_is_an_error_on_every_rank(pool, how, said, told):
    answers = pool.try_all("attention_cases:attend_wrongly", 3, how=how)
    for rank, (ok, (kind, text, _)) in enumerate(answers):
        assert not ok and kind in ("ValueError", "RanksDisagree")
        assert (said if told is None or rank == 1 else told) in text


def test_a_rank_that_does_not_answer_is_an_error_in_time(pool):
    said, *_ = pool.run("attention_cases:leave_waiting", 4, seconds=1.0)
    assert said.startswith(
        "rank 0 of 4: another process ended, or did not answer within the timeout ("
    )


@pytest.mark.parametrize("queries", [False, True])
def test_ranks_choose_the_method_within_a_tolerance_that_one_process_does(pool, queries):
    whole, _ = choose_within(None, queries)
    assert len({choice for choice, _ in whole}) > 2
    parts = pool.run("attention_cases:choose_within", 3, queries=queries)
    for number, (choice, out) in enumerate(whole):
        joined = torch.empty_like(out)
        for chosen, targets in parts:
            assert chosen[number][0] == choice
            joined[targets] = chosen[number][1]
        torch.testing.assert_close(joined, out, rtol=1e-5, atol=1e-5)
