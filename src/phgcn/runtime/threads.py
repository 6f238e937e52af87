"""A small thread pool that runs compiled kernels over ranges of rows.

Kernels release the interpreter's lock, so that plain Python threads run side by side. One row
writes each output element, in a fixed order: the number of threads never changes a bit. Unlike
OpenMP's pools, this one survives a fork and can be entered from several threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

import numpy as np
import torch

# ranges that each thread gets on average: a thread that is done early takes another
RANGES_PER_THREAD = 4

ZEROS = 2**18  # least size of the part of an array that a thread sets to 0


def run_rows(kernel: Callable[..., None], rows: int, grain: int, *arguments: Any) -> None:
    """Calls ``kernel(begin, end, *arguments)`` for ranges that cover 0 to ``rows``, on as many
    threads as torch has. A range has at least ``grain`` rows, about a tenth of a millisecond of
    work."""
    threads = min(torch.get_num_threads(), rows // grain) if rows >= 2 * grain else 1
    if threads <= 1:
        if rows > 0:
            kernel(0, rows, *arguments)
        return
    step = max(grain, -(-rows // (threads * RANGES_PER_THREAD)))
    ranges = deque((begin, min(rows, begin + step)) for begin in range(0, rows, step))
    finished: SimpleQueue[BaseException | None] = SimpleQueue()
    count = len(ranges)

    def work() -> None:
        while True:
            try:
                begin, end = ranges.popleft()
            except IndexError:
                return
            try:
                kernel(begin, end, *arguments)
            except BaseException as error:
                finished.put(error)
            else:
                finished.put(None)

    _pool.submit(work, threads - 1)
    work()
    # Waits for ranges, not for threads: on a busy machine this one takes them all before another
    # wakes.
    for error in [finished.get() for _ in range(count)]:
        if error is not None:
            raise error


def rows_of_work(rows: int, work: int, least: int) -> int:
    """Returns the ``grain`` at which a range has at least ``least`` of the ``work`` of all rows."""
    return max(1, least * rows // max(work, 1))


def parallel_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Returns zeros, filled by all threads: NumPy clears reused memory on one thread."""
    out = np.empty(shape, dtype)
    run_rows(_fill_zeros, out.size, ZEROS, out.reshape(-1))
    return out


def _fill_zeros(begin: int, end: int, flat: np.ndarray) -> None:
    flat[begin:end] = 0


class _Pool:
    def __init__(self) -> None:
        self.work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.threads = 0
        self.lock = Lock()

    def submit(self, work: Callable[[], None], helpers: int) -> None:
        """Queues the work for ``helpers`` threads."""
        with self.lock:
            while self.threads < helpers:
                Thread(target=self._serve, args=(self.work,), name="phgcn", daemon=True).start()
                self.threads += 1
        for _ in range(helpers):
            self.work.put(work)

    @staticmethod
    def _serve(queue: SimpleQueue[Callable[[], None]]) -> None:
        while True:
            queue.get()()


_pool = _Pool()


def _renew_pool() -> None:
    """Makes a new pool in a forked child, which has none of its parent's threads."""
    global _pool
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_pool)
