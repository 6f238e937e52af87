r"""What there is in a graph: counts, and what was left out when it was read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .check import Array, ArrayGraph
from .encode import indicator_names

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import Data

UNEVEN = 10
"""Columns of features whose sizes differ by more than this factor are worth scaling."""

MANY_CLASSES = 10
"""Classes that are listed one by one; of more only the number is said."""


@dataclass(frozen=True)
class GraphSummary:
    """The counts of a graph.

    Args:
        nodes, edges (int): How many there are; an edge in both directions counts once in a graph that is not directed.
        duplicate_edges, self_loops (int): Rows of the file that were dropped: that repeat another row, or lead from a node to
            itself.
        isolated_nodes (int): Nodes without an edge to another.
        features (int): Columns of features.
        missing_values (int): Numbers and names of categories that are missing in these.
        columns_with_gaps (int): Columns of the file in which they are.
        labelled_nodes (int): Nodes with a label.
        edge_features (int): Columns of features of edges.
        has_edge_weights (bool): Whether edges have weights.
    """

    nodes: int
    edges: int
    duplicate_edges: int
    self_loops: int
    isolated_nodes: int
    features: int
    missing_values: int
    columns_with_gaps: int
    labelled_nodes: int
    edge_features: int
    has_edge_weights: bool


def summarise_graph(graph: ArrayGraph, edge_index: Tensor, directed: bool) -> dict[str, Any]:
    """Counts what is in a graph, of the arrays of its file and the edges that remained, (2, E)."""
    nodes, features = graph.features.shape
    loops = graph.edges[:, 0] == graph.edges[:, 1]
    kept = graph.edges[~loops]
    different = len(np.unique(kept[:, 0] * nodes + kept[:, 1]))
    missing = _missing(graph)
    ends = edge_index[:, edge_index[0] != edge_index[1]]
    return asdict(
        GraphSummary(
            nodes=nodes,
            edges=edge_index.size(1) if directed else edge_index.size(1) // 2,
            duplicate_edges=0 if directed else len(kept) - different,
            self_loops=0 if directed else int(loops.sum()),
            isolated_nodes=nodes - len(ends.unique()),
            features=features,
            missing_values=int(missing.sum()),
            columns_with_gaps=int((missing > 0).sum()),
            labelled_nodes=_count_labelled(graph.labels),
            edge_features=0 if graph.edge_attr is None else graph.edge_attr.shape[1],
            has_edge_weights=graph.edge_weight is not None,
        )
    )


def _missing(graph: ArrayGraph) -> Array:
    """Counts the missing numbers of each feature, (F,), then the missing names of each column of them."""
    if not graph.may_miss:
        return np.zeros(graph.features.shape[1], np.int64)
    gaps: Array = np.asarray((graph.features != graph.features).sum(axis=0)).ravel()  # NaN alone is not itself
    return np.concatenate([gaps, np.array(list(graph.missing_texts.values()), np.int64)])


def _count_labelled(labels: Array) -> int:
    if labels.dtype.kind == "i":
        return int((labels >= 0).sum())
    return int((~np.isnan(labels.reshape(len(labels), -1)).any(axis=1)).sum())


def describe_graph(data: Data) -> list[str]:
    """Returns lines for a person: what is in a graph that :func:`phgcn.data.load_graph` read, its task, and notes."""
    counts = data.summary
    dropped = [
        f"{counts[key]:,} {what}"
        for key, what in (("duplicate_edges", "duplicates"), ("self_loops", "self-loops"))
        if counts[key]
    ]
    without = f" ({', '.join(dropped)} dropped)" if dropped else ""
    parts = [f"{counts['nodes']:,} nodes", f"{counts['edges']:,} edges{without}"]
    if counts["has_edge_weights"]:
        parts.append("edge weights")
    if counts["edge_features"]:
        parts.append(f"{counts['edge_features']:,} edge features")
    parts += [f"{counts['isolated_nodes']:,} isolated nodes", f"{counts['features']:,} features"]
    if counts["missing_values"]:
        columns = f"{counts['columns_with_gaps']:,} column{'s' * (counts['columns_with_gaps'] > 1)}"
        parts.append(f"{counts['missing_values']:,} missing values in {columns}")
    return [f"graph {data.name}: {', '.join(parts)}", _describe_labels(data), *data.notes]


def _describe_labels(data: Data) -> str:
    """Says the task, what it was chosen by, and what the labels are."""
    without = data.summary["nodes"] - data.summary["labelled_nodes"]
    said = {"classification": _describe_classes, "regression": _describe_numbers, "multilabel": _describe_sets}[data.task](data)
    return f"task {data.task} ({data.task_reason}): {said}, {without:,} nodes without a label"


def _describe_classes(data: Data) -> str:
    return _describe_sizes("classes", data.classes, data.y[data.y >= 0].bincount(minlength=len(data.classes)).tolist())


def _describe_numbers(data: Data) -> str:
    known = data.y[~data.y.isnan()]
    return f"numbers from {float(known.min()):.6g} to {float(known.max()):.6g}" if len(known) else "no numbers"


def _describe_sets(data: Data) -> str:
    return _describe_sizes("labels", data.classes, data.y.nansum(dim=0).long().tolist())


def _describe_sizes(what: str, names: list[str], sizes: list[int]) -> str:
    """Lists classes with the number of their nodes; of many only the range."""
    if len(sizes) > MANY_CLASSES:
        return f"{len(sizes)} {what} of {min(sizes):,} to {max(sizes):,} nodes"
    listed = ", ".join(f"{name} {size:,}" for name, size in zip(names, sizes, strict=True))
    return f"{len(sizes)} {what}" + (f" ({listed})" if listed else "")


def is_uneven(data: Data) -> bool:
    """Tells whether columns of numbers differ in size from each other or from 1 by more than :data:`UNEVEN`.

    The size is the larger of the mean and the deviation; columns of 0 do not count.  Sparse features are words, which are even.
    Of a part of a graph it is told for the whole.
    """
    if "description" in data:
        return bool(data.description["uneven"])
    if data.x.is_sparse_csr or len(data.x) < 2:
        return False
    levels = data.feature_levels if "feature_levels" in data else {}
    indicators = {name for column, names in levels.items() for name in indicator_names(column, names)}
    names = data.feature_names if "feature_names" in data else [""] * data.x.size(1)
    x = data.x[:, [index for index, name in enumerate(names) if name not in indicators]]
    mean = x.nanmean(dim=0)
    sizes = torch.maximum(mean.abs(), (x - mean).square().nanmean(dim=0).sqrt())
    sizes = torch.cat([sizes[sizes > 0], torch.ones(1)])
    return float(sizes.max()) > UNEVEN * float(sizes.min())
