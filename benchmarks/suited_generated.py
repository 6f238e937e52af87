r"""Suited settings on graphs that nobody has seen: generated ones, beside GCN and MLP with their defaults, by validation.

    python benchmarks/suited_generated.py --jobs 2        # a quarter of an hour on two cores

Stochastic block models of four classes: neighbours alike, at random, or unlike; few features, dense ones or words, which tell
the class a little.  No rule was searched on them.  Writes ``benchmarks/results/suited_generated.json``.
"""

from __future__ import annotations

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import common
import torch
from rich.table import Table
from suited import MODELS, OURS, mean
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, to_undirected

from phgcn.reproduce.benchmark.training import train_split
from phgcn.train import Plan, Settings
from phgcn.train import settings as config
from phgcn.train.prepare import prepare
from phgcn.train.suited import suit_settings

CLASSES, DEGREE = 4, 8
ALIKE = {"alike": 0.7, "random": 0.25, "unlike": 0.05}
"""Share of the neighbours that are of a node's own class."""
FEATURES = {"few": 16, "dense": 128, "words": 1000}
CASES = [(kind, edges, 1500) for kind in FEATURES for edges in ALIKE] + [("dense", edges, 400) for edges in ALIKE]


def make_graph(kind: str, edges: str, nodes: int) -> Data:
    """Draws classes, edges and features."""
    random = torch.Generator().manual_seed(common.SEED)
    y = torch.randint(CLASSES, (nodes,), generator=random)
    weight = torch.where(y[:, None] == y, ALIKE[edges], (1 - ALIKE[edges]) / (CLASSES - 1))
    picked = torch.multinomial(weight, DEGREE // 2, generator=random)
    edge_index = torch.stack([picked.flatten(), torch.arange(nodes).repeat_interleave(DEGREE // 2)])
    width = FEATURES[kind]
    if kind == "words":
        often = 0.02 * (1 + 2 * (torch.rand(CLASSES, width, generator=random) < 0.05))
        x = (torch.rand(nodes, width, generator=random) < often[y]).float()
    else:
        centres = torch.randn(CLASSES, width, generator=random) * width**-0.5
        x = centres[y] + torch.randn(nodes, width, generator=random) * (0.5 if kind == "few" else 0.3)
    data = Data(x=x, y=y, edge_index=coalesce(to_undirected(edge_index)))
    data.num_nodes, data.num_classes, data.name = nodes, CLASSES, "generated"
    data.node_id, data.classes = [str(number) for number in range(nodes)], [str(number) for number in range(CLASSES)]
    return data


def train(cell: tuple[tuple[str, str, int], str], splits: int) -> dict:
    """Trains one model on one graph; returns the best validation metric of each split."""
    torch.set_num_threads(1)
    case, model = cell
    data, settings = make_graph(*case), Settings()
    if model == OURS:
        settings = config.change(settings, suit_settings(data, "accuracy").values, model, "suited")
    plan = Plan("generated", model, "paper", splits, 1, common.SEED, "accuracy", False, "cpu", settings)
    tasks = prepare(plan, data)
    rows = [train_split(plan, {}, split, float("inf"), tasks[split], show_test=False)[0] for split in range(splits)]
    return {"case": list(case), "model": model, "val": [row["val"] for row in rows], "epochs": [row["epochs"] for row in rows]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    asked = parser.parse_args()
    about, console = common.provenance(), common.wide_console()
    cells, rows = [(case, model) for case in CASES for model in MODELS], []
    with ProcessPoolExecutor(asked.jobs, multiprocessing.get_context("spawn")) as pool, console.status("training"):
        for row in pool.map(partial(train, splits=asked.splits), cells):
            rows.append(row)
            console.print(f"{row['case']}, {row['model']}: {mean(row):.2f}, epochs {row['epochs']}")
            common.write_json(
                common.RESULTS / "suited_generated.json", {"provenance": about, "splits": asked.splits, "rows": rows}
            )
    found = {(tuple(row["case"]), row["model"]): mean(row) for row in rows}
    table = Table("features", "neighbours", "nodes", *MODELS, "above the better of both")
    for case in CASES:
        ours, *others = (found[case, model] for model in MODELS)
        values = (f"{found[case, model]:.1f}" for model in MODELS)
        table.add_row(*map(str, case), *values, f"{ours - max(others):+.1f}")
    console.print(table)


if __name__ == "__main__":
    main()
