"""The local layers of :class:`phgcn.nn.GlobalGNN`, by name.

PyG's GCN, SAGE and GIN layers sum by atomics on a GPU, which round differently in each run. These
layers sum by :func:`phgcn.structural.sums.sum_neighbours`, with the same bits in every run. Edges
are sorted once for all layers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import (
    MLP,
    GATConv,
    GCNConv,
    GINConv,
    LGConv,
    Linear,
    MessagePassing,
    SAGEConv,
)
from torch_geometric.utils import add_remaining_self_loops

from ..backends import HALF_TYPES, Backend, BackendName, choose_backend
from ..checks import check_choice, check_node_numbers
from ..distributed.boundary import PartEdges
from ..structural.sums import Neighbours, sort_neighbours, sum_neighbours
from .checks import check_edge_features, check_multiple
from .distance_attention import linear_map
from .eda_conv import EDAConv, shows_messages
from .edges import (
    WholeEdges,
    adjacency_values,
    as_edges,
    has_values,
    is_adjacency,
    to_coo,
    warn_of_values,
)
from .graph_input import EDGE_FEATURES, GraphInput

# a name of :data:`LOCAL`, or a class of layers, called with the sizes of input and output
Local = str | Callable[[int, int], Any]

LOCAL = ("gcn", "sgc", "sage", "gat", "gin", "eda", "none")


class Adjacency(NamedTuple):
    """The adjacency matrix as sorted edges, and the backend that multiplies with it."""

    neighbours: Neighbours
    backend: Backend
    edges: WholeEdges | PartEdges

    def propagate(self, conv: Any, x: Any) -> Tensor:
        """Aggregates the features of each node's sources, (N, C), as a layer does."""
        aggregated: Tensor = conv.aggregate_sorted(self, x[0] if isinstance(x, tuple) else x)
        return aggregated

    def sum(self, x: Tensor) -> Tensor:
        """Sums the features of each node's sources, (N, C): the product with the matrix."""
        widened = self.backend.widen(self.edges.extend(x))
        summed = sum_neighbours(widened, self.neighbours, self.backend.name)
        return summed[: x.size(0)].to(x.dtype)

    def mean(self, x: Tensor) -> Tensor:
        """Computes the mean of the features of each node's sources, (N, C), 0 without any."""
        return self.sum(x) / self._degree(x).clamp(min=1).to(x.dtype)

    def normalised_sum(self, x: Tensor) -> Tensor:
        r"""Multiplies with :math:`\mathbf{D}^{-1/2} (\mathbf{A} + \mathbf{I}) \mathbf{D}^{-1/2}`,
        :math:`(N, C)`; the matrix has no self-loops yet."""
        scale = (self._degree(x) + 1).rsqrt().to(x.dtype)
        scaled = scale * x
        return scale * (self.sum(scaled) + scaled)

    def _degree(self, x: Tensor) -> Tensor:
        """Counts the sources of each node, (N, 1), in float32 for half types."""
        degrees = self.neighbours.start.diff()[: x.size(0)].unsqueeze(1)
        return degrees.to(torch.float32 if x.dtype in HALF_TYPES else x.dtype)


class PlainEdges(NamedTuple):
    """Edges :math:`(2, E)` and weights :math:`(E,)` in PyG's format, for weighted sums and messages
    one by one, which an :class:`Adjacency` cannot compute."""

    edge_index: Tensor
    weight: Tensor | None
    edges: WholeEdges | PartEdges

    def propagate(self, conv: Any, x: Any) -> Tensor:
        """Computes messages and their sum by PyG, on a GPU with atomics."""
        nodes = x[0] if isinstance(x, tuple) else x
        source = self.edges.extend(nodes)
        x = (source, source) if isinstance(x, tuple) else source
        out: Tensor = MessagePassing.propagate(conv, self.edge_index, x=x, edge_weight=self.weight)
        return out[: nodes.size(0)]


def sort_adjacency(
    edges: WholeEdges | PartEdges, index: Tensor, x: Tensor, self_loops: bool, backend: BackendName
) -> Adjacency:
    chosen = choose_backend(backend, x.device)
    count = edges.count(x.size(0))
    return Adjacency(sort_neighbours(index, count, self_loops, chosen.name), chosen, edges)


