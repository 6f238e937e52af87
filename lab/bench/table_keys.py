r"""Which rows a step of a large table attends to: 70 % of the rows that are drawn for it, as
``phgcn train`` does, or all training rows but the queries, with as many queries.

On California housing, attention to labels only, one split, half of the default steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import torch
from registry import measurement
from torch import Tensor

from phgcn.train.loop import Training
from phgcn.train.prepare import seeded, start
from phgcn_lab.markdown import machine, origin, table
from phgcn_lab.tables.data import load_table, with_split
from phgcn_lab.tables.models import our_task

DRAWN = "70 % of the drawn rows"
ALL = "all training rows but the queries"


def loss_with_all_keys(training: Training) -> Tensor:
    """Computes the loss of random training rows that attend to all the others."""
    task, settings = training.task, training.settings
    labels = {name: values[task.train] for name, values in training.labels.items()}
    count = round((1 - settings.key_share) * settings.batch_rows)
    drawn = torch.randint(len(task.train), (count,)).unique()
    keys = torch.ones(len(task.train), dtype=torch.bool).index_fill(0, drawn, False)
    logits = training._forward((task.x[task.train],), {**labels, "keys": keys})
    return task.kind.loss(logits[drawn], task.y[task.train[drawn]])


def keys_of_steps(content: dict) -> list[str]:
    """Time of a step and errors, by which rows are keys."""
    rows = [
        [
            row["keys"],
            f"{row['training_rows']:,}",
            f"{row['step_seconds']:.2f} s",
            f"{row['val_rmse']:,.0f}",
            f"{row['test_rmse']:,.0f}",
        ]
        for row in content["rows"]
    ]
    heading = ["keys of a step", "training rows", "a step", "validation RMSE", "test RMSE"]
    where = f"{machine(content['provenance'])}, {origin(content)}; processor time:"
    return [where, "", *table(heading, rows)]


@measurement(
    tables=keys_of_steps, epochs={"type": int, "default": 300, "help": "steps (default: 300)"}
)
def table_keys(options: argparse.Namespace) -> Iterator[dict]:
    """Time and error of steps on a table whose keys are all training rows, or those of the
    batch."""
    settings = {"parts": "labels", "batch_rows": 4096, "epochs": options.epochs}
    rows: list[dict] = []
    for keys in (DRAWN, ALL):
        plan, task = our_task(with_split(load_table("california"), 0), settings)
        with seeded(0, task):
            training = start(plan, task)
            if keys == ALL:
                training._loss_of_rows = lambda made=training: loss_with_all_keys(made)
            begin = time.process_time()
            while not training.done:
                training.epoch()
        seconds = time.process_time() - begin
        rows.append(
            {
                "keys": keys,
                "training_rows": len(task.train),
                "steps": training.state.epoch,
                "step_seconds": seconds / training.state.epoch,
                "val_rmse": training.best.val_metric,
                "test_rmse": training.best.test_metric,
            }
        )
        print(rows[-1], flush=True)
        yield {"rows": rows}
