"""Draws the nodes that one node attends to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..data.labels import labelled, task_of
from ..text import amount
from .layers import LayerView
from .style import colour_nodes, headline, label, legend, panels, say_instead, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STRONGEST = 10  # targets drawn per head, besides the node itself
MOST_LETTERS = 14  # of a node's id beside its bar


class Strongest(NamedTuple):
    """The strongest targets of a node per head, -1 for none, and their weights, both (H, k)."""

    targets: Tensor
    weights: Tensor


def strongest_neighbours(view: LayerView, node: int) -> Strongest:
    """Finds the neighbours that a node attends to most, perhaps itself among them."""
    assert view.edges is not None and view.weights is not None
    incoming = view.edges[1] == node
    weights = view.weights[incoming].T
    weights, order = weights.topk(min(STRONGEST + 1, weights.size(1)))
    return Strongest(view.edges[0, incoming][order], weights)


def strongest_anywhere(view: LayerView, node: int) -> Strongest:
    """Finds the nodes of the graph that a node attends to most."""
    targets, weights = view.strongest(STRONGEST + 1, torch.tensor([node]))
    return Strongest(targets[0], weights[0])


def draw_attention(found: Strongest, node: int, data: Data, title: str) -> Figure:
    """Draws the weights of the strongest targets as bars, one panel per head, coloured by label;
    neighbours in bold. The title has the node's own weight, often the largest."""
    if not bool(((found.targets >= 0) & (found.targets != node)).any()):
        return say_instead(f"no edges: node {data.node_id[node]} attends to itself only", title)
    figure, axes = panels(len(found.targets), height=2.6)
    painted, entries = colour_nodes(data.y, data.classes)
    neighbours = {*data.edge_index[0, data.edge_index[1] == node].tolist()}
    heads = zip(axes, found.targets.tolist(), found.weights.tolist(), strict=True)
    for head, (axis, targets, weights) in enumerate(heads):
        pairs = [pair for pair in zip(targets, weights, strict=True) if pair[0] >= 0]
        own = sum(weight for target, weight in pairs if target == node)
        shown = [pair for pair in pairs if pair[0] != node][:STRONGEST]
        _draw_bars(axis, shown, painted, data.node_id, neighbours)
        share = sum(weight for _, weight in shown)
        axis.set_title(f"head {head}: itself {_percent(own)}, these {_percent(share)}", fontsize=9)
    legend(figure, entries)
    headline(figure, title)
    return figure


def _draw_bars(
    axis: Axes,
    shown: list[tuple[int, float]],
    painted: list[str],
    ids: list[str],
    neighbours: set[int],
) -> None:
    from matplotlib.ticker import FuncFormatter

    targets, weights = [target for target, _ in shown], [weight for _, weight in shown]
    bars = range(len(shown))
    axis.barh(bars, weights, color=[painted[target] for target in targets])
    axis.set_yticks(
        bars, [label(shorten(ids[target], MOST_LETTERS)) for target in targets], fontsize=7
    )
    for text, target in zip(axis.get_yticklabels(), targets, strict=True):
        text.set_fontweight("bold" if target in neighbours else "normal")
    axis.invert_yaxis()
    axis.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.3g} %"))
    axis.locator_params(axis="x", nbins=3)
    axis.tick_params(axis="x", labelsize=7)
    axis.set_xlabel("share of the node's attention", fontsize=8)


def _percent(share: float) -> str:
    """Formats a share so that a small one is not 0."""
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.2g} %"


def label_of(data: Data, node: int) -> str:
    """Returns a node's label in words."""
    if not bool(labelled(data.y)[node]):
        return "unlabelled"
    if task_of(data.y) == "regression":
        return amount(float(data.y[node]))
    if data.y.dim() == 1:
        return str(data.classes[int(data.y[node])])
    pairs = zip(data.classes, data.y[node].tolist(), strict=True)
    return ", ".join(name for name, holds in pairs if holds) or "none"
