r"""Graphs as two tables: edges (``source``, ``target``) and nodes (``id``, ``label``, features), in CSV or Parquet.

The readers of both formats give the same :class:`Edges` and :class:`Nodes`; here ids become numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .check import UNLABELLED, ArrayGraph, bad, checked, short

SUFFIXES = (".csv", ".parquet")
EDGE_COLUMNS = ("source", "target")
NODE_COLUMNS = ("id", "label")


@dataclass
class Edges:
    """The edge table: ids as written, and the number of each row for messages."""

    path: Path
    source: list[str]
    target: list[str]
    rows: NDArray


@dataclass
class Nodes:
    """The node table: ids and labels as written, an empty label for an unlabelled node."""

    path: Path
    ids: list[str]
    labels: list[str]
    features: NDArray
    rows: NDArray


def table_pair(path: Path) -> tuple[Path, Path]:
    """The edge and the node file that a path means: a folder with ``edges`` and ``nodes``, or one of the two."""
    if path.is_dir():
        return _in_folder(path, "edges"), _in_folder(path, "nodes")
    for one, other in (("edges", "nodes"), ("nodes", "edges")):
        if one in path.stem:
            head, tail = path.stem.rsplit(one, 1)
            partner = _in_folder(path.parent, f"{head}{other}{tail}")
            return (path, partner) if one == "edges" else (partner, path)
    raise bad(path, "the name has neither 'edges' nor 'nodes' in it", allowed="a pair like my_edges.csv and my_nodes.csv")


def _in_folder(folder: Path, stem: str) -> Path:
    found = [folder / (stem + suffix) for suffix in SUFFIXES if (folder / (stem + suffix)).exists()]
    if not found:
        raise bad(folder, f"there is no {stem}.csv or {stem}.parquet", allowed="a folder with edges and nodes in these formats")
    if len(found) > 1:
        raise bad(folder, f"there is both {found[0].name} and {found[1].name}", allowed="one of them")
    return found[0]


def read_tables(edges_path: Path, nodes_path: Path) -> ArrayGraph:
    """The graph in a pair of tables, checked."""
    nodes = _reader(nodes_path).read_nodes(nodes_path)
    index = _numbered(nodes)
    edges = _reader(edges_path).read_edges(edges_path)
    pairs = np.stack([_looked_up(edges, name, index, nodes.path) for name in EDGE_COLUMNS], axis=1)
    labels, classes = _numbered_labels(nodes)
    return checked(ArrayGraph(nodes.path, nodes.features, labels, pairs, {}, nodes.ids, classes))


def _reader(path: Path):
    """The module that reads files of this kind.  Parquet needs pyarrow, which not everyone has."""
    if not path.is_file():
        raise bad(path, "this is a folder" if path.is_dir() else "there is no such file", allowed="a CSV or Parquet file")
    if path.suffix.lower() == ".csv":
        from . import csv_files

        return csv_files
    if path.suffix.lower() == ".parquet":
        from . import parquet_files

        return parquet_files
    raise bad(path, f"files of kind {path.suffix!r} are not read", allowed=", ".join(SUFFIXES))


def _numbered(nodes: Nodes) -> dict[str, int]:
    """The number of every id."""
    index = dict(zip(nodes.ids, range(len(nodes.ids)), strict=True))
    if len(index) == len(nodes.ids) and "" not in index:
        return index
    seen: dict[str, int] = {}
    for place, id in enumerate(nodes.ids):
        row = int(nodes.rows[place])
        if not id:
            raise bad(nodes.path, "the id is empty", row=row, column="id", allowed="anything else")
        if id in seen:
            what = f"id {short(id)} is there already, in row {nodes.rows[seen[id]]}"
            raise bad(nodes.path, what, row=row, column="id", allowed="each id once")
        seen[id] = place
    raise AssertionError("an id was empty or there twice, but was not found")


def _looked_up(edges: Edges, column: str, index: dict[str, int], nodes_path: Path) -> NDArray:
    """The numbers of the ids in a column of the edge table."""
    ids = getattr(edges, column)
    numbers = np.fromiter(map(index.get, ids, repeat(-1)), np.int64, count=len(ids))
    unknown = numbers < 0
    if unknown.any():
        place = int(np.argmax(unknown))
        what = f"{column} is {short(ids[place])}" if ids[place] else f"{column} is empty"
        raise bad(edges.path, what, row=int(edges.rows[place]), column=column, allowed=f"the ids in {nodes_path.name}")
    return numbers


def _numbered_labels(nodes: Nodes) -> tuple[NDArray, list[str]]:
    """Labels as numbers, and their names: in numerical order if all are integers, else in alphabetical order."""
    names = set(nodes.labels) - {""}
    for wrong in sorted(names & {"nan", "NaN", "NAN", "null", "NULL", "None"}):
        row = int(nodes.rows[nodes.labels.index(wrong)])
        raise bad(nodes.path, f"label is {wrong!r}", row=row, column="label", allowed="a name, or nothing if it is not known")
    classes = sorted(names, key=lambda name: (int(name), name)) if all(map(_is_integer, names)) else sorted(names)
    number = {name: place for place, name in enumerate(classes)} | {"": UNLABELLED}
    return np.fromiter(map(number.__getitem__, nodes.labels), np.int64, count=len(nodes.labels)), classes


def _is_integer(name: str) -> bool:
    return len(name) < 20 and name.isascii() and name.removeprefix("-").isdecimal()  # longer ones are names


def feature_columns(path: Path, header: list[str], needed: tuple[str, ...], row: int | None) -> list[str]:
    """The columns beside the needed ones; the header, which is in that row if in any, is checked on the way."""
    for place, name in enumerate(header):
        if not name:
            raise bad(path, "the column has no name", row=row, column=place + 1, allowed="a name for every column")
        if name in header[:place]:
            raise bad(path, f"column {short(name)} is there twice", row=row, column=short(name), allowed="each name once")
    for name in needed:
        if name not in header:
            found = short(", ".join(header))
            raise bad(path, f"column {name!r} is missing; found: {found}", row=row, column=name, allowed=", ".join(needed))
    others = [name for name in header if name not in needed]
    if needed == EDGE_COLUMNS and others:
        what = f"column {short(others[0])} has no use: edges have no weights or other properties"
        raise bad(path, what, row=row, column=others[0], allowed="source, target")
    if needed == NODE_COLUMNS and not others:
        raise bad(path, "there are no feature columns", row=row, allowed="at least one column beside id and label")
    return others
