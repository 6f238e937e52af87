r"""What is searched, and what is fixed: one space per model, the same on all graphs, and one row
per graph, the same for all models. The values are in ``spaces.toml``.

A space lists the values of each setting.  A key is a setting of :class:`phgcn.train.Settings` or,
where the training has no such setting, an argument of the model's class.  :data:`RECIPES` are tried
first, in this order, on every graph, so that a small budget is well spent on all alike.  GlobalGNN
is searched in two steps, each with half of the trials and of the time: bodies without a global
path, then the best of them with :data:`PATHS`."""

from __future__ import annotations

import sys
from importlib.resources import files
from typing import Any, Literal, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OURS = "global-gnn"
HEAD_OFF = "head-off"
"""A row of the table: the settings chosen for GlobalGNN, trained without its global path."""
STRONG = ("strong-gcn", "strong-sage", "strong-gat", "strong-mlp")
SEED = 0
CHOOSING_SPLITS = (0, 1, 2)
"""Trials are judged by the mean validation metric on these splits; the others have no say in the
settings.
"""
TABLE_ORDER = (
    *("cora", "citeseer", "pubmed", "cornell", "texas", "wisconsin", "actor"),
    *("chameleon-filtered", "squirrel-filtered", "minesweeper"),
)


class GraphSetup(NamedTuple):
    protocol: Literal["geom", "official"]
    epochs: int
    patience: int
    effort: float


Space = dict[str, tuple[Any, ...]]

_FILE: dict[str, Any] = tomllib.loads(
    (files(__package__) / "spaces.toml").read_text(encoding="utf-8")
)
GRAPHS = {name: GraphSetup(**setup) for name, setup in _FILE["graphs"].items()}
FIXED: dict[str, dict[str, Any]] = _FILE["fixed"]
"""Settings of a model that are not searched and differ from the defaults."""
OFF: dict[str, Any] = _FILE["off"]  # GlobalGNN without a global path
PATHS: list[dict[str, Any]] = [{**OFF, **path} for path in _FILE[OURS]["paths"]]
"""The global paths that GlobalGNN's best bodies are tried with, in this order."""


def _space(own: dict[str, list[Any]], *others: str) -> Space:
    every = [own, *(_FILE[name] for name in (*others, "training"))]
    return {key: tuple(values) for part in every for key, values in part.items()}


SPACES: dict[str, Space] = {
    OURS: _space(_FILE["spaces"][OURS], "strong"),
    **{name: _space({}, "strong") for name in STRONG},
    **{name: _space(own) for name, own in _FILE["spaces"].items() if name != OURS},
}
RECIPES: dict[str, list[dict[str, Any]]] = {
    **{name: _FILE["recipes"]["strong"] for name in STRONG},
    **{name: rows for name, rows in _FILE["recipes"].items() if name != "strong"},
}
MODELS = tuple(SPACES)
