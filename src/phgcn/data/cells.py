r"""Collects the cells of feature columns: numbers with gaps, or texts, which are names of categories.

A column is of numbers if its first cell that is not empty is one; then all must be.  Texts become numbers row by row, so that
memory holds no more text than that of names.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .check import Array, GraphFileError, bad, short

MISSING = frozenset(("", "na", "n/a", "nan", "null", "?"))
"""Cells, in small letters, that hold no value."""

DECIMAL_POINT = "numbers with a decimal point and no other sign, or a file with semicolons, where a comma is the decimal sign"
"""What is allowed in the place of ``1,5`` where commas are not the decimal sign: it may be a thousand and more."""

BLOCK = 1_000_000
"""Numbers that are collected before they become an array."""


@dataclass
class FeatureTable:
    """Columns of features: numbers (N, F) with NaN for a missing one, the names of these columns, and columns of texts, an
    empty one where it is missing; all names in their order."""

    names: list[str]
    number_names: list[str]
    numbers: NDArray[np.float32]
    texts: dict[str, list[str]]


def read_number(cell: str, decimal: str = ".") -> float:
    """Reads a number, NaN if there is none; raises a :class:`ValueError` for other texts."""
    text = cell.strip()
    return math.nan if text.lower() in MISSING else float(text.replace(decimal, "."))


def read_text(cell: str) -> str:
    """Returns the name of a category, an empty one if there is none."""
    text = cell.strip()
    return "" if text.lower() in MISSING else text


class FeatureCells:
    """Collects rows of cells.

    Args:
        path (Path): The file, for messages.
        names (sequence of str): The columns.
        categorical (sequence of str): Those that hold names, whatever they look like.
        decimal (str): The sign between whole numbers and decimals.
    """

    def __init__(self, path: Path, names: Sequence[str], categorical: Sequence[str], decimal: str = ".") -> None:
        self.path, self.names, self.decimal = path, list(names), decimal
        self.rows = array("q")
        self.texts: dict[int, list[str]] = {column: [] for column, name in enumerate(names) if name in categorical}
        self.named = frozenset(self.texts)  # texts because the caller says so
        self.block = array("f")
        self.blocks: list[tuple[list[int], NDArray[np.float32]]] = []  # columns of numbers, and these (rows, columns)
        self._choose_numbers()

    def add(self, row: int, cells: Sequence[str]) -> None:
        """Adds a row; ``row`` is its number, for messages."""
        start = len(self.block)
        try:
            self.block.extend(map(float, self._pick(cells)))
        except ValueError:
            del self.block[start:]
            self._add_with_gaps(row, cells)
        for column, texts in self.texts.items():
            texts.append(read_text(cells[column]))
        self.rows.append(row)
        if len(self.block) > BLOCK:
            self._finish_block()

    def _choose_numbers(self) -> None:
        """Sets which columns are of numbers."""
        self.numbers = [column for column in range(len(self.names)) if column not in self.texts]
        self._pick: Callable[[Sequence[str]], Iterable[str]]
        if len(self.numbers) == len(self.names):
            self._pick = iter
        elif len(self.numbers) > 1:
            self._pick = itemgetter(*self.numbers)
        else:
            self._pick = lambda cells: [cells[column] for column in self.numbers]

    def _add_with_gaps(self, row: int, cells: Sequence[str]) -> None:
        """Adds a row in which a cell is not a plain number; one that is text makes its column one of texts."""
        for column in list(self.numbers):
            try:
                read_number(cells[column], self.decimal)
            except ValueError:
                self._begin_texts(row, column, cells[column])
        self.block.extend(read_number(cells[column], self.decimal) for column in self.numbers)

    def _begin_texts(self, row: int, column: int, cell: str) -> None:
        """Makes a column one of texts; refuses it if a number was there before."""
        self._finish_block()
        for columns, values in self.blocks:
            if np.isfinite(values[:, columns.index(column)]).any():
                raise self._not_a_number(row, column, cell)
        self.texts[column] = [""] * len(self.rows)
        self._choose_numbers()

    def _not_a_number(self, row: int, column: int, cell: str) -> GraphFileError:
        name = short(self.names[column])
        allowed = "a number, or nothing if it is not known; `--categorical` makes the column one of names"
        return bad(self.path, f"the feature is {short(cell.strip())}", row=row, column=name, allowed=allowed)

    def _finish_block(self) -> None:
        """Converts the last rows to an array and checks that no number is infinite."""
        if not self.block:
            return
        values = np.frombuffer(self.block, np.float32).reshape(-1, len(self.numbers))
        infinite = np.isinf(values)
        if infinite.any():
            index, place = divmod(int(np.argmax(infinite)), len(self.numbers))
            row, column = self.rows[len(self.rows) - len(values) + index], short(self.names[self.numbers[place]])
            what = f"the feature is {values[index, place]}"
            raise bad(self.path, what, row=row, column=column, allowed="finite float32 numbers")
        self.blocks.append((list(self.numbers), values))
        self.block = array("f")

    def finish(self) -> FeatureTable:
        """Returns the columns; refuses a column of texts most of which are numbers."""
        self._finish_block()
        for column, texts in self.texts.items():
            if column not in self.named:
                self._refuse_numbers(column, texts)
        parts = [values[:, [columns.index(column) for column in self.numbers]] for columns, values in self.blocks]
        numbers = np.concatenate(parts) if parts and self.numbers else np.empty((len(self.rows), 0), np.float32)
        by_name = {self.names[column]: texts for column, texts in sorted(self.texts.items())}
        return FeatureTable(self.names, [self.names[column] for column in self.numbers], numbers, by_name)

    def _refuse_numbers(self, column: int, texts: list[str]) -> None:
        filled = [text for text in texts if text]
        commas = [text for text in filled if "," in text and is_number(text, ",")]
        if 2 * len(commas) > len(filled):  # as categories they would be silently wrong
            row, name = self.rows[texts.index(commas[0])], short(self.names[column])
            allowed = f"{DECIMAL_POINT}; `--categorical` makes the column one of names"
            raise bad(self.path, f"the feature is {short(commas[0])}", row=row, column=name, allowed=allowed)
        odd = [text for text in filled if not is_number(text, self.decimal)]
        if 2 * len(odd) < len(filled):
            raise self._not_a_number(self.rows[texts.index(odd[0])], column, odd[0])


def is_number(text: str, decimal: str) -> bool:
    """Tells whether a text is a number with this decimal sign."""
    try:
        float(text.replace(decimal, "."))
    except ValueError:
        return False
    return True


def one_column(path: Path, name: str, texts: Sequence[str], rows: Array, categorical: Sequence[str]) -> FeatureTable:
    """Reads a single column of texts, as the cells of a CSV file are read."""
    cells = FeatureCells(path, [name], categorical)
    for row, text in zip(rows.tolist(), texts, strict=True):
        cells.add(row, [text])
    return cells.finish()