def normalise_weights(
    edges: WholeEdges | PartEdges, index: Tensor, weight: Tensor | None, x: Tensor
) -> PlainEdges:
    """Normalises weights like PyG's ``gcn_norm``, with boundary degrees from their ranks."""
    nodes, count = x.size(0), edges.count(x.size(0))
    weight = x.new_ones(index.size(1)) if weight is None else weight.to(x.dtype)
    index, weight = add_remaining_self_loops(index, weight, 1.0, count)
    degrees = weight.new_zeros(count).index_put((index[1],), weight, accumulate=True)[:nodes]
    inverse = torch.where(degrees > 0, degrees, torch.inf).rsqrt()
    scale = edges.extend(inverse.unsqueeze(1)).squeeze(1)
    return PlainEdges(index, scale[index[0]] * weight * scale[index[1]], edges)


def _propagate(self: Any, edge_index: Adjacency | PlainEdges, x: Any, **_: None) -> Tensor:
    """The layers' own ``propagate``: PyG compiles an inherited one anew."""
    return edge_index.propagate(self, x)


class SortedGCNConv(GCNConv):  # type: ignore[misc]  # PyG ships no types
    """PyG's layer plus, if ``residual``, a learned linear map of its input."""

    self_loops, aggregate_sorted = False, staticmethod(Adjacency.normalised_sum)
    propagate = _propagate

    def __init__(self, in_channels: int, out_channels: int, residual: bool = False) -> None:
        super().__init__(in_channels, out_channels, normalize=False)
        self.res = linear_map(in_channels, out_channels) if residual else None

    def reset_parameters(self) -> None:
        super().reset_parameters()
        res = getattr(self, "res", None)  # PyG's constructor calls this first
        if res is not None:
            res.reset_parameters()

    def forward(self, x: Tensor, edge_index: Adjacency | PlainEdges) -> Tensor:
        out: Tensor = super().forward(x, edge_index)
        return out if self.res is None else out + self.res(x)


class SortedLGConv(LGConv):  # type: ignore[misc]
    """The sum of a GCN layer without learned weights, one step of PyG's
    :class:`~torch_geometric.nn.SGConv`."""

    self_loops, aggregate_sorted = False, staticmethod(Adjacency.normalised_sum)
    propagate = _propagate

    def __init__(self) -> None:
        super().__init__(normalize=False)


class SortedSAGEConv(SAGEConv):  # type: ignore[misc]
    self_loops, aggregate_sorted = True, staticmethod(Adjacency.mean)
    propagate = _propagate


class SortedGINConv(GINConv):  # type: ignore[misc]
    self_loops, aggregate_sorted = True, staticmethod(Adjacency.sum)
    propagate = _propagate

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(MLP([in_channels, out_channels, out_channels], norm=None))


NORMALISED = SortedGCNConv, SortedLGConv
SORTED = *NORMALISED, SortedSAGEConv, SortedGINConv
WITH_EDGE_FEATURES = ("gat", "eda")
WITHOUT_HEADS: dict[str, Any] = {"gcn": SortedGCNConv, "sage": SortedSAGEConv} | {
    "gin": SortedGINConv,
    "none": Linear,
}


def make_local(
    local: Local, channels: int, heads: int, backend: BackendName, edge_dim: int | None = None
) -> Any:
    """Makes a local layer with ``channels`` inputs and outputs; ``"none"`` is a linear map."""
    if edge_dim is not None and local not in WITH_EDGE_FEATURES:
        allowed = f"None; for {' and '.join(map(repr, WITH_EDGE_FEATURES))}: a size"
        raise ValueError(f"edge_dim is {edge_dim!r}; allowed for local {local!r}: {allowed}")
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
    """Edges in the format of a local layer, and its edge features by argument."""

    index: Any
    features: dict[str, Any]
    # adds boundary nodes for layers without :class:`phgcn.distributed.PartEdges`
    edges: WholeEdges | PartEdges = WholeEdges(None)


def edge_features(conv: Any) -> tuple[str, ...]:
    """Names the edge features that a local layer takes, of other classes by their signature."""
    if isinstance(conv, (Linear, *SORTED)):
        return ("edge_weight",) if isinstance(conv, NORMALISED) else ()
    if isinstance(conv, EDAConv):
        return conv.takes
    takes = inspect.signature(conv.forward).parameters
    usable = {"edge_attr": getattr(conv, "edge_dim", 1) is not None, "edge_weight": True}
    return tuple(name for name in EDGE_FEATURES if name in takes and usable[name])


