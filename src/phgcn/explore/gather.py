r"""Gathers what a page shows from a graph and a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from ..nn.attention_statistics import first_inputs
from ..nn.distance_conv import DistanceConv
from ..nn.global_block import GlobalBlock
from .content import Array, Column, View

MAX_COLUMNS = 64
"""Columns of the nodes' table that nodes can be coloured by; of a wider table, so many from the left."""

UNLABELLED = "unlabelled"


class GraphParts(NamedTuple):
    """The parts of :class:`phgcn.explore.Content` that follow from the graph alone."""

    ids: list[str]
    starts: Array
    sources: Array
    columns: list[Column]


def gather_graph(data: Data) -> GraphParts:
    """Gathers ids, incoming edges sorted by target, classes, degrees and the columns of the nodes' table."""
    nodes = int(data.num_nodes)
    sources, targets = data.edge_index.cpu().numpy()
    order = np.argsort(targets, kind="stable")
    degree = np.bincount(targets, minlength=nodes)
    starts = np.concatenate([[0], np.cumsum(degree)])
    columns = [*_label_columns(data), Column("degree", degree.astype(np.float32)), *_feature_columns(data)]
    return GraphParts(list(map(str, data.node_id)), starts.astype(np.int32), sources[order].astype(np.int32), columns)


def _label_columns(data: Data) -> list[Column]:
    """Returns the classes of a graph whose nodes have one each; numbers where labels are real; else nothing."""
    labels = data.y.cpu()
    if labels.dim() != 1:
        return []
    if labels.is_floating_point():
        return [Column("label", labels.float().numpy())]
    return [Column("class", labels.numpy().astype(np.int32), [str(name) for name in data.classes])]


def _feature_columns(data: Data) -> list[Column]:
    """Returns the columns of a dense table of features; one-hot vectors of many words have no column worth a colour."""
    x = data.x
    if x.layout != torch.strided:
        return []
    names = getattr(data, "feature_names", None) or [f"feature {number}" for number in range(x.size(1))]
    values = x[:, :MAX_COLUMNS].float().cpu().numpy()
    return [Column(str(names[number]), np.ascontiguousarray(values[:, number])) for number in range(values.shape[1])]


@torch.no_grad()
def gather_views(model: Any, inputs: Sequence[Any], used: bool = True) -> list[View]:
    r"""Runs a model once and returns the embedding of each layer in which distances decide attention.

    These are the layers :class:`phgcn.nn.PHGCNConv` and :class:`phgcn.nn.EDAConv` and the blocks
    :class:`phgcn.nn.GlobalBlock`, wherever they are in the model; layers with attention to all nodes come first.

    Args:
        model (torch.nn.Module): The model.
        inputs (list): What it is called with.
        used (bool, optional): Whether the model's global path was switched on in the epoch that counts.
            (default: :obj:`True`)
    """
    layers: dict[str, Any] = {
        name: module for name, module in model.named_modules() if isinstance(module, (DistanceConv, GlobalBlock))
    }
    if not layers:
        return []
    # A block's positions follow from its normalised input, which its map of positions is called with.
    called = [layer.lin_position if isinstance(layer, GlobalBlock) else layer for layer in layers.values()]
    hidden = first_inputs(called, model, inputs)
    views = [_view(name, layer, x, used) for (name, layer), x in zip(layers.items(), hidden, strict=True)]
    return sorted(views, key=lambda view: view.decay_global is None)


def _view(name: str, layer: Any, hidden: Tensor, used: bool) -> View:
    """Returns the view of one layer, of its input (N, C)."""
    number = next((part for part in name.split(".") if part.isdigit()), "0")
    if isinstance(layer, GlobalBlock):
        positions = layer.lin_position(hidden).view(-1, layer.heads, layer.embedding_dim)
        gate = float(layer.gate.square().mean().sqrt())
        note = f"Gate {gate:.2g} (root mean square): how much of what is gathered is added."
        if not used:
            note += " The epoch that counts was a local one: the predictions do without this block."
        return View(f"global block {number}", _array(positions), _per_head(layer.decay(), layer.heads), note=note)
    positions, _ = layer.project(hidden)
    local = _per_head(layer.decay_local(), layer.heads)
    everywhere = _per_head(layer.decay_global(), layer.heads) if hasattr(layer, "decay_global") else None
    return View(f"layer {number}", _array(positions), everywhere, local, layer.add_self_loops)


def _per_head(decay: float | Tensor, heads: int) -> list[float]:
    values: list[float] = torch.as_tensor(decay, dtype=torch.float64).cpu().expand(heads).tolist()
    return values


def _array(positions: Tensor) -> Array:
    return positions.float().cpu().contiguous().numpy()


def output_view(scores: Tensor) -> View:
    """Returns the nodes in the space of the model's output, (N, C), which every model has; attention is none there."""
    return View("output", _array(scores.unsqueeze(1)), note="The model's output: one coordinate for each class.")


def prediction_columns(scores: Tensor, labels: Tensor, classes: Sequence[str]) -> list[Column]:
    """Returns prediction, whether it is right, and confidence, from class scores (N, C) and labels (N,), -1 for none."""
    confidence, predicted = scores.double().softmax(dim=1).max(dim=1)
    right = (predicted == labels.cpu()).long().masked_fill(labels.cpu() < 0, -1)
    return [
        Column("prediction", predicted.numpy().astype(np.int32), list(classes)),
        Column("correctness", right.numpy().astype(np.int32), ["wrong", "right"]),
        Column("confidence", confidence.float().numpy()),
    ]


def split_column(train: Tensor, val: Tensor, test: Tensor, nodes: int) -> Column:
    """Returns which set each node is in, from the numbers of the training, validation and test nodes."""
    role = np.full(nodes, -1, np.int32)
    for number, members in enumerate((train, val, test)):
        role[members.cpu().numpy()] = number
    return Column("split", role, ["train", "validation", "test"])
