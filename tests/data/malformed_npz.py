r"""Mistakes in npz files, one function call each: what the error says, and a change to the arrays of
a good graph, or a header of our own.

:mod:`test_malformed` adds the mistakes in other files to :data:`MISTAKES`, and loads them all."""  # noqa: E501

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from graph_files import npz_arrays, write_arrays

MISTAKES: list[tuple[Callable[[Path], object], str]] = []
"""Functions that make a wrong file in a folder and return what to load, and what the error says."""


def npz(text: str, dense: bool = False, drop: tuple[str, ...] = (), **changed: object) -> None:
    """One change to the arrays of a good graph."""

    def make(folder: Path) -> Path:
        arrays = {key: value for key, value in npz_arrays(dense=dense).items() if key not in drop}
        for key, change in changed.items():
            arrays[key] = change(arrays[key]) if callable(change) else np.asarray(change)
        return write_arrays(folder / "own.npz", arrays)

    MISTAKES.append((make, f"own.npz{text}"))


def put(*place_and_value: object) -> Callable[[np.ndarray], np.ndarray]:
    """A change of one entry."""
    *place, value = place_and_value

    def change(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array[tuple(place)] = value
        return array

    return change


def first(count: int) -> Callable[[np.ndarray], np.ndarray]:
    """A change that leaves only the first entries."""
    return lambda array: array[:count]


def as_type(kind: type) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: array.astype(kind)


def turn(array: np.ndarray) -> np.ndarray:
    return array.T


def column(array: np.ndarray) -> np.ndarray:
    return array[:, None]


# Keys

npz(": key node_labels is missing", drop=("node_labels",))
npz(": key edges is missing", drop=("edges",))
npz(": the features are missing", dense=True, drop=("node_features",))
missing = "features_indptr is missing though features_indices is there"
npz(f": key {missing}", drop=("features_indptr",))
npz(": key features_shape is missing", drop=("features_shape",))
both = "both node_features and features_indptr are there"
npz(f": {both}", node_features=np.ones((6, 2)))
meant = "(did you mean train_masks?); allowed: feat"
npz(f": key 'train_mask' is not known {meant}", train_mask=[True])

# Labels

unlabelled = ("unlabelled_nodes",)
npz(", row 1: node_labels is inf", node_labels=[0.5, np.inf, 0, 0, 0, 0], drop=unlabelled)
sets = [[0, 1], [2, 0]] * 3
npz(", row 1, column 0: node_labels is 2; allowed: 0 or 1", node_labels=sets, drop=unlabelled)
npz(": node_labels is float64; allowed: integers", node_labels=as_type(float))
npz(": node_labels is <U21; allowed: integers", node_labels=as_type(str))
allowed = "0, 1, 2, ...; nodes without"
npz(f", row 1: node_labels is -1; allowed: {allowed}", node_labels=put(1, -1))
npz(": node_labels goes up to 3 but no node has label 2", node_labels=put(4, 3))
npz(", row 0: node_labels is 9000000000; allowed: less than 6", node_labels=put(0, 9_000_000_000))
beyond_int64 = np.array([2**64 - 1, 1, 0, 1, 0, 0], np.uint64)
npz(", row 0: node_labels is 1844", node_labels=beyond_int64)
npz(": node_labels has shape (4,)", node_labels=first(4), unlabelled_nodes=[0])
npz(": node_labels has shape (6, 1)", node_labels=column)
npz(", row 1: node_labels is 1; allowed: less than 1", class_names=["only"])
npz(", row 1: class_names is 'a' for the second time", class_names=["a", "a"])
npz(", row 0: unlabelled_nodes is 6; allowed: 0 to 5", unlabelled_nodes=[6])
npz(": unlabelled_nodes is float64", unlabelled_nodes=[0.5])

# Edges

npz(", row 2, column 1: edges is 6; allowed: 0 to 5", edges=put(2, 1, 6))
npz(", row 4, column 0: edges is -1; allowed: 0 to 5", edges=put(4, 0, -1))
npz(": edges is float64; allowed: integers", edges=as_type(float))
npz(": edges has shape (2, 6) (it lies on its side)", edges=turn)
npz(": edges has shape (6, 3)", edges=lambda a: np.c_[a, a[:, 0]])
npz(": edges has shape (12,)", edges=np.ravel)
npz(": edge_weights has shape (2,); allowed: (6,), one row per edge", edge_weights=[1.0, 2.0])
npz(": edge_weights is <U1; allowed: bool, integers or floats", edge_weights=list("abcdef"))
npz(", row 1: edge_weights is nan", edge_weights=[1.0, np.nan, 1, 1, 1, 1])
npz(": edge_features has shape (6,); allowed: (6, features)", edge_features=[1.0] * 6)

# Features

NO_CSR = ": features_indptr, features_indices, features_shape, features_data are no sparse matrix"
npz(": feature_names has 1 entries; allowed: 3", feature_names=["a"])
npz(", row 1, column 2: node_features is nan", dense=True, node_features=put(1, 2, np.nan))
npz(", row 5, column 0: node_features is inf", dense=True, node_features=put(5, 0, np.inf))
large = np.ones((6, 3)) * [1, 1e300, 1]
is_large = "node_features is 1e+300; allowed: finite float32"
npz(f", row 0, column 1: {is_large}", dense=True, node_features=large)
npz(": node_features is complex64", dense=True, node_features=as_type(np.complex64))
npz(": node_features is <U", dense=True, node_features=as_type(str))
npz(": node_features has shape (18,)", dense=True, node_features=np.ravel)
npz(": node_features has no columns", dense=True, node_features=lambda a: a[:, :0])
npz(": node_features has no rows", dense=True, node_features=first(0))
npz(", row 3, column 2: features_data is nan", features_data=put(3, np.nan))
npz(f"{NO_CSR} (indices and data should have the same size)", features_data=first(4))
npz(": features_data is <U", features_data=as_type(str))
npz(f"{NO_CSR} (indptr must be a non-decreasing", features_indptr=put(2, 0))
npz(f"{NO_CSR} (index pointer should start with 0)", features_indptr=put(0, 1))
npz(": features_indices has entries that belong to no row", features_indptr=[0, 1, 2, 2, 4, 4, 4])
npz(f"{NO_CSR} (index pointer size 6 should be 7)", features_indptr=first(6))
npz(": features_indptr is float64", features_indptr=as_type(float))
npz(f"{NO_CSR} (indices must be < 3)", features_indices=put(3, 3))
npz(f"{NO_CSR} (indices must be >= 0)", features_indices=put(0, -1))
npz(
    ": features_indices has entries that belong to no row, or one twice", features_indices=put(3, 0)
)
npz(NO_CSR, features_indices=column)
npz(NO_CSR, features_shape=[6, 3, 1])
npz(NO_CSR, features_shape=[6, -3])

# Masks and names

npz(": val_masks is missing though train_masks is there", drop=("val_masks",))
npz(": train_masks is int64; allowed: bool", train_masks=as_type(int))
npz(": val_masks has shape (6, 2); allowed: (splits, 6)", val_masks=turn)
npz(": train_masks has shape (6,)", train_masks=lambda a: a[0])
npz(": test_masks has 1 splits; allowed: 2", test_masks=first(1))
npz(": train_masks has shape (0, 6)", train_masks=first(0))
in_two = "node 2 is in both train_masks and val_masks"
npz(f", row 0, column 2: {in_two}", train_masks=put(0, 2, True))
npz(", row 1: test_masks holds no node", test_masks=put(1, slice(None), False))
npz(": node_ids has 2 entries; allowed: 6", node_ids=["a", "b"])
npz(", row 3: node_ids is 'a' for the second time", node_ids=list("abcade"))
npz(": node_ids is int64 (6,); allowed: strings", node_ids=range(6))
half = r"class_names is 'b\ud800', which holds a lone surrogate"
npz(f", row 1: {half}", class_names=["a", "b\ud800"])
npz(", row 5: node_ids is ", node_ids=["a", "b", "c", "d", "e", "\udfff"])

# Headers


def odd_header(header: str, text: str) -> None:
    """A good file whose edges begin with a header of our own."""

    def make(folder: Path) -> Path:
        arrays = npz_arrays()
        edges = arrays.pop("edges").tobytes()
        path = write_arrays(folder / "own.npz", arrays)
        line = f"{header}\n".encode()
        size = len(line).to_bytes(2, "little")
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("edges.npy", b"\x93NUMPY\x01\x00" + size + line + edges)
        return path

    MISTAKES.append((make, f"own.npz: edges {text}"))


for shape in ("(True,)", "(-1, 2)", "(1000000000000, 2)", "(7, 2)"):
    odd_header(
        f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}}}", f"has shape {shape}"
    )
for shape in ("(10**30, 2)", "(6.0, 2)", "6"):
    odd_header(f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}}}", "is damaged")
for header in ("{'descr': '<i8', 'shape': (", "{[]: 1}", "(" * 300, ""):
    odd_header(header, "is damaged")
