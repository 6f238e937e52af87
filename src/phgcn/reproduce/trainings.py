r"""Models on splits of several data sets, one small file each, joined into one JSON and a table.

::

    OUT/<experiment>/<data>-<model>-<split>.json   one training
    OUT/<experiment>.json, <experiment>.md         the results
    (:mod:`phgcn.reproduce.trainings_report`)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import write_json
from .benchmark.training import origin
from .trainings_report import write
from .workers import Progress, Report, run_all


@dataclass(frozen=True)
class Job:
    """One model on one split of one data set; ``epochs`` limits our networks for a quick
    version."""

    data: str
    model: str
    split: int
    epochs: int | None
    cost: float = 1.0

    @property
    def name(self) -> str:
        return f"{self.data}-{self.model}-{self.split}" + (f"-{self.epochs}-epochs" if self.epochs else "")


@dataclass(frozen=True)
class Experiment:
    """What is measured.

    Args:
        name (str): Its name in files.
        train (callable): Does a job; returns ``val``, ``test`` and what else its file shall hold.
        metric (str): What ``test`` is.
        reference (str): The model that the others are compared with.
        test_over_train (float): Test nodes or rows for one that trains.
        published (dict): Results of others by data set, with their source.
    """

    name: str
    train: Callable[[Job, Report], dict[str, Any]]
    metric: str
    reference: str
    test_over_train: float
    published: dict[str, Any]


@dataclass(frozen=True)
class Worker:
    """Does a job that is not done yet; an object, so that processes get the folder with it."""

    out: Path
    train: Callable[[Job, Report], dict[str, Any]]

    def __call__(self, job: Job, report: Report) -> None:
        file, begin = self.out / f"{job.name}.json", time.perf_counter()
        if file.is_file():
            return
        row = {"data": job.data, "model": job.model, "split": job.split, **self.train(job, report)}
        write_json(file, {**row, "seconds": time.perf_counter() - begin, **origin("cpu")})


def run(
    experiment: Experiment,
    out: str | Path,
    tasks: Sequence[Job],
    jobs: int = 1,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> dict[str, Any]:
    """Trains what is not trained yet, and writes the results of what is there.

    Args:
        experiment (Experiment): What is measured.
        out (str or Path): The folder.
        tasks (sequence of Job): What is trained; without any, only what is there is joined.
        jobs (int): How many processes. (default: :obj:`1`)
        on_progress (callable): Called with every :class:`~phgcn.reproduce.workers.Progress`.
            (default: does nothing)

    Returns:
        What the JSON holds, and ``failures``, what went wrong by job.
    """
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; allowed: 1 or more")
    out, begin = Path(out), time.perf_counter()
    worker = Worker(out / experiment.name, experiment.train)
    failures = run_all(tasks, worker, jobs, on_progress, in_order=True) if tasks else {}
    content = write(
        out, experiment.name, experiment.metric, experiment.reference, experiment.test_over_train, experiment.published
    )
    return {**content, "failures": failures, "seconds": time.perf_counter() - begin}


def check_request(splits: int, epochs: int | None, **names: tuple[Sequence[str], Sequence[str]]) -> None:
    """Checks numbers, and names against those that are allowed."""
    for name, (values, allowed) in names.items():
        for value in values or [""]:
            if value not in allowed:
                raise ValueError(f"{name} has {value!r}; allowed: {', '.join(allowed)}")
    for name, count in (("splits", splits), ("epochs", epochs)):
        if count is not None and not (isinstance(count, int) and count > 0):
            raise ValueError(f"{name} is {count!r}; allowed: positive integers")
