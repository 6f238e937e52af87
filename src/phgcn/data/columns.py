r"""Which columns of the tables of a graph are what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

NO_COLUMN = "none"
"""The name, in commands, of no column at all."""


@dataclass(frozen=True)
class Columns:
    r"""The names of the columns to read from the node and the edge table of a graph.

    Args:
        id (str): The ids of nodes. (default: :obj:`"id"`)
        label (str, optional): Their labels; :obj:`None` reads none, as prediction needs none. (default: :obj:`"label"`)
        features (sequence of str, optional): The features, in this order; others are left out. (default: :obj:`None`, all
            columns that are nothing else)
        categorical (sequence of str): Features whose values are names, though they look like numbers. (default: none)
        split (sequence of str): Columns that say ``train``, ``val`` or ``test``, one for each split. (default: none)
        source, target (str): The ends of edges. (default: :obj:`"source"`, :obj:`"target"`)
        edge_weight (str, optional): Their weights; ``"none"`` reads none. (default: :obj:`None`, the column ``weight`` if there
            is one)
        edge_features (sequence of str, optional): Their features; others are left out. (default: :obj:`None`, there must be
            no other column)
        coordinates (sequence of str): Numeric features that are coordinates, such as longitude and latitude. (default: none)
        levels, edge_levels (dict): The categories of some columns, where they are known from another graph: others count as
            none of them. (default: none)
    """

    id: str = "id"
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

    def __post_init__(self) -> None:
        for name in (
            "features",
            "categorical",
            "split",
            "edge_features",
            "coordinates",
        ):  # lists, as JSON has them, cannot be hashed
            value = getattr(self, name)
            if isinstance(value, str):
                raise ValueError(f"{name} is {value!r}; allowed: a list of names")
            object.__setattr__(self, name, None if value is None else tuple(value))
