"""Encodes columns of features as a matrix: a number is a column, a category one column of 0 and 1
per name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .cells import FeatureTable
from .check import Features, bad, short

MAX_CATEGORIES = 1000
# a column of texts is refused if it has more than ``MAX_CATEGORIES`` different ones, or more than
# ``MANY_CATEGORIES`` and hardly one twice: these are names or remarks, from which nothing is
# learned
MANY_CATEGORIES = 20

DENSE_COLUMNS = 64  # up to so many columns are a dense matrix


class Encoded(NamedTuple):
    """Features as a matrix (N, F), NaN for a missing number; the names of its columns; the
    categories and the number of missing texts of each column of texts; and notes."""

    matrix: Features
    names: list[str]
    levels: dict[str, list[str]]
    missing_texts: dict[str, int]
    notes: list[str]


def encode(
    path: Path, table: FeatureTable, known: Mapping[str, Sequence[str]], by: str, as_ids: str = ""
) -> Encoded:
    """Encodes features. Texts outside ``known`` categories are noted, and count as none; ``by``
    tells how a column is left out, ``as_ids`` how it is made one of ids."""
    names, parts, notes = [], [], []
    levels: dict[str, list[str]] = {}
    for name in table.names:
        if name in table.texts:
            texts = table.texts[name]
            levels[name] = list(known[name]) if name in known else sorted({*texts} - {""})
            if name not in known and (what := _too_many(texts, levels[name])):
                several = f"at most {MAX_CATEGORIES} categories, each several times"
                allowed = f"{several}; or leave the column out{by}"
                if as_ids and len(levels[name]) == len(texts):
                    allowed += f"; {as_ids.format(name)}"
                raise bad(path, what, allowed, column=short(name))
            numbers = _number_levels(texts, levels[name])
            notes += _unknown(name, texts, numbers)
            parts.append(_indicators(numbers, len(levels[name])))
            names += indicator_names(name, levels[name])
        elif name in known:
            allowed = f"names, like {short(known[name][0])}"
            raise bad(path, "the column holds numbers", allowed, column=short(name))
        else:
            parts.append(sparse.csr_matrix(table.numbers[:, [table.number_names.index(name)]]))
            names.append(name)
    missing = {name: texts.count("") for name, texts in table.texts.items()}
    if not table.texts:
        return Encoded(table.numbers, names, levels, missing, notes)
    matrix = sparse.hstack(parts, format="csr", dtype=np.float32)
    features = matrix.toarray() if matrix.shape[1] <= DENSE_COLUMNS else matrix
    return Encoded(features, names, levels, missing, notes)


def indicator_names(name: str, levels: Sequence[str]) -> list[str]:
    """Returns the names of the columns of a column of texts, such as ``city=Rome``."""
    return [f"{name}={level}" for level in levels]


def decode(
    matrix: NDArray[Any], names: Sequence[str], levels: Mapping[str, Sequence[str]]
) -> dict[str, NDArray[Any]]:
    """Returns the columns (N,) of a dense matrix (N, F) by name and in order, texts as indices of
    their levels, -1 for a missing text."""
    of = {part: name for name in levels for part in indicator_names(name, levels[name])}
    index, columns = {name: column for column, name in enumerate(names)}, {}
    for name in dict.fromkeys(of.get(name, name) for name in names):
        if name in levels:
            parts = matrix[:, [index[part] for part in indicator_names(name, levels[name])]]
            columns[name] = np.where(parts.any(axis=1), parts.argmax(axis=1), -1)
        else:
            columns[name] = matrix[:, index[name]]
    return columns


def _too_many(texts: list[str], levels: list[str]) -> str:
    """Describes a column that holds too many different texts; returns "" for others."""
    count = sum(text != "" for text in texts)
    if len(levels) > MAX_CATEGORIES or (len(levels) > MANY_CATEGORIES and 2 * len(levels) > count):
        return f"the column holds {len(levels)} different texts in {count} rows"
    return ""


def _number_levels(texts: list[str], levels: list[str]) -> NDArray[np.int64]:
    """Numbers the category of each row, (N,); -1 for none."""
    number = {level: index for index, level in enumerate(levels)}
    return np.fromiter((number.get(text, -1) for text in texts), np.int64, count=len(texts))


def _indicators(numbers: NDArray[np.int64], count: int) -> sparse.csr_matrix:
    known = numbers >= 0
    starts = np.concatenate([[0], np.cumsum(known)])
    ones = np.ones(int(known.sum()), np.float32)
    return sparse.csr_matrix((ones, numbers[known], starts), shape=(len(numbers), count))


def _unknown(name: str, texts: list[str], numbers: NDArray[np.int64]) -> list[str]:
    pairs = zip(texts, numbers.tolist(), strict=True)
    unknown = [text for text, number in pairs if number < 0 and text]
    if not unknown:
        return []
    what = f"{len(unknown)} rows have a category that is not known, such as {short(unknown[0])}"
    return [f"{name}: {what}; they count as none"]
