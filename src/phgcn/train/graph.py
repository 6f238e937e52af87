r"""A graph as training uses it: its source, its features on a device, and a digest to recognise it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..data import load_graph
from ..data.names import known_graph, metric_of
from ..distributed.part_files import is_partition, join_parts, read_manifest

MAX_DENSE_BYTES = 2**32
"""Features on a GPU are stored dense up to this size."""


def find(source: str, directed: bool = False) -> tuple[str, Data]:
    """Loads a graph by name or path; returns how to find it again from any folder, and the graph."""
    if is_partition(source):
        return str(Path(source).resolve()), joined(source, directed)
    data = load_graph(source, directed=directed)
    return (source if known_graph(source) else str(Path(source).resolve())), data


def joined(folder: str | Path, directed: bool) -> Data:
    """Loads a graph from its parts, whole."""
    check_direction(folder, directed)
    return join_parts(folder)


def check_direction(folder: str | Path, directed: bool) -> None:
    """Refuses parts that were made of edges in another direction."""
    made = read_manifest(folder)["graph"]["directed"]
    if made != directed:
        raise ValueError(f"{folder}: its parts were made with directed {made}; allowed: the same")


def default_metric(data: Data) -> str:
    """Returns the name of the metric that is usual for the graph."""
    return metric_of(str(data.name))


def class_names(data: Data) -> list[str]:
    """Returns the names of the classes, by class number."""
    return list(data.classes)


def node_names(data: Data) -> list[str]:
    """Returns the ids of the nodes, as the graph's file has them."""
    return list(data.node_id)


def scale_features(x: Tensor, normalise: bool) -> Tensor:
    r"""Divides each row by the sum of its absolute values if ``normalise``, else returns ``x`` as it is.

    Shapes:
        - **x:** :math:`(N, F)`, dense or CSR; **output:** the same
    """
    if not normalise:
        return x
    if x.layout == torch.strided:
        return x / x.abs().sum(dim=1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
    counts = x.crow_indices().diff()
    rows = torch.repeat_interleave(torch.arange(len(counts)), counts)
    sums = torch.zeros(len(counts), dtype=x.dtype).index_add_(0, rows, x.values().abs())
    values = x.values() / sums.clamp(min=torch.finfo(x.dtype).tiny)[rows]
    return torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), values, x.shape)


def features_on_device(x: Tensor, normalise: bool, device: str | torch.device) -> Tensor:
    """Scales the features (:func:`scale_features`) and moves them to a device, on a GPU as a dense tensor if it fits.

    A dense product takes less time there, has the same bits in every run, and can be part of a CUDA graph.
    """
    x = scale_features(x, normalise).to(device)
    return x.to_dense() if x.is_cuda and x.numel() * x.element_size() <= MAX_DENSE_BYTES else x


def describe(data: Data) -> dict[str, Any]:
    """Returns what a run stores about its graph, to recognise it later; of a part, about the whole."""
    if "description" in data:
        return {name: data.description[name] for name in ("name", "nodes", "edges", "features", "classes", "digest")}
    return {
        "name": str(data.name),
        "nodes": data.num_nodes,
        "edges": int(data.edge_index.size(1)),
        "features": data.x.size(1),
        "classes": class_names(data),
        "digest": digest(data),
    }


def digest(data: Data) -> str:
    """Returns a hash of features, labels and edges; of a part, that of the whole graph."""
    if "description" in data:
        return str(data.description["digest"])
    x = data.x
    parts = [x] if x.layout == torch.strided else [x.crow_indices(), x.col_indices(), x.values()]
    state = hashlib.sha256()
    for part in (*parts, data.y, data.edge_index):
        state.update(f"{part.dtype}{tuple(part.shape)}".encode())
        state.update(part.contiguous().numpy().tobytes())
    return state.hexdigest()[:16]
