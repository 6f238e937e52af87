r"""Opens tables of every format: CSV (also compressed), Parquet, Excel, and frames of pandas.

All of them become an :class:`OpenTable`: a header, and blocks of rows with the columns that are asked for.  A column of a
block is a list of cells, or an array of numbers or dates where the format has types.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from .check import Array, GraphFileError, bad, short
from .columns import Columns
from .faults import Faults

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".parquet", ".xlsx")
DELIMITERS = (",", ";", "\t", "|")

BLOCK_ROWS = 20_000
"""Rows of a file of text that are in memory as text at the same time."""

CHUNK_ROWS = 200
"""Rows that are lists at the same time: more of them would wake Python's collector of garbage, again and again."""

Cells = Sequence[Any] | Array


class OpenTable(NamedTuple):
    """A table whose rows are not read yet.

    Args:
        path (Path): The file, or what messages call it.
        header (list of str): The names of the columns.
        row (int, optional): The row of the header, for messages; :obj:`None` where rows are counted without it.
        decimal (str): The decimal sign: ``"."``, ``","``, or ``"either"``.
        blocks (callable): Yields, for the positions of some columns, the row numbers of a block and these columns.
        named (frozenset of str): Columns that hold names, because the format says so.
    """

    path: Path
    header: list[str]
    row: int | None
    decimal: str
    blocks: Callable[[Sequence[int]], Iterator[tuple[Array, list[Cells]]]]
    named: frozenset[str] = frozenset()


def suffix_of(path: Path) -> str:
    """Returns the end of a name that tells the format, in small letters."""
    name = path.name.lower()
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), path.suffix.lower())


def open_table(source: Any, columns: Columns, faults: Faults, frame_name: str = "") -> OpenTable:
    """Opens a file by the end of its name, or a frame of pandas.

    Args:
        source (Path or pandas.DataFrame): The table.
        columns (Columns): How cells are read.
        faults (Faults): Gets the rows that cannot be read.
        frame_name (str): What messages call a frame.
    """
    if not isinstance(source, Path):
        return _open_frame(source, frame_name)
    if not source.is_file():
        what = "this is a folder" if source.is_dir() else "there is no such file"
        raise bad(source, what, allowed=f"a file of kind {', '.join(SUFFIXES)}")
    suffix = suffix_of(source)
    if suffix == ".parquet":
        return _open_parquet(source)
    if suffix == ".xlsx":
        return _open_excel(source, columns, faults)
    if suffix in SUFFIXES:
        return _open_text(source, columns, faults)
    raise bad(source, f"files of kind {suffix!r} are not read", allowed=", ".join(SUFFIXES))


def _in_blocks(
    rows: Iterator[tuple[int, Sequence[Any]]], path: Path, header: list[str], faults: Faults
) -> Callable[[Sequence[int]], Iterator[tuple[Array, list[Cells]]]]:
    """Returns what reads columns from rows of cells; rows of another length are faults."""

    def add(
        chunk: list[tuple[int, Sequence[Any]]], numbers: list[int], columns: list[list[Any]], positions: Sequence[int]
    ) -> None:
        good = [cells for _, cells in chunk if len(cells) == len(header)]
        numbers += [row for row, cells in chunk if len(cells) == len(header)]
        for row, cells in chunk if len(good) < len(chunk) else ():
            if len(cells) != len(header):
                column = header[len(cells)] if len(cells) < len(header) else len(header) + 1
                allowed = f"{len(header)}, as the header"
                error = bad(path, f"the row has {len(cells)} cells", row=row, column=column, allowed=allowed)
                faults.add(f"{path}: cells", error)
        turned = list(zip(*good, strict=True))
        for position, cells in zip(positions, columns, strict=True) if turned else ():
            cells += turned[position]

    def blocks(positions: Sequence[int]) -> Iterator[tuple[Array, list[Cells]]]:
        chunk = list(islice(rows, CHUNK_ROWS))
        while chunk:
            numbers: list[int] = []
            columns: list[list[Any]] = [[] for _ in positions]
            while chunk and len(numbers) < BLOCK_ROWS:
                add(chunk, numbers, columns, positions)
                chunk = list(islice(rows, CHUNK_ROWS))
            yield np.array(numbers, np.int64), list(columns)

    return blocks


