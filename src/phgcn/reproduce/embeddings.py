r"""The paper's last figure: what the embeddings of a PH-GCN show.

Two-layer networks with two heads and embeddings in the plane are trained on several splits.  Of the first layer's embeddings
the paper says that nodes of a class cluster, and that distances do not go with those in the graph; here both get a number,
beside labels that are shuffled, and the same network before it is trained.

::

    OUT/runs/<graph>/                        a run of :mod:`phgcn.train`
    OUT/embeddings.json, .md, .png, .svg     the results
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from ..provenance import provenance
from ..report.embeddings import hops
from ..train import Plan, Run, Settings, find
from ..train import graph as graphs
from ..train.plan import Trial
from ..train.prediction import choose_trial
from ..train.prepare import build_model, prepare, seeded
from . import embeddings_report
from .arrays import Floats, Ints
from .clustering import clustering, correlation
from .workers import Progress, Report, run_all

GRAPHS = ("wisconsin", "cornell")
SETTINGS = Settings(heads=2, hidden_channels=16, num_layers=2, embedding_dim=2)


@dataclass(frozen=True)
class Effort:
    """How much is computed.

    Args:
        splits (int): Networks for each graph, protocol paper. (default: :obj:`10`)
        resamples (int): Permutations and resamples of each test. (default: :obj:`100`)
        settings (Settings): Those of the networks.
    """

    splits: int = 10
    resamples: int = 100
    settings: Settings = field(default_factory=lambda: SETTINGS)


@dataclass(frozen=True)
class Training:
    """The run of a graph, for a worker."""

    graph: str
    effort: Effort
    folder: Path

    @property
    def name(self) -> str:
        return Path(self.graph).name

    @property
    def cost(self) -> float:
        return 1.0

    def plan(self) -> Plan:
        return Plan(self.graph, splits=self.effort.splits, settings=self.effort.settings)

    def open(self) -> Run:
        run = Run.open(self.folder)
        if run.plan != self.plan():
            raise ValueError(f"{self.folder} was made with other settings ({run.plan}); allowed: the same, or another folder")
        return run


def train(training: Training, report: Report) -> None:
    """Trains what is not trained yet."""
    if (training.folder / "run.json").is_file():
        run = training.open()
        data = run.data()
    else:
        data = find(training.graph)[1]
        run = Run.create(training.folder, training.plan(), data)
    names = [trial.name for trial in run.plan.trials()]

    def after_epoch(progress: Any) -> None:
        share = (names.index(progress.trial.name) + progress.epoch / run.plan.settings.epochs) / len(names)
        report(f"{progress.trial.name} of {len(names)}, epoch {progress.epoch}, accuracy {progress.row[2]:.3f}", share)

    run.train(data, after_epoch)


def run(
    folder: Path, effort: Effort, on_progress: Callable[[Progress], None], *, names: Sequence[str] = GRAPHS, jobs: int = 1
) -> dict[str, Any]:
    """Trains, measures, and writes ``embeddings.json``, ``embeddings.md`` and the figure as PNG and SVG.

    Args:
        folder (Path): Where results go, and runs into ``runs`` below it.
        effort (Effort): How much is computed.
        on_progress (callable): Called with every :class:`phgcn.reproduce.workers.Progress`.
        names (list of str, optional): The graphs, by name or path. (default: wisconsin and cornell)
        jobs (int, optional): How many processes. (default: :obj:`1`)

    Returns:
        What ``embeddings.json`` holds; and ``files``.
    """
    begin = time.perf_counter()
    trainings = [Training(name, effort, folder / "runs" / Path(name).name) for name in names]
    failures = run_all(trainings, train, jobs, on_progress)
    for name, why in failures.items():
        raise ValueError(f"{name}: {why}")
    content: dict[str, Any] = {
        "provenance": provenance(0, "cpu"),
        "splits": effort.splits,
        "resamples": effort.resamples,
        "graphs": [],
    }
    drawn = []
    for training in trainings:
        measures, picture = study(training.open(), effort.resamples)
        content["graphs"].append(measures)
        drawn.append(picture)
    content["seconds"] = time.perf_counter() - begin
    return {**content, "files": [str(file) for file in embeddings_report.write(folder, content, drawn)]}


def study(run: Run, resamples: int) -> tuple[dict[str, Any], embeddings_report.Picture]:
    """Measures a graph's run; returns the split with the smallest validation loss too, to be drawn."""
    data = run.data()
    steps = hops(data.edge_index, data.num_nodes, np.arange(data.num_nodes))
    tasks = prepare(run.plan, data)
    rows = []
    for trial in run.plan.trials():
        with seeded(trial.seed, tasks[trial.split]):
            untrained = build_model(run.plan, data.x.size(1), tasks[trial.split].classes, len(data.y)).eval()
        before, after = positions(untrained, run, data), positions(run.model(trial), run, data)
        test = tasks[trial.split].test.numpy()
        for head in range(after.shape[1]):
            rows.append(measure(trial, head, before[:, head], after[:, head], data, test, steps, resamples))
    chosen = choose_trial(run, None)
    picture = embeddings_report.Picture(data, torch.from_numpy(positions(run.model(chosen), run, data)), steps, chosen.split)
    result = run.result()
    about = {"graph": str(data.name), "nodes": data.num_nodes, "test_accuracy": result["test"], "config": result["config"]}
    return {**about, "drawn_split": chosen.split, "summary": summary(rows), "rows": rows}, picture


@torch.no_grad()
def positions(model: Any, run: Run, data: Data) -> Floats:
    r"""Computes the first layer's embedding :math:`(N, H, D)` of every node."""
    embedded, _ = model.convs[0].project(graphs.scale_features(data.x, run.plan.settings.normalise))
    array: Floats = embedded.double().numpy()
    return array


def measure(
    trial: Trial, head: int, before: Floats, after: Floats, data: Data, test: Ints, steps: Floats, resamples: int
) -> dict[str, Any]:
    """Measures one head of one network, over all labelled nodes and over test nodes alone, whose labels it did not train on."""
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


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Averages over splits and heads, with the standard deviation over splits of the mean of the heads."""
    measures: dict[str, Any] = {}
    for group, keys in (
        ("all", ("silhouette", "shuffled")),
        ("test", ("silhouette", "shuffled")),
        ("untrained", ("silhouette",)),
        ("hops", ("rho", "explained")),
        ("hops_untrained", ("rho", "explained")),
    ):
        for key in keys:
            measures[f"{group}_{key}"] = _spread([(row["split"], row[group][key]) for row in rows])
        measures[f"{group}_significant"] = sum(row[group]["p"] < 0.05 for row in rows)
    measures["networks"] = len(rows)
    return measures


def _spread(values: Sequence[tuple[int, float]]) -> dict[str, float | None]:
    by_split: dict[int, list[float]] = {}
    for split, value in values:
        by_split.setdefault(split, []).append(value)
    means = [statistics.mean(values_of_split) for values_of_split in by_split.values()]
    deviation = statistics.stdev(means) if len(means) > 1 else None
    every = [value for _, value in values]
    return {"mean": statistics.mean(every), "std": deviation, "lowest": min(every), "highest": max(every)}
