r"""What a page shows, before it is packed: the graph, and one or two trained models on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Column:
    r"""A property of the nodes that they can be coloured by.

    Args:
        name (str): Its name.
        values (numpy.ndarray): :math:`(N,)`; numbers, or indices into ``categories``, -1 for none.
        categories (list of str, optional): The names of the categories. (default: :obj:`None`, the values are numbers)
    """

    name: str
    values: Array
    categories: Sequence[str] | None = None


@dataclass(frozen=True)
class EdgeAttention:
    r"""Attention to neighbours that does not follow from distances alone, by edge.

    Args:
        starts (numpy.ndarray): :math:`(N + 1,)`; what node ``i`` attends to is ``sources[starts[i]:starts[i + 1]]``.
        sources (numpy.ndarray): :math:`(E,)`.
        weights (numpy.ndarray): float32 :math:`(E, H)`.
    """

    starts: Array
    sources: Array
    weights: Array


@dataclass(frozen=True)
class View:
    r"""The nodes in the embedding of one layer, and what decides attention there.

    Args:
        name (str): The name of the layer.
        positions (numpy.ndarray): float32 :math:`(N, H, D)`.
        decay_global (list of float, optional): The coefficient of attention to all nodes, one per head.
            (default: :obj:`None`, the layer has no such attention)
        decay_local (list of float, optional): The same of attention to neighbours. (default: :obj:`None`)
        edge_attention (EdgeAttention, optional): Attention to neighbours, where it has no such coefficient.
            (default: :obj:`None`)
        self_loops (bool, optional): Whether a node is among its own neighbours. (default: :obj:`True`)
        note (str, optional): What a reader should know of it. (default: none)
    """

    name: str
    positions: Array
    decay_global: Sequence[float] | None = None
    decay_local: Sequence[float] | None = None
    edge_attention: EdgeAttention | None = None
    self_loops: bool = True
    note: str = ""


@dataclass(frozen=True)
class Side:
    """One model on the graph; a page shows one, or two side by side.

    Args:
        title (str): Its name.
        views (list of View): The layers.
        columns (list of Column): What the model says of the nodes. ``"prediction"`` beside the graph's ``"class"`` gives a
            confusion table, and ``"split"`` says which nodes are test nodes.
        facts (dict, optional): Names and values in words, for a small table. (default: none)
        curves (dict, optional): One number per epoch, by name, with ``"epoch"`` among them. (default: none)
        best_epoch (int, optional): The epoch whose weights are shown. (default: :obj:`None`)
        summary (str, optional): One sentence: what is seen, and how the model scored. (default: none)
    """

    title: str
    views: Sequence[View]
    columns: Sequence[Column] = ()
    facts: dict[str, str] = field(default_factory=dict)
    curves: dict[str, list[float]] = field(default_factory=dict)
    best_epoch: int | None = None
    summary: str = ""


@dataclass(frozen=True)
class Content:
    r"""All that a page shows.

    Args:
        title (str): The heading.
        ids (list of str): The ids of the nodes, :math:`N` of them.
        starts (numpy.ndarray): :math:`(N + 1,)`; the neighbours of node ``i`` are ``sources[starts[i]:starts[i + 1]]``.
        sources (numpy.ndarray): :math:`(E,)`.
        columns (list of Column): What is known of the nodes without a model.
        sides (list of Side): One or two models.
        batch (numpy.ndarray, optional): The graph of each node, :math:`(N,)`; attention never crosses graphs.
            (default: :obj:`None`, one graph)
    """

    title: str
    ids: Sequence[str]
    starts: Array
    sources: Array
    columns: Sequence[Column]
    sides: Sequence[Side]
    batch: Array | None = None

    def __post_init__(self) -> None:
        nodes = len(self.ids)
        if nodes == 0:
            raise ValueError("ids is empty; allowed: at least one node")
        if not 1 <= len(self.sides) <= 2:
            raise ValueError(f"sides has {len(self.sides)} entries; allowed: one or two")
        for column in (*self.columns, *(column for side in self.sides for column in side.columns)):
            _check_length(f"column {column.name!r}", column.values, nodes)
        for side in self.sides:
            if not side.views:
                raise ValueError(f"side {side.title!r} has no views; allowed: at least one")
            for view in side.views:
                _check_view(view, nodes)
        _check_length("starts", self.starts, nodes + 1)


def _check_view(view: View, nodes: int) -> None:
    if view.positions.ndim != 3 or view.positions.dtype != np.float32:
        shape = f"{view.positions.dtype} of shape {view.positions.shape}"
        raise ValueError(f"positions of {view.name!r} is {shape}; allowed: float32 of shape (N, H, D)")
    _check_length(f"view {view.name!r}", view.positions, nodes)
    if not np.isfinite(view.positions).all():
        raise ValueError(f"positions of {view.name!r} has numbers that are not finite; allowed: finite ones")
    heads = view.positions.shape[1]
    for name, decay in (("decay_global", view.decay_global), ("decay_local", view.decay_local)):
        if decay is not None and len(decay) != heads:
            raise ValueError(f"{name} of {view.name!r} has {len(decay)} entries; allowed: {heads}, one per head")

    if view.edge_attention is not None:
        _check_length(f"edge_attention of {view.name!r}", view.edge_attention.starts, nodes + 1)


def _check_length(name: str, values: Array, length: int) -> None:
    if len(values) != length:
        raise ValueError(f"{name} has {len(values)} entries; allowed: {length}")
