"""Reads and writes graphs as ``.npz`` files without pickles: the format of ``docs/data.md``."""

from __future__ import annotations

import difflib
import math
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ..files import replacing
from . import check
from .check import MASKS, UNLABELLED, Array, ArrayGraph, Features, GraphFileError, bad, short

CSR = ("features_indptr", "features_indices", "features_shape")
DENSE, VALUES = "node_features", "features_data"
MISSING, MAY_MISS = "unlabelled_nodes", "features_may_miss"
# the keys of parts of an :class:`phgcn.data.check.ArrayGraph`
NAMES = {
    "labels": "node_labels",
    "ids": "node_ids",
    "classes": "class_names",
    "feature_names": "feature_names",
    "edge_weight": "edge_weights",
    "edge_attr": "edge_features",
}

KEYS = (*CSR, VALUES, DENSE, "edges", *MASKS, MISSING, MAY_MISS, *NAMES.values())

# how similar an unknown key is to a known one, from 0 to 1, that is taken for a slip of the pen
CLOSE = 0.75

MAX_GB = "PHGCN_MAX_GB"  # the environment variable that limits what a file may unpack to
MEMORY_SHARE = 0.5  # share of the machine's memory that a file may unpack to, unless told otherwise


def read_npz(
    path: Path, max_gb: float | None = None, task: str | None = None, labels: bool = True
) -> ArrayGraph:
    """Reads and checks the graph in an ``.npz`` file of at most ``max_gb`` unpacked
    (:func:`size_limit`), with labels for a task, by default the one that they look like, or without
    labels."""
    arrays, notes = _read_arrays(path, size_limit(max_gb), labels)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    features, features_key = _find_features(path, arrays)
    if labels:
        y = arrays["node_labels"]
        y = y.astype(np.float64) if task == "regression" and y.dtype.kind in "iu" else y
        y = _mark_unlabelled(path, y, arrays.get(MISSING))
    else:
        y, task = np.full(features.shape[:1], UNLABELLED), "classification"
    graph = ArrayGraph(
        path,
        features,
        y,
        arrays["edges"],
        masks={name: arrays[name] for name in MASKS if name in arrays},
        ids=_strings(path, arrays, "node_ids"),
        classes=_strings(path, arrays, "class_names"),
        names={**NAMES, "features": features_key},
        task=task,
        edge_weight=arrays.get("edge_weights"),
        edge_attr=arrays.get("edge_features"),
        feature_names=_strings(path, arrays, "feature_names"),
        notes=notes,
        may_miss=MAY_MISS in arrays and bool(arrays[MAY_MISS].any()),
    )
    return check.check_graph(graph)


def size_limit(max_gb: float | None = None) -> float:
    """Returns the number of bytes that a file may unpack to: by argument, environment or memory."""
    if max_gb is None and not os.environ.get(MAX_GB):
        if not hasattr(os, "sysconf"):
            return math.inf
        return MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    name, text = ("max_gb", max_gb) if max_gb is not None else (MAX_GB, os.environ[MAX_GB])
    try:
        limit = 1e9 * float(text)
    except (TypeError, ValueError):
        limit = math.nan
    if not limit > 0:
        raise ValueError(f"{name} is {text!r}; allowed: a positive number of gigabytes")
    return limit


def _read_arrays(path: Path, limit: float, labels: bool) -> tuple[dict[str, Array], list[str]]:
    """Reads the arrays that have a known key, and returns the other keys."""
    try:
        archive = np.load(path, allow_pickle=False)
    except Exception as error:  # numpy and zipfile raise errors of any type on a damaged file
        raise bad(path, f"this is no .npz file, or a damaged one ({_reason(error)})") from None
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise bad(path, "this is a single array", "an .npz file with several")
    unknown = [key for key in archive.files if key not in KEYS]
    for key in unknown:
        _refuse_slip(path, key)
    with archive:
        _check_size(path, archive, limit)
        arrays = {key: _read_array(path, archive, key) for key in archive.files if key in KEYS}
    for key in ("node_labels", "edges") if labels else ("edges",):
        if key not in arrays:
            raise bad(path, f"key {key} is missing", ", ".join(KEYS))
    note = f"{path.name}: keys left out, as they are not known: {short(', '.join(unknown))}"
    return arrays, [note] if unknown else []


