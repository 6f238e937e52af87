"""Global attention over 1, 2, 3 and 4 ranks is that of one process: output, mass and every gradient.

The Triton backend is tested in ``test_triton_ranks.py``.
"""

import pytest
import torch
from attention_cases import Case, attend, choose_within, join_parts, largest_error, make_cloud

CASES = {
    "exact": Case("exact"),
    "exact, graphs and queries": Case("exact", graphs=6, queries=300),
    "exact, empty ranks": Case("exact", share="last"),
    "dense": Case("lattice", 0.7),
    "dense, backward twice": Case("lattice", 0.7, twice=True),
    "dense, small levels": Case("lattice", 0.7, shares=False),
    "sparse, small levels": Case("lattice", 10.0, shares=False, dtype="float32"),
    "sparse, near field": Case("lattice", 10.0),
    "fine": Case("lattice-fine", 3.0, keys=300),
    "separable": Case("separable", 3.0),
    "separable, queries": Case("separable", 3.0, queries=200, heads=1),
    "queries": Case("lattice", 2.0, queries=300),
    "queries, near field": Case("lattice", 10.0, queries=300),
    "queries on other ranks than keys": Case("lattice", 8.0, queries=300, share="apart"),
    "graphs": Case("lattice", 4.0, graphs=6),
    "graphs and queries": Case("lattice", 4.0, graphs=6, queries=300, heads=1),
    "graphs, each by its own method": Case("auto", 2.0, keys=600, graphs=6, limit=100**2),
    "empty ranks": Case("lattice", 8.0, share="last"),
    "all points in one place": Case("lattice", 0.0, keys=60),
    "narrow": Case("lattice", 0.05),
    "copies on several ranks": Case("lattice", 3.0, copies=True),
    "copies, narrow, graphs": Case("lattice", 0.1, copies=True, graphs=3),
    "far queries": Case("lattice", 0.5, queries=200, away=4.0),
    "lone queries": Case("lattice", 0.4, queries=200, apart=9.0),
    "lone queries, graphs, on other ranks than keys": Case("lattice", 0.4, queries=200, apart=9.0, graphs=3, share="apart"),
    "lone queries, empty ranks": Case("lattice-fine", 0.4, queries=200, apart=9.0, heads=1, share="last"),
    "lone points beside a cluster": Case("lattice", 0.2, keys=2000, lone=20, dim=4),
    "lone points, graphs": Case("lattice", 0.2, keys=4000, lone=20, graphs=2, heads=1),
    "lone points, empty ranks": Case("lattice", 0.2, keys=2000, lone=20, dim=4, share="last"),
    "lone points, float32": Case("lattice", 0.2, keys=2000, lone=20, dim=4, dtype="float32"),
    "core and far points": Case("lattice", 0.01, keys=2000, lone=20, by_head=(1.0, 100.0)),
    "core and far points, graphs": Case("lattice-fine", 0.003, keys=3000, lone=20, graphs=2, heads=1, dim=2),
    "core and far points, empty ranks": Case("lattice", 0.01, keys=1500, lone=20, heads=1, dim=6, share="last"),
    "core and far points, float32": Case("lattice", 0.1, keys=2000, lone=20, heads=1, dtype="float32"),
    "six dimensions": Case("lattice", 4.0, keys=300, heads=1, dim=6),
    "float32": Case("lattice", 3.0, dtype="float32"),
    "float32, exact": Case("exact", dtype="float32"),
    "reference": Case("lattice", 3.0, keys=40, heads=1, backend="reference"),
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
        ("type", "positions' type is torch.float64 on rank 1; allowed: torch.float32, as on rank 0", None),
        ("method", "method is", None),
        ("not finite", "values[3, 0, 1] is nan; allowed: finite numbers", "rank 1 refused its arguments: values[3, 0, 1]"),
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
    assert said.startswith("rank 0 of 4: another process ended, or did not answer within the timeout (")


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
