"""Loads graphs by name or by file, as PyG's ``Data``."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ..text import did_you_mean
from .check import UNLABELLED, Array, ArrayGraph, Features, bad, check_graph
from .columns import Columns
from .labels import TASKS, task_of
from .names import GRAPHS, KnownGraph, known_graph
from .npz import read_npz, write_npz
from .readers import SUFFIXES, stem_of, suffix_of
from .summary import summarise_graph
from .tables import read_tables, table_pair

if TYPE_CHECKING:
    from torch_geometric.data import Data

SAVED = (".pt", ".pth")
_TABLES = f"a folder or pair of tables ({', '.join(SUFFIXES)})"
FORMATS = f"an .npz, {' or '.join(SAVED)} file, or {_TABLES}"  # all formats, for messages

MAX_SPARSE_DENSITY = 0.12
# features become a sparse tensor if there are at least ``MIN_SPARSE_FEATURES`` and at most the
# share ``MAX_SPARSE_DENSITY`` of their entries is not zero: there sparse products are faster, see
# ``python lab/bench sparse_features``
MIN_SPARSE_FEATURES = 64

# stands between the paths of a node and an edge table, ``people.csv::calls.csv``, wherever a graph
# is asked for; without a second path there are no edges
PAIR = "::"

MAX_DENSE_BYTES = 4e9  # features that take more memory as a dense tensor stay sparse

NameOrPath = str | Path | tuple[Any, Any]


def load_graph(
    name_or_path: NameOrPath,
    root: str | Path | None = None,
    *,
    directed: bool = False,
    max_gb: float | None = None,
    task: str | None = None,
    columns: Columns | None = None,
    sparse: bool = False,
) -> Data:
    """Loads a graph known by name, or one of your own.

    A name is looked up as ``<root>/<name>.npz`` with hyphens as underscores, then in the user's
    cache, and else downloaded through PyG into that cache. A path is an ``.npz`` file, a folder
    with ``edges`` and ``nodes`` as tables (CSV, Parquet, Excel), one file of such a pair, or a
    ``Data`` saved with :func:`torch.save`. Formats: ``docs/data.md``.

    Args:
        name_or_path (str, Path or tuple): A name of :obj:`phgcn.data.GRAPHS`, a path, or an edge
            and a node table: two paths, or two frames of pandas; as text ``NODES::EDGES``.
        root (str or Path, optional): The folder of the named graphs. (default: :obj:`None`,
            ``$PHGCN_DATA``, else the user's cache)
        directed (bool, optional): Keeps the edges as they are in the file; else they are made
            undirected, sorted, and free of self-loops and duplicates. (default: :obj:`False`)
        max_gb (float, optional): Refuses an ``.npz`` file that unpacks to more gigabytes than this.
            (default: :obj:`None`, ``$PHGCN_MAX_GB``, else half of the machine's memory)
        task (str, optional): The task of the labels: ``"classification"``, ``"regression"`` or
            ``"multilabel"``. (default: :obj:`None`, by their look)
        columns (Columns, optional): The roles of table columns. ``label=None`` reads no labels, of
            other files too. (default: :obj:`None`, ``id``, ``label``, ``source``, ``target``, and
            features)
        sparse (bool, optional): Gives ``x`` as sparse CSR where few features are not zero; else it
            is dense, unless it would take more than 4 GB. (default: :obj:`False`)

    Returns:
        ``x`` (float32, NaN for a missing number of a table), ``y`` (see :mod:`phgcn.data.labels`;
        int64 and -1 for an unlabelled node if the task is classification), ``edge_index``,
        ``num_nodes``, ``num_classes``, ``name``, ``task`` and ``task_reason``, ``node_id`` and
        ``classes`` (lists of names, numbers as text where the file has none), ``summary`` and
        ``notes`` (see :func:`phgcn.data.describe_graph`). Where the file has them: ``edge_weight``
        :math:`(E,)`, ``edge_attr`` :math:`(E, K)` (means, where several rows are one edge),
        ``feature_names``, ``feature_columns`` and ``feature_levels`` (the columns of a table, and
        the categories of those that hold names), ``edge_table`` (the same of edges),
        ``train_mask``, ``val_mask`` and ``test_mask`` of shape :math:`(N, K)`.

    Raises:
        GraphFileError: The file is missing, damaged or wrong; one line names file, row and column.
    """
    if task not in (None, *TASKS):
        raise ValueError(f"task is {task!r}; allowed: {', '.join(TASKS)}")
    name, graph = _read(name_or_path, root, ReadOptions(max_gb, task, columns or Columns()))
    return to_data(graph, name, directed=directed, sparse=sparse)


class ReadOptions(NamedTuple):
    """The options of :func:`load_graph` for readers."""

    max_gb: float | None = None
    task: str | None = None
    columns: Columns = Columns()

    @property
    def labels(self) -> bool:
        return self.columns.label is not None


def save_graph(data: Data, path: str | Path) -> None:
    """Writes a graph to an ``.npz`` file that :func:`load_graph` reads, whole or not at all.

    Args:
        data (Data): A graph with ``x``, ``y`` and ``edge_index``, and the other attributes of
            :func:`load_graph` if it has them.
        path (str or Path): The file, whose name ends in ``.npz``.
    """
    from .saved import from_mapping

    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"path is {str(path)!r}; allowed: a name that ends in .npz")
    graph = from_mapping(path, data.to_dict())
    # numbers may be missing in a table
    graph.task, graph.may_miss = task_of(data.y), "feature_columns" in data
    write_npz(path, check_graph(graph))


# Where graphs are


def user_cache() -> Path:
    """Returns the folder of downloaded graphs: ``$XDG_CACHE_HOME/phgcn/graphs``, else
    ``~/.cache/phgcn/graphs``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "phgcn" / "graphs"


def graph_root(root: str | Path | None = None) -> Path:
    """Returns the folder of the named graphs: the argument, else the environment's."""
    return Path(root or os.environ.get("PHGCN_DATA") or user_cache())


def graph_file(known: KnownGraph, root: str | Path | None = None) -> Path | None:
    """Finds the file of a known graph in its folder, or in the user's cache."""
    for folder in (graph_root(root), user_cache()):
        if (folder / known.file).is_file():
            return folder / known.file
    return None


def _read(
    name_or_path: NameOrPath, root: str | Path | None, options: ReadOptions
) -> tuple[str, ArrayGraph]:
    if isinstance(name_or_path, str) and PAIR in name_or_path:
        nodes_path, edges_path = name_or_path.split(PAIR, 1)
        name_or_path = (edges_path or None, nodes_path)
    if isinstance(name_or_path, tuple) and len(name_or_path) == 2:
        paths = (str, os.PathLike)
        edges, nodes = (Path(part) if isinstance(part, paths) else part for part in name_or_path)
        name = stem_of(nodes) if isinstance(nodes, Path) else "graph"
        return name, read_tables(edges, nodes, options.columns, options.task)
    if not isinstance(name_or_path, (str, os.PathLike)):
        allowed = "a name, a path, or a tuple of two paths"
        raise ValueError(f"name_or_path is {name_or_path!r}; allowed: {allowed}")
    known = known_graph(str(name_or_path))
    if known:
        return known.name, read_known(known, root, options)
    path = Path(name_or_path)
    if not path.exists():
        hint = did_you_mean([str(path).replace("_", "-")], GRAPHS, most=2)
        what = f"there is no such file or folder, and no graph of this name{hint}"
        raise bad(path, what, f"{FORMATS}; or a name: {', '.join(GRAPHS)}")
    return _name_of(path), read_file(path, options)


def read_known(
    known: KnownGraph, root: str | Path | None = None, options: ReadOptions | None = None
) -> ArrayGraph:
    """Reads the arrays of a known graph, after a download if there is no file."""
    from .names import download

    options = options or ReadOptions()
    path = graph_file(known, root) or download(known, graph_root(root), user_cache())
    return read_npz(path, options.max_gb, options.task, options.labels)


def read_file(path: Path, options: ReadOptions) -> ArrayGraph:
    """Reads the arrays of a graph file or folder by the end of its name."""
    suffix = suffix_of(path)
    if path.is_dir() or suffix in SUFFIXES:
        return read_tables(*table_pair(path), options.columns, options.task)
    if suffix == ".npz":
        return read_npz(path, options.max_gb, options.task, options.labels)
    if suffix in SAVED:
        from .saved import read_saved

        return read_saved(path, options.task, options.labels)
    raise bad(path, f"files of kind {suffix!r} are not read", FORMATS)


def _name_of(path: Path) -> str:
    """Names a graph after its file, or the common part of its tables' names."""
    if path.is_dir():
        return path.resolve().name
    stem = stem_of(path)
    if suffix_of(path) not in SUFFIXES:
        return stem
    common = stem.replace("edges", "").replace("nodes", "").strip("_-. ")
    return common or path.resolve().parent.name


# From arrays to tensors


def to_data(graph: ArrayGraph, name: str, *, directed: bool = False, sparse: bool = False) -> Data:
    """Converts arrays to a ``Data`` with the attributes of :func:`load_graph`."""
    from torch_geometric.data import Data

    count = graph.features.shape[0]
    edge_index, edge_values = _edge_tensors(graph, directed)
    x, y = features_tensor(graph.features, sparse), torch.from_numpy(graph.labels)
    data = Data(x=x, y=y, edge_index=edge_index, **edge_values)
    for mask, rows in graph.masks.items():
        data[mask.removesuffix("s")] = torch.from_numpy(np.ascontiguousarray(rows.T))
    classes = graph.classes or [str(number) for number in range(_count_classes(graph.labels))]
    data.num_nodes, data.num_classes, data.name = count, len(classes), name
    data.node_id = graph.ids or [str(number) for number in range(count)]
    data.classes = classes
    data.task, data.task_reason, data.notes = graph.task, graph.reason, graph.notes
    data.summary = summarise_graph(graph, edge_index, directed)
    names = {
        "feature_names": graph.feature_names,
        "feature_columns": graph.feature_columns,
        "feature_levels": graph.levels,
    }
    for attribute, value in names.items():
        if value:
            data[attribute] = value
    if graph.edge_columns:
        data.edge_table = {"columns": graph.edge_columns, "levels": graph.edge_levels}
    return data


def _count_classes(labels: Array) -> int:
    if labels.ndim == 2:
        return int(labels.shape[1])
    return int(labels.max(initial=UNLABELLED)) + 1 if labels.dtype.kind == "i" else 0


def _edge_tensors(graph: ArrayGraph, directed: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """Returns edges (2, E), weights and features; both directions of an edge are averaged."""
    from torch_geometric.utils import to_undirected

    edge_index = torch.from_numpy(np.ascontiguousarray(graph.edges.T))
    present = {"edge_weight": graph.edge_weight, "edge_attr": graph.edge_attr}
    values = {name: torch.from_numpy(array) for name, array in present.items() if array is not None}
    if directed:
        return edge_index, values
    kept, count = edge_index[0] != edge_index[1], graph.features.shape[0]
    if not values:
        return to_undirected(edge_index[:, kept], num_nodes=count), {}
    given = [value[kept] for value in values.values()]
    edge_index, means = to_undirected(edge_index[:, kept], given, num_nodes=count, reduce="mean")
    return edge_index, dict(zip(values, means, strict=True))


def features_tensor(features: Features, wanted: bool = True) -> Tensor:
    """Converts features (N, F) to a dense tensor, or to sparse CSR if ``wanted`` or too large. CSR
    needs features of which few are not 0 and none is missing."""
    rows, columns = features.shape
    is_sparse = sparse.issparse(features)
    stored = features.nnz if is_sparse else int(np.count_nonzero(features))
    gaps = bool(np.isnan(features.data if is_sparse else features).any())
    few = columns >= MIN_SPARSE_FEATURES and stored <= MAX_SPARSE_DENSITY * rows * columns
    wanted = wanted or 4 * rows * columns > MAX_DENSE_BYTES
    if wanted and few and not gaps:
        return csr_tensor(features)
    return torch.from_numpy(np.ascontiguousarray(features.toarray() if is_sparse else features))


def csr_tensor(features: Features) -> Tensor:
    matrix = sparse.csr_matrix(features)
    matrix.eliminate_zeros()
    parts = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data)
    starts, indices, values = map(torch.from_numpy, parts)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        return torch.sparse_csr_tensor(
            starts, indices, values, size=matrix.shape, check_invariants=False
        )
