r"""Reads graphs from two tables: edges (``source``, ``target``) and nodes (``id``, ``label``, features), in CSV or Parquet.

The readers of both formats return the same :class:`Edges` and :class:`Nodes`; here ids become numbers, and features a matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .cells import FeatureTable
from .check import MASKS, Array, ArrayGraph, bad, check_graph, short
from .columns import NO_COLUMN, Columns
from .encode import encode
from .labels import LabelColumn, read_labels

SUFFIXES = (".csv", ".parquet")
DEFAULT_ID = "id"
"""The column of ids if none is named; a table without it has numbers of rows as ids, from 1 on."""

WEIGHT = "weight"
"""The column of the edge table that holds weights if none is named."""

ROLES = {
    "train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "dev": 1, "test": 2, "testing": 2,
    "": 3, "none": 3,
}  # fmt: skip
"""What a cell of a split column means: an index into :data:`phgcn.data.check.MASKS`, or none of them."""


@dataclass
class Edges:
    """The edge table: ids as written, (E,) each, features other than the ends, and the row number of each edge in the file,
    for messages."""

    path: Path
    source: list[str]
    target: list[str]
    features: FeatureTable
    rows: Array


@dataclass
class Nodes:
    """The node table: ids and labels as written, (N,) each, an empty label for an unlabelled node; features; the cells of
    split columns; the row number of each node in the file, for messages; the decimal sign; and columns left out."""

    path: Path
    ids: list[str]
    labels: list[str]
    features: FeatureTable
    splits: dict[str, list[str]]
    rows: Array
    decimal: str
    left_out: list[str]
    numbered: bool = False  # ids are numbers of rows, as there is no column of ids


class TableReader(Protocol):
    """A module that reads tables of one format."""

    def read_edges(self, path: Path, columns: Columns) -> Edges: ...

    def read_nodes(self, path: Path, columns: Columns) -> Nodes: ...


def table_pair(path: Path) -> tuple[Path | None, Path]:
    """Finds the edge and the node table: in a folder with ``edges`` and ``nodes``, or from the path of one of the two.  A file
    with another name is a table of rows without edges."""
    if path.is_dir():
        return _in_folder(path, "edges"), _in_folder(path, "nodes")
    for one, other in (("edges", "nodes"), ("nodes", "edges")):
        if one in path.stem:
            head, tail = path.stem.rsplit(one, 1)
            partner = _in_folder(path.parent, f"{head}{other}{tail}")
            return (path, partner) if one == "edges" else (partner, path)
    return None, path


def _in_folder(folder: Path, stem: str) -> Path:
    files = [folder / (stem + suffix) for suffix in SUFFIXES if (folder / (stem + suffix)).exists()]
    if not files:
        raise bad(folder, f"there is no {stem}.csv or {stem}.parquet", allowed="a folder with edges and nodes in these formats")
    if len(files) > 1:
        raise bad(folder, f"there is both {files[0].name} and {files[1].name}", allowed="one of them")
    return files[0]


def read_tables(edges_path: Path | None, nodes_path: Path, columns: Columns, task: str | None = None) -> ArrayGraph:
    """Reads and checks the graph in a pair of tables, or in a table of rows without edges.

    Args:
        edges_path, nodes_path (Path): The tables; without the first there are no edges.
        columns (Columns): Which columns are what.
        task (str, optional): What labels are read for. (default: :obj:`None`, what they look like)
    """
    nodes = _reader(nodes_path).read_nodes(nodes_path, columns)
    node_number = _number_ids(nodes, columns.id)
    edges, ends = None, np.empty((0, 2), np.int64)
    if edges_path is not None:
        if nodes.numbered:
            found = short(", ".join(nodes.features.names))
            what = f"column {columns.id!r} is missing; found: {found}"
            raise bad(nodes_path, what, row=1, column=columns.id, allowed="the ids of nodes (another name is given by --id)")
        edges = _reader(edges_path).read_edges(edges_path, columns)
        named_ends = ((columns.source, edges.source), (columns.target, edges.target))
        ends = np.stack([_look_up(edges, name, ids, node_number, nodes.path) for name, ids in named_ends], axis=1)
    label = columns.label or "label"
    labels = read_labels(LabelColumn(nodes.path, label, nodes.labels, nodes.rows, nodes.decimal), task)
    encoded = encode(nodes.path, nodes.features, columns.levels)
    graph = ArrayGraph(
        nodes.path,
        encoded.matrix,
        labels.y,
        ends,
        _read_splits(nodes),
        nodes.ids,
        labels.classes,
        names={"labels": label, **dict.fromkeys(MASKS, "the split column")},
        task=labels.task,
        reason=labels.reason,
        feature_names=encoded.names,
        feature_columns=nodes.features.names,
        levels=encoded.levels,
        missing_texts=encoded.missing_texts,
        may_miss=True,
        notes=encoded.notes + _left_out(nodes),
    )
    if edges is not None:
        _add_edge_features(graph, edges, columns)
    return check_graph(graph)


def _reader(path: Path) -> TableReader:
    """Imports the module that reads a file, by the end of its name.  Parquet needs pyarrow, which not everyone has."""
    if not path.is_file():
        raise bad(path, "this is a folder" if path.is_dir() else "there is no such file", allowed="a CSV or Parquet file")
    if path.suffix.lower() == ".csv":
        from . import csv_files

        return csv_files
    if path.suffix.lower() == ".parquet":
        from . import parquet_files

        return parquet_files
    raise bad(path, f"files of kind {path.suffix!r} are not read", allowed=", ".join(SUFFIXES))


def _number_ids(nodes: Nodes, column: str) -> dict[str, int]:
    """Maps each id to its node number; refuses empty and duplicate ids."""
    node_number = dict(zip(nodes.ids, range(len(nodes.ids)), strict=True))
    if len(node_number) == len(nodes.ids) and "" not in node_number:
        return node_number
    seen: dict[str, int] = {}
    for node, id in enumerate(nodes.ids):
        row = int(nodes.rows[node])
        if not id:
            raise bad(nodes.path, "the id is empty", row=row, column=column, allowed="anything else")
        if id in seen:
            what = f"id {short(id)} is there already, in row {nodes.rows[seen[id]]}"
            raise bad(nodes.path, what, row=row, column=column, allowed="each id once")
        seen[id] = node
    raise AssertionError("no id is empty or a duplicate")


def _look_up(edges: Edges, column: str, ids: list[str], node_number: dict[str, int], nodes_path: Path) -> NDArray[np.int64]:
    """Converts the ids in a column of the edge table to node numbers, (E,)."""
    numbers = np.fromiter(map(node_number.get, ids, repeat(-1)), np.int64, count=len(ids))
    unknown = numbers < 0
    if unknown.any():
        edge = int(np.argmax(unknown))
        what = f"{column} is {short(ids[edge])}" if ids[edge] else f"{column} is empty"
        raise bad(edges.path, what, row=int(edges.rows[edge]), column=column, allowed=f"the ids in {nodes_path.name}")
    return numbers


def _add_edge_features(graph: ArrayGraph, edges: Edges, columns: Columns) -> None:
    """Sets weights (E,) and features (E, K) of the edges, where the table has them; none may be missing."""
    encoded = encode(edges.path, edges.features, columns.edge_levels)
    matrix = encoded.matrix if isinstance(encoded.matrix, np.ndarray) else encoded.matrix.toarray()
    missing = np.isnan(matrix)
    if missing.any():
        edge, column = divmod(int(np.argmax(missing)), matrix.shape[1])
        row = int(edges.rows[edge])
        raise bad(edges.path, "the cell is empty", row=row, column=short(encoded.names[column]), allowed="a number")
    weight = _weight_column(edges.features.names, columns)
    if weight in encoded.levels:
        what = f"the weight is {short(encoded.levels[weight][0])}"
        raise bad(edges.path, what, column=short(weight), allowed="numbers")
    others = [index for index, name in enumerate(encoded.names) if name != weight]
    if weight is not None:
        graph.edge_weight = np.ascontiguousarray(matrix[:, encoded.names.index(weight)])
    if others:
        graph.edge_attr = np.ascontiguousarray(matrix[:, others])
    graph.edge_columns = [name for name in edges.features.names if name != weight]
    graph.edge_levels = encoded.levels
    graph.notes += encoded.notes


def _read_splits(nodes: Nodes) -> dict[str, Array]:
    """Converts split columns to masks, one row per split."""
    if not nodes.splits:
        return {}
    roles = []
    for name, cells in nodes.splits.items():
        for node, cell in enumerate(cells):
            if cell.lower() not in ROLES:
                what, row = f"the split is {short(cell)}", int(nodes.rows[node])
                raise bad(nodes.path, what, row=row, column=short(name), allowed="train, val, test, or nothing")
        roles.append([ROLES[cell.lower()] for cell in cells])
    return {mask: np.array(roles) == role for role, mask in enumerate(MASKS)}


def _left_out(nodes: Nodes) -> list[str]:
    """Says which columns are not read."""
    if not nodes.left_out:
        return []
    return [f"columns left out: {short(', '.join(nodes.left_out))}"]


# Headers


@dataclass(frozen=True)
class NodeHeader:
    """The places of columns in the node table: ids, labels (:obj:`None` for none), features, splits; names of the rest."""

    id: int | None
    label: int | None
    features: list[int]
    splits: list[int]
    left_out: list[str]


def node_header(path: Path, header: list[str], columns: Columns, row: int | None) -> NodeHeader:
    """Finds the columns of the node table; ``row`` is that of the header, for messages."""
    others_matter = columns.features is None
    _check_names(path, header, row, allow_unnamed=not others_matter)
    id = columns.id if columns.id in header or columns.id != DEFAULT_ID else None  # else the number of the row
    ends = [name for name in (id, columns.label) if name is not None]
    wanted = [*ends, *columns.split]
    _refuse_missing(path, header, wanted, row, "other names are given by --id, --label and --split-column")
    if columns.features is None:
        features = [name for name in header if name not in wanted]
    else:
        features = list(columns.features)
        _refuse_missing(path, header, features, row, "all features; the names are those of --features, or of the run")
    if columns.label in features:
        allowed = short(", ".join(name for name in features if name != columns.label))
        raise bad(
            path,
            f"column {short(columns.label)} is the label, and no feature",
            row=row,
            column=short(columns.label),
            allowed=allowed,
        )
    for name in (*columns.categorical, *columns.levels):
        if name not in features:
            raise bad(
                path, f"column {short(name)} is no feature", row=row, column=short(name), allowed=short(", ".join(features))
            )
    if not features:
        raise bad(path, "there are no feature columns", row=row, allowed="at least one column beside id and label")
    left_out = [name for name in header if name not in (*wanted, *features)]
    place = header.index
    label = None if columns.label is None else place(columns.label)
    return NodeHeader(
        None if id is None else place(id),
        label,
        [place(name) for name in features],
        [place(name) for name in columns.split],
        left_out,
    )


@dataclass(frozen=True)
class EdgeHeader:
    """The places of columns in the edge table: the ends, and features with the weight among them."""

    source: int
    target: int
    features: list[int]


def edge_header(path: Path, header: list[str], columns: Columns, row: int | None) -> EdgeHeader:
    """Finds the columns of the edge table; ``row`` is that of the header, for messages."""
    _check_names(path, header, row, allow_unnamed=columns.edge_features is not None)
    ends = [columns.source, columns.target]
    _refuse_missing(path, header, ends, row, "other names are given by --source and --target")
    weight = _weight_column(header, columns)
    features = [*([] if weight is None else [weight]), *(columns.edge_features or ())]
    _refuse_missing(path, header, features, row, "those of --edge-weight and --edge-features, or of the run")
    others = [name for name in header if name not in (*ends, *features)]
    if others and columns.edge_features is None:
        allowed = "source, target, weight, and those that --edge-features names (`--edge-features none` leaves others out)"
        raise bad(path, f"column {short(others[0])} has no use", row=row, column=others[0], allowed=allowed)
    place = header.index
    return EdgeHeader(place(ends[0]), place(ends[1]), [place(name) for name in dict.fromkeys(features)])


def _weight_column(names: list[str], columns: Columns) -> str | None:
    """Returns the name of the column of weights, :obj:`None` for none."""
    if columns.edge_weight is None:
        return WEIGHT if WEIGHT in names and WEIGHT not in (columns.edge_features or ()) else None
    return None if columns.edge_weight == NO_COLUMN else columns.edge_weight


def _check_names(path: Path, header: list[str], row: int | None, allow_unnamed: bool) -> None:
    """Refuses a name that is there twice and, unless the columns to read are named, a column without one."""
    for index, name in enumerate(header):
        if not name and not allow_unnamed:
            raise bad(path, "the column has no name", row=row, column=index + 1, allowed="a name for every column")
        if name and name in header[:index]:
            raise bad(path, f"column {short(name)} is there twice", row=row, column=short(name), allowed="each name once")


def _refuse_missing(path: Path, header: list[str], wanted: list[str], row: int | None, hint: str) -> None:
    """Names the columns that are wanted and not there."""
    missing = [name for name in wanted if name not in header]
    if missing:
        what = f"column {missing[0]!r} is" if len(missing) == 1 else f"columns {', '.join(map(repr, missing))} are"
        found = short(", ".join(header))
        raise bad(path, f"{what} missing; found: {found}", row=row, column=missing[0], allowed=f"{', '.join(wanted)} ({hint})")
