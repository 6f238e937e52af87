"""Edges sorted by node: every backend against NumPy's stable sort."""

import importlib
import itertools

import numpy as np
import pytest
import torch

from phgcn.structural import reference
from phgcn.structural.numba import edges as numba_edges

CUDA = torch.cuda.is_available()


def get_sort(backend):
    if backend == "triton":
        pytest.importorskip("triton")
    return importlib.import_module(
        {"reference": "phgcn.structural.reference"}.get(
            backend, f"phgcn.structural.{backend}.edges"
        )
    )


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("edges", [0, 1, 5, 1000])
@pytest.mark.parametrize("backend", ["reference", "numba", "triton"])
def test_edges_are_sorted_stably(backend, edges, dtype):
    random = np.random.default_rng(edges)
    node, other = random.integers(0, 50, edges), random.integers(0, 60, edges)
    device = "cuda" if CUDA and backend == "triton" else "cpu"
    given = (torch.as_tensor(a, dtype=dtype, device=device) for a in (node, other))
    found = get_sort(backend).sort_edges(*given, 60)
    start, sorted_other, edge = (t.cpu().numpy() for t in found)
    assert all(t.dtype == torch.int32 for t in found)
    assert np.array_equal(edge, np.argsort(node, kind="stable"))
    assert np.array_equal(sorted_other, other[edge])
    assert np.array_equal(start, np.concatenate([[0], np.cumsum(np.bincount(node, minlength=60))]))


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_the_number_of_threads_does_not_change_the_order(count, threads, monkeypatch):
    monkeypatch.setattr(numba_edges, "PART", 10)
    threads(count)
    node, other = (
        torch.as_tensor(np.random.default_rng(seed).integers(0, 50, 1000)) for seed in (1, 2)
    )
    for a, b in zip(
        numba_edges.sort_edges(node, other, 60), reference.sort_edges(node, other, 60), strict=True
    ):
        assert torch.equal(a, b)


def test_triton_replaces_nodes_that_do_not_exist():
    device = "cuda" if CUDA else "cpu"
    node, other = torch.tensor([3, 0, 3], device=device), torch.tensor([1, 9, -1], device=device)
    assert get_sort("triton").sort_edges(node, other, 7).other.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    "degrees", [[], [0] * 5000, [3] * 3000, [0, 9000, 0, 1, 5000], [1] * 2000 + [7000]]
)
def test_ranges_cover_all_nodes_and_have_like_work(degrees):
    start = np.concatenate([[0], np.cumsum(np.array(degrees, np.int64))]).astype(np.int32)
    bounds = numba_edges.share_out(start)
    assert bounds[0] == 0 and bounds[-1] == len(degrees) and (np.diff(bounds) >= 0).all()
    largest = max(degrees, default=0) + 1
    for first, last in itertools.pairwise(bounds):
        assert start[last] - start[first] + last - first <= numba_edges.WORK + largest
