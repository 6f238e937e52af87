"""Reads graphs of :func:`torch.save`: a PyG ``Data`` or a dict of tensors, without running code in
the file."""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from .check import Array, ArrayGraph, Features, GraphFileError, bad, check_graph, short

MASK_NAMES = {"train_masks": "train_mask", "val_masks": "val_mask", "test_masks": "test_mask"}
NAMES = {"features": "x", "labels": "y", "edges": "edge_index", "ids": "node_id", **MASK_NAMES}
OPTIONAL = ("edge_weight", "edge_attr", *MASK_NAMES.values())


def read_saved(path: Path, task: str | None = None, labels: bool = True) -> ArrayGraph:
    """Reads and checks the graph in a file of :func:`torch.save`, as :func:`.npz.read_npz` does."""
    content = _load(path)
    if not labels:
        x = content.get("x")
        content["y"] = torch.full((len(x) if isinstance(x, Tensor) else 0,), -1)
    graph = from_mapping(path, content)
    graph.task = task if labels else "classification"
    return check_graph(graph)


def _load(path: Path) -> dict[str, Any]:
    """Unpickles only plain tensors and PyG's ``Data``, and returns the attributes."""
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    known = torch.serialization.safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage])
    try:
        with known, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Detected pickle protocol")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises errors of any type on a damaged file
        raise _load_error(path, error) from None
    if isinstance(content, Data):
        content = content.to_dict()
    if isinstance(content, dict):
        return content
    raise bad(path, f"it holds a {type(content).__name__}", "a Data of PyG, or a dict of tensors")


def _load_error(path: Path, error: Exception) -> GraphFileError:
    refused_global = re.search(r"GLOBAL ([\w.]+)", str(error))
    if refused_global:
        what = f"the pickle inside asks for {refused_global.group(1)}, which could run code"
    elif isinstance(error, pickle.UnpicklingError):
        what = "the pickle inside is of a kind that could run code, or is damaged"
    else:
        reason = short((str(error).splitlines() or [""])[0])
        what = f"this was not written by torch.save, or is damaged ({reason})"
    return bad(path, what, "a Data of PyG or a dict of tensors, written by torch.save")


def from_mapping(path: Path, content: dict[str, Any]) -> ArrayGraph:
    """Converts the attributes of a PyG ``Data`` to unchecked arrays."""
    tensors = {}
    for name in ("x", "y", "edge_index", *OPTIONAL):
        value = content.get(name)
        if value is None and name in OPTIONAL:
            continue
        if value is None:
            raise bad(path, f"{name} is missing", "x, y and edge_index")
        if not isinstance(value, Tensor):
            raise bad(path, f"{name} is a {type(value).__name__}", "a tensor")
        if value.dtype in (torch.bfloat16, torch.complex64, torch.complex128) or value.is_quantized:
            raise bad(path, f"{name} is {value.dtype}", "float32, integers or bool")
        tensors[name] = value.detach().cpu()
    x = tensors.pop("x")
    arrays = {name: _dense(path, name, tensor) for name, tensor in tensors.items()}
    edges, attr = arrays["edge_index"], arrays.get("edge_attr")
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise bad(path, f"edge_index has shape {edges.shape}", "(2, edges)")
    masks = {name: arrays[key] for name, key in MASK_NAMES.items() if key in arrays}
    notes, graphs = [], _count_graphs(content)
    if graphs > 1:
        what = f"attention is among the nodes of all {graphs} graphs"
        notes.append(f"{path}: batch is left out: {what}")
        warnings.warn(notes[0], stacklevel=3)
    return ArrayGraph(
        path,
        _features(x),
        arrays["y"],
        edges.T,
        masks={name: _split_rows(mask) for name, mask in masks.items()},
        ids=_strings(path, content, "node_id"),
        classes=_strings(path, content, "classes"),
        names=NAMES,
        edge_weight=arrays.get("edge_weight"),
        edge_attr=attr[:, None] if attr is not None and attr.ndim == 1 else attr,
        feature_names=_strings(path, content, "feature_names"),
        notes=notes,
    )


def _count_graphs(content: dict[str, Any]) -> int:
    batch, ptr = content.get("batch"), content.get("ptr")
    if isinstance(ptr, Tensor) and ptr.dim() == 1:
        return len(ptr) - 1
    return int(batch.max()) + 1 if isinstance(batch, Tensor) and batch.numel() else 1


def _features(x: Tensor) -> Features:
    """Converts features (N, F) to an array, or to a CSR matrix if the tensor is sparse."""
    if x.layout == torch.strided:
        return x.numpy()
    x = x.to_sparse(layout=torch.sparse_coo).coalesce()
    values, (row, column) = x.values().numpy(), x.indices().numpy()
    return sparse.csr_matrix((values, (row, column)), shape=tuple(x.shape))


def _dense(path: Path, name: str, tensor: Tensor) -> Array:
    if tensor.layout != torch.strided:
        raise bad(path, f"{name} is sparse", "a dense tensor")
    return tensor.numpy()


def _split_rows(mask: Array) -> Array:
    """Converts a mask of PyG, (N, K) or (N,) for a single split, to one row per split, (K, N)."""
    return mask[None, :] if mask.ndim == 1 else np.ascontiguousarray(mask.T)


def _strings(path: Path, content: dict[str, Any], name: str) -> list[str]:
    value = content.get(name)
    if value is None:
        return []
    if not isinstance(value, (list, tuple)) or not all(isinstance(entry, str) for entry in value):
        raise bad(path, f"{name} is {short(value)}", "a list of strings")
    return list(value)
