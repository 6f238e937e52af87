r"""Checks a graph read from a file, whichever format it came in.

Every reader fills an :class:`ArrayGraph`; :func:`check_graph` raises a :class:`GraphFileError` of one line that names the
file, the row, the column and what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..text import printable

Array = NDArray[Any]
"""An array as a file holds it: of any type until it is checked."""

Features = Any
"""A :class:`numpy.ndarray` or a :class:`scipy.sparse.csr_matrix`, which has no type stubs."""

UNLABELLED = -1


class GraphFileError(ValueError):
    """A graph file that is missing, damaged or wrong.  Its text is one line naming file, row and column.

    Attributes:
        lines (list of str): One line for each kind of fault.
    """

    def __init__(self, text: str, lines: list[str] | None = None) -> None:
        super().__init__(text)
        self.lines = [text] if lines is None else lines


@dataclass
class ArrayGraph:
    r"""A graph as arrays, as a file holds it.

    Args:
        path (Path): The file that it was read from.
        features (numpy.ndarray or scipy.sparse.csr_matrix): One row per node, :math:`(N, F)`.
        labels (numpy.ndarray): Classes, numbers or several labels per node, see :mod:`phgcn.data.labels`.
        edges (numpy.ndarray): Rows of source and target, :math:`(E, 2)`.
        masks (dict): ``train_masks``, ``val_masks``, ``test_masks``, one row per public split, :math:`(K, N)` each; empty
            without public splits.
        ids (list[str]): The names of the nodes; empty if they have none.
        classes (list[str]): The names of the classes; empty if they have none.
        names (dict): What the file calls ``features``, ``labels``, ``edges``, for messages.
        task (str, optional): What the labels are for; :obj:`None` before it is chosen. (default: :obj:`None`)
        reason (str): What it was chosen by.
        edge_weight (numpy.ndarray, optional): The weight of each edge, :math:`(E,)`. (default: :obj:`None`)
        edge_attr (numpy.ndarray, optional): The features of each edge, :math:`(E, K)`. (default: :obj:`None`)
        feature_names (list[str]): The names of the features; empty if they have none.
        feature_columns (list[str]): The columns of the table that they were read from; empty if there was none.
        levels, edge_levels (dict): The categories of those columns, and of ``edge_columns``, that hold names.
        edge_columns (list[str]): The columns that ``edge_attr`` was read from.
        missing_texts (dict): How many cells of each column of names are empty.
        may_miss (bool): Whether NaN stands for a missing feature; else it is refused. (default: :obj:`False`)
        notes (list[str]): What is worth telling about the file.
    """

    path: Path
    features: Features
    labels: Array
    edges: Array
    masks: dict[str, Array] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    task: str | None = None
    reason: str = ""
    edge_weight: Array | None = None
    edge_attr: Array | None = None
    feature_names: list[str] = field(default_factory=list)
    feature_columns: list[str] = field(default_factory=list)
    levels: dict[str, list[str]] = field(default_factory=dict)
    edge_columns: list[str] = field(default_factory=list)
    edge_levels: dict[str, list[str]] = field(default_factory=dict)
    missing_texts: dict[str, int] = field(default_factory=dict)
    may_miss: bool = False
    notes: list[str] = field(default_factory=list)

    def name_of(self, part: str) -> str:
        """Returns what the file calls a part of the graph."""
        return self.names.get(part, part)


MASKS = ("train_masks", "val_masks", "test_masks")


def short(value: object) -> str:
    """Formats a value for a message: on one line, at most 60 characters."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 60 else text[:57] + "..."


def bad(
    path: Path | str, what: str, *, row: int | str | None = None, column: int | str | None = None, allowed: str = ""
) -> GraphFileError:
    """Makes the error to raise: ``file, row R, column C: what; allowed: ...``."""
    location = [str(path)]
    if row is not None:
        location.append(f"row {row}")
    if column is not None:
        location.append(f"column {column}")
    text = f"{', '.join(location)}: {what}" + (f"; allowed: {allowed}" if allowed else "")
    return GraphFileError(printable(text))


