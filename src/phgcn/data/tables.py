"""Reads graphs from two tables: edges (``source``, ``target``) and nodes (``id``, ``label``,
features).

Ids become numbers, features a matrix. All faults of both tables are raised as one answer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..text import counted, listed
from .cells import FeatureTable, read_features, to_texts
from .check import MASKS, Array, ArrayGraph, Faults, GraphFileError, bad, check_graph, short
from .columns import ID, Columns, Header, weight_column
from .encode import encode
from .labels import UNKNOWN, LabelColumn, read_labels
from .readers import SUFFIXES, OpenTable, open_table, stem_of

TRAIN, VAL = ("train", "training"), ("val", "valid", "validation", "dev")
TEST, NONE = ("test", "testing"), ("", "none")
# what a cell of a split column means: an index into :data:`phgcn.data.check.MASKS`, or 3
ROLES = {word: role for role, words in enumerate((TRAIN, VAL, TEST, NONE)) for word in words}


@dataclass
class Edges:
    """The edge table: ids as written, (E,) each, features, and row numbers for messages."""

    path: Path
    source: list[str]
    target: list[str]
    features: FeatureTable
    rows: Array

    def only(self, kept: Array) -> Edges:
        """Returns the edges at some positions."""

        def pick(cells: list[str]) -> list[str]:
            return [cells[edge] for edge in kept.tolist()]

        texts = {name: pick(cells) for name, cells in self.features.texts.items()}
        features = replace(self.features, numbers=self.features.numbers[kept], texts=texts)
        return Edges(self.path, pick(self.source), pick(self.target), features, self.rows[kept])


@dataclass
class Nodes:
    """The node table: ids and labels as written, (N,) each, an empty label for none; features;
    cells of split columns; unused columns; and the node of each id."""

    table: OpenTable
    ids: list[str]
    labels: list[str]
    features: FeatureTable
    splits: dict[str, list[str]]
    left_out: list[str]
    numbered: bool
    node_of: dict[str, int] = field(default_factory=dict)

    def error(self, node: int, what: str, allowed: str, column: str) -> GraphFileError:
        row = int(self.table.rows[node])
        return bad(self.table.path, what, allowed, row=row, column=column)

    def number_ids(self, column: str, faults: Faults) -> None:
        """Maps each id to its node; refuses empty and duplicate ids."""
        path = self.table.path
        for node, id in enumerate(self.ids):
            if not id:
                error = self.error(node, "the id is empty", "anything else", column)
                faults.add(f"{path} empty", error)
            elif id in self.node_of:
                first = int(self.table.rows[self.node_of[id]])
                what = f"id {short(id)} is there already, in row {first}"
                faults.add(f"{path} twice", self.error(node, what, "each id once", column))
            else:
                self.node_of[id] = node


def table_pair(path: Path) -> tuple[Path | None, Path]:
    """Finds the edge and the node table in a folder with ``edges`` and ``nodes``, or from the path
    of one of them. A file without the other one is a table of rows without edges."""
    if path.is_dir():
        return _in_folder(path, "edges"), _in_folder(path, "nodes")
    stem = stem_of(path)
    for one, other in (("edges", "nodes"), ("nodes", "edges")):
        if one in stem:
            head, tail = stem.rsplit(one, 1)
            if _files(path.parent, f"{head}{other}{tail}"):
                partner = _in_folder(path.parent, f"{head}{other}{tail}")
                return (path, partner) if one == "edges" else (partner, path)
    return None, path


def _files(folder: Path, stem: str) -> list[Path]:
    return [folder / (stem + suffix) for suffix in SUFFIXES if (folder / (stem + suffix)).exists()]


def _in_folder(folder: Path, stem: str) -> Path:
    files = _files(folder, stem)
    if not files:
        endings = f"{', '.join(SUFFIXES[1:-1])} or {SUFFIXES[-1]}"
        allowed = "a folder with edges and nodes in these formats, or --nodes FILE --edges FILE"
        raise bad(folder, f"there is no {stem}{SUFFIXES[0]} (nor {endings})", allowed)
    if len(files) > 1:
        raise bad(folder, f"there is both {files[0].name} and {files[1].name}", "one of them")
    return files[0]


def read_tables(
    edges_from: Any, nodes_from: Any, columns: Columns, task: str | None = None
) -> ArrayGraph:
    """Reads and checks the graph in a pair of tables, paths or frames, without edges if the first
    is :obj:`None`. ``task`` is the task of the labels, by default the one that they look like."""
    faults, nodes, edges = Faults(of_frames=not isinstance(nodes_from, Path)), None, None
    with faults.noted():
        nodes = _read_nodes(nodes_from, columns, faults)
    with faults.noted():
        edges = _no_edges() if edges_from is None else _read_edges(edges_from, columns, faults)
    values: dict[str, Any] = {}
    notes = []
    if nodes is not None:  # each table is checked to its end, whatever is wrong with the other
        values |= _node_values(nodes, columns, task, faults)
    if nodes is not None and edges is not None:
        ends = _look_up_ends(edges, columns, nodes, faults)
        known: Array = np.all(ends >= 0, axis=1)
        if columns.unknown_ids == "drop" and not known.all():
            notes.append(_dropped(edges, ends, known))
            edges, ends = edges.only(np.flatnonzero(known)), ends[known]
        values["edges"] = ends
    if edges is not None:
        values |= _edge_values(edges, columns, faults)
    faults.raise_if_any()
    assert nodes is not None and edges is not None
    path = nodes.table.path
    if nodes.numbered and edges_from is not None:
        notes.append(f"{path.name} has no column id: nodes are numbered from 1, in their order")
    left_out = [f"columns left out: {listed(nodes.left_out)}"] if nodes.left_out else []
    of_nodes, of_edges = nodes.features.notes, edges.features.notes
    values["notes"] = values["notes"] + left_out + of_nodes + notes + of_edges
    return check_graph(ArrayGraph(path, **values))


# Tables


def _read_nodes(source: Any, columns: Columns, faults: Faults) -> Nodes:
    table = open_table(source, columns, faults, "the frame of nodes")
    header = Header(table.path, table.header, table.row).node_columns(columns)
    count = len(table.rows)
    if not count and not faults.first:
        what = "there are no rows" + (" below the header" if table.row is not None else "")
        raise bad(table.path, what, "at least one node", row=table.row)
    named = {*columns.categorical, *columns.levels, *table.named}
    features = read_features(table, header.features, named, faults, f"; {table.names_by}")
    ids, labels = [str(number + 1) for number in range(count)], [""] * count
    if header.id is not None:
        ids = _read_ids(table, header.id, faults)
        _refuse_control_characters(table, header.id, ids, faults)
    if header.label is not None:
        labels = to_texts(table.column(header.label))
        _refuse_control_characters(table, header.label, labels, faults)
        unknown = next((text for text in labels if text.lower() in UNKNOWN), None)
        if unknown is not None:
            name = table.header[header.label]
            features.notes.append(f"{name}: cells like {short(unknown)} are read as not known")
            labels = ["" if text.lower() in UNKNOWN else text for text in labels]
    splits = {table.header[place]: to_texts(table.column(place)) for place in header.splits}
    nodes = Nodes(table, ids, labels, features, splits, header.left_out, header.id is None)
    nodes.number_ids(columns.id, faults)
    return nodes


def _read_edges(source: Any, columns: Columns, faults: Faults) -> Edges:
    table = open_table(source, columns, faults, "the frame of edges")
    header = Header(table.path, table.header, table.row).edge_columns(columns)
    named = {*columns.edge_levels, *table.named}
    features = read_features(table, header.features, named, faults)
    source, target = (_read_ids(table, end, faults) for end in (header.source, header.target))
    return Edges(table.path, source, target, features, table.rows)


def _no_edges() -> Edges:
    table = FeatureTable([], [], np.empty((0, 0), np.float32), {})
    return Edges(Path(), [], [], table, np.empty(0, np.int64))


def _read_ids(table: OpenTable, position: int, faults: Faults) -> list[str]:
    import pyarrow

    cells, name = table.column(position), table.header[position]
    if pyarrow.types.is_floating(cells.type):
        for row, number in zip(table.rows.tolist(), cells.to_pylist(), strict=True):
            if number is not None and number % 1:
                what = f"{name} is {short(number)}"
                error = bad(table.path, what, "text or integers", row=row, column=name)
                faults.add(f"{table.path} {name}: decimals", error)
    return to_texts(cells)


def _refuse_control_characters(
    table: OpenTable, position: int, cells: list[str], faults: Faults
) -> None:
    """Refuses ids and labels with line breaks and the like: a missing quote, or no text file."""
    name, allowed = table.header[position], "text without control characters"
    for row, cell in zip(table.rows.tolist(), cells, strict=True):
        if not cell.isprintable():
            error = bad(table.path, f"{name} is {short(cell)}", allowed, row=row, column=name)
            faults.add(f"{table.path} {name}: control", error)


def _look_up_ends(
    edges: Edges, columns: Columns, nodes: Nodes, faults: Faults
) -> NDArray[np.int64]:
    """Converts ids to node numbers, (E, 2). An unknown id is -1, and a fault unless dropped."""
    ends = np.empty((len(edges.rows), 2), np.int64)
    name = nodes.table.path.name
    drop = "`--unknown-ids drop` (Python: unknown_ids='drop')"
    allowed = f"the ids in {name}; {drop} leaves such edges out"
    if nodes.numbered:
        another = "--id (Python: id=) names another"
        allowed = f"1 to {len(nodes.ids)}, as {name} has no column id; {another}"
    sides = ((columns.source, edges.source), (columns.target, edges.target))
    for place, (column, ids) in enumerate(sides):
        ends[:, place] = [nodes.node_of.get(id, -1) for id in ids]
        lost = np.flatnonzero(ends[:, place] < 0).tolist()
        empty = [edge for edge in lost if not ids[edge]]
        unknown = [edge for edge in lost if ids[edge] and columns.unknown_ids != "drop"]
        if hidden := nodes.table.lost_cells:  # a row that was not read may be the node
            unknown = [edge for edge in unknown if not (nodes.numbered or ids[edge] in hidden)]
        for edges_at_fault in filter(None, (empty, unknown)):
            first = edges_at_fault[0]
            what = f"{column} is {short(ids[first])}" if ids[first] else f"{column} is empty"
            error = bad(edges.path, what, allowed, row=int(edges.rows[first]), column=column)
            faults.add(f"{edges.path}: {what}", error, len(edges_at_fault))
    return ends


def _dropped(edges: Edges, ends: Array, known: Array) -> str:
    first = int(np.argmin(known))
    id = edges.source[first] if ends[first, 0] < 0 else edges.target[first]
    left_out = counted(int((~known).sum()), "edge")
    return f"{left_out} left out, to unknown ids such as {short(id)}"


def _edge_values(edges: Edges, columns: Columns, faults: Faults) -> dict[str, Any]:
    """Returns weights (E,) and features (E, K) of the edges, and the names of their columns."""
    encoded = None
    with faults.noted():
        by = " by `--edge-features` (Python: edge_features=)"
        encoded = encode(edges.path, edges.features, columns.edge_levels, by)
    if encoded is None:
        return {}
    edges.features.notes += encoded.notes
    matrix = encoded.matrix if isinstance(encoded.matrix, np.ndarray) else encoded.matrix.toarray()
    missing = np.isnan(matrix)
    if missing.any():
        edge, column = divmod(int(np.argmax(missing)), matrix.shape[1])
        row, name = int(edges.rows[edge]), short(encoded.names[column])
        error = bad(edges.path, "the cell is empty", "a number", row=row, column=name)
        faults.add(f"{edges.path} empty cells", error, int(missing.sum()))
    weight = weight_column(edges.features.names, columns)
    if weight in encoded.levels:
        what = f"the weight is {short(encoded.levels[weight][0])}"
        error = bad(edges.path, what, "numbers", column=short(weight))
        faults.add(f"{edges.path}: weight of text", error)
        return {}
    others = [index for index, name in enumerate(encoded.names) if name != weight]
    values = {
        "edge_columns": [name for name in edges.features.names if name != weight],
        "edge_levels": encoded.levels,
    }
    if weight in encoded.names:
        weights = np.ascontiguousarray(matrix[:, encoded.names.index(weight)])
        values["edge_weight"] = weights
        if faults.first and (weights < 0).any():  # some models read these, but not all
            edge = int(np.argmax(weights < 0))
            what = f"the weight is {short(float(weights[edge]))}"
            none = "--edge-weight none (Python: edge_weight='none')"
            allowed = f"0 or more in models that read weights, or {none}"
            error = bad(edges.path, what, allowed, row=int(edges.rows[edge]), column=short(weight))
            faults.add(f"{edges.path}: negative weight", error, int((weights < 0).sum()))
    if others:
        values["edge_attr"] = np.ascontiguousarray(matrix[:, others])
    return values


def _node_values(
    nodes: Nodes, columns: Columns, task: str | None, faults: Faults
) -> dict[str, Any]:
    table, label = nodes.table, columns.label or "label"
    values: dict[str, Any] = {
        "ids": nodes.ids,
        "masks": _read_splits(nodes, faults),
        "names": {"labels": label, **dict.fromkeys(MASKS, "the split column")},
        "feature_columns": nodes.features.names,
        "may_miss": True,
    }
    with faults.noted():
        cells = LabelColumn(table.path, label, nodes.labels, table.rows, table.decimal)
        labels = read_labels(cells, task)
        values |= {"labels": labels.y, "classes": labels.classes}
        values |= {"task": labels.task, "reason": labels.reason}
    with faults.noted():
        by = "" if faults.of_frames else " by `--features` (Python: features=)"
        as_ids = "`--id {0}` (Python: id='{0}') makes it the ids" if columns.id == ID else ""
        encoded = encode(table.path, nodes.features, columns.levels, by, as_ids)
        values |= {"features": encoded.matrix, "feature_names": encoded.names}
        values |= {"levels": encoded.levels, "missing_texts": encoded.missing_texts}
        values["notes"] = encoded.notes
    return values


def _read_splits(nodes: Nodes, faults: Faults) -> dict[str, Array]:
    roles = []
    for name, cells in nodes.splits.items():
        for node, cell in enumerate(cells):
            if cell.lower() not in ROLES:
                what, allowed = f"the split is {short(cell)}", "train, val, test, or nothing"
                error = nodes.error(node, what, allowed, short(name))
                faults.add(f"{nodes.table.path} {name} split", error)
        roles.append([ROLES.get(cell.lower(), 3) for cell in cells])
    return {mask: np.array(roles) == role for role, mask in enumerate(MASKS)} if roles else {}
