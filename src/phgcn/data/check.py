"""Checks a graph from a file of any format.

Every reader fills an :class:`ArrayGraph`. :func:`check_graph` raises a :class:`GraphFileError` of
one line that names the file, the row, the column and the allowed values. :class:`Faults` collects
the errors of a file for one answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..text import printable

Array = NDArray[Any]  # an array as a file holds it: of any type until it is checked

# a :class:`numpy.ndarray` or a :class:`scipy.sparse.csr_matrix`, which has no type stubs
Features = Any

UNLABELLED = -1


class GraphFileError(ValueError):
    """A graph file that is missing, damaged or wrong. Its text is one line naming file, row and
    column.

    Attributes:
        lines (list of str): One line for each kind of fault.
    """

    def __init__(self, text: str, lines: list[str] | None = None) -> None:
        super().__init__(text)
        self.lines = [text] if lines is None else lines


@dataclass
class ArrayGraph:
    """A graph of N nodes and E edges as arrays, as in a file. Missing parts are empty."""

    path: Path
    features: Features  # (N, F)
    labels: Array  # classes, numbers or several labels per node, see phgcn.data.labels
    edges: Array  # (E, 2), rows of source and target
    masks: dict[str, Array] = field(default_factory=dict)  # MASKS, one row per split, (K, N) each
    ids: list[str] = field(default_factory=list)  # the names of the nodes
    classes: list[str] = field(default_factory=list)  # the names of the classes
    names: dict[str, str] = field(default_factory=dict)  # what the file calls parts, for messages
    task: str | None = None  # what the labels are for; None before it is chosen
    reason: str = ""  # what the task was chosen by
    edge_weight: Array | None = None  # (E,)
    edge_attr: Array | None = None  # (E, K)
    feature_names: list[str] = field(default_factory=list)
    feature_columns: list[str] = field(default_factory=list)  # columns of the table of features
    levels: dict[str, list[str]] = field(default_factory=dict)  # categories of feature_columns
    edge_columns: list[str] = field(default_factory=list)  # columns of the table of edge_attr
    edge_levels: dict[str, list[str]] = field(default_factory=dict)  # categories of edge_columns
    missing_texts: dict[str, int] = field(default_factory=dict)  # empty cells by column of names
    may_miss: bool = False  # whether NaN stands for a missing feature; else it is refused
    notes: list[str] = field(default_factory=list)  # what is worth telling about the file

    def name_of(self, part: str) -> str:
        """Returns the file's name for a part of the graph."""
        return self.names.get(part, part)

    def error(
        self, part: str, what: str, allowed: str, row: int | None = None, column: int | None = None
    ) -> GraphFileError:
        """Makes the error about a part of the graph, see :func:`bad`."""
        return bad(self.path, f"{self.name_of(part)} {what}", allowed, row=row, column=column)


MASKS = ("train_masks", "val_masks", "test_masks")

# what is allowed in the place of NaN, of infinity, and of numbers beyond float32
FINITE = "finite float32 numbers"


def short(value: object) -> str:
    """Formats a value for a message: on one line, at most 60 characters."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 60 else text[:57] + "..."


def bad(
    path: Path | str,
    what: str,
    allowed: str = "",
    *,
    row: int | None = None,
    column: int | str | None = None,
) -> GraphFileError:
    """Makes the error ``file, row R, column C: what; allowed: ...``."""
    location = [str(path)]
    if row is not None:
        location.append(f"row {row}")
    if column is not None:
        location.append(f"column {column}")
    text = f"{', '.join(location)}: {what}" + (f"; allowed: {allowed}" if allowed else "")
    return GraphFileError(printable(text))


def check_graph(graph: ArrayGraph) -> ArrayGraph:
    """Checks a graph, and converts it in place to the types of training."""
    graph.features = _check_features(graph)
    nodes, features = graph.features.shape
    graph.labels = _check_labels(graph, nodes)
    graph.edges = _check_edges(graph, nodes)
    graph.edge_weight = _check_edge_values(graph, "edge_weight", dimensions=1)
    graph.edge_attr = _check_edge_values(graph, "edge_attr", dimensions=2)
    graph.masks = _check_masks(graph, nodes)
    _check_count(graph, "ids", graph.ids, nodes, "one per node")
    _check_count(graph, "feature_names", graph.feature_names, features, "one per feature")
    for part in ("ids", "classes", "feature_names"):
        _check_names(graph, part)
    return graph


def is_number(dtype: np.dtype[Any]) -> bool:
    """Returns whether features can have this type: bool, integers, or floats of at most 64 bits."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def _to_float32(values: Any) -> Any:
    with np.errstate(over="ignore"):  # numbers beyond float32 become infinite, which are refused
        return values.astype(np.float32)


