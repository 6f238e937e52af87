r"""What :class:`phgcn.nn.EDAConv` and :class:`phgcn.nn.PHGCNConv` share: projection, embedding, the structural path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter
from torch_geometric import EdgeIndex
from torch_geometric.nn import Linear, MessagePassing
from torch_geometric.nn.inits import glorot, ones, zeros

from ..checks import check_choices, check_dropout, check_edge_features, check_features, check_sizes
from ..distributed.boundary import PartEdges
from ..functional import Backend, attend_neighbours
from ..structural.graph import Graph
from .adjacency import adjacency_values, is_adjacency, warn_of_values, with_weights
from .edges import FILLS, EdgeTerms, reduce_to_targets, replace_self_loops, to_coo
from .graph_input import GraphInput, read_graph
from .messages import shows_messages

FLOWS = ("source_to_target", "target_to_source")
"""From which row of the edges to which messages go, as in PyG."""

EdgeWeights = tuple[Tensor, Tensor]
"""Edges (2, E) and the attention weights (E, heads) along them."""


class Nodes(NamedTuple):
    r"""Nodes, projected: those that are attended to and, if they are others, those that attend.

    Shapes:
        - **positions:** :math:`(N, H, D)`, **values:** :math:`(N, H, C)`, **x:** the features of the targets
        - **target_positions**, **target_values:** the same for targets of another kind, or :obj:`None`
    """

    x: Tensor
    positions: Tensor
    values: Tensor
    target_positions: Tensor | None = None
    target_values: Tensor | None = None

    @property
    def targets(self) -> tuple[Tensor, Tensor]:
        """Positions and values of the nodes that attend."""
        if self.target_positions is None or self.target_values is None:
            return self.positions, self.values
        return self.target_positions, self.target_values


class DistanceConv(MessagePassing):  # type: ignore[misc]  # PyG ships no types
    r"""Projects nodes to values :math:`\mathbf{f} = \mathbf{W} \mathbf{x}`, embeds these at positions
    :math:`\mathbf{p} = \mathbf{\Phi} \mathbf{f}`, and attends to neighbours by distance.  Args are those of
    :class:`phgcn.nn.PHGCNConv`.

    As PyG's layers do where messages are fused with their sum, it computes messages one by one (:meth:`message`) only for those
    who want to see them: explainers and hooks.
    """

    paths = 1
    """How many outputs are concatenated: 1, or 2 with a global path."""

    def __init__(
        self, in_channels: int | tuple[int, int], out_channels: int, heads: int, *, concat: bool, dropout: float,
        add_self_loops: bool, edge_dim: int | None, fill_value: float | Tensor | str, bias: bool, residual: bool,
        embedding_dim: int, backend: Backend, flow: str,
    ) -> None:  # fmt: skip
        super().__init__(aggr="sum", node_dim=0)
        if isinstance(fill_value, str) and fill_value not in FILLS:
            allowed = ", ".join(map(repr, FILLS))
            raise ValueError(f"fill_value is {fill_value!r}; allowed: {allowed}, a number, or a tensor")
        if flow not in FLOWS:
            raise ValueError(f"flow is {flow!r}; allowed: {', '.join(map(repr, FLOWS))}")
        sources, targets = in_channels if isinstance(in_channels, (tuple, list)) else (in_channels, in_channels)
        for size in (sources, targets):
            check_sizes(size, out_channels=out_channels, heads=heads, embedding_dim=embedding_dim)
        check_dropout("dropout", dropout)
        check_choices("auto", backend)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.heads = heads
        self.concat = concat
        self.dropout = dropout
        self.add_self_loops = add_self_loops
        self.edge_dim = edge_dim
        self.fill_value = fill_value
        self.reverse = flow == FLOWS[1]
        self.embedding_dim = embedding_dim
        self.backend = backend
        self.output_width = width = self.paths * heads * out_channels if concat else out_channels
        self.lin = _linear(sources, heads * out_channels)
        self.lin_target = _linear(targets, heads * out_channels) if isinstance(in_channels, (tuple, list)) else None
        self.lin_edge = None if edge_dim is None else _linear(edge_dim, heads)
        self.embedding = Parameter(torch.empty(heads, embedding_dim, out_channels))
        self.res = _linear(targets, width) if residual else None
        self.gates = Parameter(torch.empty(self.paths + 1)) if residual else None
        self.bias = Parameter(torch.empty(width)) if bias else None

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        for linear in (self.lin, self.lin_target, self.lin_edge):
            if linear is not None:
                linear.reset_parameters()
        glorot(self.embedding)
        if self.res is not None:
            self.res.reset_parameters()
        ones(self.gates)
        zeros(self.bias)

    @property
    def takes(self) -> tuple[str, ...]:
        """Which features of edges the layer takes."""
        return ("edge_weight",) if self.lin_edge is None else ("edge_attr", "edge_weight")

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Computes the positions (N, heads, embedding_dim) and values (N, heads, out_channels) of nodes."""
        return self._project(x, self.lin, "x")

    def project_nodes(self, x: Any) -> Nodes:
        """Projects nodes of one kind, or a pair of sources and targets."""
        source, target = x if isinstance(x, tuple) else (x, x)
        if source is target and self.lin_target is None:
            return Nodes(target, *self.project(source))
        sources = self._project(source, self.lin, "x[0]")
        lin_target = self.lin if self.lin_target is None else self.lin_target
        return Nodes(target, *sources, *self._project(target, lin_target, "x[1]"))

    def _project(self, x: Tensor, lin: Any, name: str) -> tuple[Tensor, Tensor]:
        check_features(x, lin.in_channels, lin.weight, name)
        flat = lin(x)
        return embed(flat, self.embedding), flat.view(-1, self.heads, self.out_channels)

    def read_call(self, given: GraphInput, size: tuple[int, int] | None) -> GraphInput:
        """Reads the arguments of a call: objects of PyG, missing targets, the values of a sparse matrix, the flow."""
        given = read_graph(given, self.takes)
        if isinstance(given.x, tuple) and given.x[1] is None:
            # Targets without features are at the origin, as they are in GATConv.
            width = self.lin.in_channels if self.lin_target is None else self.lin_target.in_channels
            count = given.x[0].size(0) if size is None else size[1]
            target = given.x[0].new_zeros(count, given.x[0].size(1) if width == -1 else width)
            given = given._replace(x=(given.x[0], target))
        if size is not None:
            sources, targets = given.x if isinstance(given.x, tuple) else (given.x, given.x)
            if tuple(size) != (counts := (sources.size(0), targets.size(0))):
                raise ValueError(f"size is {tuple(size)}; allowed: {counts}, the numbers of sources and targets in x")
        if self.reverse:
            given = given._replace(edge_index=_reversed(given.edge_index))
        if is_adjacency(given.edge_index) and given.edge_attr is None:
            if self.lin_edge is None:
                warn_of_values(given.edge_index)
            else:
                x = given.x if isinstance(given.x, tuple) else (given.x, given.x)
                values = adjacency_values(given.edge_index)
                given = given._replace(edge_index=to_coo(given.edge_index, x[1], x[0]), edge_attr=values)
        return given

    def shown_weights(self, weights: EdgeWeights, edge_index: Any) -> EdgeWeights:
        """Returns edges and attention weights in the form in which the edges were given."""
        edges, alpha = weights
        edges = edges.flip(0) if self.reverse else edges
        return with_weights(edge_index, edges, alpha) if is_adjacency(edge_index) else (edges, alpha)

    def attend_structural(
        self, nodes: Nodes, given: GraphInput, decay: float | Tensor, return_weights: bool
    ) -> tuple[Tensor, EdgeWeights | None]:
        """Computes the structural path (N, heads, out_channels) and, if asked for, the edges it used and their weights."""
        as_messages = shows_messages(self)
        edges, graph = self._local_graph(nodes, given, return_weights or as_messages)
        if self.training and self.dropout > 0:
            ones = graph.values.new_ones(graph.edge_index.size(1), self.heads)
            graph = graph._replace(edge_mask=F.dropout(ones, self.dropout))
        out, weights = attend_neighbours(graph, decay, return_weights or as_messages, self.backend)
        if as_messages and weights is not None:
            alpha = weights if graph.edge_mask is None else weights * graph.edge_mask
            out = self.propagate(graph.edge_index.long(), x=graph.values, alpha=alpha)
        out = out[: nodes.targets[0].size(0)]
        return out, (edges, weights) if return_weights and weights is not None else None

    def message(self, x_j: Tensor, alpha: Tensor) -> Tensor:
        """Weighs the values of the sources."""
        return alpha.unsqueeze(-1) * x_j

    def _local_graph(self, nodes: Nodes, given: GraphInput, show_edges: bool) -> tuple[Tensor, Graph]:
        """Returns the edges with self-loops, and the graph to attend in: with sources and targets of different kinds as one
        graph, targets first, and with a spare node at the end where self-loops are redirected, unless edges are shown."""
        positions, values = nodes.positions, nodes.values
        if isinstance(given.edge_index, PartEdges):
            extended = given.edge_index.extend(torch.cat([positions, values], dim=-1))
            positions, values = extended.split([positions.size(-1), values.size(-1)], dim=-1)
            given = given._replace(edge_index=given.edge_index.edge_index)
        if nodes.target_positions is not None:
            sources, targets = positions.size(0), nodes.target_positions.size(0)
            edges = to_coo(given.edge_index, nodes.target_positions, positions)
            bias = self._edge_terms(given).sum()
            values = F.pad(values, (0, 0, 0, 0, targets, 0))  # nothing attends to targets
            joined = torch.ops.phgcn.join_kinds(edges, sources, targets)
            return edges, Graph(torch.cat([nodes.target_positions, positions]), values, joined, None, bias)
        edges, count = to_coo(given.edge_index, values), values.size(0)
        terms = self._edge_terms(given, values if self.add_self_loops else None)
        if not self.add_self_loops:
            return edges, Graph(positions, values, edges, None, terms.sum())
        if not show_edges and (torch.compiler.is_compiling() or edges.is_cuda):
            redirected = torch.ops.phgcn.redirect_self_loops(edges, count)
            bias = terms.sum_with_loops(redirected[1, : edges.size(1)], count)
            return edges, Graph(_append_node(positions), _append_node(values), redirected, None, bias)
        if terms.sum() is not None:
            terms = terms.select(edges[0] != edges[1])
        edges = replace_self_loops(edges, count)
        return edges, Graph(positions, values, edges, None, terms.sum_with_loops(edges[1, : edges.size(1) - count], count))

    def _edge_terms(self, given: GraphInput, nodes: Tensor | None = None) -> EdgeTerms:
        """Computes what edges add to the exponents; with ``nodes``, (N, ...), also what their self-loops add."""
        features, weights, fill = given.edge_attr, given.edge_weight, None
        if features is not None and self.lin_edge is not None:
            check_edge_features("edge_attr", features, given.edge_index, self.lin.weight)
            features = features.unsqueeze(-1) if features.dim() == 1 else features
            if nodes is not None and isinstance(self.fill_value, str) and self.fill_value != "mean":
                fill = self.lin_edge(reduce_to_targets(given.edge_index, features, nodes, self.fill_value))
            features = self.lin_edge(features)
            if not isinstance(self.fill_value, str):
                value = torch.as_tensor(self.fill_value, dtype=self.lin_edge.weight.dtype, device=self.lin_edge.weight.device)
                fill = self.lin_edge(value.expand(1, self.lin_edge.in_channels))
        if weights is not None:
            check_edge_features("edge_weight", weights, given.edge_index, self.lin.weight)
            # An edge of weight 0 has the least weight that there is.
            weights = weights.clamp(min=torch.finfo(weights.dtype).tiny).log().unsqueeze(-1)
        return EdgeTerms(features, weights, fill)

    def combine(self, x: Tensor, paths: Sequence[Tensor]) -> Tensor:
        """Concatenates or averages heads and paths (N, heads, out_channels), then adds the residual and the bias."""
        if self.gates is not None:
            paths = [_gate(path, gate) for path, gate in zip(paths, self.gates[:-1], strict=True)]
        joined = paths[0] if len(paths) == 1 else torch.cat(list(paths), dim=1)
        out = joined.flatten(1) if self.concat else joined.mean(dim=1)
        if self.res is not None and self.gates is not None:
            out = out + _gate(self.res(x), self.gates[-1])
        return out if self.bias is None else out + self.bias.to(out.dtype)

    def recordable(self, nodes: int) -> bool:
        """Tells whether a pass over so many nodes can be captured into a CUDA graph: no kernel waits for the host."""
        return self.backend in ("auto", "triton")

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}, heads={self.heads})"


