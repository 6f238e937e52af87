"""A short search among candidates: many begin, few finish, and the best with attention meets the
best without.

The search sees training and validation nodes of one split, never test nodes
(:func:`phgcn.train.prepare.without_test`). Its budget is a number of epochs, never of seconds. A
network whose epochs take little work gets more of them: it often learns slowly."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch_geometric.data import Data

from ..nn.table_network import PARTS
from .candidates import (
    Candidate,
    candidates,
    epoch_work,
    part_epochs,
    size_class,
    with_attention,
    without_attention,
)
from .entrant import Entrant, OnRound, run_round
from .loop import Task, TrainingError
from .metrics import goodness
from .plan import Chosen, Plan
from .prepare import prepare, without_test
from .settings import shorten
from .verdict import difference_error, find_verdict, format_score, mean_verdict, name_split

# epochs that a candidate has had after each rung; up to MOST_PACE times as many of little work
RUNGS = {"short": (15, 45, 105), "long": (45, 135, 315)}
MOST_PACE = 3

EVERY = 3  # epochs between two evaluations of a candidate
PATIENCE = 30  # epochs, times its pace, without a better one before a candidate stops

# with fewer validation nodes than this, the last candidates are trained on :data:`FOLDS` divisions
# of the nodes, in place of the third rung
FEW_NODES = 200

FOLDS = 3

# the networks with attention, or those without, get no more epochs if the best one would be so many
# standard errors behind, even after it gained as much again as since the last rung
DECIDED = 4.0


Report = Callable[[str], None]


def search(
    plan: Plan,
    data: Data,
    effort: str = "short",
    changes: Mapping[str, Any] | None = None,
    report: Report = lambda text: None,
    split: int = 0,
    on_epoch: OnRound = lambda progress: None,
) -> tuple[Plan, dict[str, Any]]:
    """Chooses a model and settings; returns the plan with them, and an account.

    Args:
        plan (Plan): The training, whose model and settings are replaced.
        data (torch_geometric.data.Data): The graph.
        effort (str, optional): ``"short"`` or ``"long"``. (default: :obj:`"short"`)
        changes (dict, optional): Settings of all candidates; models without such a setting are not
            tried. Networks without attention remain without it, to compare with, and are not
            chosen if the changes ask for attention. (default: none)
        report (callable, optional): Called with a line about each rung. (default: does nothing)
        split (int, optional): The split whose training and validation nodes the search reads.
            (default: :obj:`0`)
        on_epoch (callable, optional): Called with a
            :class:`phgcn.train.entrant.RoundProgress` after each epoch. (default: does nothing)
    """
    changes = dict(changes or {})
    found = candidates(data, plan.device, changes, bool(plan.columns.coordinates))
    shrink = (1, 3, 6)[size_class(data, plan.device)]
    rungs = [max(1, epochs // shrink) for epochs in RUNGS[effort]]
    enter = _Entry(plan, data, found, split)
    everyone = [enter(candidate) for candidate in found if enter.is_worth_a_try(candidate)]
    first, second, third = rungs
    few = len(everyone[0].task.val) < FEW_NODES
    end = f"are trained on {FOLDS} divisions of the nodes" if few else f"go on to {third}"
    report(
        f"search: {len(everyone)} candidates of {first} epochs, more where they take little work; "
        f"the best four go on to {second}, the last two {end}"
    )
    third = second if few else third

    def race(entrants: list[Entrant], epochs: int) -> None:
        run_round(entrants, epochs, on_epoch)
        best = max(entrants, key=lambda entrant: entrant.order)
        score = f"{best.candidate.name}, {format_score(best.plan.metric, best.metric)} (validation)"
        tried = f"search: {len(entrants)} candidates, up to {epochs} epochs"
        report(f"{tried}; best so far {score}")

    race(everyone, first)
    kept = _best(everyone, False, 2) + _best(everyone, True, 2)
    if not max(kept, key=lambda entrant: entrant.order).candidate.attention:
        entered = {entrant.candidate.settings: entrant for entrant in everyone}
        added = with_attention(kept[0].candidate, changes)
        more = [entered.get(c.settings) or enter(c) for c in added]
        kept = list(dict.fromkeys([*_best(everyone, False, 2), *_best(everyone, True, 1), *more]))
        everyone = list(dict.fromkeys([*everyone, *more]))
    race(kept, second)
    last = _best(kept, False, 1) + _best(kept, True, 1)
    if (ahead := _undecided(last)) == last:
        plain = without_attention(last[-1].candidate, changes)
        if plain is not None and all(plain.settings != e.candidate.settings for e in kept):
            ahead = [*last, enter(plain)]
            everyone.append(ahead[-1])
    race(ahead, third)
    last = _best([*kept, *ahead], False, 1) + _best(kept, True, 1)
    folds = [last, *_other_folds(last)]
    for fold in folds[1:]:
        race(fold, third)
    scores = [sum(fold[index].metric for fold in folds) / len(folds) for index in range(len(last))]
    verdict = find_verdict(plan, folds, scores, split)
    chosen = _choose(plan.metric, last, scores, verdict, changes)
    again = [entrant for fold in folds[1:] for entrant in fold]
    about = {
        **_account(plan, [*everyone, *again], effort, last[chosen], split),
        "folds": len(folds),
        **verdict,
        "candidates": [_row(e, scores[last.index(e)] if e in last else e.metric) for e in everyone],
    }
    winner = last[chosen].candidate
    return replace(plan, model=winner.model, settings=winner.settings), about


def _choose(
    metric: str,
    last: list[Entrant],
    scores: list[float],
    verdict: dict[str, Any],
    changes: Mapping[str, Any],
) -> int:
    """Returns the index of the chosen entrant: the best, or the quicker one without attention if it
    is behind by less than one standard error. It must have the changed settings."""
    settings = [entrant.candidate.settings for entrant in last]
    able = [
        index
        for index, own in enumerate(settings)
        if all(getattr(own, key) == value for key, value in changes.items())
    ]
    if verdict["error"] is not None:
        with_it, without = verdict["with_attention"], verdict["without_attention"]
        behind = goodness(metric, with_it) - goodness(metric, without)
        if behind < verdict["error"] and scores.index(without) in able:
            return scores.index(without)
    known = [index for index in able if not math.isnan(scores[index])]
    return max(known or able, key=lambda index: goodness(metric, scores[index]))


def search_each(
    plan: Plan,
    data: Data,
    effort: str = "long",
    changes: Mapping[str, Any] | None = None,
    report: Report = lambda text: None,
    on_epoch: OnRound = lambda progress: None,
) -> tuple[Plan, dict[str, Any]]:
    """Searches in each split by itself, so that the test nodes of one split choose no model of
    another; arguments and results are those of :func:`search`, with a row ``splits`` of all
    searches."""
    chosen, seen = [], []
    for split in range(plan.splits):
        report(f"split {split}:")
        found, about = search(plan, data, effort, changes, report, split, on_epoch)
        chosen.append(Chosen(about["chosen"], found.model, found.settings))
        seen.append(about)
    plan = replace(
        plan, model=chosen[0].model, settings=chosen[0].settings, per_split=tuple(chosen)
    )
    about = {
        **seen[0],
        **mean_verdict(plan.metric, seen),
        "chosen": ", ".join(dict.fromkeys(row["chosen"] for row in seen)),
        "nodes": "training and validation nodes of each split, which has a model of its own",
        "epochs": sum(row["epochs"] for row in seen),
        "seconds": sum(row["seconds"] for row in seen),
        "candidates": [
            {**row, "split": split} for split, of in enumerate(seen) for row in of["candidates"]
        ],
    }
    return plan, {**about, "splits": seen}


def choose_among(plan: Plan, entrants: list[Entrant]) -> tuple[Entrant, dict[str, Any]]:
    """Chooses among few entrants trained in full, with an account as of :func:`search`."""
    finished = [entrant for entrant in entrants if not entrant.failure]
    last = _best(finished, False, 1) + _best(finished, True, 1)
    scores = [entrant.metric for entrant in last]
    verdict = find_verdict(plan, [last], scores)
    chosen = last[_choose(plan.metric, last, scores, verdict, {})]
    about = {
        **_account(plan, entrants, "short", chosen, 0),
        "folds": 1,
        **verdict,
        "candidates": [_row(e, e.metric) for e in entrants],
    }
    return chosen, about


def _account(
    plan: Plan, entrants: list[Entrant], effort: str, chosen: Entrant, split: int
) -> dict[str, Any]:
    return {
        "effort": effort,
        "chosen": chosen.candidate.name,
        "model": chosen.candidate.model,
        "metric": plan.metric,
        "epochs": sum(e.epochs for e in entrants),
        "seconds": sum(e.seconds for e in entrants),
        "nodes": f"training and validation nodes of {name_split(split)}",
    }


class _Entry:
    """Makes entrants of candidates on one split. Candidates of the same features share a task."""

    def __init__(self, plan: Plan, data: Data, found: list[Candidate], split: int) -> None:
        self.plan, self.data = replace(plan, splits=split + 1), data
        self.work = max((self._work(c) for c in found if not c.attention), default=0.0)
        self.tasks: dict[Any, Task] = {}
        self.similar: dict[Any, Task] = {}  # the first task with these features

    def __call__(self, candidate: Candidate) -> Entrant:
        s = candidate.settings
        pace = int(max(1, min(MOST_PACE, self.work / self._work(candidate))))
        patience, every = min(s.patience, pace * PATIENCE), max(s.evaluate_every, EVERY)
        settings = replace(s, patience=patience, evaluate_every=every)
        plan = replace(self.plan, model=candidate.model, settings=settings)
        features = (s.scaling, s.normalise, s.class_weights, s.label_smoothing)
        shared = (*features, candidate.model, s.local)
        if shared not in self.tasks:
            self.tasks[shared] = without_test(prepare(plan, self.data, only=plan.splits - 1)[0])
        task = self.tasks[shared]
        if plan.reads_similar:
            task.with_similar(self.similar.setdefault(features, task).similar)
        return Entrant(candidate, plan, task, seed=1000 * plan.seed, pace=pace)

    def _work(self, candidate: Candidate) -> float:
        return epoch_work(self.data, candidate.model, candidate.settings)

    def is_worth_a_try(self, candidate: Candidate) -> bool:
        """Returns False for input attention without similar features or without targets."""
        entrant = self(candidate)
        if not entrant.plan.reads_similar:
            return True
        found, by_labels = entrant.task.similar, entrant.plan.settings.global_layers == 0
        return found is not None and (found.labels if by_labels else bool(found.telling))


def _best(entrants: list[Entrant], attention: bool, count: int) -> list[Entrant]:
    """Returns the best entrants with attention, or without."""
    family = [e for e in entrants if e.candidate.attention == attention]
    return sorted(family, key=lambda entrant: entrant.order, reverse=True)[:count]


def _undecided(entrants: list[Entrant]) -> list[Entrant]:
    """Leaves out the networks with attention, or those without, if they are hopelessly behind."""
    sides = [_best(entrants, attention, 1) for attention in (True, False)]
    if not all(side and not math.isnan(side[0].metric) for side in sides):
        return entrants
    first, second = sorted((side[0] for side in sides), key=lambda e: e.order, reverse=True)
    metric = first.plan.metric
    gain = goodness(metric, second.metric) - goodness(metric, second.before)
    ahead = goodness(metric, first.metric) - goodness(metric, second.metric) - gain
    if ahead > DECIDED * difference_error(first.plan, [(first, second)]):  # not if the gain is NaN
        return [e for e in entrants if e.candidate.attention == first.candidate.attention]
    return entrants


def _other_folds(last: list[Entrant]) -> list[list[Entrant]]:
    """Enters the last entrants on other divisions of few nodes, if the result is close."""
    few = len(last[0].task.val) < FEW_NODES
    if not few or len(last) == 1 or _undecided(last) != last:
        return []
    return [
        [
            Entrant(e.candidate, e.plan, _divide(e, fold), seed=e.seed + fold, pace=e.pace)
            for e in last
        ]
        for fold in range(1, FOLDS)
    ]


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
        "candidate": candidate.name,
        "model": candidate.model,
        "attention": candidate.attention,
        "val_metric": None if math.isnan(metric) else metric,
        "epochs": entrant.epochs,
        "seconds": entrant.seconds,
    }


def choose_parts(
    plan: Plan,
    data: Data,
    report: Callable[[str], None] = lambda text: None,
    on_epoch: OnRound = lambda progress: None,
) -> tuple[Plan, dict[str, Any]]:
    """Trains each choice of ``parts`` on the first split, for
    :func:`phgcn.train.candidates.part_epochs`; returns the plan with the winner and an account as
    of :func:`phgcn.train.search`. The best validation metric wins, or the network without attention
    if it is behind by less than one standard error."""
    first = replace(plan, splits=1, repeats=1)
    task, entrants = without_test(prepare(first, data)[0]), []
    epochs = part_epochs(data, plan.settings, plan.device)
    report(_announce_parts(plan, epochs))
    short = shorten(plan.settings, epochs)
    for parts in PARTS:
        settings = replace(short, parts=parts)
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
    return replace(plan, settings=replace(plan.settings, parts=chosen.candidate.name)), about


def _announce_parts(plan: Plan, epochs: int) -> str:
    count, later, most = len(PARTS), len(plan.trials()), plan.settings.epochs
    searched = f"search: {count} candidates ({', '.join(PARTS)}) of at most {epochs:,} epochs"
    where = "on the first split (--splits 3 for more)" if later == 1 else f"on {plan.splits} splits"
    trainings = f"{later} training{'s' * (later > 1)} of at most {most:,} {where}"
    total = count * epochs + later * most
    return f"{searched}, then {trainings}: {count + later} trainings, {total:,} epochs at most"
