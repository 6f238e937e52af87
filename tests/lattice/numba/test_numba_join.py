import time

import numpy as np
import pytest
import torch
from clouds import normal, schemes

from phgcn import global_attention
from phgcn.lattice import MultiScale
from phgcn.lattice.numba import filter as numba_filter
from phgcn.lattice.numba.join import MOST, SMALL, join_clouds
from phgcn.lattice.scheme import named_scheme

METHODS = (
    "lattice",
    "lattice-fine",
    "separable",
    MultiScale(0.5, (3, 3, 3), near_field=0),
    MultiScale(0.5, (3, 3, 3), near_field=1),
)


def run(points, values, method, batch=None):
    """Output and gradients."""
    inputs = [points.clone().requires_grad_(), values.clone().requires_grad_()]
    out = global_attention(*inputs, decay=1.0, method=method, batch=batch)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), inputs)]


def some_clouds(dim, dtype, heads=2):
    """Clouds of many sizes and spreads in no order, far from the origin and near, large ones and coinciding points too."""
    random = np.random.default_rng(dim)
    sizes = [*random.integers(2, 30, 40).tolist(), SMALL, SMALL + 1, 1, 90, 5, 5, 200, 3, 1, 2]
    batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    spread = torch.tensor(10.0 ** random.uniform(-2, 1.3, len(sizes)))[batch]
    shift = torch.tensor(random.normal(size=(len(sizes), heads, dim)) * 10.0 ** random.uniform(-1, 4, (len(sizes), 1, 1)))[
        batch
    ]
    points = normal(len(batch), heads, dim, seed=1) * spread[:, None, None] + shift
    points[batch == 44] = points[batch == 44][:1]  # five points in one place
    order = torch.from_numpy(random.permutation(len(batch)))
    return points[order].to(dtype), normal(len(batch), heads, 3, seed=2, dtype=dtype), batch[order]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [1, 2, 4])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_joined_clouds_have_the_bits_of_clouds_alone(method, dim, dtype):
    points, values, batch = some_clouds(dim, dtype)
    together = run(points, values, method, batch)
    for graph in batch.unique():
        own = batch == graph
        for got, want in zip(together, run(points[own], values[own], method), strict=True):
            assert torch.equal(got[own], want), int(graph)


def test_joined_clouds_of_many_dimensions_have_the_bits_of_clouds_alone():
    points, values, batch = some_clouds(6, torch.float32, heads=1)
    together = run(points, values, "lattice", batch)
    for graph in batch.unique():
        own = batch == graph
        for got, want in zip(together, run(points[own], values[own], "lattice"), strict=True):
            assert torch.equal(got[own], want), int(graph)


def test_small_clouds_are_joined_and_others_are_not():
    sizes = [3, 4, SMALL + 1, 5, 1, 6, 7]
    ends = np.cumsum(sizes).tolist()
    slices = [(slice(end - size, end),) * 2 for size, end in zip(sizes, ends, strict=True)]
    points = np.random.default_rng(0).normal(size=(ends[-1], 3))
    found = [
        (pair[0].start, pair[0].stop, starts.tolist())
        for pair, starts in join_clouds(points, slices, named_scheme("lattice", 3))
    ]
    assert found == [(0, 7, [0, 3]), (7, 72, []), (72, 77, []), (77, 78, []), (78, 91, [0, 6])]
    many = [(slice(2 * k, 2 * k + 2),) * 2 for k in range(MOST)]
    points = np.random.default_rng(0).normal(size=(2 * MOST, 3))
    assert [len(starts) for _, starts in join_clouds(points, many, schemes(3)["separable"])] == [MOST // 2, MOST // 2]


def test_clouds_too_wide_for_one_key_are_not_joined():
    points = np.random.default_rng(0).normal(size=(40, 8)) * 1e5
    slices = [(slice(2 * k, 2 * k + 2),) * 2 for k in range(20)]
    assert all(len(starts) == 0 for _, starts in join_clouds(points, slices, schemes(8)["separable"]))


@pytest.mark.parametrize("method", ["separable", "lattice"])
def test_thousands_of_tiny_graphs_take_few_lattices(method, monkeypatch):
    points, values, batch = normal(4000, 4, seed=1), normal(4000, 8, seed=2), torch.arange(4000) // 2
    calls = []
    lattice = numba_filter._lattice
    monkeypatch.setattr(numba_filter, "_lattice", lambda *rest: calls.append(1) or lattice(*rest))
    global_attention(points, values, decay=1.0, method=method, batch=batch)
    assert len(calls) == 1
    times = []
    for _ in range(5):  # the quickest counts: what else the process does may come in between
        begin = time.process_time()
        global_attention(points, values, decay=1.0, method=method, batch=batch)
        times.append(time.process_time() - begin)
    assert min(times) < 0.5  # 1.1 s and more if each had its own
