"""The paper's layer: attention to neighbours and to every node, side by side."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch_geometric.nn import MessagePassing

from ..backends import BackendName
from ..checks import check_choices
from ..functional import Method, global_attention
from ..tolerance import describe_tolerance, make_tolerance
from .activation import Activation, make_activation
from .distance_attention import Decay, drop_targets
from .eda_conv import EDAConv, EdgeWeights
from .graph_input import GraphInput
from .top_attention import top_attention


class PHGCNConv(EDAConv):
    r"""The graph convolution with structural and global attention from the `"Permutohedral-GCN:
    Graph Convolutional Networks with Global Attention" <https://arxiv.org/abs/2003.00635>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \sigma \left(
        \sum_{j \in \mathcal{N}(i) \cup \{ i \}} \alpha^{(S)}_{ij}
        \mathbf{W} \mathbf{x}_j \right) \, \Vert \, \sigma \left( \sum_{j = 1}^{N} \alpha^{(G)}_{ij}
        \mathbf{W} \mathbf{x}_j \right)

    Both paths share :math:`\mathbf{W}` and :math:`\mathbf{\Phi}` of a head. Their weights are
    softmaxes, over the neighbours of a node and over all nodes of its graph, of

    .. math::
        e_{ij} = -\lambda \lVert \mathbf{p}_i - \mathbf{p}_j \rVert, \qquad
        \mathbf{p}_i = \mathbf{\Phi} \mathbf{W} \mathbf{x}_i

    with :math:`\lambda` of each path. The structural path reads features and weights of edges like
    :class:`phgcn.nn.EDAConv`. With sources and targets of different kinds, targets attend to all
    targets on the global path. The output has :math:`2 H F_{out}` channels: the heads of the
    structural path, then the heads of the global path.

    Args:
        in_channels (int or tuple): Size of each input sample, or :obj:`-1` to derive the size from
            the first input. A tuple has the sizes of sources and targets of different kinds, each
            with its own map :math:`\mathbf{W}`.
        out_channels (int): Size of each output sample, of each head and path.
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        concat (bool, optional): If set to :obj:`False`, for output layers, heads and paths are
            averaged instead of concatenated, without :math:`\sigma`. (default: :obj:`True`)
        dropout (float, optional): Dropout probability of attention weights on the structural path,
            and of the values of nodes, separately per head, on the global path, whose weights are
            never formed. (default: :obj:`0.0`)
        add_self_loops (bool, optional): If set to :obj:`True`, each node has exactly one self-loop
            on the structural path. On the global path each node attends to itself too. (default:
            :obj:`True`)
        edge_dim (int, optional): Size of the features of edges, or :obj:`-1` to derive it from the
            first input. A learned linear map of them is added to the exponents of the softmax among
            neighbours. (default: :obj:`None`)
        fill_value (float or torch.Tensor or str, optional): The features of added self-loops: a
            number, a tensor, or ``"mean"``, ``"add"``, ``"min"``, ``"max"`` or ``"mul"`` of the
            edges to the node. (default: :obj:`"mean"`)
        bias (bool, optional): If set to :obj:`False`, the layer will not learn an additive bias.
            (default: :obj:`True`)
        residual (bool, optional): If set to :obj:`True`, the layer adds a learned linear map of the
            node's own features to all channels before :math:`\sigma`, and learns a weight, from 1
            on, for this map and for each path. (default: :obj:`False`)
        embedding_dim (int, optional): Size of the embeddings :math:`\mathbf{p}_i`. (default:
            :obj:`4`)
        decay_local, decay_global (float, optional): The coefficients :math:`\lambda` of the
            structural and the global path. (default: :obj:`1.0`, :obj:`10.0`)
        learn_decay (bool, optional): If set to :obj:`True`, both coefficients are learned for each
            head, from these values on. (default: :obj:`False`)
        act (str or Callable, optional): The non-linearity :math:`\sigma`, by PyG's name for it, or
            :obj:`None`. (default: :obj:`"elu"`)
        method, backend (str, optional): As in :func:`phgcn.global_attention`. (default:
            :obj:`"auto"`)
        tolerance (float, optional): With ``method="auto"``, the largest error of global attention,
            as in :func:`phgcn.global_attention`. The method is chosen anew when the embeddings have
            moved, see :class:`phgcn.tolerance.Tolerance`. (default: :obj:`None`)
        process_group (ProcessGroup, optional): Processes that share the nodes, as ``group`` in
            :func:`phgcn.global_attention`. (default: :obj:`None`)
        flow (str, optional): ``"target_to_source"`` reads edges in the other direction.
            (default: :obj:`"source_to_target"`)

    Attributes:
        output_width (int): The number of output channels.

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, dense or :obj:`torch.sparse` CSR or COO, or
          a pair :math:`((N_s, F_s), (N_t, F_t))`; edge indices :math:`(2, E)`; edge features
          :math:`(E, D)`; edge weights :math:`(E,)`
        - **output:** node features :math:`(N, 2 H F_{out})`, or :math:`(N, F_{out})` with
          ``concat=False``; with ``return_attention_weights=True``, :math:`((N, 2 H F_{out}), ((2,
          E), (E, H)))`
    """

    paths = 2
    propagate = MessagePassing.propagate  # which PyG compiles for each class, not EDAConv's

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
        decay_global: float = 10.0,
        learn_decay: bool = False,
        act: str | Activation | None = "elu",
        method: Method = "auto",
        backend: BackendName = "auto",
        tolerance: float | None = None,
        process_group: ProcessGroup | None = None,
        flow: str = "source_to_target",
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            heads,
            concat,
            dropout=dropout,
            add_self_loops=add_self_loops,
            edge_dim=edge_dim,
            fill_value=fill_value,
            bias=bias,
            residual=residual,
            embedding_dim=embedding_dim,
            decay_local=decay_local,
            learn_decay=learn_decay,
            backend=backend,
            flow=flow,
        )
        check_choices(method, backend)
        self.method = method
        self.tolerance = make_tolerance(tolerance, method, heads)
        self.process_group = process_group
        self.decay_global = Decay("decay_global", decay_global, heads, learn_decay)
        self.act = None if act is None else make_activation(act)

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
            x (torch.Tensor or tuple or Data): The node features, or a pair of source and target
                features, of which the latter may be :obj:`None` for targets at the origin; or a PyG
                :class:`~torch_geometric.data.Data` or :class:`~torch_geometric.data.Batch` with the
                other arguments.
            edge_index (torch.Tensor, optional): The edges: sources and targets, as a tensor or
                :class:`torch_geometric.EdgeIndex`, or the transposed adjacency matrix in a
                :obj:`torch.sparse` layout, whose values are edge features in a layer with
                ``edge_dim``. An edge that occurs twice counts twice.
            edge_attr (torch.Tensor, optional): The features of edges, for a layer with
                ``edge_dim``.
            size (tuple, optional): The numbers of sources and targets, needed for ``(x_source,
                None)`` if they differ.
            return_attention_weights (bool, optional): If set to :obj:`True`, also returns the used
                edges with self-loops, and the attention weights of the structural path before
                dropout. :meth:`top_attention` returns weights of the global path.
            edge_weight (torch.Tensor, optional): The weights of edges, not negative: factors of
                :math:`e^{-\lambda \lVert \mathbf{p}_i - \mathbf{p}_j \rVert}` among neighbours.
                Added self-loops have weight 1.
            batch (torch.Tensor, optional): The graph of each node, or of each target of a pair, in
                any order. Global attention never crosses graphs.
        """
        given = self.read_call(GraphInput(x, edge_index, edge_attr, edge_weight, batch), size)
        with given.blame():
            nodes = self.project_nodes(given.x)
            structural, weights = self.attend_structural(
                nodes, given, self.decay_local(), bool(return_attention_weights)
            )
            positions, values = nodes.targets
            everywhere = global_attention(
                positions,
                drop_targets(values, self.dropout, self.training),
                decay=self.decay_global(),
                batch=given.batch,
                method=self.method,
                backend=self.backend,
                tolerance=self.tolerance,
                group=self.process_group,
            )
        out = self.combine(nodes.x, [structural, everywhere])
        out = self.act(out) if self.concat and self.act is not None else out
        return out if weights is None else (out, self.shown_weights(weights, edge_index))

    def __repr__(self) -> str:
        return super().__repr__()[:-1] + f"{describe_tolerance(self.tolerance)})"

    @torch.no_grad()
    def top_attention(
        self,
        x: Tensor,
        edge_index: Any = None,
        k: int = 10,
        nodes: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Finds the targets with the largest exact softmax weights on the global path, for any
        ``method``. Takes time in proportion to ``nodes`` times all nodes, and little memory.

        Args:
            x (torch.Tensor): The node features.
            edge_index (torch.Tensor, optional): Not used; the global path does not follow edges.
            k (int, optional): The number of targets per node. (default: :obj:`10`)
            nodes (torch.Tensor, optional): The nodes :math:`(M,)`. (default: :obj:`None`, all)
            batch (torch.Tensor, optional): The graph of each node. (default: :obj:`None`)

        Returns:
            The targets and their weights, both :math:`(M, H, k)`, in order of weight. Targets after
            the last node of a graph are -1 and have weight 0.
        """
        positions, _ = self.project(x)
        return top_attention(positions, self.decay_global(), k, nodes, batch)
