r"""Whether global attention keeps deep networks from over-smoothing, as the paper says it does.

Networks of 2 to 16 layers, with the settings that ``phgcn reproduce table`` tuned for two (of
GlobalGNN those of ``phgcn reproduce benchmark``); only the depth differs.  Splits are those of the
paper's protocol, and the epoch is chosen by validation nodes as everywhere.

Of the features before the last layer of test nodes two numbers are measured, before and after
training: the mean cosine distance of nodes of different classes, which is 0 where all features
point into one direction, and how far class means are apart, in units of the mean distance of nodes
from the mean of their class.

A command that was cut off continues; ``--minutes`` ends it in time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from registry import measurement
from torch import Tensor

from phgcn.files import read_json
from phgcn.train import Plan, Task, Training, find, resolve
from phgcn.train.metrics import mean_and_deviation
from phgcn.train.prepare import prepare, seeded, start
from phgcn_lab.markdown import origin, table
from phgcn_lab.results import chosen, names

GRAPHS = ("wisconsin", "cora", "citeseer")
TITLES = {
    **{"gcn": "GCN", "gat": "GAT", "gat-eda": "GAT-EDA"},
    **{"phgcn": "PH-GCN", "global-gnn": "GlobalGNN"},
}
DEPTHS = (2, 4, 8, 16)
SPLITS = 3
KEYS = ("split", "graph", "depth", "model")


def cosine_distance(x: Tensor, y: Tensor) -> float:
    """Mean cosine distance of the features (N, C) of nodes of different classes; of features that
    are all 0 the distance is 0.
    """
    norms = x.norm(dim=1, keepdim=True)
    unit = x / norms.clamp(min=torch.finfo(x.dtype).tiny)
    distances = (1 - unit @ unit.T) * ((norms > 0) & (norms > 0).T)
    return float(distances[y.unsqueeze(1) != y].mean())


def separation(x: Tensor, y: Tensor) -> float:
    """Mean distance of class means over the mean distance of nodes from the mean of their class."""
    classes, index = y.unique(return_inverse=True)
    means = torch.stack([x[index == number].mean(dim=0) for number in range(len(classes))])
    within = (x - means[index]).norm(dim=1).mean()
    return float(torch.pdist(means).mean() / within.clamp(min=torch.finfo(x.dtype).tiny))


@torch.no_grad()
def distances(model: Any, task: Task) -> dict[str, float]:
    """Both measures of the input of the last layer, on test nodes."""
    last = model.lin_out if hasattr(model, "lin_out") else model.convs[-1]
    inputs: list[Tensor] = []
    hook = last.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
    model.eval()(*task.inputs)
    hook.remove()
    x, y = inputs[0][task.test].double(), task.y[task.test]
    return {"cosine_distance": cosine_distance(x, y), "separation": separation(x, y)}


def measure(split: int, graph: str, depth: int, model: str) -> dict[str, Any]:
    """Trains a network of this depth on a split, and measures it before and after."""
    source, data = find(graph)
    settings = replace(resolve(model, graph).settings, num_layers=depth)
    plan = Plan(source, model, "paper", SPLITS, settings=settings)
    task, trial = prepare(plan, data, only=split)[0], plan.trials()[split]
    begin = time.perf_counter()
    with seeded(trial.seed, task):
        training: Training = start(plan, task)
        before = distances(training.model, task)
        while not training.done:
            training.epoch()
    training.model.load_state_dict(training.state.best_weights)
    return {
        "accuracy": 100 * training.best.test_metric,
        "before": before,
        "after": distances(training.model, task),
        "epochs": training.state.epoch,
        "seconds": time.perf_counter() - begin,
    }


def _accuracy(rows: list[dict]) -> str:
    if not rows:
        return "not run yet"
    mean, deviation = mean_and_deviation([row["accuracy"] for row in rows])
    if len(rows) == SPLITS:
        return f"{mean:.1f} ± {deviation:.1f}"
    return f"{mean:.1f} ({len(rows)})"


def _mean(rows: list[dict], measure: str) -> str:
    return f"{sum(row['after'][measure] for row in rows) / len(rows):.2f}" if rows else "-"


def rows_of(measured: dict) -> list[str]:
    lines = []
    for graph, model in product(names(measured["rows"], "graph"), TITLES):
        rows = chosen(measured["rows"], graph=graph, model=model)
        depths = [chosen(rows, depth=depth) for depth in DEPTHS]
        cells = [_accuracy(found) for found in depths]
        distances = " / ".join(_mean(found, "cosine_distance") for found in depths)
        lines.append([graph, TITLES[model], *cells, distances])
    depths_text = " / ".join(map(str, DEPTHS))
    heading = ["graph", "model", *(f"{depth} layers" for depth in DEPTHS)]
    heading.append(f"cosine distance ({depths_text})")
    about = (
        f"{origin(measured)}. Test accuracy in percent, {SPLITS} splits or as many as in brackets:"
    )
    return [about, "", *table(heading, lines)]


@measurement(
    tables=rows_of,
    quick="one split of wisconsin, two depths",
    minutes={"type": float, "default": float("inf"), "help": "begin no training after that"},
)
def over_smoothing(options: argparse.Namespace) -> Iterator[dict]:
    """Test accuracy and distances between classes of networks of 2 to 16 layers."""
    there = options.kept is not None and options.kept.is_file()
    rows = read_json(options.kept)["rows"] if there else []
    cells = list(product(range(SPLITS), GRAPHS, DEPTHS, TITLES))
    cells.sort(key=lambda cell: cell[1] != "wisconsin" and cell[3] == "phgcn")  # slow ones last
    if options.quick:
        cells = list(product([0], GRAPHS[:1], DEPTHS[:2], TITLES))
    done, begin = set(names(rows, *KEYS)), time.perf_counter()
    for cell in cells:
        if cell in done or time.perf_counter() - begin > 60 * options.minutes:
            continue
        rows.append({**dict(zip(KEYS, cell, strict=True)), **measure(*cell)})
        yield {"rows": rows}
    yield {"rows": rows}
