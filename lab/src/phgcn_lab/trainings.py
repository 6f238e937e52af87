r"""Models on splits of several data sets, one small file each, joined into one JSON and a table.

::

    OUT/<experiment>/<data>-<model>-<split>.json           rows of one training
    OUT/<experiment>/<data>-<model>-0-trial-<trial>.json   rows of one of several settings on split 0
    OUT/<experiment>.json, <experiment>.md                 the results
    (:mod:`phgcn_lab.trainings_report`)

A model may have several settings, its trials. All are trained on split 0, and other splits have
those that were best on the validation nodes of split 0.  A training has one row, and one more for
each model that uses its outputs."""  # noqa: E501

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from phgcn.files import read_json, write_json
from phgcn.train.loop import Task, Training
from phgcn.train.metrics import METRICS

from .benchmark.training import origin
from .experiment import check_names, check_positive, execute
from .results import Row
from .trainings_report import best, write
from .workers import Progress, Report


@dataclass(frozen=True)
class Job:
    data: str
    model: str
    split: int
    epochs: int | None  # limits our networks for a quick version
    # Index of the settings among those of the model.  None: the best on the validation nodes of
    # split 0, if there are several.
    trial: int | None = None
    cost: ClassVar[float] = 1.0

    @property
    def name(self) -> str:
        trial = "" if self.trial is None else f"-trial-{self.trial}"
        epochs = f"-{self.epochs}-epochs" if self.epochs else ""
        return f"{self.data}-{self.model}-{self.split}{trial}{epochs}"


@dataclass(frozen=True)
class Comparison:
    name: str  # in files
    kind: str  # what its data sets are called
    data: tuple[str, ...]
    models: tuple[str, ...]
    splits: int  # at most
    # Yields rows with `metric`, `val`, `test`, and `model` where that is not the model of the job.
    train: Callable[[Job, Report], Iterator[Row]]
    # The best of these models on the validation nodes is what all others are compared with.
    references: tuple[str, ...]
    test_over_train: float  # test nodes or rows for one that trains
    # Models that use the outputs of another, whose training makes their rows.
    after: Mapping[str, str] = field(default_factory=dict)
    only_asked: tuple[str, ...] = ()  # models that are trained if they are asked for
    # Returns how many settings of a model are tried on a data set; 0 where it is not trained.
    settings: Callable[[str, str], int] = lambda data, model: 1
    published: Mapping[str, Any] = field(default_factory=dict)  # by data set, with their source
    # Takes the rows of the report, returns further parts of the JSON: `ratios`, `marks`.
    summary: Callable[[list[Row]], Row] = lambda rows: {}

    def jobs(
        self,
        data: Sequence[str] | None = None,
        models: Sequence[str] | None = None,
        splits: int = 5,
        epochs: int | None = None,
    ) -> list[Job]:
        """One split of every model after the other; of the first split with all settings."""
        data = self.data if data is None else data
        if models is None:
            models = [model for model in self.models if model not in self.only_asked]
        check_names(**{self.kind: (data, self.data)}, models=(models, self.models))
        if not 1 <= splits <= self.splits:
            raise ValueError(f"splits is {splits}; allowed: 1 to {self.splits}")
        check_positive(epochs=epochs)
        trained = dict.fromkeys(self.after.get(model, model) for model in models)
        jobs = []
        for split, name, model in product(range(splits), data, trained):
            if count := self.settings(name, model):
                trials = range(count) if split == 0 and count > 1 else [None]
                jobs += [Job(name, model, split, epochs, trial) for trial in trials]
        return jobs


@dataclass(frozen=True)
class Trainings:
    out: Path
    comparison: Comparison
    jobs: Sequence[Job]
    only: Sequence[Job] | None = None

    def cells(self) -> Sequence[Job]:
        return self.jobs if self.only is None else self.only

    def report(self) -> dict[str, Any]:
        return write(self.out, self.comparison)

    def run(self, job: Job, report: Report) -> None:
        begin, file = time.perf_counter(), self.file(job)
        if file.is_file():
            return
        if job.trial is None and job.split > 0:
            job = replace(job, trial=self._best_trial(job))
        about = {key: getattr(job, key) for key in ("data", "model", "split", "trial")}
        rows = [
            {**about, **row, "seconds": time.perf_counter() - begin, **origin("cpu")}
            for row in self.comparison.train(job, report)
        ]
        write_json(file, rows)

    def file(self, job: Job) -> Path:
        return self.out / self.comparison.name / f"{job.name}.json"

    def _best_trial(self, job: Job) -> int | None:
        """The trial that was best by validation on split 0; None where the model has no trials."""
        wanted = (job.data, job.model, job.epochs)
        trials = [other for other in self.jobs if other.trial is not None]
        same = [other for other in trials if (other.data, other.model, other.epochs) == wanted]
        rows = [row for other in same for row in read_json(self.file(other))]
        return best(rows)["trial"] if rows else None


def run(
    comparison: Comparison,
    out: str | Path,
    tasks: Sequence[Job],
    jobs: int = 1,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> dict[str, Any]:
    """Trains what is not trained yet, and writes what is there; without any task, only that."""
    trainings = Trainings(Path(out), comparison, tasks)
    first = replace(trainings, only=[job for job in tasks if job.trial is not None])
    failures = {}
    if first.only:  # before the splits that need their results
        failures = execute(first, jobs, on_progress)["failures"]
    content = execute(trainings, jobs, on_progress, only_report=not tasks)
    return {**content, "failures": {**failures, **content["failures"]}}


def train_to_end(training: Training, report: Report) -> tuple[Tensor, Row]:
    """Returns the outputs of the best epoch for all nodes, and the numbers of both epochs."""
    while not training.done:
        training.epoch()
        epoch = training.state.epoch
        report(f"epoch {epoch}", epoch / training.settings.epochs)
    about = {"best_epoch": training.best.epoch, "epochs": training.state.epoch}
    return training.outputs(), about


def scores(task: Task, outputs: Tensor) -> Row:
    """The metric on validation and test nodes, in percent."""
    values = {
        part: 100 * float(task.kind.metric(task.metric, outputs[nodes], task.y[nodes]))
        for part, nodes in (("val", task.val), ("test", task.test))
    }
    return {"metric": METRICS[task.metric].title, **values}
