r"""What a layer of a model shows: its embedding, and its attention to neighbours and to all nodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..nn.attention_statistics import first_inputs
from ..nn.top_attention import top_attention
from .embeddings import layer_input


class LayerView(NamedTuple):
    r"""A layer seen on one graph.

    Shapes:
        - **positions:** :math:`(N, H, D)`
        - **edges**, **weights:** :math:`(2, E)` and :math:`(E, H)`, attention to neighbours, or :obj:`None` without
        - **decay:** that of attention to all nodes, a number or :math:`(H,)`, or :obj:`None` without
    """

    positions: Tensor
    edges: Tensor | None
    weights: Tensor | None
    decay: float | Tensor | None

    def strongest(self, node: int, count: int) -> tuple[Tensor, Tensor]:
        """Returns the targets on the global path of one node, and their weights, both (H, count)."""
        assert self.decay is not None
        targets, weights = top_attention(self.positions, self.decay, count, torch.tensor([node]))
        return targets[0], weights[0]


@torch.no_grad()
def view_layer(model: Any, layer: int, x: Tensor, edge_index: Tensor) -> LayerView:
    """Runs a model that :func:`has_embedding` and returns what one of its layers, or of its global blocks, shows."""
    blocks = getattr(model, "global_blocks", None)
    if blocks is None:
        hidden = layer_input(model, layer, x, edge_index)
        return _view_conv(model.convs[layer], hidden, edge_index)
    if not 0 <= layer < len(blocks):
        raise ValueError(f"layer is {layer}; allowed: 0 to {len(blocks) - 1}, the blocks of global attention")
    block = blocks[layer]
    (normed,) = first_inputs([block.lin_position], model, (x, edge_index))
    positions = block.lin_position(normed).view(-1, block.heads, block.embedding_dim)
    return LayerView(positions, None, None, block.decay())


def has_embedding(model: Any) -> bool:
    """Tells whether distances in an embedding decide what the layers of a model attend to."""
    if getattr(model, "global_blocks", None):
        return True
    convs: Any = getattr(model, "convs", [])
    return len(convs) > 0 and hasattr(convs[0], "project")


def _view_conv(conv: Any, hidden: Tensor, edge_index: Tensor) -> LayerView:
    positions, _ = conv.project(hidden)
    _, (edges, weights) = conv(hidden, edge_index, return_attention_weights=True)
    return LayerView(positions, edges, weights, conv.decay_global() if hasattr(conv, "decay_global") else None)
