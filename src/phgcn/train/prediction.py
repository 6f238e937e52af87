r"""Evaluates a trained run, and predicts the classes of the nodes of the same or another graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..files import write_csv
from ..text import without_formula
from . import graph as graphs
from .global_path import global_statistics, summarise
from .metrics import confusion, mean_and_deviation, metric
from .recipe import autocast
from .run import Run, Trial, edges, prepare


@torch.no_grad()
def logits(run: Run, trial: Trial, data: Data) -> Tensor:
    """Computes the output of a trial's model for every node of a graph, which must have as many features as the run's.

    Shapes:
        - **output:** :math:`(N, C)`, on the CPU
    """
    features = run.about["graph"]["features"]
    if data.x.size(1) != features:
        raise ValueError(
            f"{data.name}: the graph has {data.x.size(1)} features; allowed: {features}, as {run.folder} was trained on"
        )
    x = graphs.features_on_device(data.x, run.plan.settings.normalise, run.plan.device)
    with autocast(run.plan.settings, x.device):
        out: Tensor = run.model(trial).to(run.plan.device)(x, *edges(run.plan, data))
    return out.float().cpu() if run.plan.settings.amp else out.cpu()


def evaluate(run: Run, data: Data) -> dict[str, Any]:
    """Computes the metrics of a finished run again from its weights, the confusion matrix of its test nodes, and what its
    global path attends to."""
    result = run.result()
    tasks = prepare(run.plan, data)
    names = graphs.class_names(data)
    table = torch.zeros(len(names), len(names), dtype=torch.int64)
    rows: list[dict[str, Any]] = []
    for trial in run.plan.trials():
        out, task = logits(run, trial, data), tasks[trial.split]
        test, y = task.test.cpu(), data.y
        table += confusion(out[test].argmax(dim=1), y[test], len(names))
        metrics = {
            part: float(metric(run.plan.metric, out[nodes], y[nodes]))
            for part, nodes in (("train", task.train.cpu()), ("val", task.val.cpu()), ("test", test))
        }
        attention = global_statistics(run.model(trial).to(run.plan.device), task.inputs)
        rows.append({"split": trial.split, "repeat": trial.repeat, **metrics, "global_attention": attention})
    mean, deviation = mean_and_deviation([row["test"] for row in rows])
    return {
        "run": str(run.folder),
        "graph": result["graph"],
        "model": run.plan.model,
        "metric": run.plan.metric,
        "test": {"mean": mean, "std": deviation},
        "as_recorded": all(row["test"] == trial["test"] for row, trial in zip(rows, result["splits"], strict=True)),
        "splits": rows,
        "global_path": summarise([row["global_attention"] for row in rows], int(data.num_nodes)),
        "classes": names,
        "confusion": table.tolist(),
        "per_class": [_class_scores(table, number, name) for number, name in enumerate(names)],
    }


def _class_scores(table: Tensor, number: int, name: str) -> dict[str, Any]:
    """Computes recall and precision of one class from the confusion matrix; None if no node has, or was given, the class."""
    hits, nodes, predicted = (int(count) for count in (table[number, number], table[number].sum(), table[:, number].sum()))
    recall, precision = hits / nodes if nodes else None, hits / predicted if predicted else None
    return {"class": name, "nodes": nodes, "recall": recall, "precision": precision}


def choose_trial(run: Run, split: int | None = None) -> Trial:
    """Returns the best finished trial, by validation loss or metric as ``select`` says, of one split or (by default) of all."""
    if split is not None and not 0 <= split < run.plan.splits:
        raise ValueError(f"split is {split}; allowed: 0 to {run.plan.splits - 1}")
    trials = [trial for trial in run.plan.trials() if split in (None, trial.split) and run.finished(trial)]
    if not trials:
        raise ValueError(f"{run.folder}: nothing is trained yet; `phgcn train ... --out {run.folder} --resume` does that")
    results = {trial: run.trial_result(trial) for trial in trials}
    if run.plan.settings.select == "metric":
        return max(trials, key=lambda trial: (results[trial]["val_metric"], -results[trial]["val_loss"]))
    return min(trials, key=lambda trial: results[trial]["val_loss"])


def predict(run: Run, source: str, path: str | Path, split: int | None = None, spreadsheet: bool = False) -> dict[str, Any]:
    """Writes a CSV with the predicted class and the probability of every class, one row per node of a graph.

    Args:
        run (Run): A run with at least one trained split.
        source (str): A graph's name or path; any graph with the same features.
        path (str or Path): The CSV to write.
        split (int, optional): The split whose model predicts. (default: :obj:`None`, the best on validation nodes)
        spreadsheet (bool, optional): Puts an apostrophe before ids and classes that a spreadsheet would take for formulas;
            else they are written as they are, to be joined with other tables. (default: :obj:`False`)
    """
    trial = choose_trial(run, split)
    _, data = graphs.find(source, run.plan.directed)
    probabilities = logits(run, trial, data).double().softmax(dim=1)
    names = run.about["graph"]["classes"]
    best = probabilities.argmax(dim=1).tolist()
    heading = ["id", "label", *(f"probability_{name}" for name in names)]
    written = without_formula if spreadsheet else str
    ids, labels = [written(node) for node in graphs.node_names(data)], [written(name) for name in names]
    rows = zip(ids, best, probabilities.tolist(), strict=True)
    write_csv(path, heading, ([node, labels[label], *(f"{value:.6g}" for value in row)] for node, label, row in rows))
    counts = {name: best.count(number) for number, name in enumerate(names)}
    return {"run": str(run.folder), "graph": str(data.name), "nodes": len(best), "split": trial.split,
            "file": str(path), "predicted": counts}  # fmt: skip
