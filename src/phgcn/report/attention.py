r"""Draws what one node attends to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from .fonts import label
from .node_colours import colour_nodes
from .style import headline, legend, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STRONGEST = 10
"""Targets drawn per head, besides the node itself."""

HeadTargets = list[tuple[int, float]]
"""Targets of one head and their attention weights, strongest first."""


def strongest_neighbours(edges: Tensor, weights: Tensor, node: int) -> list[HeadTargets]:
    r"""Finds the neighbours of a node with the largest weights, for each head.

    Shapes:
        - **edges:** :math:`(2, E)`, **weights:** :math:`(E, H)`
    """
    incoming = edges[1] == node
    sources, weight = edges[0, incoming], weights[incoming]
    order = weight.argsort(dim=0, descending=True)[: STRONGEST + 1]  # the node itself may be one of them
    return [[(int(sources[edge]), float(weight[edge, head])) for edge in order[:, head]] for head in range(weights.size(1))]


def strongest_anywhere(targets: Tensor, weights: Tensor) -> list[HeadTargets]:
    r"""Lists the strongest targets of one node, for each head.

    Shapes:
        - **targets**, **weights:** :math:`(H, k)`; -1 where there is no target
    """
    rows = zip(targets.tolist(), weights.tolist(), strict=True)
    return [[(node, weight) for node, weight in zip(*row, strict=True) if node >= 0] for row in rows]


class DrawnNode(NamedTuple):
    """The node whose attention is drawn, and those with an edge to it."""

    number: int
    neighbours: set[int]


def draw_attention(
    heads: list[HeadTargets], node: DrawnNode, y: Tensor, ids: list[str], names: list[str], title: str
) -> Figure:
    """Draws the weights of the strongest targets as bars, one panel per head, coloured by label; neighbours in bold.

    The node's own weight, often most of all, is a number in the title: as a bar it would make all others invisible.
    """
    from matplotlib.ticker import FuncFormatter

    figure, axes = panels(len(heads), height=2.6)
    painted, entries = colour_nodes(y, names)
    for head, (axis, targets) in enumerate(zip(axes, heads, strict=True)):
        own = sum(weight for target, weight in targets if target == node.number)
        others = [(target, weight) for target, weight in targets if target != node.number][:STRONGEST]
        targets_drawn, weights = [target for target, _ in others], [weight for _, weight in others]
        bars = range(len(others))
        axis.barh(bars, weights, color=[painted[target] for target in targets_drawn])
        axis.set_yticks(bars, [label(ids[target]) for target in targets_drawn], fontsize=7)
        for text, target in zip(axis.get_yticklabels(), targets_drawn, strict=True):
            text.set_fontweight("bold" if target in node.neighbours else "normal")
        axis.invert_yaxis()
        axis.set_title(f"head {head}: itself {_percent(own)}, these {_percent(sum(weights))}", fontsize=9)
        axis.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.3g} %"))
        axis.locator_params(axis="x", nbins=3)
        axis.tick_params(axis="x", labelsize=7)
        axis.set_xlabel("share of the node's attention", fontsize=8)
    legend(figure, entries)
    headline(figure, title)
    return figure


def _percent(share: float) -> str:
    """Formats a share so that a small one is not 0."""
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.2g} %"


def neighbours_of(node: int, edge_index: Tensor) -> set[int]:
    """Returns the nodes with an edge to this one."""
    return {*edge_index[0, edge_index[1] == node].tolist()}


def pick_node(wanted: str | None, ids: list[str], test: Tensor) -> int:
    """Returns the number of the node with an id; the first test node if ``wanted`` is :obj:`None`."""
    if wanted is None:
        return int(test[0])
    if wanted not in ids:
        raise ValueError(f"node is {wanted!r}; allowed: the id of a node, such as {ids[0]!r}")
    return ids.index(wanted)
