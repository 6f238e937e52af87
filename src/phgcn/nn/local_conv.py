r"""The local layers of :class:`phgcn.nn.GlobalGNN`, by name.

PyG's GCN, SAGE and GIN layers sum over neighbours by atomics on a GPU, which round differently each run, and read from the
device how many self-loops there are.  Here they are PyG's layers, parameters and all, but for that sum, which is
:func:`phgcn.structural.sums.sum_neighbours`: the same bits every run, and part of a CUDA graph.  Edges are sorted once for all
layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import MLP, GATConv, GCNConv, GINConv, Linear, SAGEConv

from ..checks import HALF_TYPES, check_choice, check_multiple
from ..functional import Backend
from ..kernels.backend import choose_backend
from ..structural.sums import Neighbours, sort_neighbours, sum_neighbours
from .eda_conv import EDAConv
from .edges import to_coo

Local = str | Callable[[int, int], Any]
"""A name of :data:`LOCAL`, or a class of PyG's layers, called with the sizes of input and output."""

LOCAL = ("gcn", "sgc", "sage", "gat", "gin", "eda", "none")


class Adjacency(NamedTuple):
    """The adjacency matrix, as sorted edges, and the backend that multiplies with it."""

    neighbours: Neighbours
    backend: str

    def sum(self, x: Tensor) -> Tensor:
        r"""Sums the features of each node's sources: the product with the matrix, :math:`(N, C)`."""
        widened = x.float() if x.dtype in HALF_TYPES and self.backend != "triton" else x
        return sum_neighbours(widened, self.neighbours, self.backend).to(x.dtype)

    def normalised_sum(self, x: Tensor) -> Tensor:
        r"""Multiplies with :math:`\mathbf{D}^{-1/2} (\mathbf{A} + \mathbf{I}) \mathbf{D}^{-1/2}`, :math:`(N, C)`; the
        matrix has no self-loops yet."""
        scale = (self.degree(x) + 1).rsqrt().to(x.dtype)
        scaled = scale * x
        return scale * (self.sum(scaled) + scaled)

    def degree(self, x: Tensor) -> Tensor:
        r"""Counts the sources of each node, :math:`(N, 1)`, in the type of ``x`` or, as half types do not hold it, float32."""
        return self.neighbours.start.diff().unsqueeze(1).to(torch.float32 if x.dtype in HALF_TYPES else x.dtype)


class SortedGCNConv(GCNConv):  # type: ignore[misc]  # PyG ships no types
    r"""PyG's layer, :math:`\mathbf{D}^{-1/2} (\mathbf{A} + \mathbf{I}) \mathbf{D}^{-1/2} \mathbf{X} \mathbf{W}`, of an
    :class:`Adjacency` without self-loops."""

    self_loops = False

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, normalize=False)

    def propagate(self, edge_index: Adjacency, x: Tensor, edge_weight: None = None) -> Tensor:
        return edge_index.normalised_sum(x)


class Propagation(torch.nn.Module):
    r"""GCN's sum over neighbours without weights, :math:`\mathbf{D}^{-1/2} (\mathbf{A} + \mathbf{I}) \mathbf{D}^{-1/2}
    \mathbf{X}`, one step of PyG's :class:`~torch_geometric.nn.SGConv`, of an :class:`Adjacency` without self-loops."""

    self_loops = False

    def forward(self, x: Tensor, edges: Adjacency) -> Tensor:
        return edges.normalised_sum(x)


class SortedSAGEConv(SAGEConv):  # type: ignore[misc]  # PyG ships no types
    """PyG's layer, which takes the mean over neighbours, of an :class:`Adjacency`."""

    self_loops = True

    def propagate(self, edge_index: Adjacency, x: tuple[Tensor, Tensor], size: None = None) -> Tensor:
        return edge_index.sum(x[0]) / edge_index.degree(x[0]).clamp(min=1).to(x[0].dtype)


class SortedGINConv(GINConv):  # type: ignore[misc]  # PyG ships no types
    """PyG's layer, which takes the sum over neighbours, of an :class:`Adjacency`."""

    self_loops = True

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(MLP([in_channels, out_channels, out_channels], norm=None))

    def propagate(self, edge_index: Adjacency, x: tuple[Tensor, Tensor], size: None = None) -> Tensor:
        return edge_index.sum(x[0])


SORTED = SortedGCNConv, Propagation, SortedSAGEConv, SortedGINConv
WITHOUT_HEADS: dict[str, Any] = {"gcn": SortedGCNConv, "sage": SortedSAGEConv, "gin": SortedGINConv, "none": Linear}


def make_local(local: Local, channels: int, heads: int, backend: Backend) -> Any:
    """Makes a local layer of as many input as output channels; :obj:`"none"` is a linear map of each node alone."""
    if not isinstance(local, str) and callable(local):
        return local(channels, channels)
    check_choice("local", local, LOCAL, "or a layer's class")
    if local == "sgc":
        return Propagation()
    if local in WITHOUT_HEADS:
        return WITHOUT_HEADS[local](channels, channels)
    check_multiple("hidden_channels", channels, "heads", heads)
    if local == "gat":
        return GATConv(channels, channels // heads, heads)
    return EDAConv(channels, channels // heads, heads, backend=backend)


def prepare_edges(conv: Any, edge_index: Any, x: Tensor, backend: Backend) -> Any:
    """Converts edges of any format to what a local layer takes, and checks them."""
    edges = to_coo(edge_index, x)
    if isinstance(conv, SORTED):
        chosen = choose_backend(backend, x.device)
        return Adjacency(sort_neighbours(edges, x.size(0), conv.self_loops, chosen), chosen)
    return edges.long()


def apply_local(conv: Any, x: Tensor, edges: Any) -> Tensor:
    """Calls a local layer with what :func:`prepare_edges` returned."""
    out: Tensor = conv(x) if isinstance(conv, Linear) else conv(x, edges)
    return out


def local_recordable(conv: Any, nodes: int, backend: Backend) -> bool:
    """Tells whether a local layer can be captured into a CUDA graph; PyG's own and those of users are not taken to be."""
    if isinstance(conv, (Linear, *SORTED)):
        return backend in ("auto", "triton")
    return hasattr(conv, "recordable") and conv.recordable(nodes)
