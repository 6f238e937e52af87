"""Opens tables with pyarrow: CSV (also compressed), Parquet, Excel, and frames of pandas."""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .check import Array, Faults, bad, short
from .columns import Columns

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".parquet", ".xlsx")
DELIMITERS = (",", ";", "\t", "|")
DAY = 24 * 3600.0  # seconds
SAMPLE = 1000  # texts of a frame's column that decide whether it holds names

NAMES_BY_OPTION = "`--categorical` (Python: categorical=) makes the column one of names"
NAMES_BY_DTYPE = "in pandas, the dtype category makes the column one of names"

# a column as a :class:`pyarrow.Array` of text, integers, floats or times, null where a cell is
# missing
Cells = Any


class OpenTable(NamedTuple):
    path: Path  # the file, or what messages call it
    header: list[str]  # the names of the columns
    row: int | None  # of the header, for messages; None where rows are counted without it
    rows: Array  # the row number of each entry of a column, for messages
    decimal: str  # the decimal sign: ".", ",", or "either"
    column: Callable[[int], Cells]  # returns the column at a position
    named: frozenset[str] = frozenset()  # columns that hold names, because the format says so
    names_by: str = NAMES_BY_OPTION  # how any column can be one of names, for messages
    lost_cells: frozenset[str] = frozenset()  # what stands in rows that could not be read


def suffix_of(path: Path) -> str:
    """Returns the lower-case ending of a file name, which decides the format."""
    name = path.name.lower()
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), path.suffix.lower())


def stem_of(path: Path) -> str:
    """Returns a file's name without its ending."""
    return path.name[: len(path.name) - len(suffix_of(path))]


def open_table(source: Any, columns: Columns, faults: Faults, frame_name: str = "") -> OpenTable:
    """Reads a file by its ending, or a frame, which messages call ``frame_name``."""
    if not isinstance(source, Path):
        return _open_frame(source, frame_name, columns)
    if not source.is_file():
        what = "this is a folder" if source.is_dir() else "there is no such file"
        raise bad(source, what, f"a file of kind {', '.join(SUFFIXES)}")
    suffix = suffix_of(source)
    if suffix == ".parquet":
        return _open_parquet(source)
    if suffix == ".xlsx":
        return _open_excel(source, columns)
    if suffix in SUFFIXES:
        return _open_text(source, columns, faults)
    raise bad(source, f"files of kind {suffix!r} are not read", ", ".join(SUFFIXES))


# CSV


def _open_text(path: Path, columns: Columns, faults: Faults) -> OpenTable:
    """Opens a CSV file. The delimiter is the one that cuts the header into most cells, a comma if
    several do. Rows without any text are left out."""
    import pyarrow
    from pyarrow import compute

    text = _decode(path, columns.encoding)
    content = text.lstrip("\r\n")
    header_row = 1 + text.count("\n", 0, len(text) - len(content))
    head = re.split(r"\r\n|\r|\n", content, maxsplit=1)[0]
    if not head.strip():
        raise bad(path, "the file is empty", "a header and rows", row=1)
    delimiter = max(DELIMITERS, key=lambda sign: len(_cells_of(head, sign)))
    names = [name.strip() for name in _cells_of(head, delimiter)]
    lost: list[int] = []
    lost_cells: set[str] = set()
    marks = re.compile(rf'[{re.escape(delimiter)}\r\n"]')

    def skip(row: Any) -> str:
        cells, row_number = row.actual_columns, row.number + header_row - 1
        lost.append(row.number - 1)
        lost_cells.update(map(str.strip, marks.split(row.text)))
        column = names[cells] if cells < len(names) else len(names) + 1
        what, allowed = f"the row has {cells} cells", f"{len(names)}, as the header"
        if row.text.count('"') % 2:
            what, allowed = "this row is no CSV", "double quotes in pairs"
        error = bad(path, what, allowed, row=row_number, column=column)
        faults.add(f"{path}: cells", error)
        return "skip"

    try:
        parsed = _parse(content[len(head) :] or "\n", delimiter, len(names), skip)
    except pyarrow.ArrowInvalid as error:
        raise bad(path, f"this is no CSV ({short(_first_line(error))})") from None
    rows = np.delete(np.arange(parsed.num_rows + len(lost)), lost) + header_row
    texts = [_joined(column) for column in parsed]
    filled: Array = np.any([compute.not_equal(cells, "") for cells in texts], axis=0)
    kept = pyarrow.array(np.flatnonzero(filled))

    def column(position: int) -> Cells:
        return compute.utf8_trim_whitespace(texts[position].take(kept))

    decimal = columns.decimal or ("either" if delimiter == ";" else ".")
    table = OpenTable(path, names, header_row, rows[filled], decimal, column)
    return table._replace(lost_cells=frozenset(lost_cells))


def _cells_of(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter, skipinitialspace=delimiter != "\t"), [])


def _parse(content: str, delimiter: str, width: int, skip: Callable[[Any], str]) -> Any:
    """Returns rows as text, the header empty. ``skip`` is called for rows of another width."""
    import pyarrow
    from pyarrow import csv

    names = [f"f{index}" for index in range(width)]
    read = csv.ReadOptions(use_threads=False, column_names=names)  # threads do not count rows
    parse = csv.ParseOptions(
        delimiter=delimiter,
        newlines_in_values=True,
        ignore_empty_lines=False,
        invalid_row_handler=skip,
    )
    convert = csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string()))
    return csv.read_csv(pyarrow.BufferReader(content.encode()), read, parse, convert)


