import itertools

import numba
import numpy as np
import pytest

from phgcn.structural.numba.lines import CHUNK, exponential, fetch, owners, sum_runs


@numba.njit
def exponentials(x, out):
    for i in range(len(x)):
        out[i] = exponential(x[i])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_exponential_is_right_to_the_rounding_of_its_argument(dtype):
    x = -np.concatenate([np.linspace(0, 80, 4000), np.logspace(-9, 0, 200)]).astype(dtype)
    out = np.empty_like(x)
    exponentials(x, out)
    # x / ln 2 is rounded, and so is 1 / ln 2: the result is off by x roundings, and by two of its own. Beside the nearest
    # source's weight of 1 this is nothing, as x e^x is never more than 0.37.
    error = abs(out / np.exp(x.astype(np.longdouble)) - 1)
    assert (error < np.finfo(dtype).eps * (2 - x)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_exponential_of_the_far_away_is_next_to_nothing(dtype):
    x = np.array([-1e4, -np.inf, -1e30, -800], dtype)
    out = np.empty_like(x)
    exponentials(x, out)
    assert (out >= 0).all() and (out <= 1.1 * np.finfo(dtype).tiny).all()


@pytest.mark.parametrize("lanes", [1, 8])
def test_slots_are_fetched_into_lines(lanes):
    table, node = np.random.default_rng(0).random((9, 5, lanes)), np.array([3, 8, 3, 0], np.int32)
    lines = np.zeros((2, 6, lanes))
    fetch(lines, 1, table, node, 3, (0,) * lanes)
    assert np.array_equal(lines[:, 1:5], table[node, 3:].swapaxes(0, 1))
    assert not lines[:, [0, 5]].any()


def test_every_edge_has_its_owner():
    start, own = np.array([0, 2, 2, 5, 5, 6], np.int32), np.empty(4, np.int32)
    owners(start, 0, 1, own)
    assert own.tolist() == [0, 2, 2, 2]


@pytest.mark.parametrize("lanes", [1, 8])
def test_runs_are_summed_across_chunks_and_nodes_without_edges(lanes):
    random = np.random.default_rng(0)
    degree = np.array([0, 3, 0, 1, 2 * CHUNK, 0, 0, 5, CHUNK - 4, 1, 0])
    start = np.concatenate([[0], np.cumsum(degree)]).astype(np.int32)
    given = random.integers(0, 100, (2, start[-1], lanes)).astype(float)
    sums, lines, node = np.zeros((len(degree), 2, lanes)), np.zeros((2, CHUNK + 1, lanes)), 0
    for lead in range(0, start[-1], CHUNK):
        count = min(CHUNK, start[-1] - lead)
        lines[:, 1 : count + 1] = given[:, lead : lead + count]
        node = sum_runs(lines, start, node, lead, count, (0,) * lanes, 0, sums)
    want = [given[:, a:b].sum(axis=1) for a, b in itertools.pairwise(start)]
    assert np.array_equal(sums, want)
