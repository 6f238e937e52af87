r"""Metrics of predictions: accuracy, ROC AUC, and the confusion matrix."""

from __future__ import annotations

import math

import torch
from torch import Tensor

METRICS = ("accuracy", "roc_auc")


def accuracy(logits: Tensor, y: Tensor) -> float:
    r"""Returns the fraction of nodes whose largest logit is that of their class; NaN without nodes.

    Shapes:
        - **logits:** :math:`(N, C)`, **y:** :math:`(N,)`
    """
    return float(hits(logits, y)) / len(y) if len(y) else math.nan


def hits(logits: Tensor, y: Tensor) -> Tensor:
    r"""Counts the nodes whose largest logit is that of their class, without reading from the device.

    Shapes:
        - **logits:** :math:`(N, C)`, **y:** :math:`(N,)`, **output:** a scalar tensor
    """
    return (logits.argmax(dim=1) == y).sum()


def roc_auc(logits: Tensor, y: Tensor) -> float:
    r"""Returns the area under the ROC curve of two classes: the probability that a node of class 1 has a larger score
    :math:`z_1 - z_0` than one of class 0, ties counted half.  NaN if a class has no node.

    Shapes:
        - **logits:** :math:`(N, 2)`, **y:** :math:`(N,)`
    """
    if logits.size(1) != 2:
        raise ValueError(f"logits has {logits.size(1)} columns; allowed: 2, since ROC AUC is for two classes")
    from scipy.stats import rankdata

    positive = int(y.sum())
    pairs = positive * (len(y) - positive)
    if pairs == 0:
        return math.nan
    score = logits[:, 1].double() - logits[:, 0].double()
    ranks = torch.from_numpy(rankdata(score.cpu().numpy()))
    return float(ranks[y.cpu().bool()].sum() - positive * (positive + 1) / 2) / pairs


def metric(name: str, logits: Tensor, y: Tensor) -> float:
    """Computes the metric of that name, one of :data:`METRICS`; shapes as in :func:`accuracy`."""
    if name not in METRICS:
        raise ValueError(f"metric is {name!r}; allowed: {', '.join(METRICS)}")
    return accuracy(logits, y) if name == "accuracy" else roc_auc(logits, y)


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
