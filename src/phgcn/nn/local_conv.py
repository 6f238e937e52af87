r"""The local layers of :class:`phgcn.nn.GlobalGNN`, by name.

PyG's GCN, SAGE and GIN layers sum over neighbours by atomics on a GPU, which round differently each run, and read from the
device how many self-loops there are.  Here they are PyG's layers, parameters and all, but for that sum, which is
:func:`phgcn.structural.sums.sum_neighbours`: the same bits every run, and part of a CUDA graph.  Edges are sorted once for all
layers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import MLP, GATConv, GCNConv, GINConv, LGConv, Linear, MessagePassing, SAGEConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_remaining_self_loops

from ..checks import HALF_TYPES, check_choice, check_edge_features, check_multiple, check_node_numbers
from ..distributed.boundary import PartEdges
from ..functional import Backend
from ..runtime.backend import choose_backend
from ..structural.sums import Neighbours, sort_neighbours, sum_neighbours
from .distance_conv import DistanceConv
from .eda_conv import EDAConv
from .edges import to_coo
from .graph_input import EDGE_FEATURES, GraphInput
from .messages import shows_messages

Local = str | Callable[[int, int], Any]
"""A name of :data:`LOCAL`, or a class of PyG's layers, called with the sizes of input and output."""

LOCAL = ("gcn", "sgc", "sage", "gat", "gin", "eda", "none")


class Adjacency(NamedTuple):
    """The adjacency matrix, as sorted edges, and the backend that multiplies with it."""

    neighbours: Neighbours
    backend: str
    degrees: Tensor | None = None
    """The number of sources of each node, (N, 1), where not all edges are here."""

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
        degrees = self.neighbours.start.diff().unsqueeze(1) if self.degrees is None else self.degrees
        return degrees.to(torch.float32 if x.dtype in HALF_TYPES else x.dtype)


class PlainEdges(NamedTuple):
    r"""Edges as PyG's layers take them, :math:`(2, E)`, and weights, :math:`(E,)`, for what an :class:`Adjacency` cannot do:
    weighted sums, and messages one by one."""

    edge_index: Tensor
    weight: Tensor | None = None


def part_adjacency(edges: PartEdges, self_loops: bool, backend: str) -> Adjacency:
    """Sorts the edges of one rank's nodes, boundary nodes behind them; their degrees come from the ranks that they lie on."""
    neighbours = sort_neighbours(edges.edge_index, edges.nodes + sum(edges.receive), self_loops, backend)
    degrees = neighbours.start.diff()[: edges.nodes].unsqueeze(1)
    return Adjacency(neighbours, backend, edges.extend(degrees.double()))


def weigh_part(edges: PartEdges, weight: Tensor, dtype: torch.dtype) -> PlainEdges:
    r"""Normalises the weights of the edges of one rank's nodes as PyG's ``gcn_norm`` does, self-loops included.

    The degrees of boundary nodes, sums of the weights of edges to them, come from the ranks that they lie on.
    """
    count = edges.nodes + sum(edges.receive)
    edge_index, weights = add_remaining_self_loops(edges.edge_index, weight.to(dtype), 1.0, count)
    degrees = weights.new_zeros(count).index_put((edge_index[1],), weights, accumulate=True)[: edges.nodes]
    scale = edges.extend(torch.where(degrees > 0, degrees, torch.inf).rsqrt().unsqueeze(1)).squeeze(1)
    return PlainEdges(edge_index, scale[edge_index[0]] * weights * scale[edge_index[1]])


def _sum_normalised(self: Any, edge_index: Adjacency | PlainEdges, x: Tensor, edge_weight: None = None) -> Tensor:
    """The ``propagate`` of GCN layers: the normalised sum of an :class:`Adjacency` without self-loops, or the sum of
    :class:`PlainEdges` with PyG's normalised weights.  Each class names it itself: PyG replaces one that is inherited."""
    if isinstance(edge_index, PlainEdges):
        return propagate_plainly(self, edge_index, x)
    return edge_index.normalised_sum(x)


class SortedGCNConv(GCNConv):  # type: ignore[misc]  # PyG ships no types
    r"""PyG's layer, :math:`\mathbf{D}^{-1/2} (\mathbf{A} + \mathbf{I}) \mathbf{D}^{-1/2} \mathbf{X} \mathbf{W}`."""

    self_loops = False
    propagate = _sum_normalised

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, normalize=False)


class SortedLGConv(LGConv):  # type: ignore[misc]  # PyG ships no types
    """The sum of :class:`SortedGCNConv` without weights to learn, one step of PyG's :class:`~torch_geometric.nn.SGConv`."""

    self_loops = False
    propagate = _sum_normalised

    def __init__(self) -> None:
        super().__init__(normalize=False)


class SortedSAGEConv(SAGEConv):  # type: ignore[misc]  # PyG ships no types
    """PyG's layer, which takes the mean over neighbours, of an :class:`Adjacency`."""

    self_loops = True

    def propagate(self, edge_index: Adjacency | PlainEdges, x: tuple[Tensor, Tensor], size: None = None) -> Tensor:
        if isinstance(edge_index, PlainEdges):
            return propagate_plainly(self, edge_index, x)
        return edge_index.sum(x[0]) / edge_index.degree(x[0]).clamp(min=1).to(x[0].dtype)


class SortedGINConv(GINConv):  # type: ignore[misc]  # PyG ships no types
    """PyG's layer, which takes the sum over neighbours, of an :class:`Adjacency`."""

    self_loops = True

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(MLP([in_channels, out_channels, out_channels], norm=None))

    def propagate(self, edge_index: Adjacency | PlainEdges, x: tuple[Tensor, Tensor], size: None = None) -> Tensor:
        if isinstance(edge_index, PlainEdges):
            return propagate_plainly(self, edge_index, x)
        return edge_index.sum(x[0])


