r"""Runs many tasks, one after the other or in a pool of processes, and reports progress.

A task that fails, or whose process dies, is recorded and the others go on.  Tasks do not know where
they run: what they write does not depend on the number of processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from phgcn.train import EpochProgress, Plan

REPORT_EVERY = 0.5  # seconds between two reports of a running task
GRACE = 10.0  # seconds that a process has to write a checkpoint after an interrupt
DIED = "its process died; the same command continues it"

Report = Callable[[str, float], None]  # Takes what a task is doing, and which share of it is done
Work = Callable[[Any, Report], None]  # Does a task


def describe(plan: Plan, progress: EpochProgress) -> tuple[str, float]:
    names = [trial.name for trial in plan.trials()]
    begun = names.index(progress.trial.name)
    share = (begun + progress.epoch / plan.settings.epochs) / len(names)
    return f"split {begun + 1} of {len(names)}, epoch {progress.epoch}", share


class Task(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def cost(self) -> float: ...  # expected duration, in any unit


Kind = Literal["begun", "running", "done", "failed"]


@dataclass(frozen=True)
class Progress:
    kind: Kind
    name: str
    text: str  # what the task is doing, or why it failed
    done: int  # tasks that have ended
    total: int
    share: float  # of all work, running tasks included
    left: float | None  # expected seconds
    running: tuple[str, ...]


@dataclass
class Tracker:
    tasks: Sequence[Task]
    on_progress: Callable[[Progress], None]
    begin: float = field(default_factory=time.monotonic)
    shares: dict[str, float] = field(default_factory=dict)  # of running tasks
    ended: set[str] = field(default_factory=set)
    failures: dict[str, str] = field(default_factory=dict)

    def record(self, kind: Kind, name: str, text: str, share: float = 0.0) -> None:
        self.shares[name] = share
        if kind in ("done", "failed"):
            del self.shares[name]
            self.ended.add(name)
        if kind == "failed":
            self.failures[name] = text
        cost = {task.name: task.cost for task in self.tasks}
        parts = {**dict.fromkeys(self.ended, 1.0), **self.shares}
        total, done = sum(cost.values()), sum(cost[task] * part for task, part in parts.items())
        left = (time.monotonic() - self.begin) * (total - done) / done if done > 0 else None
        counts = (len(self.ended), len(self.tasks), done / total if total else 1.0, left)
        self.on_progress(Progress(kind, name, text, *counts, tuple(self.shares)))


def run_all(
    tasks: Sequence[Task], work: Work, jobs: int, on_progress: Callable[[Progress], None]
) -> dict[str, str]:
    """Runs all tasks in their order; returns the names of those that failed, and why.

    An interrupt ends all processes; files of finished tasks stay. A task that delays SIGTERM may
    write a checkpoint first, unless another process of the pool has ended before.
    """
    tracker = Tracker(tasks, on_progress)
    if jobs == 1 or len(tasks) < 2:
        _run_here(tracker, work)
    else:
        _run_in_processes(tracker, work, min(jobs, len(tasks)))
    return tracker.failures


def _run_here(tracker: Tracker, work: Work) -> None:
    for task in tracker.tasks:
        tracker.record("begun", task.name, "")
        try:
            work(task, _limited(partial(tracker.record, "running", task.name)))
        except Exception as error:
            tracker.record("failed", task.name, _one_line(error))
        else:
            tracker.record("done", task.name, "")


def _run_in_processes(tracker: Tracker, work: Work, jobs: int) -> None:
    waiting = list(tracker.tasks)
    while waiting:
        suspects, waiting = _run_pool(tracker, work, waiting, jobs)
        # a process died, which ends the pool; run alone, a task shows whether it was to blame
        for task in suspects:
            if _run_pool(tracker, work, [task], 1)[0]:
                tracker.record("failed", task.name, DIED)


def _run_pool(
    tracker: Tracker, work: Work, tasks: Sequence[Task], jobs: int
) -> tuple[list[Task], list[Task]]:
    """Runs tasks until all have ended or a process dies; returns those that ran, and the rest."""
    with _pool(jobs) as (pool, messages):
        futures = {pool.submit(_do, work, task): task for task in tasks}
        pending: set[Future[None]] = set(futures)
        while pending:
            ended, pending = wait(pending, timeout=REPORT_EVERY, return_when=FIRST_COMPLETED)
            while not messages.empty():
                tracker.record(*messages.get())
            for future in ended:
                error = future.exception()
                if error is None:
                    tracker.record("done", futures[future].name, "")
                elif not isinstance(error, BrokenProcessPool):
                    tracker.record("failed", futures[future].name, _one_line(error))
    left = [task for task in tasks if task.name not in tracker.ended]
    suspects = [task for task in left if task.name in tracker.shares]
    if left and not suspects:
        raise RuntimeError("no process could be started")
    return suspects, [task for task in left if task not in suspects]


@contextmanager
def _pool(jobs: int) -> Iterator[tuple[ProcessPoolExecutor, Any]]:
    """Starts a pool of processes with a queue of their reports; leaves no process behind."""
    # threads that wait by spinning slow the other processes down
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # a fork would copy torch's locks, but not the threads that release them
    context = get_context("spawn")
    messages = context.SimpleQueue()
    lifeline, held = context.Pipe(duplex=False)
    threads = max(1, (os.cpu_count() or 1) // jobs)
    pool = ProcessPoolExecutor(jobs, context, _start_process, (lifeline, messages, threads))
    try:
        yield pool, messages
        pool.shutdown()
    finally:
        held.close()  # ends processes that still work
        pool.shutdown(cancel_futures=True)


_messages: Any = None  # of a process of the pool


def _start_process(lifeline: Connection, messages: Any, threads: int) -> None:
    """Prepares a process of the pool: it ends when the parent closes the lifeline, or dies."""
    import torch

    global _messages
    _messages = messages
    # Ctrl-C reaches all processes of a terminal; the parent decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # not the system's: phgcn.train delays a handler until a checkpoint is written
    signal.signal(signal.SIGTERM, _end_process)
    threading.Thread(target=_exit_with_parent, args=(lifeline,), daemon=True).start()
    torch.set_num_threads(threads)


def _end_process(number: int, frame: FrameType | None) -> None:
    os._exit(1)


def _exit_with_parent(lifeline: Connection) -> None:
    lifeline.poll(None)  # nothing is ever sent: ready means that the other end is closed
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(1)


def _do(work: Work, task: Task) -> None:
    _messages.put(("begun", task.name, ""))
    try:
        work(task, _limited(lambda text, share: _messages.put(("running", task.name, text, share))))
    # SIGTERM, delayed; without this the pool would give the process another task
    except KeyboardInterrupt:
        os._exit(1)


def _limited(report: Report) -> Report:
    last = [time.monotonic()]

    def limited(text: str, share: float) -> None:
        if time.monotonic() - last[0] >= REPORT_EVERY:
            last[0] = time.monotonic()
            report(text, share)

    return limited


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    is_ours = isinstance(error, RuntimeError) and type(error) is not RuntimeError
    plain = isinstance(error, (ValueError, OSError)) or is_ours
    return text if plain else f"{type(error).__name__}: {text}"
