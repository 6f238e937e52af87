import numpy as np
import pytest

from phgcn.lattice.numba.sorting import radix_sort, run_starts, runs


@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize("bits", [1, 10, 11, 12, 40, 63, 64])
@pytest.mark.parametrize("count", [0, 1, 3, 5000])
def test_radix_sort_is_a_stable_sort(count, bits, parts):
    rng = np.random.default_rng(bits)
    keys = rng.integers(0, 2**bits, count, dtype=np.uint64, endpoint=False) if bits < 64 else rng.integers(
        0, 2**64 - 1, count, dtype=np.uint64, endpoint=True
    )  # fmt: skip
    keys[: count // 2] = keys[count - count // 2 :]  # repeats, to see stability
    given = keys.copy()
    found, index = radix_sort(keys, bits, parts)
    order = np.argsort(keys, kind="stable")
    np.testing.assert_array_equal(found, keys[order])
    np.testing.assert_array_equal(index, order)
    np.testing.assert_array_equal(keys, given)


def test_runs_by_hand():
    unique, start, run = runs(np.array([3, 3, 5, 9, 9, 9], np.uint64), np.array([4, 0, 1, 2, 3, 5], np.int32))
    assert unique.tolist() == [3, 5, 9]
    assert start.tolist() == [0, 2, 3, 6]
    assert run.tolist() == [0, 1, 2, 2, 0, 2]


@pytest.mark.parametrize("keys, starts", [([], [0]), ([7], [0, 1]), ([1, 1, 1], [0, 3]), ([1, 2, 2, 8], [0, 1, 3, 4])])
def test_run_starts_by_hand(keys, starts):
    assert run_starts(np.array(keys, np.uint64)).tolist() == starts