def _decode(path: Path, encoding: str) -> str:
    try:
        content = path.read_bytes()
        if suffix_of(path).endswith(".gz"):
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or short(str(error))
        raise bad(path, f"the file cannot be read ({reason})") from None
    try:
        return content.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        shown = "UTF-8" if encoding == "utf-8" else encoding
        utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        others = "utf-16 reads this one" if utf16 else "latin-1 or cp1252 (Windows) read older ones"
        allowed = f"{shown}; --encoding (Python: encoding=) {others}"
        row = 1 + content.count(b"\n", 0, error.start)
        raise bad(path, f"the text is not {shown}", allowed, row=row) from None


# Excel


def _open_excel(path: Path, columns: Columns) -> OpenTable:
    """Opens the first sheet of a workbook; formulas have their last computed values."""
    try:
        import openpyxl
    except ImportError:
        get = "pip install 'phgcn[excel]'"
        what = f"Excel files need the package openpyxl, which is not here: {get}"
        raise bad(path, what) from None
    try:
        sheet = openpyxl.load_workbook(path, read_only=True, data_only=True).worksheets[0]
        values = list(sheet.iter_rows(values_only=True))
    except Exception as error:  # openpyxl raises errors of any type on a damaged file
        raise bad(path, f"this is no Excel file, or a damaged one ({_first_line(error)})") from None
    rows = [row for row, cells in enumerate(values, 1) if any(cell is not None for cell in cells)]
    if not rows:
        raise bad(path, "the first sheet is empty", "a header and rows", row=1)
    header, *entries = (values[row - 1] for row in rows)
    names = ["" if name is None else str(name).strip() for name in header]

    def column(position: int) -> Cells:
        return _from_cells([cells[position] for cells in entries])

    row_numbers = np.array(rows[1:], np.int64)
    return OpenTable(path, names, rows[0], row_numbers, columns.decimal or ".", column)


def _from_cells(cells: Any) -> Cells:
    """Converts a list or a series of pandas; cells of several types become text."""
    import pyarrow

    try:
        column = pyarrow.array(cells, from_pandas=True)
        plain = _plain(_joined(column) if isinstance(column, pyarrow.ChunkedArray) else column)
    except (pyarrow.ArrowException, OverflowError):
        plain = None
    if plain is not None:
        return plain
    missing = [cell is None or cell != cell for cell in cells]
    texts = [str(cell).strip() for cell in cells]
    return pyarrow.array(texts, pyarrow.string(), mask=np.array(missing, bool))


# Parquet, and frames of pandas. Rows are counted from 0.


def _open_parquet(path: Path) -> OpenTable:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        reason = short(_first_line(error))
        raise bad(path, f"this is no Parquet file, or a damaged one ({reason})") from None
    header: list[str] = table.column_names

    def column(position: int) -> Cells:
        plain = _plain(_joined(table.column(position)))
        if plain is None:
            allowed, kind = "bool, numbers, dates or text", table.schema.types[position]
            name = short(header[position])
            raise bad(path, f"the column is of type {kind}", allowed, column=name)
        return plain

    types = zip(header, table.schema.types, strict=True)
    named = frozenset(name for name, kind in types if pyarrow.types.is_dictionary(kind))
    return OpenTable(path, header, None, np.arange(table.num_rows), ".", column, named)


def _open_frame(frame: Any, name: str, columns: Columns) -> OpenTable:
    """Opens a frame. Categories are names, and so are texts other than dates and amounts."""
    import pandas

    from .cells import read_names, reads_as_number

    header = [str(column) for column in frame.columns]

    def column(position: int) -> Cells:
        series = frame.iloc[:, position]
        mixed = series.dtype == object
        return _from_cells(series.where(series.notna(), None).tolist() if mixed else series)

    def is_named(series: Any) -> bool:
        if isinstance(series.dtype, pandas.CategoricalDtype):
            return True
        if pandas.api.types.infer_dtype(series, skipna=True) != "string":
            return False
        texts = read_names(_from_cells(series.dropna().unique()[:SAMPLE]))
        return not reads_as_number([text for text in texts if text], columns.decimal or ".")

    named = frozenset(name for name in header if is_named(frame.iloc[:, header.index(name)]))
    rows = np.arange(len(frame))
    decimal = columns.decimal or "."
    return OpenTable(Path(name), header, None, rows, decimal, column, named, NAMES_BY_DTYPE)


def _joined(column: Any) -> Any:
    import pyarrow

    if column.num_chunks == 0:
        return pyarrow.array([], column.type)
    return pyarrow.concat_arrays(column.chunks)


def _plain(column: Any) -> Cells | None:
    """Converts a column to text, integers, floats or times, durations to days; :obj:`None` for
    other types."""
    import pyarrow
    from pyarrow import compute, types

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if types.is_boolean(kind):
        return column.cast(pyarrow.int8())
    if types.is_decimal(kind):
        return column.cast(pyarrow.float64())
    if types.is_integer(kind) or types.is_floating(kind):
        return column
    if types.is_duration(kind):
        parts = column.cast(pyarrow.duration("us"), safe=False).cast(pyarrow.int64())
        return compute.divide(parts.cast(pyarrow.float64()), 1e6 * DAY)
    if types.is_timestamp(kind) or types.is_date(kind):
        return column.cast(pyarrow.timestamp("us", getattr(kind, "tz", None)), safe=False)
    if types.is_time(kind) or types.is_null(kind):
        return column.cast(pyarrow.string())
    if types.is_string(kind) or types.is_large_string(kind):
        return compute.utf8_trim_whitespace(column.cast(pyarrow.string()))
    return None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["no reason given"])[0]
