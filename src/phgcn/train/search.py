r"""A short search among candidates: many begin, few finish, and the best with attention meets the best without.

It sees the training and validation nodes of one split, never test nodes (:func:`phgcn.train.tuning.without_test`).  Its budget
is a number of epochs, so that the same seed gives the same choice on any machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from .candidates import Candidate, candidates, size_class, with_attention, without_attention
from .loop import Task, Training, TrainingError
from .metrics import find_metric, goodness
from .plan import Plan
from .prepare import prepare, seeded, start

RUNGS = {"short": (20, 50, 120), "long": (60, 150, 360)}
"""Epochs that a candidate has had after each rung."""

PATIENCE = 50
"""Epochs without a better one before a candidate stops in the search."""

FEW_NODES = 200
"""With fewer validation nodes than this, the last candidates are trained on :data:`FOLDS` divisions of the nodes."""

FOLDS = 3

ERRORS = 2.0
"""A difference counts if it is larger than this many standard errors."""


@dataclass(eq=False)
class Entrant:
    """A candidate in the search: its training on the split, and what it is worth so far."""

    candidate: Candidate
    plan: Plan
    task: Task
    training: Training | None = None
    seconds: float = 0.0
    failed: bool = False

    def run(self, epochs: int) -> None:
        """Trains until ``epochs`` are complete, or the training is done."""
        begin = time.perf_counter()
        with seeded(1000 * self.plan.seed + epochs, self.task):
            try:
                self.training = self.training or start(self.plan, self.task)
                while not self.failed and not self.training.done and self.training.state.epoch < epochs:
                    self.training.epoch()
            except TrainingError:
                self.failed = True
        self.seconds += time.perf_counter() - begin

    def is_worth_a_try(self) -> bool:
        """Returns False for attention to the input features where no features were found to attend by."""
        settings = self.plan.settings
        at_input = self.plan.model == "global-gnn" and settings.global_layers > 0 and settings.global_at == "input"
        return not at_input or self.task.similar is not None

    @property
    def epochs(self) -> int:
        return 0 if self.training is None else self.training.state.epoch

    @property
    def metric(self) -> float:
        """The best validation metric; NaN if no epoch came to an end."""
        known = self.training is not None and self.training.state.by_metric is not None
        return self.training.best_by_metric.val_metric if known and self.training else math.nan

    @property
    def order(self) -> tuple[float, float]:
        """What orders entrants, the better ones larger: the metric, ties by the smaller loss."""
        if math.isnan(self.metric) or self.training is None:
            return -math.inf, -math.inf
        return goodness(self.plan.metric, self.metric), -self.training.best_by_metric.val_loss

    def outputs(self) -> tuple[Tensor, Tensor]:
        """Returns the outputs for the validation nodes with the best weights, and their labels."""
        assert self.training is not None
        out = self.training.outputs()
        return out[self.task.val], self.task.y[self.task.val]


Report = Callable[[str], None]


def search(
    plan: Plan, data: Data, effort: str = "short", changes: Mapping[str, Any] | None = None, report: Report = lambda text: None
) -> tuple[Plan, dict[str, Any]]:
    """Chooses a model and settings; returns the plan with them, and what was seen.

    Args:
        plan (Plan): What to train; its model and settings are replaced.
        data (torch_geometric.data.Data): The graph.
        effort (str, optional): ``"short"`` or ``"long"``. (default: :obj:`"short"`)
        changes (dict, optional): Settings of all candidates; models without such a setting are not tried. (default: none)
        report (callable, optional): Called with a line about each rung. (default: does nothing)
    """
    changes = dict(changes or {})
    found = [c for c in candidates(data, plan.device) if c.takes(changes)]
    if not found:
        raise ValueError(f"the settings are {', '.join(changes)}, which no model that is tried has; allowed: with a model")
    rungs = [max(1, epochs // (1, 3, 6)[size_class(data, plan.device)]) for epochs in RUNGS[effort]]
    enter = _Entry(replace(plan, splits=1), data, changes)
    everyone = [entrant for entrant in map(enter, found) if entrant.is_worth_a_try()]
    _race(everyone, rungs[0], report)
    kept = _best(everyone, False, 2) + _best(everyone, True, 2)
    if not kept[0].candidate.attention:
        kept += [enter(candidate) for candidate in with_attention(kept[0].candidate)]
    _race(kept, rungs[1], report)
    last = _best(kept, False, 1) + _best(kept, True, 2)
    plain = [without_attention(e.candidate) for e in last if e.candidate.attention][:1]
    last += [enter(c) for c in plain if c is not None and all(c.values != e.candidate.values for e in last)]
    _race(last, rungs[2], report)
    everyone += [e for e in dict.fromkeys([*kept, *last]) if e not in everyone]
    last = _best(last, True, 1) + _best(last, False, 1)
    folds = _folds(last, rungs[2], report)
    scores = [sum(fold[index].metric for fold in folds) / len(folds) for index in range(len(last))]
    order = sorted(range(len(last)), key=lambda i: goodness(plan.metric, scores[i]), reverse=True)
    chosen = last[order[0]]
    verdict = _verdict(plan, last, folds, scores)
    about = {
        "effort": effort, "chosen": chosen.candidate.name, "model": chosen.candidate.model, "metric": plan.metric,
        "epochs": sum(e.epochs for e in everyone) + sum(e.epochs for fold in folds[1:] for e in fold),
        "seconds": sum(e.seconds for e in everyone) + sum(e.seconds for fold in folds[1:] for e in fold),
        "folds": len(folds), "nodes": "training and validation nodes of the first split",
        **verdict,
        "candidates": [_row(e, scores[last.index(e)] if e in last else e.metric) for e in everyone],
    }  # fmt: skip
    return replace(plan, model=chosen.candidate.model, settings=chosen.candidate.settings(changes)), about


def describe_choice(plan: Plan, entrants: list[Entrant], chosen: Entrant) -> dict[str, Any]:
    """Returns what a search among few has seen, each trained in full on the first split; as :func:`search` does."""
    last = _best(entrants, True, 1) + _best(entrants, False, 1)
    return {
        "effort": "short", "chosen": chosen.candidate.name, "model": chosen.candidate.model, "metric": plan.metric,
        "epochs": sum(e.epochs for e in entrants), "seconds": sum(e.seconds for e in entrants), "folds": 1,
        "nodes": "training and validation nodes of the first split",
        **_verdict(plan, last, [last], [e.metric for e in last]),
        "candidates": [_row(e, e.metric) for e in entrants],
    }  # fmt: skip


class _Entry:
    """Prepares entrants; those with the same features share their task."""

    def __init__(self, plan: Plan, data: Data, changes: Mapping[str, Any]) -> None:
        self.plan, self.data, self.changes = plan, data, changes
        self.tasks: dict[Any, Task] = {}

    def __call__(self, candidate: Candidate) -> Entrant:
        from .tuning import without_test

        s = candidate.settings(self.changes)
        plan = replace(self.plan, model=candidate.model, settings=replace(s, patience=min(s.patience, PATIENCE)))
        shared = s.scaling, s.normalise, s.class_weights, s.label_smoothing, candidate.model, s.local
        if shared not in self.tasks:
            self.tasks[shared] = without_test(prepare(plan, self.data)[0])
        return Entrant(candidate, plan, self.tasks[shared])


def _race(entrants: list[Entrant], epochs: int, report: Report) -> None:
    for entrant in entrants:
        entrant.run(epochs)
    best = max(entrants, key=lambda entrant: entrant.order)
    score = format_score(best.plan.metric, best.metric)
    report(
        f"search: {len(entrants)} candidates, up to {epochs} epochs; best so far {best.candidate.name}, {score} (validation)"
    )


def _best(entrants: list[Entrant], attention: bool, count: int) -> list[Entrant]:
    """Returns the best entrants with attention, or without."""
    family = [e for e in entrants if e.candidate.attention == attention]
    return sorted(family, key=lambda entrant: entrant.order, reverse=True)[:count]


def _folds(last: list[Entrant], epochs: int, report: Report) -> list[list[Entrant]]:
    """Trains the last entrants on other divisions of the training and validation nodes, if these are few."""
    task, folds = last[0].task, [last]
    if len(task.val) >= FEW_NODES or len(last) == 1:
        return folds
    for fold in range(1, FOLDS):
        again = [Entrant(e.candidate, e.plan, _divide(e, fold)) for e in last]
        _race(again, epochs, report)
        folds.append(again)
    return folds


def _divide(entrant: Entrant, fold: int) -> Task:
    """Divides the training and validation nodes of a task anew, in the same proportion."""
    task, settings = entrant.task, entrant.plan.settings
    nodes = torch.cat([task.train, task.val]).sort().values
    generator = torch.Generator().manual_seed(1000 * entrant.plan.seed + fold)
    nodes = nodes[torch.randperm(len(nodes), generator=generator).to(nodes.device)]
    train, val = nodes[len(task.val) :].sort().values, nodes[: len(task.val)].sort().values
    kind = type(task.kind)().fitted(task.y[train], task.classes, settings)
    return replace(task, train=train, val=val, kind=kind)


def _row(entrant: Entrant, metric: float) -> dict[str, Any]:
    candidate = entrant.candidate
    return {
        "candidate": candidate.name, "model": candidate.model, "attention": candidate.attention,
        "val_metric": None if math.isnan(metric) else metric, "epochs": entrant.epochs, "seconds": entrant.seconds,
    }  # fmt: skip


# With or without


def _verdict(plan: Plan, last: list[Entrant], folds: list[list[Entrant]], scores: list[float]) -> dict[str, Any]:
    """Compares the best entrant with attention and the best without: scores, difference, its error, and a sentence."""
    sides = {}
    for attention in (True, False):
        places = [i for i, e in enumerate(last) if e.candidate.attention == attention and not math.isnan(scores[i])]
        sides[attention] = max(places, key=lambda i: goodness(plan.metric, scores[i]), default=None)
    with_it, without = sides[True], sides[False]
    if with_it is None or without is None:
        return {"with_attention": None, "without_attention": None, "error": None, "helps": None, "sentence": ""}
    better = goodness(plan.metric, scores[with_it]) - goodness(plan.metric, scores[without])
    error = _error(plan, [(fold[with_it], fold[without]) for fold in folds])
    helps = better > ERRORS * error
    return {
        "with_attention": scores[with_it], "without_attention": scores[without], "error": error, "helps": helps,
        "sentence": _sentence(plan.metric, scores[with_it], scores[without], error, better),
    }  # fmt: skip


def _error(plan: Plan, pairs: list[tuple[Entrant, Entrant]], draws: int = 200) -> float:
    """Returns the standard error of the difference of two mean metrics, by drawing validation nodes with replacement."""
    generator, name = torch.Generator().manual_seed(plan.seed), plan.metric
    variance = 0.0
    for first, second in pairs:
        (a, y), (b, _) = first.outputs(), second.outputs()
        differences = []
        for _ in range(draws):
            drawn = torch.randint(len(y), (len(y),), generator=generator).to(y.device)
            metric = first.task.kind.metric
            differences.append(float(metric(name, a[drawn], y[drawn])) - float(metric(name, b[drawn], y[drawn])))
        known = torch.tensor(differences, dtype=torch.float64)
        variance += float(known[~known.isnan()].var())
    return math.sqrt(variance) / len(pairs)


def _sentence(metric: str, with_it: float, without: float, error: float, better: float) -> str:
    scores = f"{format_score(metric, with_it)} with it, {format_score(metric, without)} without (validation)"
    if better > ERRORS * error:
        return f"Attention to all nodes helps here: {scores}."
    if better < -ERRORS * error:
        return f"Attention to all nodes does not help here: {scores}."
    return f"Attention to all nodes makes no difference here that is larger than its error: {scores}."


def format_score(metric: str, value: float) -> str:
    """Formats a metric for a sentence."""
    found = find_metric(metric)
    return f"{found.scale * value:.1f} %" if found.scale == 100 else f"{found.title} {value:.4g}"
