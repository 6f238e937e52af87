r"""Small graphs for the tests of this room, as arrays, tables and files.  Not a test by itself."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

NODES = 6


def npz_arrays(*, dense: bool = False, masks: bool = True) -> dict[str, np.ndarray]:
    """A good graph of six nodes, three features, two classes and two public splits; node 5 has no
    label."""
    features = np.array(
        [[1, 0, 0], [0, 2, 0], [0, 0, 0], [1, 0, 3], [0, 1, 0], [0, 0, 0]], np.float32
    )
    arrays = {
        "node_labels": np.array([0, 1, 0, 1, 0, 0]),
        "edges": np.array([[0, 1], [1, 0], [1, 2], [3, 3], [4, 2], [4, 2]]),
        "unlabelled_nodes": np.array([5]),
    }
    if dense:
        arrays["node_features"] = features
    else:
        arrays["features_indptr"] = np.array([0, 1, 2, 2, 4, 5, 5])
        arrays["features_indices"] = np.array([0, 1, 0, 2, 1], np.int32)
        arrays["features_shape"] = np.array([6, 3])
        arrays["features_data"] = np.array([1, 2, 1, 3, 1], np.float32)
    if masks:
        rows = np.array([[0, 0, 1, 1, 2, 3], [2, 1, 0, 0, 3, 3]])
        for role, name in enumerate(("train_masks", "val_masks", "test_masks")):
            arrays[name] = rows == role
    return arrays


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    np.savez(path, **arrays)
    return path


EDGE_ROWS = [["source", "target"], ["a", "b"], ["b", "a"], ["b", "7"], ["7", "7"], ["x y", "a"]]
NODE_ROWS = [
    ["id", "label", "height", "weight"],
    ["a", "cat", "1", "0.5"],
    ["b", "dog", "-2e1", "0"],
    ["7", "", "3", "4"],
    ["x y", "ant", "0", "1"],
]


def write_csv(path: Path, rows: list[list[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


def write_folder(
    folder: Path, edges: list[list[str]] = EDGE_ROWS, nodes: list[list[str]] = NODE_ROWS
) -> Path:
    """A folder with the two tables of a good graph of four nodes."""
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "edges.csv", edges)
    write_csv(folder / "nodes.csv", nodes)
    return folder
