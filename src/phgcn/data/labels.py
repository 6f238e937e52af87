"""Labels: the task that follows from them, and the numbers of a column of text.

A graph's labels ``y`` are classes (int64, :math:`(N,)`, -1 for none), numbers (float32,
:math:`(N,)`, NaN for none), or several labels per node (float32 of 0 and 1, :math:`(N, C)`, a row
of NaN for an unknown node). :func:`task_of` reads the task from type and shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .cells import DECIMALS, has_other_sign, parse_number
from .check import UNLABELLED, Array, GraphFileError, bad, short

if TYPE_CHECKING:
    from torch import Tensor

TASKS = ("classification", "regression", "multilabel")

AS_CLASSES = "--task classification (Python: task='classification')"

SEPARATORS = (";", "|")  # what stands between the labels of one node, `a;b`

MANY_NUMBERS = 50
# labels that are whole numbers are taken for amounts, not classes, if there are more than
# ``MANY_NUMBERS`` different ones and fewer than ``NODES_PER_NUMBER`` nodes for each
NODES_PER_NUMBER = 10

# labels, in small letters, that say that a label is not known, as in columns of features; a lone
# minus is a class beside a plus
UNKNOWN = ("na", "n/a", "#n/a", "nan", "nat", "null", "?")


def task_of(y: Tensor) -> str:
    """Returns the task of labels by their type and shape."""
    if y.dim() == 2:
        return "multilabel"
    return "regression" if y.is_floating_point() else "classification"


def labelled(y: Tensor) -> Tensor:
    """Returns a mask of the nodes that have a label.

    Shapes:
        - **y:** :math:`(N,)` or :math:`(N, C)`, **output:** :math:`(N,)`, bool
    """
    if not y.is_floating_point():
        return y >= 0
    return ~y.isnan() if y.dim() == 1 else ~y.isnan().any(dim=1)


def without_labels(y: Tensor, nodes: Tensor) -> Tensor:
    """Returns a copy of the labels, missing at the indices ``nodes``."""
    hidden = y.clone()
    hidden[nodes] = math.nan if y.is_floating_point() else UNLABELLED
    return hidden


# From text


class Labels(NamedTuple):
    """Labels from a file, and the reason for their task."""

    task: str
    y: Array
    classes: list[str]
    reason: str


@dataclass(frozen=True)
class LabelColumn:
    """A column of labels as written, empty for a node without one; its file and column for
    messages; and the decimal sign of :func:`phgcn.data.cells.parse_number`."""

    path: Path
    name: str
    texts: list[str]
    rows: Array
    decimal: str = "."

    def error(self, text: str, allowed: str) -> GraphFileError:
        """Makes the error about the first node that has this label."""
        row = int(self.rows[self.texts.index(text)])
        return bad(self.path, f"{self.name} is {short(text)}", allowed, row=row, column=self.name)

    def number(self, text: str) -> float | None:
        """Returns the finite number of a text, or :obj:`None`."""
        value = parse_number(text, self.decimal)
        return value if value is not None and math.isfinite(value) else None


def read_labels(column: LabelColumn, task: str | None = None) -> Labels:
    """Reads a column of labels for a task, by default the one that the labels look like."""
    if task not in (None, *TASKS):
        raise ValueError(f"task is {task!r}; allowed: {', '.join(TASKS)}")
    names = [name for name in dict.fromkeys(column.texts) if name]  # by their first node
    for name in names:
        if name == "None":
            raise column.error(name, "a name, or nothing if it is not known")
    chosen, reason = _choose_task(column, names) if task is None else (task, "as asked for")
    y, classes = _READERS[chosen](column, names)
    return Labels(chosen, y, classes, reason)


def _choose_task(column: LabelColumn, names: list[str]) -> tuple[str, str]:
    if not names:
        return "classification", "no node has a label"
    several = next((name for name in names if _separator(name)), None)
    if several:
        return "multilabel", f"labels like {short(several)} are several of one node"
    turned = [name for name in names if has_other_sign(name, column.decimal)]
    if 2 * len(turned) > len(names):  # as classes they would be silently wrong
        raise column.error(turned[0], f"{DECIMALS[column.decimal]}; or {AS_CLASSES}")
    numbers = [value for value in map(column.number, names) if value is not None]
    whole = all(value == int(value) for value in numbers)
    # a name among them is a mistake, which the reader names
    if not whole and 2 * len(numbers) > len(names):
        return "regression", "labels are numbers with decimals"
    whole = whole and len(numbers) == len(names)
    count = sum(text != "" for text in column.texts)
    if whole and len(names) > MANY_NUMBERS and count < NODES_PER_NUMBER * len(names):
        return "regression", f"labels are {len(names):,} different whole numbers"
    return "classification", "labels are whole numbers" if whole else "labels are names"


def _separator(name: str) -> str:
    """Returns the sign between several labels, or an empty text."""
    return next((sign for sign in SEPARATORS if sign in name), "")


def _read_classes(column: LabelColumn, names: list[str]) -> tuple[Array, list[str]]:
    """Numbers the classes, by number if all are integers, else by alphabet."""
    classes = sorted(names)
    if all(map(_is_integer, names)):
        classes.sort(key=int)
    class_number = {name: number for number, name in enumerate(classes)} | {"": UNLABELLED}
    return np.array([class_number[text] for text in column.texts], np.int64), classes


def _is_integer(name: str) -> bool:
    # one of 20 characters or more is a name
    return len(name) < 20 and name.isascii() and name.removeprefix("-").isdecimal()


def _read_numbers(column: LabelColumn, names: list[str]) -> tuple[Array, list[str]]:
    value_of = {"": math.nan}
    for text in names:
        value = column.number(text)
        if value is None or abs(value) > np.finfo(np.float32).max:
            raise column.error(text, f"a finite number, or nothing; or {AS_CLASSES}")
        value_of[text] = value
    return np.array([value_of[text] for text in column.texts], np.float32), []


def _read_sets(column: LabelColumn, names: list[str]) -> tuple[Array, list[str]]:
    """Reads several labels per node. A lone ``;`` is a node that has none of them."""
    parts_of = {text: _split_names(text) for text in names}
    classes = sorted({part for parts in parts_of.values() for part in parts})
    class_number = {name: number for number, name in enumerate(classes)}
    y: NDArray[np.float32] = np.full((len(column.texts), len(classes)), np.nan, np.float32)
    for node, text in enumerate(column.texts):
        if text:
            y[node] = 0
            y[node, [class_number[part] for part in parts_of[text]]] = 1
    return y, classes


def _split_names(text: str) -> list[str]:
    separator = _separator(text)
    parts = [part.strip() for part in text.split(separator)] if separator else [text]
    return [part for part in parts if part]


_READERS: dict[str, Callable[[LabelColumn, list[str]], tuple[Array, list[str]]]] = {
    "classification": _read_classes,
    "regression": _read_numbers,
    "multilabel": _read_sets,
}
