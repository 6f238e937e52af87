"""Gathers a page's content from a graph and a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import softmax

from ..data import Split
from ..data.encode import decode
from ..nn.global_block import GlobalBlock
from ..nn.label_attention import LabelAttention
from ..report.layers import LayerView, attention_layers, view_layers
from .content import Array, Column, EdgeAttention, View

STRONGEST = 10  # labelled nodes that are shown of each head of attention to labels

# columns of the nodes' table that nodes can be coloured by; of a wider table, so many from the left
MAX_COLUMNS = 64


class GraphParts(NamedTuple):
    """The parts of :class:`phgcn.explore.Content` that follow from the graph only."""

    ids: list[str]
    starts: Array
    sources: Array
    columns: list[Column]


def gather_graph(data: Data) -> GraphParts:
    """Gathers ids, incoming edges, classes, degrees and columns of the nodes."""
    sources, targets = data.edge_index.cpu().numpy()
    order = np.argsort(targets, kind="stable")
    starts = _starts(targets, int(data.num_nodes))
    degree = Column("degree", np.diff(starts).astype(np.float32))
    columns = [*_label_columns(data), degree, *_feature_columns(data)]
    ids = list(map(str, data.node_id))
    return GraphParts(ids, starts, sources[order].astype(np.int32), columns)


def _starts(targets: Array, nodes: int) -> Array:
    """Returns each node's first edge, (N + 1,), among edges sorted by target."""
    counts = np.bincount(targets, minlength=nodes)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


def _label_columns(data: Data) -> list[Column]:
    """Returns the column of classes or numbers, or one column per label."""
    labels, names = data.y.cpu(), [str(name) for name in data.classes]
    if labels.dim() == 2:
        return _answer_columns("label", names, labels)
    if labels.is_floating_point():
        return [Column("label", labels.float().numpy())]
    return [Column("class", labels.numpy().astype(np.int32), names)]


def _answer_columns(kind: str, names: Sequence[str], answers: Tensor) -> list[Column]:
    """Returns a yes/no column per column of ``answers`` (N, C), which holds 0, 1 and NaN."""
    values = answers.float().nan_to_num(nan=-1).numpy().astype(np.int32)
    pairs = zip(names[:MAX_COLUMNS], values.T, strict=False)
    return [Column(f"{kind} {name}", column, ["no", "yes"]) for name, column in pairs]


def _feature_columns(data: Data) -> list[Column]:
    """Returns the columns of dense features, and none of sparse features, which are words."""
    if data.x.layout != torch.strided:
        return []
    known, x = data.to_dict(), data.x.float().cpu().numpy()
    names = known.get("feature_names") or [f"feature {number}" for number in range(x.shape[1])]
    levels = known.get("feature_levels") or {}
    columns = decode(x, list(map(str, names)), levels).items()
    return [
        Column(name, values.astype(np.int32 if name in levels else np.float32), levels.get(name))
        for name, values in list(columns)[:MAX_COLUMNS]
    ]


@torch.no_grad()
def gather_views(
    model: Any,
    inputs: Sequence[Tensor],
    output: Tensor,
    edge_values: Mapping[str, Tensor] | None = None,
    used: bool = True,
) -> list[View]:
    """Runs a model once and returns a view of each layer with attention, those with attention to
    all nodes first; then one of the model's output, which has a coordinate for each class.

    A layer without an embedding, as :class:`~torch_geometric.nn.GATConv`, is shown with the nodes
    at the model's output.

    Args:
        model (torch.nn.Module): The model.
        inputs (list of torch.Tensor): Its positional arguments.
        output (torch.Tensor): Its output, :math:`(N, C)`.
        edge_values (dict, optional): Its keyword arguments. (default: :obj:`None`)
        used (bool, optional): Whether the model's global path was switched on in the epoch that
            counts. (default: :obj:`True`)
    """
    layers = dict(attention_layers(model))
    shown = view_layers(model, inputs, edge_values)
    views = [_view(layers[view.name], view, output, used) for view in shown]
    note = "The model's output: one coordinate for each class or number."
    last = View("output", _array(output.unsqueeze(1)), note=note)
    return [*sorted(views, key=lambda view: view.decay_global is None), last]