def propagate_plainly(conv: Any, edges: PlainEdges, x: Any) -> Tensor:
    """Computes messages and their sum as PyG does, on a GPU by atomics."""
    out: Tensor = MessagePassing.propagate(conv, edges.edge_index, x=x, edge_weight=edges.weight)
    return out


NORMALISED = SortedGCNConv, SortedLGConv
SORTED = *NORMALISED, SortedSAGEConv, SortedGINConv
WITH_EDGE_FEATURES = ("gat", "eda")
WITHOUT_HEADS: dict[str, Any] = {"gcn": SortedGCNConv, "sage": SortedSAGEConv, "gin": SortedGINConv, "none": Linear}


def make_local(local: Local, channels: int, heads: int, backend: Backend, edge_dim: int | None = None) -> Any:
    """Makes a local layer of as many input as output channels; :obj:`"none"` is a linear map of each node alone."""
    if edge_dim is not None and local not in WITH_EDGE_FEATURES:
        allowed = " and ".join(map(repr, WITH_EDGE_FEATURES))
        raise ValueError(f"edge_dim is {edge_dim!r}; allowed for local {local!r}: None; for {allowed}: a size")
    if not isinstance(local, str) and callable(local):
        return local(channels, channels)
    check_choice("local", local, LOCAL, "or a layer's class")
    if local == "sgc":
        return SortedLGConv()
    if local in WITHOUT_HEADS:
        return WITHOUT_HEADS[local](channels, channels)
    check_multiple("hidden_channels", channels, "heads", heads)
    if local == "gat":
        return GATConv(channels, channels // heads, heads, edge_dim=edge_dim)
    return EDAConv(channels, channels // heads, heads, edge_dim=edge_dim, backend=backend)


class LocalEdges(NamedTuple):
    """Edges in the format of a local layer, and the features of edges that it takes, by the names of its arguments."""

    index: Any
    features: dict[str, Tensor]
    part: PartEdges | None = None
    """Where given, the layer gets the features of boundary nodes too, and only the rows of this rank's nodes are kept."""


def edge_features(conv: Any) -> tuple[str, ...]:
    """Returns which features of edges a local layer takes: of a layer given as a class, what its call takes."""
    if isinstance(conv, (Linear, *SORTED)):
        return ("edge_weight",) if isinstance(conv, NORMALISED) else ()
    if isinstance(conv, DistanceConv):
        return conv.takes
    takes = inspect.signature(conv.forward).parameters
    usable = {"edge_attr": getattr(conv, "edge_dim", 1) is not None, "edge_weight": True}
    return tuple(name for name in EDGE_FEATURES if name in takes and usable[name])


def prepare_edges(conv: Any, given: GraphInput, backend: Backend) -> LocalEdges:
    """Converts edges of any format to what a local layer takes, and checks them."""
    if isinstance(given.edge_index, PartEdges):
        return _prepare_part(conv, given, backend)
    features = _checked_features(given, given.edge_index)
    edges, x = to_coo(given.edge_index, given.x), given.x
    if isinstance(conv, SORTED):
        if features or shows_messages(conv):
            return LocalEdges(_plain_edges(conv, edges, features.get("edge_weight"), x), {})
        chosen = choose_backend(backend, x.device)
        return LocalEdges(Adjacency(sort_neighbours(edges, x.size(0), conv.self_loops, chosen), chosen), {})
    return LocalEdges(edges.long(), features)


def _checked_features(given: GraphInput, edge_index: Any) -> dict[str, Tensor]:
    """Returns the features of edges that are given, by name."""
    features = {name: getattr(given, name) for name in EDGE_FEATURES if getattr(given, name) is not None}
    for name, rows in features.items():
        check_edge_features(name, rows, edge_index, given.x)
    return features


def _plain_edges(conv: Any, edges: Tensor, weight: Tensor | None, x: Tensor) -> PlainEdges:
    """Returns checked edges, for GCN and SGC with self-loops and normalised weights."""
    check_node_numbers(edges, x.size(0))
    if isinstance(conv, NORMALISED):
        return PlainEdges(*gcn_norm(edges.long(), weight, x.size(0), dtype=x.dtype))
    return PlainEdges(edges.long())


def _prepare_part(conv: Any, given: GraphInput, backend: Backend) -> LocalEdges:
    """Prepares the edges of one rank's nodes."""
    edges = given.edge_index
    features = _checked_features(given, edges.edge_index)
    if isinstance(conv, SORTED):
        if features:
            return LocalEdges(weigh_part(edges, features["edge_weight"], given.x.dtype), {}, edges)
        chosen = choose_backend(backend, given.x.device)
        return LocalEdges(part_adjacency(edges, conv.self_loops, chosen), {}, edges)
    if isinstance(conv, DistanceConv):
        return LocalEdges(edges, features)
    return LocalEdges(edges.edge_index, features, edges)


def apply_local(conv: Any, x: Tensor, edges: LocalEdges) -> Tensor:
    """Calls a local layer with what :func:`prepare_edges` returned."""
    if edges.part is not None and not isinstance(conv, Linear):
        extended: Tensor = conv(edges.part.extend(x), edges.index, **edges.features)
        return extended[: x.size(0)]
    out: Tensor = conv(x) if isinstance(conv, Linear) else conv(x, edges.index, **edges.features)
    return out


def local_recordable(conv: Any, nodes: int, backend: Backend) -> bool:
    """Tells whether a local layer can be captured into a CUDA graph; PyG's own and those of users are not taken to be."""
    if isinstance(conv, (Linear, *SORTED)):
        return backend in ("auto", "triton")
    return hasattr(conv, "recordable") and conv.recordable(nodes)
