"""Lone points beside a heavy cluster far away: shares of attention, gradients, and what is left to the lattice."""

import pytest
import torch
from clouds import BACKENDS, normal, relative
from replaced_case import check_alone, check_permuted, check_replanned, check_step, check_traced

from phgcn import global_attention
from phgcn.lattice import Separable, lone
from phgcn.lattice.lone import find_cells, find_normalisers
from phgcn.runtime.points import Points


def cluster_and_lone(dim, distance, count=6000, alone=40, width=0.2):
    """A cluster that holds nearly all points, and the last ones at a distance in all directions."""
    direction = normal(alone, dim, seed=2)
    far = distance * direction / direction.norm(dim=1, keepdim=True)
    return torch.cat([width * normal(count - alone, dim, seed=1), far])


def share_of_cluster(points, method, alone=40):
    """What the lone points put on the cluster: by a method, and exactly."""
    in_cluster = (torch.arange(len(points)) < len(points) - alone).to(points.dtype).unsqueeze(1)
    share = global_attention(points, in_cluster, decay=1.0, method=method)[-alone:]
    return share, global_attention(points, in_cluster, decay=1.0, queries=points[-alone:], method="exact")


@pytest.mark.parametrize("method", ["lattice", "lattice-fine"])
@pytest.mark.parametrize(("dim", "distance"), [(1, 8), (2, 9), (3, 8), (4, 8), (4, 10), (5, 9), (6, 7), (6, 9), (8, 8)])
def test_lone_points_put_the_right_share_on_a_cluster(dim, distance, method):
    """Shares were off by up to .7: too small at most distances, and up to .3 too large for single points."""
    share, exact = share_of_cluster(cluster_and_lone(dim, distance), method)
    assert 0.05 < exact.mean() < 0.99
    assert abs((share - exact).mean()) < 0.05 and (share - exact).square().mean().sqrt() < 0.08


def test_several_clusters_and_a_wide_one():
    points = torch.cat([cluster_and_lone(4, 10, width=1.0), cluster_and_lone(4, 9, 4000) + 25])
    values = normal(len(points), 3, seed=3)
    outs = [global_attention(points, values, decay=1.0, method=method) for method in ("lattice", "exact")]
    alone = torch.cat([torch.arange(5960, 6000), torch.arange(9960, 10_000)])
    assert relative(*(out[alone] for out in outs)) < 0.03


def test_gradients_are_those_of_exact_attention():
    points = cluster_and_lone(4, 9)
    weight = torch.zeros(6000, 2, dtype=torch.float64)
    weight[-40:] = normal(40, 2, seed=5)
    slopes = []
    for method in ("lattice", "exact"):
        leaves = [t.clone().requires_grad_() for t in (points, normal(6000, 2, seed=3))]
        out, mass = global_attention(*leaves, decay=1.0, method=method, return_mass=True)
        slopes.append(torch.autograd.grad((out * weight).sum() + (mass * weight[:, 0]).sum(), leaves))
    for ours, exact in zip(*slopes, strict=True):
        assert relative(ours[-40:], exact[-40:]) < 0.03  # of the lone points
        assert relative(ours[:-40].sum(dim=0), exact[:-40].sum(dim=0)) < 0.03  # of the cluster as a whole


def test_a_step_changes_the_output_by_its_gradient():
    check_step(cluster_and_lone(3, 9, 1500, 9), normal(1500, 2, seed=3), size=1e-6, rtol=1e-4)


def test_clouds_are_each_on_its_own_and_threads_change_no_bit(threads):
    """With and without lone points."""
    check_alone([cluster_and_lone(4, 9, 3000), normal(2000, 4, seed=6), cluster_and_lone(4, 8, 2500) * 1.1], threads)


def test_permuted_points_have_permuted_outputs():
    check_permuted(cluster_and_lone(4, 9), normal(6000, 2, seed=3))


