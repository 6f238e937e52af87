r"""Chooses what predicts the rows of a table: a network on their columns, the labels of other rows,
or both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch_geometric.data import Data

from ..nn.table_network import PARTS
from .candidates import Candidate
from .loop import TrainingError
from .plan import Plan
from .prepare import prepare
from .search import Entrant, describe_choice
from .tuning import without_test


def choose_parts(plan: Plan, data: Data, report: Callable[[str], None] = lambda text: None) -> tuple[Plan, dict[str, Any]]:
    """Trains each of the three on the training nodes of the first split; the smallest validation
    loss wins.

    Args:
        plan (Plan): What to train, with the model ``table``.
        data (torch_geometric.data.Data): The table.
        report (callable, optional): Called with a line about each of them. (default: does nothing)

    Returns:
        The plan with the winner, and what was seen, as :func:`phgcn.train.search` returns it.
    """
    first = replace(plan, splits=1, repeats=1)
    task, entrants = without_test(prepare(first, data)[0]), []
    for parts in PARTS:
        settings = replace(plan.settings, parts=parts)
        entrant = Entrant(
            Candidate(parts, plan.model, {"parts": parts}, parts != "network"), replace(first, settings=settings), task
        )
        entrant.run(settings.epochs)
        entrants.append(entrant)
        if entrant.training is not None and not entrant.failed:
            best, seconds = entrant.training.best, entrant.seconds
            report(f"{parts}: validation loss {best.val_loss:.4f}, {plan.metric} {best.val_metric:.4g}, {seconds:.0f} s")
    finished = [e for e in entrants if not e.failed and e.training is not None]
    if not finished:
        raise TrainingError("no training has a finite loss; try a smaller learning_rate")
    chosen = min(finished, key=_validation_loss)
    report(f"{chosen.candidate.name} predicts best on the validation nodes of the first split")
    return replace(plan, settings=chosen.plan.settings), describe_choice(plan, entrants, chosen)


def _validation_loss(entrant: Entrant) -> float:
    assert entrant.training is not None
    return entrant.training.best.val_loss
