r"""A whole training on a large table: its time, that of a step and of an evaluation, and the peak
of the memory.

The table is generated: normal columns, and a label that is smooth in four of them. Settings are
those of ``phgcn train`` for so many rows, with the labels of other rows only. A step draws rows at
random, 70 % of which are keys. An evaluation attends from all rows to all training rows.
"""

from __future__ import annotations

import argparse
import resource
import time

import common
import torch
from registry import measurement
from torch_geometric.data import Data

from phgcn.registry import TABLE_MODEL
from phgcn.train import Plan, resolve
from phgcn.train.candidates import start_settings
from phgcn.train.prepare import prepare, seeded, start
from phgcn_lab.markdown import machine, origin, table

ROWS, COLUMNS = 1_000_000, 20


def make_table(rows: int, columns: int) -> Data:
    random = torch.Generator().manual_seed(common.SEED)
    x = torch.randn(rows, columns, generator=random)
    y = torch.sin(2 * x[:, 0]) * x[:, 1] + x[:, 2] * x[:, 3]
    y += 0.1 * torch.randn(rows, generator=random)
    names = [f"column {number}" for number in range(columns)]
    ids, edges = list(map(str, range(rows))), torch.zeros(2, 0, dtype=torch.int64)
    data = Data(x=x, y=y, edge_index=edges, name="table", node_id=ids, num_nodes=rows)
    data.feature_names = data.feature_columns = names
    data.classes, data.num_classes, data.task = [], 0, "regression"
    return data


def rows_of(content: dict) -> list[str]:
    rows = []
    for row in content["rows"]:
        minutes, cpu = (f"{row[key] / 60:.0f} min" for key in ("seconds", "processor_seconds"))
        times = [f"{row['step_seconds']:.2f} s", f"{row['evaluation_seconds']:.0f} s"]
        steps = f"{row['epochs']:,} steps, {row['evaluations']} evaluations: {minutes}"
        memory = f"{row['peak_bytes'] / 1e9:.1f} GB"
        rows.append([f"{row['rows']:,}", str(row["columns"]), *times, steps, cpu, memory])
    heading = ["rows", "columns", "a step", "an evaluation", "training", "processor", "memory"]
    where = f"{machine(content['provenance'])}, {origin(content)}, other processes beside:"
    return [where, "", *table(heading, rows)]


@measurement(
    tables=rows_of,
    rows={"type": int, "default": ROWS},
    epochs={"type": int, "help": "steps (default: those of `phgcn train` for so many rows)"},
)
def large_tables(options: argparse.Namespace) -> dict:
    """Time and memory of a whole training on a table of a million rows."""
    data = make_table(options.rows, COLUMNS)
    changes = ["parts=labels"]
    if options.epochs:
        limit = f"epochs={options.epochs}", f"evaluate_every={options.epochs}"
        changes += [*limit, f"warmup={options.epochs // 10}"]
    suited = start_settings(data, TABLE_MODEL, "cpu")
    settings = resolve(TABLE_MODEL, changes=changes, start=suited).settings
    plan = Plan("table", TABLE_MODEL, splits=1, metric="r2", task="regression", settings=settings)
    begin = time.perf_counter()
    (task,) = prepare(plan, data)
    prepared = time.perf_counter() - begin
    with seeded(0, task):
        training = start(plan, task)
        while not training.done:
            training.epoch()
            print(training.state.epoch, training.state.curves[-1], flush=True)
    seconds = [row[3] for row in training.state.curves]
    row = {
        "rows": options.rows,
        "columns": COLUMNS,
        "batch_rows": settings.batch_rows,
        "epochs": training.state.epoch,
        "evaluations": 1 + training.state.epoch // settings.evaluate_every,
        "prepared_seconds": prepared,
        "step_seconds": sorted(seconds)[len(seconds) // 2],
        "evaluation_seconds": max(seconds),
        "seconds": sum(seconds),
        "processor_seconds": time.process_time(),
        "val_r2": training.best.val_metric,
        "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "threads": torch.get_num_threads(),
    }
    return {"rows": [row]}
