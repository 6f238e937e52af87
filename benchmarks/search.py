r"""The marks of the search of ``phgcn train``: does it find what only a far node tells, and does it lose nothing elsewhere?

    python benchmarks/search.py                       # everything, half an hour on two cores
    python benchmarks/search.py --only songs far      # the tutorial's graph and made-up tasks
    python benchmarks/search.py --only graphs --graphs texas cora

- ``songs``: the tutorial's graph, drawn from five seeds, three splits, no options. Mark: 90 % of test nodes.
- ``far``: made-up tasks (:mod:`phgcn.reproduce.when.far`), one split. Mark: 90 %, of numbers R² .9.
- ``graphs``: the chosen model against each candidate of the search, all trained in full on the same split. Mark: validation at
  most half a point below the best, and the time of search and training at most three times that of training alone.

Writes ``benchmarks/results/search.json``; rows that are there and not asked for stay.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import common

from phgcn.files import read_json, write_json
from phgcn.provenance import provenance
from phgcn.reproduce.when.far import FarTask
from phgcn.train import Plan, Run, find, search
from phgcn.train.candidates import candidates
from phgcn.train.graph import default_metric
from phgcn.train.prepare import prepare, seeded, start
from phgcn.train.tuning import without_test

OUT = common.RESULTS / "search.json"
SEEDS = range(1, 6)
FAR = (
    FarTask(200, distractors=4),
    FarTask(400, classes=3, key=3, distractors=8),
    FarTask(600, classes=0, distractors=4),
    FarTask(1000, classes=4, distractors=12),
    FarTask(2000, classes=0, key=5, distractors=6),
    FarTask(5000, distractors=8),
)
GRAPHS = ("texas", "wisconsin", "cora", "actor", "minesweeper")


def songs(seed: int) -> dict:
    """Trains on the tutorial's graph of a seed as ``phgcn train songs`` does."""
    text = (Path(__file__).parents[1] / "docs" / "tutorial.md").read_text(encoding="utf-8")
    code = text.split("```python\n")[1].split("```")[0].replace("random.seed(1)", f"random.seed({seed})")
    with tempfile.TemporaryDirectory() as folder:
        import os

        before = os.getcwd()
        os.chdir(folder)
        try:
            exec(code, {})
            _, data = find("songs")
        finally:
            os.chdir(before)
    return {"seed": seed, **train(data, splits=3)}


def train(data, splits: int) -> dict:
    """Searches and trains; returns the scores and times."""
    plan = Plan(str(data.name), "global-gnn", splits=splits, metric=metric_of(data), task=data.task)
    begin = time.perf_counter()
    chosen, seen = search(plan, data)
    searched = time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as folder:
        result = Run.create(Path(folder) / "run", chosen, data, search=seen).train(data)
    whole = time.perf_counter() - begin
    return {
        "chosen": seen["chosen"], "metric": plan.metric, "test": result["test"]["mean"], "val": result["val_metric"]["mean"],
        "val_first": result["splits"][0]["val_metric"],
        "sentence": seen["sentence"], "search_seconds": searched, "train_seconds": whole - searched,
    }  # fmt: skip


def metric_of(data) -> str:
    return "r2" if data.task == "regression" else default_metric(data)


def graph_row(name: str) -> dict:
    """Compares the chosen model with all candidates, each trained in full on the first split, without its test nodes."""
    _, data = find(name)
    data.task = "classification"
    row = {"graph": name, **train(data, splits=3), "candidates": {}}
    plan = Plan(name, "global-gnn", splits=1, metric=metric_of(data))
    for candidate in candidates(data, "cpu"):
        trained = replace(plan, model=candidate.model, settings=candidate.settings({}))
        task = without_test(prepare(trained, data)[0])
        with seeded(0, task):
            training = start(trained, task)
            while not training.done:
                training.epoch()
        row["candidates"][candidate.name] = training.best_by_metric.val_metric
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=("songs", "far", "graphs"), default=("songs", "far", "graphs"))
    parser.add_argument("--graphs", nargs="+", default=GRAPHS)
    asked = parser.parse_args()
    kept = read_json(OUT) if OUT.is_file() else {}
    for part in asked.only:
        if part == "songs":
            rows = (songs(seed) for seed in SEEDS)
        elif part == "far":
            rows = ({"task": task.name, **train(task.draw(0), splits=1)} for task in FAR)
        else:
            rows = (graph_row(name) for name in asked.graphs)
        found = []
        for row in rows:
            print(json.dumps(row), flush=True)
            found.append(row)
            kept[part] = found
            write_json(OUT, {**kept, "provenance": provenance(0, "cpu")})


if __name__ == "__main__":
    main()
