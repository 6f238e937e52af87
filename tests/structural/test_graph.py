import numpy as np
import pytest

from phgcn.structural.numba.edges import by_node, invert, take


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("edges", [0, 1, 5, 1000])
def test_edges_are_sorted_stably_whatever_the_parts(edges, parts):
    node = np.random.default_rng(edges).integers(0, 50, edges)
    start, order = by_node(node, 60, parts)
    assert np.array_equal(order, np.argsort(node, kind="stable"))
    assert np.array_equal(np.diff(start), np.bincount(node, minlength=60))
    assert np.array_equal(take(node, order), np.sort(node))


def test_an_order_is_inverted():
    order = np.random.default_rng(0).permutation(1000).astype(np.int32)
    assert np.array_equal(order[invert(order)], np.arange(1000))
