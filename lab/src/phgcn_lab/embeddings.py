r"""The paper's last figure: what the embeddings of a PH-GCN show.

Two-layer networks with two heads and embeddings in the plane are trained on several splits.  Of the
first layer's embeddings the paper says that nodes of a class cluster, and that distances do not go
with those in the graph; here both get a number, beside labels that are shuffled, and the same
network before it is trained.

::

    OUT/runs/<graph>/                        a run of :mod:`phgcn.train`
    OUT/embeddings.json, .md, .png, .svg     the results
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from phgcn.provenance import provenance
from phgcn.report.embeddings import hops
from phgcn.train import Plan, Run, Settings, find
from phgcn.train import graph as graphs
from phgcn.train.plan import Trial
from phgcn.train.prediction import choose_trial
from phgcn.train.prepare import build_model, prepare, seeded

from . import embeddings_report
from .arrays import Floats, Ints
from .clustering import clustering, correlation
from .workers import Report, describe

GRAPHS = ("wisconsin", "cornell")
SETTINGS = Settings(heads=2, hidden_channels=16, num_layers=2, embedding_dim=2)


@dataclass(frozen=True)
class Effort:
    splits: int = 10  # networks for each graph, protocol paper
    resamples: int = 100  # permutations and resamples of each test
    settings: Settings = field(default_factory=lambda: SETTINGS)


QUICK = Effort(splits=2, resamples=20, settings=replace(SETTINGS, epochs=100))


@dataclass(frozen=True)
class Training:
    graph: str
    effort: Effort
    folder: Path
    cost: float = 1.0

    @property
    def name(self) -> str:
        return Path(self.graph).name

    def plan(self) -> Plan:
        return Plan(self.graph, splits=self.effort.splits, settings=self.effort.settings)

    def open(self) -> Run:
        run = Run.open(self.folder)
        if run.plan != self.plan():
            made = f"{self.folder} was made with other settings ({run.plan})"
            raise ValueError(f"{made}; allowed: the same, or another folder")
        return run


@dataclass(frozen=True)
class Embeddings:
    out: Path
    effort: Effort
    graphs: Sequence[str] = GRAPHS  # names or paths

    def cells(self) -> list[Training]:
        folder = self.out / "runs"
        return [Training(name, self.effort, folder / Path(name).name) for name in self.graphs]

    def run(self, training: Training, report: Report) -> None:
        if (training.folder / "run.json").is_file():
            run = training.open()
            data = run.data()
        else:
            data = find(training.graph)[1]
            run = Run.create(training.folder, training.plan(), data)
        run.train(data, lambda progress: report(*describe(run.plan, progress)))

    def report(self) -> dict[str, Any]:
        done = [cell for cell in self.cells() if (cell.folder / "result.json").is_file()]
        studies = [study(training.open(), self.effort.resamples) for training in done]
        content: dict[str, Any] = {"provenance": provenance(0, "cpu")}
        content |= {"splits": self.effort.splits, "resamples": self.effort.resamples}
        content["graphs"] = [measures for measures, _ in studies]
        if not studies:
            return content
        files = embeddings_report.write(self.out, content, [picture for _, picture in studies])
        return {**content, "files": files}


def study(run: Run, resamples: int) -> tuple[dict[str, Any], embeddings_report.Picture]:
    """Measures a run; returns what is drawn of the split with the least validation loss too."""
    data = run.data()
    steps = hops(data.edge_index, data.num_nodes, np.arange(data.num_nodes))
    tasks = prepare(run.plan, data)
    rows = []
    for trial in run.plan.trials():
        task = tasks[trial.split]
        with seeded(trial.seed, task):
            untrained = build_model(run.plan, data.x.size(1), task.classes, len(data.y)).eval()
        before, after = positions(untrained, run, data), positions(run.model(trial), run, data)
        test = task.test.numpy()
        for head in range(after.shape[1]):
            of_head = before[:, head], after[:, head]
            rows.append(measure(trial, head, *of_head, data, test, steps, resamples))
    best = choose_trial(run, None)
    drawn = torch.from_numpy(positions(run.model(best), run, data))
    picture = embeddings_report.Picture(data, drawn, steps, best.split)
    result = run.result()
    about = {"graph": str(data.name), "nodes": data.num_nodes}
    about |= {"test_accuracy": result["test"], "config": result["config"]}
    return {**about, "drawn_split": best.split, "summary": summary(rows), "rows": rows}, picture


@torch.no_grad()
def positions(model: Any, run: Run, data: Data) -> Floats:
    r"""Computes the first layer's embedding :math:`(N, H, D)` of every node."""
    embedded, _ = model.convs[0].project(graphs.scale_features(data.x, run.plan.settings.normalise))
    array: Floats = embedded.double().numpy()
    return array


def measure(
    trial: Trial,
    head: int,
    before: Floats,
    after: Floats,
    data: Data,
    test: Ints,
    steps: Floats,
    resamples: int,
) -> dict[str, Any]:
    y = data.y.numpy()
    known, seed = np.flatnonzero(y >= 0), trial.seed + head
    return {
        "split": trial.split,
        "head": head,
        "all": asdict(clustering(after[known], y[known], resamples, seed)),
        "test": asdict(clustering(after[test], y[test], resamples, seed)),
        "untrained": asdict(clustering(before[known], y[known], resamples, seed)),
        "hops": asdict(correlation(steps, after, resamples, seed)),
        "hops_untrained": asdict(correlation(steps, before, resamples, seed)),
    }


SUMMARISED = {
    "all": ("silhouette", "shuffled"),
    "test": ("silhouette", "shuffled"),
    "untrained": ("silhouette",),
    "hops": ("rho", "explained"),
    "hops_untrained": ("rho", "explained"),
}


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Averages over splits and heads; the deviation is over splits, of the mean of the heads."""
    measures: dict[str, Any] = {}
    for group, keys in SUMMARISED.items():
        for key in keys:
            measures[f"{group}_{key}"] = _spread([(row["split"], row[group][key]) for row in rows])
        measures[f"{group}_significant"] = sum(row[group]["p"] < 0.05 for row in rows)
    return {**measures, "networks": len(rows)}


def _spread(values: Sequence[tuple[int, float]]) -> dict[str, float | None]:
    by_split: dict[int, list[float]] = {}
    for split, value in values:
        by_split.setdefault(split, []).append(value)
    means = [statistics.mean(of_split) for of_split in by_split.values()]
    every = [value for _, value in values]
    deviation = statistics.stdev(means) if len(means) > 1 else None
    extremes = {"lowest": min(every), "highest": max(every)}
    return {"mean": statistics.mean(every), "std": deviation, **extremes}
