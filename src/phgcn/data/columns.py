"""The roles of a graph's table columns, and their positions by the headers."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..text import did_you_mean, listed
from .check import Faults, GraphFileError, bad, short

ID = "id"  # the column of ids by default; where it is not there, nodes are numbered

DECIMALS = (".", ",")
UNKNOWN_IDS = ("refuse", "drop")

# fields that are lists of names
LISTS = ("features", "categorical", "split", "edge_features", "coordinates")

NO_COLUMN = "none"  # the name, in commands, of no column at all


@dataclass(frozen=True)
class Columns:
    """The names of the columns to read from the node and the edge table of a graph, and how cells
    are read.

    Args:
        id (str): The ids of nodes; ``"none"`` for no column, nodes are numbered from 1 then.
            (default: :obj:`"id"`, or no column where there is no such one)
        label (str, optional): Their labels; :obj:`None` reads none, as prediction needs none.
            (default: :obj:`"label"`)
        features (sequence of str, optional): The features, in this order; others are left out.
            (default: :obj:`None`, all columns that are nothing else)
        categorical (sequence of str): Features whose values are names, though they look like
            numbers. (default: none)
        split (sequence of str): Columns that say ``train``, ``val`` or ``test``, one for each
            split. (default: none)
        source, target (str): The ends of edges. (default: :obj:`"source"`, :obj:`"target"`)
        edge_weight (str, optional): Their weights; ``"none"`` reads none. (default: :obj:`None`,
            the column ``weight`` if there is one)
        edge_features (sequence of str, optional): Their features; others are left out. (default:
            :obj:`None`, there must be no other column)
        coordinates (sequence of str): Numeric features that are coordinates, such as longitude and
            latitude. (default: none)
        levels, edge_levels (dict): The categories of some columns, where they are known from
            another graph: others count as none of them. (default: none)
        decimal (str, optional): The decimal sign of files of text, ``"."`` or ``","``; the other
            one may stand between thousands. (default: :obj:`None`, ``"."``; with semicolons as
            delimiters either, where it is there once)
        encoding (str): That of files of text, such as ``"latin-1"``. (default: :obj:`"utf-8"`)
        unknown_ids (str): ``"drop"`` leaves out edges to ids that no node has; ``"refuse"`` refuses
            them. (default: :obj:`"refuse"`)
    """

    id: str = ID
    label: str | None = "label"
    features: Sequence[str] | None = None
    categorical: Sequence[str] = ()
    split: Sequence[str] = ()
    source: str = "source"
    target: str = "target"
    edge_weight: str | None = None
    edge_features: Sequence[str] | None = None
    coordinates: Sequence[str] = ()
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)
    edge_levels: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)
    decimal: str | None = None
    encoding: str = "utf-8"
    unknown_ids: str = "refuse"

    def __post_init__(self) -> None:
        if self.decimal not in (None, *DECIMALS):
            allowed = ", ".join(map(repr, DECIMALS))
            raise ValueError(f"decimal is {self.decimal!r}; allowed: {allowed}")
        if self.unknown_ids not in UNKNOWN_IDS:
            allowed = ", ".join(UNKNOWN_IDS)
            raise ValueError(f"unknown_ids is {self.unknown_ids!r}; allowed: {allowed}")
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            what = f"encoding is {self.encoding!r}"
            raise ValueError(f"{what}; allowed: utf-8, latin-1, utf-16, ...") from None
        for name in LISTS:  # as JSON has them, they cannot be hashed
            value = getattr(self, name)
            value = () if value == NO_COLUMN else value
            if isinstance(value, str):
                raise ValueError(f"{name} is {value!r}; allowed: a list of names")
            object.__setattr__(self, name, None if value is None else tuple(value))


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
        features = list(columns.features or ())
        if columns.features is None:
            features = [name for name in self.names if name not in wanted]
        faults = Faults()
        with faults.noted():
            hint = "other names by --id, --label and --split-column (Python: id=, label=, split=)"
            target = columns.target  # an end of edges, easily taken for the label
            if columns.label not in (None, *self.names) and target in self.names:
                hint += f", such as `--label {target}` (Python: label={target!r})"
            self._refuse_missing(wanted, hint)
        with faults.noted():
            self._check_features(features, columns)
        faults.raise_if_any()
        place = self.names.index
        return NodeHeader(
            id=None if id is None else place(id),
            label=None if columns.label is None else place(columns.label),
            features=[place(name) for name in features],
            splits=[place(name) for name in columns.split],
            left_out=[name for name in self.names if name not in (*wanted, *features)],
        )

    def _check_features(self, features: list[str], columns: Columns) -> None:
        hint = "the columns that are there, by --features (Python: features=) or as in the run"
        self._refuse_missing(features, hint)
        twice = next((name for name in features if features.count(name) > 1), None)
        if twice is not None:
            what = f"feature {short(twice)} is named twice"
            raise bad(self.path, what, "each name once", row=self.row)
        if columns.label in features:
            others = listed(name for name in features if name != columns.label)
            raise self._error(columns.label, "is the label, and no feature", others)
        for name in (*columns.categorical, *columns.levels):
            if name not in features:
                what = f"is no feature{did_you_mean([name], features)}"
                raise self._error(name, what, listed(features))
        if not features:
            allowed = "at least one column beside id and label"
            raise bad(self.path, "there are no feature columns", allowed, row=self.row)

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
            named = "`--edge-features` (Python: edge_features=) names, where none leaves others out"
            allowed = f"source, target, weight, and those that {named}"
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
            names = ", ".join(map(repr, missing))
            are = f"columns {names} are" if len(missing) > 1 else f"column {names} is"
            meant = did_you_mean(missing, self.names)
            what = f"{are} missing{meant}; found: {listed(self.names)}"
            raise bad(self.path, what, hint, row=self.row, column=missing[0])


def weight_column(names: list[str], columns: Columns) -> str | None:
    if columns.edge_weight is None:
        return WEIGHT if WEIGHT in names and WEIGHT not in (columns.edge_features or ()) else None
    return None if columns.edge_weight == NO_COLUMN else columns.edge_weight
