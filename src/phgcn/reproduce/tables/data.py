r"""The tables: two from files, and generated ones whose best features are known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from ...data import Columns, load_graph
from ...data.check import check_graph
from ...data.load import graph_root, to_data
from ...data.saved import from_mapping

Array = NDArray[np.float64]
ROWS = 4000
"""Rows of a generated table."""
SHARES = 0.64, 0.80
"""Where the training rows end and the test rows begin, as shares of all rows in random order."""


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        file (str): Its file below ``$PHGCN_DATA/tables``; empty for a generated one.
        label (str): The column that is predicted.
        unit (float): What errors are divided by.
        coordinates (tuple of str): Columns that are coordinates.
    """

    file: str = ""
    label: str = "label"
    unit: float = 1.0
    coordinates: tuple[str, ...] = ()


def _smooth(x: Array, rng: np.random.Generator) -> Array:
    """A sum of products, of sines and of squares of the first five columns (Friedman's first
    function)."""
    y = 10 * np.sin(math.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return np.asarray(y + rng.normal(0, 1, len(x)))


def _boxes(x: Array, rng: np.random.Generator) -> Array:
    """Constant in 40 boxes along the axes, which suits trees."""
    low = rng.uniform(0, 0.8, (40, 3))
    inside = ((x[:, None, :3] > low) & (x[:, None, :3] < low + 0.35)).all(axis=2)
    return np.asarray(inside @ rng.normal(0, 1, 40) + rng.normal(0, 0.2, len(x)))


def _map(x: Array, rng: np.random.Generator) -> Array:
    """Smooth on the plane of the first two columns, at a scale of a tenth of it, turned against the
    axes."""
    waves = x[:, :2] @ rng.normal(0, 12, (2, 30)) + rng.uniform(0, 2 * math.pi, 30)
    return np.asarray(np.sin(waves) @ rng.normal(0, 0.5, 30) + x[:, 2] + rng.normal(0, 0.2, len(x)))


GENERATED: dict[str, Callable[[Array, np.random.Generator], Array]] = {"smooth": _smooth, "boxes": _boxes, "map": _map}
TABLES = {
    "california": Table("california_housing.csv", "median_house_value", 100_000.0, ("longitude", "latitude")),
    "diamonds": Table("diamonds.csv", "price"),
    **{name: Table() for name in GENERATED},
}


def load_table(name: str) -> Data:
    """Loads or generates a table as a graph without edges."""
    table = TABLES[name]
    if table.file:
        path = graph_root() / "tables" / table.file
        if not path.is_file():
            raise ValueError(f"{path}: is not there; allowed: a folder of data in $PHGCN_DATA with tables/{table.file}")
        data = load_graph(path, task="regression", columns=Columns(label=table.label))
        data.name = name
        return data
    rng = np.random.default_rng(sum(map(ord, name)))
    x = rng.uniform(0, 1, (ROWS, 8))
    y = GENERATED[name](x, rng).astype(np.float32)
    edges = torch.zeros(2, 0, dtype=torch.int64)
    parts = {"x": torch.from_numpy(x.astype(np.float32)), "y": torch.from_numpy(y), "edge_index": edges}
    return to_data(check_graph(from_mapping(Path(name), parts)), name)


def with_split(data: Data, split: int) -> Data:
    """Returns the graph with masks of one random split: 64 % of rows train, 16 % validate, 20 %
    test."""
    order = np.random.default_rng(split).permutation(int(data.num_nodes))
    first, second = (int(share * len(order)) for share in SHARES)
    masked = Data(**data.to_dict())
    for mask, rows in (("train", order[:first]), ("val", order[first:second]), ("test", order[second:])):
        masked[f"{mask}_mask"] = torch.zeros(len(order), 1, dtype=torch.bool).index_fill(0, torch.from_numpy(rows), True)
    return masked
