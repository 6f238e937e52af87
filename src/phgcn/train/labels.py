"""Labels of training nodes as inputs of a model with :class:`phgcn.nn.LabelAttention`.

In a training step, random training nodes are keys and the others are predicted. After the training
all training nodes are keys, which are kept for the nodes of other graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from ..nn.graph_input import record_calls
from ..nn.label_attention import LabelAttention
from ..nn.top_attention import exponents, row_slices
from .features import select_rows
from .state import with_prefix

# the arguments ``y`` and ``labelled`` of a model's forward pass, if it takes labels
Labels = dict[str, Tensor]


def label_attentions(model: Module) -> dict[str, LabelAttention]:
    layers = model.named_modules()
    return {name: layer for name, layer in layers if isinstance(layer, LabelAttention)}


def label_inputs(model: Module, values: Tensor, train: Tensor) -> Labels:
    """Returns the labels of training nodes as inputs of a model, from the ``values`` of all labels
    (:meth:`phgcn.train.tasks.TaskKind.label_values`) and the indices ``train``."""
    if not label_attentions(model):
        return {}
    labelled = torch.zeros(len(values), dtype=torch.bool, device=values.device)
    return {"y": values, "labelled": labelled.index_fill(0, train, True)}


def draw_keys(model: Any, labels: Labels) -> Labels:
    """Draws the keys of a step; none for a model that takes no labels."""
    return {"keys": model.draw_keys(labels["labelled"])} if labels else {}


class KeptKeys(NamedTuple):
    """The training nodes that a trained model attends to.

    Shapes:
        - **nodes:** their indices in the graph of the training, :math:`(K,)`
        - **values:** their labels as values, :math:`(K, C)`
        - **positions:** of each layer, by name, :math:`(K, H, D)`
        - **ids:** their ids, one byte per character and a line feed between two, uint8
    """

    nodes: Tensor
    values: Tensor
    positions: dict[str, Tensor]
    ids: Tensor

    def tensors(self) -> dict[str, Tensor]:
        positions = {f"positions.{name}": rows for name, rows in self.positions.items()}
        return {"nodes": self.nodes, "values": self.values, "ids": self.ids, **positions}

    @classmethod
    def restored(cls, tensors: Mapping[str, Tensor]) -> KeptKeys | None:
        """Makes the keys from :meth:`tensors`, if there are any."""
        if not tensors:
            return None
        positions = with_prefix(tensors, "positions.")
        return cls(tensors["nodes"], tensors["values"], positions, tensors["ids"])

    def set(self, model: Module) -> None:
        """Makes these nodes the keys of a model's layers in calls without labels."""
        for name, layer in label_attentions(model).items():
            layer.set_keys(self.positions[name], self.values)

    def own_labels(self, nodes: int, device: torch.device | str) -> Labels:
        """Returns the labels as inputs for the graph of the training, with ``nodes`` nodes."""
        values = torch.zeros(nodes, self.values.size(1)).index_copy(0, self.nodes, self.values)
        labelled = torch.zeros(nodes, dtype=torch.bool).index_fill(0, self.nodes, True)
        return {"y": values.to(device), "labelled": labelled.to(device)}

    def names(self) -> list[str]:
        return bytes(self.ids.tolist()).decode().split("\n")


def keep_keys(
    model: Module, inputs: Sequence[Tensor], labels: Labels, ids: Sequence[str]
) -> KeptKeys:
    """Runs a trained model once, and returns the training nodes as keys of its layers."""

    nodes = labels["labelled"].nonzero().flatten()
    if getattr(model, "rows_alone", False):
        inputs = (select_rows(inputs[0], nodes),)
        labels = {name: values[nodes] for name, values in labels.items()}
    # as keys, the training nodes need no outputs
    layers = label_attentions(model)
    calls = record_calls(layers.values(), model, inputs, {**labels, "keys": labels["labelled"]})
    for layer in layers.values():
        layer.keep_keys(*calls[layer][0][:3])
    nodes = nodes.cpu()
    positions = {name: layer.kept_positions.cpu().clone() for name, layer in layers.items()}
    values = next(iter(layers.values())).kept_values.cpu().clone()
    return KeptKeys(nodes, values, positions, encode_ids(ids, nodes))


def encode_ids(ids: Sequence[str], nodes: Tensor) -> Tensor:
    """Encodes the ids of nodes, or indices without ids: bytes with line feeds between ids."""
    names = "\n".join(ids[node] if ids else str(node) for node in nodes.tolist()).encode()
    return torch.tensor(list(names), dtype=torch.uint8)


class Deciding(NamedTuple):
    """Keys with the largest weights in the outputs of nodes: indices into the keys and weights, (M,
    k), in order of weight; -1 and 0 after the last key."""

    keys: Tensor
    weights: Tensor


class LayerPositions(NamedTuple):
    """A layer with kept keys, the nodes' positions (M, H, D), and its share of the mean."""

    layer: LabelAttention
    positions: Tensor
    share: float


@torch.no_grad()
def layer_positions(
    model: Any, inputs: Sequence[Tensor], values: Mapping[str, Tensor]
) -> list[LayerPositions]:
    """Runs a model once; returns all nodes' positions in layers that attend to labels."""
    layers = list(label_attentions(model).values())
    calls = record_calls(layers, model, inputs, values)
    path = getattr(model, "label_path", None)
    shares = [1.0] * len(layers) if path is None else path.attention_shares()
    features = [calls[layer][0][0] for layer in layers]
    parts = zip(layers, features, shares, strict=True)
    return [LayerPositions(layer, layer.positions(x), share) for layer, x, share in parts]


@torch.no_grad()
def deciding_keys(parts: Sequence[LayerPositions], own: Tensor, count: int) -> Deciding:
    """Finds the ``count`` keys of largest weight in each node's mean label, over all layers and
    heads. ``own`` (M,) is the node's index among the keys, or -1; a node does not attend to itself.
    """
    nodes, keys = len(own), len(parts[0].layer.kept_positions)
    found = Deciding(torch.full((nodes, count), -1, dtype=torch.int64), torch.zeros(nodes, count))
    most = max(part.layer.heads for part in parts)
    for rows in row_slices(nodes, most * keys):
        weights = [part.share * _key_weights(part, rows, own[rows]) for part in parts]
        best, index = torch.stack(weights).sum(dim=0).topk(min(count, keys), dim=1)
        found.keys[rows, : best.size(1)] = index.cpu()
        found.weights[rows, : best.size(1)] = best.cpu()
    return found


def _key_weights(part: LayerPositions, rows: slice, own: Tensor) -> Tensor:
    """Computes the weight of each key for some nodes, (M, K), by the sum over all pairs."""
    layer, hidden = part.layer, (own >= 0).nonzero().flatten()
    scores = exponents(part.positions[rows], layer.kept_positions, layer.decay())
    scores[:, hidden, own[hidden]] = -torch.inf
    return torch.einsum("hmk,h->mk", scores.softmax(dim=2), layer.head_shares.softmax(dim=0))
