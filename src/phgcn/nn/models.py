r"""The models of the paper's tables, all with one signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATConv, Linear
from torch_geometric.nn.resolver import normalization_resolver

from ..checks import check_dropout, check_sizes
from ..distributed.boundary import PartEdges
from ..distributed.norm import synchronise_norms
from ..functional import Backend, Method
from .activation import make_activation
from .attention_statistics import Statistics, attention_statistics, first_inputs
from .eda_conv import EDAConv
from .edges import to_coo
from .graph_input import GraphInput, read_graph
from .phgcn_conv import PHGCNConv
from .residual_gcn_conv import ResidualGCNConv

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class NodeModel(torch.nn.Module):
    r"""A stack of layers, the base of all models: before each, dropout of its input; after each but the last, a norm, then a
    non-linearity.

    Args:
        in_channels (int): Size of each input sample, or :obj:`-1` to derive the size from the first input.
        hidden_channels (int): Size of each hidden sample of one head: hidden layers are ``heads * hidden_channels`` wide in
            every model, that of :class:`PHGCN` twice that, one half for each path.
        out_channels (int): Size of each output sample.
        num_layers (int, optional): Number of layers. (default: :obj:`2`)
        heads (int, optional): Number of attention heads of each layer. The last layer averages them. A model without
            attention is as wide as one with. (default: :obj:`8`)
        dropout (float, optional): Dropout probability of the input of each layer. (default: :obj:`0.5`)
        attention_dropout (float, optional): Dropout probability of attention. (default: :obj:`0.0`)
        norm (str, optional): The normalisation after each hidden layer, as in PyG's :class:`~torch_geometric.nn.models.GAT`.
            (default: :obj:`None`)
        residual (bool, optional): If set to :obj:`True`, each layer adds a learned linear map of its input to its output.
            (default: :obj:`False`)
        edge_dim (int, optional): Size of the features of edges, for :class:`PHGCN`, :class:`GATEDA` and :class:`GAT`.
            (default: :obj:`None`)
        **settings (optional): Those of the layers of :class:`PHGCN` and :class:`GATEDA`, by the names they have there.

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, dense or :obj:`torch.sparse` CSR or COO; edge indices as the layers
          take them
        - **output:** node features :math:`(N, F_{out})`
    """

    act = "elu"
    paths = 1
    init_conv: Callable[..., Any]
    """Makes the layer for an input of ``in_channels``; the ``last`` one leads to ``out_channels``."""
    edge_values: tuple[str, ...] = ()
    """Which features of edges the layers take: ``"edge_attr"`` if ``edge_dim`` is given, ``"edge_weight"``."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        heads: int = 8,
        dropout: float = 0.5,
        attention_dropout: float = 0.0,
        *,
        norm: str | None = None,
        residual: bool = False,
        edge_dim: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        if edge_dim is not None and "edge_attr" not in self.edge_values:
            raise ValueError(f"edge_dim is {edge_dim}; allowed for {type(self).__name__}: None, as it has no use for them")
        sizes = {"hidden_channels": hidden_channels, "out_channels": out_channels, "num_layers": num_layers, "heads": heads}
        check_sizes(in_channels, **sizes)
        check_dropout("dropout", dropout)
        check_dropout("attention_dropout", attention_dropout)
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.num_layers = num_layers
        self.heads = heads
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.residual = residual
        self.edge_dim = edge_dim
        width = self.paths * heads * hidden_channels
        inputs = [in_channels] + [width] * (num_layers - 1)
        convs = [self.init_conv(size, last=i == num_layers - 1, **settings) for i, size in enumerate(inputs)]
        self.convs = torch.nn.ModuleList(convs)
        norms = [torch.nn.Identity() if norm is None else normalization_resolver(norm, width) for _ in inputs[1:]]
        self.norms = torch.nn.ModuleList(norms)
        self.activation = make_activation(self.act)

    def apply_conv(self, conv: Any, x: Tensor, edge_index: Any, batch: Tensor | None, **edge_values: Tensor) -> Tensor:
        """Calls a layer with what it takes of the model's input; by default, with edges in the format of PyG's layers."""
        if isinstance(edge_index, PartEdges):
            extended: Tensor = conv(edge_index.extend(x), edge_index.edge_index, **edge_values)
            return extended[: x.size(0)]
        out: Tensor = conv(x, to_coo(edge_index, x).long(), **edge_values)
        return out

    @property
    def takes(self) -> tuple[str, ...]:
        """Which features of edges the model takes."""
        return tuple(name for name in self.edge_values if name != "edge_attr" or self.edge_dim is not None)

    def recordable(self, x: Tensor) -> bool:
        r"""Tells whether a pass over ``x`` can be captured into a CUDA graph, in which no kernel may wait for the host.

        So it is with linear maps and with the layers of this package, unless they need a lattice.  PyG's layers read how many
        self-loops there are, and products of sparse features are not captured.
        """
        if not x.is_cuda or x.layout != torch.strided:
            return False
        layers: list[Any] = list(self.convs)
        return all(isinstance(c, Linear) or (hasattr(c, "recordable") and c.recordable(len(x))) for c in layers)

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        for layer in (*self.convs, *self.norms):
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()

    def forward(
        self,
        x: Any,
        edge_index: Any = None,
        batch: Tensor | None = None,
        *,
        edge_attr: Tensor | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        r"""Runs the forward pass of the module.

        Args:
            x (torch.Tensor or Data): The node features; or a PyG :class:`~torch_geometric.data.Data` or
                :class:`~torch_geometric.data.Batch`, which holds all that follows.
            edge_index (torch.Tensor, optional): The edges. (default: :obj:`None`, those of the object)
            batch (torch.Tensor, optional): The graph of each node. (default: :obj:`None`, one graph)
            edge_attr (torch.Tensor, optional): The features of the edges, for a model with ``edge_dim``. (default: :obj:`None`)
            edge_weight (torch.Tensor, optional): The weights of the edges, for :class:`PHGCN`, :class:`GATEDA` and
                :class:`GCN`. (default: :obj:`None`)
        """
        given = read_graph(GraphInput(x, edge_index, edge_attr, edge_weight, batch), self.takes)
        values = {name: getattr(given, name) for name in self.takes if getattr(given, name) is not None}
        hidden: Tensor = given.x
        for i, conv in enumerate(self.convs):
            hidden = drop_features(hidden, self.dropout, self.training)
            hidden = self.apply_conv(conv, hidden, given.edge_index, given.batch, **values)
            if i < self.num_layers - 1:
                hidden = self.activation(_normalise(self.norms[i], hidden, given.batch))
        return hidden

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.in_channels}, {self.hidden_channels}, {self.out_channels}, "
            f"num_layers={self.num_layers}, heads={self.heads})"
        )


