"""Evaluates a trained run, predicts for the nodes of any graph, and measures approximate
attention."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from ..accuracy import attention_error
from ..calls import AttentionCall, add_heads, count_heads
from ..data import Split, public_masks, splits
from ..data.labels import labelled
from ..files import write_csv
from ..functional import observe_attention
from ..lattice.scheme import MAX_DIMENSION
from ..text import without_formula
from . import graph as graphs
from .global_path import global_statistics, summarise
from .labels import deciding_keys, layer_positions
from .metrics import goodness, spread
from .plan import Plan, Trial
from .prepare import edge_values, edges, taken_edge_values
from .recipe import autocast
from .run import Run
from .tasks import find_task
from .yardsticks import LOCAL, describe_yardsticks, local_trial, summarise_yardsticks


class TrialModel(NamedTuple):
    """A trial's model on the run's device, and its arguments for a graph."""

    trial: Trial
    model: Any
    inputs: tuple[Tensor, ...]
    values: dict[str, Tensor]

    @torch.no_grad()
    def logits(self) -> Tensor:
        """Computes the output for every node, (N, C), on the CPU."""
        with autocast(self.trial.plan.settings, self.inputs[0].device):
            out: Tensor = self.model(*self.inputs, **self.values)
        return out.float().cpu() if self.trial.plan.settings.amp else out.cpu()


def trial_model(run: Run, trial: Trial, data: Data) -> TrialModel:
    """Builds a trial's model for a graph, which must have as many features as the run's."""
    plan = trial.plan
    graphs.match_features(data, run.about["graph"])
    graphs.match_edges(data, run.about["graph"], taken_edge_values(plan))
    x = run.transform(trial).apply(data.x)
    x = graphs.features_on_device(x, plan.settings.normalise, plan.device)
    values = {**edge_values(plan, data), **run.own_labels(trial, data)}
    model = run.model(trial).to(plan.device)
    return TrialModel(trial, model, (x, *edges(plan, data)), values)


def evaluate(run: Run, data: Data) -> dict[str, Any]:
    """Scores a finished run again from its weights: all metrics of each split, details of all test
    nodes, such as the confusion matrix, and statistics of the global path."""
    recorded, rows, predicted, truth = run.result(), [], [], []
    for trial in run.plan.trials():
        trained, split = trial_model(run, trial, data), split_of(run.plan, trial, data)
        row, answers = _score_trial(run, trained, data, vars(split))
        row["global_attention"] = global_statistics(trained.model, trained.inputs, trained.values)
        rows.append(row)
        predicted.append(answers)
        truth.append(data.y[split.test])
    # a table's rows are computed with others here than in its training: the last bits differ
    scores, recorded_scores = (
        np.array([row["test"] for row in found], dtype=float)
        for found in (rows, recorded["splits"])
    )
    return {
        **_summary(run, data, rows, torch.cat(predicted), torch.cat(truth)),
        "as_recorded": bool(np.allclose(scores, recorded_scores, 1e-6, 1e-9, equal_nan=True)),
        "global_path": summarise([row["global_attention"] for row in rows], int(data.num_nodes)),
        "config": recorded["config"],
        "search": recorded.get("search"),
        "yardsticks": describe_yardsticks(recorded),
    }


def evaluate_other(run: Run, data: Data) -> dict[str, Any]:
    """Scores the model of each split, and its yardsticks, on all labelled nodes of another graph.

    Args:
        run (Run): A finished run.
        data (torch_geometric.data.Data): A graph that :meth:`Run.read` returned.
    """
    recorded, nodes = run.result(), labelled(data.y)
    if not bool(nodes.any()):
        raise ValueError(f"{data.name}: no node has a label; allowed: a graph with labels")
    rows, predicted = [], []
    for trial in run.plan.trials():
        trained = trial_model(run, trial, data)
        row, answers = _score_trial(run, trained, data, {"test": nodes})
        rows.append(row | {"yardsticks": _score_yardsticks(run, trained, data, nodes)})
        predicted.append(answers)
    truth = torch.cat([data.y[nodes]] * len(rows))
    summary = _summary(run, data, rows, torch.cat(predicted), truth)
    yardsticks = {"yardsticks": summarise_yardsticks(rows), "commonest": recorded["commonest"]}
    return {
        **summary,
        **dict.fromkeys(("as_recorded", "global_path", "search")),
        "yardsticks": describe_yardsticks(summary | yardsticks),
        "nodes": int(nodes.sum()),
    }


def _score_yardsticks(run: Run, trained: TrialModel, data: Data, nodes: Tensor) -> dict[str, float]:
    trial, x = trained.trial, trained.inputs[0]
    outputs = {name: model.outputs(x).cpu() for name, model in run.simple_models(trial).items()}
    local = local_trial(trial)
    if local is not None and run.finished(local):
        outputs[LOCAL] = trial_model(run, local, data).logits()
    kind, metric = run.kind(trial), run.plan.metric
    return {
        name: float(kind.metric(metric, out[nodes], data.y[nodes])) for name, out in outputs.items()
    }


def _score_trial(
    run: Run, trained: TrialModel, data: Data, parts: Mapping[str, Tensor]
) -> tuple[dict[str, Any], Tensor]:
    """Scores a trial's model on masks (N,) by name; returns a row, and ``test`` predictions."""
    trial, test = trained.trial, parts["test"]
    out, kind = trained.logits(), run.kind(trial)
    row: dict[str, Any] = {"split": trial.split, "repeat": trial.repeat}
    for name, nodes in parts.items():
        row[name] = float(kind.metric(run.plan.metric, out[nodes], data.y[nodes]))
    row["scores"] = kind.scores(out[test], data.y[test])
    return row, kind.predict(out[test])


