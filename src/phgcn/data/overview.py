"""Lists the known graphs: the columns of the paper's Table 1, as published and as counted in the
files here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .check import Array
from .load import graph_file
from .names import GRAPHS, Counts, EdgeCount
from .npz import read_npz


@dataclass(frozen=True)
class Row:
    """A known graph and what its file contains.

    Args:
        name (str): The graph.
        published (Counts): Nodes, edges, features and classes as published.
        found (Counts, optional): The same counted in the file, edges in the way of the published
            count; :obj:`None` without a file.
        edge_count (str): How edges are counted: ``"half the rows"`` and ``"rows"`` of the file as
            they stand, ``"directed"``: ordered pairs without duplicates and self-loops,
            ``"undirected"``: unordered ones.
        masks (str, optional): The protocol of its public masks, ``"geom"`` or ``"official"``.
        metric (str): ``"accuracy"`` or ``"roc_auc"``.
        path (Path, optional): The file; :obj:`None` if it is not on this machine.
    """

    name: str
    published: Counts
    found: Counts | None
    edge_count: EdgeCount
    masks: str | None
    metric: str
    path: Path | None


def table(root: str | Path | None = None) -> list[Row]:
    """Returns one row for each known graph, whether its file is here or not.

    Args:
        root (str or Path, optional): As for :func:`phgcn.data.load_graph`. (default: :obj:`None`)
    """
    rows = []
    for name, known in GRAPHS.items():
        path, way = graph_file(known, root), known.edge_count
        counts = _count(path, way) if path else None
        rows.append(Row(name, known.published, counts, way, known.masks, known.metric, path))
    return rows


def _count(path: Path, edge_count: EdgeCount) -> Counts:
    graph = read_npz(path)
    nodes, features = graph.features.shape
    classes = len(graph.classes) or int(graph.labels.max()) + 1
    return Counts(nodes, count_edges(graph.edges, nodes, edge_count), features, classes)


def count_edges(edges: Array, nodes: int, edge_count: EdgeCount) -> int:
    """Counts edges (E, 2) in one of the ways of :class:`Row`."""
    if edge_count == "rows":
        return len(edges)
    if edge_count == "half the rows":
        return len(edges) // 2
    pairs = edges[edges[:, 0] != edges[:, 1]]
    if edge_count == "undirected":
        pairs = np.sort(pairs, axis=1)
    return len(np.unique(pairs[:, 0] * nodes + pairs[:, 1]))
