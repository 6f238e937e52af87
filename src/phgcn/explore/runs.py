"""Makes a page from the folders of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from ..report.curves import read_curves
from ..text import amount
from ..train import graph as graphs
from ..train.global_path import switch_global
from ..train.metrics import find_metric
from ..train.plan import Trial
from ..train.prediction import choose_trial, split_of, trial_model
from ..train.run import Run
from ..train.yardsticks import describe_yardsticks, summarise_yardsticks
from .content import Content, Side, View
from .gather import gather_graph, gather_views, prediction_columns, split_column
from .page import write_page


def explore_runs(
    runs: Sequence[Run], out: str | Path, splits: Sequence[int] = (), source: str | None = None
) -> dict[str, Any]:
    """Writes the page of a run, of two of its splits, or of two runs on one graph.

    Args:
        runs (list of Run): One run, or two on the same graph.
        out (str or Path): The HTML file.
        splits (list of int, optional): The split of each run; two of one run show both. (default:
            the best on validation nodes)
        source (str, optional): Where the graph is now, if it has moved. (default: :obj:`None`)

    Returns:
        ``file``, ``bytes``, ``nodes``, ``graph`` and ``sides``, the titles of the models that are
        shown.
    """
    trials = _choose(runs, splits)
    data = runs[0].data(source)
    parts = gather_graph(data)
    sides = [gather_side(run, trial, data) for run, trial in trials]
    content = Content(f"{data.name}: what the network attends to", *parts, sides)
    size = write_page(content, out)
    return {
        "file": str(out),
        "bytes": size,
        "nodes": len(parts.ids),
        "graph": str(data.name),
        "sides": [side.title for side in sides],
    }


def _choose(runs: Sequence[Run], splits: Sequence[int]) -> list[tuple[Run, Trial]]:
    """Pairs each run with the trial to show; one run with two splits is shown twice."""
    if not 1 <= len(runs) <= 2:
        raise ValueError(f"{len(runs)} runs are given; allowed: one or two")
    if runs[0].about["graph"]["digest"] != runs[-1].about["graph"]["digest"]:
        what = f"{runs[0].folder} and {runs[1].folder} are of different graphs"
        raise ValueError(f"{what}; allowed: two runs of one graph")
    if len(splits) > 2 or (len(runs) == 2 and len(splits) == 1):
        raise ValueError(f"{len(splits)} splits are given; allowed: none, one for one run, or two")
    if not splits:
        return [(run, choose_trial(run)) for run in runs]
    paired = [runs[0]] * len(splits) if len(runs) == 1 else runs
    return [(run, choose_trial(run, split)) for run, split in zip(paired, splits, strict=True)]


@torch.no_grad()
def gather_side(run: Run, trial: Trial, data: Data) -> Side:
    result, kind, split = run.trial_result(trial), run.kind(trial), split_of(run.plan, trial, data)
    trained = trial_model(run, trial, data)
    model, output = trained.model, trained.logits()
    used = getattr(model, "use_global", True)
    if hasattr(model, "set_global"):
        switch_global(model, True)
    views = gather_views(model, trained.inputs, output, trained.values, used)
    predicted, probabilities = kind.predict(output), kind.probabilities(output)
    columns = prediction_columns(predicted, probabilities, data.y, graphs.class_names(data))
    columns.append(split_column(split))
    facts = {
        "model": trial.plan.model,
        "run": str(run.folder),
        "split": str(trial.split),
        f"test {run.plan.metric}": f"{result['test']:.4f}",
        "validation loss": f"{result['val_loss']:.4f}",
    }
    if run.about.get("search"):
        facts["search"] = run.about["search"]["sentence"]
    curves = read_curves(run).get(trial.name, {})
    title, summary = f"{trial.plan.model}, {trial.name}", _summary(run, result, views)
    return Side(title, views, columns, facts, curves, result["best_epoch"], summary)


def _summary(run: Run, result: dict[str, Any], views: Sequence[View]) -> str:
    """Returns one sentence on the picture and the model's score."""
    found, tested = find_metric(run.plan.metric), not math.isnan(result["test"])
    score = found.scale * (result["test"] if tested else result["val_metric"])
    count = result.get("nodes", {}).get("test" if tested else "val")
    nodes = f"{'' if count is None else f'{count:,} '}{'test' if tested else 'validation'} nodes"
    click = "this network attends to no far nodes"
    if any(view.decay_global or view.far_attention for view in views):
        click = "click one to see what it attends to"
    unit, graph = " %" if found.scale == 100 else "", run.about["graph"]
    return (
        f"Every dot is one of the {graph['nodes']:,} nodes of {graph['name']}, placed where "
        f"{run.plan.model} puts it, and near dots are alike to it; {click}. "
        f"Score on {nodes}: {found.title} {amount(score)}{unit}{_yardsticks(run, result)}."
    )


def _yardsticks(run: Run, result: dict[str, Any]) -> str:
    """Returns the scores of simple answers on the same nodes, for the score's sentence."""
    about = {"metric": run.plan.metric, "commonest": run.about["commonest"], "splits": [result]}
    described = describe_yardsticks(about | {"yardsticks": summarise_yardsticks([result])})
    shown = [line for line in described if not line.startswith("warning")]
    return f" ({'; '.join(shown)})" if shown else ""
