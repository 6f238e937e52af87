r"""Graphs by name or by file, and splits of their nodes."""

from .check import GraphFileError
from .load import load_graph, save_graph, user_cache
from .names import GRAPHS, KnownGraph, known_graph, metric_of
from .overview import Row, table
from .splits import PROTOCOLS, Split, public_masks, splits

__all__ = [
    "GRAPHS",
    "PROTOCOLS",
    "GraphFileError",
    "KnownGraph",
    "Row",
    "Split",
    "known_graph",
    "load_graph",
    "metric_of",
    "public_masks",
    "save_graph",
    "splits",
    "table",
    "user_cache",
]
