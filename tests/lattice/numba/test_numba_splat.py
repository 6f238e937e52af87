"""Two ways to splat: cube by cube, and vertex by vertex where most corners of cubes have one point."""

import numpy as np
import pytest
import torch

from phgcn.lattice.numba import splat as splatting
from phgcn.lattice.numba.index import index, lay_out, planned_vertices
from phgcn.lattice.numba.locate import kuhn_coordinates, locate, planned_simplices
from phgcn.lattice.numba.plan import plan_of_cloud, plan_shapes, zeros
from phgcn.lattice.numba.splat import BLOCK, splat
from phgcn.lattice.scheme import named_scheme


def located(points):
    """Points (P, D) on level 0 of `lattice`: simplices, corners, level."""
    scheme, tensor = named_scheme("lattice", points.size(1)), points.unsqueeze(1)
    plan = plan_of_cloud(zeros(plan_shapes(tensor, 1, len(points), scheme)), 0, 0, 0, len(points))
    frame = kuhn_coordinates(points.numpy(), scheme.spacing, scheme.hops, 0)
    locate(frame, 0, plan)
    index(frame, planned_simplices(plan), 0, plan)
    corners, vertices = planned_vertices(plan)
    return planned_simplices(plan), corners, lay_out(vertices, frame.keys(0), 4)


def rows_of(count, width, seed):
    return np.random.default_rng(seed).standard_normal((count, width))


@pytest.mark.parametrize("dim", [1, 4, 6])
@pytest.mark.parametrize("keys", [2000, 1500])
def test_vertex_by_vertex_is_cube_by_cube(dim, keys, monkeypatch):
    """The first points have rows; from number 2000 - keys on, they have other rows beside them."""
    points = torch.from_numpy(60 * rows_of(2000, dim, seed=1))
    points[:300] *= 0.01  # some cubes have many points
    rows, others = rows_of(keys, 8, seed=2), rows_of(keys, 4, seed=3)
    given = rows, others, 2000 - keys, *located(points)
    by_cube = splat(*given)
    monkeypatch.setattr(splatting, "MOST", 0)
    by_vertex = splat(*given)
    assert not np.array_equal(by_vertex, by_cube) or dim == 1
    np.testing.assert_allclose(by_vertex, by_cube, atol=1e-12)


@pytest.mark.parametrize("copies", [BLOCK, 3 * BLOCK + 7, 2_000_000])
def test_a_vertex_of_many_points(copies, monkeypatch):
    """A place of many points among as many places of one: in float32, sums of blocks are added up in float64."""
    monkeypatch.setattr(splatting, "MOST", 0)
    points = torch.cat([torch.full((copies, 1), 0.3), torch.arange(1.0, copies + 1000).unsqueeze(1) * 2])
    simplices, corners, level = located(points)
    table = splat(np.full((len(points), 4), 0.1, np.float32), np.empty((0, 0), np.float32), 0, simplices, corners, level)
    assert 2 * corners.first[-1] > corners.number.size  # vertex by vertex
    largest = np.sort(table, axis=0)[-2:].astype(np.float64)  # the two corners of that place
    np.testing.assert_allclose(largest.sum(axis=0), 0.1 * copies, rtol=1e-6)
