"""Small moves make small changes, across the faces of simplices too."""

import pytest
import torch
from clouds import normal

from phgcn import global_attention, permutohedral_filter
from phgcn.kernels import KERNELS
from phgcn.lattice import Ladder, Separable
from phgcn.lattice.geometry import kuhn_matrix, locate, origin
from phgcn.lattice.ladder import ladder_numbers
from phgcn.lattice.reference.ladder import find_rung
from phgcn.lattice.separable import separable_weights

STEP = 1e-5
BOUND = 50


def near_faces(points, spacing, coarser, seed):
    """Moves points to where two fractions of their Kuhn coordinates, or one and zero, differ by
    less than a step.

    The lattice has this spacing, and so many coarser levels above it.
    """
    dim = points.size(1)
    matrix, shift = kuhn_matrix(dim) / spacing, origin(dim) * 2**coarser
    w = points @ matrix.T + shift
    rows = torch.arange(len(w))
    j = torch.as_tensor(normal(len(w), seed=seed).argsort() % dim)
    k = (j + 1) % dim
    fraction = torch.where((rows % 2 == 0) & (j != k), w[rows, k] - w[rows, k].floor(), 0.0)
    w[rows, j] = w[rows, j].floor() + fraction + 1e-7 * normal(len(w), seed=seed + 1)
    return torch.linalg.solve(matrix, (w - shift).T).T


@pytest.mark.parametrize("pairs", [0, 4])
@pytest.mark.parametrize("dim", [1, 2, 3, 4])
@pytest.mark.parametrize("call", [global_attention, permutohedral_filter])
def test_a_small_move_makes_a_small_change(call, dim, pairs):
    cloud, scheme = normal(100, dim, seed=1) * 2, Ladder(pairs=pairs)
    rung = find_rung(cloud, None, scheme)
    coarser = len(ladder_numbers(KERNELS["exponential"], dim, rung).weight) // 2
    points, values = near_faces(cloud, rung.h, coarser, 3), normal(100, 2, seed=2)
    assert find_rung(points, None, scheme) == rung
    out = call(points, values, decay=1.0, method=scheme)
    crossed = 0
    for i in range(20):
        moved = points.clone()
        direction = normal(dim, seed=50 + i)
        moved[i] += STEP * rung.h * direction / direction.norm()
        change = (call(moved, values, decay=1.0, method=scheme) - out).abs().max()
        assert 0 < change <= BOUND * STEP * rung.h
        crossed += simplex(moved[i], rung.h, coarser) != simplex(points[i], rung.h, coarser)
    assert crossed >= 5  # else nothing was shown


def simplex(point, spacing, coarser):
    w = kuhn_matrix(len(point)) @ point / spacing + origin(len(point)) * 2**coarser
    return locate(w.unsqueeze(0))[0].tolist()


def test_the_papers_filter_jumps():
    """A point that enters a new simplex touches a new vertex, and opens paths over it for others:
    the jump does not shrink with the move."""
    spacing = separable_weights(Separable(), 4)[0]
    points, values = near_faces(normal(200, 4, seed=1) * 2, spacing, 0, 3), normal(200, 2, seed=2)
    out = permutohedral_filter(points, values, method="separable")
    largest = 0.0
    for seed in range(300):
        moved, i = points.clone(), seed % 200
        moved[i] += STEP * spacing * normal(4, seed=seed)
        largest = max(
            largest,
            float((permutohedral_filter(moved, values, method="separable") - out).abs().max()),
        )
    assert largest > 1000 * STEP
