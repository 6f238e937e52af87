r"""Searches the settings that ``phgcn train`` takes for unknown graphs: by validation, on the graphs of one rule.

    python benchmarks/suited_search.py words --device cuda --jobs 15
    python benchmarks/suited_search.py dense --splits 2

Rules are those of :func:`phgcn.train.suit_settings`: ``words``, many features of which few are not 0; ``dense``, for which the
same kinds of graphs have their words projected on :data:`DENSE` principal axes.  Each variant changes the settings that the
rule had when the search began.  The one is taken whose *worst* graph stands best against the better of ``gcn`` and ``mlp`` with
their defaults, in the mean of the best validation metric over the first splits.  Labels of test nodes are removed before
anything is trained.

Writes ``benchmarks/results/suited_search_RULE.json``; what is there already is not trained again, so that variants can be added
after the first results.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import common
import torch
from rich.table import Table
from suited import MODELS, OURS, mean, train

from phgcn.reproduce.benchmark.training import load

DENSE = 300
"""Principal axes that words are projected on."""

WORDS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "dropout 0.2": {"dropout": 0.2},
    "dropout 0.7": {"dropout": 0.7},
    "dropout 0.2, input 0.8": {"dropout": 0.2, "input_dropout": 0.8},
    "weight decay 0.002": {"weight_decay": 0.002},
    "weight decay 0.005": {"weight_decay": 0.005},
    "256 channels": {"hidden_channels": 256},
    "256 channels, weight decay 0.002": {"hidden_channels": 256, "weight_decay": 0.002},
    "2 layers": {"num_layers": 2},
    "2 layers, dropout 0.2": {"num_layers": 2, "dropout": 0.2},
    "8 layers, sum": {"num_layers": 8, "jk": "sum"},
    "8 layers, sum, mass": {"num_layers": 8, "jk": "sum", "mass": True},
    "8 layers, sum, dropout 0.2": {"num_layers": 8, "jk": "sum", "dropout": 0.2},
    "gcn, 2 layers": {"local": "gcn", "num_layers": 2},
    "gcn, 2 layers, last": {"local": "gcn", "num_layers": 2, "jk": "last"},
    "gcn, 2 layers, weight decay 0.002": {"local": "gcn", "num_layers": 2, "weight_decay": 0.002},
    "local epochs 200": {"local_epochs": 200},
    "patience 200, rate 0.005": {"patience": 200, "learning_rate": 0.005},
    # the second round joins what helped in the first
    "local epochs 200, 8 layers, sum, mass": {"local_epochs": 200, "num_layers": 8, "jk": "sum", "mass": True},
    "local epochs 200, 8 layers, sum": {"local_epochs": 200, "num_layers": 8, "jk": "sum"},
    "local epochs 200, 256 channels": {"local_epochs": 200, "hidden_channels": 256},
    "local epochs 200, weight decay 0.005": {"local_epochs": 200, "weight_decay": 0.005},
    "local epochs 200, 8 layers": {"local_epochs": 200, "num_layers": 8},
    "local epochs 200, 6 layers, 128 channels": {"local_epochs": 200, "num_layers": 6, "hidden_channels": 128},
    "local epochs 200, 8 layers, sum, mass, 128 channels": {
        "local_epochs": 200,
        "num_layers": 8,
        "jk": "sum",
        "mass": True,
        "hidden_channels": 128,
    },
    "local epochs 200, 8 layers, sum, mass, weight decay 0.002": {
        "local_epochs": 200,
        "num_layers": 8,
        "jk": "sum",
        "mass": True,
        "weight_decay": 0.002,
    },
}

DENSE_VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "5 layers": {"num_layers": 5},
    "5 layers, sum": {"num_layers": 5, "jk": "sum"},
    # the second round adds what keeps from overfitting to the best of the first
    "5 layers, sum, weight decay 0.0005": {"num_layers": 5, "jk": "sum", "weight_decay": 5e-4},
    "5 layers, sum, input dropout 0.5": {"num_layers": 5, "jk": "sum", "input_dropout": 0.5},
}


class Search(NamedTuple):
    """The graphs of a rule, what it had when the search began, where it is another now, and the changes that are tried."""

    graphs: tuple[str, ...]
    start: dict[str, Any]
    variants: dict[str, dict[str, Any]]


SEARCHES = {
    "words": Search(
        ("actor", "squirrel-filtered", "cora", "citeseer"),
        {"num_layers": 4, "jk": "cat", "weight_decay": 5e-4, "mass": False, "local_epochs": 0},
        WORDS,
    ),
    "dense": Search(
        ("squirrel-filtered", "cora", "citeseer"), {"num_layers": 3, "jk": "last", "weight_decay": 0.0}, DENSE_VARIANTS
    ),
}


def train_for(rule: str, cell: tuple[str, str, dict], splits: int, device: str) -> dict:
    """Trains one model on one graph as :func:`suited.train` does, its words projected where the rule is for dense features."""
    data = load(cell[0])
    if rule == "dense" and data.x.size(1) > DENSE:
        data.x = project(data.x)
    return train(cell, splits, device)


def project(x: torch.Tensor) -> torch.Tensor:
    """Projects features (N, F) on their first principal axes, (N, DENSE), the same for every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        scores, sizes, _ = torch.pca_lowrank(x.to_dense() if x.layout != torch.strided else x, q=DENSE)
    return scores * sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rule", choices=SEARCHES)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    asked = parser.parse_args()
    graphs, start, variants = SEARCHES[asked.rule]
    out = common.RESULTS / f"suited_search_{asked.rule}.json"
    before = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {"rounds": [], "rows": []}
    rows = before["rows"]
    cells = [(graph, model, {}) for graph in graphs for model in MODELS if model != OURS]
    cells += [(graph, OURS, changes) for changes in variants.values() for graph in graphs]
    done = [(row["graph"], row["model"], row["changes"]) for row in rows]
    cells = [cell for cell in cells if cell not in done]
    console = common.wide_console()
    with ProcessPoolExecutor(asked.jobs, multiprocessing.get_context("spawn")) as pool, console.status("training"):
        settings = [(graph, model, start | changes) for graph, model, changes in cells]
        trained = pool.map(partial(train_for, asked.rule, splits=asked.splits, device=asked.device), settings)
        for row, (_, _, changes) in zip(trained, cells, strict=True):
            rows.append(row | {"changes": changes})
            console.print(f"{row['graph']}, {row['model']}, {changes}: {mean(row):.2f}")
    rivals = {graph: max(mean(row) for row in rows if row["graph"] == graph and row["model"] != OURS) for graph in graphs}
    table = Table("variant", *graphs, "worst")
    for name, changes in variants.items():
        above = [
            mean(row) - rivals[graph]
            for graph in graphs
            for row in rows
            if row["model"] == OURS and row["graph"] == graph and row["changes"] == changes
        ]
        table.add_row(name, *(f"{value:+.2f}" for value in above), f"{min(above):+.2f}")
    console.print(table)
    rounds = [*before["rounds"], {"provenance": common.provenance(), "splits": asked.splits, "rows": len(cells)}]
    common.write_json(out, {"rounds": rounds, "rows": rows})


if __name__ == "__main__":
    main()
