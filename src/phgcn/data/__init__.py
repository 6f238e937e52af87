"""Graphs by name or by file, and splits of their nodes."""

from .check import GraphFileError
from .columns import Columns
from .hops import AddHopPositions
from .labels import labelled, task_of
from .load import load_graph, save_graph, user_cache
from .names import GRAPHS, KnownGraph, known_graph, metric_of
from .overview import Row, table
from .splits import PROTOCOLS, Split, public_masks, splits
from .summary import describe_graph

__all__ = [
    "GRAPHS",
    "PROTOCOLS",
    "AddHopPositions",
    "Columns",
    "GraphFileError",
    "KnownGraph",
    "Row",
    "Split",
    "describe_graph",
    "known_graph",
    "labelled",
    "load_graph",
    "metric_of",
    "public_masks",
    "save_graph",
    "splits",
    "table",
    "task_of",
    "user_cache",
]
