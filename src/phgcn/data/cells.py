"""Reads the cells of a column as numbers or names.

A column of dates is days, of times hours. A column that is neither these nor numbers is names,
unless most cells are numbers, which is a mistake. ``1,200``, ``12 %`` and ``$ 5`` are numbers too,
and a note says so."""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from .check import FINITE, Faults, bad, short
from .readers import DAY, NAMES_BY_OPTION, Cells, OpenTable

# cells, in small letters, that hold no value
MISSING = ("", "na", "n/a", "#n/a", "nan", "nat", "null", "?", "-")

# what is allowed, by the decimal sign, in the place of a number with the other sign
DECIMALS = {
    ".": "numbers with a decimal point; `--decimal ,` (Python: decimal=',') reads commas as "
    "decimal signs, and points between thousands",
    ",": "numbers with a decimal comma; `--decimal .` (Python: decimal='.') reads points as "
    "decimal signs, and commas between thousands",
}

CURRENCIES = r"(?:[A-Z]{0,2}\$|[€£¥₹₩₺₽]|USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN|kr|zł)"

CODE = r"^0\d+$"
THOUSANDS = r"^-?\d{1,3}\.\d{3}$"


@dataclass
class FeatureTable:
    """Columns of features: numbers (N, F), NaN for a missing one, with the names of these columns;
    columns of texts, empty for a missing one; all names in their order; and notes."""

    names: list[str]
    number_names: list[str]
    numbers: NDArray[np.float32]
    texts: dict[str, list[str]]
    notes: list[str] = field(default_factory=list)


# Texts


def to_texts(cells: Cells) -> list[str]:
    """Returns cells as texts, empty for a missing cell; whole floats as integers."""
    import pyarrow

    if not pyarrow.types.is_floating(cells.type):
        texts: list[str] = cells.cast(pyarrow.string()).fill_null("").to_pylist()
        return texts
    return ["" if cell is None or cell != cell else _text_of(cell) for cell in cells.to_pylist()]


def _text_of(number: float) -> str:
    return str(int(number)) if number.is_integer() else str(number)


# Numbers


def parse_number(text: str, decimal: str = ".") -> float | None:
    """Reads a number as people write it, such as ``1,200.50``, ``-12 %``, ``$ 5`` or ``1 200``;
    :obj:`None` if it is none. ``decimal`` is ``"."``, ``","``, or ``"either"``, for which a sign
    that occurs once is the decimal sign."""
    if decimal != ",":
        try:
            return float(text.replace(",", ".") if decimal == "either" else text)
        except ValueError:
            pass
    for sign in {"either": ",."}.get(decimal, decimal):
        found = _pattern(sign).fullmatch(text.strip())
        if found:
            whole, part = re.sub(r"\D", "", found["whole"]), (found["part"] or "").replace(",", ".")
            value = float(whole + part + (found["power"] or ""))
            value = -value if {"-", "−"} & {found["sign"], found["inner"]} else value
            return value / 100 if found["percent"] else value
    return None


@cache
def _pattern(decimal: str) -> re.Pattern[str]:
    """Returns the pattern of a number, whose thousands another sign groups."""
    groups = r"[, '’\u00a0\u202f]" if decimal == "." else r"[. '’\u00a0\u202f]"
    lakhs = r"|\d{1,2}(?:,\d\d)+,\d{3}" if decimal == "." else ""
    return re.compile(
        rf"(?P<sign>[+−-])?\s*{CURRENCIES}?\s*(?P<inner>[+−-])?"
        rf"(?P<whole>\d{{1,3}}(?:(?P<group>{groups})\d{{3}}(?:(?P=group)\d{{3}})*)|\d+{lakhs})(?P<part>{re.escape(decimal)}\d*)?"
        rf"(?P<power>[eE][+-]?\d+)?\s*(?:{CURRENCIES}|(?P<percent>%))?"
    )


def reads_as_number(texts: Sequence[str], decimal: str = ".") -> bool:
    """Returns whether most texts are dates, or numbers of which some have a sign such as ``$``."""
    numbers = [text for text in texts if parse_number(text, decimal) is not None]
    amounts = [text for text in numbers if not is_plain(text, ".")]
    dates = [text for text in texts if AMBIGUOUS.fullmatch(text) or parse_date(text) is not None]
    return 2 * len(dates) > len(texts) or (bool(amounts) and 2 * len(numbers) > len(texts))


def has_other_sign(text: str, decimal: str) -> bool:
    """Returns whether a text is a number with the other decimal sign only."""
    other = {".": ",", ",": "."}.get(decimal)
    if other is None or parse_number(text, decimal) is not None:
        return False
    return parse_number(text, other) is not None


def is_plain(text: str, decimal: str) -> bool:
    """Returns whether a text is a number without groups of digits, currency or percent."""
    if decimal == "," and "." in text:
        return False
    try:
        float(text.replace(",", ".") if decimal == "," else text)
    except ValueError:
        return False
    return True


