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
from numpy.typing import NDArray
from torch_geometric.data import Data

from ..report.embeddings import hops
from ..train import Plan, Run, Settings, find
from ..train import graph as graphs
from ..train.prediction import choose_trial
from ..train.run import Trial, build_model, prepare, seeded
from . import embeddings_report
from .clustering import clustering, correlation
from .provenance import provenance
from .workers import Progress, Tell, run_all

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


def train(training: Training, tell: Tell) -> None:
    """Trains what is not trained yet."""
    if (training.folder / "run.json").is_file():
        run = training.open()
        data = run.data()
    else:
        data = find(training.graph)[1]
        run = Run.create(training.folder, training.plan(), data)
    names = [trial.name for trial in run.plan.trials()]

    def told(moment: Any) -> None:
        share = (names.index(moment.trial.name) + moment.epoch / run.plan.settings.epochs) / len(names)
        tell(f"{moment.trial.name} of {len(names)}, epoch {moment.epoch}, accuracy {moment.row[2]:.3f}", share)

    run.train(data, told)


def run(
    folder: Path, effort: Effort, told: Callable[[Progress], None], *, names: Sequence[str] = GRAPHS, jobs: int = 1
) -> dict[str, Any]:
    """Trains, measures, and writes ``embeddings.json``, ``embeddings.md`` and the figure as PNG and SVG.

    Args:
        folder (Path): Where results go, and runs into ``runs`` below it.
        effort (Effort): How much is computed.
        told (callable): Called with every :class:`phgcn.reproduce.workers.Progress`.
        names (list of str, optional): The graphs, by name or path. (default: wisconsin and cornell)
        jobs (int, optional): How many processes. (default: :obj:`1`)

    Returns:
        What ``embeddings.json`` holds; and ``files``.
    """
    begin = time.perf_counter()
    trainings = [Training(name, effort, folder / "runs" / Path(name).name) for name in names]
    failures = run_all(trainings, train, jobs, told)
    for name, why in failures.items():
        raise ValueError(f"{name}: {why}")
    content: dict[str, Any] = {"provenance": provenance(), "splits": effort.splits, "resamples": effort.resamples, "graphs": []}
    drawn = []
    for training in trainings:
        found, picture = study(training.open(), effort.resamples)
        content["graphs"].append(found)
        drawn.append(picture)
    content["seconds"] = time.perf_counter() - begin
    return {**content, "files": [str(file) for file in embeddings_report.write(folder, content, drawn)]}


def study(run: Run, resamples: int) -> tuple[dict[str, Any], embeddings_report.Picture]:
    """All measures of a graph's run, and what is drawn of it: the split with the smallest validation loss."""
    data = run.data()
    steps = hops(data.edge_index, data.num_nodes, np.arange(data.num_nodes))
    tasks = prepare(run.plan, data)
    rows = []
    for trial in run.plan.trials():
        with seeded(trial.seed, tasks[trial.split]):
            untrained = build_model(run.plan, data.x.size(1), tasks[trial.split].classes).eval()
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
def positions(model: Any, run: Run, data: Data) -> NDArray:
    r"""The first layer's embedding :math:`(N, H, D)` of every node."""
    found, _ = model.convs[0].project(graphs.scale_features(data.x, run.plan.settings.normalise))
    return found.double().numpy()


def measure(
    trial: Trial, head: int, before: NDArray, after: NDArray, data: Data, test: NDArray, steps: NDArray, resamples: int
) -> dict[str, Any]:
    """The numbers of one head of one network, over all labelled nodes and over test nodes alone, which it never learned."""
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
    """Means over splits and heads, with the standard deviation over splits of the mean of the heads."""
    found: dict[str, Any] = {}
    for group, keys in (
        ("all", ("silhouette", "shuffled")),
        ("test", ("silhouette", "shuffled")),
        ("untrained", ("silhouette",)),
        ("hops", ("rho", "explained")),
        ("hops_untrained", ("rho", "explained")),
    ):
        for key in keys:
            found[f"{group}_{key}"] = _spread([(row["split"], row[group][key]) for row in rows])
        found[f"{group}_significant"] = sum(row[group]["p"] < 0.05 for row in rows)
    found["networks"] = len(rows)
    return found


def _spread(values: Sequence[tuple[int, float]]) -> dict[str, float | None]:
    by_split: dict[int, list[float]] = {}
    for split, value in values:
        by_split.setdefault(split, []).append(value)
    means = [statistics.mean(found) for found in by_split.values()]
    deviation = statistics.stdev(means) if len(means) > 1 else None
    every = [value for _, value in values]
    return {"mean": statistics.mean(every), "std": deviation, "lowest": min(every), "highest": max(every)}
