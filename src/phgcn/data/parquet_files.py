r"""Reads the edge and node tables of a graph from Parquet files, through pyarrow.  Rows are counted from 0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .cells import FeatureTable, one_column
from .check import bad, short
from .columns import Columns
from .tables import Edges, Nodes, edge_header, node_header

if TYPE_CHECKING:
    import pyarrow


def read_edges(path: Path, columns: Columns) -> Edges:
    """Reads the edge table."""
    table = _read_table(path)
    names = table.column_names
    places = edge_header(path, names, columns, None)
    source, target = (_texts(path, table, names[place]) for place in (places.source, places.target))
    features = _features(path, table, [names[place] for place in places.features], list(columns.edge_levels))
    return Edges(path, source, target, features, np.arange(table.num_rows))


def read_nodes(path: Path, columns: Columns) -> Nodes:
    """Reads the node table."""
    table = _read_table(path)
    names = table.column_names
    places = node_header(path, names, columns, None)
    if table.num_rows == 0:
        raise bad(path, "there are no rows", allowed="at least one node")
    rows = np.arange(table.num_rows)
    ids = list(map(str, (rows + 1).tolist())) if places.id is None else _texts(path, table, names[places.id])
    labels = [""] * table.num_rows if places.label is None else _texts(path, table, names[places.label], decimals=True)
    categorical = (*columns.categorical, *columns.levels)
    features = _features(path, table, [names[place] for place in places.features], categorical)
    splits = {names[place]: _texts(path, table, names[place]) for place in places.splits}
    return Nodes(path, ids, labels, features, splits, rows, ".", places.left_out, places.id is None)


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


def _texts(path: Path, table: pyarrow.Table, name: str, decimals: bool = False) -> list[str]:
    """Converts a column of ids, labels or names to text; an empty cell to an empty text.  Floats must be whole numbers, which
    pandas writes so where cells are empty, unless ``decimals`` are allowed."""
    import pyarrow
    from pyarrow import compute

    column = _decode(table[name])
    if pyarrow.types.is_floating(column.type):
        column = compute.if_else(compute.is_nan(column), None, column)
        whole = compute.fill_null(compute.equal(compute.round(column), column), True)
        if compute.all(whole, min_count=0).as_py():
            column = column.cast(pyarrow.int64())
        elif not decimals:
            row = compute.index(whole, False).as_py()
            raise bad(path, f"{name} is {short(column[row].as_py())}", row=row, column=name, allowed="text or integers")
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


def _features(path: Path, table: pyarrow.Table, names: list[str], categorical: Sequence[str]) -> FeatureTable:
    """Reads columns of features: of numbers, or of texts as the cells of a CSV file."""
    number_names, numbers = [], []
    texts: dict[str, list[str]] = {}
    for name in names:
        values = None if name in categorical else _numbers(path, table, name)
        if values is None:
            rows = np.arange(table.num_rows)
            read = one_column(path, name, _texts(path, table, name, decimals=True), rows, categorical)
            texts |= read.texts
            values = read.numbers[:, 0] if read.number_names else None
        if values is not None:
            number_names.append(name)
            numbers.append(values)
    matrix = np.stack(numbers, axis=1) if numbers else np.empty((table.num_rows, 0), np.float32)
    return FeatureTable(names, number_names, matrix, texts)


def _numbers(path: Path, table: pyarrow.Table, name: str) -> NDArray[np.float32] | None:
    """Converts a column of numbers to float32, (rows,), NaN for an empty cell; :obj:`None` if it is of texts."""
    import pyarrow

    column, shown, types = _decode(table[name]), short(name), pyarrow.types
    if types.is_string(column.type) or types.is_large_string(column.type) or types.is_null(column.type):
        return None
    if not any(test(column.type) for test in (types.is_integer, types.is_floating, types.is_boolean)):
        raise bad(path, f"the feature is of type {column.type}", column=shown, allowed="bool, integers, floats or text")
    if types.is_boolean(column.type):
        column = column.cast(pyarrow.int8())
    with np.errstate(over="ignore"):  # numbers beyond float32 become infinite and are refused below
        wide = column.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False)
        values: NDArray[np.float32] = wide.astype(np.float32)
    infinite = np.isinf(values)
    if infinite.any():
        row = int(np.argmax(infinite))
        raise bad(path, f"the feature is {values[row]}", row=row, column=shown, allowed="finite float32 numbers")
    return values
