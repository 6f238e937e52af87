r"""The edge and node tables of a graph in Parquet files, through pyarrow.  Rows are counted from 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .check import bad, short
from .tables import EDGE_COLUMNS, NODE_COLUMNS, Edges, Nodes, feature_columns


def read_edges(path: Path) -> Edges:
    """The edge table."""
    table = _table(path)
    feature_columns(path, table.column_names, EDGE_COLUMNS, None)
    source, target = (_texts(path, table, name) for name in EDGE_COLUMNS)
    return Edges(path, source, target, np.arange(table.num_rows))


def read_nodes(path: Path) -> Nodes:
    """The node table."""
    table = _table(path)
    names = feature_columns(path, table.column_names, NODE_COLUMNS, None)
    if table.num_rows == 0:
        raise bad(path, "there are no rows", allowed="at least one node")
    features = np.empty((table.num_rows, len(names)), np.float32)
    for place, name in enumerate(names):
        features[:, place] = _numbers(path, table, name)
    ids, labels = _texts(path, table, "id"), _texts(path, table, "label")
    return Nodes(path, ids, labels, features, np.arange(table.num_rows))


def _table(path: Path):
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


def _texts(path: Path, table, name: str) -> list[str]:
    """A column of ids or labels as text; an empty cell as an empty text."""
    import pyarrow
    from pyarrow import compute

    column = _plain(table[name])
    if pyarrow.types.is_floating(column.type):  # a column of integers with empty cells, as pandas makes it
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


def _plain(column):
    """The column without a dictionary of its values (a pandas category)."""
    import pyarrow

    column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return column.dictionary_decode() if pyarrow.types.is_dictionary(column.type) else column


def _numbers(path: Path, table, name: str) -> NDArray:
    import pyarrow

    column = _plain(table[name])
    shown = short(name)
    kind = column.type
    if not (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind)):
        raise bad(path, f"the feature is of type {kind}", column=shown, allowed="bool, integers or floats")
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise bad(path, "the feature is empty", row=row, column=shown, allowed="a number")
    with np.errstate(over="ignore"):
        values = column.to_numpy(zero_copy_only=False).astype(np.float32)
    good = np.isfinite(values)
    if not good.all():
        row = int(np.argmin(good))
        raise bad(path, f"the feature is {values[row]}", row=row, column=shown, allowed="finite float32 numbers")
    return values
