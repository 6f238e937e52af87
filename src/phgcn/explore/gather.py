r"""Gathers what a page shows from a graph and a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import softmax

from ..data.encode import indicator_names
from ..nn.global_block import GlobalBlock
from ..report.layers import LayerView, attention_layers, view_layers
from .content import Array, Column, EdgeAttention, View

STRONGEST = 10
"""Labelled nodes that are shown of each head of attention to labels."""

MAX_COLUMNS = 64
"""Columns of the nodes' table that nodes can be coloured by; of a wider table, so many from the left."""


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
    """Returns the classes, the numbers, or of several labels per node which of them it has."""
    labels, names = data.y.cpu(), [str(name) for name in data.classes]
    if labels.dim() == 2:
        return [_answer_column(f"label {name}", labels[:, number]) for number, name in enumerate(names[:MAX_COLUMNS])]
    if labels.is_floating_point():
        return [Column("label", labels.float().numpy())]
    return [Column("class", labels.numpy().astype(np.int32), names)]


def _answer_column(name: str, answers: Tensor) -> Column:
    """Returns whether something holds, from 0, 1 and NaN, (N,)."""
    return Column(name, answers.float().nan_to_num(nan=-1).numpy().astype(np.int32), ["no", "yes"])


def _feature_columns(data: Data) -> list[Column]:
    """Returns the columns of a dense table of features; one-hot vectors of many words have no column worth a colour."""
    x = data.x
    if x.layout != torch.strided:
        return []
    names = list(getattr(data, "feature_names", None) or [f"feature {number}" for number in range(x.size(1))])
    levels = getattr(data, "feature_levels", None) or {}
    folded = {name: column for column, values in levels.items() for name in indicator_names(column, values)}
    columns: dict[str, Column] = {}
    for number, name in enumerate(map(str, names)):
        column = folded.get(name, name)
        if column not in columns and len(columns) < MAX_COLUMNS:
            columns[column] = _folded(x, names, column, levels[column]) if name in folded else _numbers(x, name, number)
    return list(columns.values())


def _numbers(x: Tensor, name: str, number: int) -> Column:
    return Column(name, np.ascontiguousarray(x[:, number].float().cpu().numpy()))


def _folded(x: Tensor, names: list[str], column: str, levels: Sequence[str]) -> Column:
    """Returns the category of each node, from the columns of 0 and 1 that it became."""
    parts = x[:, [names.index(name) for name in indicator_names(column, levels)]].cpu()
    kinds = torch.where(parts.any(dim=1), parts.argmax(dim=1), -1)
    return Column(column, kinds.numpy().astype(np.int32), list(levels))


@torch.no_grad()
def gather_views(
    model: Any, inputs: Sequence[Tensor], output: Tensor, edge_values: Mapping[str, Tensor] | None = None, used: bool = True
) -> list[View]:
    r"""Runs a model once and returns a view of each layer with attention, those with attention to all nodes first; then one of
    the model's output, which has a coordinate for each class.

    A layer without an embedding, as :class:`~torch_geometric.nn.GATConv`, is shown with the nodes at the model's output.

    Args:
        model (torch.nn.Module): The model.
        inputs (list of torch.Tensor): What it is called with.
        output (torch.Tensor): Its output, :math:`(N, C)`.
        edge_values (dict, optional): What it is called with by name. (default: :obj:`None`)
        used (bool, optional): Whether the model's global path was switched on in the epoch that counts.
            (default: :obj:`True`)
    """
    layers = dict(attention_layers(model))
    shown = view_layers(model, inputs, edge_values)
    views = [_view(layers[view.name], view, output, used) for view in shown]
    last = View("output", _array(output.unsqueeze(1)), note="The model's output: one coordinate for each class or number.")
    return [*sorted(views, key=lambda view: view.decay_global is None), last]


def _view(layer: Any, shown: LayerView, output: Tensor, used: bool) -> View:
    """Returns the view of one layer."""
    name, notes = shown.name.replace("-", " "), []
    heads = layer.heads
    if isinstance(layer, GlobalBlock):
        gate = float(layer.gate.square().mean().sqrt())
        notes.append(f"Gate {gate:.2g} (root mean square): how much of what is gathered is added.")
        if not used:
            notes.append("The epoch that counts was a local one: the predictions do without this block.")
    if shown.positions is None:
        notes.append("The layer has no embedding: the nodes are shown at the model's output.")
    positions = output.unsqueeze(1).expand(-1, heads, -1) if shown.positions is None else shown.positions
    if shown.keys is not None:
        notes.append(f"A node attends to labelled nodes, never to itself; its {STRONGEST} strongest of each head are shown.")
        return View(name, _array(positions), None, None, _strongest_keys(shown), False, " ".join(notes))
    decay_local = _per_head(layer.decay_local(), heads) if hasattr(layer, "decay_local") else None
    by_edge = None
    if shown.edges is not None and not (decay_local and _by_distance(shown, decay_local)):
        decay_local, by_edge = None, _edge_attention(shown, len(output))
    decay_global = None if shown.decay is None else _per_head(shown.decay, heads)
    self_loops = bool(getattr(layer, "add_self_loops", True))
    return View(name, _array(positions), decay_global, decay_local, by_edge, self_loops, " ".join(notes))


