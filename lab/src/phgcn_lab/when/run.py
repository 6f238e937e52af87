r"""Head on against head off under many conditions, one small file each, joined into one JSON, a
table and a figure.

::

    OUT/when/<part>-<subject>-<level>.json      one condition, written after every split or network
    OUT/when.json, when.md, when.png, when.svg  the results (:mod:`phgcn_lab.when.report`)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phgcn.devices import check_device
from phgcn.files import read_json

from ..benchmark.spaces import OURS
from ..benchmark.training import SPLITS, origin
from ..experiment import NEVER, check_names, check_positive, fill, journal
from ..workers import Report
from . import generated
from . import report as results
from .conditions import EDGES, HEADS, LABELS, Condition, train_both

PARTS = ("edges", "labels", *generated.TASKS)
GRAPHS = ("cora", "citeseer", "wisconsin")


@dataclass(frozen=True)
class Request:
    benchmark: Path  # `benchmark.json`, for the settings of GlobalGNN on each graph
    graphs: tuple[str, ...] = GRAPHS  # to take edges and labels from
    parts: tuple[str, ...] = PARTS
    networks: int = 5  # of each generated task
    steps: int | None = None  # batches that these are trained on, instead of those of each task
    device: str = "cpu"
    epochs: int | None = None  # at most, instead of those of each graph: a quick version
    splits: int = SPLITS  # of each graph

    def __post_init__(self) -> None:
        check_names(parts=(self.parts, PARTS))
        check_positive(networks=self.networks, steps=self.steps)
        check_device(self.device)

    def settings(self) -> dict[str, dict[str, Any]]:
        rows = read_json(self.benchmark)["rows"]
        known = {row["graph"]: row["settings"] for row in rows if row["row"] == OURS}
        none = f"none yet; `phgcn reproduce benchmark --models {OURS}` finds some"
        for graph in self.graphs:
            if graph not in known:
                allowed = f"allowed, as {self.benchmark} has settings for them"
                raise ValueError(f"graphs has {graph!r}; {allowed}: {', '.join(known) or none}")
        return known

    def jobs(self) -> list[Job]:
        """Of generated tasks the easiest first: what a time limit leaves has whole levels."""
        levels: dict[str, tuple[int | None, ...]] = {"edges": EDGES, "labels": LABELS}
        settings = self.settings() if levels.keys() & set(self.parts) else {}
        common, jobs = (self.device, self.epochs), []
        for part in self.parts:
            if part in levels:
                jobs += [
                    Job(part, graph, level, 0, self.splits, settings[graph], 0, *common)
                    for graph in self.graphs
                    for level in levels[part]
                ]
                continue
            task = generated.TASKS[part]
            jobs += [
                Job(part, part, level, number, 1, {}, self.steps or task.steps, *common)
                for level in task.levels
                for number in range(self.networks)
            ]
        return jobs


@dataclass(frozen=True)
class Job:
    """A condition of a graph, all splits; or one network of a generated task, on and off."""

    part: str
    subject: str
    level: int | None
    first: int
    count: int
    settings: dict[str, Any]
    steps: int
    device: str
    epochs: int | None
    cost: float = 1.0

    @property
    def name(self) -> str:
        level = "all" if self.level is None else str(self.level)
        if self.part in generated.TASKS:
            return f"{self.part}-{level}-network-{self.first}"
        return f"{self.part}-{self.subject}-{level}"

    def file(self, out: Path) -> Path:
        return out / "when" / f"{self.name}.json"

    def read(self, out: Path) -> dict[str, Any]:
        """A file of other settings is begun anew."""
        keys = ("part", "subject", "level", "settings", "steps", "epochs")
        return journal(self.file(out), {key: getattr(self, key) for key in keys}, "results")


@dataclass(frozen=True)
class When:
    out: Path
    request: Request
    deadline: float = NEVER

    def cells(self) -> list[Job]:
        return self.request.jobs()

    def report(self) -> dict[str, Any]:
        return results.write(self.out)

    def run(self, job: Job, report: Report) -> None:
        content = job.read(self.out)
        done = {result["number"] for result in content["results"]}
        numbers = range(job.first, job.first + job.count)
        missing = [number for number in numbers if number not in done]

        def make(number: int) -> dict[str, Any]:
            return {**self._both(job, number), **origin(job.device)}

        fill(job.file(self.out), content, "results", missing, make, self.deadline, report)

    def _both(self, job: Job, number: int) -> dict[str, Any]:
        if job.part in ("edges", "labels"):
            condition = Condition(job.part, job.subject, job.level)  # type: ignore[arg-type]
            limits = job.device, self.deadline, job.epochs
            return train_both(condition, job.settings, number, *limits)
        assert job.level is not None
        arguments = (number, job.steps, job.device, self.deadline)
        both: dict[str, Any] = {
            head: generated.train(job.part, job.level, head, *arguments) for head in HEADS
        }
        return {"number": number, "test_over_train": 0.0, **both}
