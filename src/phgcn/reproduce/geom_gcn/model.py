r"""The model of Geom-GCN."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...nn.models import NodeModel
from .conv import RELATIONS, GeomGCNConv


class GeomGCN(NodeModel):
    r"""The model of the `"Geom-GCN: Geometric Graph Convolutional Networks" <https://arxiv.org/abs/2002.05287>`_ paper, of
    :class:`phgcn.reproduce.geom_gcn.GeomGCNConv`: virtual nodes are concatenated in hidden layers and averaged in the last.

    What makes it Geom-GCN-I, -P or -S is the embedding that edges and relations come from, see
    :func:`phgcn.reproduce.embed.related_edges`.

    Args:
        in_channels (int): Size of each input sample, or :obj:`-1` to derive the size from the first input.
        hidden_channels (int): Size of each hidden virtual node: hidden layers are 9 times as wide.
        out_channels (int): Size of each output sample.
        num_layers (int, optional): Number of layers. (default: :obj:`2`)
        dropout (float, optional): Dropout probability of the input of each layer. (default: :obj:`0.5`)
        norm (str, optional): The normalisation after each hidden layer. (default: :obj:`None`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, dense or :obj:`torch.sparse` CSR or COO; edge indices
          :math:`(2, E)`; relations :math:`(E,)`
        - **output:** node features :math:`(N, F_{out})`
    """

    act = "relu"
    paths = RELATIONS

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        dropout: float = 0.5,
        *,
        norm: str | None = None,
    ) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, num_layers, 1, dropout, norm=norm)

    def init_conv(self, in_channels: int, last: bool) -> torch.nn.Module:
        return GeomGCNConv(in_channels, self.out_channels if last else self.hidden_channels, concat=not last)

    def apply_conv(
        self, conv: torch.nn.Module, x: Tensor, edge_index: Any, batch: Tensor | None, **edge_values: Tensor
    ) -> Tensor:
        assert isinstance(conv, GeomGCNConv)
        return conv.aggregate(x, edge_index)

    # Other models take no relation; training passes it after edge_index, as the registry's prepare_edges returns it.
    def forward(self, x: Tensor, edge_index: Any, relation: Tensor, batch: Tensor | None = None) -> Tensor:  # type: ignore[override]
        r"""Runs the forward pass of the module.

        Args:
            x (torch.Tensor): The node features.
            edge_index (torch.Tensor): The edges.
            relation (torch.Tensor): The relation of each edge.
            batch (torch.Tensor, optional): The graph of each node, for norms. (default: :obj:`None`, one graph)
        """
        first = self.convs[0]
        assert isinstance(first, GeomGCNConv)
        return super().forward(x, first.arrange(x, edge_index, relation), batch)  # once, for all layers

    def __repr__(self) -> str:
        sizes = f"{self.in_channels}, {self.hidden_channels}, {self.out_channels}"
        return f"{self.__class__.__name__}({sizes}, num_layers={self.num_layers})"