def _check_features(graph: ArrayGraph) -> Features:
    features = graph.features
    if features.ndim != 2:
        raise graph.error("features", f"has shape {features.shape}", "(nodes, features)")
    if features.shape[0] == 0:
        raise graph.error("features", "has no rows", "at least one node")
    if features.shape[1] == 0:
        raise graph.error("features", "has no columns", "at least one feature")
    if not is_number(features.dtype):
        raise graph.error("features", f"is {features.dtype}", "bool, integers or floats")
    converted = _to_float32(features)
    stored = converted.data if sparse.issparse(converted) else converted.reshape(-1)
    refused = np.isinf(stored) if graph.may_miss else ~np.isfinite(stored)
    if refused.any():
        entry = int(np.argmax(refused))
        if sparse.issparse(features):
            entries = features.tocoo()
            row, column, value = entries.row[entry], entries.col[entry], entries.data[entry]
        else:
            row, column = divmod(entry, features.shape[1])
            value = features[row, column]
        raise graph.error("features", f"is {short(value)}", FINITE, row, column)
    return converted


# Labels


def _check_labels(graph: ArrayGraph, nodes: int) -> Array:
    """Returns the labels in the type of their task, by default chosen from type and shape."""
    labels = graph.labels
    several = labels.ndim == 2 and labels.shape[1] > 1
    if labels.shape != (nodes,) and not (several and len(labels) == nodes):
        allowed = f"({nodes},), one per node, or ({nodes}, labels)"
        raise graph.error("labels", f"has shape {labels.shape}", allowed)
    if graph.task is None:
        one_each = "regression" if labels.dtype.kind == "f" else "classification"
        graph.task = "multilabel" if several else one_each
        if graph.task == "regression" and _all_whole(labels):
            numbers = "--task regression (Python: task='regression')"
            allowed = f"integers for classes; with decimals, or with {numbers}, they are numbers"
            raise graph.error("labels", f"is {labels.dtype}", allowed)
        graph.reason = f"labels are {_REASONS[graph.task]}"
    elif (graph.task == "multilabel") != several:
        allowed = f"that of labels for {graph.task}"
        raise graph.error("labels", f"has shape {labels.shape}", allowed)
    return _LABELS[graph.task](graph)


def _all_whole(labels: Array) -> bool:
    known = labels[np.isfinite(labels)]
    return bool((known == np.floor(known)).all())


def _check_numbers(graph: ArrayGraph) -> NDArray[np.float32]:
    """Returns labels that are numbers as float32, NaN for a node without one."""
    labels = graph.labels
    if not is_number(labels.dtype):
        raise graph.error("labels", f"is {labels.dtype}", "integers or floats")
    numbers: NDArray[np.float32] = _to_float32(labels)
    if np.isinf(numbers).any():
        row = int(np.argmax(np.isinf(numbers)))
        raise graph.error("labels", f"is {short(labels[row])}", FINITE, row)
    return numbers


