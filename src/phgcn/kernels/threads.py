r"""A small thread pool that runs compiled kernels over ranges of rows.

Kernels release the interpreter's lock, so plain Python threads run them side by side.  Every output element is written by one
row alone, in a fixed order: the number of threads never changes a bit.  Unlike the thread pools of OpenMP, this one survives a
fork (a child process starts its own) and can be entered from several threads at a time.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

RANGES_PER_THREAD = 4
"""Ranges that each thread gets on average: a thread that is done early takes another."""

_pool: ThreadPoolExecutor | None = None
_pool_size = 0


def run_rows(kernel: Callable[..., None], rows: int, grain: int, *arguments: Any) -> None:
    """Calls ``kernel(begin, end, *arguments)`` for ranges that together are 0 to ``rows``, on as many threads as torch has.

    Args:
        kernel (Callable): A compiled kernel that works on rows ``begin`` to ``end``.
        rows (int): The number of rows.
        grain (int): Ranges have at least so many rows: enough work to outweigh the start of a task.
        arguments: Passed on to the kernel.
    """
    threads = min(torch.get_num_threads(), -(-rows // grain))
    if threads <= 1:
        if rows > 0:
            kernel(0, rows, *arguments)
        return
    step = max(grain, -(-rows // (threads * RANGES_PER_THREAD)))
    ranges = deque((begin, min(rows, begin + step)) for begin in range(0, rows, step))

    def work() -> None:
        while True:
            try:
                begin, end = ranges.popleft()
            except IndexError:
                return
            kernel(begin, end, *arguments)

    pool = _get_pool(threads - 1)
    futures = [pool.submit(work) for _ in range(threads - 1)]
    work()  # the calling thread takes its share
    for future in futures:
        future.result()


def _get_pool(size: int) -> ThreadPoolExecutor:
    """Returns a pool of at least so many threads."""
    global _pool, _pool_size
    if _pool is None or _pool_size < size:
        _pool, _pool_size = ThreadPoolExecutor(size, thread_name_prefix="phgcn"), size
    return _pool


def _forget_pool() -> None:
    """Drops the pool in a forked child, which has none of its threads."""
    global _pool, _pool_size
    _pool, _pool_size = None, 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
