r"""Reads and writes graphs as ``.npz`` files without pickles: the format of ``docs/data.md``."""

from __future__ import annotations

import difflib
import math
import os
import struct
import warnings
import zipfile
import zlib
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from scipy import sparse

from ..files import replacing
from .check import MASKS, UNLABELLED, Array, ArrayGraph, Features, GraphFileError, bad, check_graph, is_number, short

CSR = ("features_indptr", "features_indices", "features_shape")
KEYS = (
    *CSR, "features_data", "node_features", "node_labels", "edges", *MASKS, "unlabelled_nodes", "node_ids", "class_names",
    "feature_names", "features_may_miss", "edge_weights", "edge_features",
)  # fmt: skip
NAMES = {
    "labels": "node_labels", "ids": "node_ids", "classes": "class_names", "edge_weight": "edge_weights",
    "edge_attr": "edge_features",
}  # fmt: skip

CLOSE = 0.75
"""How similar an unknown key is to a known one, from 0 to 1, that is taken for a slip of the pen."""

DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, KeyError, NotImplementedError, MemoryError, OverflowError,
    TypeError, SyntaxError, TokenError, RecursionError, struct.error,
)  # fmt: skip
"""What numpy and zipfile raise on a damaged file."""

MAX_GB = "PHGCN_MAX_GB"
"""The environment variable that limits what a file may unpack to."""

MEMORY_SHARE = 0.5
"""Share of the machine's memory that a file may unpack to, unless told otherwise."""


def read_npz(path: Path, max_gb: float | None = None, task: str | None = None, labels: bool = True) -> ArrayGraph:
    """Reads and checks the graph in an ``.npz`` file.

    Args:
        path (Path): The file.
        max_gb (float, optional): Refuses a file that unpacks to more gigabytes. (default: :obj:`None`, see
            :func:`size_limit`)
        task (str, optional): What labels are for. (default: :obj:`None`, what their type and shape say)
        labels (bool, optional): Whether there must be labels; without, nodes have none. (default: :obj:`True`)
    """
    arrays, notes = _read_arrays(path, size_limit(max_gb), labels)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    features, features_name = _find_features(path, arrays)
    y = arrays["node_labels"] if labels else np.full(features.shape[:1], UNLABELLED)
    if labels and task == "regression" and y.dtype.kind in "iu":
        y = y.astype(np.float64)
    graph = ArrayGraph(
        path, features, _mark_unlabelled(path, y, arrays.get("unlabelled_nodes")) if labels else y, arrays["edges"],
        {name: arrays[name] for name in MASKS if name in arrays},
        _strings(path, arrays, "node_ids"), _strings(path, arrays, "class_names"),
        {**NAMES, "features": features_name}, task if labels else "classification",
        edge_weight=arrays.get("edge_weights"), edge_attr=arrays.get("edge_features"),
        feature_names=_strings(path, arrays, "feature_names"), notes=notes,
        may_miss="features_may_miss" in arrays and bool(arrays["features_may_miss"].any()),
    )  # fmt: skip
    return check_graph(graph)


def size_limit(max_gb: float | None = None) -> float:
    """Returns how many bytes a file may unpack to: as asked for, else as the environment says, else by the machine's memory."""
    if max_gb is None and not os.environ.get(MAX_GB):
        return MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else math.inf
    name, text = ("max_gb", max_gb) if max_gb is not None else (MAX_GB, os.environ[MAX_GB])
    try:
        limit = 1e9 * float(text)
    except (TypeError, ValueError):
        limit = math.nan
    if not limit > 0:
        raise ValueError(f"{name} is {text!r}; allowed: a positive number of gigabytes")
    return limit


def _check_size(path: Path, archive: Any, limit: float) -> None:
    """Refuses a file that unpacks to more than the limit, by the sizes in its directory, which zipfile does not exceed."""
    size = sum(member.file_size for member in archive.zip.infolist())
    if size > limit:
        hint = f"up to {limit / 1e9:.3g} GB; `phgcn --max-gb`, the variable {MAX_GB} or load_graph(max_gb=) change that"
        raise bad(path, f"it unpacks to {size / 1e9:.3g} GB", allowed=hint)


def _check_header(path: Path, archive: Any, key: str) -> None:
    """Refuses an array that claims to be larger than what the file holds of it: numpy would allocate it first."""
    name = key if key in archive.zip.namelist() else f"{key}.npy"
    with archive.zip.open(name) as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(member)
        stored = archive.zip.getinfo(name).file_size - member.tell()
    if any(type(size) is not int or size < 0 for size in shape):
        raise bad(path, f"{key} has shape {short(shape)}", allowed="whole numbers from 0 on")
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize > stored:
        raise bad(path, f"{key} has shape {short(shape)} but {stored} bytes", allowed="as many numbers as its shape says")


