import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from phgcn import global_attention
from phgcn.kernels.threads import run_rows


def collect(begin, end, ranges):
    ranges.append((begin, end))


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("rows, grain", [(0, 4), (1, 4), (100, 7), (1000, 1)])
def test_every_row_is_in_one_range(rows, grain, count, threads):
    threads(count)
    ranges = []
    run_rows(collect, rows, grain, ranges)
    covered = sorted(row for begin, end in ranges for row in range(begin, end))
    assert covered == list(range(rows))
    assert all(end - begin >= grain for begin, end in ranges if end < rows)


def fail(begin, end):
    if begin > 0:
        raise ValueError(f"row {begin}")


def test_an_error_in_a_thread_is_raised(threads):
    threads(2)
    with pytest.raises(ValueError, match="row"):
        run_rows(fail, 100, 1)


def attend(seed):
    points, values = (torch.randn(3000, size, generator=torch.Generator().manual_seed(seed)) for size in (3, 4))
    return global_attention(points, values, decay=1.0, method="lattice").numpy()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_kernels_run_in_child_processes_after_their_use(start, threads):
    threads(2)
    want = attend(0)
    with multiprocessing.get_context(start).Pool(2) as pool:
        for got in pool.map(attend, [0, 0]):
            assert np.array_equal(got, want)


def test_kernels_run_from_several_threads_at_a_time(threads):
    threads(2)
    want = [attend(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for got, alone in zip(pool.map(attend, range(4)), want, strict=True):
            assert np.array_equal(got, alone)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_processes_that_start_without_compiled_kernels_agree(tmp_path, monkeypatch):
    monkeypatch.setenv("PHGCN_CACHE", str(tmp_path))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        one, two = pool.map(attend, [0, 0], chunksize=1)
    assert np.array_equal(one, two)
    assert len(list((tmp_path / "kernels").glob("*.lock"))) == 1
