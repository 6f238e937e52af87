import numpy as np
import pytest
import torch

from phgcn import global_attention
from phgcn.lattice import Exact, MultiScale, Separable
from phgcn.lattice.coefficients import multiscale_weights
from phgcn.lattice.groups import finest_level, make_groups, summed_exactly
from phgcn.lattice.scheme import named_scheme, without_exception


def test_points_of_a_graph_come_together_in_their_order():
    groups = make_groups(5, np.array([1, 0, 1, 3, 0]), None, None)
    found = [groups.key_order[k].tolist() for k, _ in groups.slices()]
    assert found == [[1, 4], [0, 2], [], [3]]


def test_keys_and_queries_of_a_graph_meet():
    groups = make_groups(3, np.array([0, 2, 2]), 2, np.array([2, 1]))
    found = [(groups.key_order[k].tolist(), groups.query_order[q].tolist()) for k, q in groups.slices()]
    assert found == [([0], []), ([], [1]), ([1, 2], [0])]


def test_far_graph_numbers_take_no_memory():
    groups = make_groups(3, np.array([10**12, 5, 10**12]), 1, np.array([10**12]))
    found = [(groups.key_order[k].tolist(), groups.query_order[q].tolist()) for k, q in groups.slices()]
    assert found == [([1], []), ([0, 2], [0])]


@pytest.mark.parametrize("counts", [(0, None), (0, 4), (4, 0)])
def test_no_points_are_one_empty_graph(counts):
    groups = make_groups(counts[0], None, counts[1], None)
    ((keys, queries),) = groups.slices()
    assert (keys.stop, queries.stop) == (counts[0], counts[0] if counts[1] is None else counts[1])


def test_small_graphs_are_summed_exactly_only_if_the_near_field_is_free():
    free, fixed = named_scheme("lattice", 4), MultiScale(0.5, (2, 2, 2, 2), near_field=0)
    assert summed_exactly(free, 1200, 1200)
    assert not summed_exactly(free, 1200, 1201)
    assert summed_exactly(free, 100_000, 10)
    assert not summed_exactly(fixed, 2, 2)
    assert not summed_exactly(Separable(), 2, 2)
    assert summed_exactly(Exact(), 10**6, 10**6)


@pytest.mark.parametrize("method", ["lattice", "lattice-fine"])
def test_no_graph_is_too_small_for_a_lattice_without_exception(method):
    scheme = without_exception(method, 4)
    assert not any(summed_exactly(scheme, 2, 2, device) for device in ("cpu", "cuda"))
    random = torch.Generator().manual_seed(0)
    points, values = (torch.randn(200, size, dtype=torch.float64, generator=random) for size in (4, 3))
    lattice, exact = (global_attention(points, values, decay=2.0, method=chosen) for chosen in (scheme, "exact"))
    assert 1e-6 < float((lattice - exact).abs().max()) < 0.3
    assert torch.equal(exact, global_attention(points, values, decay=2.0, method=method))
    assert summed_exactly(without_exception("auto", 4), 2, 2) and without_exception("exact", 4) == Exact()


def test_the_finest_level_is_the_coarsest_with_few_pairs():
    scheme = MultiScale(0.5, (2, 2, 2, 2), pairs=150)
    fitted = multiscale_weights(scheme, 4)
    assert finest_level(scheme, fitted, lambda radius: 1000.0) == 0
    assert finest_level(scheme, fitted, lambda radius: 100.0 if radius < 3 else 151.0) == 1
    assert finest_level(scheme, fitted, lambda radius: 150.0) == 3
    fixed = MultiScale(0.5, (2, 2, 2, 2), near_field=2)
    assert finest_level(fixed, fitted, lambda radius: 1000.0) == 2
