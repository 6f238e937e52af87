r"""Labels of training nodes as inputs of a model that has :class:`phgcn.nn.LabelAttention`.

In a step, a random part of the training nodes are keys and the others are predicted. Of the graph
that it was trained on, a model reads the labels of the training nodes. Nodes of another graph
attend to the keys that were kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from ..nn.label_attention import LabelAttention

KEY_PAIRS = 2**22
"""Upper bound of pairs of nodes and keys in a step of :func:`deciding_keys`: bounds the memory."""

Labels = dict[str, Tensor]
"""The arguments ``y`` and ``labelled`` of a model's forward pass; none for a model that takes no
labels."""


def label_attentions(model: Module) -> dict[str, LabelAttention]:
    """Returns the layers of a model that attend to labels, by name."""
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, LabelAttention)}


def label_inputs(model: Module, values: Tensor, train: Tensor) -> Labels:
    """Returns the labels of training nodes as inputs of a model.

    Args:
        model (torch.nn.Module): The model.
        values (torch.Tensor): The labels of all nodes as
            :meth:`phgcn.train.tasks.TaskKind.label_values` gives them.
        train (torch.Tensor): The indices of the training nodes.
    """
    if not label_attentions(model):
        return {}
    return {
        "y": values,
        "labelled": torch.zeros(len(values), dtype=torch.bool, device=values.device).index_fill(0, train, True),
    }


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
        """Returns all parts by name, to be kept with the weights."""
        positions = {f"positions.{name}": rows for name, rows in self.positions.items()}
        return {"nodes": self.nodes, "values": self.values, "ids": self.ids, **positions}

    @classmethod
    def restored(cls, tensors: Mapping[str, Tensor]) -> KeptKeys | None:
        """Returns what :meth:`tensors` gave; without any, :obj:`None`."""
        if not tensors:
            return None
        start = "positions."
        positions = {name.removeprefix(start): rows for name, rows in tensors.items() if name.startswith(start)}
        return cls(tensors["nodes"], tensors["values"], positions, tensors["ids"])

    def set(self, model: Module) -> None:
        """Lets the layers of a model attend to these nodes when they get no labels."""
        for name, layer in label_attentions(model).items():
            layer.set_keys(self.positions[name], self.values)

    def own_labels(self, nodes: int, device: torch.device | str) -> Labels:
        """Returns the labels as inputs, for the graph of the training with so many nodes."""
        values = torch.zeros(nodes, self.values.size(1)).index_copy(0, self.nodes, self.values)
        labelled = torch.zeros(nodes, dtype=torch.bool).index_fill(0, self.nodes, True)
        return {"y": values.to(device), "labelled": labelled.to(device)}

    def names(self) -> list[str]:
        """Returns the ids of the nodes."""
        return bytes(self.ids.tolist()).decode().split("\n")


@torch.no_grad()
def keep_keys(model: Module, inputs: Sequence[Tensor], labels: Labels, ids: Sequence[str]) -> KeptKeys:
    """Runs a model once, and returns what it attends to of the training nodes.

    Args:
        model (torch.nn.Module): The trained model.
        inputs (sequence of torch.Tensor): What it takes of the graph.
        labels (dict): What :func:`label_inputs` returned.
        ids (sequence of str): The ids of all nodes.
    """
    layers = label_attentions(model)
    handles = [layer.register_forward_pre_hook(_keep) for layer in layers.values()]
    try:
        model.eval()(*inputs, **labels)
    finally:
        for handle in handles:
            handle.remove()
    nodes = labels["labelled"].nonzero().flatten().cpu()
    names = "\n".join(ids[node] for node in nodes.tolist()).encode()
    positions = {name: layer.kept_positions.cpu().clone() for name, layer in layers.items()}
    values = next(iter(layers.values())).kept_values.cpu().clone()
    return KeptKeys(nodes, values, positions, torch.frombuffer(bytearray(names), dtype=torch.uint8))


def _keep(layer: Any, arguments: tuple[Any, ...]) -> None:
    layer.keep_keys(*arguments[:3])


class Deciding(NamedTuple):
    """The keys that decide the outputs of nodes: indices into the keys and weights, both (M, k),
    strongest first; -1 and 0 beyond the last key."""

    keys: Tensor
    weights: Tensor


class LayerPositions(NamedTuple):
    """The positions of nodes in a layer that has kept its keys, :math:`(M, H, D)`, and the layer's
    share of the mean label."""

    layer: LabelAttention
    positions: Tensor
    share: float


@torch.no_grad()
def layer_positions(model: Any, inputs: Sequence[Tensor], values: Mapping[str, Tensor]) -> list[LayerPositions]:
    """Runs a model once, and returns the positions of all nodes in each layer that attends to
    labels."""
    layers, seen = label_attentions(model), {}
    shares = model.attention_shares() if hasattr(model, "attention_shares") else [1.0] * len(layers)

    def keep(layer: LabelAttention, arguments: tuple[Any, ...]) -> None:
        seen[layer] = layer.positions(arguments[0])

    handles = [layer.register_forward_pre_hook(keep) for layer in layers.values()]
    try:
        model.eval()(*inputs, **values)
    finally:
        for handle in handles:
            handle.remove()
    return [LayerPositions(layer, seen[layer], share) for layer, share in zip(layers.values(), shares, strict=True)]


@torch.no_grad()
def deciding_keys(parts: Sequence[LayerPositions], own: Tensor, count: int) -> Deciding:
    """Finds the keys with the largest weights in the mean label of each node, over all layers and
    heads.

    Args:
        parts (sequence of LayerPositions): What :func:`layer_positions` returned, or rows of it.
        own (torch.Tensor): The index of each node among the keys, which it does not attend to; -1
            for none, :math:`(M,)`.
        count (int): How many keys of each node.
    """
    nodes, keys = len(own), len(parts[0].layer.kept_positions)
    found = Deciding(torch.full((nodes, count), -1, dtype=torch.int64), torch.zeros(nodes, count))
    step = max(1, KEY_PAIRS // keys)
    for start in range(0, nodes, step):
        rows = slice(start, start + step)
        total = torch.stack([part.share * _key_weights(part, rows, own[rows]) for part in parts]).sum(dim=0)
        best, index = total.topk(min(count, keys), dim=1)
        found.keys[rows, : best.size(1)], found.weights[rows, : best.size(1)] = index.cpu(), best.cpu()
    return found


def _key_weights(part: LayerPositions, rows: slice, own: Tensor) -> Tensor:
    """Computes the weight of each key for some nodes, (M, K), by the sum over all pairs."""
    layer, positions = part.layer, part.positions[rows].transpose(0, 1)
    keys, hidden = layer.kept_positions.transpose(0, 1), (own >= 0).nonzero().flatten()
    decay = torch.as_tensor(layer.decay()).expand(layer.heads).view(-1, 1, 1)
    scores = -decay * torch.cdist(positions, keys, compute_mode="donot_use_mm_for_euclid_dist")
    scores[:, hidden, own[hidden]] = -torch.inf
    return torch.einsum("hmk,h->mk", scores.softmax(dim=2), layer.head_shares.softmax(dim=0))
