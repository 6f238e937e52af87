r"""What the layers of a model show on a graph: embeddings, and attention to neighbours and to all nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import GATConv

from ..nn.distance_conv import DistanceConv
from ..nn.global_block import GlobalBlock
from ..nn.label_attention import LabelAttention
from ..nn.top_attention import top_attention


class LayerView(NamedTuple):
    r"""A layer seen on one graph.

    Args:
        name (str): ``"layer-0"``; of ``global-gnn`` ``"local-0"`` or ``"global-0"``.

    Shapes:
        - **positions:** :math:`(N, H, D)`, or :obj:`None` where no distances are taken
        - **edges**, **weights:** :math:`(2, E)` and :math:`(E, H)`, attention to neighbours, or :obj:`None` without
        - **decay:** that of attention to all nodes, a number or :math:`(H,)`, or :obj:`None` without
        - **keys:** the nodes whose labels are attended to, never by themselves, :math:`(K,)`, or :obj:`None`
    """

    name: str
    positions: Tensor | None
    edges: Tensor | None
    weights: Tensor | None
    decay: float | Tensor | None
    keys: Tensor | None = None

    def to_cpu(self) -> LayerView:
        """Returns the same with all tensors on the CPU."""
        moved: dict[str, Any] = {name: part.cpu() for name, part in self._asdict().items() if isinstance(part, Tensor)}
        return self._replace(**moved)

    def strongest(self, count: int, nodes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns the targets of nodes (default: all) on the global path, and their weights, both (M, H, count)."""
        assert self.decay is not None and self.positions is not None
        return top_attention(self.positions, self.decay, count, nodes, keys=self.keys)


@torch.no_grad()
def view_layers(model: Any, inputs: Sequence[Tensor], edge_values: Mapping[str, Tensor] | None = None) -> list[LayerView]:
    """Runs a model once and returns what each of its layers with attention shows, in their order; tensors on the CPU.

    A layer that is switched off, as global attention may be, is left out.
    """
    layers = list(attention_layers(model))
    calls = _record_calls([_hooked(layer) for _, layer in layers], model, inputs, edge_values or {})
    views = [_view(name, layer, *calls[_hooked(layer)]) for name, layer in layers if _hooked(layer) in calls]
    labelled = (edge_values or {}).get("labelled")
    keys = None if labelled is None else labelled.nonzero().flatten()
    views = [_with_keys(view, keys) if view.name.startswith("labels") else view for view in views]
    return [view.to_cpu() for view in views]


def _with_keys(view: LayerView, keys: Tensor | None) -> LayerView:
    """Adds the labelled nodes to the view of a layer that attends to them; of another graph there is no such attention."""
    return view._replace(decay=None) if keys is None else view._replace(keys=keys)


def attention_layers(model: Any) -> Iterator[tuple[str, Any]]:
    """Yields the layers with attention and their names, as :func:`view_layers` calls them."""
    parts = (
        ("layer", getattr(model, "convs", ())),
        ("local", [block.conv for block in getattr(model, "local_blocks", ())]),
        ("global", getattr(model, "global_blocks", ())),
        ("labels", getattr(model, "attentions", ())),
    )
    for kind, layers in parts:
        for number, layer in enumerate(layers):
            if isinstance(layer, (GATConv, DistanceConv, GlobalBlock, LabelAttention)):
                yield f"{kind}-{number}", layer


def _hooked(layer: Any) -> Any:
    """Returns the module whose call is recorded: of a global block its embedding, as models call one of two methods."""
    return layer.lin_position if isinstance(layer, (GlobalBlock, LabelAttention)) else layer


Call = tuple[tuple[Any, ...], dict[str, Any]]


def _record_calls(
    modules: Sequence[torch.nn.Module], model: Any, inputs: Sequence[Tensor], edge_values: Mapping[str, Tensor]
) -> dict[torch.nn.Module, Call]:
    """Runs a model in evaluation mode; returns the arguments that its modules were called with, those that were called."""
    calls: dict[torch.nn.Module, Call] = {}

    def keep(module: torch.nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        calls[module] = arguments, options

    handles = [module.register_forward_pre_hook(keep, with_kwargs=True) for module in modules]
    training = model.training
    try:
        model.eval()(*inputs, **edge_values)
    finally:
        model.train(training)
        for handle in handles:
            handle.remove()
    return calls


def _view(name: str, layer: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> LayerView:
    """Calls a layer again as the model did, for its embedding and its attention."""
    if isinstance(layer, (GlobalBlock, LabelAttention)):
        positions = layer.lin_position(*arguments, **options).view(-1, layer.heads, layer.embedding_dim)
        return LayerView(name, positions, None, None, layer.decay())
    training = layer.training
    _, (edges, weights) = layer.eval()(*arguments, **{**options, "return_attention_weights": True})
    layer.train(training)
    positions = layer.project(arguments[0])[0] if isinstance(layer, DistanceConv) else None
    decay = layer.decay_global() if hasattr(layer, "decay_global") else None
    return LayerView(name, positions, edges, weights, decay)
