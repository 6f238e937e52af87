"""Splat and slice of one cloud, against sums written out."""

import numpy as np
import pytest
import torch

from phgcn.lattice import Separable
from phgcn.lattice.geometry import kuhn_matrix, locate, origin
from phgcn.lattice.numba.clouds import Cloud
from phgcn.lattice.numba.separable import lay_lattice
from phgcn.lattice.numba.slice import slice_rows
from phgcn.lattice.numba.splat import splat
from phgcn.lattice.separable import separable_weights


def located(points):
    """Points (P, D) on the lattice of `separable`."""
    everything = slice(0, len(points))
    cloud = Cloud((0, everything, everything), points.numpy(), 0)
    return lay_lattice(cloud, separable_weights(Separable(), points.size(1)))


def rows_of(count, width, seed):
    return np.random.default_rng(seed).standard_normal((count, width))


@pytest.mark.parametrize("dim", [1, 4, 6])
@pytest.mark.parametrize("keys", [2000, 1500])
def test_a_vertex_has_the_rows_of_its_points(dim, keys):
    """The first points have rows; from number 2000 - keys on, they have other rows beside them."""
    points = torch.from_numpy(60 * rows_of(2000, dim, seed=1))
    points[:300] *= 0.01  # some cubes have many points
    rows, others = rows_of(keys, 8, seed=2), rows_of(keys, 4, seed=3)
    found = located(points)
    table = splat(rows, others, 2000 - keys, found)
    vertex, weight = locate(
        points @ kuhn_matrix(dim).T / separable_weights(Separable(), dim).spacing + origin(dim)
    )
    vertices, corner = torch.unique(vertex.reshape(-1, dim), dim=0, return_inverse=True)
    both = np.zeros((2000, 12))
    both[:keys, :8], both[2000 - keys :, 8:] = rows, others
    spread = (weight.unsqueeze(-1) * torch.from_numpy(both).unsqueeze(1)).flatten(0, 1)
    want = torch.zeros(len(vertices), 12, dtype=torch.float64).index_add_(0, corner, spread)
    np.testing.assert_allclose(table, want.numpy(), atol=1e-12)
    out = np.zeros((2000, 12))
    slice_rows(table, found, 0, out)
    sliced = (weight.unsqueeze(-1) * want[corner.view(2000, dim + 1)]).sum(dim=1)
    np.testing.assert_allclose(out, sliced.numpy(), atol=1e-12)


@pytest.mark.parametrize("copies", [100, 1000, 2_000_000])
def test_a_vertex_of_many_points(copies):
    """In float32, sums of a large cube are added up in float64."""
    points = torch.cat([torch.full((copies, 1), 0.3), torch.arange(1.0, 1000).unsqueeze(1) * 2])
    table = splat(
        np.full((len(points), 4), 0.1, np.float32),
        np.empty((0, 0), np.float32),
        0,
        located(points),
    )
    largest = np.sort(table, axis=0)[-2:].astype(np.float64)  # the two corners of that place
    np.testing.assert_allclose(
        largest.sum(axis=0), 0.1 * copies, rtol=1e-6 if copies > 1e5 else 0.02
    )
