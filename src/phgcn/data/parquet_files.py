r"""Reads the edge and node tables of a graph from Parquet files, through pyarrow.  Rows are counted from 0."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .check import bad, short
from .tables import EDGE_COLUMNS, NODE_COLUMNS, Edges, Nodes, feature_columns

if TYPE_CHECKING:
    import pyarrow


def read_edges(path: Path) -> Edges:
    """Reads the edge table."""
    table = _read_table(path)
    feature_columns(path, table.column_names, EDGE_COLUMNS, None)
    source, target = (_texts(path, table, name) for name in EDGE_COLUMNS)
    return Edges(path, source, target, np.arange(table.num_rows))


def read_nodes(path: Path) -> Nodes:
    """Reads the node table."""
    table = _read_table(path)
    names = feature_columns(path, table.column_names, NODE_COLUMNS, None)
    if table.num_rows == 0:
        raise bad(path, "there are no rows", allowed="at least one node")
    features = np.empty((table.num_rows, len(names)), np.float32)
    for column, name in enumerate(names):
        features[:, column] = _numbers(path, table, name)
    ids, labels = _texts(path, table, "id"), _texts(path, table, "label")
    return Nodes(path, ids, labels, features, np.arange(table.num_rows))


def _read_table(path: Path) -> pyarrow.Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise bad(path, "Parquet files need the package pyarrow, which is not here: pip install 'phgcn[parquet]'") from None
    try:
        return pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise bad(path, f"this is no Parquet file, or a damaged one ({short(reason)})") from None


def _texts(path: Path, table: pyarrow.Table, name: str) -> list[str]:
    """Converts a column of ids or labels to text; an empty cell to an empty text."""
    import pyarrow
    from pyarrow import compute

    column = _decode(table[name])
    if pyarrow.types.is_floating(column.type):  # pandas writes integers with empty cells as floats
        column = compute.if_else(compute.is_nan(column), None, column)
        whole = compute.fill_null(compute.equal(compute.round(column), column), True)
        if not compute.all(whole, min_count=0).as_py():
            row = compute.index(whole, False).as_py()
            raise bad(path, f"{name} is {short(column[row].as_py())}", row=row, column=name, allowed="text or integers")
        column = column.cast(pyarrow.int64())
    try:
        texts = column.cast(pyarrow.string()).fill_null("").to_pylist()
    except pyarrow.ArrowException:
        raise bad(path, f"{name} is of type {column.type}", column=name, allowed="text or integers") from None
    texts = [text.strip() for text in texts]
    for row, text in enumerate(texts):
        if not text.isprintable():
            raise bad(path, f"{name} is {short(text)}", row=row, column=name, allowed="text without control characters")
    return texts


def _decode(column: pyarrow.ChunkedArray) -> pyarrow.Array:
    """Joins the chunks of a column, and decodes a dictionary (a pandas category)."""
    import pyarrow

    joined = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return joined.dictionary_decode() if pyarrow.types.is_dictionary(joined.type) else joined


def _numbers(path: Path, table: pyarrow.Table, name: str) -> NDArray[np.float32]:
    """Converts a column of features to float32, (rows,); refuses empty cells and numbers that are not finite."""
    import pyarrow

    column, shown = _decode(table[name]), short(name)
    is_number = (pyarrow.types.is_integer, pyarrow.types.is_floating, pyarrow.types.is_boolean)
    if not any(test(column.type) for test in is_number):
        raise bad(path, f"the feature is of type {column.type}", column=shown, allowed="bool, integers or floats")
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise bad(path, "the feature is empty", row=row, column=shown, allowed="a number")
    with np.errstate(over="ignore"):  # numbers beyond float32 become infinite and are refused below
        values: NDArray[np.float32] = column.to_numpy(zero_copy_only=False).astype(np.float32)
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.argmin(finite))
        raise bad(path, f"the feature is {values[row]}", row=row, column=shown, allowed="finite float32 numbers")
    return values
