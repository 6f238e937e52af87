r"""How much of the paper's gains on small web graphs is weight decay.

Settings are those that ``phgcn reproduce table`` tuned, with its exact method.  Only the weight
decay differs.  A command that was cut off continues.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from registry import measurement

from phgcn.files import read_json
from phgcn.train import Plan, find, resolve
from phgcn.train.metrics import mean_and_deviation
from phgcn.train.prepare import prepare, seeded, start
from phgcn_lab.markdown import origin, table
from phgcn_lab.results import chosen, names
from phgcn_lab.significance import TEST_OVER_TRAIN, paired

GRAPHS = ("texas", "wisconsin", "cornell-2020", "cornell")
MODELS = {"mlp": "MLP", "gat-eda": "GAT-EDA", "phgcn": "PH-GCN"}
DECAYS = (0.0, 5e-4, 0.01)
SPLITS = 10


def accuracies(graph: str, model: str, decay: float, splits: int) -> list[float]:
    """Test accuracies in percent at the smallest validation loss."""
    source, data = find(graph)
    settings = replace(resolve(model, graph).settings, weight_decay=decay)
    if model == "phgcn":
        settings = replace(settings, method="exact")
    plan, found = Plan(source, model, "paper", splits, settings=settings), []
    for trial, task in zip(plan.trials(), prepare(plan, data), strict=True):
        with seeded(trial.seed, task):
            training = start(plan, task)
            while not training.done:
                training.epoch()
        found.append(100 * training.best.test_metric)
    return found


def rows_of(measured: dict) -> list[str]:
    lines = []
    for graph, model in names(measured["rows"], "graph", "model"):
        rows = chosen(measured["rows"], graph=graph, model=model)
        by_decay = {row["weight_decay"]: row["accuracy"] for row in rows}
        cells = []
        for decay in DECAYS:
            mean, deviation = mean_and_deviation(by_decay[decay])
            cells.append(f"{mean:.1f} ± {deviation:.1f}")
        none, most = by_decay[DECAYS[0]], by_decay[DECAYS[-1]]
        found = paired(none, most, TEST_OVER_TRAIN["paper"])
        cells.append(f"{found.mean:+.1f} ({found.low:+.1f} to {found.high:+.1f})")
        cells.append(f"{found.p:.3f} ({paired(none, most, 0.0).p:.3f})")
        lines.append([graph, MODELS[model], *cells])
    heading = ["graph", "model", *(f"{decay:g}" for decay in DECAYS)]
    heading += [f"0 less {DECAYS[-1]:g} (95 % interval)", "p (ordinary test)"]
    splits = len(measured["rows"][0]["accuracy"])
    return [f"{origin(measured)}, {splits} splits:", "", *table(heading, lines)]


@measurement(tables=rows_of, quick="one graph, two splits")
def weight_decay(options: argparse.Namespace) -> Iterator[dict]:
    """Test accuracy of MLP, GAT-EDA and PH-GCN by weight decay."""
    is_there = options.kept is not None and options.kept.is_file()
    rows = read_json(options.kept)["rows"] if is_there else []
    done = set(names(rows, "graph", "model", "weight_decay"))
    splits, graphs = (2, GRAPHS[:1]) if options.quick else (SPLITS, GRAPHS)
    for cell in product(graphs, MODELS, DECAYS):
        if cell not in done:
            about = dict(zip(("graph", "model", "weight_decay"), cell, strict=True))
            rows.append({**about, "accuracy": accuracies(*cell, splits)})
            yield {"rows": rows}
    yield {"rows": rows}
