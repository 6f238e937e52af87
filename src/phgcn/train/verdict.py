"""The verdict on attention: the best network with it beside the best without, the error of the
difference, and a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean
from typing import Any

import torch

from ..text import amount
from .entrant import Entrant
from .metrics import find_metric, goodness
from .plan import Plan

ERRORS = 2.0  # a difference counts if it is larger than this many standard errors


def find_verdict(
    plan: Plan, folds: Sequence[Sequence[Entrant]], scores: Sequence[float], split: int = 0
) -> dict[str, Any]:
    """Compares the best entrant with attention and the best without.

    Args:
        plan (Plan): The plan, for its metric.
        folds (sequence of sequences of Entrant): The same candidates on each division of the nodes.
        scores (sequence of float): The mean metric of each candidate.
        split (int, optional): The split of the nodes, for the sentence. (default: :obj:`0`)
    """
    nodes = f"validation nodes of {name_split(split)}"
    if len(folds) > 1:
        nodes = f"{len(folds)} divisions of the training and {nodes}"
    sides = []
    for attention in (True, False):
        known = [
            index
            for index, entrant in enumerate(folds[0])
            if entrant.candidate.attention == attention and not math.isnan(scores[index])
        ]
        sides.append(max(known, key=lambda i: goodness(plan.metric, scores[i]), default=None))
    with_it, without = (None if side is None else scores[side] for side in sides)
    error = None
    if sides[0] is not None and sides[1] is not None:
        error = difference_error(plan, [(fold[sides[0]], fold[sides[1]]) for fold in folds])
    return _describe(plan.metric, with_it, without, error, nodes)


def name_split(split: int) -> str:
    return "the first split" if split == 0 else f"split {split}"


def mean_verdict(metric: str, verdicts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Joins the verdicts of several splits: the mean over those where both kinds of network have a
    score, or over all if there is none."""
    both = [verdict for verdict in verdicts if verdict["error"] is not None]
    known = both or verdicts
    with_it, without = (
        mean(scores) if (scores := [v[side] for v in known if v[side] is not None]) else None
        for side in ("with_attention", "without_attention")
    )
    error = math.hypot(*(verdict["error"] for verdict in both)) / len(both) if both else None
    splits = (
        "each split" if len(known) == len(verdicts) else f"{len(known)} of {len(verdicts)} splits"
    )
    return _describe(metric, with_it, without, error, f"validation nodes of {splits}")


def _describe(
    metric: str, with_it: float | None, without: float | None, error: float | None, nodes: str
) -> dict[str, Any]:
    about: dict[str, Any] = {
        "with_attention": with_it,
        "without_attention": without,
        "error": error,
    }
    named = {"with it": with_it, "without": without}
    known = [
        f"{format_score(metric, score)} {side}"
        for side, score in named.items()
        if score is not None
    ]
    scores = f"{', '.join(known) or 'no score'} ({nodes})"
    if with_it is None or without is None or error is None:
        sentence = (
            f"Whether attention to all nodes helps here is not known: {scores} is all there is."
        )
        return {**about, "helps": None, "sentence": sentence}
    better = goodness(metric, with_it) - goodness(metric, without)
    verb = "makes no difference here that is larger than its error"
    if abs(better) > ERRORS * error:
        verb = "helps here" if better > 0 else "does not help here"
    sentence = f"Attention to all nodes {verb}: {scores}."
    return {**about, "helps": better > ERRORS * error, "sentence": sentence}


def difference_error(
    plan: Plan, pairs: Sequence[tuple[Entrant, Entrant]], draws: int = 200
) -> float:
    """Returns the standard error of a difference of mean metrics by the bootstrap."""
    generator, name = torch.Generator().manual_seed(plan.seed), plan.metric
    variance = 0.0
    for first, second in pairs:
        (a, y), (b, _) = first.outputs(), second.outputs()
        differences = []
        for _ in range(draws):
            drawn = torch.randint(len(y), (len(y),), generator=generator).to(y.device)
            metric = first.task.kind.metric
            differences.append(
                float(metric(name, a[drawn], y[drawn])) - float(metric(name, b[drawn], y[drawn]))
            )
        known = torch.tensor(differences, dtype=torch.float64)
        variance += float(known[~known.isnan()].var())
    return math.sqrt(variance) / len(pairs)


def format_score(metric: str, value: float) -> str:
    found = find_metric(metric)
    return f"{100 * value:.1f} %" if found.scale == 100 else f"{found.title} {amount(value)}"
