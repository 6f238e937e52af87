r"""Seconds per epoch of GlobalGNN beside PyG's SGFormer, on pubmed: a step, and an evaluation, as ``phgcn train`` makes them.

    python benchmarks/global_gnn.py                   # on the CPU
    python benchmarks/global_gnn.py --device cuda
    python benchmarks/global_gnn.py --graph texas --rounds 2 --epochs 2     # to see that it works

Same width and local layers in both, and GlobalGNN as ``phgcn train`` sets it up for the graph.  All take turns, round after
round, and the median counts.  SGFormer keeps its normalised edges, which PyG's own would compute in every layer and epoch.  The
mark is twice SGFormer's time.  Writes ``benchmarks/results/global_gnn.json``, ``global_gnn_gpu.json`` on a GPU.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import common
from rich.table import Table

import phgcn.reproduce  # noqa: F401, registers SGFormer
from phgcn.train import Plan, Settings, Training, find
from phgcn.train import settings as config
from phgcn.train.candidates import GLOBAL_GNN
from phgcn.train.graph import default_metric
from phgcn.train.prepare import prepare, seeded, start

MARK = 2.0
WARM_UP = 5
RIVAL = "sgformer"
WIDTH = {"hidden_channels": 64, "num_layers": 3, "dropout": 0.5}
BLOCK = {"local": "gcn", "norm": "batch", "residual": True, "heads": 4, "learn_decay": True, "global_layers": 1}


def trainings(graph: str, device: str) -> dict[str, Training]:
    """Returns the trainings to time, by name."""
    source, data = find(graph)
    asked = {
        RIVAL: ("sgformer", WIDTH),
        "global-gnn, one block": ("global-gnn", WIDTH | BLOCK),
        "global-gnn, two blocks": ("global-gnn", WIDTH | BLOCK | {"global_layers": 2}),
        "global-gnn, without block": ("global-gnn", WIDTH | BLOCK | {"global_layers": 0}),
        "global-gnn, suited": ("global-gnn", GLOBAL_GNN),
    }
    made = {}
    for name, (model, values) in asked.items():
        settings = config.change(Settings(), {**values, "epochs": 10**6, "patience": 10**6}, model, name)
        plan = Plan(source, model, "geom", 1, 1, common.SEED, default_metric(data), False, device, settings)
        task = prepare(plan, data)[0]
        if name == RIVAL:  # which takes dense features alone
            task = replace(task, x=task.x.to_dense())
        with seeded(common.SEED, task):
            made[name] = start(plan, task)
        for _ in range(WARM_UP):
            made[name].epoch()
    return made


def seconds_per_epoch(training: Training, epochs: int) -> Callable[[], float]:
    def timed() -> float:
        begin = time.perf_counter()
        for _ in range(epochs):
            training.epoch()
        return (time.perf_counter() - begin) / epochs

    return timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--graph", default="pubmed")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--epochs", type=int, help="epochs in a round (default: 2 on the CPU, 50 on a GPU)")
    asked = parser.parse_args()
    epochs = asked.epochs or (2 if asked.device == "cpu" else 50)
    made = trainings(asked.graph, asked.device)
    console = common.wide_console()
    jobs = {name: seconds_per_epoch(training, epochs) for name, training in made.items()}
    with console.status("timing") as status:
        times = common.interleaved(jobs, asked.rounds, status.update)
    rows = [
        {"name": name, "median": t["median"], "min": t["min"], "ratio": t["median"] / times[RIVAL]["median"],
         "cuda_graph": made[name].recorded, "all": t["all"]}
        for name, t in times.items()
    ]  # fmt: skip
    table = Table("", "ms per epoch", "to SGFormer's", title=f"{asked.graph}, {asked.device}")
    for row in rows:
        table.add_row(row["name"], f"{1000 * row['median']:.2f}", f"{row['ratio']:.2f}x")
    console.print(table)
    about = {"provenance": common.provenance(), "graph": asked.graph, "mark": MARK, "rounds": asked.rounds, "epochs": epochs}
    suffix = "" if asked.device == "cpu" else "_gpu"
    if asked.graph == "pubmed":
        common.write_json(common.RESULTS / f"global_gnn{suffix}.json", {**about, "rows": rows})


if __name__ == "__main__":
    main()
