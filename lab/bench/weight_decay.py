r"""How much of the paper's gains on small web graphs is weight decay: models with and without it.

Settings are those that ``phgcn reproduce table`` tuned, with its exact method; only the weight
decay differs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import common
import torch
from registry import measurement

from phgcn.train import Plan, find, resolve
from phgcn.train.metrics import mean_and_deviation
from phgcn.train.prepare import prepare, seeded, start
from phgcn_lab.markdown import origin, table
from phgcn_lab.significance import TEST_OVER_TRAIN, paired

GRAPHS = ("texas", "wisconsin", "cornell-2020")
MODELS = {"gat-eda": "GAT-EDA", "phgcn": "PH-GCN"}
SPLITS = 10


def accuracies(graph: str, model: str, decay: float | None, splits: int) -> tuple[float, list]:
    """Test accuracies in percent at the smallest validation loss, and the weight decay."""
    source, data = find(graph)
    settings = resolve(model, graph).settings
    settings = settings if decay is None else replace(settings, weight_decay=decay)
    if model == "phgcn":
        settings = replace(settings, method="exact")
    plan, found = Plan(source, model, "paper", splits, settings=settings), []
    for trial, task in zip(plan.trials(), prepare(plan, data), strict=True):
        with seeded(trial.seed, task):
            training = start(plan, task)
            while not training.done:
                training.epoch()
        found.append(100 * training.best.test_metric)
    return settings.weight_decay, found


def rows_of(measured: dict) -> list[str]:
    lines = []
    for row in measured["rows"]:
        texts = [f"{mean:.1f} ± {std:.1f}" for mean, std in (row["with"], row["without"])]
        interval = f"{row['difference']:+.1f} ({row['low']:+.1f} to {row['high']:+.1f})"
        ordinary = paired(row["per_split_without"], row["per_split_with"], 0.0)
        tests = f"{row['p']:.3f} ({ordinary.p:.3f})"
        lines.append([row["graph"], MODELS[row["model"]], *texts, interval, tests])
    heading = ["graph", "model", "with", "without", "without less with (95 % interval)"]
    heading += ["p (ordinary test)"]
    return [f"{origin(measured)}, {measured['splits']} splits:", "", *table(heading, lines)]


@measurement(tables=rows_of, quick="one graph, two splits")
def weight_decay(options: argparse.Namespace) -> Iterator[dict]:
    """Test accuracy of GAT-EDA and PH-GCN with their tuned weight decay and without."""
    torch.manual_seed(common.SEED)
    splits, rows = 2 if options.quick else SPLITS, []
    for graph in GRAPHS[:1] if options.quick else GRAPHS:
        for model in MODELS:
            decay, usual = accuracies(graph, model, None, splits)
            _, without = accuracies(graph, model, 0.0, splits)
            tested = paired(without, usual, TEST_OVER_TRAIN["paper"])
            about = {"graph": graph, "model": model, "weight_decay": decay}
            means = {"with": mean_and_deviation(usual), "without": mean_and_deviation(without)}
            test = {"difference": tested.mean, "low": tested.low, "high": tested.high}
            per_split = {"per_split_with": usual, "per_split_without": without}
            rows.append({**about, **means, **test, "p": tested.p, **per_split})
            yield {"splits": splits, "rows": rows}
