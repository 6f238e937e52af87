r"""Graphs as users of notebooks have them: a name or path, PyG's ``Data``, or features and edges as arrays or pandas frames."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch_geometric.data import Data

from ..data import Columns, GraphFileError, load_graph
from ..data.check import check_graph
from ..data.columns import ID
from ..data.load import to_data
from ..data.saved import from_mapping

GraphLike = Any
"""A name or path (see :func:`phgcn.data.load_graph`), a ``Data`` with ``x`` and ``edge_index``, or a tuple of features and
edges: arrays, tensors, or frames of pandas."""

LABEL, SOURCE, TARGET = "label", "source", "target"
"""Columns of tables by default."""

ALLOWED = "a name, a path, a Data of PyG with x and edge_index, or a tuple (features, edges) of arrays or pandas frames"


Read = Callable[[Any], Data]
"""Reads a graph by its name or path, or from the frames of its edges and its nodes."""


def to_graph(graph: GraphLike, read: Read, directed: bool = False, columns: Columns | None = None) -> Data:
    """Converts a graph to a ``Data`` with the attributes of :func:`phgcn.data.load_graph`.

    Args:
        graph: A graph in one of the forms of :data:`GraphLike`.
        read (callable): Reads what is given by name or path, and frames.
        directed (bool, optional): Keeps the direction of edges of tensors and arrays. (default: :obj:`False`)
        columns (Columns, optional): Which columns of frames are what. (default: their usual names)
    """
    if isinstance(graph, (str, Path)):
        return read(str(graph))
    if isinstance(graph, Data):
        # A table that load_graph has read keeps its gaps, its columns and their categories.
        return copy.copy(graph) if "feature_columns" in graph else _from_parts(graph.to_dict(), directed)
    if not isinstance(graph, (tuple, list)) or len(graph) != 2:
        raise ValueError(f"graph is a {type(graph).__name__}; allowed: {ALLOWED}")
    features, edges = graph
    if _is_frame(features) or _is_frame(edges):
        return _from_frames(features, edges, read, columns or Columns())
    return _from_parts({"x": _features(features), "edge_index": _edges(edges)}, directed)


def read_to_train(source: Any, directed: bool, columns: Columns, labels: bool) -> Data:
    """Reads a graph to train on; without labels, a column ``label`` of a table is left out of the features too."""
    if labels:
        return load_graph(source, directed=directed, columns=columns, sparse=True)
    data = load_graph(source, directed=directed, columns=replace(columns, label=None), sparse=True)
    if "feature_columns" in data and LABEL in data.feature_columns:
        kept = [name for name in data.feature_columns if name != LABEL]
        data = load_graph(source, directed=directed, columns=replace(columns, label=None, features=kept), sparse=True)
    return data


def _is_frame(table: Any) -> bool:
    """Tells whether a table is a frame of pandas, without importing it."""
    return hasattr(table, "to_csv") and hasattr(table, "columns")


# Tensors and arrays


def _from_parts(parts: dict[str, Any], directed: bool) -> Data:
    """Makes a graph of tensors by name, checked as one from a file; without ``y`` no node has a label."""
    if parts.get("x") is None or parts.get("edge_index") is None:
        raise ValueError(f"graph has no {'x' if parts.get('x') is None else 'edge_index'}; allowed: {ALLOWED}")
    if parts.get("y") is None:
        parts["y"] = torch.full((len(parts["x"]),), -1)
    name = parts.get("name")
    try:
        return to_data(
            check_graph(from_mapping(Path("graph"), parts)),
            name if isinstance(name, str) else "graph",
            directed=directed,
            sparse=True,
        )
    except GraphFileError as error:
        raise ValueError(str(error)) from None


def _features(features: Any) -> torch.Tensor:
    if isinstance(features, torch.Tensor):
        return features
    if sparse.issparse(features):
        matrix = features.tocoo()
        index = torch.from_numpy(np.stack([matrix.row, matrix.col]).astype(np.int64))
        return torch.sparse_coo_tensor(
            index, torch.from_numpy(matrix.data.astype(np.float32)), matrix.shape, check_invariants=False
        )
    return torch.from_numpy(np.ascontiguousarray(np.asarray(features, dtype=np.float32)))


def _edges(edges: Any) -> torch.Tensor:
    """Returns edges (2, E); pairs (E, 2) are turned, unless there are two of them."""
    index = edges if isinstance(edges, torch.Tensor) else torch.from_numpy(np.asarray(edges, dtype=np.int64).copy())
    return index.T if index.dim() == 2 and index.size(1) == 2 and index.size(0) != 2 else index


# Frames


def _from_frames(features: Any, edges: Any, read: Read, columns: Columns) -> Data:
    """Makes a graph of frames, which are read as tables in files are."""
    nodes = _node_frame(features, columns.id)
    try:
        return read((_edge_frame(edges, nodes, columns), nodes))
    except GraphFileError as error:
        raise ValueError(str(error)) from None


def _node_frame(features: Any, id: str) -> Any:
    """Returns the frame of nodes with their ids as a column: the column of that name if there is one, else the index."""
    import pandas as pd

    frame = features if _is_frame(features) else pd.DataFrame(np.asarray(features)).rename(columns=lambda number: f"f{number}")
    frame = frame.rename(columns=str)
    if id in frame.columns or id != ID:
        return frame
    ids = pd.Series(frame.index.map(str), name=ID, index=frame.index)
    return pd.concat([ids, frame], axis=1)


def _edge_frame(edges: Any, nodes: Any, columns: Columns) -> Any:
    """Returns the frame of edges between ids; of an array, whose numbers are positions in the frame of nodes, with these
    ids."""
    import pandas as pd

    if _is_frame(edges):
        named = {SOURCE, TARGET} <= set(edges.columns)
        first, second = edges.columns[:2]
        return edges if named else edges.rename(columns={first: SOURCE, second: TARGET})
    index, ids = _edges(edges).numpy(), nodes[columns.id].to_numpy()
    if index.size and not 0 <= int(index.min()) <= int(index.max()) < len(ids):
        raise ValueError(f"edges has {int(index.max() if index.min() >= 0 else index.min())}; allowed: 0 to {len(ids) - 1}")
    return pd.DataFrame({SOURCE: ids[index[0]], TARGET: ids[index[1]]})
