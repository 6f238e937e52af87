"""The models of the paper's tables, all with the same signature."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATConv, Linear
from torch_geometric.nn.models.basic_gnn import BasicGNN

from ..distributed.norm import synchronise_norms
from .activation import make_activation
from .attention_statistics import GlobalStatistics
from .checks import check_dropout, check_sizes
from .eda_conv import EDAConv
from .graph_input import GraphInput, read_graph
from .local_conv import SortedGCNConv, apply_local, prepare_edges
from .phgcn_conv import PHGCNConv


class NodeModel(BasicGNN):  # type: ignore[misc]  # PyG ships no types
    """A stack of layers, the base of all models: PyG's
    :class:`~torch_geometric.nn.models.basic_gnn.BasicGNN` with dropout of the input too.

    Dropout comes before each layer, a norm and a non-linearity after each but the last.

    Args:
        in_channels (int): Size of each input sample, or :obj:`-1` to derive the size from the first
            input.
        hidden_channels (int): Size of each hidden sample of one head. Hidden layers are ``heads *
            hidden_channels`` wide in every model, in :class:`PHGCN` twice that for its two paths.
        out_channels (int): Size of each output sample.
        num_layers (int, optional): Number of layers. (default: :obj:`2`)
        heads (int, optional): Number of attention heads of each layer, which the last layer
            averages. (default: :obj:`8`)
        dropout (float, optional): Dropout probability of the input of each layer. (default:
            :obj:`0.5`)
        attention_dropout (float, optional): Dropout probability of attention. (default: :obj:`0.0`)
        norm (str, optional): The normalisation after each hidden layer, as in PyG's
            :class:`~torch_geometric.nn.models.GAT`. (default: :obj:`None`)
        residual (bool, optional): If set to :obj:`True`, each layer adds a learned linear map of
            its input to its output. (default: :obj:`False`)
        edge_dim (int, optional): Size of the features of edges, for :class:`PHGCN`, :class:`GATEDA`
            and :class:`GAT`. (default: :obj:`None`)
        **settings (optional): Arguments of the layers of :class:`PHGCN` and :class:`GATEDA`.

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, dense or :obj:`torch.sparse` CSR or COO;
          edge indices as the layers take them
        - **output:** node features :math:`(N, F_{out})`
    """

    supports_edge_weight = False
    supports_edge_attr = False
    activation = "elu"
    paths = 1
    layer: Callable[..., Any]  # the class of the layers

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
        if edge_dim is not None and not self.supports_edge_attr:
            allowed = f"allowed for {type(self).__name__}: None, as it has no use for them"
            raise ValueError(f"edge_dim is {edge_dim}; {allowed}")
        sizes = {"hidden_channels": hidden_channels, "out_channels": out_channels}
        check_sizes(in_channels, **sizes, num_layers=num_layers, heads=heads)
        if settings.get("tolerance") == 0:
            settings["tolerance"] = None
        check_dropout(dropout=dropout, attention_dropout=attention_dropout)
        super().__init__(
            in_channels,
            self.paths * heads * hidden_channels,
            num_layers,
            out_channels,
            dropout,
            make_activation(self.activation),
            norm=norm,
            heads=heads,
            attention_dropout=attention_dropout,
            residual=residual,
            edge_dim=edge_dim,
            **settings,
        )
        self.hidden_channels = hidden_channels
        self.heads = heads
        self.residual = residual
        self.edge_dim = edge_dim
        self.process_group = settings.get("process_group")
        if self.process_group is not None:
            synchronise_norms(self, self.process_group)

    def init_conv(self, in_channels: int, out_channels: int, **settings: Any) -> Any:
        """Makes a layer; the last one averages its heads."""
        is_last = hasattr(self, "_is_conv_to_out")  # set by PyG's constructor
        heads, dropout = settings.pop("heads"), settings.pop("attention_dropout")
        width = out_channels if is_last else out_channels // (self.paths * heads)
        return self.layer(
            in_channels, width, heads, concat=not is_last, dropout=dropout, **settings
        )

    @property
    def takes(self) -> tuple[str, ...]:
        """The edge features that the model takes, by argument."""
        takes_attr = self.supports_edge_attr and self.edge_dim is not None
        return ("edge_attr",) * takes_attr + ("edge_weight",) * self.supports_edge_weight

    def forward(
        self,
        x: Any,
        edge_index: Any = None,
        batch: Tensor | None = None,
        *,
        edge_attr: Tensor | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """Runs the forward pass of the module.

        Args:
            x (torch.Tensor or Data): The node features; or a PyG
                :class:`~torch_geometric.data.Data` or :class:`~torch_geometric.data.Batch` with the
                other arguments.
            edge_index (torch.Tensor, optional): The edges.
            batch (torch.Tensor, optional): The graph of each node.
            edge_attr (torch.Tensor, optional): The features of edges, for a model with
                ``edge_dim``.
            edge_weight (torch.Tensor, optional): The weights of edges, for :class:`PHGCN`,
                :class:`GATEDA` and :class:`GCN`.
        """
        given = GraphInput(x, edge_index, edge_attr, edge_weight, batch)
        crosses = type(self).__name__ if self.paths == 2 else None
        given = read_graph(given, self.takes, crosses=crosses)
        edges = prepare_edges(self.convs[0], given, "auto")
        return self.apply_layers(given.x, given.batch, lambda conv, h: apply_local(conv, h, edges))

    def apply_layers(
        self, x: Tensor, batch: Tensor | None, apply: Callable[[Any, Tensor], Tensor]
    ) -> Tensor:
        """Runs all layers, each called by ``apply``, with dropout, norms and activations."""
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = apply(conv, drop_features(x, self.dropout.p, self.training))
            if i < self.num_layers - 1:
                x = self.act(norm(x, batch) if self.supports_norm_batch else norm(x))
        return x

    def inference(self, *args: Any, **kwargs: Any) -> Tensor:
        """Refuses PyG's inference layer by layer, on parts of a graph."""
        name = f"{type(self).__name__}.inference"
        raise NotImplementedError(f"{name} is not implemented; call the model on the whole graph")

    def __repr__(self) -> str:
        sizes = f"{self.in_channels}, {self.hidden_channels}, {self.out_channels}"
        more = f"num_layers={self.num_layers}, heads={self.heads}"
        return f"{self.__class__.__name__}({sizes}, {more})"


