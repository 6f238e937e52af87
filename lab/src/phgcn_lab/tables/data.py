r"""Tables from files, generated ones, and those that come with scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from phgcn.data import Columns, load_graph
from phgcn.data.check import check_graph
from phgcn.data.load import graph_root, to_data
from phgcn.data.saved import from_mapping

Array = NDArray[Any]
Make = Callable[[np.random.Generator], tuple[Array, Array]]
"""Makes the columns and the labels of a table."""

SHARES = 0.64, 0.80
"""Where the training rows end and the test rows begin, as shares of all rows in random order."""


@dataclass(frozen=True)
class Table:
    file: str = ""
    label: str = "label"
    unit: float = 1.0
    coordinates: tuple[str, ...] = ()
    make: Make | None = None
    classes: bool = False


def _boxes(rng: np.random.Generator) -> tuple[Array, Array]:
    """Constant in 40 boxes along the axes, which suits trees."""
    x = rng.uniform(0, 1, (4000, 8))
    low = rng.uniform(0, 0.8, (40, 3))
    inside = ((x[:, None, :3] > low) & (x[:, None, :3] < low + 0.35)).all(axis=2)
    return x, inside @ rng.normal(0, 1, 40) + rng.normal(0, 0.2, len(x))


def _map(rng: np.random.Generator) -> tuple[Array, Array]:
    """Smooth on the plane of the first two columns, turned against the axes."""
    x = rng.uniform(0, 1, (4000, 8))
    waves = x[:, :2] @ rng.normal(0, 12, (2, 30)) + rng.uniform(0, 2 * math.pi, 30)
    return x, np.sin(waves) @ rng.normal(0, 0.5, 30) + x[:, 2] + rng.normal(0, 0.2, len(x))


def _sklearn(name: str, rng: np.random.Generator, **arguments: Any) -> tuple[Array, Array]:
    from sklearn import datasets

    if name.startswith("make_"):
        arguments["random_state"] = int(rng.integers(2**31))
        made: tuple[Array, Array] = getattr(datasets, name)(**arguments)
        return made
    loaded: tuple[Array, Array] = getattr(datasets, name)(return_X_y=True)
    return loaded


def _from_sklearn(name: str, classes: bool = False, **arguments: Any) -> Table:
    return Table(make=partial(_sklearn, name, **arguments), classes=classes)


FILES = {
    "california": Table(
        "california_housing.csv", "median_house_value", 100_000.0, ("longitude", "latitude")
    ),
    "diamonds": Table("diamonds.csv", "price"),
}
UNSEEN = {
    "boxes": Table(make=_boxes),
    "map": Table(make=_map),
    "friedman1": _from_sklearn("make_friedman1", n_samples=4000, n_features=10, noise=1.0),
    "friedman2": _from_sklearn("make_friedman2", n_samples=2000, noise=100.0),
    "friedman3": _from_sklearn("make_friedman3", n_samples=2000, noise=0.1),
    "diabetes": _from_sklearn("load_diabetes"),
    "digits": _from_sklearn("load_digits", True),
    "breast-cancer": _from_sklearn("load_breast_cancer", True),
    "wine": _from_sklearn("load_wine", True),
    "classes": _from_sklearn(
        "make_classification",
        True,
        n_samples=2000,
        n_features=20,
        n_informative=8,
        n_redundant=4,
        n_clusters_per_class=3,
        flip_y=0.05,
    ),
}
"""Tables on which no setting was chosen."""

TABLES = {**FILES, **UNSEEN}


def load_table(name: str) -> Data:
    table = TABLES[name]
    if table.make is not None:
        return _made(name, *table.make(np.random.default_rng(sum(map(ord, name)))))
    path = graph_root() / "tables" / table.file
    if not path.is_file():
        raise ValueError(
            f"{path}: is not there; allowed: a folder of data in $PHGCN_DATA with "
            f"tables/{table.file}"
        )
    data = load_graph(path, task="regression", columns=Columns(label=table.label))
    data.name = name
    return data


def _made(name: str, x: Array, y: Array) -> Data:
    parts = {
        "x": torch.from_numpy(x.astype(np.float32)),
        "y": torch.from_numpy(y.astype(np.int64 if TABLES[name].classes else np.float32)),
        "edge_index": torch.zeros(2, 0, dtype=torch.int64),
    }
    graph = from_mapping(Path(name), parts)
    graph.task = "classification" if TABLES[name].classes else "regression"
    return to_data(check_graph(graph), name)


def with_split(data: Data, split: int) -> Data:
    """Adds masks of a random split: 64 % of rows train, 16 % validate, 20 % test."""
    order = np.random.default_rng(split).permutation(int(data.num_nodes))
    first, second = (int(share * len(order)) for share in SHARES)
    masked = Data(**data.to_dict())
    for mask, rows in (
        ("train", order[:first]),
        ("val", order[first:second]),
        ("test", order[second:]),
    ):
        masked[f"{mask}_mask"] = torch.zeros(len(order), 1, dtype=torch.bool).index_fill(
            0, torch.from_numpy(rows), True
        )
    return masked
