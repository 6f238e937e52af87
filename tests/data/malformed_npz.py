r"""Mistakes in npz files, one function call each: a change to the arrays of a good graph, or a header of our own.

:mod:`test_malformed` adds the mistakes in other files to :data:`KINDS`, and loads them all.
"""

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from graph_files import npz_arrays, write_arrays

Kind = tuple[str, Callable[[Path], object], str]
KINDS: list[Kind] = []


def kind(name: str, make: Callable[[Path], object], text: str) -> None:
    KINDS.append((name, make, text))


# npz: one change to the arrays of a good graph


def npz(name: str, text: str, dense: bool = False, drop: tuple[str, ...] = (), **changed: object) -> None:
    def make(folder: Path) -> Path:
        arrays = {key: value for key, value in npz_arrays(dense=dense).items() if key not in drop}
        for key, change in changed.items():
            arrays[key] = change(arrays[key]) if callable(change) else np.asarray(change)
        return write_arrays(folder / "own.npz", arrays)

    kind(f"npz: {name}", make, f"own.npz{text}")


def put(*place_and_value: object) -> Callable[[np.ndarray], np.ndarray]:
    """A change of one entry."""
    *place, value = place_and_value

    def change(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array[tuple(place)] = value
        return array

    return change


npz("no labels", ": key node_labels is missing", drop=("node_labels",))
npz("no edges", ": key edges is missing", drop=("edges",))
npz("no features", ": the features are missing", dense=True, drop=("node_features",))
npz("no indptr", ": key features_indptr is missing though features_indices is there", drop=("features_indptr",))
npz("no shape", ": key features_shape is missing", drop=("features_shape",))
npz("both kinds of features", ": both node_features and features_indptr are there", node_features=np.ones((6, 2)))
npz("slip in a key", ": key 'train_mask' is not known (did you mean train_masks?); allowed: feat", train_mask=[True])
npz("weights of too few edges", ": edge_weights has shape (2,); allowed: (6,), one row per edge", edge_weights=[1.0, 2.0])
npz("weights of text", ": edge_weights is <U1; allowed: bool, integers or floats", edge_weights=list("abcdef"))
npz("NaN among weights", ", row 1: edge_weights is nan", edge_weights=[1.0, np.nan, 1, 1, 1, 1])
npz("flat edge features", ": edge_features has shape (6,); allowed: (6, features)", edge_features=[1.0] * 6)
npz("feature names of too few", ": feature_names has 1 entries; allowed: 3", feature_names=["a"])
npz("infinite number", ", row 1: node_labels is inf", node_labels=[0.5, np.inf, 0, 0, 0, 0], drop=("unlabelled_nodes",))
npz("label that is no 0 or 1", ", row 1, column 0: node_labels is 2; allowed: 0 or 1", node_labels=[[0, 1], [2, 0]] * 3,
    drop=("unlabelled_nodes",))  # fmt: skip
npz("two masks of three", ": val_masks is missing though train_masks is there", drop=("val_masks",))
npz("float labels", ": node_labels is float64; allowed: integers", node_labels=lambda a: a.astype(float))
npz("text labels", ": node_labels is <U21; allowed: integers", node_labels=lambda a: a.astype(str))
npz("negative label", ", row 1: node_labels is -1; allowed: 0, 1, 2, ...; nodes without", node_labels=put(1, -1))
npz("label gap", ": node_labels goes up to 3 but no node has label 2", node_labels=put(4, 3))
npz("huge label", ", row 0: node_labels is 9000000000; allowed: less than 6", node_labels=put(0, 9_000_000_000))
npz("label beyond int64", ", row 0: node_labels is 1844", node_labels=lambda a: put(0, 2**64 - 1)(a.astype(np.uint64)))
npz("labels of too few nodes", r": node_labels has shape (4,)", node_labels=lambda a: a[:4], unlabelled_nodes=[0])
npz("labels of two dimensions", ": node_labels has shape (6, 1)", node_labels=lambda a: a[:, None])
npz("label beyond the class names", ", row 1: node_labels is 1; allowed: less than 1", class_names=["only"])
npz("class name twice", ", row 1: class_names is 'a' for the second time", class_names=["a", "a"])
npz("unlabelled node out of range", ", row 0: unlabelled_nodes is 6; allowed: 0 to 5", unlabelled_nodes=[6])
npz("unlabelled nodes of floats", ": unlabelled_nodes is float64", unlabelled_nodes=[0.5])
npz("edge out of range", ", row 2, column 1: edges is 6; allowed: 0 to 5", edges=put(2, 1, 6))
npz("negative edge", ", row 4, column 0: edges is -1; allowed: 0 to 5", edges=put(4, 0, -1))
npz("float edges", ": edges is float64; allowed: integers", edges=lambda a: a.astype(float))
npz("edges on their side", r": edges has shape (2, 6) (it lies on its side)", edges=lambda a: a.T)
npz("edges of three columns", r": edges has shape (6, 3)", edges=lambda a: np.c_[a, a[:, 0]])
npz("flat edges", ": edges has shape (12,)", edges=lambda a: a.ravel())
npz("NaN", ", row 1, column 2: node_features is nan", dense=True, node_features=put(1, 2, np.nan))
npz("infinity", ", row 5, column 0: node_features is inf", dense=True, node_features=put(5, 0, np.inf))
npz(
    "beyond float32", ", row 0, column 1: node_features is 1e+300; allowed: finite float32",
    dense=True, node_features=lambda a: put(0, 1, 1e300)(a.astype(float)),
)  # fmt: skip
npz("complex features", ": node_features is complex64", dense=True, node_features=lambda a: a.astype(np.complex64))
npz("text features", ": node_features is <U", dense=True, node_features=lambda a: a.astype(str))
npz("flat features", ": node_features has shape (18,)", dense=True, node_features=lambda a: a.ravel())
npz("features without columns", ": node_features has no columns", dense=True, node_features=lambda a: a[:, :0])
npz("no nodes", ": node_features has no rows", dense=True, node_features=lambda a: a[:0])
npz("sparse NaN", ", row 3, column 2: features_data is nan", features_data=put(3, np.nan))
npz("too few values", ": features_data has shape (4,)", features_data=lambda a: a[:4])
npz("text values", ": features_data is <U", features_data=lambda a: a.astype(str))
npz("indptr falls", ", row 2: features_indptr is 0 after 1; allowed: ascending", features_indptr=put(2, 0))
npz("indptr starts late", ": features_indptr goes from 1 to 5; allowed: from 0 to 5", features_indptr=put(0, 1))
npz("indptr ends early", ": features_indptr goes from 0 to 4; allowed: from 0 to 5", features_indptr=put(6, 4))
npz("indptr too short", ": features_indptr has 6 entries; allowed: 7", features_indptr=lambda a: a[:6])
npz("indptr of floats", ": features_indptr is float64", features_indptr=lambda a: a.astype(float))
npz("feature out of range", ", row 3: features_indices[3] is 3; allowed: 0 to 2", features_indices=put(3, 3))
npz("negative feature", ", row 0: features_indices[0] is -1; allowed: 0 to 2", features_indices=put(0, -1))
npz("feature twice", ", row 3, column 0: features_indices holds feature 0 twice", features_indices=put(3, 0))
npz("indices of two dimensions", ": features_indices has shape (5, 1)", features_indices=lambda a: a[:, None])
npz("shape of three", ": features_shape is [6, 3, 1]", features_shape=[6, 3, 1])
npz("negative shape", ": features_shape is [6, -3]", features_shape=[6, -3])
npz("masks of integers", ": train_masks is int64; allowed: bool", train_masks=lambda a: a.astype(int))
npz("masks on their side", ": val_masks has shape (6, 2); allowed: (splits, 6)", val_masks=lambda a: a.T)
npz("masks of one dimension", ": train_masks has shape (6,)", train_masks=lambda a: a[0])
npz("masks of fewer splits", ": test_masks has 1 splits; allowed: 2", test_masks=lambda a: a[:1])
npz("no splits", ": train_masks has shape (0, 6)", train_masks=lambda a: a[:0])
npz("node in two masks", ", row 0, column 2: node 2 is in both train_masks and val_masks", train_masks=put(0, 2, True))
npz("mask without a node", ", row 1: test_masks holds no node", test_masks=put(1, slice(None), False))
npz("ids of too few nodes", ": node_ids has 2 entries; allowed: 6", node_ids=["a", "b"])
npz("id twice", ", row 3: node_ids is 'a' for the second time", node_ids=list("abcade"))
npz("ids of numbers", ": node_ids is int64 (6,); allowed: strings", node_ids=range(6))
npz("half a letter", r", row 1: class_names is 'b\ud800', which holds a lone surrogate", class_names=["a", "b\ud800"])
npz("half a letter of an id", ", row 5: node_ids is ", node_ids=["a", "b", "c", "d", "e", "\udfff"])


def odd_header(name: str, header: str, text: str) -> None:
    """A good file whose edges begin with a header of our own."""

    def make(folder: Path) -> Path:
        arrays = npz_arrays()
        edges = arrays.pop("edges").tobytes()
        path = write_arrays(folder / "own.npz", arrays)
        line = f"{header}\n".encode()
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("edges.npy", b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line + edges)
        return path

    kind(f"npz: {name}", make, f"own.npz: edges {text}")


for shape in ("(True,)", "(-1, 2)", "(10**30, 2)", "(1000000000000, 2)", "(7, 2)", "(6.0, 2)", "6"):
    known = shape[1:-1].startswith(("True", "-1", "1000", "7"))
    found = f"has shape {shape}" if known else "is damaged"
    odd_header(f"shape {shape}", f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}}}", found)
odd_header("header that does not end", "{'descr': '<i8', 'shape': (", "is damaged")
odd_header("header of unhashable keys", "{[]: 1}", "is damaged")
odd_header("header of brackets", "(" * 300, "is damaged")
odd_header("no header", "", "is damaged")
