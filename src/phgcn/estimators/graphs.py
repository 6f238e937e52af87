"""Graphs in the forms of notebooks: a name or path, PyG's ``Data``, or features and edges as arrays
or pandas frames."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch_geometric.data import Data

from ..data import Columns, load_graph
from ..data.check import check_graph
from ..data.columns import ID
from ..data.load import to_data
from ..data.saved import from_mapping

# a name or path (see :func:`phgcn.data.load_graph`), a ``Data`` with ``x`` and ``edge_index``, or a
# tuple of features and edges: arrays, tensors, or frames of pandas
GraphLike = Any

FORMS = "a name, a path, a Data of PyG with x and edge_index, or a tuple (features, edges)"
ALLOWED = f"{FORMS} of arrays or pandas frames"

# reads a graph by its name or path, or from the frames of its edges and its nodes
Read = Callable[[Any], Data]


def to_graph(
    graph: GraphLike, read: Read, directed: bool = False, columns: Columns | None = None
) -> Data:
    """Converts a graph in a form of :data:`GraphLike` to a ``Data`` with the attributes of
    :func:`phgcn.data.load_graph`. ``read`` reads names, paths and frames."""
    columns = columns or Columns()
    if isinstance(graph, (str, Path)):
        return read(str(graph))
    if isinstance(graph, Data):
        if "feature_columns" in graph:  # load_graph has read it, with gaps and categories
            return copy.copy(graph)
        return from_tensors(graph.to_dict(), directed)
    if not isinstance(graph, (tuple, list)) or len(graph) != 2:
        raise ValueError(f"graph is a {type(graph).__name__}; allowed: {ALLOWED}")
    features, edges = graph
    if is_frame(features) or is_frame(edges):
        nodes = _node_frame(features, columns.id)
        return read((_edge_frame(edges, nodes, columns), nodes))
    return from_tensors({"x": _features(features), "edge_index": _edges(edges)}, directed)


def graph_to_train(
    graph: GraphLike, y: Any, directed: bool, columns: Columns
) -> tuple[Data, list[str]]:
    """Reads a graph to train on, and returns the columns that ``y`` replaces."""

    def read(columns: Columns) -> Data:
        load = partial(load_graph, directed=directed, sparse=True, columns=columns)
        return to_graph(graph, load, directed, columns)

    if y is None or isinstance(graph, Data):
        return read(columns), []
    names = {columns.label, getattr(y, "name", None), *getattr(y, "columns", ())}
    columns = replace(columns, label=None)
    data = read(columns)
    features = data.feature_columns if "feature_columns" in data else []
    left_out = [name for name in features if name in names]
    if left_out:
        kept = [name for name in features if name not in names]
        data = read(replace(columns, features=kept))
    return data, left_out


def column_names(columns: Sequence[str | int], data: Data) -> list[str]:
    """Returns columns by name, of arrays by number."""
    names = data.feature_columns if "feature_columns" in data else range(data.x.size(1))
    numbered: dict[Any, Any] = dict(enumerate(names))
    return [str(numbered.get(column, column)) for column in columns]


def index_of(graph: GraphLike) -> Any:
    """Returns the index of the frame of nodes; :obj:`None` without one."""
    if isinstance(graph, (tuple, list)) and graph and is_frame(graph[0]):
        return graph[0].index
    return None


def is_frame(table: Any) -> bool:
    return hasattr(table, "to_csv") and hasattr(table, "columns")


# Tensors and arrays


def from_tensors(parts: dict[str, Any], directed: bool = False, may_miss: bool = False) -> Data:
    """Makes a graph of tensors by name, perhaps without ``y`` and, if ``may_miss``, with NaN."""
    for name in ("x", "edge_index"):
        if parts.get(name) is None:
            raise ValueError(f"graph has no {name}; allowed: {ALLOWED}")
    if parts.get("y") is None:
        parts["y"] = torch.full((len(parts["x"]),), -1)
    name = parts["name"] if isinstance(parts.get("name"), str) else "graph"
    graph = from_mapping(Path("graph"), parts)
    graph.may_miss = may_miss
    return to_data(check_graph(graph), name, directed=directed, sparse=True)


def _features(features: Any) -> torch.Tensor:
    if isinstance(features, torch.Tensor):
        return features
    if sparse.issparse(features):
        matrix = features.tocoo()
        index = torch.from_numpy(np.stack([matrix.row, matrix.col]).astype(np.int64))
        values = torch.from_numpy(matrix.data.astype(np.float32))
        return torch.sparse_coo_tensor(index, values, matrix.shape, check_invariants=False)
    return torch.from_numpy(np.ascontiguousarray(np.asarray(features, dtype=np.float32)))


def _edges(edges: Any) -> torch.Tensor:
    """Returns edges (2, E); pairs (E, 2) are turned, unless there are two of them."""
    is_tensor = isinstance(edges, torch.Tensor)
    index = edges if is_tensor else torch.from_numpy(np.array(edges, dtype=np.int64))
    return index.T if index.dim() == 2 and index.size(1) == 2 and index.size(0) != 2 else index


# Frames


def _node_frame(features: Any, id: str) -> Any:
    """Returns the frame of nodes with their ids as a column, else its index as one."""
    import pandas as pd

    if not is_frame(features):
        features = pd.DataFrame(np.asarray(features)).add_prefix("f")
    frame = features.rename(columns=str)
    if id in frame.columns or id != ID:
        return frame
    ids = pd.Series(frame.index.map(str), name=ID, index=frame.index)
    return pd.concat([ids, frame], axis=1)


def _edge_frame(edges: Any, nodes: Any, columns: Columns) -> Any:
    """Returns the frame of edges between ids; an array has positions in the frame of nodes."""
    import pandas as pd

    if is_frame(edges):
        named = {columns.source, columns.target} <= set(edges.columns)
        ends = dict(zip(edges.columns[:2], (columns.source, columns.target), strict=True))
        return edges if named else edges.rename(columns=ends)
    index = _edges(edges).numpy()
    # rows without a column of ids are numbered from 1
    ids = np.arange(1, len(nodes) + 1) if columns.id not in nodes else nodes[columns.id].to_numpy()
    outside = index[(index < 0) | (index >= len(ids))]
    if outside.size:
        raise ValueError(f"edges has {int(outside[0])}; allowed: 0 to {len(ids) - 1}")
    return pd.DataFrame({columns.source: ids[index[0]], columns.target: ids[index[1]]})
