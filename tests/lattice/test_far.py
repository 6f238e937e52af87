"""Queries far from all keys: seen from nearer by, along the same line."""

import math

import pytest
import torch
from clouds import BACKENDS, normal

from phgcn import global_attention
from phgcn.lattice import Separable
from phgcn.lattice.far import draw_near, query_balls
from phgcn.runtime.points import Points


def shell(count, dim, nearest, farthest, seed):
    """Points in all directions, at distances from the nearest to the farthest."""
    points = normal(count, dim, seed=seed)
    distance = torch.linspace(nearest, farthest, count, dtype=torch.float64).unsqueeze(1)
    return points / points.norm(dim=1, keepdim=True) * distance


def attend(keys, queries, method, **options):
    """Output of values that vary over the cloud, and the gradient of the queries."""
    leaf = queries.clone().requires_grad_()
    out = global_attention(
        keys, torch.sin(keys / keys.std()), decay=1.0, queries=leaf, method=method, **options
    )
    return out.detach(), torch.autograd.grad(out.sum(), leaf)[0]


MEASURED = {
    (2, 0.3): (1.42, 0.0600),
    (2, 2.0): (1.35, 0.0698),
    (4, 0.3): (1.94, 0.0804),
    (4, 1.0): (1.61, 0.0541),
    (4, 2.0): (1.41, 0.0632),
    (6, 0.3): (1.60, 0.1219),
    (6, 0.6): (1.57, 0.0938),
}
"""Per dimension and spread: how steep it is over how steep it should be, and the deviation."""


@pytest.mark.parametrize(("dim", "spread"), MEASURED)
def test_far_queries_see_what_exact_ones_see(dim, spread):
    """Gradients were up to a thousand times the exact ones where the lattice's reach ends, and
    outputs beyond it the mean.
    """
    steep, error = MEASURED[dim, spread]
    keys, queries = spread * normal(3000, dim, seed=1), shell(2000, dim, 2, 25, seed=3)
    exact, exact_slope = attend(keys, queries, "exact")
    out, slope = attend(keys, queries, "lattice")
    assert slope.norm(dim=1).max() < 1.5 * steep * exact_slope.norm(dim=1).max()
    assert (out - exact).norm() / (exact - exact.mean(dim=0)).norm() < 1.5 * error


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("method", ["lattice", Separable()])
@pytest.mark.parametrize("dim", [1, 2])
def test_gradients_of_far_queries_are_true(dim, method, backend):
    inputs = [
        t.requires_grad_()
        for t in (
            normal(12, dim, seed=4) * 0.8,
            normal(12, 2, seed=5),
            shell(9, dim, 3, 25, seed=6),
        )
    ]

    def call(keys, values, queries):
        return global_attention(
            keys,
            values,
            decay=1.0,
            queries=queries,
            method=method,
            backend=backend,
            return_mass=True,
        )

    assert torch.autograd.gradcheck(call, inputs, atol=1e-7, rtol=1e-4, fast_mode=True)


def test_the_mass_of_far_queries_is_that_of_their_distance():
    keys, values = 0.5 * normal(2000, 3, seed=1), normal(2000, 1, seed=2)
    queries = shell(50, 3, 5, 400, seed=3)
    (_, mass), (_, exact) = (
        global_attention(keys, values, decay=1.0, queries=queries, method=method, return_mass=True)
        for method in ("lattice", "exact")
    )
    torch.testing.assert_close(mass, exact, atol=0.2, rtol=0)


def test_queries_of_each_graph_are_drawn_to_its_own_keys():
    keys, queries = normal(400, 2, 3, seed=1), 30 * normal(90, 2, 3, seed=2)
    keys[:200] += 7.0
    # graph 10 has no keys
    batch, query_batch = torch.arange(400) // 200 * 5, torch.arange(90) % 3 * 5
    near, shift = draw_near(queries, query_balls(Points(keys, keys, queries, batch, query_batch)))
    for graph in (0, 5):
        mine = query_batch == graph
        alone = query_balls(Points(keys[batch == graph], keys[batch == graph], queries[mine]))
        assert torch.equal(near[mine], draw_near(queries[mine], alone)[0])
        centre, radius = alone[..., :3], alone[..., 3]
        distance = (near[mine] - centre).norm(dim=2)
        assert (distance < radius + 1 + 1e-9).all() and (shift[mine] > 0).any()
        inside = (queries[mine] - centre).norm(dim=2) <= radius
        assert (
            torch.equal(near[mine][inside], queries[mine][inside])
            and (shift[mine][inside] == 0).all()
        )
        assert ((keys[batch == graph] - centre[0]).norm(dim=2) <= radius[0]).all()
    lost = query_batch == 10
    assert torch.equal(near[lost], queries[lost]) and (shift[lost] == 0).all()


def test_a_small_move_of_the_keys_leaves_the_ball():
    keys = normal(300, 1, 4, seed=1)
    balls = [query_balls(Points(p, p, keys[:1])) for p in (keys, keys + 1e-9)]
    assert torch.equal(*balls)


def test_queries_that_are_no_numbers_stay_so():
    keys = normal(50, 1, 2, seed=1)
    queries = torch.tensor(
        [[[math.inf, 0.0]], [[math.nan, 0.0]], [[0.0, 0.0]]], dtype=torch.float64
    )
    near, _ = draw_near(queries, query_balls(Points(keys, keys, queries)))
    torch.testing.assert_close(near, queries, equal_nan=True, atol=0, rtol=0)


def test_the_op_keeps_its_promises():
    keys, batch = normal(40, 2, 3, seed=1), torch.arange(40) % 2
    for given in ((None, None), (batch, torch.arange(7) % 3)):
        torch.library.opcheck(torch.ops.phgcn.query_balls, (keys, *given, 7))
