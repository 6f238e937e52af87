"""Labels and attention in the forms of users."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Target(NamedTuple):
    """One node that another attends to.

    Args:
        path (str): ``"local"``, to a neighbour, or ``"global"``, to any node.
        layer (str): ``"layer-0"``; of ``global-gnn`` ``"local-0"`` or ``"global-0"``.
        head (int): The head.
        target (str): The id of the node that is attended to.
        weight (float): Its share of the attention of this path, layer and head.
    """

    path: str
    layer: str
    head: int
    target: str
    weight: float


class EncodedLabels(NamedTuple):
    """Labels as a graph has them (:mod:`phgcn.data.labels`), and the classes in the user's type."""

    y: Tensor
    classes: NDArray[Any]


def encode_labels(labels: Any, ids: list[str], task: str, index: Any = None) -> EncodedLabels:
    """Converts labels (N,) or (N, C), in the nodes' order or as pandas by ids, for a task. Missing
    are :obj:`None`, NaN, an empty text and, of integers, -1. Labels with the ``index`` of the frame
    of nodes are in the nodes' order."""
    if index is not None and index.equals(getattr(labels, "index", None)):
        labels = labels.to_numpy()
    values = _in_order(labels, ids)
    if len(values) != len(ids):
        raise ValueError(f"y has {len(values)} entries; allowed: {len(ids)}, one per node")
    if task == "regression":
        return EncodedLabels(torch.from_numpy(_numbers(values)), np.array([]))
    if task == "multilabel":
        return EncodedLabels(torch.from_numpy(_numbers(values)), np.arange(values.shape[1]))
    missing = np.array([_is_missing(value) for value in values.tolist()], dtype=bool)
    classes, numbers = _number_classes(values[~missing])
    y = np.full(len(values), -1, np.int64)
    y[~missing] = numbers
    return EncodedLabels(torch.from_numpy(y), classes)


def class_names(classes: NDArray[Any]) -> list[str]:
    return [str(value) for value in classes.tolist()]


def _in_order(labels: Any, ids: list[str]) -> NDArray[Any]:
    """Returns labels in the order of nodes, of a series or frame by its index."""
    if not (hasattr(labels, "reindex") and hasattr(labels, "index")):
        array = labels.numpy() if isinstance(labels, Tensor) else np.asarray(labels)
        if array.ndim not in (1, 2):
            allowed = "one label per node, or a row of 0 and 1"
            raise ValueError(f"y has shape {array.shape}; allowed: {allowed}")
        return array
    by_id = labels.set_axis(labels.index.map(str), axis=0)
    unknown = sorted(set(by_id.index) - set(ids))
    if unknown:
        allowed = f"ids of nodes, such as {ids[0]!r}"
        raise ValueError(f"y has the node {unknown[0]!r}; allowed: {allowed}")
    found: NDArray[Any] = by_id.reindex(ids).to_numpy()
    return found


def _numbers(values: NDArray[Any]) -> NDArray[np.float32]:
    try:
        return np.array(values, dtype=np.float32)
    except (TypeError, ValueError):
        allowed = "numbers, NaN for a node without one"
        raise ValueError(f"y is not all numbers; allowed: {allowed}") from None


def _is_missing(value: Any) -> bool:
    if value is None or value == "" or value != value:  # NaN is the one value that is not itself
        return True
    return isinstance(value, int) and not isinstance(value, bool) and value == -1


def _number_classes(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Returns the classes in order, and the number of each value. Whole floats, as pandas makes of
    integers with gaps, are integers."""
    plain = values.tolist()
    if all(isinstance(value, float) and value.is_integer() for value in plain):
        plain = [int(value) for value in plain]
    kinds = {type(value).__name__ for value in plain}
    if len(kinds) > 1:
        raise ValueError(f"y mixes {' and '.join(sorted(kinds))}; allowed: labels of one type")
    if kinds == {"float"}:
        raise ValueError("y is numbers with decimals; allowed: classes, or NodeRegressor")
    classes, numbers = np.unique(np.array(plain), return_inverse=True)
    return classes, numbers.astype(np.int64)
