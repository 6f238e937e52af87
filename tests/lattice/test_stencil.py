import numpy as np
import pytest

from phgcn.lattice.geometry import kuhn_matrix
from phgcn.lattice.stencil import orbit_key, orbits, stencil


@pytest.mark.parametrize("dim, hops", [(1, 4), (2, 3), (3, 2), (4, 1), (4, 2), (5, 2), (8, 1)])
def test_number_of_offsets(dim, hops):
    offsets = stencil(dim, hops).offsets
    assert len(offsets) == len(np.unique(offsets, axis=0)) == (hops + 1) ** (dim + 1) - hops ** (dim + 1)


@pytest.mark.parametrize("hops, count", [(0, 1), (1, 31), (2, 211), (3, 781)])
def test_number_of_offsets_in_four_dimensions(hops, count):
    assert len(stencil(4, hops).offsets) == count


@pytest.mark.parametrize("dim, hops", [(1, 4), (2, 4), (3, 3), (4, 2)])
def test_offsets_are_all_those_within_the_hops(dim, hops):
    box = np.stack(np.meshgrid(*[np.arange(-hops - 1, hops + 2)] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    span = np.maximum(box.max(axis=1), 0) - np.minimum(box.min(axis=1), 0)
    np.testing.assert_array_equal(stencil(dim, hops).offsets, box[span <= hops])


@pytest.mark.parametrize("dim, hops", [(1, 4), (2, 4), (3, 3), (4, 2)])
def test_opposite_offsets_share_a_weight(dim, hops):
    found = stencil(dim, hops)
    number = {tuple(v): orbit for v, orbit in zip(found.offsets.tolist(), found.orbit.tolist(), strict=True)}
    assert all(number[tuple(-x for x in v)] == orbit for v, orbit in number.items())


@pytest.mark.parametrize("dim, hops", [(1, 4), (2, 4), (3, 3), (4, 2), (6, 1)])
def test_offsets_of_an_orbit_have_its_length_and_hops(dim, hops):
    found = stencil(dim, hops)
    length = np.linalg.norm(np.linalg.solve(kuhn_matrix(dim).numpy(), found.offsets.T), axis=0)
    np.testing.assert_allclose(length, found.distance[found.orbit], atol=1e-12)
    span = np.maximum(found.offsets.max(axis=1), 0) - np.minimum(found.offsets.min(axis=1), 0)
    np.testing.assert_array_equal(span, found.hops[found.orbit])


def test_orbits_of_two_hops_in_four_dimensions():
    want = {"00000", "00001", "00011", "01112", "00112", "00012", "00002", "00122", "00022"}
    # A mirror image names the same orbit.
    keys = {orbit_key(tuple(map(int, name))) for name in want}
    assert set(orbits(4, 2)) == keys
    assert orbit_key((0, 0, 0, 1, 2)) == orbit_key((2, 2, 2, 1, 0)) == orbit_key((5, 3, 3, 4, 3))