def _check_sets(graph: ArrayGraph) -> NDArray[np.float32]:
    """Returns sets of labels as 0 and 1, float32, a row of NaN where nothing is known."""
    labels = graph.labels
    if not is_number(labels.dtype):
        raise graph.error("labels", f"is {labels.dtype}", "bool, or 0 and 1")
    sets = labels.astype(np.float32)
    wrong = (sets != 0) & (sets != 1) & ~np.isnan(sets).all(axis=1, keepdims=True)
    if wrong.any():
        row, column = divmod(int(np.argmax(wrong)), sets.shape[1])
        allowed = "0 or 1, or NaN in all of a row"
        raise graph.error("labels", f"is {short(labels[row, column])}", allowed, row, column)
    if graph.classes and len(graph.classes) != sets.shape[1]:
        allowed = f"{len(graph.classes)}, the number of {graph.name_of('classes')}"
        raise graph.error("labels", f"has {sets.shape[1]} columns", allowed)
    return sets


def _check_classes(graph: ArrayGraph) -> NDArray[np.int64]:
    """Returns classes as int64. Without class names, every number up to the largest must occur."""
    labels = graph.labels
    if labels.dtype.kind not in "iu":
        raise graph.error("labels", f"is {labels.dtype}", "integers")
    if graph.classes:
        limit, limited_by = len(graph.classes), f"the number of {graph.name_of('classes')}"
    else:
        limit, limited_by = len(labels), "the number of nodes"
    if int(labels.max()) >= limit:  # this refuses numbers beyond int64 too
        row = int(np.argmax(labels))
        raise graph.error("labels", f"is {labels[row]}", f"less than {limit}, {limited_by}", row)
    labels = labels.astype(np.int64)
    if (labels < UNLABELLED).any():
        row = int(np.argmax(labels < UNLABELLED))
        raise graph.error("labels", f"is {labels[row]}", "0, 1, 2, ...", row)
    sizes = np.bincount(labels[labels >= 0])
    if not graph.classes and (sizes == 0).any():
        what = f"goes up to {len(sizes) - 1} but no node has label {int(np.argmin(sizes))}"
        raise graph.error("labels", what, "every number from 0 to the largest occurs")
    return labels


_LABELS: dict[str, Callable[[ArrayGraph], Array]] = {
    "classification": _check_classes,
    "regression": _check_numbers,
    "multilabel": _check_sets,
}
_REASONS = {
    "classification": "whole numbers",
    "regression": "numbers with decimals",
    "multilabel": "several columns",
}


# Edges


def _check_edges(graph: ArrayGraph, nodes: int) -> NDArray[np.int64]:
    edges = graph.edges
    if edges.ndim != 2 or edges.shape[1] != 2:
        hint = " (it lies on its side)" if edges.ndim == 2 and edges.shape[0] == 2 else ""
        allowed = "(edges, 2), rows of source and target"
        raise graph.error("edges", f"has shape {edges.shape}{hint}", allowed)
    if edges.dtype.kind not in "iu":
        raise graph.error("edges", f"is {edges.dtype}", "integers")
    outside = (edges < 0) | (edges >= nodes)
    if outside.any():
        row, column = divmod(int(np.argmax(outside)), 2)
        allowed = f"0 to {nodes - 1}, the nodes"
        raise graph.error("edges", f"is {edges[row, column]}", allowed, row, column)
    return np.ascontiguousarray(edges, dtype=np.int64)


def _check_edge_values(graph: ArrayGraph, part: str, dimensions: int) -> NDArray[np.float32] | None:
    """Returns weights (E,) or features (E, K) of edges as float32, all finite."""
    values, edges = getattr(graph, part), len(graph.edges)
    if values is None:
        return None
    if values.ndim != dimensions or len(values) != edges or 0 in values.shape[1:]:
        wanted = f"({edges},)" if dimensions == 1 else f"({edges}, features)"
        raise graph.error(part, f"has shape {values.shape}", f"{wanted}, one row per edge")
    if not is_number(values.dtype):
        raise graph.error(part, f"is {values.dtype}", "bool, integers or floats")
    converted: NDArray[np.float32] = _to_float32(values)
    finite = np.isfinite(converted).all(axis=tuple(range(1, dimensions)))
    if not finite.all():
        row = int(np.argmin(finite))
        raise graph.error(part, f"is {short(values[row].tolist())}", FINITE, row)
    return converted


