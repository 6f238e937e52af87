r"""Draws what one node attends to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from ..text import printable
from .style import class_colour, colours, headline, legend, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STRONGEST = 10
"""Targets drawn per head."""

HeadTargets = list[tuple[int, float]]
"""Targets of one head and their attention weights, strongest first."""


def strongest_neighbours(edges: Tensor, weights: Tensor, node: int) -> list[HeadTargets]:
    r"""Finds the neighbours of a node with the largest weights, for each head.

    Shapes:
        - **edges:** :math:`(2, E)`, **weights:** :math:`(E, H)`
    """
    incoming = edges[1] == node
    sources, weight = edges[0, incoming], weights[incoming]
    order = weight.argsort(dim=0, descending=True)[:STRONGEST]
    return [[(int(sources[edge]), float(weight[edge, head])) for edge in order[:, head]] for head in range(weights.size(1))]


def strongest_anywhere(targets: Tensor, weights: Tensor) -> list[HeadTargets]:
    r"""Lists the strongest targets of one node, for each head.

    Shapes:
        - **targets**, **weights:** :math:`(H, k)`; -1 where there is no target
    """
    rows = zip(targets.tolist(), weights.tolist(), strict=True)
    return [[(node, weight) for node, weight in zip(*row, strict=True) if node >= 0] for row in rows]


def draw_attention(
    heads: list[HeadTargets], y: Tensor, ids: list[str], names: list[str], neighbours: set[int], title: str
) -> Figure:
    """Draws the weights of the strongest targets as bars, one panel per head, coloured by class; neighbours in bold."""
    figure, axes = panels(len(heads), height=2.6)
    palette = colours(len(names))
    for head, (axis, targets) in enumerate(zip(axes, heads, strict=True)):
        nodes, weights = [node for node, _ in targets], [weight for _, weight in targets]
        bars = range(len(targets))
        axis.barh(bars, weights, color=[class_colour(palette, int(y[node])) for node in nodes])
        axis.set_yticks(bars, [printable(ids[node]) for node in nodes], fontsize=7)
        for text, node in zip(axis.get_yticklabels(), nodes, strict=True):
            text.set_fontweight("bold" if node in neighbours else "normal")
        axis.invert_yaxis()
        axis.set_title(f"head {head}: {100 * sum(weights):.0f} % of all attention", fontsize=9)
        axis.tick_params(axis="x", labelsize=7)
    legend(figure, names, palette)
    headline(figure, title)
    return figure


def neighbours_of(node: int, edge_index: Tensor) -> set[int]:
    """Returns the nodes with an edge to this one, and the node itself."""
    return {node, *edge_index[0, edge_index[1] == node].tolist()}


def pick_node(wanted: str | None, ids: list[str], test: Tensor) -> int:
    """Returns the number of the node with an id; the first test node if ``wanted`` is :obj:`None`."""
    if wanted is None:
        return int(test[0])
    if wanted not in ids:
        raise ValueError(f"node is {wanted!r}; allowed: the id of a node, such as {ids[0]!r}")
    return ids.index(wanted)