def _strongest_keys(shown: LayerView) -> EdgeAttention:
    """Returns the labelled nodes that each node attends to most, of all heads, with their weights in each head."""
    targets, weights = shown.strongest(STRONGEST)
    nodes, heads = targets.shape[:2]
    rows = torch.arange(nodes).view(-1, 1, 1).expand_as(targets)
    number = torch.arange(heads).view(1, -1, 1).expand_as(targets)
    there = targets >= 0
    pairs, place = torch.unique(torch.stack([rows[there], targets[there]]), dim=1, return_inverse=True)
    by_head = torch.zeros(pairs.size(1), heads).index_put((place, number[there]), weights[there].float())
    starts = np.concatenate([[0], np.cumsum(np.bincount(pairs[0].numpy(), minlength=nodes))]).astype(np.int32)
    return EdgeAttention(starts, pairs[1].numpy().astype(np.int32), by_head.numpy())


def _by_distance(shown: LayerView, decay: Sequence[float]) -> bool:
    """Tells whether attention to neighbours follows from distances alone, so that a page can compute it: not where edges have
    weights or features."""
    assert shown.edges is not None and shown.weights is not None and shown.positions is not None
    source, target = shown.edges
    distances = (shown.positions[source] - shown.positions[target]).double().norm(dim=-1)
    weights = softmax(-torch.tensor(decay, dtype=torch.float64) * distances, target, num_nodes=len(shown.positions))
    return bool(torch.allclose(weights, shown.weights.double(), atol=1e-5))


def _edge_attention(shown: LayerView, nodes: int) -> EdgeAttention:
    """Sorts the edges of a layer by target; weights are rounded to 2⁻¹⁶, which compresses better."""
    assert shown.edges is not None and shown.weights is not None
    sources, targets = shown.edges.numpy()
    order = np.argsort(targets, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=nodes))]).astype(np.int32)
    weights = np.round(shown.weights.float().numpy() * 2**16) / np.float32(2**16)
    return EdgeAttention(starts, sources[order].astype(np.int32), weights[order].astype(np.float32))


def _per_head(decay: float | Tensor, heads: int) -> list[float]:
    values: list[float] = torch.as_tensor(decay, dtype=torch.float64).cpu().expand(heads).tolist()
    return values


def _array(positions: Tensor) -> Array:
    return positions.float().cpu().contiguous().numpy()


def prediction_columns(predicted: Tensor, probabilities: Tensor | None, y: Tensor, classes: Sequence[str]) -> list[Column]:
    """Returns what a model predicts as columns, and how it differs from the labels.

    Args:
        predicted (torch.Tensor): Classes or numbers :math:`(N,)`, or which labels hold :math:`(N, C)`.
        probabilities (torch.Tensor, optional): Those of the classes, :math:`(N, C)`.
        y (torch.Tensor): The labels, as a graph has them.
        classes (list of str): The names of the classes.
    """
    if predicted.dim() == 2:
        return [_answer_column(f"predicted {name}", predicted[:, number]) for number, name in enumerate(classes[:MAX_COLUMNS])]
    if probabilities is None:
        error = (predicted - y).abs().float()
        return [Column("prediction", predicted.float().numpy()), Column("error", error.numpy())]
    right = (predicted == y).long().masked_fill(y < 0, -1)
    return [
        Column("prediction", predicted.numpy().astype(np.int32), list(classes)),
        Column("correctness", right.numpy().astype(np.int32), ["wrong", "right"]),
        Column("confidence", probabilities.max(dim=1).values.float().numpy()),
    ]


def split_column(train: Tensor, val: Tensor, test: Tensor, nodes: int) -> Column:
    """Returns which set each node is in, from the numbers of the training, validation and test nodes."""
    role = np.full(nodes, -1, np.int32)
    for number, members in enumerate((train, val, test)):
        role[members.cpu().numpy()] = number
    return Column("split", role, ["train", "validation", "test"])
