r"""What is predicted of a node: a class, a number, or any number of labels.

Each kind of task is a :class:`TaskKind`, found by its name: the loss that is trained, the metrics, and how the outputs of a
model become predictions::

    kind = find_task("regression").fitted(y[train], classes, settings)  # what it needs to know of the training nodes
    model = build(out_channels=kind.out_channels(classes))
    loss = kind.loss(model(x, edge_index)[train], y[train])
    kind.metric("mae", outputs[test], y[test])  # outputs as the model gives them
    kind.predict(outputs)  # classes, numbers, or labels
    kind.probabilities(outputs)  # None where there are none

What was fitted is kept with the weights: ``kind.tensors()``, and ``find_task(name).restored(tensors)``.  To add a kind, write
its class here and name it in :data:`TASKS`; how its labels are read from a file is in :mod:`phgcn.data.labels`.

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
    """Predictions as a table: the columns after the id, a row of cells per node, and what they are in short."""

    heading: list[str]
    rows: list[list[str]]
    summary: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class TaskKind(ABC):
    r"""A kind of task.  An instance without arguments knows nothing of a graph; :meth:`fitted` gives one that does.

    Attributes:
        name (str): The name in commands and files.
        metrics (tuple of str): What it can be scored by, names of :data:`phgcn.train.metrics.METRICS`; the first is the
            default.

    Shapes:
        - **outputs:** what a model gives, :math:`(N, C)`
        - **y:** the labels of the same nodes, as in the table above
    """

    name: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]]

    def fitted(self, y: Tensor, classes: int, settings: Settings) -> Self:
        """Returns the kind with what it needs to know of the training nodes.

        Args:
            y (torch.Tensor): The labels of the training nodes.
            classes (int): The number of classes or labels of the graph.
            settings (Settings): ``class_weights`` and ``label_smoothing``; refused where the task has no use for them.
        """
        return self

    def check(self, y: Tensor) -> None:
        """Refuses labels (of all nodes) that nothing can be learned from."""
        if not bool(labelled(y).any()):
            raise ValueError("no node has a label; allowed: labels of the nodes to train on")

    def out_channels(self, classes: int) -> int:
        """Returns how many outputs a model has."""
        return classes

    @abstractmethod
    def loss(self, outputs: Tensor, y: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """Computes the loss, a scalar; ``label_smoothing`` is for training alone."""

    def label_values(self, y: Tensor) -> Tensor:
        """Returns labels as a model reads them that has labels as inputs: as they are, numbers with mean 0 and deviation 1."""
        return y

    def metric(self, name: str, outputs: Tensor, y: Tensor) -> Tensor:
        """Computes a metric, a scalar, in the units of the labels."""
        return metrics.metric(name, outputs, y)

    def scores(self, outputs: Tensor, y: Tensor) -> dict[str, float]:
        """Computes all metrics of the task."""
        return {name: float(self.metric(name, outputs, y)) for name in self.metrics}

    @abstractmethod
    def predict(self, outputs: Tensor) -> Tensor:
        """Returns the predictions: classes :math:`(N,)`, numbers :math:`(N,)`, or whether each label holds :math:`(N, C)`."""

    def probabilities(self, outputs: Tensor) -> Tensor | None:
        """Returns the probability of every class, :math:`(N, C)`; :obj:`None` where the task has no classes."""
        return None

    @abstractmethod
    def table(self, outputs: Tensor, classes: list[str]) -> PredictionTable:
        """Returns the predictions as a table, given the names of the classes."""

    @abstractmethod
    def details(self, predicted: Tensor, y: Tensor, classes: list[str]) -> dict[str, Any]:
        """Returns more about predictions than a metric says, for JSON: ``confusion`` and ``per_class``, or ``errors``."""

    def tensors(self) -> dict[str, Tensor]:
        """Returns what :meth:`fitted` found and predictions need, to be kept with the weights."""
        return {}

    def restored(self, tensors: Mapping[str, Tensor]) -> Self:
        """Returns the kind with what :meth:`tensors` gave."""
        return self


@dataclass(frozen=True, eq=False)
class Classification(TaskKind):
    """One class per node, by cross-entropy.

    Args:
        weights (torch.Tensor, optional): The weight of each class in the loss, :math:`(C,)`. (default: :obj:`None`, all 1)
    """

    name = "classification"
    metrics = ("accuracy", "roc_auc", "f1")
    weights: Tensor | None = None

    def fitted(self, y: Tensor, classes: int, settings: Settings) -> Classification:
        """Weighs classes, if ``class_weights`` is ``"balanced"``, by one over their number of training nodes, 1 on average
        over nodes; a class without any gets 1."""
        if settings.class_weights == "none":
            return self
        counts = torch.bincount(y, minlength=classes)
        present = counts > 0
        return Classification(torch.where(present, len(y) / (present.sum() * counts.clamp(min=1)), 1.0).float())

    def check(self, y: Tensor) -> None:
        super().check(y)
        if len(y[y >= 0].unique()) < 2:
            raise ValueError("all labels are the same class, which is predicted with 100 %; allowed: two classes or more")

    def loss(self, outputs: Tensor, y: Tensor, label_smoothing: float = 0.0) -> Tensor:
        return cross_entropy(outputs, y, self.weights, label_smoothing=label_smoothing)

    def predict(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(dim=1)

    def probabilities(self, outputs: Tensor) -> Tensor:
        return outputs.double().softmax(dim=1)

    def table(self, outputs: Tensor, classes: list[str]) -> PredictionTable:
        best = self.predict(outputs).tolist()
        rows = [[classes[label], *cells] for label, cells in zip(best, _cells(self.probabilities(outputs)), strict=True)]
        counts = {name: best.count(number) for number, name in enumerate(classes)}
        return PredictionTable(["label", *_probability_columns(classes)], rows, counts)

    def details(self, predicted: Tensor, y: Tensor, classes: list[str]) -> dict[str, Any]:
        table = metrics.confusion(predicted, y, len(classes))
        counts = zip(table.diagonal().tolist(), table.sum(dim=1).tolist(), table.sum(dim=0).tolist(), classes, strict=True)
        return {"confusion": table.tolist(), "per_class": [_class_scores(*row) for row in counts]}


@dataclass(frozen=True, eq=False)
class Regression(TaskKind):
    r"""A number per node, by the mean squared error of :math:`(y - \mu) / \sigma`.

    Args:
        mean, deviation (float, optional): :math:`\mu` and :math:`\sigma` of the labels of the training nodes: a model learns
            numbers around 0, of size 1. (default: :obj:`0.0`, :obj:`1.0`)
    """

    name = "regression"
    metrics = ("mae", "rmse", "r2")
    mean: float = 0.0
    deviation: float = 1.0

    def fitted(self, y: Tensor, classes: int, settings: Settings) -> Regression:
        _refuse_class_settings(self, settings)
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
        summary = {"smallest": float(values.min()), "mean": float(values.mean()), "largest": float(values.max())}
        return PredictionTable(["prediction"], _cells(values[:, None]), summary)

    def details(self, predicted: Tensor, y: Tensor, classes: list[str]) -> dict[str, Any]:
        away = (predicted.double() - y.double()).abs()
        return {"errors": {name: float(away.quantile(share)) for name, share in ERROR_QUANTILES.items()}}

    def tensors(self) -> dict[str, Tensor]:
        return {"scale": torch.tensor([self.mean, self.deviation], dtype=torch.float64)}

    def restored(self, tensors: Mapping[str, Tensor]) -> Regression:
        return Regression(*tensors["scale"].tolist())


@dataclass(frozen=True, eq=False)
class Multilabel(TaskKind):
    """Any number of labels per node, by binary cross-entropy of each.

    Args:
        weights (torch.Tensor, optional): The weight, in the loss, of nodes that have a label, :math:`(C,)`. (default:
            :obj:`None`, all 1)
    """

    name = "multilabel"
    metrics = ("f1_micro", "f1", "roc_auc", "accuracy")
    weights: Tensor | None = None

    def fitted(self, y: Tensor, classes: int, settings: Settings) -> Multilabel:
        """Weighs nodes with a label, if ``class_weights`` is ``"balanced"``, as much as all those without it."""
        if settings.label_smoothing:
            raise _no_use(self, "label_smoothing", settings.label_smoothing, "0")
        if settings.class_weights == "none":
            return self
        count = y.sum(dim=0)
        return Multilabel(torch.where(count > 0, (len(y) - count) / count.clamp(min=1), 1.0).clamp(min=1 / len(y)))

    def check(self, y: Tensor) -> None:
        super().check(y)
        known = y[labelled(y)]
        if bool((known == known[0]).all()):
            raise ValueError("all nodes have the same labels; allowed: labels that some nodes have and others have not")

    def loss(self, outputs: Tensor, y: Tensor, label_smoothing: float = 0.0) -> Tensor:
        return binary_cross_entropy_with_logits(outputs, y, pos_weight=self.weights)

    def predict(self, outputs: Tensor) -> Tensor:
        return outputs > 0

    def probabilities(self, outputs: Tensor) -> Tensor:
        return outputs.double().sigmoid()

    def table(self, outputs: Tensor, classes: list[str]) -> PredictionTable:
        given = self.predict(outputs)
        texts = [";".join(name for name, holds in zip(classes, row, strict=True) if holds) or ";" for row in given.tolist()]
        rows = [[text, *cells] for text, cells in zip(texts, _cells(self.probabilities(outputs)), strict=True)]
        counts = dict(zip(classes, given.sum(dim=0).tolist(), strict=True))
        return PredictionTable(["label", *_probability_columns(classes)], rows, counts)

    def details(self, predicted: Tensor, y: Tensor, classes: list[str]) -> dict[str, Any]:
        wanted = y > 0.5
        counts = ((predicted & wanted).sum(dim=0), wanted.sum(dim=0), predicted.sum(dim=0))
        rows = zip(*(count.tolist() for count in counts), classes, strict=True)
        return {"per_class": [_class_scores(*row) for row in rows]}


def _probability_columns(classes: list[str]) -> list[str]:
    return [f"probability_{name}" for name in classes]


def _cells(values: Tensor) -> list[list[str]]:
    """Formats numbers (N, C) for a table."""
    return [[f"{value:.6g}" for value in row] for row in values.tolist()]


def _class_scores(hits: int, nodes: int, predicted: int, name: str) -> dict[str, Any]:
    """Computes recall and precision of one class; None if no node has, or was given, the class."""
    recall, precision = hits / nodes if nodes else None, hits / predicted if predicted else None
    return {"class": name, "nodes": nodes, "recall": recall, "precision": precision}


def _refuse_class_settings(kind: TaskKind, settings: Settings) -> None:
    if settings.class_weights != "none":
        raise _no_use(kind, "class_weights", settings.class_weights, "none")
    if settings.label_smoothing:
        raise _no_use(kind, "label_smoothing", settings.label_smoothing, "0")


def _no_use(kind: TaskKind, setting: str, value: object, allowed: str) -> ValueError:
    return ValueError(f"{setting} is {value}; allowed for {kind.name}: {allowed}")


TASKS: dict[str, TaskKind] = {kind.name: kind for kind in (Classification(), Regression(), Multilabel())}
"""The kinds of task by name."""


ERROR_QUANTILES = {"median": 0.5, "nine of ten below": 0.9, "largest": 1.0}
"""Quantiles of the absolute error that an evaluation tells."""


def find_task(name: str) -> TaskKind:
    """Returns the kind of task of that name."""
    if name not in TASKS:
        raise ValueError(f"task is {name!r}; allowed: {', '.join(TASKS)}")
    return TASKS[name]
