r"""Searches the settings that ``phgcn train`` takes for unknown graphs with many words: validation, on the graphs of that rule.

    python benchmarks/suited_search.py --device cuda --jobs 15

Each variant changes the settings that :func:`phgcn.train.suit_settings` had for them when the search began.  The one is taken
whose *worst* graph stands best against the better of ``gcn`` and ``mlp`` with their defaults, in the mean of the best
validation metric over the first splits.  Labels of test nodes are removed before anything is trained.

Writes ``benchmarks/results/suited_search.json``; what is there already is not trained again, so that variants can be added
after the first results.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import common
from rich.table import Table
from suited import MODELS, OURS, mean, train

GRAPHS = ("actor", "squirrel-filtered", "cora", "citeseer")
OUT = common.RESULTS / "suited_search.json"
START = {"num_layers": 4, "jk": "cat", "weight_decay": 5e-4, "mass": False, "local_epochs": 0}
"""What the rule had when the search began, where it is another now."""

VARIANTS: dict[str, dict[str, Any]] = {
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    asked = parser.parse_args()
    before = json.loads(OUT.read_text(encoding="utf-8")) if OUT.is_file() else {"rounds": [], "rows": []}
    rows = before["rows"]
    cells = [(graph, model, {}) for graph in GRAPHS for model in MODELS if model != OURS]
    cells += [(graph, OURS, changes) for changes in VARIANTS.values() for graph in GRAPHS]
    done = [(row["graph"], row["model"], row["changes"]) for row in rows]
    cells = [cell for cell in cells if cell not in done]
    console = common.wide_console()
    with ProcessPoolExecutor(asked.jobs, multiprocessing.get_context("spawn")) as pool, console.status("training"):
        settings = [(graph, model, START | changes) for graph, model, changes in cells]
        trained = pool.map(partial(train, splits=asked.splits, device=asked.device), settings)
        for row, (_, _, changes) in zip(trained, cells, strict=True):
            rows.append(row | {"changes": changes})
            console.print(f"{row['graph']}, {row['model']}, {changes}: {mean(row):.2f}")
    rivals = {graph: max(mean(row) for row in rows if row["graph"] == graph and row["model"] != OURS) for graph in GRAPHS}
    table = Table("variant", *GRAPHS, "worst")
    for name, changes in VARIANTS.items():
        above = [
            mean(row) - rivals[graph]
            for graph in GRAPHS
            for row in rows
            if row["model"] == OURS and row["graph"] == graph and row["changes"] == changes
        ]
        table.add_row(name, *(f"{value:+.2f}" for value in above), f"{min(above):+.2f}")
    console.print(table)
    rounds = [*before["rounds"], {"provenance": common.provenance(), "splits": asked.splits, "rows": len(cells)}]
    common.write_json(OUT, {"rounds": rounds, "rows": rows})


if __name__ == "__main__":
    main()
