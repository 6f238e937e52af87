"""Lattices of the Triton backend over 2 and 3 ranks are those of one process, and no rank gathers
all points.

Without a GPU its kernels run in Triton's interpreter, which is slow: small clouds, of few
dimensions.  ``test_nccl.py`` has cases for a GPU."""

import functools

import pytest
import torch
from attention_cases import Case, attend, join_parts, largest_error, make_cloud

from phgcn.lattice import Ladder

pytest.importorskip("triton")

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="Triton compiles for the GPU here, which test_nccl.py uses"
)


def case(method, spread, **options):
    """A case for the interpreter."""
    return Case(
        method,
        spread,
        **({"keys": 30, "dim": 1, "heads": 1, "backend": "triton", "gathers": False} | options),
    )


FEW = Ladder(pairs=3)
"""So that small clouds have levels too."""

CASES = {
    "ladder": case(FEW, 5.0, dim=2, heads=2),
    "more dimensions than cells have": case(FEW, 4.0, keys=7, dim=6),
    "copies": case(FEW, 5.0, graphs=2, copies=True, twice=True),
    "graphs of several widths": case(FEW, 1.0, keys=40, graphs=4, by_graph=(10.0, 0.1, 2.0, 0.0)),
    "graphs, each by its own method": case("auto", 2.0, keys=40, graphs=5, limit=12**2),
    "queries on other ranks than keys": case(FEW, 6.0, queries=20, share="apart"),
    "queries, graphs": case(FEW, 4.0, queries=30, graphs=3),
    "queries, far": case("lattice", 0.3, queries=20, away=3.0),
    "empty ranks": case(FEW, 1.0, keys=20, heads=2, by_head=(0.1, 6.0), share="last"),
    "all points in one place": case("lattice", 0.0, keys=20, heads=2),
    "weights, graphs": case(FEW, 4.0, graphs=3, weighted=True),
    "weights, queries": case(FEW, 4.0, queries=20, weighted=True),
    "separable": case("separable", 3.0, dim=2, heads=2),
    "separable, queries": case("separable", 2.0, queries=20, share="apart"),
}

ON_TWO_RANKS = ("ladder", "separable", "queries, graphs")


@functools.cache
def attend_alone(given):
    """What one process finds."""
    return attend(given, make_cloud(given))


def check(pool, given, size, tolerance, chunk=2**20):
    """Compares what ranks find with one process; returns what they found.  Ranks raise an error if
    they gather all points.
    """
    whole = attend_alone(given)
    watched = pool.run("triton_cases:attend_watched", size, case=given, chunk=chunk)
    joined = join_parts(whole, [some.part for some in watched])
    for key, value in whole.items():
        error = largest_error(joined[key], value)
        assert error <= tolerance, f"{key} on {size} ranks is off by {error:.1e}"
    return watched


@pytest.mark.parametrize("name", CASES)
def test_three_ranks_are_one_process(pool, name):
    check(pool, CASES[name], 3, 1e-11)


@pytest.mark.parametrize("name", ON_TWO_RANKS)
def test_two_ranks_are_one_process_with_near_field_sources_in_chunks(pool, name):
    check(pool, CASES[name], 2, 1e-11, chunk=20)


def test_float32_and_the_same_bits_in_two_runs(pool):
    given = CASES["empty ranks"]._replace(dtype="float32", copies=True)
    first = check(pool, given, 2, 1e-4)
    second = pool.run("triton_cases:attend_watched", 2, case=given)
    for (one, *_), (other, *_) in zip(
        (some.part for some in first), (some.part for some in second), strict=True
    ):
        assert all(torch.equal(one[key], other[key]) for key in one)


def test_what_is_exchanged_follows_the_vertices_and_not_the_points(pool):
    """Of a dense cloud: twice the points, about the same vertices."""
    few, many = (
        sum(
            some.bytes
            for some in pool.run(
                "triton_cases:attend_watched", 2, case=case("separable", 1.0, keys=keys)
            )
        )
        for keys in (1000, 2000)
    )
    row = 8 * (1 + 4)  # position and values of a point
    assert many < 1.5 * few and many < 2000 * row / 10