def _read_arrays(path: Path, limit: float, labels: bool) -> tuple[dict[str, Array], list[str]]:
    """Reads the arrays of the file that have a known key, refuses pickled ones, and says which keys are not read."""
    try:
        archive = np.load(path, allow_pickle=False)
    except DAMAGE as error:
        raise bad(path, f"this is no .npz file, or a damaged one ({_reason(error)})") from None
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise bad(path, "this is a single array", allowed="an .npz file with several")
    arrays, unknown = {}, [key for key in archive.files if key not in KEYS]
    with archive:
        _check_size(path, archive, limit)
        for key in archive.files:
            if key in unknown:
                _refuse_slip(path, key)
                continue
            try:
                _check_header(path, archive, key)
                arrays[key] = archive[key]
            except GraphFileError:
                raise
            except DAMAGE as error:
                if "allow_pickle" in str(error):
                    raise bad(path, f"{key} holds pickled objects", allowed="plain arrays") from None
                raise bad(path, f"{key} is damaged ({_reason(error)})") from None
    for key in ("node_labels", "edges") if labels else ("edges",):
        if key not in arrays:
            raise bad(path, f"key {key} is missing", allowed=", ".join(KEYS))
    return arrays, [f"{path.name}: keys left out, as they are not known: {short(', '.join(unknown))}"] if unknown else []


def _refuse_slip(path: Path, key: str) -> None:
    """Refuses an unknown key that is spelled nearly like a known one."""
    similar = difflib.get_close_matches(key.lower(), KEYS, n=1, cutoff=CLOSE)
    if similar:
        raise bad(path, f"key {short(key)} is not known (did you mean {similar[0]}?)", allowed=", ".join(KEYS))