class PHGCN(NodeModel):
    r"""The model of the `"Permutohedral-GCN: Graph Convolutional Networks with Global Attention"
    <https://arxiv.org/abs/2003.00635>`_ paper, of :class:`phgcn.nn.PHGCNConv`.

    Args: As :class:`NodeModel`; then ``embedding_dim``, ``decay_local``, ``decay_global``, ``learn_decay``, ``method``,
    ``backend``, ``tolerance`` (none where it is 0) and ``process_group`` as the layer; with a group, batch norms are over the
    nodes of all processes.
    """

    paths = 2
    edge_values = ("edge_attr", "edge_weight")

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        heads: int = 8,
        dropout: float = 0.5,
        attention_dropout: float = 0.0,
        *,
        norm: str | None = None,
        residual: bool = False,
        edge_dim: int | None = None,
        embedding_dim: int = 4,
        decay_local: float = 1.0,
        decay_global: float = 10.0,
        learn_decay: bool = False,
        method: Method = "auto",
        backend: Backend = "auto",
        tolerance: float | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(
            in_channels, hidden_channels, out_channels, num_layers, heads, dropout, attention_dropout,
            norm=norm, residual=residual, edge_dim=edge_dim, embedding_dim=embedding_dim, decay_local=decay_local,
            decay_global=decay_global, learn_decay=learn_decay, method=method, backend=backend, tolerance=tolerance or None,
            process_group=process_group,
        )  # fmt: skip
        self.process_group = process_group
        if process_group is not None:
            synchronise_norms(self, process_group)

    def init_conv(self, in_channels: int, last: bool, **settings: Any) -> Any:
        # The non-linearity is left to the model, which may have a norm before it.
        settings |= {"dropout": self.attention_dropout, "residual": self.residual, "edge_dim": self.edge_dim, "act": None}
        return PHGCNConv(in_channels, **_head_shape(self, last), **settings)

    def apply_conv(self, conv: Any, x: Tensor, edge_index: Any, batch: Tensor | None, **edge_values: Tensor) -> Tensor:
        out: Tensor = conv(x, edge_index, batch=batch, **edge_values)
        return out

    @torch.no_grad()
    def global_statistics(
        self,
        x: Tensor,
        edge_index: Any,
        batch: Tensor | None = None,
        samples: int = 512,
        seed: int = 0,
        **edge_values: Tensor,
    ) -> list[Statistics]:
        r"""Tells whether global attention is used: for each layer, its number (``layer``, from 0) and the statistics of
        :func:`phgcn.nn.attention_statistics`.

        Args:
            x, edge_index, batch: As in :meth:`forward`.
            samples (int, optional): How many nodes are looked at. (default: :obj:`512`)
            seed (int, optional): Which nodes. (default: :obj:`0`)
            **edge_values (optional): ``edge_attr`` and ``edge_weight``, as in :meth:`forward`.
        """
        convs: list[Any] = list(self.convs)
        found = []
        inputs = first_inputs(convs, self, (x, edge_index, batch), edge_values)
        for layer, (conv, features) in enumerate(zip(convs, inputs, strict=True)):
            positions, _ = conv.project(features)
            statistics = attention_statistics(
                positions, conv.decay_global(), batch=batch, samples=samples, seed=seed, group=self.process_group
            )
            found.append({"layer": layer, **statistics})
        return found


