import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from phgcn import global_attention
from phgcn.runtime import numba as kernels
from phgcn.runtime.threads import ZEROS, parallel_zeros, run_rows


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


@pytest.mark.parametrize("shape", [(0, 3), (5,), (3, ZEROS)])
def test_zeros_on_all_threads(shape, threads):
    threads(2)
    out = parallel_zeros(shape, np.dtype(np.float32))
    assert out.shape == shape and out.dtype == np.float32 and not out.any()


def fail(begin, end):
    if begin > 0:
        raise ValueError(f"row {begin}")


def test_an_error_in_a_thread_is_raised(threads):
    threads(2)
    with pytest.raises(ValueError, match="row"):
        run_rows(fail, 100, 1)


def attend(seed):
    points, values = (
        torch.randn(3000, size, generator=torch.Generator().manual_seed(seed)) for size in (3, 4)
    )
    return global_attention(points, values, decay=1.0, method="lattice").numpy()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_kernels_run_in_a_fork_after_their_use(threads):
    threads(2)
    want = attend(0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for got in pool.map(attend, [0, 0]):
            assert np.array_equal(got, want)


class Clouds(torch.utils.data.Dataset):
    """A data set whose items are attended to, as a transform of a user's would."""

    def __len__(self):
        return 4

    def __getitem__(self, seed):
        points, values = (
            torch.randn(3000, size, generator=torch.Generator().manual_seed(seed))
            for size in (3, 4)
        )
        points.requires_grad_()
        global_attention(points, values, decay=1.0, method="lattice").sum().backward()
        return points.grad


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(("start", "workers"), [("fork", 2), ("spawn", 1)])
def test_a_data_loader_may_attend_in_its_workers(start, workers, threads):
    threads(2)
    want = [Clouds()[seed] for seed in range(4)]
    got = list(
        torch.utils.data.DataLoader(
            Clouds(), batch_size=None, num_workers=workers, multiprocessing_context=start
        )
    )
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_another_thread_compiles_leaves_no_lock_behind():
    with kernels._compiling:
        child = os.fork()
        if child == 0:
            os._exit(kernels._compiling.locked())
        assert os.waitpid(child, 0)[1] == 0


def test_kernels_run_from_several_threads_at_a_time(threads):
    threads(2)
    want = [attend(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for got, alone in zip(pool.map(attend, range(4)), want, strict=True):
            assert np.array_equal(got, alone)
