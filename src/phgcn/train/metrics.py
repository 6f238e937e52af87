r"""Metrics of predictions: accuracy, ROC AUC, and the confusion matrix."""

from __future__ import annotations

import math

import torch
from torch import Tensor

METRICS = ("accuracy", "roc_auc")


def accuracy(logits: Tensor, y: Tensor) -> Tensor:
    r"""Returns the fraction of nodes whose largest logit is that of their class; NaN without nodes.

    Shapes:
        - **logits:** :math:`(N, C)`, **y:** :math:`(N,)`, **output:** a scalar tensor
    """
    return (logits.argmax(dim=1) == y).sum().double() / len(y)


def roc_auc(logits: Tensor, y: Tensor) -> Tensor:
    r"""Returns the area under the ROC curve of two classes: the probability that a node of class 1 has a larger score
    :math:`z_1 - z_0` than one of class 0, ties counted half.  NaN if a class has no node.

    Shapes:
        - **logits:** :math:`(N, 2)`, **y:** :math:`(N,)`, **output:** a scalar tensor
    """
    if logits.size(1) != 2:
        raise ValueError(f"logits has {logits.size(1)} columns; allowed: 2, since ROC AUC is for two classes")
    score, positive = logits[:, 1].double() - logits[:, 0].double(), y.double()
    ordered = score.sort().values
    rank = (torch.searchsorted(ordered, score) + torch.searchsorted(ordered, score, right=True) + 1) / 2  # mean of ties
    count = positive.sum()
    return ((rank * positive).sum() - count * (count + 1) / 2) / (count * (len(y) - count))


_FUNCTIONS = {"accuracy": accuracy, "roc_auc": roc_auc}


def metric(name: str, logits: Tensor, y: Tensor) -> Tensor:
    """Computes the metric of that name, one of :data:`METRICS`, without reading from the device; shapes as in
    :func:`accuracy`."""
    if name not in METRICS:
        raise ValueError(f"metric is {name!r}; allowed: {', '.join(METRICS)}")
    return _FUNCTIONS[name](logits, y)


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
