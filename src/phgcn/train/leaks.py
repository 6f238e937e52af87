"""Finds features that give the label away: a copy of it, or a column that determines it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor
from torch_geometric.data import Data

from ..data.encode import decode
from ..data.labels import task_of

MOST_NODES = 4000  # most training nodes in the test, drawn at random
FEWEST_NODES = 20  # least training nodes in the test: any column can predict fewer
MOST_COLUMNS = 2000  # most columns of a table in the test
RIGHT = 0.98  # least share of nodes, or of the variance of ranks of numbers, that a leak predicts

# The same of a column with at most twice as many values as there are classes. In honest tables a
# column of many values can reach this (the petal width of iris 97 %).
RIGHT_CODE = 0.95

LEFT_OVER = 0.2  # most errors of a leak, as a share of the errors of the commonest class

Array = NDArray[Any]


def describe_leaks(data: Data, train: Tensor) -> list[str]:
    """Returns a sentence for each column that predicts the label of nearly all training nodes by
    itself.

    Half of the training nodes are predicted from the nearest values of the other half, numbers by
    interpolation between ranks: an id predicts nothing.

    Args:
        data (torch_geometric.data.Data): The graph.
        train (torch.Tensor): The indices of the training nodes.
    """
    if len(train) < FEWEST_NODES or data.x.size(1) > MOST_COLUMNS:
        return []
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:MOST_NODES]
    nodes = train.cpu()[order]
    x = data.x.to_dense()[nodes] if data.x.layout != torch.strided else data.x[nodes]
    labels, numbers = _labels(data.y[nodes])
    known = data.to_dict()
    names = known.get("feature_names", list(map(str, range(x.size(1)))))
    found = []
    # a node without a category is a kind of its own: a reason to leave is known of who left
    for name, column in decode(x.numpy(), names, known.get("feature_levels", {})).items():
        share = _share_of_variance(column, labels) if numbers else _share_right(column, labels)
        if share is not None:
            problem = f"the feature {name} alone predicts {100 * share:.0f} % of the label"
            found.append(f"{problem}; leave it out if it is not known before the label is")
    return found


def _labels(y: Tensor) -> tuple[Array, bool]:
    """Returns class indices and :obj:`False`, or ranks of numbers and :obj:`True`."""
    if task_of(y) == "regression":
        return rankdata(y.numpy()), True
    return np.unique(y.numpy(), axis=0, return_inverse=True)[1].reshape(-1), False


def _share_right(column: Array, labels: Array) -> float | None:
    """Returns the share of classes that a column predicts, :obj:`None` if it is no leak."""
    values, groups = np.unique(_half(column, 0), return_inverse=True)
    counts = np.zeros((len(values), int(labels.max()) + 1), np.int32)
    np.add.at(counts, (groups.reshape(-1), _half(labels, 0)), 1)
    predicted = counts.argmax(axis=1)[_nearest(values, _half(column, 1))]
    truth = _half(labels, 1)
    right, common = float((predicted == truth).mean()), float(np.bincount(truth).max()) / len(truth)
    few_errors = right > common and 1 - right <= LEFT_OVER * (1 - common)
    least = RIGHT_CODE if len(values) <= 2 * (labels.max() + 1) else RIGHT
    return right if right >= least and few_errors else None


def _share_of_variance(column: Array, labels: Array) -> float | None:
    """Returns the share of ranks' variance that a column explains, or :obj:`None`."""
    ranks = np.unique(column, return_inverse=True)[1].reshape(-1)
    values, groups = np.unique(_half(ranks, 0), return_inverse=True)
    means = np.bincount(groups.reshape(-1), _half(labels, 0)) / np.bincount(groups.reshape(-1))
    truth = _half(labels, 1)
    error = np.square(np.interp(_half(ranks, 1), values, means) - truth).sum()
    share = 1 - float(error / max(float(np.square(truth - truth.mean()).sum()), 1e-30))
    return share if share >= RIGHT else None


def _half(values: Array, which: int) -> Array:
    return values[which::2]


def _nearest(values: Array, queries: Array) -> Array:
    """Returns the index of the nearest sorted value for each query; NaN is nearest to NaN."""
    right = np.searchsorted(values, queries).clip(max=len(values) - 1)
    left = (right - 1).clip(min=0)
    with np.errstate(invalid="ignore"):
        closer_left = np.abs(queries - values[left]) < np.abs(values[right] - queries)
    return np.where(closer_left, left, right)
