r"""Reads graphs from two tables: edges (``source``, ``target``) and nodes (``id``, ``label``, features), in any format that
:mod:`phgcn.data.readers` opens.

Here ids become numbers, and features a matrix.  All faults of both tables are collected, and raised as one answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..text import did_you_mean
from .cells import FeatureColumn, FeatureTable, join_columns, to_texts
from .check import MASKS, Array, ArrayGraph, bad, check_graph, short
from .columns import ID, NO_COLUMN, Columns
from .encode import encode
from .faults import Faults
from .labels import LabelColumn, read_labels
from .readers import SUFFIXES, OpenTable, open_table, suffix_of

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

    def only(self, kept: Array) -> Edges:
        """Returns the edges at some positions."""
        places, features = kept.tolist(), self.features
        texts = {name: [cells[place] for place in places] for name, cells in features.texts.items()}
        part = FeatureTable(features.names, features.number_names, features.numbers[kept], texts, features.notes)
        return Edges(
            self.path, [self.source[place] for place in places], [self.target[place] for place in places], part, self.rows[kept]
        )


@dataclass
class Nodes:
    """The node table: ids and labels as written, (N,) each, an empty label for an unlabelled node; features; the cells of
    split columns; the row number of each node in the file, for messages; the decimal sign; columns left out; and whether
    there is no column of ids."""

    path: Path
    ids: list[str]
    labels: list[str]
    features: FeatureTable
    splits: dict[str, list[str]]
    rows: Array
    decimal: str
    left_out: list[str]
    numbered: bool


def table_pair(path: Path) -> tuple[Path | None, Path]:
    """Finds the edge and the node table: in a folder with ``edges`` and ``nodes``, or from the path of one of the two.  A file
    with another name is a table of rows without edges."""
    if path.is_dir():
        return _in_folder(path, "edges"), _in_folder(path, "nodes")
    stem = path.name.removesuffix(path.name[len(path.name) - len(suffix_of(path)) :])
    for one, other in (("edges", "nodes"), ("nodes", "edges")):
        if one in stem:
            head, tail = stem.rsplit(one, 1)
            partner = _in_folder(path.parent, f"{head}{other}{tail}")
            return (path, partner) if one == "edges" else (partner, path)
    return None, path


def _in_folder(folder: Path, stem: str) -> Path:
    files = [folder / (stem + suffix) for suffix in SUFFIXES if (folder / (stem + suffix)).exists()]
    if not files:
        endings = f"{', '.join(SUFFIXES[1:-1])} or {SUFFIXES[-1]}"
        allowed = "a folder with edges and nodes in these formats, or --nodes FILE --edges FILE"
        raise bad(folder, f"there is no {stem}{SUFFIXES[0]} (nor {endings})", allowed=allowed)
    if len(files) > 1:
        raise bad(folder, f"there is both {files[0].name} and {files[1].name}", allowed="one of them")
    return files[0]


def read_tables(edges_from: Any, nodes_from: Any, columns: Columns, task: str | None = None) -> ArrayGraph:
    """Reads and checks the graph in a pair of tables, or in a table of rows without edges.

    Args:
        edges_from, nodes_from (Path or pandas.DataFrame): The tables; without the first, :obj:`None`, there are no edges.
        columns (Columns): Which columns are what.
        task (str, optional): What labels are read for. (default: :obj:`None`, what they look like)
    """
    faults = Faults()
    nodes = edges = None
    with faults.noted():
        nodes = _read_nodes(nodes_from, columns, faults)
    with faults.noted():
        edges = _no_edges() if edges_from is None else _read_edges(edges_from, columns, faults)
    if nodes is None or edges is None:
        faults.raise_if_any()
    assert nodes is not None and edges is not None
    notes: list[str] = []
    node_number = _number_ids(nodes, columns.id, faults)
    ends = _look_up_ends(edges, columns, node_number, nodes, faults)
    known: Array = np.all(ends >= 0, axis=1)
    if columns.unknown_ids == "drop" and not known.all():
        notes += [_dropped(edges, ends, known)]
        edges, ends = edges.only(np.flatnonzero(known)), ends[known]
    label = columns.label or "label"
    labels = encoded = None
    with faults.noted():
        labels = read_labels(LabelColumn(nodes.path, label, nodes.labels, nodes.rows, nodes.decimal), task)
    with faults.noted():
        encoded = encode(nodes.path, nodes.features, columns.levels)
    masks = _read_splits(nodes, faults)
    edge_values = _edge_features(edges, columns, faults)
    faults.raise_if_any()
    assert labels is not None and encoded is not None
    if nodes.numbered and edges_from is not None:
        notes.append(f"{nodes.path.name} has no column id: nodes are numbered from 1, in their order")
    graph = ArrayGraph(
        nodes.path,
        encoded.matrix,
        labels.y,
        ends,
        masks,
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
        notes=encoded.notes + _left_out(nodes) + notes,
        **edge_values,
    )
    graph.notes += edges.features.notes
    return check_graph(graph)


# Tables


def _read_nodes(source: Any, columns: Columns, faults: Faults) -> Nodes:
    table = open_table(source, columns, faults, "the frame of nodes")
    header = node_header(table.path, table.header, columns, table.row)
    texts = {} if header.id is None else {header.id: True}
    texts |= {} if header.label is None else {header.label: False}
    checked = list(texts)
    texts |= dict.fromkeys(header.splits, False)
    named = {*columns.categorical, *columns.levels, *table.named}
    rows, found, features = _read_columns(table, texts, header.features, named, faults)
    if not len(rows) and not faults.first:
        what = "there are no rows" + (" below the header" if table.row is not None else "")
        raise bad(table.path, what, row=table.row, allowed="at least one node")
    ids = [str(number + 1) for number in range(len(rows))] if header.id is None else found[header.id]
    labels = [""] * len(rows) if header.label is None else found[header.label]
    for place in checked:
        _refuse_control_characters(table, table.header[place], found[place], rows, faults)
    splits = {table.header[place]: found[place] for place in header.splits}
    numbered = header.id is None
    return Nodes(table.path, ids, labels, features, splits, rows, table.decimal, header.left_out, numbered)


def _read_edges(source: Any, columns: Columns, faults: Faults) -> Edges:
    table = open_table(source, columns, faults, "the frame of edges")
    header = edge_header(table.path, table.header, columns, table.row)
    named = {*columns.edge_levels, *table.named}
    rows, found, features = _read_columns(table, {header.source: True, header.target: True}, header.features, named, faults)
    return Edges(table.path, found[header.source], found[header.target], features, rows)


def _no_edges() -> Edges:
    table = FeatureTable([], [], np.empty((0, 0), np.float32), {})
    return Edges(Path(), [], [], table, np.empty(0, np.int64))


def _read_columns(
    table: OpenTable, texts: dict[int, bool], features: Sequence[int], named: set[str], faults: Faults
) -> tuple[Array, dict[int, list[str]], FeatureTable]:
    """Reads columns of a table by their positions: row numbers, the columns of texts, and those of features.

    Of each column of texts it is said whether numbers in it must be whole, as ids are.
    """
    rows: list[Array] = []
    found: dict[int, list[str]] = {place: [] for place in texts}
    names = [table.header[place] for place in features]
    columns = [FeatureColumn(table.path, name, table.decimal, name in named) for name in names]
    for numbers, cells in table.blocks([*texts, *features]):
        rows.append(numbers)
        for (place, whole), column in zip(texts.items(), cells, strict=False):
            if whole:
                _refuse_decimals(table, table.header[place], column)
            found[place] += to_texts(column)
        for feature, column in zip(columns, cells[len(texts) :], strict=True):
            feature.add(numbers, column, faults)
    all_rows = np.concatenate(rows) if rows else np.empty(0, np.int64)
    return all_rows, found, join_columns(columns, len(all_rows), faults)


def _refuse_decimals(table: OpenTable, name: str, cells: Any) -> None:
    """Refuses numbers with decimals in the place of ids."""
    if not isinstance(cells, np.ndarray) or cells.dtype.kind != "f":
        return
    odd = np.isfinite(cells) & (cells != np.floor(cells))
    if odd.any():
        row = int(np.argmax(odd))
        raise bad(table.path, f"{name} is {short(cells[row].item())}", row=row, column=name, allowed="text or integers")


def _refuse_control_characters(table: OpenTable, name: str, cells: list[str], rows: Array, faults: Faults) -> None:
    """Refuses ids and labels with a line break or another control character: a missing quote, or a file of no text."""
    for row, cell in zip(rows.tolist(), cells, strict=True):
        if not cell.isprintable():
            error = bad(table.path, f"{name} is {short(cell)}", row=row, column=name, allowed="text without control characters")
            faults.add(f"{table.path} {name} control", error)


def _number_ids(nodes: Nodes, column: str, faults: Faults) -> dict[str, int]:
    """Maps each id to its node number; refuses empty and duplicate ids."""
    node_number = dict(zip(nodes.ids, range(len(nodes.ids)), strict=True))
    if len(node_number) == len(nodes.ids) and "" not in node_number:
        return node_number
    seen: dict[str, int] = {}
    for node, id in enumerate(nodes.ids):
        row = int(nodes.rows[node])
        if not id:
            faults.add(
                f"{nodes.path} empty", bad(nodes.path, "the id is empty", row=row, column=column, allowed="anything else")
            )
        elif id in seen:
            what = f"id {short(id)} is there already, in row {nodes.rows[seen[id]]}"
            faults.add(f"{nodes.path} twice", bad(nodes.path, what, row=row, column=column, allowed="each id once"))
        seen.setdefault(id, node)
    return node_number


def _look_up_ends(
    edges: Edges, columns: Columns, node_number: dict[str, int], nodes: Nodes, faults: Faults
) -> NDArray[np.int64]:
    """Converts the ids of both ends of edges to node numbers, (E, 2).  An unknown one is -1, and a fault unless dropped."""
    ends = np.empty((len(edges.rows), 2), np.int64)
    for place, (column, ids) in enumerate(((columns.source, edges.source), (columns.target, edges.target))):
        ends[:, place] = np.fromiter(map(node_number.get, ids, repeat(-1)), np.int64, count=len(ids))
        unknown = np.flatnonzero(ends[:, place] < 0)
        if columns.unknown_ids == "drop":
            unknown = unknown[[not ids[edge] for edge in unknown.tolist()]]
        if len(unknown):
            first = int(unknown[0])
            what = f"{column} is {short(ids[first])}" if ids[first] else f"{column} is empty"
            allowed = f"the ids in {nodes.path.name}; `--unknown-ids drop` leaves such edges out"
            if nodes.numbered:
                allowed = f"1 to {len(nodes.ids)}, as {nodes.path.name} has no column id; --id names another"
            error = bad(edges.path, what, row=int(edges.rows[first]), column=column, allowed=allowed)
            faults.add(f"{edges.path} {column} unknown", error, len(unknown))
    return ends


def _dropped(edges: Edges, ends: Array, known: Array) -> str:
    """Says how many edges are left out, and an id that is not known."""
    first = int(np.argmin(known))
    id = edges.source[first] if ends[first, 0] < 0 else edges.target[first]
    return f"{int((~known).sum()):,} edges left out, which lead to unknown ids such as {short(id)}"


def _edge_features(edges: Edges, columns: Columns, faults: Faults) -> dict[str, Any]:
    """Returns weights (E,) and features (E, K) of the edges, where the table has them, and the names of their columns."""
    encoded = None
    with faults.noted():
        encoded = encode(edges.path, edges.features, columns.edge_levels)
    if encoded is None:
        return {}
    edges.features.notes += encoded.notes
    matrix = encoded.matrix if isinstance(encoded.matrix, np.ndarray) else encoded.matrix.toarray()
    missing = np.isnan(matrix)
    if missing.any():
        edge, column = divmod(int(np.argmax(missing)), matrix.shape[1])
        row = int(edges.rows[edge])
        error = bad(edges.path, "the cell is empty", row=row, column=short(encoded.names[column]), allowed="a number")
        faults.add(f"{edges.path} empty cells", error, int(missing.sum()))
    weight = _weight_column(edges.features.names, columns)
    if weight in encoded.levels:
        what = f"the weight is {short(encoded.levels[weight][0])}"
        faults.add(f"{edges.path} weight", bad(edges.path, what, column=short(weight), allowed="numbers"))
        return {}
    others = [index for index, name in enumerate(encoded.names) if name != weight]
    values: dict[str, Any] = {"edge_columns": [name for name in edges.features.names if name != weight]}
    values["edge_levels"] = encoded.levels
    if weight is not None:
        values["edge_weight"] = np.ascontiguousarray(matrix[:, encoded.names.index(weight)])
    if others:
        values["edge_attr"] = np.ascontiguousarray(matrix[:, others])
    return values


def _read_splits(nodes: Nodes, faults: Faults) -> dict[str, Array]:
    """Converts split columns to masks, one row per split."""
    if not nodes.splits:
        return {}
    roles = []
    for name, cells in nodes.splits.items():
        for node, cell in enumerate(cells):
            if cell.lower() not in ROLES:
                what, row = f"the split is {short(cell)}", int(nodes.rows[node])
                error = bad(nodes.path, what, row=row, column=short(name), allowed="train, val, test, or nothing")
                faults.add(f"{nodes.path} {name} split", error)
        roles.append([ROLES.get(cell.lower(), 3) for cell in cells])
    return {mask: np.array(roles) == role for role, mask in enumerate(MASKS)}


def _left_out(nodes: Nodes) -> list[str]:
    """Says which columns are not read, and how cells were read that are no plain numbers."""
    left_out = [f"columns left out: {short(', '.join(nodes.left_out))}"] if nodes.left_out else []
    return left_out + nodes.features.notes


# Headers


@dataclass(frozen=True)
class NodeHeader:
    """The positions of columns in the node table: ids and labels (:obj:`None` for none), features, splits; names of the
    rest."""

    id: int | None
    label: int | None
    features: list[int]
    splits: list[int]
    left_out: list[str]


def node_header(path: Path, header: list[str], columns: Columns, row: int | None) -> NodeHeader:
    """Finds the columns of the node table; ``row`` is that of the header, for messages."""
    others_matter = columns.features is None
    _check_names(path, header, row, allow_unnamed=not others_matter)
    id = None if columns.id == ID and ID not in header else columns.id
    wanted = [*(name for name in (id, columns.label) if name is not None), *columns.split]
    _refuse_missing(path, header, wanted, row, "other names by --id, --label and --split-column")
    if columns.features is None:
        features = [name for name in header if name not in wanted]
    else:
        features = list(columns.features)
        _refuse_missing(path, header, features, row, "the columns that are there, by --features or as in the run")
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
    of_id, of_label = (None if name is None else place(name) for name in (id, columns.label))
    return NodeHeader(of_id, of_label, [place(name) for name in features], [place(name) for name in columns.split], left_out)


@dataclass(frozen=True)
class EdgeHeader:
    """Column positions in the edge table: the ends, and features.  The weight column, if any, is one of the features."""

    source: int
    target: int
    features: list[int]


def edge_header(path: Path, header: list[str], columns: Columns, row: int | None) -> EdgeHeader:
    """Finds the columns of the edge table; ``row`` is that of the header, for messages."""
    _check_names(path, header, row, allow_unnamed=columns.edge_features is not None)
    ends = [columns.source, columns.target]
    _refuse_missing(path, header, ends, row, "other names by --edge-source and --edge-target")
    weight = _weight_column(header, columns)
    features = [*([] if weight is None else [weight]), *(columns.edge_features or ())]
    _refuse_missing(
        path, header, features, row, "the columns that are there, by --edge-weight and --edge-features or as in the run"
    )
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
    """Names the columns that are wanted and not there, and columns that are spelled nearly like them."""
    missing = [name for name in wanted if name not in header]
    if missing:
        what = f"column {missing[0]!r} is" if len(missing) == 1 else f"columns {', '.join(map(repr, missing))} are"
        found = short(", ".join(header))
        meant = "".join(did_you_mean(name, header) for name in missing)
        raise bad(path, f"{what} missing{meant}; found: {found}", row=row, column=missing[0], allowed=hint)