# Dates and times

DOTTED = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(.*)")
# dates that mean different days in different countries, or that leave out the century
AMBIGUOUS = re.compile(r"([0-3]?\d)([/.-])([0-3]?\d)\2(\d{4}|\d{2})(,? \d.*)?")
CLEAR_DATES = (
    "dates like 2024-12-31 or 31.12.2024; like 12/31/2024 only where days above 12 show the order"
)

WRITTEN = re.compile(r"(?:(\d{1,2})\.?[ -])?([A-Za-z]{3,9})\.?[ -](?:(\d{1,2}),? )?(\d{4})")
YEAR_AND_MONTH = re.compile(r"((?:19|20)\d\d)-(\d\d)")
MONTHS = "january february march april may june july august september october november december"
TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?(?: ?([AaPp])\.?[Mm]\.?)?")


def day_is_first(texts: Iterable[str]) -> bool | None:
    """Returns whether dates like ``31/12/2024`` begin with the day, as those with a day above 12
    say; :obj:`None` if none does, or not all the same."""
    found = [match for text in texts if (match := AMBIGUOUS.fullmatch(text))]
    first, second = (any(int(match[part]) > 12 for match in found) for part in (1, 3))
    return None if first == second else first


def parse_date(text: str, day_first: bool | None = None) -> float | None:
    """Reads a date, with a time or without, as days since 1970; :obj:`None` if a text is none.
    ``day_first`` tells the order of dates like ``31/12/2024``."""
    text = _as_iso(text, day_first)
    if len(text) < 8 or not text[:4].isdigit() or text[4] not in "-/":
        return None
    try:
        moment = datetime.datetime.fromisoformat(text.replace("/", "-").replace("Z", "+00:00"))
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    return moment.timestamp() / DAY


def _as_iso(text: str, day_first: bool | None) -> str:
    """Converts ``31.12.2024``, ``31 Dec 2024``, ``Dec 31, 2024`` and ``2024-12`` to ISO dates."""
    if found := DOTTED.fullmatch(text):
        day, month, year, rest = found.groups()
        return f"{year}-{month:>02}-{day:>02}{rest}"
    found = AMBIGUOUS.fullmatch(text)
    if found and day_first is not None and len(found[4]) == 4:
        day, month = (found[1], found[3]) if day_first else (found[3], found[1])
        return f"{found[4]}-{month:>02}-{day:>02}{(found[5] or '').lstrip(',')}"
    if found := YEAR_AND_MONTH.fullmatch(text):
        return f"{text}-01"
    if found := WRITTEN.fullmatch(text):
        first, name, second, year = found.groups()
        months = [month.startswith(name.lower()) for month in MONTHS.split()]
        if any(months) and not (first and second):
            return f"{year}-{months.index(True) + 1:02}-{first or second or '1':>02}"
    return text


def parse_time(text: str) -> float | None:
    """Reads a time of day or a duration as hours; :obj:`None` if a text is none."""
    found = TIME.fullmatch(text)
    if found is None:
        return None
    half = found[4]
    hours = int(found[1]) if half is None else int(found[1]) % 12 + 12 * (half in "Pp")
    return hours + int(found[2]) / 60 + float(found[3] or 0) / 3600


# Columns


def read_names(cells: Cells) -> list[str]:
    """Returns the names in a column, an empty text for a missing one."""
    return ["" if text.lower() in MISSING else text for text in to_texts(cells)]


def read_features(
    table: OpenTable, positions: list[int], named: set[str], faults: Faults, advice: str = ""
) -> FeatureTable:
    """Reads the columns of features at some positions; ``named`` columns hold names in any case.
    Cells with faults are 0; ``advice`` ends the message of each fault."""
    numbers: dict[str, NDArray[np.float32]] = {}
    texts: dict[str, list[str]] = {}
    notes: list[str] = []
    for position in positions:
        name, cells = table.header[position], table.column(position)
        column = _FeatureColumn(table, name, faults, advice)
        values = read_names(cells) if name in named else column.read(cells)
        if isinstance(values, list):
            texts[name] = values
        else:
            numbers[name] = values
        notes += column.notes
    names = [table.header[position] for position in positions]
    matrix = np.stack(list(numbers.values()), 1) if numbers else np.empty((len(table.rows), 0))
    return FeatureTable(names, list(numbers), matrix.astype(np.float32), texts, notes)


