"""Yardsticks of a score: the commonest answer, a linear model, and the network without global
attention.

All are scored on the nodes of the model's score. The network without global attention is trained on
the first split only, for at most as many epochs as the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import ParameterList

from ..registry import DEFAULT_MODEL, TABLE_MODEL
from ..text import amount
from .features import fit_features, unchanged
from .loop import Task
from .metrics import find_metric, goodness, spread
from .plan import Plan, Trial
from .processes import OneProcess
from .settings import attends

# the names of the yardsticks in ``result.json``
COMMONEST, LINEAR, LOCAL = "commonest", "linear", "local"

YARDSTICKS = (COMMONEST, LINEAR, LOCAL)

# weight penalties of the linear model; validation nodes choose one
PENALTIES = (1.0, 0.1, 0.01, 0.001, 0.0001)

STEPS = 40  # steps of L-BFGS for each penalty

# models with global attention, and the same models without it
WITHOUT_GLOBAL = {"phgcn": "gat-eda", "phgcn-residual": "gat-eda-residual"}


class LinearModel(NamedTuple):
    """A linear model: ``bias`` (C,) and ``weight`` (F, C), or :obj:`None` to ignore features."""

    bias: Tensor
    weight: Tensor | None = None

    def outputs(self, x: Tensor) -> Tensor:
        if self.weight is None:
            return self.bias.expand(x.size(0), -1)
        return x @ self.weight.to(x.device) + self.bias.to(x.device)

    def tensors(self) -> dict[str, Tensor]:
        return {name: part for name, part in self._asdict().items() if part is not None}


def fit_simple(task: Task, processes: OneProcess) -> dict[str, LinearModel]:
    """Fits the commonest answer (the mean of numbers) and a linear model of the features."""
    return {COMMONEST: _fit_constant(task), LINEAR: _fit_linear(task, processes)}


def simple_score(task: Task, model: LinearModel, processes: OneProcess) -> float:
    """Returns a simple model's metric on the test nodes, else on the validation nodes."""
    nodes = task.test if len(task.test) else task.val
    return _score(task, processes.outputs(model.outputs(task.x)), nodes)


def _score(task: Task, outputs: Tensor, nodes: Tensor) -> float:
    return float(task.kind.metric(task.metric, outputs[nodes], task.y[nodes]))


@dataclass(frozen=True)
class LocalTrial(Trial):
    """The training of the network without global attention beside a trial."""

    @property
    def name(self) -> str:
        return f"local-{super().name}"


def local_trial(trial: Trial) -> LocalTrial | None:
    """Returns the first split's training without global attention, if it has any."""
    plan = _plan_without_global(trial.plan)
    if plan is None or trial.split or trial.repeat:
        return None
    return LocalTrial(trial.split, trial.repeat, plan)


def _plan_without_global(plan: Plan) -> Plan | None:
    settings = plan.settings
    if not attends(plan.model, settings):
        return None
    if plan.model == DEFAULT_MODEL:
        local = replace(settings, global_layers=0, labels=False, local_epochs=0)
        return replace(plan, settings=local)
    if plan.model == TABLE_MODEL:
        return replace(plan, settings=replace(settings, parts="network"))
    if plan.model in WITHOUT_GLOBAL:
        return replace(plan, model=WITHOUT_GLOBAL[plan.model])
    return None


def _fit_constant(task: Task) -> LinearModel:
    """Returns the same outputs for all nodes, from the classes of the training nodes."""
    y = task.y[task.train]
    if y.dim() == 2:
        return LinearModel(y.mean(dim=0).clamp(1e-6, 1 - 1e-6).logit())
    channels = task.kind.out_channels(task.classes)
    if y.is_floating_point():
        return LinearModel(y.new_zeros(channels))  # outputs of 0 are the mean of the training nodes
    shares = torch.bincount(y, minlength=channels).double() / len(y)
    return LinearModel(shares.log().clamp(min=-30).float())


def _fit_linear(task: Task, processes: OneProcess) -> LinearModel:
    """Fits a linear model with the task's loss, on dense features of mean 0, deviation 1."""
    transform = unchanged(task.x.size(1))
    if task.x.layout == torch.strided:
        none = torch.zeros(task.x.size(1), dtype=torch.bool, device=task.x.device)
        train = processes.own_rows(task.train)
        transform = fit_features(task.x, train, "standard", none, processes.ranks)
    x = transform.apply(task.x)
    channels = task.kind.out_channels(task.classes)
    shapes = ((channels,), (x.size(1), channels))
    parameters = ParameterList([torch.zeros(shape, device=x.device) for shape in shapes])
    best, chosen = -math.inf, None
    for penalty in PENALTIES:
        _minimise(task, x, parameters, penalty, processes)
        fitted = LinearModel(*(part.detach().clone() for part in parameters))
        out = processes.outputs(fitted.outputs(x))
        score = goodness(task.metric, _score(task, out, task.val))
        if chosen is None or score > best:
            best, chosen = score, fitted
    assert chosen is not None and chosen.weight is not None
    # as read from features that are not scaled
    weight = chosen.weight * transform.factor.to(x.device).unsqueeze(1)
    return LinearModel(chosen.bias - transform.centre.to(x.device) @ weight, weight)


def _minimise(
    task: Task, x: Tensor, parameters: ParameterList, penalty: float, processes: OneProcess
) -> None:
    """Minimises the loss of the training nodes plus ``penalty`` times half the squared weight."""
    bias, weight = parameters
    optimiser = torch.optim.LBFGS(parameters, max_iter=STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        outputs = processes.outputs(LinearModel(bias, weight).outputs(x))
        loss = task.kind.loss(outputs[task.train], task.y[task.train])
        loss.backward()
        processes.join_gradients(parameters)
        weight.grad += penalty * weight.detach()  # not once for each process
        total: Tensor = loss.detach() + penalty / 2 * weight.detach().square().sum()
        return total

    with torch.enable_grad():
        optimiser.step(closure)


# In the result of a run


def summarise_yardsticks(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns the mean and deviation of each yardstick over its splits, and the model's mean on the
    same splits, from the ``rows`` of :func:`phgcn.train.trial.split_result`."""
    summary = {}
    for name in dict.fromkeys(name for row in rows for name in row.get("yardsticks", ())):
        measured = [row for row in rows if name in row["yardsticks"]]
        scores = spread([row["yardsticks"][name] for row in measured])
        own = spread([_own_score(row) for row in measured])["mean"]
        summary[name] = {**scores, "splits": len(measured), "model": own}
    return summary


def _own_score(row: dict[str, Any]) -> float:
    return float(row["val_metric"] if math.isnan(row["test"]) else row["test"])


def describe_yardsticks(result: dict[str, Any]) -> list[str]:
    """Returns a line per yardstick, and a warning for each that the model does not beat."""
    lines, warnings = [], []
    for name, summary in result.get("yardsticks", {}).items():
        metric = result["metric"]
        score, own = _format(metric, summary["mean"]), _format(metric, summary["model"])
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
    """Returns the answer without features, from the labels of all labelled nodes."""
    if task == "classification":
        return f"always answering {classes[int(y[y >= 0].bincount().argmax())]!r}"
    return f"always answering the {'mean' if task == 'regression' else 'commonest labels'}"


def _worse(metric: str) -> str:
    return "below" if find_metric(metric).larger_is_better else "worse than"


def _format(metric: str, value: float) -> str:
    return f"{100 * value:.1f} %" if find_metric(metric).scale == 100 else amount(value)
