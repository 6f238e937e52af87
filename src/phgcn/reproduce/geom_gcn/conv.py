r"""The layer of Geom-GCN: sums over neighbours, one for each relation that a neighbour can be in."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import glorot
from torch_geometric.utils import segment

from ...checks import check_features, check_node_numbers, check_sizes
from ...nn.edges import to_coo

RELATIONS = 9
"""Four quadrants around a neighbour in the graph, four around one in latent space, and the node itself."""


class Arrangement(NamedTuple):
    r"""Related edges in the order of sums: for each place, a node and a relation, the places it sums over.

    Shapes:
        - **sources:** :math:`(E,)`, where values come from, in the order of targets; **starts:** :math:`(N R + 1,)`
        - **targets**, **back_starts:** the same the other way round, for gradients
        - **scale:** :math:`(N,)`, :math:`1 / \sqrt{d_i}`
    """

    sources: Tensor
    starts: Tensor
    targets: Tensor
    back_starts: Tensor
    scale: Tensor


class GeomGCNConv(torch.nn.Module):
    r"""The bi-level aggregation of the `"Geom-GCN: Geometric Graph Convolutional Networks"
    <https://arxiv.org/abs/2002.05287>`_ paper.

    .. math::
        \mathbf{e}^{r}_i = \sum_{j \to i \,:\, r_{ji} = r} \frac{\mathbf{W}_r \mathbf{x}_j}{\sqrt{d_i\, d_j}}, \qquad
        \mathbf{x}^{\prime}_i = \big\Vert_{r} \, \mathbf{e}^{r}_i \quad \text{or} \quad
        \mathbf{x}^{\prime}_i = \frac{1}{R} \sum_{r} \mathbf{e}^{r}_i

    Every edge has one of :math:`R` relations, and :math:`d_i` is the number of edges that lead to node :math:`i`, whatever
    their relation.  The low level sums the neighbours of one relation to a virtual node :math:`\mathbf{e}^{r}_i`, the high
    level puts the virtual nodes side by side, or averages them.  Edges and relations of a graph come from
    :func:`phgcn.reproduce.embed.related_edges`: neighbours in the graph and in latent space by the quadrant they lie in, and
    the node itself, which is a relation of its own as in the authors' code.  As PyG's layers do, it leaves the non-linearity
    to the model; it has no bias.

    Args:
        in_channels (int): Size of each input sample, or :obj:`-1` to derive the size from the first input.
        out_channels (int): Size of each virtual node.
        num_relations (int, optional): The number of relations :math:`R`. (default: :obj:`9`)
        concat (bool, optional): If set to :obj:`False`, the virtual nodes are averaged instead of concatenated.
            (default: :obj:`True`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, dense or :obj:`torch.sparse` CSR or COO; edge indices
          :math:`(2, E)`; relations :math:`(E,)`
        - **output:** node features :math:`(N, R \cdot F_{out})`, or :math:`(N, F_{out})` with ``concat=False``

    The same input gives the same bits, whatever the number of threads.  A node without edges gets 0.
    """

    def __init__(self, in_channels: int, out_channels: int, num_relations: int = RELATIONS, concat: bool = True) -> None:
        super().__init__()
        check_sizes(in_channels, out_channels=out_channels, num_relations=num_relations)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.num_relations = num_relations
        self.concat = concat
        self.lin = RelationLinear(in_channels, out_channels, num_relations)

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        self.lin.reset_parameters()

    def forward(self, x: Tensor, edge_index: Any, relation: Tensor) -> Tensor:
        r"""Runs the forward pass of the module.

        Args:
            x (torch.Tensor): The node features.
            edge_index (torch.Tensor): The edges: sources and targets, as a tensor or :class:`torch_geometric.EdgeIndex`. An
                edge that occurs twice counts twice; self-loops are not added.
            relation (torch.Tensor): The relation of each edge, 0 to ``num_relations - 1``.
        """
        return self.aggregate(x, self.arrange(x, edge_index, relation))

    def arrange(self, x: Tensor, edge_index: Any, relation: Tensor) -> Arrangement:
        """Sorts edges for :meth:`aggregate`; the result can be used again by another layer."""
        check_features(x, self.lin.in_channels, self.lin.weight)
        edges, places = self._edges(x, edge_index, relation), x.size(0) * self.num_relations
        numbers = edges * self.num_relations + relation.long()  # of places, one for each node and relation
        forth, back = _by_target(numbers, places), _by_target(numbers.flip(0), places)
        degree = forth[1][:: self.num_relations].diff()
        return Arrangement(*forth, *back, degree.clamp(min=1).to(self.lin.weight.dtype).rsqrt())

    def aggregate(self, x: Tensor, arranged: Arrangement) -> Tensor:
        """Computes the output for edges that are arranged."""
        check_features(x, self.lin.in_channels, self.lin.weight)
        count, shape = x.size(0), (self.num_relations, self.out_channels)
        *sorted_edges, scale = arranged
        values = self.lin(x) * scale.unsqueeze(1)
        sums = _RelatedSum.apply(values.view(count * shape[0], shape[1]), *sorted_edges)
        virtual = sums.view(count, *shape) * scale.view(-1, 1, 1)
        return virtual.flatten(1) if self.concat else virtual.mean(dim=1)

    def recordable(self, nodes: int) -> bool:
        """Returns that a pass can be recorded into a CUDA graph, as in :class:`phgcn.nn.distance_conv.DistanceConv`."""
        return True

    def _edges(self, x: Tensor, edge_index: Any, relation: Any) -> Tensor:
        if isinstance(edge_index, Tensor) and edge_index.layout != torch.strided:
            raise ValueError(f"edge_index has layout {edge_index.layout}; allowed: sources and targets, (2, E)")
        edges = to_coo(edge_index, x).long()
        if not isinstance(relation, Tensor):
            raise ValueError(f"relation is a {type(relation).__name__}; allowed: a tensor")
        if relation.dtype not in (torch.int64, torch.int32, torch.uint8):
            raise ValueError(f"relation is {relation.dtype}; allowed: int64, int32, uint8")
        if relation.shape != edges.shape[1:]:
            raise ValueError(f"relation has shape {tuple(relation.shape)}; allowed: ({edges.size(1)},), one per edge")
        if relation.device != edges.device:
            raise ValueError(f"relation is on {relation.device}; allowed: {edges.device}, as edge_index")
        if not torch.compiler.is_compiling() and not _capturing(edges):  # where values can be looked at
            check_node_numbers(edges, x.size(0))
            outside = (relation < 0) | (relation >= self.num_relations)
            if bool(outside.any()):
                raise ValueError(f"relation is {int(relation[outside][0])}; allowed: 0 to {self.num_relations - 1}")
        return edges

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}, num_relations={self.num_relations})"


def _capturing(tensor: Tensor) -> bool:
    """Returns whether a CUDA graph is being captured: then values cannot be read."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


class RelationLinear(Linear):
    """One linear map for each relation, side by side, each with random weights for its own size."""

    def __init__(self, in_channels: int, out_channels: int, num_relations: int) -> None:
        self.blocks = (num_relations, out_channels)
        super().__init__(in_channels, num_relations * out_channels, bias=False, weight_initializer="glorot")

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.in_channels > 0:
            glorot(self.weight.detach().view(*self.blocks, self.in_channels))


# Sums in a fixed order


def _by_target(edges: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Sorts sources by target; returns where each target's begin too."""
    targets, order = torch.sort(edges[1], stable=True)
    starts = torch.searchsorted(targets, torch.arange(count + 1, device=edges.device))
    return edges[0][order], starts


class _RelatedSum(torch.autograd.Function):
    """The sum of the values at the sources of edges, at each target.  Its derivative is the same with sources and targets
    exchanged: sorted segments both ways, so that no sum depends on the order in which threads come."""

    @staticmethod
    def forward(ctx, values, sources, starts, targets, back_starts):
        ctx.save_for_backward(sources, starts, targets, back_starts)
        return segment(values[sources], starts, reduce="sum")

    @staticmethod
    def backward(ctx, grad):
        sources, starts, targets, back_starts = ctx.saved_tensors
        return _RelatedSum.apply(grad.contiguous(), targets, back_starts, sources, starts), None, None, None, None
