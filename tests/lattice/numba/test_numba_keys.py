import numpy as np
import pytest

from phgcn.lattice.numba.keys import choose_keys, wrap_keys


def test_coordinates_are_packed_without_overlap():
    multiplier, bits = choose_keys(np.array([5.0, 300.0, 17.0]))
    assert multiplier.tolist() == [1 << 14, 1 << 5, 1]
    assert bits == 3 + 9 + 5


def test_coordinates_that_no_key_holds_are_refused():
    with pytest.raises(ValueError, match=r"positions span .* cells of a lattice"):
        choose_keys(np.array([2.0**30] * 4))


def test_keys_of_an_offset_add_up():
    multiplier, _ = choose_keys(np.full(3, 1000.0))
    rng = np.random.default_rng(0)
    v, d = rng.integers(10, 500, (100, 3)), rng.integers(-3, 4, (100, 3))
    first, step, second = (
        (x.astype(np.uint64) * multiplier).sum(axis=1, dtype=np.uint64) for x in (v, d, v + d)
    )
    np.testing.assert_array_equal(first + step, second)


def test_wrapped_keys_tell_cells_apart_that_are_not_very_far_apart():
    found = wrap_keys(np.array([2.0**20] * 3 + [2.0**28]))
    assert found.bits == 64
    rng = np.random.default_rng(1)
    near = np.unique(rng.integers(0, 1000, (5000, 4)), axis=0)
    of_near = (near.astype(np.uint64) * found.multiplier).sum(axis=1, dtype=np.uint64)
    assert len(np.unique(of_near)) == len(near)
    assert wrap_keys(np.array([9.0, 9.0])).multiplier.tolist() == [16, 1]
