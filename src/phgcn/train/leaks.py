r"""Finds features that give the label away: a copy of it, or a column that determines it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from ..data.encode import indicator_names
from ..data.labels import task_of

MOST_NODES = 4000
"""Training nodes that are looked at, drawn at random."""

FEWEST_NODES = 20
"""Fewer training nodes can be told apart by almost any column."""

MOST_COLUMNS = 2000
"""Wider tables are not looked at."""

RIGHT = 0.98
"""Share of nodes, or of the variance of numbers, that a column must predict."""

LEFT_OVER = 0.2
"""Share of the errors of the commonest class that a column may make at most."""

Array = NDArray[Any]


def describe_leaks(data: Data, train: Tensor) -> list[str]:
    """Returns a warning for each column that alone predicts the label of nearly all training nodes.

    Half of the training nodes are predicted from the nearest value of the other half, so that ids do not count.

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
    found = []
    for name, column in _columns(data, x.numpy()):
        share = _share_of_variance(column, labels) if numbers else _share_right(column, labels)
        if share is not None:
            found.append(
                f"warning: the feature {name} alone predicts {100 * share:.0f} % of the label; if it is not known before "
                f"the label is, leave it out with --features"
            )
    return found


def _labels(y: Tensor) -> tuple[Array, bool]:
    """Returns labels as numbers of classes, or as they are and :obj:`True` if they are numbers."""
    if task_of(y) == "regression":
        return y.double().numpy(), True
    return np.unique(y.numpy(), axis=0, return_inverse=True)[1].reshape(-1), False


def _columns(data: Data, x: Array) -> list[tuple[str, Array]]:
    """Returns the columns of the table by name; a column of categories as the number of each node's category."""
    names = list(data.feature_names) if "feature_names" in data else [str(number) for number in range(x.shape[1])]
    columns = {name: x[:, number] for number, name in enumerate(names)}
    for column, levels in (data.feature_levels if "feature_levels" in data else {}).items():
        parts = [columns.pop(name) for name in indicator_names(column, levels)]
        columns[column] = np.stack(parts, axis=1).argmax(axis=1) if parts else np.zeros(len(x))
    return list(columns.items())


def _share_right(column: Array, labels: Array) -> float | None:
    """Returns the share of classes that a column predicts; :obj:`None` if that is no more than other columns may do."""
    values, groups = np.unique(_half(column, 0), return_inverse=True)
    counts = np.zeros((len(values), int(labels.max()) + 1), np.int32)
    np.add.at(counts, (groups.reshape(-1), _half(labels, 0)), 1)
    predicted = counts.argmax(axis=1)[_nearest(values, _half(column, 1))]
    truth = _half(labels, 1)
    right, common = float((predicted == truth).mean()), float(np.bincount(truth).max()) / len(truth)
    return right if right >= RIGHT and 1 - right <= LEFT_OVER * (1 - common) else None


def _share_of_variance(column: Array, labels: Array) -> float | None:
    """Returns the share of the variance of numbers that a column explains; :obj:`None` if that is not nearly all."""
    values, groups = np.unique(_half(column, 0), return_inverse=True)
    sums = np.bincount(groups.reshape(-1), _half(labels, 0)) / np.bincount(groups.reshape(-1))
    truth = _half(labels, 1)
    error = np.square(sums[_nearest(values, _half(column, 1))] - truth).sum()
    share = 1 - float(error / max(float(np.square(truth - truth.mean()).sum()), 1e-30))
    return share if share >= RIGHT else None


def _half(values: Array, which: int) -> Array:
    return values[which::2]


def _nearest(values: Array, wanted: Array) -> Array:
    """Returns the position of the nearest of some sorted values, for each wanted one; NaN is nearest to NaN."""
    right = np.searchsorted(values, wanted).clip(max=len(values) - 1)
    left = (right - 1).clip(min=0)
    with np.errstate(invalid="ignore"):
        closer_left = np.abs(wanted - values[left]) < np.abs(values[right] - wanted)
    return np.where(closer_left, left, right)