# CSV


def _open_text(path: Path, columns: Columns, faults: Faults) -> OpenTable:
    """Opens a file of text; the delimiter is the one that cuts its header into most cells, a comma if several do."""
    with _open(path, columns.encoding, errors="replace") as file:
        try:
            first = next((line for line in file if line.strip()), "")
        except (OSError, EOFError) as error:
            raise _unreadable(path, error) from None
    delimiter = max(DELIMITERS, key=lambda sign: _count_cells(first, sign))
    rows = _text_rows(path, delimiter, columns.encoding)
    header_row, header = next(rows, (1, None))
    if header is None:
        raise bad(path, "the file is empty", row=1, allowed="a header and rows")
    names = [name.strip() for name in header]
    decimal = columns.decimal or ("either" if delimiter == ";" else ".")
    return OpenTable(path, names, header_row, decimal, _in_blocks(rows, path, names, faults))


def _open(path: Path, encoding: str, errors: str = "strict") -> IO[str]:
    encoding = "utf-8-sig" if encoding == "utf-8" else encoding
    try:
        if suffix_of(path).endswith(".gz"):
            return gzip.open(path, "rt", encoding=encoding, errors=errors, newline="")
        return path.open(newline="", encoding=encoding, errors=errors)
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> GraphFileError:
    reason = getattr(error, "strerror", None) or short(str(error))
    return bad(path, f"the file cannot be read ({reason})")


def _count_cells(line: str, delimiter: str) -> int:
    try:
        return len(next(csv.reader([line], delimiter=delimiter), []))
    except csv.Error:  # the reader of the whole file says what is wrong
        return 0