def _view(layer: Any, shown: LayerView, output: Tensor, used: bool) -> View:
    name, heads, notes = shown.name.replace("-", " "), layer.heads, []
    if isinstance(layer, GlobalBlock):
        gate = float(layer.gate.square().mean().sqrt())
        notes.append(f"Gate {gate:.2g} (root mean square): how much of what is gathered is added.")
        if not used:
            local = "The epoch that counts was a local one"
            notes.append(f"{local}: the predictions do without this block.")
    positions = shown.positions
    if positions is None:
        notes.append("The layer has no embedding: the nodes are shown at the model's output.")
        positions = output.unsqueeze(1).expand(-1, heads, -1)
    if shown.keys is not None:
        others = "other nodes"
        if isinstance(layer, LabelAttention):
            others = "labelled nodes"
            notes.append("These labelled nodes decided it: their labels are in its prediction.")
        whom = f"A node attends to {others}, never to itself"
        notes.append(f"{whom}; its {STRONGEST} strongest of each head are shown.")
        far, note = _strongest_keys(shown), " ".join(notes)
        return View(name, _array(positions), far_attention=far, self_loops=False, note=note)
    decay_local = _per_head(layer.decay_local(), heads) if hasattr(layer, "decay_local") else None
    by_edge = None
    if shown.edges is not None and not (decay_local and _by_distance(shown, decay_local)):
        decay_local, by_edge = None, _edge_attention(shown, len(output))
    decay_global = None if shown.decay is None else _per_head(shown.decay, heads)
    loops, note = bool(getattr(layer, "add_self_loops", True)), " ".join(notes)
    decays = (decay_global, decay_local)
    return View(name, _array(positions), *decays, by_edge, self_loops=loops, note=note)


def _strongest_keys(shown: LayerView) -> EdgeAttention:
    """Returns the labelled nodes that each node attends to most, with their weights."""
    targets, weights = shown.strongest(STRONGEST)
    nodes, heads = targets.shape[:2]
    node, head, _ = (targets >= 0).nonzero().T
    kept = targets >= 0
    pairs, place = torch.unique(torch.stack([node, targets[kept]]), dim=1, return_inverse=True)
    by_head = torch.zeros(pairs.size(1), heads)
    by_head[place, head] = weights[kept].float()
    owners, keys = pairs.numpy()
    return EdgeAttention(_starts(owners, nodes), keys.astype(np.int32), by_head.numpy())


def _by_distance(shown: LayerView, decay: Sequence[float]) -> bool:
    """Returns whether attention to neighbours follows from distances only."""
    assert shown.edges is not None and shown.weights is not None and shown.positions is not None
    source, target = shown.edges
    distances = (shown.positions[source] - shown.positions[target]).double().norm(dim=-1)
    scores = -torch.tensor(decay, dtype=torch.float64) * distances
    weights = softmax(scores, target, num_nodes=len(shown.positions))
    return bool(torch.allclose(weights, shown.weights.double(), atol=1e-5))


def _edge_attention(shown: LayerView, nodes: int) -> EdgeAttention:
    """Sorts the edges of a layer by target. Weights are rounded to 2⁻¹⁶ to compress better."""
    assert shown.edges is not None and shown.weights is not None
    sources, targets = shown.edges.numpy()
    order = np.argsort(targets, kind="stable")
    weights = np.round(shown.weights.float().numpy()[order] * 2**16) / np.float32(2**16)
    keys = sources[order].astype(np.int32)
    return EdgeAttention(_starts(targets, nodes), keys, weights.astype(np.float32))


def _per_head(decay: float | Tensor, heads: int) -> list[float]:
    values: list[float] = torch.as_tensor(decay, dtype=torch.float64).cpu().expand(heads).tolist()
    return values


def _array(positions: Tensor) -> Array:
    return positions.float().cpu().contiguous().numpy()


def prediction_columns(
    predicted: Tensor, probabilities: Tensor | None, y: Tensor, classes: Sequence[str]
) -> list[Column]:
    """Returns predictions as columns, and their difference from the labels ``y``. Classes or
    numbers are (N,), with ``probabilities`` (N, C) of classes; several labels per node are (N, C).
    """
    if predicted.dim() == 2:
        return _answer_columns("predicted", classes, predicted)
    if probabilities is None:
        error = (predicted - y).abs().float()
        return [Column("prediction", predicted.float().numpy()), Column("error", error.numpy())]
    right = (predicted == y).long().masked_fill(y < 0, -1)
    return [
        Column("prediction", predicted.numpy().astype(np.int32), list(classes)),
        Column("correctness", right.numpy().astype(np.int32), ["wrong", "right"]),
        Column("confidence", probabilities.max(dim=1).values.float().numpy()),
    ]


def split_column(split: Split) -> Column:
    role = np.full(len(split.train), -1, np.int32)
    for number, members in enumerate((split.train, split.val, split.test)):
        role[members.cpu().numpy()] = number
    return Column("split", role, ["train", "validation", "test"])
