r"""Seconds per epoch of GlobalGNN beside PyG's SGFormer, on pubmed: a step, and an evaluation, as
``phgcn train`` makes them.

Same width and local layers in both, and GlobalGNN as ``phgcn train`` sets it up for the graph.  All
take turns, round after round, and the median counts.  SGFormer keeps its normalised edges, which
PyG's own would compute in every layer and epoch.  The mark is twice SGFormer's time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import common
from registry import measurement

import phgcn_lab  # noqa: F401, registers SGFormer
from phgcn.train import Plan, Settings, Training, find
from phgcn.train import settings as config
from phgcn.train.candidates import GLOBAL_GNN
from phgcn.train.graph import default_metric
from phgcn.train.prepare import prepare, seeded, start
from phgcn_lab.markdown import origin, table

MARK = 2.0
WARM_UP = 5
RIVAL = "sgformer"
WIDTH = {"hidden_channels": 64, "num_layers": 3, "dropout": 0.5}
BLOCK = {"local": "gcn", "norm": "batch", "residual": True, "heads": 4, "learn_decay": True}


def trainings(graph: str, device: str) -> dict[str, Training]:
    source, data = find(graph)
    asked = {
        RIVAL: ("sgformer", WIDTH),
        **{
            f"global-gnn, {name}": ("global-gnn", WIDTH | BLOCK | {"global_layers": layers})
            for name, layers in (("one block", 1), ("two blocks", 2), ("without block", 0))
        },
        "global-gnn, suited": ("global-gnn", GLOBAL_GNN),
    }
    made = {}
    for name, (model, values) in asked.items():
        endless = {**values, "epochs": 10**6, "patience": 10**6}
        about = {"metric": default_metric(data), "device": device}
        settings = config.change(Settings(), endless, model, name)
        plan = Plan(source, model, "geom", 1, settings=settings, **about)
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


def epochs_of(*measured: dict) -> list[str]:
    lines = []
    for content in measured:
        if not content["rows"]:
            continue
        rows = []
        for row in content["rows"]:
            name = row["name"] + (", CUDA graph" if row.get("cuda_graph") else "")
            rows.append([name, f"{1000 * row['median']:.2f}", f"{row['ratio']:.2f}x"])
        device = content["provenance"]["device"]
        lines += ["", f"{content['graph']}, {device}, {origin(content)}:", ""]
        lines += table(["model", "ms per epoch", "of SGFormer's"], rows)
    return lines[1:] if lines else ["Not measured yet."]


@measurement(tables=epochs_of, quick="texas, two rounds of two epochs", device={"default": "cpu"})
def global_gnn(options: argparse.Namespace) -> dict:
    """Milliseconds per epoch of GlobalGNN beside SGFormer's, on pubmed."""
    graph, rounds = ("texas", 2) if options.quick else ("pubmed", 7)
    epochs = 2 if options.quick or options.device == "cpu" else 50
    made = trainings(graph, options.device)
    jobs = {name: seconds_per_epoch(training, epochs) for name, training in made.items()}
    times = common.interleaved(jobs, rounds)
    base = times[RIVAL]["median"]
    rows = [{"name": name, **t, "ratio": t["median"] / base} for name, t in times.items()]
    return {"graph": graph, "mark": MARK, "rounds": rounds, "epochs": epochs, "rows": rows}
