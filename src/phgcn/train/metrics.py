r"""Metrics of predictions, by name, and the confusion matrix.

None of them reads from the device, so that all can be part of a CUDA graph.  What a task is scored by is written in
:mod:`phgcn.train.tasks`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

# Classes: of each node one class, or any number of labels


def accuracy(logits: Tensor, y: Tensor) -> Tensor:
    r"""Returns the fraction of nodes that are right: whose largest logit is that of their class or, with several labels per
    node, all of whose logits have the right sign; NaN without nodes.

    Shapes:
        - **logits:** :math:`(N, C)`, **y:** :math:`(N,)` classes or :math:`(N, C)` of 0 and 1, **output:** a scalar tensor
    """
    right = logits.argmax(dim=1) == y if y.dim() == 1 else ((logits > 0) == (y > 0.5)).all(dim=1)
    return right.sum().double() / len(y)


def roc_auc(logits: Tensor, y: Tensor) -> Tensor:
    r"""Returns the area under the ROC curve: the probability that a node of a class has a larger score than one of another,
    ties counted half.

    The score of two classes is :math:`z_1 - z_0`; of more it is the softmax of each class against the rest, and of labels the
    logit of each; the mean over those that some nodes have and others have not.  NaN if there is none.

    Shapes:
        - **logits**, **y**, **output:** as in :func:`accuracy`
    """
    if y.dim() == 2:
        return _pair_order(logits.double(), y.double()).nanmean()
    if logits.size(1) == 2:
        return _pair_order((logits[:, 1].double() - logits[:, 0].double())[:, None], y.double()[:, None])[0]
    return _pair_order(logits.double().softmax(dim=1), _indicator(y, logits.size(1)).double()).nanmean()


def _pair_order(score: Tensor, positive: Tensor) -> Tensor:
    r"""Returns, for each column, the share of pairs of a positive and another node that the score orders right.

    Shapes:
        - **score**, **positive:** :math:`(N, C)`, **output:** :math:`(C,)`, NaN where a pair is missing
    """
    score = score.T.contiguous()
    ordered, positive = score.sort(dim=1).values, positive.T
    rank = (torch.searchsorted(ordered, score) + torch.searchsorted(ordered, score, right=True) + 1) / 2  # mean of ties
    count = positive.sum(dim=1)
    return ((rank * positive).sum(dim=1) - count * (count + 1) / 2) / (count * (score.size(1) - count))


def f1(logits: Tensor, y: Tensor) -> Tensor:
    r"""Returns the mean over classes of :math:`F_1 = 2 t / (2 t + f)`, with :math:`t` nodes rightly given a class and
    :math:`f` wrongly given or refused it; classes that no node has and none is given are left out.

    Shapes:
        - **logits**, **y**, **output:** as in :func:`accuracy`
    """
    hits, misses = _hits_and_misses(logits, y)
    return (2 * hits / (2 * hits + misses)).nanmean()


def f1_micro(logits: Tensor, y: Tensor) -> Tensor:
    """Returns :math:`F_1` of all classes counted together; shapes as in :func:`accuracy`."""
    hits, misses = _hits_and_misses(logits, y)
    return 2 * hits.sum() / (2 * hits.sum() + misses.sum())


def _hits_and_misses(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Counts, for each class (C,), the nodes rightly given it, and those wrongly given or refused it."""
    classes = logits.size(1)
    if y.dim() == 1:
        given, wanted = _indicator(logits.argmax(dim=1), classes), _indicator(y, classes)
    else:
        given, wanted = logits > 0, y > 0.5
    return (given & wanted).sum(dim=0).double(), (given != wanted).sum(dim=0).double()


def _indicator(y: Tensor, classes: int) -> Tensor:
    """Returns whether each node (N,) is of each class, (N, C)."""
    return y[:, None] == torch.arange(classes, device=y.device)


# Numbers


def mae(values: Tensor, y: Tensor) -> Tensor:
    r"""Returns the mean absolute error.

    Shapes:
        - **values**, **y:** :math:`(N,)`, **output:** a scalar tensor
    """
    return (values.double() - y.double()).abs().mean()


def rmse(values: Tensor, y: Tensor) -> Tensor:
    """Returns the root of the mean squared error; shapes as in :func:`mae`."""
    return (values.double() - y.double()).square().mean().sqrt()


def r2(values: Tensor, y: Tensor) -> Tensor:
    r"""Returns the share of the variance that is explained, :math:`1 - \sum (y - v)^2 / \sum (y - \bar y)^2`; shapes as in
    :func:`mae`."""
    y = y.double()
    return 1 - (values.double() - y).square().sum() / (y - y.mean()).square().sum()


# By name


class Metric(NamedTuple):
    """A metric, how tables call it, whether larger values are better, and what it is multiplied by in tables."""

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
    """Returns the metric of that name."""
    if name not in METRICS:
        raise ValueError(f"metric is {name!r}; allowed: {', '.join(METRICS)}")
    return METRICS[name]


def metric(name: str, outputs: Tensor, y: Tensor) -> Tensor:
    """Computes the metric of that name; shapes as in :func:`accuracy` and :func:`mae`."""
    return find_metric(name).function(outputs, y)


def goodness(name: str, value: float) -> float:
    """Returns what orders values of a metric, larger for better; a value that is NaN, as of no nodes, is the worst."""
    if math.isnan(value):
        return -math.inf
    return value if find_metric(name).larger_is_better else -value


def confusion(predicted: Tensor, y: Tensor, classes: int) -> Tensor:
    r"""Counts how often nodes of each class (row) were predicted as each class (column).

    Shapes:
        - **predicted:** :math:`(N,)`, **y:** :math:`(N,)`, **output:** :math:`(C, C)`
    """
    return torch.bincount(y * classes + predicted, minlength=classes * classes).reshape(classes, classes)


def mean_and_deviation(values: list[float]) -> tuple[float, float]:
    """Returns the mean and the population standard deviation (divided by the number of values)."""
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
