r"""The settings that ``phgcn train`` takes for an unknown graph, beside GCN and MLP with theirs: validation, on ten graphs.

    python benchmarks/suited.py --device cuda --jobs 15
    python benchmarks/suited.py --graphs pubmed               # one graph anew; the other rows stay

The mark: on every graph ``global-gnn`` as :func:`phgcn.train.suit_settings` sets it up is at least as good as the better of
``gcn`` and ``mlp`` with their defaults, in the mean of the best validation metric over the first splits.  Labels of test nodes
are removed before anything is trained.  Writes ``benchmarks/results/suited.json``; each row says of which commit it is.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import common
from rich.table import Table

from phgcn.reproduce.benchmark.spaces import GRAPHS, TABLE_ORDER
from phgcn.reproduce.benchmark.training import load, plan_of, train_split
from phgcn.train import Settings
from phgcn.train import settings as config
from phgcn.train.graph import default_metric
from phgcn.train.suited import suit_settings

OURS = "global-gnn"
MODELS = (OURS, "gcn", "mlp")


def train(cell: tuple[str, str, dict], splits: int, device: str) -> dict:
    """Trains one model on one graph, with changes to the suited settings; returns the best validation metric of each split."""
    graph, model, changes = cell
    settings = Settings()
    if model == OURS:
        data = load(graph)
        settings = config.change(settings, suit_settings(data, default_metric(data)).values | changes, model, "suited")
    plan = plan_of(graph, model, settings, device)
    rows = [train_split(plan, {}, split, float("inf"), show_test=False)[0] for split in range(splits)]
    found = {"val": [row["val"] for row in rows], "epochs": [row["epochs"] for row in rows]}
    return {"graph": graph, "model": model, **found, "commit": common.provenance()["commit"]}


def mean(row: dict) -> float:
    return 100 * sum(row["val"]) / len(row["val"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--graphs", default=",".join(TABLE_ORDER), help="separated by commas")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    asked = parser.parse_args()
    graphs = asked.graphs.split(",")
    cells = [(graph, model, {}) for graph in GRAPHS if graph in graphs for model in MODELS]
    console = common.wide_console()
    rows = []
    with ProcessPoolExecutor(asked.jobs, multiprocessing.get_context("spawn")) as pool, console.status("training"):
        for row in pool.map(partial(train, splits=asked.splits, device=asked.device), cells):
            rows.append(row)
            console.print(f"{row['graph']}, {row['model']}: {mean(row):.2f}")
    found = {(row["graph"], row["model"]): mean(row) for row in rows}
    table = Table("graph", *MODELS, "above the better of both")
    for graph in graphs:
        ours, *others = (found[graph, model] for model in MODELS)
        table.add_row(graph, *(f"{found[graph, model]:.2f}" for model in MODELS), f"{ours - max(others):+.2f}")
    console.print(table)
    file = common.RESULTS / "suited.json"
    kept = [row for row in json.loads(file.read_text())["rows"] if row["graph"] not in graphs] if file.exists() else []
    order = [(graph, model) for graph in GRAPHS for model in MODELS]
    rows = sorted(kept + rows, key=lambda row: order.index((row["graph"], row["model"])))
    common.write_json(file, {"provenance": common.provenance(), "splits": asked.splits, "rows": rows})


if __name__ == "__main__":
    main()
