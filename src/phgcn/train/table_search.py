r"""Chooses what predicts the rows of a table: a network on their columns, the labels of other rows, or both."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch_geometric.data import Data

from ..nn.table_network import PARTS
from .plan import Plan
from .prepare import prepare, seeded, start
from .tuning import without_test


def choose_parts(
    plan: Plan, data: Data, report: Callable[[str], None] = lambda text: None
) -> tuple[Plan, list[dict[str, Any]]]:
    """Trains each of the three on the training nodes of the first split; the smallest validation loss wins.

    Args:
        plan (Plan): What to train, with the model ``table``.
        data (torch_geometric.data.Data): The table.
        report (callable, optional): Called with a line about each of them. (default: does nothing)

    Returns:
        The plan with the winner, and a row for each: ``parts``, ``val_loss``, ``val_metric``, ``epochs`` and ``seconds``.
    """
    first = replace(plan, splits=1, repeats=1)
    (task,), trial = prepare(first, data), first.trials()[0]
    rows: list[dict[str, Any]] = []
    for parts in PARTS:
        begin, candidate = time.perf_counter(), replace(first, settings=replace(plan.settings, parts=parts))
        with seeded(trial.seed, task):
            training = start(candidate, without_test(task))
            while not training.done:
                training.epoch()
        best, seconds = training.best, time.perf_counter() - begin
        row = {"parts": parts, "val_loss": best.val_loss, "val_metric": best.val_metric, "epochs": training.state.epoch}
        rows.append({**row, "seconds": seconds})
        report(f"{parts}: validation loss {best.val_loss:.4f}, {plan.metric} {best.val_metric:.4g}, {seconds:.0f} s")
    chosen = min(rows, key=lambda row: row["val_loss"])["parts"]
    report(f"{chosen} predicts best on the validation nodes of the first split")
    return replace(plan, settings=replace(plan.settings, parts=chosen)), rows