def check_graph(graph: ArrayGraph) -> ArrayGraph:
    """Converts a graph, in place, to the types that we compute with; raises a :class:`GraphFileError` if it is wrong."""
    graph.features = _check_features(graph)
    count = graph.features.shape[0]
    graph.labels = _check_labels(graph, count)
    graph.edges = _check_edges(graph, count)
    for part in ("edge_weight", "edge_attr"):
        setattr(graph, part, _check_edge_values(graph, part))
    graph.masks = _check_masks(graph, count)
    if graph.ids and len(graph.ids) != count:
        raise bad(graph.path, f"{graph.name_of('ids')} has {len(graph.ids)} entries", allowed=f"{count}, one per node")
    if graph.feature_names and len(graph.feature_names) != graph.features.shape[1]:
        allowed = f"{graph.features.shape[1]}, one per feature"
        raise bad(graph.path, f"{graph.name_of('feature_names')} has {len(graph.feature_names)} entries", allowed=allowed)
    for part, names in (("ids", graph.ids), ("classes", graph.classes), ("feature_names", graph.feature_names)):
        _refuse_lone_surrogates(names, graph.path, graph.name_of(part))
        _refuse_duplicates(names, graph.path, graph.name_of(part))
    return graph


# Features


def _check_features(graph: ArrayGraph) -> Features:
    """Returns the features as float32."""
    features, name, path = graph.features, graph.name_of("features"), graph.path
    if features.ndim != 2:
        raise bad(path, f"{name} has shape {features.shape}", allowed="(nodes, features)")
    if features.shape[0] == 0:
        raise bad(path, f"{name} has no rows", allowed="at least one node")
    if features.shape[1] == 0:
        raise bad(path, f"{name} has no columns", allowed="at least one feature")
    if not is_number(features.dtype):
        raise bad(path, f"{name} is {features.dtype}", allowed="bool, integers or floats")
    with np.errstate(over="ignore"):  # numbers beyond float32 become infinite and are refused below
        converted = features.astype(np.float32)
    flat = converted.data if sparse.issparse(converted) else converted.reshape(-1)
    finite = ~np.isinf(flat) if graph.may_miss else np.isfinite(flat)
    if not finite.all():
        entry = int(np.argmin(finite))
        if sparse.issparse(features):
            row, column = int(np.searchsorted(features.indptr, entry, side="right")) - 1, int(features.indices[entry])
            value = features.data[entry]
        else:
            row, column = divmod(entry, features.shape[1])
            value = features[row, column]
        raise bad(path, f"{name} is {short(value)}", row=row, column=column, allowed="finite float32 numbers")
    return converted


