r"""Searches for settings, trains all models on all graphs with what was found, and joins the
results.

::

    OUT/search/<graph>-<model>.json     a search, every trial of it (:mod:`phgcn_lab.benchmark.search`)
    OUT/train/<graph>-<row>.json        the model with the best settings on ten splits, written after every split; the row
                                        head-off is GlobalGNN without its global path
    OUT/benchmark.json, benchmark-search.json, benchmark.md     the results (:mod:`phgcn_lab.benchmark.report`)

A process that is cut off loses the trial or the split that it works on, no more; the same command
continues."""  # noqa: E501

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phgcn.devices import check_device

from ..experiment import NEVER, check_names, check_positive, check_stage, fill, journal
from ..workers import Report
from . import report as results
from .search import Study, best_trial, run_study
from .spaces import GRAPHS, HEAD_OFF, MODELS, OFF, OURS
from .training import SPLITS, choose, free_memory, origin, plan_of, tasks_of, train_split


@dataclass(frozen=True)
class Request:
    graphs: tuple[str, ...] = tuple(GRAPHS)
    models: tuple[str, ...] = MODELS
    trials: int = 30  # of each search
    seconds: float = 60.0  # of each search, times the graph's effort
    device: str = "cpu"
    epochs: int | None = None  # at most, instead of those of each graph: a quick version
    splits: int = SPLITS

    def __post_init__(self) -> None:
        check_names(graphs=(self.graphs, tuple(GRAPHS)), models=(self.models, MODELS))
        if self.trials < 2:
            allowed = "2 or more, as GlobalGNN is searched in two steps"
            raise ValueError(f"trials is {self.trials}; allowed: {allowed}")
        check_positive(seconds=self.seconds)
        if not 2 <= self.splits <= SPLITS:
            raise ValueError(f"splits is {self.splits}; allowed: 2 to {SPLITS}")
        check_device(self.device)


@dataclass(frozen=True)
class Cell:
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
        return (self.study.model, HEAD_OFF) if self.study.model == OURS else (self.study.model,)


@dataclass(frozen=True)
class Benchmark:
    """Stages: ``"search"``, ``"train"`` with the best settings so far, ``"report"``, ``"all"``."""

    out: Path
    request: Request
    stage: str = "all"
    deadline: float = NEVER

    def __post_init__(self) -> None:
        check_stage(self.stage, "all", "search", "train", "report")

    def cells(self) -> list[Cell]:
        """Large graphs first and our model first on each: what is cut off is whole graphs."""
        asked = self.request
        limits = asked.trials, asked.seconds, asked.device, asked.epochs
        return [
            Cell(Study(graph, model, *limits), asked.splits)
            for graph in GRAPHS
            for model in asked.models
            if graph in asked.graphs
        ]

    def report(self) -> dict[str, Any]:
        return results.write(self.out)

    def run(self, cell: Cell, report: Report) -> None:
        def searching(text: str, share: float) -> None:
            report(f"search: {text}", share / 2)

        def training(text: str, share: float) -> None:
            report(f"train: {text}", (1 + share) / 2)

        if time.time() >= self.deadline:
            return
        if self.stage in ("all", "search"):
            run_study(cell.study, self.out, self.deadline, searching)
        if self.stage in ("all", "train"):
            for row in cell.rows:
                train_row(cell, row, self.out, self.deadline, training)


def train_row(cell: Cell, row: str, out: Path, deadline: float, report: Report) -> None:
    """Trains the best settings of a search on every split that is not trained with them yet."""
    study = cell.study
    best = best_trial(study.read(out))
    if best is None:
        if time.time() >= deadline:
            return
        advice = "run the stage search first, with more seconds"
        raise ValueError(f"{study.file(out)}: no trial came to an end; {advice}")
    values = {**best["settings"], **(OFF if row == HEAD_OFF else {})}
    settings, arguments = choose(study.graph, study.model, values, study.epochs)
    plan = plan_of(study.graph, study.model, settings, study.device)
    path = out / "train" / f"{study.graph}-{row}.json"
    about: dict[str, Any] = {"graph": study.graph, "model": study.model, "row": row}
    about |= {"protocol": plan.protocol, "metric": plan.metric}
    about |= {"epochs": study.epochs, "settings": values}
    content = journal(path, about, "splits")
    done = {split["split"] for split in content["splits"]}

    def make(split: int) -> dict[str, Any]:
        free_memory()  # of the split before
        result, training = train_split(plan, arguments, split, deadline)
        task = tasks_of(plan)[split]
        result |= {"train_nodes": len(task.train), "test_nodes": len(task.test)}
        if row == OURS:
            result["global_attention"] = training.global_attention()
        return {**result, **origin(study.device)}

    missing = [split for split in range(cell.splits) if split not in done]
    fill(path, content, "splits", missing, make, deadline, report)
