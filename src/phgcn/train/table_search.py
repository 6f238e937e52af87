r"""Chooses the parts of a table network: a network on columns, labels of other rows, or both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch_geometric.data import Data

from ..nn.table_network import PARTS
from .candidates import Candidate
from .entrant import Entrant, OnRound, run_round
from .loop import TrainingError
from .plan import Plan
from .prepare import prepare, without_test
from .search import choose_among


def choose_parts(
    plan: Plan,
    data: Data,
    report: Callable[[str], None] = lambda text: None,
    on_epoch: OnRound = lambda progress: None,
) -> tuple[Plan, dict[str, Any]]:
    """Trains each choice of ``parts`` on the first split, and returns the plan with the winner and
    an account as of :func:`phgcn.train.search`. The best validation metric wins, or the network
    without attention if it is behind by less than one standard error."""
    first = replace(plan, splits=1, repeats=1)
    task, entrants, epochs = without_test(prepare(first, data)[0]), [], plan.settings.epochs
    report(f"search: {len(PARTS)} candidates ({', '.join(PARTS)}) of at most {epochs} epochs")
    for parts in PARTS:
        settings = replace(plan.settings, parts=parts)
        candidate = Candidate(parts, plan.model, settings)
        entrants.append(Entrant(candidate, replace(first, settings=settings), task))
    run_round(entrants, epochs, on_epoch)
    for entrant in entrants:
        if entrant.training is not None and not entrant.failure:
            best, seconds = entrant.training.best, entrant.seconds
            metric = f"{plan.metric} {best.val_metric:.4g}"
            report(
                f"{entrant.candidate.name}: validation loss {best.val_loss:.4f}, {metric}, "
                f"{seconds:.0f} s"
            )
    if all(entrant.failure for entrant in entrants):
        raise TrainingError("no training has a finite loss; try a smaller learning_rate")
    chosen, about = choose_among(plan, entrants)
    report(f"{chosen.candidate.name} is chosen")
    return replace(plan, settings=chosen.plan.settings), about
