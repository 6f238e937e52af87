r"""A graph as training uses it: its source, its features on a device, and a digest to recognise it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..data import load_graph
from ..data.labels import task_of
from ..data.names import known_graph, metric_of
from .tasks import find_task

MAX_DENSE_BYTES = 2**32
"""Features on a GPU are stored dense up to this size."""


def find(source: str, directed: bool = False) -> tuple[str, Data]:
    """Loads a graph by name or path; returns how to find it again from any folder, and the graph."""
    data = load_graph(source, directed=directed)
    return (source if known_graph(source) else str(Path(source).resolve())), data


def default_metric(data: Data) -> str:
    """Returns the name of the metric that is usual for the graph, or else for its task."""
    usual, metrics = metric_of(str(data.name)), find_task(task_of(data.y)).metrics
    return usual if usual in metrics else metrics[0]


def check_task(data: Data, task: str) -> None:
    """Refuses a graph whose labels are not for this task, or teach nothing."""
    own = task_of(data.y)
    if own != task:
        raise ValueError(f"{data.name}: task is {task}, but the labels are those of {own}; allowed: {own}")
    try:
        find_task(task).check(data.y)
    except ValueError as error:
        raise ValueError(f"{data.name}: {error}") from None


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
    """Returns what a run stores about its graph, to recognise it later."""
    return {
        "name": str(data.name),
        "nodes": data.num_nodes,
        "edges": int(data.edge_index.size(1)),
        "features": data.x.size(1),
        "classes": class_names(data),
        "digest": digest(data),
    }


def digest(data: Data) -> str:
    """Returns a hash of features, labels and edges."""
    x = data.x
    parts = [x] if x.layout == torch.strided else [x.crow_indices(), x.col_indices(), x.values()]
    state = hashlib.sha256()
    for part in (*parts, data.y, data.edge_index):
        state.update(f"{part.dtype}{tuple(part.shape)}".encode())
        state.update(part.contiguous().numpy().tobytes())
    return state.hexdigest()[:16]
