"""Metrics of predictions, by name, and the confusion matrix.

No metric reads from the device. :mod:`phgcn.train.tasks` names the metrics of each task."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

# Classes: of each node one class, or any number of labels


def accuracy(logits: Tensor, y: Tensor) -> Tensor:
    """Computes the fraction of nodes with the right class, or with all of several labels right; NaN
    without nodes.

    Shapes:
        - **logits:** :math:`(N, C)`, **y:** :math:`(N,)` classes or :math:`(N, C)` of 0 and 1,
          **output:** a scalar tensor
    """
    right = logits.argmax(dim=1) == y if y.dim() == 1 else ((logits > 0) == (y > 0.5)).all(dim=1)
    return right.sum().double() / len(y)


def roc_auc(logits: Tensor, y: Tensor) -> Tensor:
    """Computes the area under the ROC curve: the probability that a node of a class has a larger
    score than another node, with ties counted half.

    The score of two classes is :math:`z_1 - z_0`, of more classes the softmax, of labels the logit.
    The result is the mean over all classes that only some nodes have, NaN if there is none.

    Shapes:
        - **logits**, **y**, **output:** as in :func:`accuracy`
    """
    scores = logits.double()
    if y.dim() == 2:
        return _pair_order(scores, y.double()).nanmean()
    if scores.size(1) == 2:
        return _pair_order(scores[:, 1:] - scores[:, :1], y.double()[:, None])[0]
    return _pair_order(scores.softmax(dim=1), _indicator(y, scores.size(1)).double()).nanmean()


def _pair_order(score: Tensor, positive: Tensor) -> Tensor:
    """Computes, for each column, the share of pairs of a positive and another node that the score
    orders right: score and positive (N, C) to (C,), NaN without pairs."""
    score = score.T.contiguous()
    ordered, positive = score.sort(dim=1).values, positive.T
    first, last = (torch.searchsorted(ordered, score, right=right) for right in (False, True))
    rank = (first + last + 1) / 2  # mean of ties
    count = positive.sum(dim=1)
    pairs = count * (score.size(1) - count)
    return ((rank * positive).sum(dim=1) - count * (count + 1) / 2) / pairs


def f1(logits: Tensor, y: Tensor) -> Tensor:
    """Computes the mean over classes of :math:`F_1 = 2 t / (2 t + f)`, with :math:`t` true
    positives, and :math:`f` false positives and negatives; a class without either is left out.

    Shapes:
        - **logits**, **y**, **output:** as in :func:`accuracy`
    """
    hits, misses = _hits_and_misses(logits, y)
    return (2 * hits / (2 * hits + misses)).nanmean()


def f1_micro(logits: Tensor, y: Tensor) -> Tensor:
    """Computes :math:`F_1` of all classes counted together; shapes as in :func:`accuracy`."""
    hits, misses = _hits_and_misses(logits, y)
    return 2 * hits.sum() / (2 * hits.sum() + misses.sum())


def _hits_and_misses(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Counts true positives, and false positives and negatives, of each class, (C,) each."""
    classes = logits.size(1)
    if y.dim() == 1:
        predicted, truth = _indicator(logits.argmax(dim=1), classes), _indicator(y, classes)
    else:
        predicted, truth = logits > 0, y > 0.5
    return (predicted & truth).sum(dim=0).double(), (predicted != truth).sum(dim=0).double()


def _indicator(y: Tensor, classes: int) -> Tensor:
    """Makes masks of the classes (N, C) from the classes of nodes (N,)."""
    return y[:, None] == torch.arange(classes, device=y.device)


# Numbers


def mae(values: Tensor, y: Tensor) -> Tensor:
    """Computes the mean absolute error of values and y, both :math:`(N,)`; returns a scalar."""
    return (values.double() - y.double()).abs().mean()


def rmse(values: Tensor, y: Tensor) -> Tensor:
    """Computes the root of the mean squared error; shapes as in :func:`mae`."""
    return (values.double() - y.double()).square().mean().sqrt()


def r2(values: Tensor, y: Tensor) -> Tensor:
    r"""Computes the explained share of the variance, :math:`1 - \sum (y - v)^2 / \sum (y - \bar
    y)^2`; shapes as in :func:`mae`."""
    y = y.double()
    return 1 - (values.double() - y).square().sum() / (y - y.mean()).square().sum()


# By name


class Metric(NamedTuple):
    """A metric, its title and its factor in tables, and whether larger values are better."""

    function: Callable[[Tensor, Tensor], Tensor]
    title: str
    larger_is_better: bool = True
    scale: int = 1


METRICS = {
    "accuracy": Metric(accuracy, "accuracy", scale=100),
    "roc_auc": Metric(roc_auc, "ROC AUC"),
    "f1": Metric(f1, "F1, mean of classes"),
    "f1_micro": Metric(f1_micro, "F1, classes together"),
    "mae": Metric(mae, "mean absolute error", larger_is_better=False),
    "rmse": Metric(rmse, "root mean squared error", larger_is_better=False),
    "r2": Metric(r2, "R²"),
}


def find_metric(name: str) -> Metric:
    if name not in METRICS:
        raise ValueError(f"metric is {name!r}; allowed: {', '.join(METRICS)}")
    return METRICS[name]


def metric(name: str, outputs: Tensor, y: Tensor) -> Tensor:
    """Computes the metric of a name; shapes as in :func:`accuracy` and :func:`mae`."""
    return find_metric(name).function(outputs, y)


def goodness(name: str, value: float) -> float:
    """Returns a number that is larger for a better value of a metric; NaN is the worst value."""
    if math.isnan(value):
        return -math.inf
    return value if find_metric(name).larger_is_better else -value


def confusion(predicted: Tensor, y: Tensor, classes: int) -> Tensor:
    """Counts the nodes of each class (row) with each predicted class (column), (C, C)."""
    counts = torch.bincount(y * classes + predicted, minlength=classes * classes)
    return counts.reshape(classes, classes)


def mean_and_deviation(values: list[float]) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def spread(values: list[float]) -> dict[str, float]:
    """Returns ``mean`` and ``std`` of values, for JSON."""
    mean, deviation = mean_and_deviation(values)
    return {"mean": mean, "std": deviation}