class _FeatureColumn:
    def __init__(self, table: OpenTable, name: str, faults: Faults, advice: str) -> None:
        self.table, self.name, self.faults, self.advice = table, name, faults, advice
        self.notes: list[str] = []

    def read(self, cells: Cells) -> NDArray[np.float32] | list[str]:
        numbers = _plain_numbers(cells, self.table.decimal)
        if numbers is not None:
            self._note_doubtful(cells)
            return self._finite(numbers)
        texts = read_names(cells)
        counts = Counter(texts)
        del counts[""]
        readers: tuple[tuple[Callable[[str], float | None], str], ...] = (
            (lambda text: parse_number(text, self.table.decimal), "numbers"),
            (partial(parse_date, day_first=day_is_first(counts)), "days since 1970"),
            (parse_time, "hours"),
        )
        for read, unit in readers:
            values = {text: read(text) for text in counts}
            if None not in values.values():
                decimal = self.table.decimal
                odd = next((text for text in values if not is_plain(text, decimal)), None)
                if odd is not None:
                    self._note(odd, f"{unit}, here {values[odd]:.10g}")
                return self._finite(np.array([values.get(text, math.nan) for text in texts], float))
        wrong, allowed = self._find_wrong(counts)
        if not wrong:
            return texts
        first = next(iter(wrong))
        self._refuse(short(first), texts.index(first), allowed + self.advice, wrong.total())
        values = {text: parse_number(text, self.table.decimal) or 0.0 for text in counts}
        return self._finite(np.array([values.get(text, math.nan) for text in texts], float))

    def _finite(self, numbers: NDArray[np.float64]) -> NDArray[np.float32]:
        with np.errstate(over="ignore"):  # numbers beyond float32 become infinite
            values = numbers.astype(np.float32)
        infinite = np.flatnonzero(np.isinf(values))
        if len(infinite):
            first = int(infinite[0])
            self._refuse(str(values[first]), first, FINITE, len(infinite))
            values[infinite] = 0
        return values

    def _refuse(self, shown: str, index: int, allowed: str, count: int) -> None:
        path, row = self.table.path, int(self.table.rows[index])
        error = bad(path, f"the cell is {shown}", allowed, row=row, column=short(self.name))
        self.faults.add(f"{path} {self.name}: {allowed}", error, count)

    def _note_doubtful(self, cells: Cells) -> None:
        """Notes possible codes (``08001``), and points that may group thousands (``1.234``)."""
        from pyarrow import compute, types

        if not types.is_string(cells.type):
            return
        like = partial(compute.match_substring_regex, cells)
        codes, grouped = like(CODE), like(THOUSANDS)
        if codes.true_count:
            text = cells.filter(codes)[0].as_py()
            self._note(text, f"numbers; {NAMES_BY_OPTION}")
        if self.table.decimal == "either" and grouped.true_count and grouped == like(r"\."):
            text = cells.filter(grouped)[0].as_py()
            how = "`--decimal ,` (Python: decimal=',') reads thousands"
            self._note(text, f"numbers, here {float(text):.10g}; {how}")

    def _note(self, text: str, how: str) -> None:
        self.notes.append(f"{self.name}: cells like {short(text)} are read as {how}")

    def _find_wrong(self, counts: Counter[str]) -> tuple[Counter[str], str]:
        """Returns the cells to refuse and the allowed kind: a few other cells among numbers, dates
        or times would silently make the column one of names."""
        decimal, total = self.table.decimal, counts.total()

        def choose(test: Callable[[str], bool], among: Counter[str] = counts) -> Counter[str]:
            return Counter({text: count for text, count in among.items() if test(text)})

        odd = choose(lambda text: parse_number(text, decimal) is None)
        turned = choose(lambda text: has_other_sign(text, decimal), odd)
        ambiguous = choose(lambda text: AMBIGUOUS.fullmatch(text) is not None, odd)
        if 2 * ambiguous.total() > total:
            return ambiguous, CLEAR_DATES
        if turned and (2 * turned.total() > total or 2 * (odd.total() - turned.total()) < total):
            return turned, DECIMALS[decimal]
        undated = choose(lambda text: parse_date(text) is None)
        untimed = choose(lambda text: parse_time(text) is None)
        kinds = ("a number", "a date like 2024-12-31", "a time like 18:30")
        for wrong, kind in zip((odd, undated, untimed), kinds, strict=True):
            if 2 * wrong.total() < total:
                return wrong, f"{kind}, or nothing if it is not known"
        return Counter(), ""


def _plain_numbers(cells: Cells, decimal: str) -> NDArray[np.float64] | None:
    """Converts plain numbers, and times to days since 1970; :obj:`None` if a cell is neither."""
    import pyarrow
    from pyarrow import compute, types

    if types.is_timestamp(cells.type):
        days = compute.divide(cells.cast(pyarrow.int64()).cast(pyarrow.float64()), 1e6 * DAY)
        return _to_floats(days)
    if not types.is_string(cells.type):
        return _to_floats(cells.cast(pyarrow.float64(), safe=False))
    if decimal == ",":
        return None
    missing = compute.is_in(compute.utf8_lower(cells), pyarrow.array(MISSING))
    try:
        return _to_floats(compute.if_else(missing, None, cells).cast(pyarrow.float64()))
    except pyarrow.ArrowInvalid:
        return None


def _to_floats(cells: Cells) -> NDArray[np.float64]:
    numbers: NDArray[np.float64] = cells.fill_null(math.nan).to_numpy(zero_copy_only=False)
    return numbers