def is_number(dtype: np.dtype[Any]) -> bool:
    """Tells whether features can be of this type: bool, integers, or floats of at most 64 bits."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8


# Labels


def _check_labels(graph: ArrayGraph, count: int) -> Array:
    """Returns the labels in the type of their task, which is chosen by type and shape unless it is given."""
    labels, name = graph.labels, graph.name_of("labels")
    several = labels.ndim == 2 and labels.shape[1] > 1
    if labels.shape != (count,) and not (several and len(labels) == count):
        raise bad(graph.path, f"{name} has shape {labels.shape}", allowed=f"({count},), one per node, or ({count}, labels)")
    if graph.task is None:
        graph.task = "multilabel" if several else "regression" if labels.dtype.kind == "f" else "classification"
        if graph.task == "regression" and _all_whole(labels):
            allowed = "integers for classes; with decimals, or with --task regression, they are numbers"
            raise bad(graph.path, f"{name} is {labels.dtype}", allowed=allowed)
        graph.reason = f"labels are {_REASONS[graph.task]}"
    elif (graph.task == "multilabel") != several:
        raise bad(graph.path, f"{name} has shape {labels.shape}", allowed=f"that of labels for {graph.task}")
    return _LABELS[graph.task](graph, count)


def _all_whole(labels: Array) -> bool:
    known = labels[np.isfinite(labels)]
    return bool((known == np.floor(known)).all())


def _check_numbers(graph: ArrayGraph, count: int) -> NDArray[np.float32]:
    """Returns labels that are numbers as float32, NaN for a node without one."""
    labels, name = graph.labels, graph.name_of("labels")
    if not is_number(labels.dtype):
        raise bad(graph.path, f"{name} is {labels.dtype}", allowed="integers or floats")
    with np.errstate(over="ignore"):  # numbers beyond float32 become infinite and are refused below
        numbers = labels.astype(np.float32)
    if np.isinf(numbers).any():
        row = int(np.argmax(np.isinf(numbers)))
        raise bad(graph.path, f"{name} is {short(labels[row])}", row=row, allowed="finite float32 numbers")
    return numbers


def _check_sets(graph: ArrayGraph, count: int) -> NDArray[np.float32]:
    """Returns several labels per node as 0 and 1, float32, a row of NaN for a node without any knowledge."""
    labels, name = graph.labels, graph.name_of("labels")
    if not is_number(labels.dtype):
        raise bad(graph.path, f"{name} is {labels.dtype}", allowed="bool, or 0 and 1")
    sets = labels.astype(np.float32)
    wrong = (sets != 0) & (sets != 1) & ~np.isnan(sets).all(axis=1, keepdims=True)
    if wrong.any():
        row, column = divmod(int(np.argmax(wrong)), sets.shape[1])
        allowed = "0 or 1, or NaN in all of a row"
        raise bad(graph.path, f"{name} is {short(labels[row, column])}", row=row, column=column, allowed=allowed)
    if graph.classes and len(graph.classes) != sets.shape[1]:
        allowed = f"{len(graph.classes)}, the number of {graph.name_of('classes')}"
        raise bad(graph.path, f"{name} has {sets.shape[1]} columns", allowed=allowed)
    return sets


def _check_classes(graph: ArrayGraph, count: int) -> NDArray[np.int64]:
    """Returns classes as int64; without class names, every number up to the largest must occur."""
    labels, name, path = graph.labels, graph.name_of("labels"), graph.path
    if labels.dtype.kind not in "iu":
        raise bad(path, f"{name} is {labels.dtype}", allowed="integers")
    if count and int(labels.max()) >= count and not graph.classes:  # this refuses numbers beyond int64 too
        row = int(np.argmax(labels))
        raise bad(path, f"{name} is {labels[row]}", row=row, allowed=f"less than {count}, the number of nodes")
    labels = labels.astype(np.int64)
    if (labels < UNLABELLED).any():
        row = int(np.argmax(labels < UNLABELLED))
        raise bad(path, f"{name} is {labels[row]}", row=row, allowed="0, 1, 2, ...")
    if graph.classes:
        if labels.max() >= len(graph.classes):
            row = int(np.argmax(labels))
            allowed = f"less than {len(graph.classes)}, the number of {graph.name_of('classes')}"
            raise bad(path, f"{name} is {labels[row]}", row=row, allowed=allowed)
    else:
        sizes = np.bincount(labels[labels >= 0])
        if (sizes == 0).any():
            gap = int(np.argmin(sizes))
            allowed = "every number from 0 to the largest occurs"
            raise bad(path, f"{name} goes up to {len(sizes) - 1} but no node has label {gap}", allowed=allowed)
    return labels


_LABELS: dict[str, Callable[[ArrayGraph, int], Array]] = {
    "classification": _check_classes,
    "regression": _check_numbers,
    "multilabel": _check_sets,
}
_REASONS = {"classification": "whole numbers", "regression": "numbers with decimals", "multilabel": "several columns"}


# Edges


def _check_edges(graph: ArrayGraph, count: int) -> NDArray[np.int64]:
    """Returns the edges as int64, each between two nodes."""
    edges, name, path = graph.edges, graph.name_of("edges"), graph.path
    if edges.ndim != 2 or edges.shape[1] != 2:
        hint = " (it lies on its side)" if edges.ndim == 2 and edges.shape[0] == 2 else ""
        raise bad(path, f"{name} has shape {edges.shape}{hint}", allowed="(edges, 2), rows of source and target")
    if edges.dtype.kind not in "iu":
        raise bad(path, f"{name} is {edges.dtype}", allowed="integers")
    outside = (edges < 0) | (edges >= count)
    if outside.any():
        row, column = divmod(int(np.argmax(outside)), 2)
        raise bad(path, f"{name} is {edges[row, column]}", row=row, column=column, allowed=f"0 to {count - 1}, the nodes")
    return np.ascontiguousarray(edges, dtype=np.int64)


def _check_edge_values(graph: ArrayGraph, part: str) -> NDArray[np.float32] | None:
    """Returns weights (E,) or features (E, K) of edges as float32, all finite."""
    values, name, edges = getattr(graph, part), graph.name_of(part), len(graph.edges)
    if values is None:
        return None
    shape, wanted = values.shape, f"({edges},)" if part == "edge_weight" else f"({edges}, features)"
    if values.ndim != (1 if part == "edge_weight" else 2) or len(values) != edges or 0 in shape[1:]:
        raise bad(graph.path, f"{name} has shape {shape}", allowed=f"{wanted}, one row per edge")
    if not is_number(values.dtype):
        raise bad(graph.path, f"{name} is {values.dtype}", allowed="bool, integers or floats")
    with np.errstate(over="ignore"):  # numbers beyond float32 become infinite and are refused below
        converted: NDArray[np.float32] = values.astype(np.float32)
    finite = np.isfinite(converted).all(axis=tuple(range(1, values.ndim)))
    if not finite.all():
        row = int(np.argmin(finite))
        raise bad(graph.path, f"{name} is {short(values[row].tolist())}", row=row, allowed="finite float32 numbers")
    return converted


# Masks


def _check_masks(graph: ArrayGraph, count: int) -> dict[str, NDArray[np.bool_]]:
    """Checks that there are three masks of equal shape or none, and that no node is in two of a split."""
    masks, path = graph.masks, graph.path
    present = [name for name in MASKS if name in masks]
    if not present:
        return {}
    for name in MASKS:
        if name not in masks:
            what = f"{graph.name_of(name)} is missing though {graph.name_of(present[0])} is there"
            raise bad(path, what, allowed="all three")
    first = masks[MASKS[0]]
    for name in MASKS:
        mask, shown = masks[name], graph.name_of(name)
        if mask.dtype != np.bool_:
            raise bad(path, f"{shown} is {mask.dtype}", allowed="bool")
        if mask.ndim != 2 or mask.shape[1] != count or mask.shape[0] == 0:
            raise bad(path, f"{shown} has shape {mask.shape}", allowed=f"(splits, {count}), a row per split")
        if mask.shape != first.shape:
            raise bad(path, f"{shown} has {len(mask)} splits", allowed=f"{len(first)}, as {graph.name_of(MASKS[0])}")
        if not mask.any(axis=1).all():
            split = int(np.argmin(mask.any(axis=1)))
            raise bad(path, f"{shown} holds no node", row=split, allowed="at least one in every split")
    for one, other in ((0, 1), (0, 2), (1, 2)):
        in_both = masks[MASKS[one]] & masks[MASKS[other]]
        if in_both.any():
            split, node = divmod(int(np.argmax(in_both)), count)
            names = f"{graph.name_of(MASKS[one])} and {graph.name_of(MASKS[other])}"
            raise bad(path, f"node {node} is in both {names}", row=split, column=node, allowed="one mask per node and split")
    return masks


# Names


def _refuse_lone_surrogates(names: list[str], path: Path, what: str) -> None:
    """Refuses half a letter of UTF-16: no file in UTF-8, such as ``predictions.csv``, can hold it."""
    for row, name in enumerate(names):
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise bad(path, f"{what} is {short(name)}, which holds a lone surrogate", row=row, allowed="text of whole letters")


def _refuse_duplicates(names: list[str], path: Path, what: str) -> None:
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    for row, name in enumerate(names):
        if name in seen:
            raise bad(path, f"{what} is {short(name)} for the second time", row=row, allowed="each once")
        seen.add(name)
