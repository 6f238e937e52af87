r"""Reads the edge and node tables of a graph from CSV files: a header, UTF-8, commas or another delimiter, which is found."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np

from .cells import FeatureCells
from .check import GraphFileError, bad, short
from .columns import Columns
from .tables import Edges, Nodes, edge_header, node_header

DELIMITERS = (",", ";", "\t", "|")


def read_edges(path: Path, columns: Columns) -> Edges:
    """Reads the edge table."""
    delimiter = find_delimiter(path)
    records = _records(path, delimiter)
    header = _header(path, records)
    places = edge_header(path, header, columns, 1)
    pick = _picker(places.features)
    names = [header[place] for place in places.features]
    features = FeatureCells(path, names, list(columns.edge_levels), _decimal(delimiter))
    rows, source, target = array("q"), [], []
    for row, cells in records:
        if len(cells) != len(header):
            raise _ragged(path, row, cells, header)
        rows.append(row)
        source.append(cells[places.source].strip())
        target.append(cells[places.target].strip())
        if places.features:
            features.add(row, pick(cells))
    return Edges(path, source, target, features.finish(), np.array(rows, np.int64))


def read_nodes(path: Path, columns: Columns) -> Nodes:
    """Reads the node table."""
    delimiter = find_delimiter(path)
    records = _records(path, delimiter)
    header = _header(path, records)
    places = node_header(path, header, columns, 1)
    pick = _picker(places.features)
    names = [header[place] for place in places.features]
    features = FeatureCells(path, names, (*columns.categorical, *columns.levels), _decimal(delimiter))
    rows, ids, labels = array("q"), [], []
    splits: dict[str, list[str]] = {header[place]: [] for place in places.splits}
    for row, cells in records:
        if len(cells) != len(header):
            raise _ragged(path, row, cells, header)
        rows.append(row)
        ids.append(str(len(rows)) if places.id is None else _parse_name(path, row, columns.id, cells[places.id]))
        labels.append("" if places.label is None else _parse_name(path, row, header[places.label], cells[places.label]))
        for place in places.splits:
            splits[header[place]].append(cells[place].strip())
        features.add(row, pick(cells))
    if not rows:
        raise bad(path, "there are no rows below the header", row=1, allowed="at least one node")
    return Nodes(
        path,
        ids,
        labels,
        features.finish(),
        splits,
        np.array(rows, np.int64),
        _decimal(delimiter),
        places.left_out,
        places.id is None,
    )


def _picker(places: list[int]) -> Callable[[list[str]], Sequence[str]]:
    """Returns a function that takes the cells at these places."""
    return itemgetter(*places) if len(places) > 1 else lambda cells: [cells[place] for place in places]


def find_delimiter(path: Path) -> str:
    """Finds the delimiter of a file: the one that cuts its header into most cells, a comma if several do."""
    try:
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            header = next((line for line in file if line.strip()), "")
    except OSError as error:
        raise bad(path, f"the file cannot be read ({error.strerror})") from None
    return max(DELIMITERS, key=lambda delimiter: _count_cells(header, delimiter))


def _count_cells(line: str, delimiter: str) -> int:
    try:
        return len(next(csv.reader([line], delimiter=delimiter), []))
    except csv.Error:  # the reader of the whole file says what is wrong
        return 0


def _decimal(delimiter: str) -> str:
    """Returns the decimal sign: a comma in files with semicolons, as programs write them where that is usual."""
    return "," if delimiter == ";" else "."


def _records(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the rows of the file, each with its number: the header is row 1.  Empty lines are counted and left out."""
    row = 0
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True, skipinitialspace=delimiter != "\t")
            for row, cells in enumerate(reader, start=1):
                if cells:
                    yield row, cells
    except UnicodeDecodeError:
        raise bad(path, "the text is not UTF-8", row=_undecodable_line(path), allowed="UTF-8") from None
    except csv.Error as error:
        raise bad(path, f"this row is no CSV ({error})", row=row + 1, allowed="delimiters, double quotes in pairs") from None
    except OSError as error:
        raise bad(path, f"the file cannot be read ({error.strerror})") from None


def _undecodable_line(path: Path) -> int:
    """Finds the first line that is not UTF-8: the decoder reads ahead, so its error does not tell."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return 1


def _header(path: Path, records: Iterator[tuple[int, list[str]]]) -> list[str]:
    """Takes the first row that is not empty."""
    for _, cells in records:
        return [name.strip() for name in cells]
    raise bad(path, "the file is empty", row=1, allowed="a header and rows")


def _parse_name(path: Path, row: int, column: str, cell: str) -> str:
    """Strips an id or label.  A line break or another control character means a missing quote, or a file of no text."""
    name = cell.strip()
    if not name.isprintable():
        raise bad(path, f"{column} is {short(name)}", row=row, column=column, allowed="text without control characters")
    return name


def _ragged(path: Path, row: int, cells: list[str], header: list[str]) -> GraphFileError:
    column = header[len(cells)] if len(cells) < len(header) else len(header) + 1
    return bad(path, f"the row has {len(cells)} cells", row=row, column=column, allowed=f"{len(header)}, as the header")
