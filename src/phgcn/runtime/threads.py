r"""A small thread pool that runs compiled kernels over ranges of rows.

Kernels release the interpreter's lock, so plain Python threads run them side by side.  Every output element is written by one
row alone, in a fixed order: the number of threads never changes a bit.  Unlike the thread pools of OpenMP, this one survives a
fork (a child process starts its own) and can be entered from several threads at a time.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

import numpy as np
import torch

RANGES_PER_THREAD = 4
"""Ranges that each thread gets on average: a thread that is done early takes another."""


ZEROS = 2**18
"""Least size of the part of an array that a thread sets to 0."""


def run_rows(kernel: Callable[..., None], rows: int, grain: int, *arguments: Any) -> None:
    """Calls ``kernel(begin, end, *arguments)`` for ranges that together are 0 to ``rows``, on as many threads as torch has.

    Args:
        kernel (Callable): A compiled kernel that works on rows ``begin`` to ``end``.
        rows (int): The number of rows.
        grain (int): Least number of rows of a range: about a tenth of a millisecond of work, to outweigh the start of a task.
        arguments: Passed on to the kernel.
    """
    threads = min(torch.get_num_threads(), rows // grain) if rows >= 2 * grain else 1
    if threads <= 1:
        if rows > 0:
            kernel(0, rows, *arguments)
        return
    step = max(grain, -(-rows // (threads * RANGES_PER_THREAD)))
    ranges = deque((begin, min(rows, begin + step)) for begin in range(0, rows, step))
    task = _Task(kernel, ranges, arguments)
    _pool.submit(task, threads - 1)
    task.run_here()


def rows_of_work(rows: int, work: int, least: int) -> int:
    """Returns the ``grain`` at which a range has at least ``least`` of the ``work`` that all rows have together, evenly
    spread."""
    return max(1, least * rows // max(work, 1))


def parallel_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Returns an array of zeros, filled by all threads: NumPy clears reused memory on one thread."""
    out = np.empty(shape, dtype)
    run_rows(_fill_zeros, out.size, ZEROS, out.reshape(-1))
    return out


def _fill_zeros(begin: int, end: int, flat: np.ndarray) -> None:
    flat[begin:end] = 0


class _Task:
    """The ranges of one kernel that are not yet taken by a thread.

    The calling thread waits for ranges, not for threads: on a busy machine it takes them all before another thread wakes.
    """

    def __init__(self, kernel: Callable[..., None], ranges: deque[tuple[int, int]], arguments: tuple[Any, ...]) -> None:
        self.kernel, self.ranges, self.arguments = kernel, ranges, arguments
        self.count = len(ranges)
        self.finished: SimpleQueue[BaseException | None] = SimpleQueue()

    def run_one(self) -> bool:
        """Runs a range; returns :obj:`False` if none is left."""
        try:
            begin, end = self.ranges.popleft()
        except IndexError:
            return False
        self.kernel(begin, end, *self.arguments)
        return True

    def run_here(self) -> None:
        """Runs ranges in the calling thread until none is left, and waits for those of other threads."""
        own = 0
        try:
            while self.run_one():
                own += 1
        finally:
            left = len(self.ranges)  # none, unless the kernel raised an error
            self.ranges.clear()
        for _ in range(self.count - own - left):
            error = self.finished.get()
            if error is not None:
                raise error

    def help(self) -> None:
        """Runs ranges in another thread, and reports each."""
        more = True
        while more:
            try:
                more = self.run_one()
            except BaseException as error:
                self.finished.put(error)
            else:
                if more:
                    self.finished.put(None)


class _Pool:
    """Threads that wait for tasks; started when they are first needed."""

    def __init__(self) -> None:
        self.tasks: SimpleQueue[_Task] = SimpleQueue()
        self.threads = 0
        self.lock = Lock()

    def submit(self, task: _Task, helpers: int) -> None:
        """Lets so many threads help with a task."""
        if self.threads < helpers:
            with self.lock:
                while self.threads < helpers:
                    Thread(target=self._serve, args=(self.tasks,), name="phgcn", daemon=True).start()
                    self.threads += 1
        for _ in range(helpers):
            self.tasks.put(task)

    @staticmethod
    def _serve(tasks: SimpleQueue[_Task]) -> None:
        while True:
            tasks.get().help()


_pool = _Pool()


def _renew_pool() -> None:
    """Makes a new pool in a forked child, which has none of its parent's threads."""
    global _pool
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_pool)