class GATEDA(NodeModel):
    r"""The paper's ablation: :class:`GAT` with Euclidean distance attention, of :class:`phgcn.nn.EDAConv`.

    Args: As :class:`NodeModel`; then ``embedding_dim``, ``decay_local``, ``learn_decay`` and ``backend`` as the layer.
    """

    edge_values = ("edge_attr", "edge_weight")

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        heads: int = 8,
        dropout: float = 0.5,
        attention_dropout: float = 0.0,
        *,
        norm: str | None = None,
        residual: bool = False,
        edge_dim: int | None = None,
        embedding_dim: int = 4,
        decay_local: float = 1.0,
        learn_decay: bool = False,
        backend: Backend = "auto",
    ) -> None:
        super().__init__(
            in_channels, hidden_channels, out_channels, num_layers, heads, dropout, attention_dropout,
            norm=norm, residual=residual, edge_dim=edge_dim, embedding_dim=embedding_dim, decay_local=decay_local,
            learn_decay=learn_decay, backend=backend,
        )  # fmt: skip

    def init_conv(self, in_channels: int, last: bool, **settings: Any) -> Any:
        settings |= {"residual": self.residual, "dropout": self.attention_dropout, "edge_dim": self.edge_dim}
        return EDAConv(in_channels, **_head_shape(self, last), **settings)


class GAT(NodeModel):
    r"""The model of the `"Graph Attention Networks" <https://arxiv.org/abs/1710.10903>`_ paper, of PyG's
    :class:`~torch_geometric.nn.conv.GATConv`.

    Args: As :class:`NodeModel`.
    """

    edge_values = ("edge_attr",)

    def init_conv(self, in_channels: int, last: bool) -> Any:
        settings = {"dropout": self.attention_dropout, "residual": self.residual, "edge_dim": self.edge_dim}
        return GATConv(in_channels, **_head_shape(self, last), **settings)


class GCN(NodeModel):
    r"""The model of the `"Semi-supervised Classification with Graph Convolutional Networks"
    <https://arxiv.org/abs/1609.02907>`_ paper, of PyG's :class:`~torch_geometric.nn.conv.GCNConv`.

    Args: As :class:`NodeModel`; ``attention_dropout`` has no effect.
    """

    act = "relu"
    edge_values = ("edge_weight",)

    def init_conv(self, in_channels: int, last: bool) -> Any:
        return ResidualGCNConv(in_channels, _width(self, last), self.residual)

    def apply_conv(self, conv: Any, x: Tensor, edge_index: Any, batch: Tensor | None, **edge_values: Tensor) -> Tensor:
        if isinstance(edge_index, PartEdges):
            out: Tensor = conv.forward_part(x, edge_index, **edge_values)
            return out
        return super().apply_conv(conv, x, edge_index, batch, **edge_values)


class MLP(NodeModel):
    r"""Linear layers on each node alone, without edges: what the features say without the graph.

    Args: As :class:`NodeModel`; ``attention_dropout`` has no effect, and ``residual=True``, which would add one linear map to
    another, is refused.
    """

    act = "relu"

    def init_conv(self, in_channels: int, last: bool) -> Any:
        if self.residual:
            raise ValueError("residual is True; allowed for MLP: False, as its layers see the node alone already")
        return Linear(in_channels, _width(self, last), weight_initializer="glorot", bias_initializer="zeros")

    def apply_conv(self, conv: Any, x: Tensor, edge_index: Any, batch: Tensor | None, **edge_values: Tensor) -> Tensor:
        out: Tensor = conv(x)
        return out


def drop_features(x: Tensor, dropout: float, training: bool) -> Tensor:
    """Drops random features; of sparse features only stored entries, as the others are 0 anyway."""
    if not training or dropout == 0:
        return x
    if x.layout == torch.sparse_csr:
        return torch.sparse_csr_tensor(
            x.crow_indices(), x.col_indices(), F.dropout(x.values(), dropout), x.shape, check_invariants=False
        )
    if x.layout == torch.sparse_coo:
        x = x.coalesce()
        values = F.dropout(x.values(), dropout)
        return torch.sparse_coo_tensor(x.indices(), values, x.shape, is_coalesced=True, check_invariants=False)
    return F.dropout(x, dropout)


def _width(model: NodeModel, last: bool) -> int:
    """Returns the output channels of a layer without heads."""
    return model.out_channels if last else model.heads * model.hidden_channels


def _head_shape(model: NodeModel, last: bool) -> dict[str, Any]:
    """Returns the channels of a head, the number of heads, and whether they are concatenated."""
    return {"out_channels": model.out_channels if last else model.hidden_channels, "heads": model.heads, "concat": not last}


def _normalise(norm: torch.nn.Module, x: Tensor, batch: Tensor | None) -> Tensor:
    """Applies a norm, to each graph alone where the norm can."""
    normed: Tensor = norm(x, batch) if "batch" in inspect.signature(norm.forward).parameters else norm(x)
    return normed