# Masks


def _check_masks(graph: ArrayGraph, nodes: int) -> dict[str, NDArray[np.bool_]]:
    """Checks that there are three masks of equal shape or none, without common nodes."""
    masks = graph.masks
    if not masks:
        return {}
    for name in MASKS:
        if name not in masks:
            what = f"is missing though {graph.name_of(next(iter(masks)))} is there"
            raise graph.error(name, what, "all three")
    first = masks[MASKS[0]]
    for name in MASKS:
        mask = masks[name]
        if mask.dtype != np.bool_:
            raise graph.error(name, f"is {mask.dtype}", "bool")
        if mask.ndim != 2 or mask.shape[1] != nodes or mask.shape[0] == 0:
            allowed = f"(splits, {nodes}), a row per split"
            raise graph.error(name, f"has shape {mask.shape}", allowed)
        if mask.shape != first.shape:
            allowed = f"{len(first)}, as {graph.name_of(MASKS[0])}"
            raise graph.error(name, f"has {len(mask)} splits", allowed)
        if not mask.any(axis=1).all():
            split = int(np.argmin(mask.any(axis=1)))
            raise graph.error(name, "holds no node", "at least one in every split", split)
    for one, other in combinations(MASKS, 2):
        in_both = masks[one] & masks[other]
        if in_both.any():
            split, node = divmod(int(np.argmax(in_both)), nodes)
            what = f"node {node} is in both {graph.name_of(one)} and {graph.name_of(other)}"
            raise bad(graph.path, what, "one mask per node and split", row=split, column=node)
    return masks


# Names


def _check_count(graph: ArrayGraph, part: str, names: list[str], count: int, unit: str) -> None:
    if names and len(names) != count:
        raise graph.error(part, f"has {len(names)} entries", f"{count}, {unit}")


def _check_names(graph: ArrayGraph, part: str) -> None:
    """Refuses a repeated name, and half a letter of UTF-16, which no file in UTF-8 can hold."""
    seen: set[str] = set()
    for row, name in enumerate(getattr(graph, part)):
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            what = f"is {short(name)}, which holds a lone surrogate"
            raise graph.error(part, what, "text of whole letters", row)
        if name in seen:
            raise graph.error(part, f"is {short(name)} for the second time", "each once", row)
        seen.add(name)


MOST = 20  # faults that one answer names

# an option of the commands before its name in Python
OPTION = re.compile(r"`?--[^()`;]*`? \(Python: ([^()]*)\)")


class Faults:
    """The faults so far: the first of each kind, and the number of all. In those of frames, options
    have their names in Python only."""

    def __init__(self, of_frames: bool = False) -> None:
        self.of_frames = of_frames
        self.first: dict[str, GraphFileError] = {}
        self.counts: dict[str, int] = {}

    def add(self, kind: str, error: GraphFileError, count: int = 1) -> None:
        """Adds faults of a ``kind``, a text for their common cause."""
        self.first.setdefault(kind, error)
        self.counts[kind] = self.counts.get(kind, 0) + count

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Collects an error in this context instead of raising it."""
        try:
            yield
        except GraphFileError as error:
            for line in error.lines:
                self.add(line, GraphFileError(line))

    def raise_if_any(self) -> None:
        if not self.first:
            return
        lines = []
        for kind, error in self.first.items():
            more = self.counts[kind] - 1
            lines.append(f"{error}" + (f" (and {more:,} more)" if more else ""))
        if self.of_frames:
            lines = [OPTION.sub(r"\1", line) for line in lines]
        if len(lines) > MOST:
            lines = [*lines[:MOST], f"and {len(lines) - MOST} more kinds of faults"]
        raise GraphFileError(" // ".join(lines), lines)
