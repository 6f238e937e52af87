"""The content of a page before it is packed: the graph, and one or two trained models on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Column:
    """A property of the nodes that they can be coloured by.

    Args:
        name (str): Its name.
        values (numpy.ndarray): :math:`(N,)`; numbers, or indices into ``categories``, -1 for none.
        categories (list of str, optional): The names of the categories. (default: :obj:`None`, the
            values are numbers)
    """

    name: str
    values: Array
    categories: Sequence[str] | None = None


@dataclass(frozen=True)
class EdgeAttention:
    """Attention to neighbours by edge, where distances do not determine it.

    Args:
        starts (numpy.ndarray): :math:`(N + 1,)`; what node ``i`` attends to is
            ``sources[starts[i]:starts[i + 1]]``.
        sources (numpy.ndarray): :math:`(E,)`.
        weights (numpy.ndarray): float32 :math:`(E, H)`.
    """

    starts: Array
    sources: Array
    weights: Array


@dataclass(frozen=True)
class View:
    """The nodes in the embedding of one layer, and what decides attention there.

    Args:
        name (str): The name of the layer.
        positions (numpy.ndarray): float32 :math:`(N, H, D)`.
        decay_global (list of float, optional): The coefficient of attention to all nodes, one per
            head. (default: :obj:`None`, the layer has no such attention)
        decay_local (list of float, optional): The same of attention to neighbours. (default:
            :obj:`None`)
        edge_attention (EdgeAttention, optional): Attention to neighbours, where it has no such
            coefficient. (default: :obj:`None`)
        far_attention (EdgeAttention, optional): The strongest of the attention to all nodes, where
            a page cannot compute it. (default: :obj:`None`)
        self_loops (bool, optional): Whether a node is among its own neighbours. (default:
            :obj:`True`)
        note (str, optional): A remark for the reader. (default: none)
    """

    name: str
    positions: Array
    decay_global: Sequence[float] | None = None
    decay_local: Sequence[float] | None = None
    edge_attention: EdgeAttention | None = None
    far_attention: EdgeAttention | None = None
    self_loops: bool = True
    note: str = ""


@dataclass(frozen=True)
class Side:
    """One model on the graph; a page shows one, or two side by side.

    Args:
        title (str): Its name.
        views (list of View): The layers.
        columns (list of Column): Statements of the model about the nodes. ``"prediction"`` beside
            the graph's ``"class"`` gives a confusion table, and ``"split"`` says which nodes are
            test nodes.
        facts (dict, optional): Names and values in words, for a small table. (default: none)
        curves (dict, optional): One number per epoch, by name, with ``"epoch"`` among them.
            (default: none)
        best_epoch (int, optional): The epoch whose weights are shown. (default: :obj:`None`)
        summary (str, optional): One sentence about the picture and the model's score. (default:
            none)
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
    """All that a page shows.

    Args:
        title (str): The heading.
        ids (list of str): The ids of the nodes, :math:`N` of them.
        starts (numpy.ndarray): :math:`(N + 1,)`; the neighbours of node ``i`` are
            ``sources[starts[i]:starts[i + 1]]``.
        sources (numpy.ndarray): :math:`(E,)`.
        columns (list of Column): Properties of the nodes without a model.
        sides (list of Side): One or two models.
        batch (numpy.ndarray, optional): The graph of each node, :math:`(N,)`; attention never
            crosses graphs. (default: :obj:`None`, one graph)
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
        assert nodes > 0 and 1 <= len(self.sides) <= 2 and len(self.starts) == nodes + 1
        columns = [*self.columns, *(column for side in self.sides for column in side.columns)]
        assert all(len(column.values) == nodes for column in columns)
        for side in self.sides:
            assert side.views
            for view in side.views:
                assert len(view.positions) == nodes and view.positions.dtype == np.float32
                assert np.isfinite(view.positions).all()