def embed(flat: Tensor, embedding: Tensor) -> Tensor:
    r"""Computes the positions :math:`\mathbf{\Phi} \mathbf{f}` of each head.

    Shapes:
        - **flat:** :math:`(N, H C)`, **embedding:** :math:`(H, D, C)`
        - **output:** :math:`(N, H, D)`
    """
    # One product with the block-diagonal matrix of all heads: on a CPU twice as fast as a product per head (einsum), which
    # reads and writes rows with strides.
    heads, dim, _ = embedding.shape
    blocks = torch.diag_embed(embedding.permute(1, 2, 0), dim1=0, dim2=2)  # (H, D, H, C)
    return F.linear(flat, blocks.view(heads * dim, -1)).view(-1, heads, dim)


def _linear(in_channels: int, out_channels: int) -> Any:
    return Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")


def _reversed(edge_index: Any) -> Any:
    """Returns edges in the other direction."""
    if isinstance(edge_index, PartEdges):
        raise ValueError("edge_index is a PartEdges; allowed for flow='target_to_source': a tensor")
    if is_adjacency(edge_index):
        return edge_index.t().to_sparse(layout=edge_index.layout)
    return torch.as_tensor(edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index).flip(0)


def _append_node(tensor: Tensor) -> Tensor:
    """Appends a row of 0 to (N, heads, width)."""
    return F.pad(tensor, (0, 0, 0, 0, 0, 1))


def _gate(path: Tensor, gate: Tensor) -> Tensor:
    """Multiplies a path by its learned weight, expanded to all channels: the gradient is then summed over nodes first, channel
    by channel.  torch's sum over a whole tensor at once depends on the number of threads."""
    return path * gate.to(path.dtype).expand(path.size(-1))
