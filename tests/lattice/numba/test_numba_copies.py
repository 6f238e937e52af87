from itertools import pairwise

import numpy as np
import pytest

from phgcn.lattice.numba.copies import FEW, Copies
from phgcn.lattice.numba.locate import Simplices


@pytest.mark.parametrize("sizes", [[1, 2, FEW, 1], [FEW + 1, 3], [500]])
def test_the_first_point_in_the_same_place(sizes):
    """Cubes with few and with many points; some points share a weight but not their place."""
    count, random = sum(sizes), np.random.default_rng(len(sizes))
    points = random.integers(0, 4, (count, 2)).astype(np.float64)
    weight = np.stack([points[:, 0] / 8, points[:, 1] / 8, 1 - points.sum(axis=1) / 8], axis=1)
    point, start = random.permutation(count).astype(np.int32), np.cumsum([0, *sizes]).astype(np.int32)
    copies = Copies(points, Simplices(point, np.empty((count, 2), np.uint8), weight[point], start))
    for begin, end in pairwise(start):
        members = point[begin:end]
        for i in members:
            same = members[(points[members] == points[i]).all(axis=1)]
            assert copies.first[i] == same[0]
    assert copies.exist


def test_points_without_copies():
    points = np.arange(20.0).reshape(10, 2)
    weight = np.full((10, 3), 1 / 3)  # all alike: positions decide
    simplices = Simplices(np.arange(10, dtype=np.int32), np.empty((10, 2), np.uint8), weight, np.array([0, 10], np.int32))
    copies = Copies(points, simplices)
    assert not copies.exist
    np.testing.assert_array_equal(copies.first, np.arange(10))
