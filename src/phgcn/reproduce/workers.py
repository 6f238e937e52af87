r"""Runs many tasks, one after the other or in several processes at once.

A worker takes the next task when it has done one.  A task that fails, or whose process ends, is noted down and the others go
on.  Tasks do not know where they run: what they write does not depend on the number of processes.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal, Protocol

PAUSE = 0.5  # seconds between two messages of a worker

Tell = Callable[[str, float], None]
"""Takes what a task is at, and which share of it is done."""


class Task(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def cost(self) -> float: ...  # about how long it takes, in any unit


@dataclass(frozen=True)
class Progress:
    """What is told whenever something happens."""

    kind: Literal["begun", "running", "done", "failed"]
    name: str
    text: str
    done: int
    total: int
    share: float  # of all the work, running tasks included
    left: float | None  # seconds, about
    running: tuple[str, ...]


@dataclass
class Overview:
    """How far all tasks are."""

    tasks: Sequence[Task]
    told: Callable[[Progress], None]
    begin: float = field(default_factory=time.monotonic)
    shares: dict[str, float] = field(default_factory=dict)  # of running tasks
    ended: set[str] = field(default_factory=set)
    failures: dict[str, str] = field(default_factory=dict)

    def note(self, kind: Literal["begun", "running", "done", "failed"], task: Task, text: str, share: float = 0.0) -> None:
        self.shares[task.name] = share
        if kind in ("done", "failed"):
            del self.shares[task.name]
            self.ended.add(task.name)
        if kind == "failed":
            self.failures[task.name] = text
        cost = {task.name: task.cost for task in self.tasks}
        whole = sum(cost.values())
        made = sum(cost[name] for name in self.ended) + sum(cost[name] * part for name, part in self.shares.items())
        left = (time.monotonic() - self.begin) * (whole - made) / made if made > 0 else None
        counts = (len(self.ended), len(self.tasks), made / whole if whole else 1.0, left)
        self.told(Progress(kind, task.name, text, *counts, tuple(self.shares)))


def run_all(
    tasks: Sequence[Task], work: Callable[[Any, Tell], None], jobs: int, told: Callable[[Progress], None]
) -> dict[str, str]:
    """Runs all tasks, the long ones first, and returns what went wrong: the names of tasks that failed, and why.

    Args:
        tasks (list of Task): Each is pickled for its worker; names differ.
        work (callable): Does a task; a function of a module, so that workers find it.
        jobs (int): How many processes; 1 runs everything in this one.
        told (callable): Called with every :class:`Progress`.
    """
    tasks = sorted(tasks, key=lambda task: (-task.cost, task.name))
    overview = Overview(tasks, told)
    if jobs == 1 or len(tasks) < 2:
        _one_by_one(overview, work)
    else:
        _at_once(overview, work, min(jobs, len(tasks)))
    return overview.failures


def _one_by_one(overview: Overview, work: Callable[[Any, Tell], None]) -> None:
    for task in overview.tasks:
        overview.note("begun", task, "")
        try:
            work(task, _now_and_then(partial(overview.note, "running", task)))
        except Exception as error:
            overview.note("failed", task, _said(error))
        else:
            overview.note("done", task, "")


@dataclass(frozen=True)
class Worker:
    process: BaseProcess
    pipe: Connection

    @classmethod
    def start(cls, work: Callable[[Any, Tell], None], threads: int) -> Worker:
        context = multiprocessing.get_context("spawn")  # a fork would carry half of torch's threads along
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(there, work, threads), daemon=True)
        process.start()
        there.close()  # so that the end of the process is the end of the pipe
        return cls(process, here)


def _at_once(overview: Overview, work: Callable[[Any, Tell], None], jobs: int) -> None:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait by spinning slow the other workers down
    threads = max(1, (os.cpu_count() or 1) // jobs)
    idle = [Worker.start(work, threads) for _ in range(jobs)]
    busy: dict[Connection, tuple[Worker, Task]] = {}
    waiting = deque(overview.tasks)
    try:
        while waiting or busy:
            while idle and waiting:
                worker, task = idle.pop(), waiting.popleft()
                overview.note("begun", task, "")
                with suppress(BrokenPipeError):  # of a process that has ended: it is heard of below
                    worker.pipe.send(task)
                busy[worker.pipe] = (worker, task)
            for pipe in list(wait(list(busy))):
                worker, task = busy[pipe]  # type: ignore[index]
                kind, text, share = _heard(worker)
                overview.note(kind, task, text, share)
                if kind != "running":
                    del busy[worker.pipe]
                    idle.append(worker if worker.process.is_alive() else Worker.start(work, threads))
    finally:
        for worker in [*idle, *(worker for worker, _ in busy.values())]:
            worker.process.terminate()
            worker.process.join()


def _heard(worker: Worker) -> tuple[Literal["running", "done", "failed"], str, float]:
    try:
        return worker.pipe.recv()
    except (EOFError, ConnectionError):
        worker.process.join()
        return "failed", f"its process ended with code {worker.process.exitcode}; the same command continues it", 0.0


def _serve(pipe: Connection, work: Callable[[Any, Tell], None], threads: int) -> None:
    """The life of a worker; it ends with the process that started it."""
    import torch

    torch.set_num_threads(threads)
    try:
        while True:
            task = pipe.recv()
            try:
                work(task, _now_and_then(lambda text, share: pipe.send(("running", text, share))))
            except (BrokenPipeError, EOFError):
                raise
            except Exception as error:
                pipe.send(("failed", _said(error), 0.0))
            else:
                pipe.send(("done", "", 1.0))
    except (BrokenPipeError, EOFError, ConnectionResetError, KeyboardInterrupt):
        sys.exit(1)


def _now_and_then(tell: Tell) -> Tell:
    """Passes on what comes after a pause."""
    last = [time.monotonic()]

    def told(text: str, share: float) -> None:
        if time.monotonic() - last[0] >= PAUSE:
            last[0] = time.monotonic()
            tell(text, share)

    return told


def _said(error: Exception) -> str:
    """An error as one line."""
    text = " ".join(str(error).split())
    plain = isinstance(error, (ValueError, OSError)) or (isinstance(error, RuntimeError) and type(error) is not RuntimeError)
    return text if plain else f"{type(error).__name__}: {text}"
