r"""Makes numbers or names of the cells of a column.

A column is of numbers if all its cells are, of days if all are dates, of hours if all are times; else of names, unless most
of it are numbers, which is a mistake.  ``1,200``, ``12 %`` and ``$ 5`` are numbers too, and a note says so.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .check import Array, bad, short
from .faults import Faults
from .readers import Cells

MISSING = frozenset(("", "na", "n/a", "#n/a", "nan", "nat", "null", "?", "-"))
"""Cells, in small letters, that hold no value."""

DECIMAL_POINT = "numbers with a decimal point; `--decimal ,` reads commas as decimal signs, and points between thousands"
"""What is allowed in the place of ``1,5`` where commas are not the decimal sign."""

CURRENCIES = r"(?:[$€£¥₹]|USD|EUR|GBP|CHF|JPY|CNY|INR)"
DAY = 24 * 3600.0


@dataclass
class FeatureTable:
    """Columns of features: numbers (N, F) with NaN for a missing one, the names of these columns, and columns of texts, an
    empty one where it is missing; all names in their order; and what is worth saying about them."""

    names: list[str]
    number_names: list[str]
    numbers: NDArray[np.float32]
    texts: dict[str, list[str]]
    notes: list[str] = field(default_factory=list)


# Texts


def to_texts(cells: Cells) -> list[str]:
    """Returns cells as texts without spaces around them, an empty one for a missing cell; whole floats as integers, which
    programs write so where cells are empty."""
    if isinstance(cells, np.ndarray):
        if cells.dtype.kind in "iub":
            return [str(cell) for cell in cells.tolist()]
        if cells.dtype.kind == "M":
            return ["" if text == "NaT" else text for text in np.datetime_as_string(cells).tolist()]
        cells = cells.tolist()
    return [cell.strip() if isinstance(cell, str) else _text_of(cell) for cell in cells]


def _text_of(cell: Any) -> str:
    if cell is None or cell != cell:  # NaN is not itself
        return ""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell).strip()


# Numbers


def parse_number(text: str, decimal: str = ".") -> float | None:
    """Reads a number as people write it; :obj:`None` if a text is none.

    Args:
        text (str): For example ``1,200.50``, ``-12 %``, ``$ 5`` or ``1 200``.
        decimal (str): The sign between whole numbers and decimals: ``"."``, ``","``, or ``"either"``, where a sign that is
            there once is the decimal sign.
    """
    if decimal != ",":
        try:
            return float(text.replace(",", ".") if decimal == "either" else text)
        except ValueError:
            pass
    for sign in {"either": ",."}.get(decimal, decimal):
        found = _pattern(sign).fullmatch(text.strip())
        if found:
            digits = re.sub(r"[^\d]", "", found["whole"]) + (found["part"] or "").replace(",", ".") + (found["power"] or "")
            value = float(digits) * (-1 if "-" in (found["sign"] or "") + (found["inner"] or "") else 1)
            return value / 100 if found["percent"] else value
    return None


@cache
def _pattern(decimal: str) -> re.Pattern[str]:
    """Returns the pattern of a number; thousands are grouped by one sign, which is not the decimal sign."""
    groups = r"[, '’\u00a0\u202f]" if decimal == "." else r"[. '’\u00a0\u202f]"
    return re.compile(
        rf"(?P<sign>[+-])?\s*{CURRENCIES}?\s*(?P<inner>[+-])?"
        rf"(?P<whole>\d{{1,3}}(?:(?P<group>{groups})\d{{3}}(?:(?P=group)\d{{3}})*)|\d+)(?P<part>{re.escape(decimal)}\d*)?"
        rf"(?P<power>[eE][+-]?\d+)?\s*(?:{CURRENCIES}|(?P<percent>%))?"
    )


def is_plain(text: str, decimal: str) -> bool:
    """Tells whether a text is a number without signs between thousands, currencies or percents."""
    if decimal == "," and "." in text:
        return False
    try:
        float(text if decimal == "." else text.replace(",", "."))
    except ValueError:
        return False
    return True


# Dates and times

DOTTED = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(.*)")
SLASHED = re.compile(r"\d{1,2}/\d{1,2}/\d{2,4}")
TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?")


def parse_date(text: str) -> float | None:
    """Reads a date, with a time or without, as days since 1970; :obj:`None` if a text is none."""
    found = DOTTED.fullmatch(text)
    if found:
        day, month, year, rest = found.groups()
        text = f"{year}-{month:>02}-{day:>02}{rest}"
    if len(text) < 8 or not text[:4].isdigit() or text[4] not in "-/":
        return None
    try:
        moment = datetime.datetime.fromisoformat(text.replace("/", "-").replace("Z", "+00:00"))
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    return moment.timestamp() / DAY


def is_date(text: str) -> bool:
    """Tells whether a text is a date or missing."""
    return text.strip().lower() in MISSING or parse_date(text.strip()) is not None


def parse_time(text: str) -> float | None:
    """Reads a time of day, or a length of time, as hours; :obj:`None` if a text is none."""
    found = TIME.fullmatch(text)
    return None if found is None else int(found[1]) + int(found[2]) / 60 + float(found[3] or 0) / 3600


# Columns


class FeatureColumn:
    """Collects the blocks of a column of features, as numbers where all cells of a block are plain numbers.

    Args:
        path (Path): The file, for messages.
        name (str): The column.
        decimal (str): The decimal sign, see :func:`parse_number`.
        named (bool): Whether the column holds names, whatever they look like.
    """

    def __init__(self, path: Path, name: str, decimal: str, named: bool) -> None:
        self.path, self.name, self.decimal, self.named = path, name, decimal, named
        self.parts: list[tuple[Array, NDArray[np.float32] | list[str]]] = []  # row numbers, and numbers or texts

    def add(self, rows: Array, cells: Cells, faults: Faults) -> None:
        """Adds a block."""
        numbers = None if self.named else _quick_numbers(cells, self.decimal)
        if numbers is None:
            texts = to_texts(cells)
            self.parts.append((rows, ["" if text.lower() in MISSING else text for text in texts]))
            return
        with np.errstate(over="ignore"):  # numbers beyond float32 become infinite
            self._add_numbers(rows, numbers.astype(np.float32), faults)

    def _add_numbers(self, rows: Array, values: NDArray[np.float32], faults: Faults) -> None:
        infinite = np.isinf(values)
        if infinite.any():
            first = int(np.argmax(infinite))
            error = self._error(f"the feature is {values[first]}", rows[first], "finite float32 numbers")
            faults.add(f"{self.path} {self.name} infinite", error, int(infinite.sum()))
        self.parts.append((rows, values))

    def _error(self, what: str, row: int | None, allowed: str) -> Any:
        return bad(self.path, what, row=None if row is None else int(row), column=short(self.name), allowed=allowed)

    def finish(self, faults: Faults) -> tuple[NDArray[np.float32] | list[str], str]:
        """Returns numbers or texts, (N,), and a note, which may be empty."""
        texts = [part for part in self.parts if isinstance(part[1], list)]
        if self.named or not self.parts:
            return list(chain.from_iterable(values for _, values in texts)), ""
        filled = [text for _, values in texts for text in values if text]
        if not filled:
            return self._numbers_by(lambda text: math.nan, faults), ""
        readers: tuple[tuple[Callable[[str], float | None], str], ...] = (
            (lambda text: parse_number(text, self.decimal), "numbers"),
            (parse_date, "days since 1970"),
            (parse_time, "hours"),
        )
        plain = len(texts) < len(self.parts)
        for read, unit in readers[: 1 if plain else 3]:
            if all(read(text) is not None for text in filled):
                odd = next((text for text in filled if not is_plain(text, self.decimal)), None)
                note = "" if odd is None else f"{self.name}: cells like {short(odd)} are read as {unit}, here {read(odd):.10g}"
                return self._numbers_by(read, faults), note
        self._check_names(filled, faults)
        return [text for _, values in self.parts for text in (values if isinstance(values, list) else to_texts(values))], ""

    def _numbers_by(self, read: Callable[[str], float | None], faults: Faults) -> NDArray[np.float32]:
        parts, self.parts = self.parts, []
        for rows, values in parts:
            if isinstance(values, list):
                numbers = (math.nan if not text else read(text) for text in values)
                with np.errstate(over="ignore"):
                    array = np.fromiter((math.nan if x is None else x for x in numbers), np.float64, count=len(values))
                    self._add_numbers(rows, array.astype(np.float32), faults)
            else:
                self.parts.append((rows, values))
        return np.concatenate([values for _, values in self.parts])

    def _check_names(self, filled: list[str], faults: Faults) -> None:
        """Refuses names most of which are numbers or dates that cannot be read: as categories they would be silently wrong."""
        numbers = sum(int(np.isfinite(v).sum()) for _, v in self.parts if not isinstance(v, list))
        odd = [text for text in filled if parse_number(text, self.decimal) is None]
        total = numbers + len(filled)
        commas = [text for text in odd if "," in text and parse_number(text, ",") is not None]
        slashed = [text for text in odd if SLASHED.fullmatch(text)]
        names = "`--categorical` makes the column one of names"
        if commas and (2 * len(commas) > total or 2 * (len(odd) - len(commas)) < total):
            self._refuse(commas, f"{DECIMAL_POINT}; {names}", faults)
        elif 2 * len(slashed) > total:
            self._refuse(slashed, f"dates like 2024-12-31 or 31.12.2024, as others can be read in two ways; {names}", faults)
        elif 2 * len(odd) < total or numbers:
            self._refuse(odd, f"a number, or nothing if it is not known; {names}", faults)

    def _refuse(self, odd: Sequence[str], allowed: str, faults: Faults) -> None:
        row = next(rows[v.index(odd[0])] for rows, v in self.parts if isinstance(v, list) and odd[0] in v)
        faults.add(f"{self.path} {self.name}", self._error(f"the feature is {short(odd[0])}", row, allowed), len(odd))


def _quick_numbers(cells: Cells, decimal: str) -> NDArray[np.float64] | None:
    """Converts a block of plain numbers, NaN for an empty cell, (N,); :obj:`None` if a cell is anything else."""
    if isinstance(cells, np.ndarray):
        if cells.dtype.kind == "M":
            days = cells.astype("datetime64[us]").astype(np.int64) / (1e6 * DAY)
            return np.where(np.isnat(cells), np.nan, days)
        return cells.astype(np.float64) if cells.dtype.kind in "biuf" else None
    if any(isinstance(cell, (bool, datetime.date, datetime.time)) for cell in cells[:100]):
        return None
    try:
        if decimal != ",":
            return np.fromiter(map(float, _with_gaps(cells)), np.float64, count=len(cells))
    except (TypeError, ValueError):
        pass
    return None


def _with_gaps(cells: Sequence[Any]) -> Iterable[Any]:
    return (cell if cell != "" and cell is not None else math.nan for cell in cells)


def join_columns(columns: Sequence[FeatureColumn], rows: int, faults: Faults) -> FeatureTable:
    """Returns columns that are complete as one table."""
    numbers, texts, notes = {}, {}, []
    for column in columns:
        values, note = column.finish(faults)
        if isinstance(values, list):
            texts[column.name] = values
        else:
            numbers[column.name] = values
        notes += [note] if note else []
    matrix = np.stack(list(numbers.values()), axis=1) if numbers else np.empty((rows, 0), np.float32)
    return FeatureTable([column.name for column in columns], list(numbers), matrix, texts, notes)
