r"""PyG's GCN layer with a residual, and over the parts of a graph that several processes hold."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch_geometric.nn import GCNConv, Linear

from ..checks import check_edge_features
from ..distributed.boundary import PartEdges
from ..runtime.backend import choose_backend
from .local_conv import part_adjacency, propagate_plainly, weigh_part


class ResidualGCNConv(GCNConv):  # type: ignore[misc]  # PyG ships no types
    """PyG's :class:`~torch_geometric.nn.conv.GCNConv` that adds, if ``residual``, a learned linear map of its input."""

    def __init__(self, in_channels: int, out_channels: int, residual: bool) -> None:
        super().__init__(in_channels, out_channels)
        self.res = Linear(in_channels, out_channels, bias=False, weight_initializer="glorot") if residual else None

    def reset_parameters(self) -> None:
        super().reset_parameters()
        res = getattr(self, "res", None)  # PyG's constructor calls this before there is one
        if res is not None:
            res.reset_parameters()

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = super().forward(x, edge_index, edge_weight)
        return out if self.res is None else out + self.res(x)

    def forward_part(self, x: Tensor, edges: PartEdges, edge_weight: Tensor | None = None) -> Tensor:
        """Runs the forward pass for the nodes of this rank: PyG's own would take the degrees of boundary nodes as 0."""
        values = edges.extend(self.lin(x))
        if edge_weight is None:
            summed = part_adjacency(edges, False, choose_backend("auto", x.device)).normalised_sum(values)
        else:
            check_edge_features("edge_weight", edge_weight, edges.edge_index, self.lin.weight)
            summed = propagate_plainly(self, weigh_part(edges, edge_weight, values.dtype), values)
        out: Tensor = summed[: x.size(0)] + self.bias
        return out if self.res is None else out + self.res(x)
