"""The structural layer with Euclidean distance attention, of GAT-EDA; the base of
:class:`phgcn.nn.PHGCNConv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.inits import glorot, ones, zeros

from ..backends import BackendName
from ..checks import check_choice, check_choices
from ..functional import attend_neighbours
from ..structural.graph import Graph
from .checks import check_dropout, check_edge_features, check_features, check_sizes
from .distance_attention import Decay, embed, linear_map
from .edges import (
    FILLS,
    adjacency_values,
    as_edges,
    is_adjacency,
    reduce_to_nodes,
    replace_self_loops,
    to_coo,
    warn_of_values,
    with_weights,
)
from .graph_input import GraphInput, read_graph

FLOWS = ("source_to_target", "target_to_source")  # directions of messages along edges, as in PyG

# the hooks of PyG that read messages
HOOKS = tuple(
    f"_{stage}_forward{kind}"
    for stage in ("propagate", "message", "aggregate")
    for kind in ("_pre_hooks", "_hooks")
)

EdgeWeights = tuple[Tensor, Tensor]  # edges (2, E) and the attention weights (E, heads) along them


class Nodes(NamedTuple):
    """Projected nodes: positions (N, H, D) and values (N, H, C) of sources, and of targets if these
    are nodes of another kind. ``x`` holds the features of the targets."""

    x: Tensor
    positions: Tensor
    values: Tensor
    target_positions: Tensor | None = None
    target_values: Tensor | None = None

    @property
    def targets(self) -> tuple[Tensor, Tensor]:
        if self.target_positions is None or self.target_values is None:
            return self.positions, self.values
        return self.target_positions, self.target_values


class EDAConv(MessagePassing):  # type: ignore[misc]  # PyG ships no types
    r"""The graph attention layer with Euclidean distance attention, the ablation GAT-EDA of the
    `"Permutohedral-GCN: Graph Convolutional Networks with Global Attention"
    <https://arxiv.org/abs/2003.00635>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \sum_{j \in \mathcal{N}(i) \cup \{ i \}}
        \alpha_{ij} \mathbf{W} \mathbf{x}_j, \qquad
        \alpha_{ij} = \frac{\exp(-\lambda \lVert \mathbf{p}_i - \mathbf{p}_j \rVert)}
        {\sum_{k \in \mathcal{N}(i) \cup \{ i \}} \exp(-\lambda \lVert \mathbf{p}_i - \mathbf{p}_k
        \rVert)}, \qquad
        \mathbf{p}_i = \mathbf{\Phi} \mathbf{W} \mathbf{x}_i

    With features :math:`\mathbf{e}_{ij}` and weights :math:`w_{ij}` of edges, :math:`\alpha_{ij}
    \propto w_{ij} \exp(\mathbf{b}^{\top} \mathbf{e}_{ij} - \lambda \lVert \mathbf{p}_i -
    \mathbf{p}_j \rVert)`, with :math:`\mathbf{b}` learned for each head.

    The layer can replace :class:`torch_geometric.nn.GATConv`: the non-linearity belongs to the
    model. Messages are fused with their sum; explainers and hooks get them one by one.

    Args: As in :class:`phgcn.nn.PHGCNConv`, without ``decay_global``, ``act``, ``method``,
    ``tolerance`` and ``process_group``.

    Attributes:
        output_width (int): The number of output channels.

    Shapes:
        - **input:** as in :class:`phgcn.nn.PHGCNConv`
        - **output:** node features :math:`(N, H \cdot F_{out})`, or :math:`(N, F_{out})` with
          ``concat=False``; with ``return_attention_weights=True``, :math:`((N, H \cdot F_{out}),
          ((2, E), (E, H)))`
    """

    paths = 1  # the number of concatenated outputs: 1, or 2 with a global path

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        *,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: float | Tensor | str = "mean",
        bias: bool = True,
        residual: bool = False,
        embedding_dim: int = 4,
        decay_local: float = 1.0,
        learn_decay: bool = False,
        backend: BackendName = "auto",
        flow: str = "source_to_target",
    ) -> None:
        super().__init__(aggr="sum", node_dim=0)
        if isinstance(fill_value, str):
            check_choice("fill_value", fill_value, FILLS, "a number, or a tensor")
        check_choice("flow", flow, FLOWS)
        two_kinds = isinstance(in_channels, (tuple, list))
        sizes: Any = in_channels if two_kinds else (in_channels, in_channels)
        for size in sizes:
            check_sizes(size, out_channels=out_channels, heads=heads, embedding_dim=embedding_dim)
        check_dropout(dropout=dropout)
        check_choices("auto", backend)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.heads = heads
        self.concat = concat
        self.dropout = dropout
        self.add_self_loops = add_self_loops
        self.edge_dim = edge_dim
        self.fill_value = fill_value
        self.flow = flow
        self.embedding_dim = embedding_dim
        self.backend = backend
        self.output_width = width = self.paths * heads * out_channels if concat else out_channels
        self.lin = linear_map(sizes[0], heads * out_channels)
        self.lin_target = linear_map(sizes[1], heads * out_channels) if two_kinds else None
        self.lin_edge: Any = None if edge_dim is None else linear_map(edge_dim, heads)
        self.embedding = Parameter(torch.empty(heads, embedding_dim, out_channels))
        self.res = linear_map(sizes[1], width) if residual else None
        self.gates = Parameter(torch.empty(self.paths + 1)) if residual else None
        self.bias = Parameter(torch.empty(width)) if bias else None
        self.decay_local = Decay("decay_local", decay_local, heads, learn_decay)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Resets all learnable parameters of the module."""
        for linear in (self.lin, self.lin_target, self.lin_edge):
            if linear is not None:
                linear.reset_parameters()
        glorot(self.embedding)
        if self.res is not None:
            self.res.reset_parameters()
        ones(self.gates)
        zeros(self.bias)
        for module in self.children():
            if isinstance(module, Decay):
                module.reset_parameters()

    def forward(
        self,
        x: Any,
        edge_index: Any = None,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
        return_attention_weights: bool | None = None,
        *,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, EdgeWeights]:
        """Runs the forward pass of the module.

        Args: As in :meth:`phgcn.nn.PHGCNConv.forward`. ``batch`` is not used, as edges do not cross
        graphs."""
        given = self.read_call(GraphInput(x, edge_index, edge_attr, edge_weight, batch), size)
        with given.blame():
            nodes = self.project_nodes(given.x)
            structural, weights = self.attend_structural(
                nodes, given, self.decay_local(), bool(return_attention_weights)
            )
        out = self.combine(nodes.x, [structural])
        return out if weights is None else (out, self.shown_weights(weights, edge_index))

    @property
    def _reverse(self) -> bool:
        return bool(self.flow == FLOWS[1])

    @property
    def takes(self) -> tuple[str, ...]:
        """The edge features that the layer takes, by argument."""
        return ("edge_weight",) if self.lin_edge is None else ("edge_attr", "edge_weight")

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Computes the positions (N, heads, embedding_dim) and values (N, heads, out_channels) of
        nodes."""
        return self._project(x, self.lin, "x")

    def project_nodes(self, x: Any) -> Nodes:
        """Projects nodes of one kind, or a pair of sources and targets."""
        source, target = as_pair(x)
        if source is target and self.lin_target is None:
            return Nodes(target, *self.project(source))
        sources = self._project(source, self.lin, "x[0]")
        return Nodes(target, *sources, *self._project(target, self.lin_target or self.lin, "x[1]"))

    def _project(self, x: Tensor, lin: Any, name: str) -> tuple[Tensor, Tensor]:
        check_features(x, lin.in_channels, lin.weight, name)
        flat = lin(x)
        return embed(flat, self.embedding), flat.view(-1, self.heads, self.out_channels)

    def read_call(self, given: GraphInput, size: tuple[int, int] | None) -> GraphInput:
        """Reads objects of PyG, missing targets, the values of a sparse matrix and the flow."""
        crosses = type(self).__name__ if self.paths == 2 else None
        given = read_graph(given, self.takes, crosses=crosses)
        if isinstance(given.x, tuple) and given.x[1] is None:
            # Targets without features are at the origin, like in GATConv.
            width = (self.lin_target or self.lin).in_channels
            count = given.x[0].size(0) if size is None else size[1]
            if size is None and is_adjacency(given.edge_index):
                count = given.edge_index.size(1 if self._reverse else 0)
            target = given.x[0].new_zeros(count, given.x[0].size(1) if width == -1 else width)
            given = given._replace(x=(given.x[0], target))
        sources, targets = as_pair(given.x)
        if size is not None and tuple(size) != (counts := (sources.size(0), targets.size(0))):
            allowed = f"{counts}, the numbers of sources and targets in x"
            raise ValueError(f"size is {tuple(size)}; allowed: {allowed}")
        if self._reverse:
            given = given._replace(edge_index=as_edges(given.edge_index).reverse())
        if is_adjacency(given.edge_index) and given.edge_attr is None:
            if self.lin_edge is None:
                hint = "set edge_dim, or pass them as edge_weight beside a (2, E) tensor"
                warn_of_values(given.edge_index, hint)
            else:
                values = adjacency_values(given.edge_index)
                edges = to_coo(given.edge_index, targets, sources)
                given = given._replace(edge_index=edges, edge_attr=values)
        return given

    def shown_weights(self, weights: EdgeWeights, edge_index: Any) -> EdgeWeights:
        """Returns edges and attention weights in the format of ``edge_index``."""
        edges, alpha = weights
        edges = edges.flip(0) if self._reverse else edges
        return (
            with_weights(edge_index, edges, alpha) if is_adjacency(edge_index) else (edges, alpha)
        )

    def attend_structural(
        self, nodes: Nodes, given: GraphInput, decay: float | Tensor, return_weights: bool
    ) -> tuple[Tensor, EdgeWeights | None]:
        """Computes the structural path (N, heads, out_channels) and, with ``return_weights``, its
        edges and their weights."""
        as_messages = shows_messages(self)
        edges, graph = self._local_graph(nodes, given, return_weights or as_messages)
        if self.training and self.dropout > 0:
            ones = graph.values.new_ones(graph.edge_index.size(1), self.heads)
            graph = graph._replace(edge_mask=F.dropout(ones, self.dropout))
        out, weights = attend_neighbours(graph, decay, return_weights or as_messages, self.backend)
        if as_messages and weights is not None:
            alpha = weights if graph.edge_mask is None else weights * graph.edge_mask
            edge_index = graph.edge_index.long()
            edge_index = edge_index.flip(0) if self._reverse else edge_index
            out = self.propagate(edge_index, x=graph.values, alpha=alpha)
        out = out[: nodes.targets[0].size(0)]
        return out, (edges, weights) if return_weights and weights is not None else None

    def message(self, x_j: Tensor, alpha: Tensor) -> Tensor:
        return alpha.unsqueeze(-1) * x_j

    def _local_graph(
        self, nodes: Nodes, given: GraphInput, show_edges: bool
    ) -> tuple[Tensor, Graph]:
        """Returns the edges with self-loops, and the graph for the kernels.

        Sources and targets of different kinds become one graph, targets first. If edges are not
        shown, self-loops may be redirected to a spare node at the end."""
        parts, targets = as_edges(given.edge_index), nodes.target_positions
        positions, values = parts.extend_all(nodes.positions, nodes.values)
        given, count = given._replace(edge_index=parts.edge_index), values.size(0)
        edges = to_coo(given.edge_index, values if targets is None else targets, values)
        add_loops = self.add_self_loops and targets is None
        bias, loops = self._edge_bias(given, edges, count if add_loops else None)
        if targets is not None:
            joined = torch.ops.phgcn.join_kinds(edges, count, targets.size(0))
            positions = torch.cat([targets, positions])
            values = F.pad(values, (0, 0, 0, 0, targets.size(0), 0))  # nothing attends to targets
            return edges, Graph(positions, values, joined, None, bias)
        if add_loops and not show_edges and (torch.compiler.is_compiling() or edges.is_cuda):
            edges = torch.ops.phgcn.redirect_self_loops(edges, count)
            positions, values = (F.pad(rows, (0, 0, 0, 0, 0, 1)) for rows in (positions, values))
        elif add_loops:
            edges, bias = replace_self_loops(edges, bias, count)
        bias = bias if bias is None or loops is None else torch.cat([bias, loops])
        return edges, Graph(positions, values, edges, None, bias)

    def _edge_bias(
        self, given: GraphInput, edges: Tensor, count: int | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Computes from features and weights of edges their terms (E, heads) or (E, 1) in the
        exponents, and with ``count`` the terms (count, heads) of added self-loops."""
        bias, loops = None, None
        if given.edge_attr is not None and self.lin_edge is not None:
            width = self.lin_edge.in_channels
            rows, edges_given = given.edge_attr, given.edge_index
            check_edge_features("edge_attr", rows, edges_given, self.lin.weight, width)
            features = given.edge_attr
            features = features.unsqueeze(-1) if features.dim() == 1 else features
            bias = self.lin_edge(features)
            loops = None if count is None else self._loop_bias(features, bias, edges, count)
        if given.edge_weight is not None:
            check_edge_features("edge_weight", given.edge_weight, given.edge_index, self.lin.weight)
            # An edge of weight 0 has the least weight that there is.
            least = torch.finfo(given.edge_weight.dtype).tiny
            log_weight = given.edge_weight.clamp(min=least).log().unsqueeze(-1)
            bias = log_weight if bias is None else bias + log_weight
            if count is not None and loops is None:
                loops = bias.new_zeros(count, 1)
        return bias, loops

    def _loop_bias(self, features: Tensor, bias: Tensor, edges: Tensor, count: int) -> Any:
        """Computes the terms (count, heads) of self-loops, with features by ``fill_value``."""
        fill = self.fill_value
        if not isinstance(fill, str):
            weight = self.lin_edge.weight
            value = torch.as_tensor(fill, dtype=weight.dtype, device=weight.device)
            if tuple(value.shape) not in ((), (1,), (weight.size(1),)):
                allowed = f"a number, or a tensor ({weight.size(1)},), as edge_dim"
                raise ValueError(f"fill_value has shape {tuple(value.shape)}; allowed: {allowed}")
            return self.lin_edge(value.expand(1, weight.size(1))).expand(count, -1)
        if fill == "mean":  # of the terms, which are linear in the features
            return reduce_to_nodes(edges, bias, count, fill)
        return self.lin_edge(reduce_to_nodes(edges, features, count, fill))

    def combine(self, x: Tensor, paths: Sequence[Tensor]) -> Tensor:
        """Concatenates or averages heads and paths (N, heads, out_channels), then adds the residual
        and the bias."""
        if self.gates is not None:
            paths = [_gate(path, gate) for path, gate in zip(paths, self.gates[:-1], strict=True)]
        joined = paths[0] if len(paths) == 1 else torch.cat(list(paths), dim=1)
        out = joined.flatten(1) if self.concat else joined.mean(dim=1)
        if self.res is not None and self.gates is not None:
            out = out + _gate(self.res(x), self.gates[-1])
        return out if self.bias is None else out + self.bias.to(out.dtype)

    def __repr__(self) -> str:
        sizes = f"{self.in_channels}, {self.out_channels}, heads={self.heads}"
        return f"{self.__class__.__name__}({sizes})"


def as_pair(x: Any) -> tuple[Any, Any]:
    """Returns a pair of sources and targets as it is, other nodes as both."""
    return x if isinstance(x, tuple) else (x, x)


def _gate(path: Tensor, gate: Tensor) -> Tensor:
    """Multiplies a path by its learned weight, expanded to all channels: its gradient is summed
    over nodes first. torch's sum over a whole tensor depends on the number of threads."""
    return path * gate.to(path.dtype).expand(path.size(-1))


def shows_messages(conv: Any) -> bool:
    """Returns whether an explainer masks the messages of a layer of PyG, or a hook reads them."""
    return bool(conv.explain) or any(getattr(conv, hooks) for hooks in HOOKS)