def _reason(error: Exception) -> str:
    """Returns the first line of an error's text, or its type if it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0].strip("'\"").rstrip(".")


def _find_features(path: Path, arrays: dict[str, Array]) -> tuple[Features, str]:
    """Returns the features, dense or sparse, and the key of their values."""
    present = [key for key in (*CSR, "features_data") if key in arrays]
    if "node_features" in arrays:
        if present:
            raise bad(path, f"both node_features and {present[0]} are there", allowed="dense or sparse features, not both")
        return arrays["node_features"], "node_features"
    if not present:
        raise bad(path, "the features are missing", allowed=f"node_features, or {', '.join(CSR)}")
    for key in CSR:
        if key not in arrays:
            raise bad(path, f"key {key} is missing though {present[0]} is there", allowed=", ".join(CSR))
    return _build_csr(path, arrays), "features_data"


def _build_csr(path: Path, arrays: dict[str, Array]) -> sparse.csr_matrix:
    """Builds the matrix of sparse features (N, F), every index checked, so that an error names the key and the row."""
    indptr, indices, shape = (arrays[key] for key in CSR)
    for key in CSR:
        if arrays[key].dtype.kind not in "iu":
            raise bad(path, f"{key} is {arrays[key].dtype}", allowed="integers")
        if arrays[key].ndim != 1:
            raise bad(path, f"{key} has shape {arrays[key].shape}", allowed="one dimension")
    if shape.shape != (2,) or (shape < 0).any() or (shape >= 2**31).any():
        raise bad(path, f"features_shape is {short(shape.tolist())}", allowed="two numbers, nodes and features")
    rows, columns = int(shape[0]), int(shape[1])
    if len(indptr) != rows + 1:
        raise bad(path, f"features_indptr has {len(indptr)} entries", allowed=f"{rows + 1}, one more than nodes")
    if indptr[0] != 0 or indptr[-1] != len(indices):
        what = f"features_indptr goes from {indptr[0]} to {indptr[-1]}"
        raise bad(path, what, allowed=f"from 0 to {len(indices)}, the length of features_indices")
    falls = indptr[1:] < indptr[:-1]
    if falls.any():
        row = int(np.argmax(falls)) + 1
        raise bad(path, f"features_indptr is {indptr[row]} after {indptr[row - 1]}", row=row, allowed="ascending numbers")
    outside = (indices < 0) | (indices >= columns)
    if outside.any():
        entry = int(np.argmax(outside))
        row = int(np.searchsorted(indptr, entry, side="right")) - 1
        raise bad(path, f"features_indices[{entry}] is {indices[entry]}", row=row, allowed=f"0 to {columns - 1}")
    data = arrays.get("features_data", np.ones(len(indices), np.float32))
    if data.shape != indices.shape:
        raise bad(path, f"features_data has shape {data.shape}", allowed=f"{indices.shape}, as features_indices")
    if not is_number(data.dtype):
        raise bad(path, f"features_data is {data.dtype}", allowed="bool, integers or floats")
    # scipy has no matrices of half floats.
    data = data.astype(np.float32) if data.dtype == np.float16 else data
    matrix = sparse.csr_matrix((data, indices.astype(np.int64), indptr.astype(np.int64)), shape=(rows, columns))
    _refuse_duplicates(path, matrix)
    return matrix


def _refuse_duplicates(path: Path, matrix: sparse.csr_matrix) -> None:
    """Refuses a feature that occurs twice in a row: it could mean the sum or the last.  Sorts the indices of each row."""
    matrix.sort_indices()
    starts = np.zeros(matrix.nnz + 1, bool)
    starts[matrix.indptr] = True
    same = (matrix.indices[1:] == matrix.indices[:-1]) & ~starts[1 : matrix.nnz]
    if same.any():
        entry = int(np.argmax(same)) + 1
        row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
        feature = int(matrix.indices[entry])
        raise bad(path, f"features_indices holds feature {feature} twice", row=row, column=feature, allowed="each once")


def _mark_unlabelled(path: Path, labels: Array, unlabelled: Array | None) -> Array:
    """Removes the labels of unlabelled nodes, where the file has any value.  Labels of a wrong type are returned as they are,
    for :func:`check_graph` to refuse."""
    if labels.dtype.kind in "iu" and labels.ndim == 1:
        out_of_range = (labels < 0) | (labels > np.iinfo(np.int64).max)
        if out_of_range.any():
            row = int(np.argmax(out_of_range))
            allowed = "0, 1, 2, ...; nodes without a label are listed in unlabelled_nodes"
            raise bad(path, f"node_labels is {labels[row]}", row=row, allowed=allowed)
    if unlabelled is None or not is_number(labels.dtype) or labels.ndim not in (1, 2):
        return labels
    if unlabelled.ndim != 1 or unlabelled.dtype.kind not in "iu":
        raise bad(path, f"unlabelled_nodes is {unlabelled.dtype} {unlabelled.shape}", allowed="integers, one dimension")
    outside = (unlabelled < 0) | (unlabelled >= len(labels))
    if outside.any():
        row = int(np.argmax(outside))
        raise bad(path, f"unlabelled_nodes is {unlabelled[row]}", row=row, allowed=f"0 to {len(labels) - 1}")
    classes = labels.ndim == 1 and labels.dtype.kind in "iu"
    labels = labels.astype(np.int64 if classes else np.float64)
    labels[unlabelled.astype(np.int64)] = UNLABELLED if classes else np.nan
    return labels


def _strings(path: Path, arrays: dict[str, Array], key: str) -> list[str]:
    """Returns an array of strings as a list; empty if the file has none."""
    names = arrays.get(key)
    if names is None:
        return []
    if names.ndim != 1 or names.dtype.kind != "U":
        raise bad(path, f"{key} is {names.dtype} {names.shape}", allowed="strings, one dimension")
    return [str(name) for name in names]


def write_npz(path: Path, graph: ArrayGraph) -> None:
    """Writes a graph, so that no half-written file remains."""
    arrays: dict[str, Any] = {"edges": graph.edges, **graph.masks, **_label_arrays(graph.labels)}
    if sparse.issparse(graph.features):
        matrix = graph.features
        arrays["features_indptr"] = matrix.indptr.astype(np.int64)
        arrays["features_indices"] = matrix.indices.astype(np.int32)
        arrays["features_shape"] = np.array(matrix.shape, np.int64)
        if not (matrix.data == 1).all():
            arrays["features_data"] = matrix.data
    else:
        arrays["node_features"] = graph.features
    names = {"node_ids": graph.ids, "class_names": graph.classes, "feature_names": graph.feature_names}
    arrays |= {key: np.array(texts, dtype=np.str_) for key, texts in names.items() if texts}
    numbers = graph.features.data if sparse.issparse(graph.features) else graph.features
    gaps = np.array(True) if graph.may_miss and np.isnan(numbers).any() else None
    values = {"edge_weights": graph.edge_weight, "edge_features": graph.edge_attr, "features_may_miss": gaps}
    arrays |= {key: array for key, array in values.items() if array is not None}
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _label_arrays(labels: Array) -> dict[str, Array]:
    """Returns the labels as a file holds them: any class or number for nodes without a label, which are listed."""
    missing = labels == UNLABELLED if labels.dtype.kind == "i" else np.isnan(labels)
    unlabelled = np.flatnonzero(missing if labels.ndim == 1 else missing.any(axis=1))
    kept = np.where(missing, 0, labels).astype(bool if labels.ndim == 2 else labels.dtype)
    return {"node_labels": kept, **({"unlabelled_nodes": unlabelled} if len(unlabelled) else {})}