def test_a_far_offset_and_wide_coordinates_change_little():
    """Cubes far apart do not fit one integer: they are numbered in between."""
    points, values = cluster_and_lone(8, 8), normal(6000, 2, seed=3)
    out = global_attention(points, values, decay=1.0, method="lattice")
    spread = points.clone()
    spread[:3000] += 1e6  # a second cluster, far away in all coordinates
    near = global_attention(spread[3000:], values[3000:], decay=1.0, method="lattice")
    both = global_attention(spread, values, decay=1.0, method="lattice")
    torch.testing.assert_close(both[-40:], near[-40:], rtol=1e-6, atol=1e-8)
    moved = global_attention(points + 1000.0, values, decay=1.0, method="exact")
    assert relative(moved[-40:], out[-40:]) < 0.02


def norms(points):
    mass = global_attention(points, points[:, :1], decay=1.0, method="exact", return_mass=True)[1]
    return mass.exp().unsqueeze(1)


def test_roles():
    points = cluster_and_lone(2, 9, 1000, 7)
    norm, given = norms(points), Points(points.unsqueeze(1), points.unsqueeze(1))
    known, share = find_normalisers(norm, given, 1), torch.tensor([lone.LONE])
    assert known.is_lone(share).nonzero().flatten().tolist() == list(range(993, 1000))
    is_heavy = known.is_heavy(share)
    assert (norm.flatten()[is_heavy] >= norm.max() / 8.2).all() and is_heavy[:993].all()
    found = find_cells(known, torch.tensor([True]))
    cube = points[found.member].floor()
    assert sorted(found.member.tolist()) == list(range(1000)) and found.sizes.sum() == 1000
    for a, b in ((0, 1), (10, 500)):
        assert (found.cell[a] == found.cell[b]) == bool((cube[a] == cube[b]).all())
    sums = found.sum_cells(points, "numba")
    first = found.member[found.cell == 0]
    torch.testing.assert_close(sums[0], points[first].sum(dim=0))


def lone_points(points):
    """The lone points that are summed over cells; none where they are too many."""
    given = find_normalisers(norms(points), Points(points.unsqueeze(1), points.unsqueeze(1)), 1)
    found = find_cells(given, torch.tensor([True]))
    return [] if found is None else found.lone.tolist()


def test_too_many_lone_points_are_left_to_the_lattice():
    assert lone_points(cluster_and_lone(4, 12, 4000, 100)) == list(range(3900, 4000))
    assert lone_points(cluster_and_lone(4, 12, 4000, 1900)) == []


def test_of_many_lone_points_the_loneliest_are_summed_over_cells():
    far = torch.cat([cluster_and_lone(4, 5.5, 4000, 1000), cluster_and_lone(4, 12, 110, 100)[10:]])
    assert lone_points(far) == list(range(4000, 4100))


@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
def test_ordinary_clouds_keep_their_bits(spread, monkeypatch):
    points, values = spread * normal(3000, 4, seed=1), normal(3000, 2, seed=2)
    out = global_attention(points, values, decay=1.0, method="lattice")
    monkeypatch.setattr(lone, "LONE", 1e-30)
    assert torch.equal(out, global_attention(points, values, decay=1.0, method="lattice"))


def test_the_filter_of_the_paper_is_left_as_it_is():
    share, exact = share_of_cluster(cluster_and_lone(4, 9), Separable())
    assert (share - exact).abs().max() > 0.3


@pytest.mark.parametrize("backend", BACKENDS)
def test_ops_keep_the_rules_of_torch_where_points_are_lone(backend, monkeypatch):
    for name, value in {"LONE": 0.2, "WIDER": 1.0, "HEAVY": 2.5, "WRONG": {1: (0.0, 0.0), 2: (0.0, 0.0)}}.items():
        monkeypatch.setattr(lone, name, value)
    points = torch.cat([0.3 * normal(20, 2, seed=1), 9 * normal(3, 2, seed=2)]).unsqueeze(1).requires_grad_()
    values = normal(23, 1, 3, seed=3).requires_grad_()
    inputs = points, values, None, None, None, "lattice", True, -1, backend
    torch.library.opcheck(torch.ops.phgcn.filter.default, (*inputs, True))
    plan, norm = check_replanned(inputs)
    assert (plan[-2] != norm).any() and plan[-1].tolist() == [False, True]


def test_a_traced_graph_without_breaks_equals_eager():
    check_traced(cluster_and_lone(3, 9, 1500), normal(1500, 2, seed=3))
