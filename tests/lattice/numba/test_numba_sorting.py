import numpy as np
import pytest

from phgcn.lattice.numba import sorting
from phgcn.lattice.numba.sorting import run_starts, sort_keys


@pytest.mark.parametrize("count_threads", [1, 2, 5])
@pytest.mark.parametrize("bits", [1, 10, 11, 12, 40, 63, 64])
@pytest.mark.parametrize("count", [0, 1, 3, 5000])
def test_keys_are_sorted_stably(count, bits, count_threads, threads, monkeypatch):
    monkeypatch.setattr(sorting, "PART", 100)
    threads(count_threads)
    rng = np.random.default_rng(bits)
    keys = (
        rng.integers(0, 2**bits, count, dtype=np.uint64, endpoint=False)
        if bits < 64
        else rng.integers(0, 2**64 - 1, count, dtype=np.uint64, endpoint=True)
    )
    keys[: count // 2] = keys[count - count // 2 :]  # repeats, to see stability
    given = keys.copy()
    found, index = sort_keys(keys, bits)
    order = np.argsort(keys, kind="stable")
    np.testing.assert_array_equal(found, keys[order])
    np.testing.assert_array_equal(index, order)
    np.testing.assert_array_equal(keys, given)


@pytest.mark.parametrize(
    "keys, starts", [([], [0]), ([7], [0, 1]), ([1, 1, 1], [0, 3]), ([1, 2, 2, 8], [0, 1, 3, 4])]
)
def test_run_starts_by_hand(keys, starts):
    assert run_starts(np.array(keys, np.uint64)).tolist() == starts


@pytest.mark.parametrize("part", [1, 3, 7, 100])
def test_runs_are_found_part_by_part(part, threads, monkeypatch):
    monkeypatch.setattr(sorting, "PART", part)
    threads(2)
    keys = np.sort(np.random.default_rng(part).integers(0, 20, 50, dtype=np.uint64))
    _, starts = np.unique(keys, return_index=True)
    assert run_starts(keys).tolist() == [*starts, 50]
