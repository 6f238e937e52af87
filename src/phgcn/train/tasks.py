"""Kinds of task: the prediction for a node is a class, a number, or any number of labels.

A :class:`TaskKind` has the loss, the metrics, and the way from outputs to predictions::

    kind = find_task("regression").fitted(y[train], classes, settings)  # fits mean and deviation
    model = build(out_channels=kind.out_channels(classes))
    loss = kind.loss(model(x, edge_index)[train], y[train])
    kind.metric("mae", outputs[test], y[test])  # outputs of the model
    kind.predict(outputs)  # classes, numbers, or labels
    kind.probabilities(outputs)  # None for numbers

``kind.tensors()`` and ``find_task(name).restored(tensors)`` keep the fitted values with the
weights. To add a kind, write its class here and name it in :data:`TASKS`. :mod:`phgcn.data.labels`
reads labels from files.

Labels of a graph are ``data.y``:

====================  ==========================  ==============================
task                  ``y``                       a node without a label
====================  ==========================  ==============================
``classification``    integers, :math:`(N,)`      -1
``regression``        floats, :math:`(N,)`        NaN
``multilabel``        floats 0, 1, :math:`(N, C)`  a row of NaN
====================  ==========================  ==============================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from ..data.labels import labelled
from . import metrics

if TYPE_CHECKING:
    from typing_extensions import Self

    from .settings import Settings


class PredictionTable(NamedTuple):
    """Predictions as a table: the columns after the id, a row of cells per node, a summary."""

    heading: list[str]
    rows: list[list[str]]
    summary: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class TaskKind(ABC):
    """A kind of task. An instance without arguments is independent of a graph; :meth:`fitted`
    returns one for a graph.

    Attributes:
        name (str): The name in commands and files.
        metrics (tuple of str): Names of :data:`phgcn.train.metrics.METRICS`; the first is the
            default.

    Shapes:
        - **outputs:** outputs of a model, :math:`(N, C)`
        - **y:** the labels of the same nodes, as in the table above
    """

    name: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]]

    def fitted(self, y: Tensor, classes: int, settings: Settings) -> Self:
        """Returns the kind, fitted to the training nodes.

        Args:
            y (torch.Tensor): The labels of the training nodes.
            classes (int): The number of classes or labels of the graph.
            settings (Settings): ``class_weights`` and ``label_smoothing``; a task without a use for
                them refuses them.
        """
        return self

    def check(self, y: Tensor) -> None:
        """Refuses labels of all nodes if nothing can be learned from them."""
        if not bool(labelled(y).any()):
            raise ValueError("no node has a label; allowed: labels of the nodes to train on")

    def out_channels(self, classes: int) -> int:
        """Returns how many outputs a model has."""
        return classes

    @abstractmethod
    def loss(self, outputs: Tensor, y: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """Computes the loss, a scalar; pass ``label_smoothing`` in training only."""

    def label_values(self, y: Tensor) -> Tensor:
        """Returns labels as inputs of a model; numbers get mean 0 and deviation 1."""
        return y

    def metric(self, name: str, outputs: Tensor, y: Tensor) -> Tensor:
        """Computes a metric, a scalar, in the units of the labels."""
        return metrics.metric(name, outputs, y)

    def scores(self, outputs: Tensor, y: Tensor) -> dict[str, float]:
        """Computes all metrics of the task."""
        return {name: float(self.metric(name, outputs, y)) for name in self.metrics}

    @abstractmethod
    def predict(self, outputs: Tensor) -> Tensor:
        """Returns classes :math:`(N,)`, numbers :math:`(N,)`, or masks of labels :math:`(N, C)`."""

    def probabilities(self, outputs: Tensor) -> Tensor | None:
        """Returns the probability of every class, :math:`(N, C)`; :obj:`None` for numbers."""
        return None

    @abstractmethod
    def table(self, outputs: Tensor, classes: list[str]) -> PredictionTable:
        """Returns the predictions as a table, given the names of the classes."""

    @abstractmethod
    def details(self, predicted: Tensor, y: Tensor, classes: list[str]) -> dict[str, Any]:
        """Returns details of predictions for JSON: ``confusion``, ``per_class`` or ``errors``."""

    def tensors(self) -> dict[str, Tensor]:
        """Returns the fitted values that predictions need, to be kept with the weights."""
        return {}

    def restored(self, tensors: Mapping[str, Tensor]) -> Self:
        """Returns the kind with the fitted values that :meth:`tensors` returned."""
        return self


@dataclass(frozen=True, eq=False)
class Classification(TaskKind):
    """One class per node, by cross-entropy.

    Args:
        weights (torch.Tensor, optional): The weight of each class in the loss, :math:`(C,)`.
            (default: :obj:`None`, all 1)
    """

    name = "classification"
    metrics = ("accuracy", "roc_auc", "f1")
    weights: Tensor | None = None

    def fitted(self, y: Tensor, classes: int, settings: Settings) -> Classification:
        """Weighs balanced classes by one over their number of training nodes, 1 on average over
        nodes; a class without training nodes gets 1."""
        if settings.class_weights == "none":
            return self
        counts = torch.bincount(y, minlength=classes)
        present = counts > 0
        weights = len(y) / (present.sum() * counts.clamp(min=1))
        return Classification(torch.where(present, weights, 1.0).float())

    def check(self, y: Tensor) -> None:
        super().check(y)
        if len(y[y >= 0].unique()) < 2:
            problem = "all labels are the same class, which is predicted with 100 %"
            raise ValueError(f"{problem}; allowed: two classes or more")

    def loss(self, outputs: Tensor, y: Tensor, label_smoothing: float = 0.0) -> Tensor:
        return cross_entropy(outputs, y, self.weights, label_smoothing=label_smoothing)

    def predict(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(dim=1)

    def probabilities(self, outputs: Tensor) -> Tensor:
        return outputs.double().softmax(dim=1)

    def table(self, outputs: Tensor, classes: list[str]) -> PredictionTable:
        labels = [classes[label] for label in self.predict(outputs).tolist()]
        counts = {name: labels.count(name) for name in classes}
        return _label_table(labels, self.probabilities(outputs), classes, counts)

    def details(self, predicted: Tensor, y: Tensor, classes: list[str]) -> dict[str, Any]:
        table = metrics.confusion(predicted, y, len(classes))
        per_class = _class_scores(table.diagonal(), table.sum(dim=1), table.sum(dim=0), classes)
        return {"confusion": table.tolist(), "per_class": per_class}


@dataclass(frozen=True, eq=False)
class Regression(TaskKind):
    r"""A number per node, by the mean squared error of :math:`(y - \mu) / \sigma`.

    Args:
        mean, deviation (float, optional): :math:`\mu` and :math:`\sigma` of the training labels.
            (default: :obj:`0.0`, :obj:`1.0`)
    """

    name = "regression"
    metrics = ("mae", "rmse", "r2")
    mean: float = 0.0
    deviation: float = 1.0

    def fitted(self, y: Tensor, classes: int, settings: Settings) -> Regression:
        _refuse(self, settings, class_weights="none", label_smoothing=0)
        deviation = float(y.double().std(correction=0))
        return Regression(float(y.double().mean()), deviation if deviation > 0 else 1.0)

    def check(self, y: Tensor) -> None:
        super().check(y)
        if len(y[labelled(y)].unique()) < 2:
            raise ValueError("all labels are the same number; allowed: two numbers or more")

    def out_channels(self, classes: int) -> int:
        return 1

    def label_values(self, y: Tensor) -> Tensor:
        return (y - self.mean) / self.deviation

    def loss(self, outputs: Tensor, y: Tensor, label_smoothing: float = 0.0) -> Tensor:
        return mse_loss(outputs[:, 0], self.label_values(y))

    def metric(self, name: str, outputs: Tensor, y: Tensor) -> Tensor:
        return super().metric(name, self.predict(outputs), y)

    def predict(self, outputs: Tensor) -> Tensor:
        return outputs[:, 0] * self.deviation + self.mean

    def table(self, outputs: Tensor, classes: list[str]) -> PredictionTable:
        values = self.predict(outputs)
        found = {"smallest": values.min(), "mean": values.mean(), "largest": values.max()}
        summary = {name: float(value) for name, value in found.items()}
        return PredictionTable(["prediction"], _cells(values[:, None]), summary)

    def details(self, predicted: Tensor, y: Tensor, classes: list[str]) -> dict[str, Any]:
        away = (predicted.double() - y.double()).abs()
        quantiles = ERROR_QUANTILES.items()
        return {"errors": {name: float(away.quantile(share)) for name, share in quantiles}}

    def tensors(self) -> dict[str, Tensor]:
        return {"scale": torch.tensor([self.mean, self.deviation], dtype=torch.float64)}

    def restored(self, tensors: Mapping[str, Tensor]) -> Regression:
        return Regression(*tensors["scale"].tolist())


@dataclass(frozen=True, eq=False)
class Multilabel(TaskKind):
    """Any number of labels per node, by binary cross-entropy of each.

    Args:
        weights (torch.Tensor, optional): The weight in the loss of nodes with each label,
            :math:`(C,)`. (default: :obj:`None`, all 1)
    """

    name = "multilabel"
    metrics = ("f1_micro", "f1", "roc_auc", "accuracy")
    weights: Tensor | None = None

    def fitted(self, y: Tensor, classes: int, settings: Settings) -> Multilabel:
        """Gives all nodes with a balanced label the same weight as all nodes without it."""
        _refuse(self, settings, label_smoothing=0)
        if settings.class_weights == "none":
            return self
        count = y.sum(dim=0)
        weights = torch.where(count > 0, (len(y) - count) / count.clamp(min=1), 1.0)
        return Multilabel(weights.clamp(min=1 / len(y)))

    def check(self, y: Tensor) -> None:
        super().check(y)
        known = y[labelled(y)]
        if bool((known == known[0]).all()):
            allowed = "labels that some nodes have and others have not"
            raise ValueError(f"all nodes have the same labels; allowed: {allowed}")

    def loss(self, outputs: Tensor, y: Tensor, label_smoothing: float = 0.0) -> Tensor:
        return binary_cross_entropy_with_logits(outputs, y, pos_weight=self.weights)

    def predict(self, outputs: Tensor) -> Tensor:
        return outputs > 0

    def probabilities(self, outputs: Tensor) -> Tensor:
        return outputs.double().sigmoid()

    def table(self, outputs: Tensor, classes: list[str]) -> PredictionTable:
        predicted = self.predict(outputs)
        labels = [";".join(compress(classes, row)) or ";" for row in predicted.tolist()]
        counts = dict(zip(classes, predicted.sum(dim=0).tolist(), strict=True))
        return _label_table(labels, self.probabilities(outputs), classes, counts)

    def details(self, predicted: Tensor, y: Tensor, classes: list[str]) -> dict[str, Any]:
        labels = y > 0.5
        hits, nodes, chosen = (mask.sum(dim=0) for mask in (predicted & labels, labels, predicted))
        return {"per_class": _class_scores(hits, nodes, chosen, classes)}


def _label_table(
    labels: list[str], probabilities: Tensor, classes: list[str], counts: dict[str, int]
) -> PredictionTable:
    heading = ["label", *(f"probability_{name}" for name in classes)]
    cells = zip(labels, _cells(probabilities), strict=True)
    return PredictionTable(heading, [[label, *row] for label, row in cells], counts)


def _cells(values: Tensor) -> list[list[str]]:
    """Formats numbers (N, C) for a table."""
    return [[f"{value:.6g}" for value in row] for row in values.tolist()]


def _class_scores(
    hits: Tensor, nodes: Tensor, predicted: Tensor, classes: list[str]
) -> list[dict[str, Any]]:
    """Computes recall and precision of each class from counts (C,); None for 0 of 0 nodes."""
    rows = []
    for name, *counts in zip(classes, hits, nodes, predicted, strict=True):
        hit, own, chosen = (int(count) for count in counts)
        recall, precision = hit / own if own else None, hit / chosen if chosen else None
        rows.append({"class": name, "nodes": own, "recall": recall, "precision": precision})
    return rows


def _refuse(kind: TaskKind, settings: Settings, **unused: object) -> None:
    """Refuses other values of settings than these, which the task has no use for."""
    for name, allowed in unused.items():
        if (value := getattr(settings, name)) != allowed:
            raise ValueError(f"{name} is {value}; allowed for {kind.name}: {allowed}")


_KINDS: tuple[TaskKind, ...] = (Classification(), Regression(), Multilabel())
TASKS = {kind.name: kind for kind in _KINDS}
"""The kinds of task by name."""

# quantiles of the absolute error in an evaluation
ERROR_QUANTILES = {"median": 0.5, "nine of ten below": 0.9, "largest": 1.0}


def find_task(name: str) -> TaskKind:
    """Returns the kind of task of that name."""
    if name not in TASKS:
        raise ValueError(f"task is {name!r}; allowed: {', '.join(TASKS)}")
    return TASKS[name]
