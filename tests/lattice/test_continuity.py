"""Small moves make small changes, across the faces of simplices too."""

import pytest
import torch
from clouds import forced, normal

from phgcn import global_attention, permutohedral_filter
from phgcn.lattice import Separable
from phgcn.lattice.coefficients import multiscale_weights, separable_weights
from phgcn.lattice.geometry import kuhn_matrix, locate, origin

STEP = 1e-5
BOUND = 50


def near_faces(points, spacing, coarser, seed):
    """Moves points to where two fractions of their Kuhn coordinates, or one and zero, differ by less than a step.

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


@pytest.mark.parametrize("near_field", [0, 1])
@pytest.mark.parametrize("dim", [1, 2, 3, 4])
@pytest.mark.parametrize("method", ["lattice", "lattice-fine"])
@pytest.mark.parametrize("call", [global_attention, permutohedral_filter])
def test_a_small_move_makes_a_small_change(call, method, dim, near_field):
    scheme = forced(method, dim, near_field)
    spacing, coarser = scheme.spacing * 2**near_field, len(scheme.hops) - 1 - near_field
    points, values = near_faces(normal(100, dim, seed=1) * 2, spacing, coarser, 3), normal(100, 2, seed=2)
    out = call(points, values, decay=1.0, method=scheme)
    crossed = 0
    for i in range(20):
        moved = points.clone()
        direction = normal(dim, seed=50 + i)
        moved[i] += STEP * scheme.spacing * direction / direction.norm()
        change = (call(moved, values, decay=1.0, method=scheme) - out).abs().max()
        assert 0 < change <= BOUND * STEP * scheme.spacing
        crossed += simplex(moved[i], spacing, coarser) != simplex(points[i], spacing, coarser)
    assert crossed >= 5  # else nothing was shown


def simplex(point, spacing, coarser):
    w = kuhn_matrix(len(point)) @ point / spacing + origin(len(point)) * 2**coarser
    return locate(w.unsqueeze(0))[0].tolist()


def test_a_pair_leaves_the_near_field_smoothly():
    scheme = forced("lattice", 2, 2)
    radius = multiscale_weights(scheme, 2).radius[2]
    values = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    direction = torch.tensor([0.6, 0.8], dtype=torch.float64)

    def weight(r):
        return permutohedral_filter(torch.stack([0 * direction, r * direction]), values, method=scheme)[0, 0]

    # Cut off at the radius, the near field would fall by 1.5e-3 at once.
    found = torch.stack([weight(r) for r in torch.linspace(0.9 * radius, 1.1 * radius, 101).tolist()])
    assert found.diff().abs().max() < 1e-3


def test_the_papers_filter_jumps():
    """A point that enters a new simplex touches a new vertex, and opens paths over it for others: the jump does not
    shrink with the move."""
    spacing = separable_weights(Separable(), 4)[0]
    points, values = near_faces(normal(200, 4, seed=1) * 2, spacing, 0, 3), normal(200, 2, seed=2)
    out = permutohedral_filter(points, values, method="separable")
    largest = 0.0
    for seed in range(300):
        moved, i = points.clone(), seed % 200
        moved[i] += STEP * spacing * normal(4, seed=seed)
        largest = max(largest, float((permutohedral_filter(moved, values, method="separable") - out).abs().max()))
    assert largest > 1000 * STEP
