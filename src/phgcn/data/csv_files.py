r"""Reads the edge and node tables of a graph from CSV files: commas, a header, UTF-8."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .check import GraphFileError, bad, short
from .tables import EDGE_COLUMNS, NODE_COLUMNS, Edges, Nodes, feature_columns

BLOCK = 1_000_000
"""Numbers that are collected before they become an array."""


def read_edges(path: Path) -> Edges:
    """Reads the edge table."""
    records = _records(path)
    header = _header(path, records)
    feature_columns(path, header, EDGE_COLUMNS, 1)
    source_column, target_column = (header.index(name) for name in EDGE_COLUMNS)
    rows, source, target = array("q"), [], []
    for row, cells in records:
        if len(cells) != 2:
            raise _ragged(path, row, cells, header)
        rows.append(row)
        source.append(cells[source_column].strip())
        target.append(cells[target_column].strip())
    return Edges(path, source, target, np.array(rows, np.int64))


def read_nodes(path: Path) -> Nodes:
    """Reads the node table.  Features become numbers row by row, so that memory holds the text of one row only."""
    records = _records(path)
    header = _header(path, records)
    names = feature_columns(path, header, NODE_COLUMNS, 1)
    id_column, label_column = (header.index(name) for name in NODE_COLUMNS)
    rows, ids, labels, blocks = array("q"), [], [], []
    block = array("f")
    last, first = sorted((id_column, label_column), reverse=True)
    for row, cells in records:
        if len(cells) != len(header):
            raise _ragged(path, row, cells, header)
        rows.append(row)
        ids.append(_parse_name(path, row, "id", cells[id_column]))
        labels.append(_parse_name(path, row, "label", cells[label_column]))
        del cells[last], cells[first]
        try:
            block.extend(map(float, cells))
        except ValueError:
            raise _not_a_number(path, row, cells, names) from None
        if len(block) > BLOCK:
            blocks.append(_finish_block(path, block, rows, names))
            block = array("f")
    if not rows:
        raise bad(path, "there are no rows below the header", row=1, allowed="at least one node")
    if block:
        blocks.append(_finish_block(path, block, rows, names))
    return Nodes(path, ids, labels, np.concatenate(blocks), np.array(rows, np.int64))


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields the rows of the file, each with its number: the header is row 1.  Empty lines are counted and left out."""
    row = 0
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for row, cells in enumerate(csv.reader(file, strict=True, skipinitialspace=True), start=1):
                if cells:
                    yield row, cells
    except UnicodeDecodeError:
        raise bad(path, "the text is not UTF-8", row=_undecodable_line(path), allowed="UTF-8") from None
    except csv.Error as error:
        raise bad(path, f"this row is no CSV ({error})", row=row + 1, allowed="commas, double quotes in pairs") from None
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


def _not_a_number(path: Path, row: int, cells: list[str], names: list[str]) -> GraphFileError:
    """Names the first cell that is not a number."""
    for name, cell in zip(names, cells, strict=True):
        try:
            float(cell)
        except ValueError:
            what = f"the feature is {short(cell)}" if cell.strip() else "the feature is empty"
            return bad(path, what, row=row, column=short(name), allowed="a number")
    raise AssertionError("no cell of the row fails to be a number")


def _finish_block(path: Path, block: array[float], rows: array[int], names: list[str]) -> NDArray[np.float32]:
    """Converts the last rows to an array (rows, features) and checks that all numbers are finite."""
    values = np.frombuffer(block, np.float32).reshape(-1, len(names))
    finite = np.isfinite(values)
    if not finite.all():
        index, column = divmod(int(np.argmin(finite)), len(names))
        row = rows[len(rows) - len(values) + index]
        what = f"the feature is {values[index, column]}"
        raise bad(path, what, row=row, column=short(names[column]), allowed="finite float32 numbers")
    return values
