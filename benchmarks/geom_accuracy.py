r"""Geom-GCN-I, -P and -S beside their published means.

    python benchmarks/geom_accuracy.py                                  # the seven graphs, protocol geom, published pairs
    python benchmarks/geom_accuracy.py --graphs texas --splits 2        # to see that it works
    python benchmarks/geom_accuracy.py --neighbourhood computed --protocol paper

Each row is what ``phgcn train GRAPH --model geom-gcn-x --protocol P --set neighbourhood=N`` gives with the settings that come
along: the test accuracy at the smallest validation loss.  Beside it, with ``--authors``, the rule of the authors' code: the
learning rate falls on plateaus, patience counts epochs without a better loss or accuracy, and the weights of the last epoch
are tested (the ones it means to keep are not copied, so training goes on changing them).  Writes
``docs/results/geom-gcn/accuracy-<neighbourhood>-<protocol>.json`` after every row and continues from there.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from phgcn.experiments.provenance import provenance
from phgcn.train import Plan, find, resolve
from phgcn.train.files import write_json
from phgcn.train.loop import Task
from phgcn.train.metrics import accuracy, mean_and_deviation
from phgcn.train.run import outcome, prepare, seeded, start, summary
from phgcn.train.settings import EMBEDDINGS, used

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results" / "geom-gcn"
GRAPHS = ("texas", "cornell", "cornell-2020", "wisconsin", "cora", "citeseer", "actor", "pubmed")
PUBLISHED = {  # per cent, for -I, -P, -S
    "cora": (85.2, 84.9, 85.3),
    "citeseer": (78.0, 75.1, 74.7),
    "pubmed": (90.1, 88.1, 84.8),
    "cornell": (56.8, 60.8, 55.7),
    "cornell-2020": (56.8, 60.8, 55.7),
    "texas": (57.6, 67.6, 59.7),
    "wisconsin": (58.2, 64.1, 56.7),
    "actor": (29.1, 31.6, 30.3),
}


def row(graph: str, model: str, arguments: argparse.Namespace) -> dict:
    """One model on one graph."""
    source, data = find(graph)
    changes = [f"neighbourhood={arguments.neighbourhood}", *arguments.set]
    settings, _ = resolve(model, str(data.name), None, changes)
    plan = Plan(source, model, arguments.protocol, arguments.splits, device=arguments.device, settings=settings)
    begin = time.perf_counter()
    tasks = prepare(plan, data)
    ready = time.perf_counter() - begin
    rows, theirs = [], []
    for trial in plan.trials():
        with seeded(trial.seed, tasks[trial.split]):
            training = start(plan, tasks[trial.split])
            while not training.done:
                training.epoch()
        rows.append(outcome(trial, training))
        if arguments.authors:
            with seeded(trial.seed, tasks[trial.split]):
                theirs.append(by_authors(plan, tasks[trial.split]))
    about = {"graph": {"name": str(data.name)}, "settings": used(settings, model), "versions": {}}
    result = summary(plan, about, rows)
    found = {
        "graph": graph, "model": model, "protocol": plan.protocol, "neighbourhood": settings.neighbourhood,
        "mean": 100 * result["test"]["mean"], "std": 100 * result["test"]["std"],
        "published": PUBLISHED[graph][list(EMBEDDINGS).index(model)],
        "per_split": [100 * entry["test"] for entry in rows],
        "epochs": result["epochs"], "seconds_per_epoch": result["seconds_per_epoch"], "preparation_seconds": ready,
        "config": used(settings, model),
    }  # fmt: skip
    if theirs:
        mean, deviation = mean_and_deviation([100 * value for value in theirs])
        found["by_authors_rule"] = {"mean": mean, "std": deviation, "per_split": [100 * value for value in theirs]}
    return found


def by_authors(plan: Plan, task: Task) -> float:
    """The test accuracy by the rule of the authors' code."""
    training = start(plan, task)
    model, optimiser = training.model, training.optimiser
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser, factor=0.8, patience=50)
    best_loss, best_accuracy, waited = float("inf"), 0.0, 0
    for _ in range(plan.settings.epochs):
        model.train()
        optimiser.zero_grad()
        cross_entropy(model(*task.inputs)[task.train], training.train_y).backward()
        optimiser.step()
        model.eval()
        with torch.no_grad():
            logits = model(*task.inputs)
        loss, right = float(cross_entropy(logits[task.val], training.val_y)), accuracy(logits[task.val], training.val_y)
        scheduler.step(loss)
        waited = 0 if loss <= best_loss or right >= best_accuracy else waited + 1
        best_loss, best_accuracy = min(loss, best_loss), max(right, best_accuracy)
        if waited >= plan.settings.patience:
            break
    return accuracy(logits[task.test], training.test_y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", default=GRAPHS, choices=GRAPHS)
    parser.add_argument("--models", nargs="+", default=list(EMBEDDINGS), choices=list(EMBEDDINGS))
    parser.add_argument("--protocol", default="geom", choices=("geom", "paper"))
    parser.add_argument("--neighbourhood", default="published", choices=("published", "computed"))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--authors", action="store_true", help="also by the rule of the authors' code")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting")
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    out = arguments.out or RESULTS / f"accuracy-{arguments.neighbourhood}-{arguments.protocol}.json"
    rows = json.loads(out.read_text())["rows"] if out.is_file() else []
    for graph in arguments.graphs:
        for model in arguments.models:
            if any((kept["graph"], kept["model"]) == (graph, model) for kept in rows):
                continue
            command = (
                f"python benchmarks/geom_accuracy.py --graphs {graph} --models {model} --protocol {arguments.protocol} "
                f"--neighbourhood {arguments.neighbourhood} --splits {arguments.splits} --device {arguments.device}"
            ) + "".join(f" --set {change}" for change in arguments.set)
            found = {**row(graph, model, arguments), "provenance": {**provenance(), "command": command}}
            rows.append(found)
            write_json(out, {"rows": sorted(rows, key=lambda entry: (GRAPHS.index(entry["graph"]), entry["model"]))})
            theirs = f", by the authors' rule {found['by_authors_rule']['mean']:.1f}" if arguments.authors else ""
            print(f"{graph:12} {model}: {found['mean']:.1f} ± {found['std']:.1f}{theirs}, published {found['published']:.1f}",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
