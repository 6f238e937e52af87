import numpy as np
import pytest
import torch
from clouds import forced, normal, relative, schemes

from phgcn import global_attention, permutohedral_filter
from phgcn.lattice.numba import keys, locate
from phgcn.lattice.numba.blur import TAPS, direct_rows, pass_rows
from phgcn.lattice.numba.keys import Keys, choose_keys, wrap_keys
from phgcn.lattice.stencil import stencil


def test_small_extents_are_packed_without_overlap():
    multiplier, bits, hashed = choose_keys(np.array([5.0, 300.0, 17.0]))
    assert not hashed
    assert multiplier.tolist() == [1 << 14, 1 << 5, 1]
    assert bits == 3 + 9 + 5


def test_huge_extents_are_hashed():
    multiplier, bits, hashed = choose_keys(np.array([2.0**30] * 4))
    assert hashed
    assert bits == 64
    assert (multiplier % 2 == 1).all()
    assert multiplier[-1] == 1
    assert len(set(multiplier.tolist())) == 4


@pytest.mark.parametrize("extent", [1000.0, 2.0**40])
def test_keys_of_an_offset_add_up(extent):
    multiplier, _, hashed = choose_keys(np.full(3, extent))
    assert hashed == (extent > 1e6)
    rng = np.random.default_rng(0)
    v, d = rng.integers(10, 500, (100, 3)), rng.integers(-3, 4, (100, 3))
    first, step, second = ((x.astype(np.uint64) * multiplier).sum(axis=1, dtype=np.uint64) for x in (v, d, v + d))
    np.testing.assert_array_equal(first + step, second)


def test_wrapped_keys_tell_cells_apart_that_are_not_very_far_apart():
    found = wrap_keys(np.array([2.0**20] * 3 + [2.0**28]))
    assert found.bits == 64
    rng = np.random.default_rng(1)
    near = np.unique(rng.integers(0, 1000, (5000, 4)), axis=0)
    of_near = (near.astype(np.uint64) * found.multiplier).sum(axis=1, dtype=np.uint64)
    assert len(np.unique(of_near)) == len(near)
    assert wrap_keys(np.array([9.0, 9.0])).multiplier.tolist() == [16, 1]


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
    monkeypatch.setattr(keys, "KEY_BITS", 0)
    for a, b in zip(run(), packed, strict=True):
        assert relative(a, b) < 1e-12


@pytest.mark.parametrize("kind", ["all levels", "near field", "separable"])
def test_an_outlier_that_forces_hashing_changes_nothing_for_the_rest(kind):
    points, values = normal(300, 4, seed=1) * 2, normal(300, 3, seed=2)
    want = permutohedral_filter(points, values, method=schemes(4)[kind])
    points, values = torch.cat([points, torch.full((1, 4), 1e6)]), torch.cat([values, torch.ones(1, 3)])
    got = permutohedral_filter(points, values, method=schemes(4)[kind])
    assert relative(got[:-1], want) < 1e-8  # fractions of coordinates that are counted from a million away


@pytest.mark.parametrize("dim, hops", [(1, 4), (2, 3), (4, 2)])
def test_rows_of_a_stencil_hold_all_its_offsets(dim, hops):
    rows, full = direct_rows(dim, hops), stencil(dim, hops)
    found = {
        (*rows.prefix[r].tolist(), rows.low[r] + q): rows.orbit[group, q]
        for group, length in enumerate(rows.length)
        for r in range(rows.start[group], rows.start[group + 1])
        for q in range(length)
    }
    assert found == dict(zip(map(tuple, full.offsets.tolist()), full.orbit.tolist(), strict=True))
    assert rows.orbit.shape[1] % TAPS == 0 and all(
        (orbit[n:] == -1).all() for orbit, n in zip(rows.orbit, rows.length, strict=True)
    )


def test_rows_of_a_stencil_with_the_same_weights_form_one_group():
    rows = direct_rows(4, 2)
    assert len(rows.prefix) == 65 and len(rows.length) == len({tuple(orbit) for orbit in rows.orbit}) == 10


def test_passes_go_along_the_directions_of_the_lattice():
    along, across = pass_rows(3, 1, 2), pass_rows(3, 1, 3)
    assert (along.prefix.tolist(), along.low.tolist(), along.length.tolist()) == ([[0, 0]], [-1], [3])
    assert (across.prefix.tolist(), across.low.tolist()) == ([[-1, -1], [1, 1], [0, 0]], [-1, 1, 0])
    assert (across.start.tolist(), across.length.tolist()) == ([0, 2, 3], [1, 1])


@pytest.mark.parametrize("kind", ["all levels", "separable"])
def test_a_line_of_vertices_longer_than_a_piece(kind):
    points, values = torch.linspace(0, 300, 500, dtype=torch.float64)[:, None], normal(500, 3, seed=1)
    points[200:210] += 0.25
    got, want = (
        permutohedral_filter(points, values, method=schemes(1)[kind], backend=backend) for backend in ("numba", "reference")
    )
    assert relative(got, want) < 1e-12


def test_vertices_with_the_same_hash_are_not_mixed_up(monkeypatch):
    """A hash that sees only the last coordinate makes all else collide: an error, never a wrong sum."""
    monkeypatch.setattr(locate, "choose_keys", lambda highest: Keys(np.array([0, 1], np.uint64), 64, True))
    with pytest.raises(RuntimeError, match="same hash"):
        permutohedral_filter(normal(50, 2, seed=1), normal(50, 2, seed=2), method=forced("lattice", 2, 0))


@pytest.mark.parametrize("highest", [[5], [1, 300, 7], [0.5, 9, 0, 2]])
def test_coordinates_begin_at_the_bits_of_shift(highest):
    packed = choose_keys(np.array(highest))
    assert (np.uint64(1) << packed.shift).tolist() == packed.multiplier.tolist()
