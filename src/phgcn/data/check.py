r"""What a graph read from a file must satisfy, whichever format it came in.

Every reader fills an :class:`ArrayGraph`; :func:`checked` then refuses it with one line that names the file, the row, the
column and what is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Features = Any  # a numpy.ndarray or a scipy.sparse.csr_matrix
UNLABELLED = -1


class GraphFileError(ValueError):
    """A graph file that is missing, damaged or wrong.  Its text is one line naming file, row and column."""


@dataclass
class ArrayGraph:
    r"""A graph as arrays, as a file holds it.

    Args:
        path (Path): The file that it was read from.
        features (numpy.ndarray or scipy.sparse.csr_matrix): One row per node.
        labels (numpy.ndarray): A class per node, -1 for an unlabelled one.
        edges (numpy.ndarray): Rows of source and target.
        masks (dict): ``train_masks``, ``val_masks``, ``test_masks``, one row per public split; empty without public splits.
        ids (list[str]): The nodes' own names; empty where they have none.
        classes (list[str]): The classes' own names; empty where they have none.
        names (dict): What the file calls ``features``, ``labels``, ``edges``, for messages.
    """

    path: Path
    features: Features
    labels: NDArray
    edges: NDArray
    masks: dict[str, NDArray] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)

    def name_of(self, part: str) -> str:
        return self.names.get(part, part)


MASKS = ("train_masks", "val_masks", "test_masks")


def short(value: object) -> str:
    """A value in a message: on one line and not long."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 60 else text[:57] + "..."


def bad(
    path: Path | str, what: str, *, row: int | str | None = None, column: int | str | None = None, allowed: str = ""
) -> GraphFileError:
    """The error, ready to be raised: ``file, row R, column C: what; allowed: ...``."""
    place = [str(path)]
    if row is not None:
        place.append(f"row {row}")
    if column is not None:
        place.append(f"column {column}")
    text = f"{', '.join(place)}: {what}" + (f"; allowed: {allowed}" if allowed else "")
    return GraphFileError("".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split())))


def checked(graph: ArrayGraph) -> ArrayGraph:
    """The same graph in the types that we compute with, or a :class:`GraphFileError`."""
    graph.features = _checked_features(graph)
    count = graph.features.shape[0]
    graph.labels = _checked_labels(graph, count)
    graph.edges = _checked_edges(graph, count)
    graph.masks = _checked_masks(graph, count)
    if graph.ids and len(graph.ids) != count:
        raise bad(graph.path, f"{graph.name_of('ids')} has {len(graph.ids)} entries", allowed=f"{count}, one per node")
    _refuse_twice(graph.ids, graph.path, graph.name_of("ids"))
    _refuse_twice(graph.classes, graph.path, graph.name_of("classes"))
    return graph


# Features


def _checked_features(graph: ArrayGraph) -> Features:
    features, name, path = graph.features, graph.name_of("features"), graph.path
    if features.ndim != 2:
        raise bad(path, f"{name} has shape {features.shape}", allowed="(nodes, features)")
    if features.shape[0] == 0:
        raise bad(path, f"{name} has no rows", allowed="at least one node")
    if features.shape[1] == 0:
        raise bad(path, f"{name} has no columns", allowed="at least one feature")
    if not is_number(features.dtype):
        raise bad(path, f"{name} is {features.dtype}", allowed="bool, integers or floats")
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused as such
        single = features.astype(np.float32)
    flat = single.data if sparse.issparse(single) else single.reshape(-1)
    good = np.isfinite(flat)
    if not good.all():
        entry = int(np.argmin(good))
        if sparse.issparse(features):
            row, column = int(np.searchsorted(features.indptr, entry, side="right")) - 1, int(features.indices[entry])
            value = features.data[entry]
        else:
            row, column = divmod(entry, features.shape[1])
            value = features[row, column]
        raise bad(path, f"{name} is {short(value)}", row=row, column=column, allowed="finite float32 numbers")
    return single


def is_number(kind: np.dtype) -> bool:
    """Whether a type holds numbers that features can be made of."""
    return kind.kind in "biuf" and kind.itemsize <= 8


# Labels


def _checked_labels(graph: ArrayGraph, count: int) -> NDArray:
    labels, name, path = graph.labels, graph.name_of("labels"), graph.path
    if labels.shape != (count,):
        raise bad(path, f"{name} has shape {labels.shape}", allowed=f"({count},), one per node")
    if labels.dtype.kind not in "iu":
        raise bad(path, f"{name} is {labels.dtype}", allowed="integers")
    if count and int(labels.max()) >= count and not graph.classes:  # also what does not fit into int64
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


# Edges


def _checked_edges(graph: ArrayGraph, count: int) -> NDArray:
    edges, name, path = graph.edges, graph.name_of("edges"), graph.path
    if edges.ndim != 2 or edges.shape[1] != 2:
        hint = " (it lies on its side)" if edges.ndim == 2 and edges.shape[0] == 2 else ""
        raise bad(path, f"{name} has shape {edges.shape}{hint}", allowed="(edges, 2), rows of source and target")
    if edges.dtype.kind not in "iu":
        raise bad(path, f"{name} is {edges.dtype}", allowed="integers")
    wrong = (edges < 0) | (edges >= count)
    if wrong.any():
        row, column = divmod(int(np.argmax(wrong)), 2)
        raise bad(path, f"{name} is {edges[row, column]}", row=row, column=column, allowed=f"0 to {count - 1}, the nodes")
    return np.ascontiguousarray(edges, dtype=np.int64)


# Masks


def _checked_masks(graph: ArrayGraph, count: int) -> dict[str, NDArray]:
    masks, path = graph.masks, graph.path
    given = [name for name in MASKS if name in masks]
    if not given:
        return {}
    for name in MASKS:
        if name not in masks:
            raise bad(path, f"{graph.name_of(name)} is missing though {graph.name_of(given[0])} is there", allowed="all three")
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
        twice = masks[MASKS[one]] & masks[MASKS[other]]
        if twice.any():
            split, node = divmod(int(np.argmax(twice)), count)
            names = f"{graph.name_of(MASKS[one])} and {graph.name_of(MASKS[other])}"
            raise bad(path, f"node {node} is in both {names}", row=split, column=node, allowed="one mask per node and split")
    return masks


# Names


def _refuse_twice(names: list[str], path: Path, what: str) -> None:
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    for row, name in enumerate(names):
        if name in seen:
            raise bad(path, f"{what} is {short(name)} for the second time", row=row, allowed="each once")
        seen.add(name)
