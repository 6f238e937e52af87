r"""Reads graphs from two tables: edges (``source``, ``target``) and nodes (``id``, ``label``, features), in CSV or Parquet.

The readers of both formats return the same :class:`Edges` and :class:`Nodes`; here ids become numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .check import UNLABELLED, Array, ArrayGraph, bad, check_graph, short

SUFFIXES = (".csv", ".parquet")
EDGE_COLUMNS = ("source", "target")
NODE_COLUMNS = ("id", "label")


@dataclass
class Edges:
    """The edge table: ids as written, (E,) each, and the row number of each edge in the file, for messages."""

    path: Path
    source: list[str]
    target: list[str]
    rows: Array


@dataclass
class Nodes:
    """The node table: ids and labels as written, (N,) each, an empty label for an unlabelled node; features (N, F); and the
    row number of each node in the file, for messages."""

    path: Path
    ids: list[str]
    labels: list[str]
    features: Array
    rows: Array


class TableReader(Protocol):
    """A module that reads tables of one format."""

    def read_edges(self, path: Path) -> Edges: ...

    def read_nodes(self, path: Path) -> Nodes: ...


def table_pair(path: Path) -> tuple[Path, Path]:
    """Finds the edge and the node table: in a folder with ``edges`` and ``nodes``, or from the path of one of the two."""
    if path.is_dir():
        return _in_folder(path, "edges"), _in_folder(path, "nodes")
    for one, other in (("edges", "nodes"), ("nodes", "edges")):
        if one in path.stem:
            head, tail = path.stem.rsplit(one, 1)
            partner = _in_folder(path.parent, f"{head}{other}{tail}")
            return (path, partner) if one == "edges" else (partner, path)
    raise bad(path, "the name has neither 'edges' nor 'nodes' in it", allowed="a pair like my_edges.csv and my_nodes.csv")


def _in_folder(folder: Path, stem: str) -> Path:
    files = [folder / (stem + suffix) for suffix in SUFFIXES if (folder / (stem + suffix)).exists()]
    if not files:
        raise bad(folder, f"there is no {stem}.csv or {stem}.parquet", allowed="a folder with edges and nodes in these formats")
    if len(files) > 1:
        raise bad(folder, f"there is both {files[0].name} and {files[1].name}", allowed="one of them")
    return files[0]


def read_tables(edges_path: Path, nodes_path: Path) -> ArrayGraph:
    """Reads and checks the graph in a pair of tables."""
    nodes = _reader(nodes_path).read_nodes(nodes_path)
    node_number = _number_ids(nodes)
    edges = _reader(edges_path).read_edges(edges_path)
    pairs = np.stack([_look_up(edges, name, node_number, nodes.path) for name in EDGE_COLUMNS], axis=1)
    labels, classes = _number_labels(nodes)
    return check_graph(ArrayGraph(nodes.path, nodes.features, labels, pairs, {}, nodes.ids, classes))


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


def _number_ids(nodes: Nodes) -> dict[str, int]:
    """Maps each id to its node number; refuses empty and duplicate ids."""
    node_number = dict(zip(nodes.ids, range(len(nodes.ids)), strict=True))
    if len(node_number) == len(nodes.ids) and "" not in node_number:
        return node_number
    seen: dict[str, int] = {}
    for node, id in enumerate(nodes.ids):
        row = int(nodes.rows[node])
        if not id:
            raise bad(nodes.path, "the id is empty", row=row, column="id", allowed="anything else")
        if id in seen:
            what = f"id {short(id)} is there already, in row {nodes.rows[seen[id]]}"
            raise bad(nodes.path, what, row=row, column="id", allowed="each id once")
        seen[id] = node
    raise AssertionError("no id is empty or a duplicate")


def _look_up(edges: Edges, column: str, node_number: dict[str, int], nodes_path: Path) -> NDArray[np.int64]:
    """Converts the ids in a column of the edge table to node numbers, (E,)."""
    ids: list[str] = getattr(edges, column)
    numbers = np.fromiter(map(node_number.get, ids, repeat(-1)), np.int64, count=len(ids))
    unknown = numbers < 0
    if unknown.any():
        edge = int(np.argmax(unknown))
        what = f"{column} is {short(ids[edge])}" if ids[edge] else f"{column} is empty"
        raise bad(edges.path, what, row=int(edges.rows[edge]), column=column, allowed=f"the ids in {nodes_path.name}")
    return numbers


def _number_labels(nodes: Nodes) -> tuple[NDArray[np.int64], list[str]]:
    """Converts labels to class numbers, (N,), and lists the class names: by number if all are integers, else by alphabet."""
    names = set(nodes.labels) - {""}
    for null in sorted(names & {"nan", "NaN", "NAN", "null", "NULL", "None"}):
        row = int(nodes.rows[nodes.labels.index(null)])
        raise bad(nodes.path, f"label is {null!r}", row=row, column="label", allowed="a name, or nothing if it is not known")
    classes = sorted(names, key=lambda name: (int(name), name)) if all(map(_is_integer, names)) else sorted(names)
    class_number = {name: number for number, name in enumerate(classes)} | {"": UNLABELLED}
    return np.fromiter(map(class_number.__getitem__, nodes.labels), np.int64, count=len(nodes.labels)), classes


def _is_integer(name: str) -> bool:
    """Tells whether a label is an integer; one of 20 characters or more is a name."""
    return len(name) < 20 and name.isascii() and name.removeprefix("-").isdecimal()


def feature_columns(path: Path, header: list[str], needed: tuple[str, ...], row: int | None) -> list[str]:
    """Checks a header and returns its columns other than the ``needed`` ones; ``row`` is that of the header, for messages."""
    for index, name in enumerate(header):
        if not name:
            raise bad(path, "the column has no name", row=row, column=index + 1, allowed="a name for every column")
        if name in header[:index]:
            raise bad(path, f"column {short(name)} is there twice", row=row, column=short(name), allowed="each name once")
    for name in needed:
        if name not in header:
            columns = short(", ".join(header))
            raise bad(path, f"column {name!r} is missing; found: {columns}", row=row, column=name, allowed=", ".join(needed))
    others = [name for name in header if name not in needed]
    if needed == EDGE_COLUMNS and others:
        what = f"column {short(others[0])} has no use: edges have no weights or other properties"
        raise bad(path, what, row=row, column=others[0], allowed="source, target")
    if needed == NODE_COLUMNS and not others:
        raise bad(path, "there are no feature columns", row=row, allowed="at least one column beside id and label")
    return others
