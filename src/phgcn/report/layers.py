"""Views of a model's layers on a graph: embeddings, attention to neighbours and to all nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import GATConv

from ..nn.eda_conv import EDAConv
from ..nn.global_block import GlobalBlock
from ..nn.graph_input import record_calls
from ..nn.label_attention import LabelAttention
from ..nn.top_attention import top_attention


class LayerView(NamedTuple):
    """A layer seen on one graph, named ``"layer-0"``, or of ``global-gnn`` ``"local-0"`` or
    ``"global-0"``. Missing fields are :obj:`None`.

    Shapes:
        - **positions:** :math:`(N, H, D)`, if the layer takes distances
        - **edges**, **weights:** attention to neighbours, :math:`(2, E)` and :math:`(E, H)`
        - **decay:** coefficient of attention to all nodes, a number or :math:`(H,)`
        - **keys:** the nodes that others attend to, never themselves, :math:`(K,)`; :obj:`None` for
          all nodes, themselves included
    """

    name: str
    positions: Tensor | None
    edges: Tensor | None
    weights: Tensor | None
    decay: float | Tensor | None
    keys: Tensor | None = None

    def to_cpu(self) -> LayerView:
        parts: list[Any] = [part.cpu() if isinstance(part, Tensor) else part for part in self]
        return LayerView(*parts)

    def strongest(self, count: int, nodes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns the strongest global targets of nodes and their weights, (M, H, count)."""
        assert self.decay is not None and self.positions is not None
        return top_attention(self.positions, self.decay, count, nodes, keys=self.keys)


@torch.no_grad()
def view_layers(
    model: Any, inputs: Sequence[Tensor], edge_values: Mapping[str, Tensor] | None = None
) -> list[LayerView]:
    """Runs a model once and returns views of its layers with attention, on the CPU. A layer that is
    switched off, as global attention may be, is left out."""
    layers = [(name, layer, _hooked(layer)) for name, layer in attention_layers(model)]
    calls = record_calls([module for _, _, module in layers], model, inputs, edge_values)
    labelled = (edge_values or {}).get("labelled")
    views = [_view(name, layer, *calls[at], labelled) for name, layer, at in layers if at in calls]
    return [view.to_cpu() for view in views]


def attention_layers(model: Any) -> Iterator[tuple[str, Any]]:
    """Yields the layers with attention and their names in :func:`view_layers`."""
    parts = (
        ("layer", getattr(model, "convs", ())),
        ("local", [block.conv for block in getattr(model, "local_blocks", ())]),
        ("global", getattr(model, "global_blocks", ())),
        ("labels", getattr(getattr(model, "label_path", None), "attentions", ())),
    )
    for kind, layers in parts:
        for number, layer in enumerate(layers):
            if isinstance(layer, (GATConv, EDAConv, GlobalBlock, LabelAttention)):
                yield f"{kind}-{number}", layer


def _hooked(layer: Any) -> Any:
    """Returns the module whose call is recorded: of a global block, its embedding."""
    return layer.lin_position if isinstance(layer, (GlobalBlock, LabelAttention)) else layer


def _view(
    name: str,
    layer: Any,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    labelled: Tensor | None,
) -> LayerView:
    """Calls a layer as the model did. The labelled nodes of another graph are unknown."""
    if isinstance(layer, (GlobalBlock, LabelAttention)):
        positions = layer.lin_position(*arguments, **options)
        positions = positions.view(-1, layer.heads, layer.embedding_dim)
        if isinstance(layer, LabelAttention):
            keys = None if labelled is None else labelled.nonzero().flatten()
            decay = None if labelled is None else layer.decay()
            return LayerView(name, positions, None, None, decay, keys)
        keys = torch.arange(len(positions)) if layer.others_only else None
        return LayerView(name, positions, None, None, layer.decay(), keys)
    training = layer.training
    _, (edges, weights) = layer.eval()(*arguments, **{**options, "return_attention_weights": True})
    layer.train(training)
    positions = layer.project(arguments[0])[0] if isinstance(layer, EDAConv) else None
    decay = layer.decay_global() if hasattr(layer, "decay_global") else None
    return LayerView(name, positions, edges, weights, decay)
