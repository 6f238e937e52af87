r"""The model of Geom-GCN."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from phgcn.nn.models import NodeModel

from .conv import RELATIONS, GeomGCNConv


class GeomGCN(NodeModel):
    """The model of the `"Geom-GCN: Geometric Graph Convolutional Networks"
    <https://arxiv.org/abs/2002.05287>`_ paper: virtual nodes are concatenated in hidden layers,
    which are 9 times as wide as ``hidden_channels``, and averaged in the last.

    What makes it Geom-GCN-I, -P or -S is the embedding that edges and relations come from
    (:func:`phgcn_lab.geom_gcn.related_edges`).
    """

    activation = "relu"
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
        super().__init__(
            in_channels, hidden_channels, out_channels, num_layers, 1, dropout, norm=norm
        )

    def init_conv(self, in_channels: int, out_channels: int, **settings: Any) -> Any:
        is_last = hasattr(self, "_is_conv_to_out")
        width = out_channels if is_last else out_channels // RELATIONS
        return GeomGCNConv(in_channels, width, concat=not is_last)

    # Other models take no relation; training passes it after edge_index, as the registry's
    # prepare_edges returns it.
    def forward(  # type: ignore[override]
        self, x: Tensor, edge_index: Any, relation: Tensor, batch: Tensor | None = None
    ) -> Tensor:
        """``relation`` (E,) is the relation of each edge; ``batch`` (N,) is read by norms only."""
        return self.apply_layers(x, batch, lambda conv, h: conv(h, edge_index, relation))

    def __repr__(self) -> str:
        sizes = f"{self.in_channels}, {self.hidden_channels}, {self.out_channels}"
        return f"{self.__class__.__name__}({sizes}, num_layers={self.num_layers})"
