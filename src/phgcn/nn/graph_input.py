r"""What layers and models are called with: tensors, or a PyG object that holds them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import BaseData

from ..checks import blame_inputs

EDGE_FEATURES = ("edge_attr", "edge_weight")
OPTIONAL = (*EDGE_FEATURES, "n_id")


class GraphInput(NamedTuple):
    r"""The arguments of a layer's call.

    Shapes:
        - **x:** :math:`(N, F)`, or a pair of sources and targets :math:`((N_s, F_s), (N_t, F_t))`
        - **edge_index:** the edges, in any of PyG's formats
        - **edge_attr:** :math:`(E, D)` or :math:`(E,)`, **edge_weight:** :math:`(E,)`, **batch:** :math:`(N,)`
        - **n_id:** :math:`(N,)`, the numbers of nodes in a larger graph that they are a part of
    """

    x: Any
    edge_index: Any = None
    edge_attr: Tensor | None = None
    edge_weight: Tensor | None = None
    batch: Tensor | None = None
    n_id: Tensor | None = None

    def blame(self) -> blame_inputs:
        """Returns a context for what a layer computes of these inputs, in which errors name the one that is the cause."""
        edge_features = {"edge_attr": self.edge_attr, "edge_weight": self.edge_weight}
        if isinstance(self.x, tuple):  # the numbers of nodes of two kinds have been checked before they are joined
            return blame_inputs(None, **{"x[0]": self.x[0], "x[1]": self.x[1]}, **edge_features)
        return blame_inputs(self.edge_index, x=self.x, **edge_features)


def read_graph(given: GraphInput, takes: Collection[str] = (), needs_edges: bool = True) -> GraphInput:
    r"""Takes all tensors from a :class:`torch_geometric.data.Data` or :class:`~torch_geometric.data.Batch` in place of ``x``;
    returns tensors as they are.

    So the graphs of a batch cannot be mixed by a forgotten ``batch``.

    Args:
        given (GraphInput): The arguments of a call.
        takes (optional): Which of ``edge_attr``, ``edge_weight`` and ``n_id`` the layer takes: others are refused as arguments,
            and left alone in an object. (default: none)
        needs_edges (bool, optional): Whether edges must be given. (default: :obj:`True`)
    """
    if isinstance(given.x, BaseData):
        given = _read_object(given, takes)
    for name in OPTIONAL:
        if getattr(given, name) is not None and name not in takes:
            raise ValueError(f"{name} is given; allowed: None, as {_REASONS[name]}")
    if needs_edges and given.edge_index is None:
        raise ValueError("edge_index is None; allowed: the edges, or a Data or Batch object in the place of x")
    return given


_REASONS = {
    "edge_attr": "the layer was made without edge_dim, or has no use for edge features",
    "edge_weight": "the layer has no use for edge weights",
    "n_id": "there is no memory",
}


def _read_object(given: GraphInput, takes: Collection[str]) -> GraphInput:
    data = given.x
    if not isinstance(data, Data):
        name = type(data).__name__
        raise ValueError(f"x is a {name}; allowed: tensors, Data or Batch; for several kinds of nodes use PyG's HeteroConv")
    beside = [name for name, value in zip(given._fields[1:], given[1:], strict=True) if value is not None]
    if beside:
        raise ValueError(f"{beside[0]} is given beside a {type(data).__name__}; allowed: the object alone, or tensors")
    edges = data.edge_index if data.edge_index is not None or "adj_t" not in data else data.adj_t
    taken = {name: data[name] if name in takes and name in data else None for name in OPTIONAL}
    return GraphInput(data.x, edges, **taken, batch=_batch_of(data))


def _batch_of(data: Data) -> Tensor | None:
    """Returns the graph of each node, which ``ptr`` says where an object lacks ``batch``."""
    if data.batch is not None or "ptr" not in data:
        batch: Tensor | None = data.batch
        return batch
    sizes = data.ptr.diff()
    return torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)
