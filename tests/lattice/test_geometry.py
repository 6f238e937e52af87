import math

import pytest
import torch
from clouds import normal

from phgcn.lattice.geometry import kuhn_matrix, locate, origin

# Worked out by hand: a point in Kuhn coordinates, the vertices of its simplex, its weights on them.
SIMPLICES = [
    ([2.25], [[2], [3]], [0.75, 0.25]),
    ([-0.25], [[-1], [0]], [0.25, 0.75]),
    ([0.75, 0.25], [[0, 0], [1, 0], [1, 1]], [0.25, 0.5, 0.25]),
    ([1.25, -0.5], [[1, -1], [1, 0], [2, 0]], [0.5, 0.25, 0.25]),
    (
        [0.125, 0.875, 0.5],
        [[0, 0, 0], [0, 1, 0], [0, 1, 1], [1, 1, 1]],
        [0.125, 0.375, 0.375, 0.125],
    ),
    (
        [-0.5, 3.75, 0.625],
        [[-1, 3, 0], [-1, 4, 0], [-1, 4, 1], [0, 4, 1]],
        [0.25, 0.125, 0.125, 0.5],
    ),
    ([1.0, -2.0], [[1, -2], [2, -2], [2, -1]], [1.0, 0.0, 0.0]),  # on a vertex
    # a tie: the lower coordinate goes first
    ([0.5, 0.5], [[0, 0], [1, 0], [1, 1]], [0.5, 0.0, 0.5]),
]


@pytest.mark.parametrize("w, vertices, weights", SIMPLICES)
def test_simplex_is_the_one_found_by_hand(w, vertices, weights):
    found, b = locate(torch.tensor([w], dtype=torch.float64))
    assert found[0].tolist() == vertices
    assert b[0].tolist() == weights


def test_kuhn_matrix_is_the_one_found_by_hand():
    third = 1 / math.sqrt(3)
    torch.testing.assert_close(kuhn_matrix(1), torch.tensor([[-1.0]], dtype=torch.float64))
    torch.testing.assert_close(
        kuhn_matrix(2), torch.tensor([[-third, -1.0], [third, -1.0]], dtype=torch.float64)
    )


@pytest.mark.parametrize("dim", range(1, 17))
def test_shortest_vectors_have_length_one_and_lie_evenly(dim):
    steps = torch.cat(
        [torch.eye(dim, dtype=torch.float64), -torch.ones(1, dim, dtype=torch.float64)]
    )
    vectors = torch.linalg.solve(kuhn_matrix(dim), steps.T).T
    # The D+1 directions point to the corners of a regular simplex: lengths 1, cosines -1/D.
    want = torch.full((dim + 1, dim + 1), -1 / dim, dtype=torch.float64).fill_diagonal_(1.0)
    torch.testing.assert_close(vectors @ vectors.T, want)


@pytest.mark.parametrize("dim", range(1, 9))
def test_weights_are_barycentric(dim):
    w = normal(200, dim, seed=dim) * 5
    vertices, weights = locate(w)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(200, dtype=torch.float64))
    torch.testing.assert_close((weights.unsqueeze(-1) * vertices).sum(dim=1), w)


@pytest.mark.parametrize("dim", range(1, 9))
def test_weights_are_continuous_across_faces(dim):
    w = normal(50, dim, seed=dim)
    w[:, -1] = w[:, 0] - w[:, 0].floor() + 3  # two equal fractions: on a face (for D=1, no move)
    values = normal(1000, seed=1)

    def interpolated(w):
        vertices, weights = locate(w)
        return (weights * values[(vertices * 37).sum(dim=-1) % 1000]).sum(dim=1)

    step = 1e-9 * normal(50, dim, seed=2)
    assert (interpolated(w + step) - interpolated(w - step)).abs().max() < 1e-7


@pytest.mark.parametrize("dim", range(1, 17))
def test_zero_lies_on_no_vertex_of_any_level(dim):
    for level in range(7):
        weights = locate((origin(dim) * 2**level).unsqueeze(0))[1]
        assert weights.max() < 0.995, level