class PHGCN(GlobalStatistics, NodeModel):
    """The model of the `"Permutohedral-GCN: Graph Convolutional Networks with Global Attention"
    <https://arxiv.org/abs/2003.00635>`_ paper, of :class:`phgcn.nn.PHGCNConv`.

    Args: As :class:`NodeModel`; then ``embedding_dim``, ``decay_local``, ``decay_global``,
    ``learn_decay``, ``method``, ``backend``, ``tolerance`` (0 is none) and ``process_group`` of
    the layer. With a group, batch norms are over the nodes of all processes."""

    supports_edge_weight = True
    supports_edge_attr = True
    paths = 2
    layer = staticmethod(partial(PHGCNConv, act=None))  # the model may have a norm before it

    def _global_layers(self) -> list[Any]:
        return list(self.convs)


class GATEDA(NodeModel):
    """The paper's ablation: :class:`GAT` with Euclidean distance attention, of
    :class:`phgcn.nn.EDAConv`.

    Args: As :class:`NodeModel`; then ``embedding_dim``, ``decay_local``, ``learn_decay`` and
    ``backend`` of the layer."""

    supports_edge_weight = True
    supports_edge_attr = True
    layer = EDAConv


class GAT(NodeModel):
    """The model of the `"Graph Attention Networks" <https://arxiv.org/abs/1710.10903>`_ paper, of
    PyG's :class:`~torch_geometric.nn.conv.GATConv`.

    Args: As :class:`NodeModel`."""

    supports_edge_attr = True
    layer = GATConv


class GCN(NodeModel):
    """The model of the `"Semi-supervised Classification with Graph Convolutional Networks"
    <https://arxiv.org/abs/1609.02907>`_ paper, of PyG's :class:`~torch_geometric.nn.conv.GCNConv`.

    Args: As :class:`NodeModel`; ``attention_dropout`` has no effect."""

    supports_edge_weight = True
    activation = "relu"

    def init_conv(self, in_channels: int, out_channels: int, **settings: Any) -> Any:
        return SortedGCNConv(in_channels, out_channels, _only_residual(settings))


class MLP(NodeModel):
    """Linear layers on the features of each node, without edges.

    Args: As :class:`NodeModel`; ``attention_dropout`` has no effect, and ``residual`` must be
    :obj:`False`."""

    activation = "relu"

    def init_conv(self, in_channels: int, out_channels: int, **settings: Any) -> Any:
        if _only_residual(settings):
            allowed = "allowed for MLP: False, as its layers see the node alone already"
            raise ValueError(f"residual is True; {allowed}")
        initial = {"weight_initializer": "glorot", "bias_initializer": "zeros"}
        return Linear(in_channels, out_channels, **initial)


def _only_residual(settings: dict[str, Any]) -> bool:
    """Returns the only setting of layers without attention; refuses others."""
    unknown = settings.keys() - {"heads", "attention_dropout", "residual", "edge_dim"}
    if unknown:
        raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
    return bool(settings["residual"])


def drop_features(x: Tensor, dropout: float, training: bool) -> Tensor:
    """Drops random features, of sparse features only stored entries."""
    if not training or dropout == 0:
        return x
    if x.layout == torch.sparse_csr:
        return replace_values(x, F.dropout(x.values(), dropout))
    if x.layout == torch.sparse_coo:
        x = x.coalesce()
        values = F.dropout(x.values(), dropout)
        return torch.sparse_coo_tensor(
            x.indices(), values, x.shape, is_coalesced=True, check_invariants=False
        )
    return F.dropout(x, dropout)


def replace_values(x: Tensor, values: Tensor) -> Tensor:
    rows, columns = x.crow_indices(), x.col_indices()
    return torch.sparse_csr_tensor(rows, columns, values, x.shape, check_invariants=False)
