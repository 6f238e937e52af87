r"""Head on against head off under many conditions, one small file each, joined into one JSON, a table and a figure.

::

    OUT/when/<part>-<subject>-<level>.json      one condition, written after every split or network
    OUT/when.json, when.md, when.png, when.svg  the results (:mod:`phgcn.reproduce.when.report`)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...devices import check_device
from ...files import read_json, write_json
from ..benchmark.spaces import OURS
from ..benchmark.training import SPLITS, TimeUp, origin
from ..workers import Progress, Report, run_all
from . import generated
from . import report as results
from .conditions import EDGES, HEADS, LABELS, Condition, train_both

PARTS = ("edges", "labels", *generated.TASKS)
GRAPHS = ("cora", "citeseer", "wisconsin")
NEVER = float("inf")


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Args:
        benchmark (Path): ``benchmark.json``, for the settings of GlobalGNN on each graph.
        graphs (tuple of str): Graphs to take edges and labels from. (default: cora, citeseer, wisconsin)
        parts (tuple of str): Of :data:`PARTS`. (default: all)
        networks (int): Networks of each generated task. (default: :obj:`5`)
        steps (int, optional): Batches that these are trained on. (default: :obj:`None`, those of each task)
        limit_seconds (float): After so many seconds nothing new is begun, and what runs is cut off. (default: no limit)
        device (str): Where to compute. (default: :obj:`"cpu"`)
        epochs (int, optional): Epochs at most, instead of those of each graph: a quick version. (default: :obj:`None`)
        splits (int): Splits of each graph. (default: :obj:`10`)
    """

    benchmark: Path
    graphs: tuple[str, ...] = GRAPHS
    parts: tuple[str, ...] = PARTS
    networks: int = 5
    steps: int | None = None
    limit_seconds: float = NEVER
    device: str = "cpu"
    epochs: int | None = None
    splits: int = SPLITS

    def __post_init__(self) -> None:
        for part in self.parts or [""]:
            if part not in PARTS:
                raise ValueError(f"parts has {part!r}; allowed: {', '.join(PARTS)}")
        for name in ("networks", "steps", "limit_seconds"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed: positive numbers")
        check_device(self.device)

    def settings(self) -> dict[str, dict[str, Any]]:
        """Reads the settings of GlobalGNN on each graph."""
        if not {"edges", "labels"} & set(self.parts):
            return {}
        rows = read_json(self.benchmark)["rows"]
        known = {row["graph"]: row["settings"] for row in rows if row["row"] == OURS}
        for graph in self.graphs:
            if graph not in known:
                allowed = ", ".join(known) or f"none yet; `phgcn reproduce benchmark --models {OURS}` finds some"
                raise ValueError(f"graphs has {graph!r}; allowed, as {self.benchmark} has settings for them: {allowed}")
        return {graph: known[graph] for graph in self.graphs}

    def jobs(self) -> list[Job]:
        """Lists all conditions; of generated tasks the easiest first, so that what a time limit leaves has whole levels."""
        settings, common = self.settings(), (self.device, self.epochs)
        jobs = []
        for part in self.parts:
            if part in generated.TASKS:
                task = generated.TASKS[part]
                jobs += [
                    Job(part, part, level, number, 1, {}, self.steps or task.steps, *common)
                    for level in task.levels
                    for number in range(self.networks)
                ]
            else:
                for graph in self.graphs:
                    levels_of: tuple[int | None, ...] = EDGES if part == "edges" else LABELS
                    jobs += [Job(part, graph, level, 0, self.splits, settings[graph], 0, *common) for level in levels_of]
        return jobs


@dataclass(frozen=True)
class Job:
    """A condition of a graph, all splits; or one network of a generated task, with and without its head."""

    part: str
    subject: str
    level: int | None
    first: int
    count: int
    settings: dict[str, Any]
    steps: int
    device: str
    epochs: int | None

    @property
    def name(self) -> str:
        words = [self.part] + [self.subject] * (self.subject != self.part) + ["all" if self.level is None else str(self.level)]
        return "-".join(words + [f"network-{self.first}"] * (self.part in generated.TASKS))

    @property
    def cost(self) -> float:
        return 1.0

    def file(self, out: Path) -> Path:
        return out / "when" / f"{self.name}.json"

    def read(self, out: Path) -> dict[str, Any]:
        """Reads what is done; a file of other settings is begun anew."""
        keys = ("part", "subject", "level", "settings", "steps", "epochs")
        about = {key: getattr(self, key) for key in keys}
        if self.file(out).is_file():
            content: dict[str, Any] = read_json(self.file(out))
            if all(content[key] == value for key, value in about.items()):
                return content
        return {**about, "results": []}


@dataclass(frozen=True)
class Worker:
    """Does a job; an object, so that processes get the folder and the deadline with it."""

    out: Path
    deadline: float

    def __call__(self, job: Job, report: Report) -> None:
        content = job.read(self.out)
        done = {result["number"] for result in content["results"]}
        for number in range(job.first, job.first + job.count):
            if number in done or time.time() >= self.deadline:
                continue
            try:
                result = self._both(job, number)
            except TimeUp:
                return
            content["results"].append({**result, **origin(job.device)})
            write_json(job.file(self.out), content)
            report(f"{number + 1 - job.first} of {job.count}", (number + 1 - job.first) / job.count)

    def _both(self, job: Job, number: int) -> dict[str, Any]:
        if job.part in ("edges", "labels"):
            condition = Condition(job.part, job.subject, job.level)  # type: ignore[arg-type]
            return train_both(condition, job.settings, number, job.device, self.deadline, job.epochs)
        assert job.level is not None
        arguments = (number, job.steps, job.device, self.deadline)
        both: dict[str, Any] = {head: generated.train(job.part, job.level, head, *arguments) for head in HEADS}
        return {"number": number, "test_over_train": 0.0, **both}


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
        What ``when.json`` holds, and ``failures``, what went wrong by condition.
    """
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; allowed: 1 or more")
    out, begin, failures = Path(out), time.perf_counter(), {}
    if not only_report:
        worker = Worker(out, time.time() + request.limit_seconds)
        failures = run_all(request.jobs(), worker, jobs, on_progress, in_order=True)
    content = results.write(out)
    return {**content, "failures": failures, "seconds": time.perf_counter() - begin}