def _summary(
    run: Run, data: Data, rows: list[dict[str, Any]], predicted: Tensor, y: Tensor
) -> dict[str, Any]:
    """Summarises an evaluation: means over trials, and details of all test predictions."""
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


def split_of(plan: Plan, trial: Trial, data: Data) -> Split:
    masks = public_masks(data)
    return splits(data.y, plan.protocol, plan.splits, plan.seed, masks=masks)[trial.split]


def choose_trial(run: Run, split: int | None = None) -> Trial:
    """Returns the best finished trial of one split or of all, by the setting ``select``."""
    if split is not None and not 0 <= split < run.plan.splits:
        raise ValueError(f"split is {split}; allowed: 0 to {run.plan.splits - 1}")
    trials = [trial for trial in run.plan.trials() if split in (None, trial.split)]
    results = {trial: run.trial_result(trial) for trial in trials if run.finished(trial)}
    if not results:
        hint = f"`phgcn train ... --out {run.folder} --resume` does that"
        raise ValueError(f"{run.folder}: nothing is trained yet; {hint}")

    def order(trial: Trial) -> tuple[float, float]:
        by_metric, result = run.plan.settings.select == "metric", results[trial]
        metric = goodness(run.plan.metric, result["val_metric"]) if by_metric else 0.0
        return metric, -result["val_loss"]

    return max(results, key=order)


REASONS = 3  # how many rows of the training are written beside a prediction

# most pairs of predicted and training rows with reasons: the sum over all pairs takes minutes
MAX_REASON_PAIRS = 2**31


def _reasons(run: Run, trained: TrialModel, data: Data) -> dict[str, list[str]]:
    """Returns columns of the training rows with the largest weights in each prediction, and the
    weights. A model without labels has none."""
    kept, count = run.kept_keys(trained.trial), int(data.num_nodes)
    if kept is None:
        return {}
    if count * len(kept.nodes) > MAX_REASON_PAIRS:
        note = "too many rows to say which rows of the training decided each prediction"
        data.notes = [*graphs.notes(data), note]
        return {}
    own = torch.full((count,), -1)
    if "labelled" in trained.values:
        own[kept.nodes] = torch.arange(len(kept.nodes))
    parts = layer_positions(trained.model, trained.inputs, trained.values)
    found, names, columns = deciding_keys(parts, own, REASONS), [*kept.names(), ""], {}
    ranked = zip(found.keys.T.tolist(), found.weights.T.tolist(), strict=True)
    for rank, (keys, weights) in enumerate(ranked, start=1):
        columns[f"decided_by_{rank}"] = [names[key] for key in keys]
        columns[f"weight_{rank}"] = [f"{weight:.4g}" for weight in weights]
    return columns