def _refuse_slip(path: Path, key: str) -> None:
    similar = difflib.get_close_matches(key.lower(), KEYS, n=1, cutoff=CLOSE)
    if similar:
        what = f"key {short(key)} is not known (did you mean {similar[0]}?)"
        raise bad(path, what, ", ".join(KEYS))


def _check_size(path: Path, archive: Any, limit: float) -> None:
    """Refuses a file that unpacks to more than the limit, by the sizes in its directory."""
    size = sum(member.file_size for member in archive.zip.infolist())
    if size > limit:
        ways = f"`phgcn --max-gb`, the variable {MAX_GB} or load_graph(max_gb=) change that"
        raise bad(path, f"it unpacks to {size / 1e9:.3g} GB", f"up to {limit / 1e9:.3g} GB; {ways}")


def _read_array(path: Path, archive: Any, key: str) -> Array:
    try:
        _check_header(path, archive, key)
        array: Array = archive[key]
        return array
    except GraphFileError:
        raise
    except Exception as error:
        if "allow_pickle" in str(error):
            raise bad(path, f"{key} holds pickled objects", "plain arrays") from None
        raise bad(path, f"{key} is damaged ({_reason(error)})") from None


def _check_header(path: Path, archive: Any, key: str) -> None:
    """Refuses an array that claims to be larger than its file: numpy would allocate it first."""
    name = key if key in archive.zip.namelist() else f"{key}.npy"
    formats = np.lib.format
    with archive.zip.open(name) as member:
        first = formats.read_magic(member) == (1, 0)
        read = formats.read_array_header_1_0 if first else formats.read_array_header_2_0
        shape, _, dtype = read(member)
        stored = archive.zip.getinfo(name).file_size - member.tell()
    if any(type(size) is not int or size < 0 for size in shape):
        raise bad(path, f"{key} has shape {short(shape)}", "whole numbers from 0 on")
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize > stored:
        what = f"{key} has shape {short(shape)} but {stored} bytes"
        raise bad(path, what, "as many numbers as its shape says")


def _reason(error: Exception) -> str:
    """Returns the first line of an error's text, or its type."""
    return (str(error).splitlines() or [type(error).__name__])[0].strip("'\"").rstrip(".")


def _find_features(path: Path, arrays: dict[str, Array]) -> tuple[Features, str]:
    present = [key for key in (*CSR, VALUES) if key in arrays]
    if DENSE in arrays and present:
        what = f"both {DENSE} and {present[0]} are there"
        raise bad(path, what, "dense or sparse features, not both")
    if DENSE in arrays:
        return arrays[DENSE], DENSE
    if not present:
        raise bad(path, "the features are missing", f"{DENSE}, or {', '.join(CSR)}")
    for key in CSR:
        if key not in arrays:
            raise bad(path, f"key {key} is missing though {present[0]} is there", ", ".join(CSR))
    return _build_csr(path, arrays), VALUES


def _build_csr(path: Path, arrays: dict[str, Array]) -> sparse.csr_matrix:
    """Builds the matrix of sparse features (N, F); refuses whatever scipy refuses."""
    indptr, indices, shape = (arrays[key] for key in CSR)
    for key in CSR:
        if arrays[key].dtype.kind not in "iu":
            raise bad(path, f"{key} is {arrays[key].dtype}", "integers")
    data = arrays.get(VALUES, np.ones(indices.shape, np.float32))
    if not check.is_number(data.dtype):
        raise bad(path, f"features_data is {data.dtype}", "bool, integers or floats")
    # scipy has no matrices of half floats.
    data = data.astype(np.float32) if data.dtype == np.float16 else data
    parts = (data, indices.astype(np.int64), indptr.astype(np.int64))
    try:
        matrix = sparse.csr_matrix(parts, shape=tuple(shape.tolist()))
        matrix.check_format()
    except (TypeError, ValueError) as error:
        what = f"{', '.join((*CSR, VALUES))} are no sparse matrix ({_reason(error)})"
        raise bad(path, what, "the parts of a scipy.sparse.csr_matrix") from None
    matrix.sort_indices()
    if matrix.nnz < len(indices) or not matrix.has_canonical_format:
        what = "features_indices has entries that belong to no row, or one twice in a row"
        raise bad(path, what, "each feature of a row once")
    return matrix


