"""How close the lattice comes to the exact sum: limits for the error of values and for the cosine
of gradients.
"""

from functools import lru_cache

import pytest
import torch
from clouds import clusters, normal

from phgcn import global_attention, permutohedral_filter
from phgcn.lattice import Separable

CLOUDS = (0.5, 1.0, 3.0, 10.0, "clusters")


def make_cloud(kind, count, dim, seed=0):
    """Points, and values of two kinds: random, and structured, that is smooth ones and one-hot
    labels.
    """
    if kind == "clusters":
        points, label = clusters(count, dim, seed)
    else:
        points = normal(count, dim, seed=seed) * kind
        label = (points[:, 0] > 0) * 2 + (points[:, 1] > 0)
    structured = torch.cat(
        [torch.sin(points / 10), torch.nn.functional.one_hot(label).double()], dim=1
    )
    return points, {"random": normal(count, 8, seed=seed + 100), "structured": structured}


def attend(kind, count, dim, seed, method):
    """Attention to both kinds of values, and the gradient of the positions for the random ones."""
    points, values = make_cloud(kind, count, dim, seed)
    points.requires_grad_()
    out = global_attention(
        points, torch.cat(list(values.values()), dim=1), decay=1.0, method=method
    )
    parts = dict(zip(values, out.split([v.size(1) for v in values.values()], dim=1), strict=True))
    (grad,) = torch.autograd.grad(parts["random"], points, normal(count, 8, seed=seed + 200))
    return {name: part.detach() for name, part in parts.items()}, grad


@lru_cache
def exact(kind, count, dim, seed):
    return attend(kind, count, dim, seed, "exact")


@lru_cache
def errors(method, kind, count, dim, seed=0):
    """Relative error, error against the deviation from the mean (random and structured values),
    gradient cosine.
    """
    (got, grad), (want, wanted) = (
        attend(kind, count, dim, seed, method),
        exact(kind, count, dim, seed),
    )
    relative = float((got["random"] - want["random"]).norm() / want["random"].norm())
    cosine = float(torch.nn.functional.cosine_similarity(grad.flatten(), wanted.flatten(), dim=0))
    return relative, *(against_deviation(got[name], want[name]) for name in want), cosine


def against_deviation(got, want):
    return float((got - want).norm() / (want - want.mean(dim=0)).norm())


def check(measured, relative, deviation, structured, cosine):
    """Compares what :func:`errors` returns with limits."""
    assert measured[0] <= relative
    assert measured[1] <= deviation
    assert measured[2] <= structured
    assert measured[3] >= cosine


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kind", CLOUDS)
@pytest.mark.parametrize(
    "dim, limits", [(4, (0.05, 0.08, 0.06, 0.95)), (2, (0.03, 0.06, 0.03, 0.95))]
)
def test_lattice(dim, limits, kind, seed):
    check(errors("lattice", kind, 3000, dim, seed), *limits)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kind", CLOUDS)
@pytest.mark.parametrize(
    "dim, limits", [(4, (0.03, 0.04, 0.03, 0.98)), (2, (0.03, 0.05, 0.03, 0.97))]
)
def test_fine_lattice(dim, limits, kind, seed):
    check(errors("lattice-fine", kind, 3000, dim, seed), *limits)


@pytest.mark.parametrize(
    "dim, fitted", [(4, (1, 0.383, 0.114, 0.067)), (2, (1, 0.289, 0.091, 0.067))]
)
def test_the_papers_filter_is_as_good_as_the_studied_one(dim, fitted):
    studied = Separable(1.4 if dim == 4 else 1.0, fitted)
    ours, theirs = (
        [sum(errors(m, kind, 1000, dim, seed)[1] for seed in range(4)) / 4 for kind in CLOUDS]
        for m in ("separable", studied)
    )
    assert all(a <= 1.05 * b for a, b in zip(ours, theirs, strict=True)), (ours, theirs)
    assert sum(ours) <= sum(theirs), (ours, theirs)


@pytest.mark.parametrize(
    "kind, limit", [(1.0, 0.05), (3.0, 0.05), (10.0, 0.01), ("clusters", 0.04)]
)
def test_lattice_of_many_points(kind, limit):
    points, values = make_cloud(kind, 20_000, 4)
    values = values["random"]
    rows = torch.randperm(20_000, generator=torch.Generator().manual_seed(0))[:500]
    got = global_attention(points, values, decay=1.0, method="lattice")
    want = global_attention(points, values, decay=1.0, queries=points[rows], method="exact")
    assert against_deviation(got[rows], want) <= limit


@pytest.mark.parametrize(
    "method, limit", [("lattice", 0.01), ("lattice-fine", 0.01), ("separable", 0.1)]
)
def test_the_plain_sum_is_close(method, limit):
    points, values = normal(3000, 2), normal(3000, 4, seed=100).abs()
    got, want = (permutohedral_filter(points, values, method=m) for m in (method, "exact"))
    assert float((got - want).norm() / want.norm()) < limit


@pytest.mark.parametrize("dim, error, cosine", [(5, 0.07, 0.95), (6, 0.09, 0.93)])
def test_high_dimensions(dim, error, cosine):
    _, measured, _, measured_cosine = errors("lattice", 1.0, 1500, dim)
    assert measured <= error
    assert measured_cosine >= cosine


def test_nine_dimensions_are_refused_by_a_lattice_alone():
    points, values = normal(5, 9), normal(5, 2)
    for method in ("lattice", "separable"):
        with pytest.raises(
            ValueError, match="positions has 9 dimensions; allowed for a lattice: up to 8"
        ):
            global_attention(points, values, method=method)
    assert global_attention(points, values, method="exact").isfinite().all()
