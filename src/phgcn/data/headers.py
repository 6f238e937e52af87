"""Finds the columns of the node and the edge table by their headers."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ..text import did_you_mean
from .check import GraphFileError, bad, short
from .columns import ID, NO_COLUMN, Columns

WEIGHT = "weight"  # the column of the edge table that holds weights if none is named


class NodeHeader(NamedTuple):
    """The positions of columns in the node table: ids and labels (:obj:`None` for none), features,
    splits; names of the rest."""

    id: int | None
    label: int | None
    features: list[int]
    splits: list[int]
    left_out: list[str]


class EdgeHeader(NamedTuple):
    """Column positions in the edge table: the ends, and features, with the weight among them."""

    source: int
    target: int
    features: list[int]


class Header(NamedTuple):
    """The names of a table's columns, and its file for messages."""

    path: Path
    names: list[str]
    row: int | None

    def node_columns(self, columns: Columns) -> NodeHeader:
        self._check_names(allow_unnamed=columns.features is not None)
        id = None if columns.id == NO_COLUMN else columns.id
        if id == ID and ID not in self.names:
            id = next((name for name in self.names if name.lower() == ID), None)
        wanted = [*(name for name in (id, columns.label) if name is not None), *columns.split]
        self._refuse_missing(
            wanted, "other names by --id, --label and --split-column (Python: id=, label=, split=)"
        )
        if columns.features is None:
            features = [name for name in self.names if name not in wanted]
        else:
            features = list(columns.features)
            hint = "the columns that are there, by --features (Python: features=) or as in the run"
            self._refuse_missing(features, hint)
        twice = next((name for name in features if features.count(name) > 1), None)
        if twice is not None:
            what = f"feature {short(twice)} is named twice"
            raise bad(self.path, what, "each name once", row=self.row)
        if columns.label in features:
            others = ", ".join(name for name in features if name != columns.label)
            raise self._error(columns.label, "is the label, and no feature", short(others))
        for name in (*columns.categorical, *columns.levels):
            if name not in features:
                what = f"is no feature{did_you_mean([name], features)}"
                raise self._error(name, what, short(", ".join(features)))
        if not features:
            allowed = "at least one column beside id and label"
            raise bad(self.path, "there are no feature columns", allowed, row=self.row)
        place = self.names.index
        return NodeHeader(
            id=None if id is None else place(id),
            label=None if columns.label is None else place(columns.label),
            features=[place(name) for name in features],
            splits=[place(name) for name in columns.split],
            left_out=[name for name in self.names if name not in (*wanted, *features)],
        )

    def edge_columns(self, columns: Columns) -> EdgeHeader:
        self._check_names(allow_unnamed=columns.edge_features is not None)
        ends = [columns.source, columns.target]
        self._refuse_missing(
            ends, "other names by --edge-source and --edge-target (Python: source=, target=)"
        )
        weight = weight_column(self.names, columns)
        features = [*([] if weight is None else [weight]), *(columns.edge_features or ())]
        by = "--edge-weight and --edge-features (Python: edge_weight=, edge_features=)"
        self._refuse_missing(features, f"the columns that are there, by {by} or as in the run")
        others = [name for name in self.names if name not in (*ends, *features)]
        if others and columns.edge_features is None:
            none = "none, in Python edge_features=[], leaves others out"
            allowed = f"source, target, weight, and those that --edge-features names ({none})"
            raise self._error(others[0], "has no use", allowed, column=others[0])
        source, target, *places = (self.names.index(name) for name in ends + features)
        return EdgeHeader(source, target, list(dict.fromkeys(places)))

    def _error(
        self, name: str, what: str, allowed: str, column: str | None = None
    ) -> GraphFileError:
        shown = short(name)
        what = f"column {shown} {what}"
        return bad(self.path, what, allowed, row=self.row, column=column or shown)

    def _check_names(self, allow_unnamed: bool) -> None:
        """Refuses a repeated name, and a missing one unless columns are named."""
        for index, name in enumerate(self.names):
            if not name and not allow_unnamed:
                advice = "pandas writes one without by to_csv(), none by to_csv(index=False)"
                what, allowed = "the column has no name", f"a name for every column; {advice}"
                raise bad(self.path, what, allowed, row=self.row, column=index + 1)
            if name and name in self.names[:index]:
                raise self._error(name, "is there twice", "each name once")

    def _refuse_missing(self, wanted: list[str], hint: str) -> None:
        missing = [name for name in wanted if name not in self.names]
        if missing:
            listed = ", ".join(map(repr, missing))
            are = f"columns {listed} are" if len(missing) > 1 else f"column {listed} is"
            meant = did_you_mean(missing, self.names)
            what = f"{are} missing{meant}; found: {short(', '.join(self.names))}"
            raise bad(self.path, what, hint, row=self.row, column=missing[0])


def weight_column(names: list[str], columns: Columns) -> str | None:
    if columns.edge_weight is None:
        return WEIGHT if WEIGHT in names and WEIGHT not in (columns.edge_features or ()) else None
    return None if columns.edge_weight == NO_COLUMN else columns.edge_weight