def _mark_unlabelled(path: Path, labels: Array, unlabelled: Array | None) -> Array:
    """Removes the labels of unlabelled nodes. Labels of a wrong type stay, for
    :func:`phgcn.data.check.check_graph` to refuse."""
    whole = labels.ndim == 1 and labels.dtype.kind in "iu"
    if whole:
        out_of_range = (labels < 0) | (labels > np.iinfo(np.int64).max)
        if out_of_range.any():
            row = int(np.argmax(out_of_range))
            allowed = "0, 1, 2, ...; nodes without a label are listed in unlabelled_nodes"
            raise bad(path, f"node_labels is {labels[row]}", allowed, row=row)
    if unlabelled is None or not check.is_number(labels.dtype) or labels.ndim not in (1, 2):
        return labels
    if unlabelled.ndim != 1 or unlabelled.dtype.kind not in "iu":
        what = f"unlabelled_nodes is {unlabelled.dtype} {unlabelled.shape}"
        raise bad(path, what, "integers, one dimension")
    outside = (unlabelled < 0) | (unlabelled >= len(labels))
    if outside.any():
        row = int(np.argmax(outside))
        what = f"unlabelled_nodes is {unlabelled[row]}"
        raise bad(path, what, f"0 to {len(labels) - 1}", row=row)
    labels = labels.astype(np.int64 if whole else np.float64)
    labels[unlabelled.astype(np.int64)] = UNLABELLED if whole else np.nan
    return labels


def _strings(path: Path, arrays: dict[str, Array], key: str) -> list[str]:
    if key not in arrays:
        return []
    names = arrays[key]
    if names.ndim != 1 or names.dtype.kind != "U":
        raise bad(path, f"{key} is {names.dtype} {names.shape}", "strings, one dimension")
    return [str(name) for name in names]


def write_npz(path: Path, graph: ArrayGraph) -> None:
    arrays: dict[str, Any] = {"edges": graph.edges, **graph.masks, **_label_arrays(graph.labels)}
    features = graph.features
    if sparse.issparse(features):
        arrays["features_indptr"] = features.indptr.astype(np.int64)
        arrays["features_indices"] = features.indices.astype(np.int32)
        arrays["features_shape"] = np.array(features.shape, np.int64)
        if not (features.data == 1).all():
            arrays[VALUES] = features.data
    else:
        arrays[DENSE] = features
    for part in ("ids", "classes", "feature_names"):
        if names := getattr(graph, part):
            arrays[NAMES[part]] = np.array(names, dtype=np.str_)
    for part in ("edge_weight", "edge_attr"):
        if (values := getattr(graph, part)) is not None:
            arrays[NAMES[part]] = values
    if graph.may_miss and np.isnan(features.data if sparse.issparse(features) else features).any():
        arrays[MAY_MISS] = np.array(True)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _label_arrays(labels: Array) -> dict[str, Array]:
    """Returns the labels as in a file, and the nodes without one."""
    missing = labels == UNLABELLED if labels.dtype.kind == "i" else np.isnan(labels)
    unlabelled = np.flatnonzero(missing if labels.ndim == 1 else missing.any(axis=1))
    kept = np.where(missing, 0, labels).astype(bool if labels.ndim == 2 else labels.dtype)
    return {"node_labels": kept, **({MISSING: unlabelled} if len(unlabelled) else {})}
