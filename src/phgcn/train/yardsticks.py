r"""What a score is held against: the commonest answer, a linear model, and the network without global attention.

All of them are scored on the nodes that the model is scored on.  The first two cost next to nothing and are computed for
every split.  The network without global attention is trained on the first split only, for at most as many epochs as the
model had there, so that it takes less time than one split of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .loop import Task
from .metrics import find_metric, goodness, mean_and_deviation
from .plan import Plan

COMMONEST, LINEAR, LOCAL = "commonest", "linear", "local"
"""The names of the yardsticks in ``result.json``."""

PENALTIES = (1.0, 0.1, 0.01, 0.001, 0.0001)
"""Weight penalties of the linear model, of which the validation nodes choose one."""

STEPS = 40
"""Steps of L-BFGS for each of them."""

WITHOUT_GLOBAL = {"phgcn": "gat-eda", "phgcn-residual": "gat-eda-residual"}
"""Models with global attention, and the model that is left without it."""


def scored_nodes(task: Task) -> Tensor:
    """Returns the test nodes, or the validation nodes where no node tests."""
    return task.test if len(task.test) else task.val


def simple_scores(task: Task) -> dict[str, float]:
    """Returns the metric of the commonest answer (the mean of numbers) and of a linear model of the features."""
    nodes = scored_nodes(task)
    outputs = {COMMONEST: _constant_outputs(task), LINEAR: _linear_outputs(task)}
    return {name: float(task.kind.metric(task.metric, out[nodes], task.y[nodes])) for name, out in outputs.items()}


def plan_without_global(plan: Plan) -> Plan | None:
    """Returns the plan of the same network without global attention; :obj:`None` if the network has none."""
    if plan.model == "global-gnn" and (plan.settings.global_layers > 0 or plan.settings.labels):
        return replace(plan, settings=replace(plan.settings, global_layers=0, labels=False, local_epochs=0))
    if plan.model in WITHOUT_GLOBAL:
        return replace(plan, model=WITHOUT_GLOBAL[plan.model])
    return None


def _constant_outputs(task: Task) -> Tensor:
    """Returns outputs (N, C) that are the same for all nodes: the shares of the classes among the training nodes."""
    channels = task.kind.out_channels(task.classes)
    y = task.y[task.train]
    if y.dim() == 1 and y.is_floating_point():
        shares = task.x.new_zeros(channels)  # outputs of 0 are the mean of the training nodes
    elif y.dim() == 1:
        shares = (torch.bincount(y, minlength=channels).double() / len(y)).log().clamp(min=-30).float()
    else:
        shares = y.mean(dim=0).clamp(1e-6, 1 - 1e-6).logit()
    return shares.expand(len(task.y), -1)


def _linear_outputs(task: Task) -> Tensor:
    """Returns the outputs (N, C) of a linear model, fitted to the training nodes with the loss of the task."""
    x, channels = _standardised(task), task.kind.out_channels(task.classes)
    weight = torch.zeros(x.size(1), channels, device=task.x.device, requires_grad=True)
    bias = torch.zeros(channels, device=task.x.device, requires_grad=True)
    best, chosen = -math.inf, None
    for penalty in PENALTIES:
        _minimise(lambda p=penalty: _penalised_loss(task, x, weight, bias, p), (weight, bias))  # type: ignore[misc]
        with torch.no_grad():
            out = x @ weight + bias
            score = goodness(task.metric, float(task.kind.metric(task.metric, out[task.val], task.y[task.val])))
        if chosen is None or score > best:
            best, chosen = score, out
    assert chosen is not None
    return chosen


def _standardised(task: Task) -> Tensor:
    """Returns the features with mean 0 and deviation 1 over the training nodes; sparse ones as they are."""
    if task.x.layout != torch.strided:
        return task.x
    rows = task.x[task.train].float()
    deviation = rows.std(dim=0, correction=0)
    factor = torch.where(deviation > 1e-6 * rows.abs().amax(dim=0), 1 / deviation, 0.0)  # 0 for a constant column
    return (task.x.float() - rows.mean(dim=0)) * factor


def _penalised_loss(task: Task, x: Tensor, weight: Tensor, bias: Tensor, penalty: float) -> Tensor:
    out = x[task.train] @ weight if x.layout == torch.strided else (x @ weight)[task.train]
    return task.kind.loss(out + bias, task.y[task.train]) + penalty / 2 * weight.square().sum()


def _minimise(loss: Callable[[], Tensor], parameters: Sequence[Tensor]) -> None:
    optimiser = torch.optim.LBFGS(parameters, max_iter=STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value

    with torch.enable_grad():
        optimiser.step(closure)


# In the result of a run


def summarise_yardsticks(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns of each yardstick the mean and deviation over its splits, and the mean of the model on the same splits.

    Args:
        rows (list of dict): The results of the splits, as :func:`phgcn.train.result.split_result` returns them.
    """
    names = dict.fromkeys(name for row in rows for name in row.get("yardsticks", ()))
    summary = {}
    for name in names:
        measured = [row for row in rows if name in row["yardsticks"]]
        mean, deviation = mean_and_deviation([row["yardsticks"][name] for row in measured])
        own = mean_and_deviation([_own_score(row) for row in measured])[0]
        summary[name] = {"mean": mean, "std": deviation, "splits": len(measured), "model": own}
    return summary


def _own_score(row: dict[str, Any]) -> float:
    return float(row["val_metric"] if math.isnan(row["test"]) else row["test"])


def describe_yardsticks(result: dict[str, Any]) -> list[str]:
    """Returns a line per yardstick, then a line in plain words for each that the model is not better than."""
    lines, warnings = [], []
    metric = result["metric"]
    for name, summary in result.get("yardsticks", {}).items():
        score, own = _write(metric, summary["mean"]), _write(metric, summary["model"])
        what = result["commonest"] if name == COMMONEST else _TITLES[name]
        where = ""
        if summary["splits"] < len(result["splits"]):
            where = f" (trained on the first split only, where this model has {own})"
        lines.append(f"{what}: {score}{where}")
        if goodness(metric, summary["model"]) <= goodness(metric, summary["mean"]):
            relation = "the same as" if summary["model"] == summary["mean"] else _worse(metric)
            warnings.append(f"warning: {metric} {own} is {relation} {what}: {score}")
    return [*lines, *warnings]


_TITLES = {LINEAR: "a linear model of the features", LOCAL: "the network without global attention"}


def commonest_answer(task: str, y: Tensor, classes: Sequence[str]) -> str:
    """Names the answer that takes no features at all, from the labels of all nodes that have one."""
    if task == "classification":
        return f"always answering {classes[int(y[y >= 0].bincount().argmax())]!r}"
    return "always answering the mean" if task == "regression" else "always answering the commonest labels"


def _worse(metric: str) -> str:
    return "below" if find_metric(metric).larger_is_better else "worse than"


def _write(metric: str, value: float) -> str:
    scale = find_metric(metric).scale
    if scale == 100:
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