def _text_rows(path: Path, delimiter: str, encoding: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the rows of the file, each with its number, from 1.  Empty lines are counted and left out."""
    row = 0
    try:
        with _open(path, encoding) as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True, skipinitialspace=delimiter != "\t")
            for row, cells in enumerate(reader, start=1):
                if cells:
                    yield row, cells
    except UnicodeDecodeError:
        shown = "UTF-8" if encoding == "utf-8" else encoding
        allowed = f"{shown}; --encoding latin-1 reads files of older programs"
        raise bad(path, f"the text is not {shown}", row=_undecodable_line(path, encoding), allowed=allowed) from None
    except csv.Error as error:
        raise bad(path, f"this row is no CSV ({error})", row=row + 1, allowed="delimiters, double quotes in pairs") from None
    except (OSError, EOFError) as error:
        raise _unreadable(path, error) from None


def _undecodable_line(path: Path, encoding: str) -> int:
    """Finds the first line that cannot be decoded: the decoder reads ahead, so its error does not tell."""
    content = path.read_bytes()
    if suffix_of(path).endswith(".gz"):
        content = gzip.decompress(content)
    for number, line in enumerate(content.split(b"\n"), start=1):
        try:
            line.decode(encoding)
        except UnicodeDecodeError:
            return number
    return 1


# Excel


def _open_excel(path: Path, columns: Columns, faults: Faults) -> OpenTable:
    """Opens the first sheet of a workbook; cells hold what formulas were computed to be."""
    try:
        import openpyxl
    except ImportError:
        raise bad(path, "Excel files need the package openpyxl, which is not here: pip install 'phgcn[excel]'") from None
    try:
        sheet = openpyxl.load_workbook(path, read_only=True, data_only=True).worksheets[0]
    except Exception as error:  # openpyxl raises errors of any type on a damaged file
        raise bad(path, f"this is no Excel file, or a damaged one ({short(str(error))})") from None
    cells = enumerate(sheet.iter_rows(values_only=True), start=1)
    rows = ((row, values) for row, values in cells if any(value is not None for value in values))
    header_row, header = next(rows, (1, None))
    if header is None:
        raise bad(path, "the first sheet is empty", row=1, allowed="a header and rows")
    names = ["" if name is None else str(name).strip() for name in header]
    return OpenTable(path, names, header_row, columns.decimal or ".", _in_blocks(rows, path, names, faults))


# Parquet.  Rows are counted from 0.


def _open_parquet(path: Path) -> OpenTable:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise bad(path, "Parquet files need the package pyarrow, which is not here: pip install 'phgcn[parquet]'") from None
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise bad(path, f"this is no Parquet file, or a damaged one ({short(reason)})") from None

    def blocks(positions: Sequence[int]) -> Iterator[tuple[Array, list[Cells]]]:
        yield np.arange(table.num_rows), [_arrow_cells(path, table, table.column_names[place]) for place in positions]

    types = zip(table.column_names, table.schema.types, strict=True)
    named = frozenset(name for name, kind in types if pyarrow.types.is_dictionary(kind))
    return OpenTable(path, table.column_names, None, ".", blocks, named)


def _arrow_cells(path: Path, table: Any, name: str) -> Cells:
    """Returns a column of numbers or dates as an array, one of text as a list."""
    import pyarrow

    column, types = table[name].combine_chunks(), pyarrow.types
    if isinstance(column, pyarrow.ChunkedArray):
        column = pyarrow.concat_arrays(column.chunks) if column.num_chunks else pyarrow.array([], column.type)
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if types.is_boolean(column.type):
        column = column.cast(pyarrow.int8())
    if types.is_decimal(column.type):
        column = column.cast(pyarrow.float64())
    if types.is_integer(column.type) and column.null_count:
        texts: list[Any] = column.cast(pyarrow.string()).to_pylist()  # exact, where floats are not
        return texts
    if types.is_integer(column.type) or types.is_floating(column.type) or types.is_temporal(column.type):
        if types.is_time(column.type):
            return [None if cell is None else cell.isoformat() for cell in column.to_pylist()]
        numbers: Array = column.to_numpy(zero_copy_only=False)
        return numbers
    if types.is_string(column.type) or types.is_large_string(column.type) or types.is_null(column.type):
        texts = column.to_pylist()
        return texts
    raise bad(path, f"the column is of type {column.type}", column=short(name), allowed="bool, numbers, dates or text")


# Frames of pandas.  Rows are counted from 0.


def _open_frame(frame: Any, name: str) -> OpenTable:
    from pandas.api import types

    header = [str(column) for column in frame.columns]
    kinds = [frame.iloc[:, place].dtype for place in range(len(header))]
    texts = [isinstance(kind, types.CategoricalDtype) or _is_text(frame.iloc[:, place]) for place, kind in enumerate(kinds)]

    def blocks(positions: Sequence[int]) -> Iterator[tuple[Array, list[Cells]]]:
        yield np.arange(len(frame)), [_frame_cells(frame.iloc[:, place]) for place in positions]

    named = frozenset(column for column, text in zip(header, texts, strict=True) if text)
    return OpenTable(Path(name), header, None, ".", blocks, named)


def _is_text(series: Any) -> bool:
    """Tells whether a column is text and no date: its digits are then no numbers."""
    from pandas.api import types

    from .cells import is_date

    if types.infer_dtype(series, skipna=True) != "string":
        return False
    return not all(is_date(str(cell)) for cell in series.dropna().head(20))


def _frame_cells(series: Any) -> Cells:
    from pandas.api import types

    if types.is_datetime64_any_dtype(series.dtype):
        dates: Array = series.dt.tz_localize(None).to_numpy()
        return dates
    if types.is_bool_dtype(series.dtype) and not types.is_object_dtype(series.dtype):
        series = series.astype("float64")
    if types.is_numeric_dtype(series.dtype) and not isinstance(series.dtype, types.CategoricalDtype):
        if not series.isna().any():
            numbers: Array = series.to_numpy()
            return numbers
        if types.is_float_dtype(series.dtype):
            numbers = series.to_numpy(dtype="float64", na_value=np.nan)
            return numbers
    cells: list[Any] = series.astype(object).where(series.notna(), None).tolist()
    return cells
