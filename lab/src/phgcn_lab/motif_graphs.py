r"""The paper's first experiment: chains of motifs, in which a node's label depends on what is
frequent in the whole graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch_geometric.data import Data

from .arrays import Ints

COLOURS = ("red", "blue", "green", "spacer")
"""The feature vector of a node is the one-hot vector of its colour."""

RED, BLUE, GREEN, SPACER = range(4)


@dataclass(frozen=True)
class Element:
    """A piece of the chain, linked to its neighbours by its first and last node."""

    colours: tuple[int, ...]  # of its nodes
    edges: tuple[tuple[int, int], ...]


def _path(*colours: int, extra: tuple[tuple[int, int], ...] = ()) -> Element:
    return Element(colours, (*((i, i + 1) for i in range(len(colours) - 1)), *extra))


def _between(*inner: int, extra: tuple[tuple[int, int], ...] = ()) -> Element:
    """Two spacers on either side: three hops from the red node in the middle never leave the
    motif."""
    return _path(SPACER, SPACER, *inner, SPACER, SPACER, extra=extra)


SPACER_NODE = _path(SPACER)
RED_NODE = 3  # The place of the red node in every motif

VARIANTS = {
    "colour": (_between(BLUE, RED, BLUE), _between(GREEN, RED, GREEN)),
    "wiring": (_between(BLUE, RED, BLUE), _between(BLUE, RED, BLUE, extra=((2, 4),))),
}
r"""The two motifs of each variant. ``"colour"``: a red node between two blue ones, or between two
green ones. ``"wiring"``, which is harder: the red node and two blue ones form a path, or a
triangle."""


def motif_graphs(
    count: int, elements: int = 10, variant: str = "colour", seed: int | tuple[int, ...] = 0
) -> Data:
    r"""Draws random chains of elements, each a motif_1, a motif_2 or a spacer node.

    A red node is positive when its motif is the more frequent one in its graph.  Each graph has
    both motifs, not equally often.

    Args:
        count (int): The number of graphs.
        elements (int, optional): The length of each chain, at least 3. (default: :obj:`10`)
        variant (str, optional): ``"colour"`` or ``"wiring"``. (default: :obj:`"colour"`)
        seed (int or tuple, optional): The same seed gives the same graphs. (default: :obj:`0`)

    Returns:
        All graphs as one :class:`torch_geometric.data.Data`: ``x`` :math:`(N, 4)`, ``edge_index``
        in both directions without self-loops, ``batch`` :math:`(N,)`, ``y`` :math:`(N,)` with -1
        for nodes that are not red, ``asked`` :math:`(2 \cdot \text{count},)`, a red node of each
        motif of each graph drawn at random, first that of motif_1: one is positive, one negative;
        and ``lead`` :math:`(\text{count},)`, by how many elements motif_1 is ahead of motif_2.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant is {variant!r}; allowed: {', '.join(map(repr, VARIANTS))}")
    if elements < 3:
        allowed = "at least 3, for two motifs that are not equally frequent"
        raise ValueError(f"elements is {elements}; allowed: {allowed}")
    if count < 1:
        raise ValueError(f"count is {count}; allowed: at least 1")
    random = np.random.default_rng(seed)
    kinds = (*VARIANTS[variant], SPACER_NODE)
    drawn = np.stack([_draw_chain(elements, random) for _ in range(count)])
    sizes = np.array([len(kind.colours) for kind in kinds])[drawn]
    first = (np.cumsum(sizes) - sizes.ravel()).reshape(drawn.shape)
    colour, label = np.empty(sizes.sum(), np.int64), np.full(sizes.sum(), -1)
    lead, edges = (drawn == 0).sum(1) - (drawn == 1).sum(1), []
    dominant = np.where(lead > 0, 0, 1)
    for number, kind in enumerate(kinds):
        graph, index = np.nonzero(drawn == number)
        start = first[graph, index]
        colour[start[:, None] + np.arange(len(kind.colours))] = kind.colours
        inside = np.array(kind.edges, np.int64).reshape(-1, 2)
        edges.append((start[:, None, None] + inside).reshape(-1, 2))
        if number < 2:
            label[start + RED_NODE] = dominant[graph] == number
    # the node before, and the first one
    links = np.stack([first[:, 1:] - 1, first[:, 1:]], axis=-1).reshape(-1, 2)
    motifs = ((g, motif) for g in range(count) for motif in (0, 1))
    asked = [random.choice(first[g][drawn[g] == motif]) + RED_NODE for g, motif in motifs]
    pairs = torch.from_numpy(np.concatenate([*edges, links])).t()
    return Data(
        x=torch.nn.functional.one_hot(torch.from_numpy(colour), len(COLOURS)).float(),
        edge_index=torch.cat([pairs, pairs.flip(0)], dim=1),
        y=torch.from_numpy(label),
        batch=torch.from_numpy(np.repeat(np.arange(count), sizes.sum(axis=1))),
        asked=torch.from_numpy(np.array(asked)),
        lead=torch.from_numpy(lead),
    )


def _draw_chain(elements: int, random: np.random.Generator) -> Ints:
    """Draws the kind of each of ``elements``: motif 0, motif 1 or spacer 2.  Repeats the draw until
    both motifs occur and one is more frequent."""
    while True:
        drawn = random.integers(3, size=elements)
        first, second = (drawn == 0).sum(), (drawn == 1).sum()
        if 0 < first != second > 0:
            return drawn