def predict(
    run: Run, source: str, path: str | Path, split: int | None = None, spreadsheet: bool = False
) -> dict[str, Any]:
    """Writes a CSV with a prediction for each node of a graph: a class or labels with the
    probability of every class, or a number.

    Args:
        run (Run): A run with at least one trained split.
        source (str): The name or path of a graph with the same features.
        path (str or Path): The CSV to write.
        split (int, optional): The split whose model predicts. (default: :obj:`None`, the best on
            validation nodes)
        spreadsheet (bool, optional): Puts an apostrophe before ids and classes that a spreadsheet
            would take for formulas. (default: :obj:`False`)
    """
    trial, data = choose_trial(run, split), run.read(source, labels=False)
    trained = trial_model(run, trial, data)
    table = run.kind(trial).table(trained.logits(), run.about["graph"]["classes"])
    written = without_formula if spreadsheet else str
    ids = [written(node) for node in graphs.node_names(data)]
    if table.heading[0] == "label":
        for row in table.rows:
            row[0] = written(row[0])
    reasons = _reasons(run, trained, data)
    columns = [ids, *map(list, zip(*table.rows, strict=True))]
    columns += [[written(cell) for cell in column] for column in reasons.values()]
    write_csv(path, ["id", *table.heading, *reasons], list(zip(*columns, strict=True)))
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


METHODS: tuple[Any, ...] = ("lattice", "lattice-fine", "separable")


def attention_errors(
    run: Run, data: Data, samples: int = 512, seed: int = 0
) -> list[dict[str, Any]]:
    """Measures all approximate methods on the embeddings of the best trained model.

    Args:
        run (Run): A run with at least one trained split.
        data (torch_geometric.data.Data): Its graph.
        samples, seed (int, optional): As in :func:`phgcn.attention_error`.

    Returns:
        A row per layer and head: ``layer``, ``head``, ``spread`` (the deviation of a coordinate, in
        units of 1/λ), and for each method ``deviation``, ``interval`` and ``gradient_cosine``.
    """
    with observe_attention() as calls:
        trial_model(run, choose_trial(run), data).logits()
    layers = [_layer_rows(layer, call, samples, seed) for layer, call in enumerate(calls)]
    return [row for rows in layers for row in rows]


def _layer_rows(layer: int, call: AttentionCall, samples: int, seed: int) -> list[dict[str, Any]]:
    heads = count_heads(call.positions, call.values)
    positions, values = add_heads(call.positions, heads), add_heads(call.values, heads)
    rest: dict[str, Any] = {
        name: getattr(call, name)
        for name in ("decay", "batch", "queries", "query_batch", "backend")
    }
    rest |= {"samples": samples, "seed": seed}
    rows: list[dict[str, Any]] = [
        {"layer": layer, "head": head, "spread": spread}
        for head, spread in enumerate(_spread(positions, call.decay).tolist())
    ]
    for method in METHODS if call.positions.size(-1) <= MAX_DIMENSION else ():
        error = attention_error(positions, values, method=method, **rest)
        for head, row in enumerate(rows):
            row[method] = {
                "deviation": float(error.deviation[head]),
                "interval": error.interval[:, head].tolist(),
                "gradient_cosine": float(error.gradient_cosine[head]),
            }
    return rows


def _spread(positions: Tensor, decay: float | Tensor) -> Tensor:
    """Returns the standard deviation of coordinates (N, H, D) per head, in units of 1/λ."""
    positions = positions.double()
    deviation = (positions - positions.mean(dim=0)).square().mean(dim=(0, 2)).sqrt()
    return deviation * torch.as_tensor(decay, dtype=torch.float64, device=positions.device)
