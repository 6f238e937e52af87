import numpy as np
import pytest
import torch
from clouds import forced, normal, relative, schemes

from phgcn import global_attention, permutohedral_filter
from phgcn.lattice.coefficients import multiscale_weights
from phgcn.lattice.geometry import kuhn_matrix, locate, origin
from phgcn.lattice.numba import lattice
from phgcn.lattice.numba.lattice import Lattice, direct_rows, multipliers, pass_rows
from phgcn.lattice.scheme import named_scheme
from phgcn.lattice.stencil import stencil


def test_small_extents_are_packed_without_overlap():
    multiplier, bits, hashed = multipliers(np.array([5.0, 300.0, 17.0]))
    assert not hashed
    assert multiplier.tolist() == [1 << 14, 1 << 5, 1]
    assert bits == 3 + 9 + 5


def test_huge_extents_are_hashed():
    multiplier, bits, hashed = multipliers(np.array([2.0**30] * 4))
    assert hashed
    assert bits == 64
    assert (multiplier % 2 == 1).all()
    assert multiplier[-1] == 1
    assert len(set(multiplier.tolist())) == 4


@pytest.mark.parametrize("extent", [1000.0, 2.0**40])
def test_keys_of_an_offset_add_up(extent):
    multiplier, _, hashed = multipliers(np.full(3, extent))
    assert hashed == (extent > 1e6)
    rng = np.random.default_rng(0)
    v, d = rng.integers(10, 500, (100, 3)), rng.integers(-3, 4, (100, 3))
    first, step, second = ((x.astype(np.uint64) * multiplier).sum(axis=1, dtype=np.uint64) for x in (v, d, v + d))
    np.testing.assert_array_equal(first + step, second)


@pytest.mark.parametrize("kind", ["all levels", "near field", "two lattices", "separable"])
@pytest.mark.parametrize("across", [False, True])
def test_hashed_keys_give_what_packed_ones_give(kind, across, monkeypatch):
    points, values = normal(300, 4, seed=1) * 2, normal(300, 3, seed=2)
    asked = {"queries": normal(50, 4, seed=3) * 2} if across else {}

    def run():
        p = points.clone().requires_grad_()
        out = global_attention(p, values, decay=1.0, method=schemes(4)[kind], **asked)
        return out, torch.autograd.grad(out.square().sum(), p)[0]

    packed = run()
    monkeypatch.setattr(lattice, "KEY_BITS", 0)
    for a, b in zip(run(), packed, strict=True):
        assert relative(a, b) < 1e-12


@pytest.mark.parametrize("kind", ["all levels", "near field", "separable"])
def test_an_outlier_that_forces_hashing_changes_nothing_for_the_rest(kind):
    points, values = normal(300, 4, seed=1) * 2, normal(300, 3, seed=2)
    want = permutohedral_filter(points, values, method=schemes(4)[kind])
    points, values = torch.cat([points, torch.full((1, 4), 1e6)]), torch.cat([values, torch.ones(1, 3)])
    got = permutohedral_filter(points, values, method=schemes(4)[kind])
    assert relative(got[:-1], want) < 1e-8  # fractions of coordinates that are counted from a million away


def make(points, dim, level=0):
    scheme = named_scheme("lattice", dim)
    return Lattice(points.numpy(), scheme.spacing, scheme.hops, multiscale_weights(scheme, dim).weights, level)


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_vertices_are_those_that_points_touch(dim, level):
    points = normal(200, dim, seed=1) * 2
    found, scheme = make(points, dim, level), named_scheme("lattice", dim)
    w = points @ kuhn_matrix(dim).T / scheme.spacing + origin(dim) * 2 ** (len(scheme.hops) - 1)
    for number, vertices in enumerate(found.levels):
        want = locate(w / 2 ** (level + number))[0].reshape(-1, dim).unique(dim=0)
        got = torch.as_tensor(vertices.coordinate).long()
        assert len(got) == len(want)
        # Coordinates are counted from a base of the lattice's own.
        torch.testing.assert_close(got.unique(dim=0) - got.amin(dim=0), want - want.amin(dim=0))


@pytest.mark.parametrize("dim", [1, 2, 4])
def test_a_splat_keeps_the_sum(dim):
    rows = np.zeros((200, 8))
    rows[:, :3] = normal(200, 3, seed=2).numpy()
    table = make(normal(200, dim, seed=1) * 2, dim).splat(rows, rows[:0, :0])
    np.testing.assert_allclose(table.sum(axis=0), rows.sum(axis=0), atol=1e-12)


@pytest.mark.parametrize("dim, hops", [(1, 4), (2, 3), (4, 2)])
def test_rows_of_a_stencil_hold_all_its_offsets(dim, hops):
    rows, full = direct_rows(dim, hops), stencil(dim, hops)
    found = {
        (*prefix, low + q): orbit[q]
        for prefix, low, length, orbit in zip(
            rows.prefix.tolist(), rows.low.tolist(), rows.length.tolist(), rows.orbit.tolist(), strict=True
        )
        for q in range(length)
    }
    assert found == dict(zip(map(tuple, full.offsets.tolist()), full.orbit.tolist(), strict=True))


def test_passes_go_along_the_directions_of_the_lattice():
    along, across = pass_rows(3, 1, 2), pass_rows(3, 1, 3)
    assert (along.prefix.tolist(), along.low.tolist(), along.length.tolist()) == ([[0, 0]], [-1], [3])
    assert (across.prefix.tolist(), across.low.tolist()) == ([[-1, -1], [0, 0], [1, 1]], [-1, 0, 1])


def test_vertices_with_the_same_hash_are_not_mixed_up(monkeypatch):
    """A hash that sees only the last coordinate makes all else collide: an error, never a wrong sum."""
    monkeypatch.setattr(lattice, "multipliers", lambda top: (np.array([0, 1], np.uint64), 64, True))
    with pytest.raises(RuntimeError, match="same hash"):
        permutohedral_filter(normal(50, 2, seed=1), normal(50, 2, seed=2), method=forced("lattice", 2, 0))
