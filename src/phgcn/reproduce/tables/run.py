r"""All models on all tables and splits, one small file each, joined into one JSON and a table.

::

    OUT/tables/<table>-<model>-<split>.json   one training
    OUT/tables.json, tables.md                the results (:mod:`phgcn.reproduce.tables.report`)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from torch_geometric.data import Data

from ...files import write_json
from ..benchmark.training import origin
from ..workers import Progress, Report, run_all
from . import report as results
from .data import TABLES, load_table, with_split
from .models import MODELS, OURS, train


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Args:
        tables (tuple of str): Of :data:`phgcn.reproduce.tables.data.TABLES`. (default: all)
        models (tuple of str): Of :data:`phgcn.reproduce.tables.models.MODELS`. (default: all but exact attention)
        splits (int): Random splits of each table. (default: :obj:`5`)
        epochs (int, optional): Epochs of our networks, instead of 300: a quick version. (default: :obj:`None`)
    """

    tables: tuple[str, ...] = tuple(TABLES)
    models: tuple[str, ...] = tuple(name for name in MODELS if name != "labels-exact")
    splits: int = 5
    epochs: int | None = None

    def __post_init__(self) -> None:
        for name, values, allowed in (("tables", self.tables, TABLES), ("models", self.models, MODELS)):
            for value in values or [""]:
                if value not in allowed:
                    raise ValueError(f"{name} has {value!r}; allowed: {', '.join(allowed)}")
        for name, count in (("splits", self.splits), ("epochs", self.epochs)):
            if count is not None and not (isinstance(count, int) and count > 0):
                raise ValueError(f"{name} is {count!r}; allowed: positive integers")

    def jobs(self) -> list[Job]:
        """Lists all trainings, one split of every model after the other; ``labels-map`` where there are coordinates."""
        return [
            Job(table, model, split, self.epochs)
            for split in range(self.splits)
            for table in self.tables
            for model in self.models
            if model != "labels-map" or TABLES[table].coordinates
        ]


@dataclass(frozen=True)
class Job:
    """One model on one split of one table."""

    table: str
    model: str
    split: int
    epochs: int | None

    @property
    def name(self) -> str:
        return f"{self.table}-{self.model}-{self.split}" + (f"-{self.epochs}-epochs" if self.epochs else "")

    @property
    def cost(self) -> float:
        return 100.0 if self.model in OURS else 1.0

    def file(self, out: Path) -> Path:
        return out / "tables" / f"{self.name}.json"


@dataclass(frozen=True)
class Worker:
    """Does a job that is not done yet; an object, so that processes get the folder with it."""

    out: Path

    def __call__(self, job: Job, report: Report) -> None:
        if job.file(self.out).is_file():
            return
        table, data, begin = TABLES[job.table], with_split(_loaded(job.table), job.split), time.perf_counter()
        fit = train(job.model, data, table.coordinates, job.split, job.epochs, report)
        wrong = np.square(fit.predicted.astype(np.float64) - data.y.numpy().astype(np.float64))
        errors = {
            part: float(np.sqrt(wrong[data[f"{part}_mask"][:, 0].numpy()].mean()) / table.unit) for part in ("val", "test")
        }
        row = {"table": job.table, "model": job.model, "split": job.split, **errors, **fit.about}
        row |= {"rows": int(data.num_nodes), "seconds": time.perf_counter() - begin, **origin("cpu")}
        write_json(job.file(self.out), row)


@cache
def _loaded(name: str) -> Data:
    return load_table(name)


def run(
    out: str | Path,
    request: Request,
    jobs: int = 1,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    *,
    only_report: bool = False,
) -> dict[str, Any]:
    """Trains what is not trained yet, and writes the results of what is there.

    Args:
        out (str or Path): The folder.
        request (Request): What is asked for.
        jobs (int): How many processes. (default: :obj:`1`)
        on_progress (callable): Called with every :class:`~phgcn.reproduce.workers.Progress`. (default: does nothing)
        only_report (bool): Train nothing. (default: :obj:`False`)

    Returns:
        What ``tables.json`` holds, and ``failures``, what went wrong by job.
    """
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; allowed: 1 or more")
    out, begin = Path(out), time.perf_counter()
    failures = {} if only_report else run_all(request.jobs(), Worker(out), jobs, on_progress, in_order=True)
    return {**results.write(out), "failures": failures, "seconds": time.perf_counter() - begin}
