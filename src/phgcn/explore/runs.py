r"""From the folders of runs to a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from ..report.curves import read_curves
from ..train import graph as graphs
from ..train.global_path import switch_global
from ..train.metrics import find_metric
from ..train.plan import Trial
from ..train.prediction import choose_trial, logits, trial_inputs, trial_values
from ..train.prepare import prepare
from ..train.run import Run
from .content import Content, Side, View
from .gather import gather_graph, gather_views, prediction_columns, split_column
from .page import write_page


def explore_runs(runs: Sequence[Run], out: str | Path, splits: Sequence[int] = (), source: str | None = None) -> dict[str, Any]:
    """Writes the page of a run, of two of its splits, or of two runs on one graph.

    Args:
        runs (list of Run): One run, or two on the same graph.
        out (str or Path): The HTML file.
        splits (list of int, optional): The split of each run; two of one run show both. (default: the best on validation
            nodes)
        source (str, optional): Where the graph is now, if it has moved. (default: :obj:`None`)

    Returns:
        ``file``, ``bytes``, ``nodes``, ``graph`` and ``sides``, the titles of the models that are shown.
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
    """Pairs each run with the trial that is shown; one run with two splits is shown twice."""
    if not 1 <= len(runs) <= 2:
        raise ValueError(f"{len(runs)} runs are given; allowed: one or two")
    if len(runs) == 2 and runs[0].about["graph"]["digest"] != runs[1].about["graph"]["digest"]:
        raise ValueError(f"{runs[0].folder} and {runs[1].folder} are of different graphs; allowed: two runs of one graph")
    if len(splits) > 2 or (len(runs) == 2 and len(splits) == 1):
        raise ValueError(f"{len(splits)} splits are given; allowed: none, one for one run, or two")
    if not splits:
        return [(run, choose_trial(run)) for run in runs]
    paired = [runs[0]] * len(splits) if len(runs) == 1 else runs
    return [(run, choose_trial(run, split)) for run, split in zip(paired, splits, strict=True)]


@torch.no_grad()
def gather_side(run: Run, trial: Trial, data: Data) -> Side:
    """Gathers what one trained model shows."""
    task, result, kind = prepare(run.plan, data)[trial.split], run.trial_result(trial), run.kind(trial)
    output = logits(run, trial, data)
    model = run.model(trial).to(run.plan.device)
    used = getattr(model, "use_global", True)
    if hasattr(model, "set_global"):
        switch_global(model, True)
    views = gather_views(model, trial_inputs(run, trial, data), output, trial_values(run, trial, data), used)
    columns = [
        *prediction_columns(kind.predict(output), kind.probabilities(output), data.y, graphs.class_names(data)),
        split_column(task.train, task.val, task.test, int(data.num_nodes)),
    ]
    facts = {
        "model": run.plan.model,
        "run": str(run.folder),
        "split": str(trial.split),
        f"test {run.plan.metric}": f"{result['test']:.4f}",
        "validation loss": f"{result['val_loss']:.4f}",
    }
    if run.about.get("search"):
        facts["search"] = run.about["search"]["sentence"]
    curves = read_curves(run).get(trial.name, {})
    title = f"{run.plan.model}, {trial.name}"
    return Side(title, views, columns, facts, curves, result["best_epoch"], _summary(run, result, views))


def _summary(run: Run, result: dict[str, Any], views: Sequence[View]) -> str:
    """Says in one sentence what is seen, and how the model scored."""
    found, tested = find_metric(run.plan.metric), not math.isnan(result["test"])
    score = found.scale * (result["test"] if tested else result["val_metric"])
    count = result.get("nodes", {}).get("test" if tested else "val")
    nodes = f"{'' if count is None else f'{count:,} '}{'test' if tested else 'validation'} nodes"
    attends = any(view.decay_global is not None for view in views)
    click = "click one to see what it attends to" if attends else "this network attends to no far nodes"
    unit = " %" if found.scale == 100 else ""
    return (
        f"Every dot is one of the {run.about['graph']['nodes']:,} nodes of {run.about['graph']['name']}, placed where "
        f"{run.plan.model} puts it, and near dots are alike to it; {click}. "
        f"Score on {nodes}: {found.title} {score:.4g}{unit}."
    )
