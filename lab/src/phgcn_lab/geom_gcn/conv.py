r"""The layer of Geom-GCN: sums over neighbours, one for each relation that a neighbour can be
in."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import glorot

from phgcn.checks import check_node_numbers
from phgcn.nn.checks import check_features, check_sizes
from phgcn.nn.edges import to_coo

RELATIONS = 9
"""Four quadrants around a neighbour in the graph, four around one in latent space, and the node
itself.
"""


class GeomGCNConv(torch.nn.Module):
    r"""The bi-level aggregation of the `"Geom-GCN: Geometric Graph Convolutional Networks"
    <https://arxiv.org/abs/2002.05287>`_ paper.

    .. math::
        \mathbf{e}^{r}_i = \sum_{j \to i \,:\, r_{ji} = r}
        \frac{\mathbf{W}_r \mathbf{x}_j}{\sqrt{d_i\, d_j}}, \qquad
        \mathbf{x}^{\prime}_i = \big\Vert_{r} \, \mathbf{e}^{r}_i \quad \text{or} \quad
        \mathbf{x}^{\prime}_i = \frac{1}{R} \sum_{r} \mathbf{e}^{r}_i

    Every edge has one of :math:`R` relations, and :math:`d_i` is the number of edges that lead to
    node :math:`i`, whatever their relation. Virtual nodes :math:`\mathbf{e}^{r}_i` of all relations
    are concatenated, or averaged with ``concat=False``. There is no bias.

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, dense or :obj:`torch.sparse` CSR or COO;
          edge indices :math:`(2, E)`; relations :math:`(E,)`, 0 to 8
        - **output:** node features :math:`(N, 9 \cdot F_{out})`, or :math:`(N, F_{out})` with
          ``concat=False``; 0 for a node without edges
    """

    def __init__(self, in_channels: int, out_channels: int, concat: bool = True) -> None:
        super().__init__()
        check_sizes(in_channels, out_channels=out_channels)
        self.in_channels, self.out_channels, self.concat = in_channels, out_channels, concat
        self.lin = RelationLinear(in_channels, out_channels)

    def reset_parameters(self) -> None:
        self.lin.reset_parameters()

    def forward(self, x: Tensor, edge_index: Any, relation: Tensor) -> Tensor:
        """An edge that occurs twice counts twice; self-loops are not added."""
        check_features(x, self.lin.in_channels, self.lin.weight)
        edges, count = self._edges(x, edge_index, relation), x.size(0)
        sources, targets = edges * RELATIONS + relation.long()  # rows of node and relation
        degree = torch.bincount(edges[1], minlength=count).clamp(min=1)
        scale = degree.to(self.lin.weight.dtype).rsqrt().unsqueeze(1)
        values = (self.lin(x) * scale).view(count * RELATIONS, self.out_channels)
        # index_select, as its gradient has the same bits for any number of threads
        sums = torch.zeros_like(values).index_add(0, targets, values.index_select(0, sources))
        virtual = sums.view(count, RELATIONS, self.out_channels) * scale.unsqueeze(2)
        return virtual.flatten(1) if self.concat else virtual.mean(dim=1)

    def _edges(self, x: Tensor, edge_index: Any, relation: Tensor) -> Tensor:
        if isinstance(edge_index, Tensor) and edge_index.layout != torch.strided:
            allowed = "sources and targets, (2, E)"
            raise ValueError(f"edge_index has layout {edge_index.layout}; allowed: {allowed}")
        edges = to_coo(edge_index, x).long()
        if relation.is_floating_point() or relation.shape != edges.shape[1:]:
            given = f"{relation.dtype} of shape {tuple(relation.shape)}"
            allowed = f"integers of shape ({edges.size(1)},), one per edge"
            raise ValueError(f"relation is {given}; allowed: {allowed}")
        if not torch.compiler.is_compiling():  # where values can be looked at
            check_node_numbers(edges, x.size(0))
            outside = relation[(relation < 0) | (relation >= RELATIONS)]
            if len(outside):
                raise ValueError(f"relation is {int(outside[0])}; allowed: 0 to {RELATIONS - 1}")
        return edges

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_channels}, {self.out_channels})"


class RelationLinear(Linear):  # type: ignore[misc]  # PyG ships no types
    """One linear map for each relation, side by side, each with random weights for its own size."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        self.blocks = (RELATIONS, out_channels)
        width = RELATIONS * out_channels
        super().__init__(in_channels, width, bias=False, weight_initializer="glorot")

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.in_channels > 0:
            glorot(self.weight.detach().view(*self.blocks, self.in_channels))
