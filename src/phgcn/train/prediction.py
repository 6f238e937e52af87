r"""Evaluates a trained run, and predicts for the nodes of the same or another graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..data.labels import labelled
from ..files import write_csv
from ..text import without_formula
from . import graph as graphs
from .global_path import global_statistics, summarise
from .labels import deciding_keys, layer_positions
from .metrics import goodness, mean_and_deviation
from .plan import Trial
from .prepare import edge_values, edges, prepare, taken_edge_values
from .recipe import autocast
from .run import Run
from .tasks import find_task


@torch.no_grad()
def logits(run: Run, trial: Trial, data: Data) -> Tensor:
    """Computes the output of a trial's model for every node of a graph, which must have as many features as the run's.

    Shapes:
        - **output:** :math:`(N, C)`, on the CPU
    """
    inputs = trial_inputs(run, trial, data)
    with autocast(run.plan.settings, inputs[0].device):
        out: Tensor = run.model(trial).to(run.plan.device)(*inputs, **trial_values(run, trial, data))
    return out.float().cpu() if run.plan.settings.amp else out.cpu()


def trial_inputs(run: Run, trial: Trial, data: Data) -> tuple[Tensor, ...]:
    """Returns what a trial's model takes of a graph, on the run's device: the features as it was trained on them, the edges."""
    graphs.match_features(data, run.about["graph"])
    graphs.match_edges(data, run.about["graph"], taken_edge_values(run.plan))
    x = run.transform(trial).apply(data.x)
    return (graphs.features_on_device(x, run.plan.settings.normalise, run.plan.device), *edges(run.plan, data))


def trial_values(run: Run, trial: Trial, data: Data) -> dict[str, Tensor]:
    """Returns what a trial's model takes of a graph by name: features of edges, and labels of training nodes."""
    return {**edge_values(run.plan, data), **run.own_labels(trial, data)}


def evaluate(run: Run, data: Data) -> dict[str, Any]:
    """Computes the metrics of a finished run again from its weights: of each split, the task's other metrics and details of
    all test nodes, such as the confusion matrix, and what the global path attends to."""
    recorded, tasks = run.result(), prepare(run.plan, data)
    rows, predicted, wanted = [], [], []
    for trial in run.plan.trials():
        task = tasks[trial.split]
        parts = {"train": task.train.cpu(), "val": task.val.cpu(), "test": task.test.cpu()}
        row, answers = _score_trial(run, trial, data, parts)
        row["global_attention"] = global_statistics(
            run.model(trial).to(run.plan.device), task.inputs, trial_values(run, trial, data)
        )
        rows.append(row)
        predicted.append(answers)
        wanted.append(data.y[parts["test"]])
    as_recorded = all(row["test"] == trial["test"] for row, trial in zip(rows, recorded["splits"], strict=True))
    return {
        **_summary(run, data, rows, torch.cat(predicted), torch.cat(wanted)),
        "as_recorded": as_recorded,
        "global_path": summarise([row["global_attention"] for row in rows], int(data.num_nodes)),
        "search": recorded.get("search"),
    }


def evaluate_other(run: Run, data: Data) -> dict[str, Any]:
    """Scores another graph than the run was trained on: all of its labelled nodes, by the model of each split.

    Args:
        run (Run): A finished run.
        data (torch_geometric.data.Data): A graph that :meth:`Run.read` gave.
    """
    run.result()  # raises if the run has not ended
    nodes = labelled(data.y).nonzero().flatten()
    if not len(nodes):
        raise ValueError(f"{data.name}: no node has a label; allowed: a graph with labels")
    scored = [_score_trial(run, trial, data, {"test": nodes}) for trial in run.plan.trials()]
    predicted = torch.cat([answers for _, answers in scored])
    return {
        **_summary(run, data, [row for row, _ in scored], predicted, torch.cat([data.y[nodes]] * len(scored))),
        "as_recorded": None,
        "global_path": None,
        "search": None,
        "nodes": len(nodes),
    }


def _score_trial(run: Run, trial: Trial, data: Data, parts: Mapping[str, Tensor]) -> tuple[dict[str, Any], Tensor]:
    """Scores the model of a trial on parts of the nodes; returns a row of the result, and the predictions for ``test``."""
    out, kind = logits(run, trial, data), run.kind(trial)
    row = {name: float(kind.metric(run.plan.metric, out[nodes], data.y[nodes])) for name, nodes in parts.items()}
    test = parts["test"]
    scores = kind.scores(out[test], data.y[test])
    return {"split": trial.split, "repeat": trial.repeat, **row, "scores": scores}, kind.predict(out[test])


