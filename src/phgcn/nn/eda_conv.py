r"""The structural layer with Euclidean distance attention, that of GAT-EDA."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..functional import Backend
from .decay import Decay
from .distance_conv import DistanceConv, EdgeWeights
from .graph_input import GraphInput


class EDAConv(DistanceConv):
    r"""The graph attention layer with Euclidean distance attention, the ablation GAT-EDA of the `"Permutohedral-GCN: Graph
    Convolutional Networks with Global Attention" <https://arxiv.org/abs/2003.00635>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \sum_{j \in \mathcal{N}(i) \cup \{ i \}} \alpha_{ij} \mathbf{W} \mathbf{x}_j, \qquad
        \alpha_{ij} = \frac{\exp(-\lambda \lVert \mathbf{p}_i - \mathbf{p}_j \rVert)}
        {\sum_{k \in \mathcal{N}(i) \cup \{ i \}} \exp(-\lambda \lVert \mathbf{p}_i - \mathbf{p}_k \rVert)}, \qquad
        \mathbf{p}_i = \mathbf{\Phi} \mathbf{W} \mathbf{x}_i

    With features :math:`\mathbf{e}_{ij}` and weights :math:`w_{ij}` of edges, :math:`\alpha_{ij} \propto w_{ij}
    \exp(\mathbf{b}^{\top} \mathbf{e}_{ij} - \lambda \lVert \mathbf{p}_i - \mathbf{p}_j \rVert)`, with :math:`\mathbf{b}`
    learned for each head.

    As :class:`torch_geometric.nn.GATConv`, which it can stand in for, it leaves the non-linearity to the model.

    Args:
        in_channels (int or tuple): Size of each input sample, or :obj:`-1` to derive the size from the first input. A tuple
            gives the sizes of sources and targets of different kinds, each with a map :math:`\mathbf{W}` of its own.
        out_channels (int): Size of each output sample, of each head.
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        concat (bool, optional): If set to :obj:`False`, the heads are averaged instead of concatenated.
            (default: :obj:`True`)
        dropout (float, optional): Dropout probability of the attention weights, after the softmax. (default: :obj:`0.0`)
        add_self_loops (bool, optional): If set to :obj:`False`, nodes do not attend to themselves, unless a self-loop is
            among the edges. Otherwise each node has one self-loop, whether the edges have none or several.
            (default: :obj:`True`)
        edge_dim (int, optional): Size of the features of edges, or :obj:`-1` to derive it from the first input: a learned
            linear map of them is added to the exponents of the softmax among neighbours. (default: :obj:`None`, none)
        fill_value (float or torch.Tensor or str, optional): The features of self-loops that are added: a number, a tensor, or
            ``"mean"``, ``"add"``, ``"min"``, ``"max"`` or ``"mul"`` of the edges to the node. (default: :obj:`"mean"`)
        bias (bool, optional): If set to :obj:`False`, the layer will not learn an additive bias. (default: :obj:`True`)
        residual (bool, optional): If set to :obj:`True`, the layer adds a learned linear map of the node's own features to
            the output, and learns a weight for attention and for this map, from 1 on. (default: :obj:`False`)
        embedding_dim (int, optional): Size of the embeddings :math:`\mathbf{p}_i`. (default: :obj:`4`)
        decay_local (float, optional): The coefficient :math:`\lambda`. (default: :obj:`1.0`)
        learn_decay (bool, optional): If set to :obj:`True`, :math:`\lambda` is learned for each head, from ``decay_local``
            on. (default: :obj:`False`)
        backend (str, optional): As in :func:`phgcn.structural_attention`. (default: :obj:`"auto"`)
        flow (str, optional): ``"target_to_source"`` reads edges in the other direction.
            (default: :obj:`"source_to_target"`)

    Attributes:
        output_width (int): The number of output channels.

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, dense or :obj:`torch.sparse` CSR or COO, or a pair
          :math:`((N_s, F_s), (N_t, F_t))`; edge indices :math:`(2, E)`; edge features :math:`(E, D)`; edge weights
          :math:`(E,)`
        - **output:** node features :math:`(N, H \cdot F_{out})`, or :math:`(N, F_{out})` with ``concat=False``; with
          ``return_attention_weights=True``, :math:`((N, H \cdot F_{out}), ((2, E), (E, H)))`
    """

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        *,
        concat: bool = True,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: float | Tensor | str = "mean",
        bias: bool = True,
        residual: bool = False,
        embedding_dim: int = 4,
        decay_local: float = 1.0,
        learn_decay: bool = False,
        backend: Backend = "auto",
        flow: str = "source_to_target",
    ) -> None:
        super().__init__(
            in_channels, out_channels, heads, concat=concat, dropout=dropout, add_self_loops=add_self_loops,
            edge_dim=edge_dim, fill_value=fill_value, bias=bias, residual=residual, embedding_dim=embedding_dim,
            backend=backend, flow=flow,
        )  # fmt: skip
        self.decay_local = Decay("decay_local", decay_local, heads, learn_decay)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.decay_local.reset_parameters()

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
        r"""Runs the forward pass of the module.

        Args:
            x (torch.Tensor or tuple or Data): The node features, or a pair of those of sources and targets, :obj:`None` for
                targets without features, which are at the origin; or a PyG
                :class:`~torch_geometric.data.Data` or :class:`~torch_geometric.data.Batch`, which holds all that follows.
            edge_index (torch.Tensor, optional): The edges: sources and targets, as a tensor or
                :class:`torch_geometric.EdgeIndex`, or the transposed adjacency matrix in a :obj:`torch.sparse` layout, whose
                values are the features of edges in a layer with ``edge_dim``. An edge that occurs twice counts twice.
                (default: :obj:`None`, those of the object)
            edge_attr (torch.Tensor, optional): The features of the edges, for a layer with ``edge_dim``. A self-loop that is
                added has the mean features of the edges to its node. (default: :obj:`None`)
            size (tuple, optional): The numbers of sources and targets; needed for ``(x_source, None)`` if they differ.
                (default: :obj:`None`)
            edge_weight (torch.Tensor, optional): The weights of the edges, not negative: factors of :math:`e^{-\lambda
                \lVert \mathbf{p}_i - \mathbf{p}_j \rVert}` among neighbours. A self-loop that is added has weight 1.
                (default: :obj:`None`, all 1)
            batch (torch.Tensor, optional): Not used, as edges do not cross graphs; here so that the call reads like that of
                :class:`phgcn.nn.PHGCNConv`. (default: :obj:`None`)
            return_attention_weights (bool, optional): If set to :obj:`True`, also returns the edges that were used,
                self-loops included, and their attention weights, before dropout. (default: :obj:`None`)
        """
        given = self.read_call(GraphInput(x, edge_index, edge_attr, edge_weight, batch), size)
        with given.blame():
            nodes = self.project_nodes(given.x)
            structural, weights = self.attend_structural(nodes, given, self.decay_local(), bool(return_attention_weights))
        out = self.combine(nodes.x, [structural])
        return out if weights is None else (out, self.shown_weights(weights, edge_index))