def prepare_edges(conv: Any, given: GraphInput, backend: BackendName) -> LocalEdges:
    """Converts edges of any format to the format of a local layer, and checks them."""
    if isinstance(conv, Linear):
        return LocalEdges(None, {})
    edges, x = as_edges(given.edge_index), given.x
    features: dict[str, Any] = {name: getattr(given, name) for name in EDGE_FEATURES}
    features = {name: rows for name, rows in features.items() if rows is not None}
    if isinstance(conv, EDAConv):
        return LocalEdges(given.edge_index, features | {"batch": given.batch})
    index = to_coo(edges.edge_index, x)
    described = edges.edge_index
    if is_adjacency(described) and not features:
        features, described = _read_values(conv, described), index
    for name, rows in features.items():
        check_edge_features(name, rows, described, x, getattr(conv, "edge_dim", None))
    if not isinstance(conv, SORTED):
        return LocalEdges(index.long(), features, edges)
    if not features and not shows_messages(conv):
        return LocalEdges(sort_adjacency(edges, index, x, conv.self_loops, backend), {})
    check_node_numbers(index, edges.count(x.size(0)))
    if isinstance(conv, NORMALISED):
        weight = features.get("edge_weight")
        return LocalEdges(normalise_weights(edges, index.long(), weight, x), {})
    return LocalEdges(PlainEdges(index.long(), None, edges), {})


def _read_values(conv: Any, adjacency: Tensor) -> dict[str, Any]:
    """Returns the values of a sparse matrix by the argument for which a local layer takes them."""
    takes = edge_features(conv)
    if not takes:
        hint = "this local layer takes no edge weights, and edge features only with edge_dim"
        warn_of_values(adjacency, hint)
        return {}
    if takes[0] == "edge_weight" and not has_values(adjacency):
        return {}
    return {takes[0]: adjacency_values(adjacency)}


def apply_local(conv: Any, x: Tensor, edges: LocalEdges) -> Tensor:
    """Calls a local layer with the edges of :func:`prepare_edges`."""
    if isinstance(conv, Linear):
        return conv(x)  # type: ignore[no-any-return]
    out: Tensor = conv(edges.edges.extend(x), edges.index, **edges.features)
    return out[: x.size(0)]


# the share of the gated product in the output of a polynomial layer, as in PyG's Polynormer
GATED_SHARE = 0.1

NORMS = {"batch": torch.nn.BatchNorm1d, "layer": torch.nn.LayerNorm}


class LocalBlock(torch.nn.Module):
    r"""A local layer with a linear map beside it, a norm and dropout.

    .. math::
        \mathbf{x}^{\prime} = \mathrm{dropout}(\mathrm{relu}(\mathrm{norm}(
        \mathrm{conv}(\mathbf{x}) + \mathbf{W} \mathbf{x}
        + \mathbf{u})))

    With ``gated``, as in the `"Polynormer" <https://arxiv.org/abs/2403.01232>`_ paper, the output
    is :math:`0.1 \, \mathrm{LayerNorm}(\mathrm{relu}(\mathbf{V} \mathbf{x}) \odot
    \mathbf{x}^{\prime}) + 0.9 \, \mathbf{x}^{\prime}`: each layer doubles the degree of a
    polynomial in the features.

    Args:
        channels (int): Size of each input and output sample.
        conv (torch.nn.Module): The local layer, by :func:`phgcn.nn.local_conv.make_local`.
        residual (bool): Whether :math:`\mathbf{W} \mathbf{x}` is added.
        norm (str, optional): ``"batch"``, ``"layer"`` (over the channels of each node), or
            :obj:`None`.
        dropout (float): Dropout probability of the output.
        gated (bool): Whether the output is gated.
    """

    def __init__(
        self,
        channels: int,
        conv: Any,
        residual: bool,
        norm: str | None,
        dropout: float,
        gated: bool,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.conv = conv
        # A layer without edges is a linear map already.
        self.res = Linear(channels, channels) if residual and not isinstance(conv, Linear) else None
        self.norm = torch.nn.Identity() if norm is None else NORMS[norm](channels)
        self.gate = Linear(channels, channels) if gated else None
        self.gate_norm = torch.nn.LayerNorm(channels) if gated else None

    def reset_parameters(self) -> None:
        modules: list[Any] = list(self.children())
        for module in modules:
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()

    def forward(self, x: Tensor, edges: Any, update: Tensor | None = None) -> Tensor:
        """Runs the forward pass of the module.

        Args:
            x (torch.Tensor): The node features, :math:`(N, C)`.
            edges: The edges for the local layer, by :func:`phgcn.nn.local_conv.prepare_edges`.
            update (torch.Tensor, optional): A term before the norm, :math:`(N, C)`.
        """
        out = apply_local(self.conv, x, edges)
        if self.res is not None:
            out = out + self.res(x)
        if update is not None:
            out = out + update
        out = F.dropout(F.relu(self.norm(out)), self.dropout, self.training)
        if self.gate is not None and self.gate_norm is not None:
            gated = self.gate_norm(F.relu(self.gate(x)) * out)
            out = GATED_SHARE * gated + (1 - GATED_SHARE) * out
        return out