def _summary(run: Run, data: Data, rows: list[dict[str, Any]], predicted: Tensor, y: Tensor) -> dict[str, Any]:
    """Returns what evaluations have in common: means over trials, and details of all predictions for test nodes."""

    def spread(values: list[float]) -> dict[str, float]:
        mean, deviation = mean_and_deviation(values)
        return {"mean": mean, "std": deviation}

    kind, names = find_task(run.plan.task), run.about["graph"]["classes"]
    return {
        "run": str(run.folder),
        "graph": str(data.name),
        "model": run.plan.model,
        "task": run.plan.task,
        "metric": run.plan.metric,
        "test": spread([row["test"] for row in rows]),
        "scores": {name: spread([row["scores"][name] for row in rows]) for name in kind.metrics},
        "splits": rows,
        "classes": names,
        "notes": graphs.notes(data),
        **kind.details(predicted, y, names),
    }


def choose_trial(run: Run, split: int | None = None) -> Trial:
    """Returns the best finished trial, by validation loss or metric as ``select`` says, of one split or (by default) of all."""
    if split is not None and not 0 <= split < run.plan.splits:
        raise ValueError(f"split is {split}; allowed: 0 to {run.plan.splits - 1}")
    trials = [trial for trial in run.plan.trials() if split in (None, trial.split) and run.finished(trial)]
    if not trials:
        raise ValueError(f"{run.folder}: nothing is trained yet; `phgcn train ... --out {run.folder} --resume` does that")
    results = {trial: run.trial_result(trial) for trial in trials}
    if run.plan.settings.select == "metric":
        return max(trials, key=lambda trial: (_goodness(run, results[trial]), -results[trial]["val_loss"]))
    return min(trials, key=lambda trial: results[trial]["val_loss"])


def _goodness(run: Run, result: dict[str, Any]) -> float:
    return goodness(run.plan.metric, result["val_metric"])


REASONS = 3
"""Rows of the training that are written beside a prediction."""

MAX_REASON_PAIRS = 2**31
"""Above so many pairs of predicted and training rows no reasons are written: the sum over all pairs takes minutes."""


def _reasons(run: Run, trial: Trial, data: Data) -> dict[str, list[Any]]:
    """Returns the training rows that decide each prediction most and their weights, as columns; none without labels."""
    kept = run.kept_keys(trial)
    if kept is None:
        return {}
    if int(data.num_nodes) * len(kept.nodes) > MAX_REASON_PAIRS:
        data.notes = [*graphs.notes(data), "too many rows to say which rows of the training decided each prediction"]
        return {}
    values, own = trial_values(run, trial, data), torch.full((int(data.num_nodes),), -1)
    if "labelled" in values:
        own[kept.nodes] = torch.arange(len(kept.nodes))
    parts = layer_positions(run.model(trial).to(run.plan.device), trial_inputs(run, trial, data), values)
    found, names, columns = deciding_keys(parts, own, REASONS), [*kept.names(), ""], {}
    for place in range(REASONS):
        columns[f"decided_by_{place + 1}"] = [names[key] for key in found.keys[:, place].tolist()]
        columns[f"weight_{place + 1}"] = [f"{weight:.4g}" for weight in found.weights[:, place].tolist()]
    return columns


def predict(run: Run, source: str, path: str | Path, split: int | None = None, spreadsheet: bool = False) -> dict[str, Any]:
    """Writes a CSV with the prediction for every node of a graph, one row each: a class or labels with the probability of
    every class, or a number.

    Args:
        run (Run): A run with at least one trained split.
        source (str): A graph's name or path; any graph with the same features.
        path (str or Path): The CSV to write.
        split (int, optional): The split whose model predicts. (default: :obj:`None`, the best on validation nodes)
        spreadsheet (bool, optional): Puts an apostrophe before ids and classes that a spreadsheet would take for formulas;
            else they are written as they are, to be joined with other tables. (default: :obj:`False`)
    """
    trial = choose_trial(run, split)
    data = run.read(source, labels=False)
    table = run.kind(trial).table(logits(run, trial, data), run.about["graph"]["classes"])
    written = without_formula if spreadsheet else str
    ids = [written(node) for node in graphs.node_names(data)]
    if table.heading[0] == "label":
        for row in table.rows:
            row[0] = written(row[0])
    reasons = _reasons(run, trial, data)
    decided = zip(*reasons.values(), strict=True) if reasons else [()] * len(ids)
    rows = ([node, *row, *map(written, more)] for node, row, more in zip(ids, table.rows, decided, strict=True))
    write_csv(path, ["id", *table.heading, *reasons], rows)
    return {
        "run": str(run.folder),
        "graph": str(data.name),
        "nodes": len(ids),
        "split": trial.split,
        "trained": run.trial_result(trial).get("nodes"),
        "file": str(path),
        "predicted": table.summary,
        "notes": graphs.notes(data),
    }
