"""A graph's contents: counts, and parts that were left out on reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..text import counted
from .check import Array, ArrayGraph
from .encode import indicator_names

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import Data

UNEVEN = 10  # columns of features whose sizes differ by more than this factor are worth scaling
MANY_CLASSES = 10  # classes that are listed one by one; of more only the number is said


def summarise_graph(graph: ArrayGraph, edge_index: Tensor, directed: bool) -> dict[str, Any]:
    """Counts the contents of a graph's file and the remaining edges (2, E). An edge in both
    directions counts once in an undirected graph."""
    nodes, features = graph.features.shape
    loops = graph.edges[:, 0] == graph.edges[:, 1]
    kept = graph.edges[~loops]
    different = len(np.unique(kept[:, 0] * nodes + kept[:, 1]))
    missing = _missing(graph)
    ends = edge_index[:, edge_index[0] != edge_index[1]]
    return {
        "nodes": nodes,
        "edges": edge_index.size(1) if directed else edge_index.size(1) // 2,
        "duplicate_edges": 0 if directed else len(kept) - different,  # rows that were dropped
        "self_loops": 0 if directed else int(loops.sum()),  # rows that were dropped
        "isolated_nodes": nodes - len(ends.unique()),
        "features": features,
        "missing_values": int(missing.sum()),  # numbers, and names of categories
        "columns_with_gaps": int((missing > 0).sum()),
        "labelled_nodes": _count_labelled(graph.labels),
        "edge_features": 0 if graph.edge_attr is None else graph.edge_attr.shape[1],
        "has_edge_weights": graph.edge_weight is not None,
    }


def _missing(graph: ArrayGraph) -> Array:
    """Counts the missing values of each feature, (F,), then of each column of names."""
    if not graph.may_miss:
        return np.zeros(graph.features.shape[1], np.int64)
    # NaN alone is not itself
    gaps: Array = np.asarray((graph.features != graph.features).sum(axis=0)).ravel()
    return np.concatenate([gaps, np.array(list(graph.missing_texts.values()), np.int64)])


def _count_labelled(labels: Array) -> int:
    if labels.dtype.kind == "i":
        return int((labels >= 0).sum())
    return int((~np.isnan(labels.reshape(len(labels), -1)).any(axis=1)).sum())


def describe_graph(data: Data) -> list[str]:
    """Returns lines for a person on a graph of :func:`phgcn.data.load_graph`: its contents, its
    task, and notes."""
    counts = data.summary
    kinds = {"duplicate_edges": "duplicate", "self_loops": "self-loop"}
    dropped = [counted(counts[key], what) for key, what in kinds.items() if counts[key]]
    without = f" ({', '.join(dropped)} dropped)" if dropped else ""
    parts = [counted(counts["nodes"], "node"), counted(counts["edges"], "edge") + without]
    if counts["has_edge_weights"]:
        parts.append("edge weights")
    if counts["edge_features"]:
        parts.append(counted(counts["edge_features"], "edge feature"))
    parts.append(counted(counts["isolated_nodes"], "isolated node"))
    parts.append(counted(counts["features"], "feature"))
    if counts["missing_values"]:
        where = counted(counts["columns_with_gaps"], "column")
        parts.append(f"{counted(counts['missing_values'], 'missing value')} in {where}")
    return [f"graph {data.name}: {', '.join(parts)}", _describe_labels(data), *data.notes]


def _describe_labels(data: Data) -> str:
    describe = {"classification": _describe_classes, "regression": _describe_numbers}
    said = describe.get(data.task, _describe_sets)(data)
    without = counted(data.summary["nodes"] - data.summary["labelled_nodes"], "node")
    return f"task {data.task} ({data.task_reason}): {said}, {without} without a label"


def _describe_classes(data: Data) -> str:
    sizes = data.y[data.y >= 0].bincount(minlength=len(data.classes)).tolist()
    return _describe_sizes("classes", data.classes, sizes)


def _describe_numbers(data: Data) -> str:
    known = data.y[~data.y.isnan()]
    if not len(known):
        return "no numbers"
    return f"numbers from {float(known.min()):.6g} to {float(known.max()):.6g}"


def _describe_sets(data: Data) -> str:
    return _describe_sizes("labels", data.classes, data.y.nansum(dim=0).long().tolist())


def _describe_sizes(what: str, names: list[str], sizes: list[int]) -> str:
    """Lists classes with the number of their nodes; of many only the range."""
    if len(sizes) > MANY_CLASSES:
        return f"{len(sizes)} {what} of {min(sizes):,} to {max(sizes):,} nodes"
    listed = ", ".join(f"{name} {size:,}" for name, size in zip(names, sizes, strict=True))
    return f"{len(sizes)} {what}" + (f" ({listed})" if listed else "")


def is_uneven(data: Data) -> bool:
    """Returns whether columns of numbers differ in size (the larger of mean and deviation) from
    each other or from 1 by more than :data:`UNEVEN`. Sparse features are words, which are even."""
    if "description" in data:
        return bool(data.description["uneven"])
    if data.x.is_sparse_csr or len(data.x) < 2:
        return False
    levels = data.feature_levels if "feature_levels" in data else {}
    indicators = {name for entry in levels.items() for name in indicator_names(*entry)}
    names = data.feature_names if "feature_names" in data else [""] * data.x.size(1)
    x = data.x[:, [index for index, name in enumerate(names) if name not in indicators]]
    mean = x.nanmean(dim=0)
    sizes = torch.maximum(mean.abs(), (x - mean).square().nanmean(dim=0).sqrt())
    sizes = torch.cat([sizes[sizes > 0], torch.ones(1)])
    return float(sizes.max()) > UNEVEN * float(sizes.min())
