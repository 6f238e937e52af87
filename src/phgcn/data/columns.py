r"""Which columns of the tables of a graph are what."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ID = "id"  # the column of ids by default; where it is not there, nodes are numbered

DECIMALS = (".", ",")
UNKNOWN_IDS = ("refuse", "drop")

# fields that are lists of names
LISTS = ("features", "categorical", "split", "edge_features", "coordinates")

NO_COLUMN = "none"  # the name, in commands, of no column at all


@dataclass(frozen=True)
class Columns:
    r"""The names of the columns to read from the node and the edge table of a graph, and how cells
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
            if isinstance(value, str):
                raise ValueError(f"{name} is {value!r}; allowed: a list of names")
            object.__setattr__(self, name, None if value is None else tuple(value))
