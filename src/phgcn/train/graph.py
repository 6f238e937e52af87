r"""A graph as training sees it: where it came from, its features prepared, and its fingerprint."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..data import load_graph
from ..data.names import known_graph, metric_of

MOST_DENSE_BYTES = 2**32
"""Of features on a GPU."""


def find(source: str, directed: bool = False) -> tuple[str, Data]:
    """The graph of a name or a path, and how to find it again from another folder."""
    data = load_graph(source, directed=directed)
    return (source if known_graph(source) else str(Path(source).resolve())), data


def default_metric(data: Data) -> str:
    """How predictions are scored where nothing else is asked for."""
    return metric_of(str(data.name))


def class_names(data: Data) -> list[str]:
    """The names of the classes."""
    return list(data.classes)


def node_names(data: Data) -> list[str]:
    """The nodes' own ids."""
    return list(data.node_id)


def prepared(x: Tensor, normalise: bool) -> Tensor:
    r"""The features as the model gets them, each row divided by the sum of its absolute values if asked for.

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


def placed(x: Tensor, device: str | torch.device) -> Tensor:
    """Features on a device: dense on a GPU, unless they are very large.  There a product with a dense matrix takes less time,
    has the same bits every run, and can be recorded into a CUDA graph."""
    x = x.to(device)
    return x.to_dense() if x.is_cuda and x.numel() * x.element_size() <= MOST_DENSE_BYTES else x


def describe(data: Data) -> dict[str, Any]:
    """What a run keeps about its graph, to know it again."""
    return {
        "name": str(data.name),
        "nodes": data.num_nodes,
        "edges": int(data.edge_index.size(1)),
        "features": data.x.size(1),
        "classes": class_names(data),
        "digest": digest(data),
    }


def digest(data: Data) -> str:
    """A hash of features, labels and edges."""
    x = data.x
    parts = [x] if x.layout == torch.strided else [x.crow_indices(), x.col_indices(), x.values()]
    state = hashlib.sha256()
    for part in (*parts, data.y, data.edge_index):
        state.update(f"{part.dtype}{tuple(part.shape)}".encode())
        state.update(part.contiguous().numpy().tobytes())
    return state.hexdigest()[:16]
