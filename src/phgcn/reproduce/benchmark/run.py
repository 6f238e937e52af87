r"""Searches for settings, trains all models on all graphs with what was found, and joins the results.

::

    OUT/search/<graph>-<model>.json     a search, every trial of it (:mod:`phgcn.reproduce.benchmark.search`)
    OUT/train/<graph>-<row>.json        the model with the best settings on ten splits, written after every split; the row
                                        head-off is GlobalGNN without its global path
    OUT/benchmark.json, benchmark-search.json, benchmark.md     the results (:mod:`phgcn.reproduce.benchmark.report`)

A process that is cut off loses the trial or the split that it works on, no more; the same command continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...devices import check_device
from ...files import read_json, write_json
from ..workers import Progress, Report, run_all
from . import report as results
from .search import Study, best_trial, run_study
from .spaces import GRAPHS, HEAD_OFF, MODELS, OFF, OURS
from .training import SPLITS, TimeUp, choose, free_memory, origin, plan_of, tasks_of, train_split

STAGES = ("all", "search", "train", "report")
NEVER = float("inf")


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Args:
        graphs, models (tuple of str): The cells of the table. (default: all)
        trials (int): Trials of each search. (default: :obj:`30`)
        seconds (float): How long a search may take, times the graph's effort. (default: :obj:`60`)
        limit_seconds (float): After so many seconds nothing new is begun, and what runs is cut off. (default: no limit)
        device (str): Where to compute. (default: :obj:`"cpu"`)
        epochs (int, optional): Epochs at most, instead of those of each graph: a quick version. (default: :obj:`None`)
        splits (int): Splits that are trained on. (default: :obj:`10`)
    """

    graphs: tuple[str, ...] = tuple(GRAPHS)
    models: tuple[str, ...] = MODELS
    trials: int = 30
    seconds: float = 60.0
    limit_seconds: float = NEVER
    device: str = "cpu"
    epochs: int | None = None
    splits: int = SPLITS

    def __post_init__(self) -> None:
        for name, allowed in (("graphs", tuple(GRAPHS)), ("models", MODELS)):
            for value in getattr(self, name) or [""]:
                if value not in allowed:
                    raise ValueError(f"{name} has {value!r}; allowed: {', '.join(allowed)}")
        if self.trials < 2:
            raise ValueError(f"trials is {self.trials}; allowed: 2 or more, as GlobalGNN is searched in two steps")
        for name in ("seconds", "limit_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed: positive numbers")
        if not 2 <= self.splits <= SPLITS:
            raise ValueError(f"splits is {self.splits}; allowed: 2 to {SPLITS}")
        check_device(self.device)

    def cells(self) -> list[Cell]:
        """Lists the cells, graph by graph, large graphs first and our model first on each: what is cut off is whole graphs."""
        order = [graph for graph in GRAPHS if graph in self.graphs]
        return [
            Cell(Study(graph, model, self.trials, self.seconds, self.device, self.epochs), self.splits)
            for graph in order
            for model in self.models
        ]


@dataclass(frozen=True)
class Cell:
    """A model on a graph: its search, and its training on all splits."""

    study: Study
    splits: int

    @property
    def name(self) -> str:
        return self.study.name

    @property
    def cost(self) -> float:
        return GRAPHS[self.study.graph].effort

    @property
    def rows(self) -> tuple[str, ...]:
        """The rows of the table that come of this cell."""
        return (self.study.model, HEAD_OFF) if self.study.model == OURS else (self.study.model,)


@dataclass(frozen=True)
class Worker:
    """Does a cell; an object, so that processes get the folder and the deadline with it."""

    out: Path
    stage: str
    deadline: float = NEVER

    def __call__(self, cell: Cell, report: Report) -> None:
        if time.time() >= self.deadline:
            return
        study = cell.study
        if self.stage in ("all", "search"):
            run_study(study, self.out, self.deadline, lambda text, share: report(f"search: {text}", share / 2))
        if self.stage in ("all", "train"):
            for row in cell.rows:
                train_row(cell, row, self.out, self.deadline, lambda text, share: report(f"train: {text}", (1 + share) / 2))


def train_row(cell: Cell, row: str, out: Path, deadline: float, report: Report) -> None:
    """Trains the best settings of a search on every split that is not trained with them yet."""
    study = cell.study
    best = best_trial(study.read(out))
    if best is None:
        if time.time() >= deadline:
            return
        raise ValueError(f"{study.file(out)}: no trial came to an end; run the stage search first, with more seconds")
    values = {**best["settings"], **(OFF if row == HEAD_OFF else {})}
    settings, arguments = choose(study.graph, study.model, values, study.epochs)
    plan = plan_of(study.graph, study.model, settings, study.device)
    path = out / "train" / f"{study.graph}-{row}.json"
    content = read_row(path, row, values, study, plan.metric)
    done = {split["split"] for split in content["splits"]}
    for split in range(cell.splits):
        if split in done:
            continue
        try:
            result, training = train_split(plan, arguments, split, deadline)
        except TimeUp:
            return
        task = tasks_of(plan)[split]
        result |= {"train_nodes": len(task.train), "test_nodes": len(task.test)}
        if row == OURS:
            result["global_attention"] = training.global_attention()
        content["splits"].append({**result, **origin(study.device)})
        write_json(path, content)
        report(f"{row}, {split + 1} of {cell.splits} splits", (split + 1) / cell.splits)
        del training
        free_memory()


def read_row(path: Path, row: str, values: dict[str, Any], study: Study, metric: str) -> dict[str, Any]:
    """Reads what is trained with these settings; with others, a new row is begun."""
    about = {
        "graph": study.graph, "model": study.model, "row": row, "protocol": GRAPHS[study.graph].protocol, "metric": metric,
        "epochs": study.epochs, "settings": values,
    }  # fmt: skip
    if path.is_file():
        content: dict[str, Any] = read_json(path)
        if all(content.get(key) == value for key, value in about.items()):
            return content
    return {**about, "splits": []}


def run(
    out: str | Path,
    request: Request | None = None,
    stage: str = "all",
    jobs: int = 1,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> dict[str, Any]:
    """Does what is missing of a stage, and writes the results of what is there.

    Args:
        out (str or Path): The folder.
        request (Request, optional): What is asked for. (default: :obj:`None`, everything)
        stage (str): ``"search"``, ``"train"`` with the best settings so far, ``"report"`` of what is there, or ``"all"``:
            each process searches for a model on a graph and trains it at once. (default: :obj:`"all"`)
        jobs (int): How many processes. (default: :obj:`1`)
        on_progress (callable): Called with every :class:`~phgcn.reproduce.workers.Progress`. (default: does nothing)

    Returns:
        What ``benchmark.json`` holds, and ``failures``, what went wrong by cell.
    """
    out, request = Path(out), request or Request()
    if stage not in STAGES:
        raise ValueError(f"stage is {stage!r}; allowed: {', '.join(STAGES)}")
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; allowed: 1 or more")
    begin, failures = time.perf_counter(), {}
    if stage != "report":
        worker = Worker(out, stage, time.time() + request.limit_seconds)
        failures = run_all(request.cells(), worker, jobs, on_progress, in_order=True)
    content = results.write(out)
    return {**content, "failures": failures, "seconds": time.perf_counter() - begin}


def quick_request(request: Request) -> Request:
    """Returns a version that takes seconds: few trials, epochs and splits. It shows the form, not the results."""
    return replace(request, trials=min(request.trials, 2), epochs=3, splits=3)
