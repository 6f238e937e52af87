r"""The structural layer with Euclidean distance attention, that of GAT-EDA."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..checks import blame_inputs
from ..functional import Backend
from .decay import Decay
from .distance_conv import DistanceConv, EdgeWeights


class EDAConv(DistanceConv):
    r"""The graph attention layer with Euclidean distance attention, the ablation GAT-EDA of the `"Permutohedral-GCN: Graph
    Convolutional Networks with Global Attention" <https://arxiv.org/abs/2003.00635>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \sum_{j \in \mathcal{N}(i) \cup \{ i \}} \alpha_{ij} \mathbf{W} \mathbf{x}_j, \qquad
        \alpha_{ij} = \frac{\exp(-\lambda \lVert \mathbf{p}_i - \mathbf{p}_j \rVert)}
        {\sum_{k \in \mathcal{N}(i) \cup \{ i \}} \exp(-\lambda \lVert \mathbf{p}_i - \mathbf{p}_k \rVert)}, \qquad
        \mathbf{p}_i = \mathbf{\Phi} \mathbf{W} \mathbf{x}_i

    As :class:`torch_geometric.nn.GATConv`, which it can stand in for, it leaves the non-linearity to the model.

    Args:
        in_channels (int): Size of each input sample, or :obj:`-1` to derive the size from the first input.
        out_channels (int): Size of each output sample, of each head.
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        concat (bool, optional): If set to :obj:`False`, the heads are averaged instead of concatenated.
            (default: :obj:`True`)
        dropout (float, optional): Dropout probability of the attention weights, after the softmax. (default: :obj:`0.0`)
        add_self_loops (bool, optional): If set to :obj:`False`, nodes do not attend to themselves, unless a self-loop is
            among the edges. Otherwise each node has one self-loop, whether the edges have none or several.
            (default: :obj:`True`)
        bias (bool, optional): If set to :obj:`False`, the layer will not learn an additive bias. (default: :obj:`True`)
        residual (bool, optional): If set to :obj:`True`, the layer adds a learned linear map of the node's own features to
            the output, and learns a weight for attention and for this map, from 1 on. (default: :obj:`False`)
        embedding_dim (int, optional): Size of the embeddings :math:`\mathbf{p}_i`. (default: :obj:`4`)
        decay_local (float, optional): The coefficient :math:`\lambda`. (default: :obj:`1.0`)
        learn_decay (bool, optional): If set to :obj:`True`, :math:`\lambda` is learned for each head, from ``decay_local``
            on. (default: :obj:`False`)
        backend (str, optional): As in :func:`phgcn.structural_attention`. (default: :obj:`"auto"`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, dense or :obj:`torch.sparse` CSR or COO; edge indices :math:`(2, E)`
        - **output:** node features :math:`(N, H \cdot F_{out})`, or :math:`(N, F_{out})` with ``concat=False``; with
          ``return_attention_weights=True``, :math:`((N, H \cdot F_{out}), ((2, E), (E, H)))`
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        bias: bool = True,
        residual: bool = False,
        *,
        embedding_dim: int = 4,
        decay_local: float = 1.0,
        learn_decay: bool = False,
        backend: Backend = "auto",
    ) -> None:
        super().__init__(
            in_channels, out_channels, heads, concat, dropout, add_self_loops, bias, residual, embedding_dim, backend
        )
        self.decay_local = Decay("decay_local", decay_local, heads, learn_decay)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.decay_local.reset_parameters()

    def forward(
        self, x: Tensor, edge_index: Any, *, return_attention_weights: bool | None = None
    ) -> Tensor | tuple[Tensor, EdgeWeights]:
        r"""Runs the forward pass of the module.

        Args:
            x (torch.Tensor): The node features.
            edge_index (torch.Tensor): The edges: sources and targets, as a tensor or :class:`torch_geometric.EdgeIndex`, or
                the transposed adjacency matrix in a :obj:`torch.sparse` layout, whose values are not used. An edge that
                occurs twice counts twice.
            return_attention_weights (bool, optional): If set to :obj:`True`, also returns the edges that were used,
                self-loops included, and their attention weights, before dropout. (default: :obj:`None`)
        """
        with blame_inputs(edge_index, x=x):
            positions, values = self.project(x)
            structural, weights = self.attend_structural(
                positions, values, edge_index, self.decay_local(), bool(return_attention_weights)
            )
        out = self.combine(x, [structural])
        return out if weights is None else (out, weights)
