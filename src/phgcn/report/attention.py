r"""What one node attends to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from .style import colours, headline, legend, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STRONGEST = 10


def strongest_neighbours(edges: Tensor, weights: Tensor, node: int) -> list[list[tuple[int, float]]]:
    r"""The neighbours of a node with the largest weights, for each head.

    Shapes:
        - **edges:** :math:`(2, E)`, **weights:** :math:`(E, H)`
    """
    into = edges[1] == node
    found, weight = edges[0, into], weights[into]
    order = weight.argsort(dim=0, descending=True)[:STRONGEST]
    return [[(int(found[index]), float(weight[index, head])) for index in order[:, head]] for head in range(weights.size(1))]


def strongest_anywhere(targets: Tensor, weights: Tensor) -> list[list[tuple[int, float]]]:
    r"""The strongest targets of one node, for each head.

    Shapes:
        - **targets**, **weights:** :math:`(H, k)`; -1 where there is no target
    """
    rows = zip(targets.tolist(), weights.tolist(), strict=True)
    return [[(node, weight) for node, weight in zip(*row, strict=True) if node >= 0] for row in rows]


def draw_attention(
    found: list[list[tuple[int, float]]], y: Tensor, ids: list[str], names: list[str], neighbours: set[int], title: str
) -> Figure:
    """The weights of the strongest targets as bars, one panel per head, coloured by class; neighbours in bold."""
    figure, axes = panels(len(found), height=2.6)
    palette = colours(len(names))
    for head, (axis, row) in enumerate(zip(axes, found, strict=True)):
        labels = [int(y[node]) for node, _ in row]
        places = range(len(row))
        axis.barh(
            places, [weight for _, weight in row], color=[palette[label] if label >= 0 else "#cccccc" for label in labels]
        )
        axis.set_yticks(places, [ids[node] for node, _ in row], fontsize=7)
        for text, (node, _) in zip(axis.get_yticklabels(), row, strict=True):
            text.set_fontweight("bold" if node in neighbours else "normal")
        axis.invert_yaxis()
        axis.set_title(f"head {head}: {100 * sum(weight for _, weight in row):.0f} % of all attention", fontsize=9)
        axis.tick_params(axis="x", labelsize=7)
    legend(figure, names, palette)
    headline(figure, title)
    return figure


def neighbours_of(node: int, edge_index: Tensor) -> set[int]:
    """The nodes with an edge to this one, and itself."""
    return {node, *edge_index[0, edge_index[1] == node].tolist()}


def pick_node(wanted: str | None, ids: list[str], test: Tensor) -> int:
    """The number of the node with that id; a test node with no wish."""
    if wanted is None:
        return int(test[0])
    if wanted not in ids:
        raise ValueError(f"node is {wanted!r}; allowed: the id of a node, such as {ids[0]!r}")
    return ids.index(wanted)
