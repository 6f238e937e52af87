r"""The paper's layer: attention to neighbours and to every node, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..checks import check_choices
from ..functional import Backend, Method, choose_method, global_attention
from ..tolerance import describe_tolerance, make_tolerance
from .activation import Activation, make_activation
from .decay import Decay
from .distance_conv import DistanceConv, EdgeWeights
from .global_attention import drop_targets
from .graph_input import GraphInput
from .top_attention import top_attention

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class PHGCNConv(DistanceConv):
    r"""The graph convolution with structural and global attention from the `"Permutohedral-GCN: Graph Convolutional Networks
    with Global Attention" <https://arxiv.org/abs/2003.00635>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \sigma \left( \sum_{j \in \mathcal{N}(i) \cup \{ i \}} \alpha^{(S)}_{ij} \mathbf{W} \mathbf{x}_j
        \right) \, \Vert \, \sigma \left( \sum_{j = 1}^{N} \alpha^{(G)}_{ij} \mathbf{W} \mathbf{x}_j \right)

    Both paths share :math:`\mathbf{W}` and :math:`\mathbf{\Phi}` of a head; their weights are softmaxes, over the neighbours
    of a node and over all nodes of its graph, of

    .. math::
        e_{ij} = -\lambda \lVert \mathbf{p}_i - \mathbf{p}_j \rVert, \qquad \mathbf{p}_i = \mathbf{\Phi} \mathbf{W} \mathbf{x}_i

    with :math:`\lambda` of each path; features and weights of edges are taken on the structural path as in
    :class:`phgcn.nn.EDAConv`. With sources and targets of different kinds, the global path is among the targets. The output
    has :math:`2 H F_{out}` channels: first those of all heads of the structural path, then those of all heads of the global
    path.

    Args:
        in_channels (int or tuple): Size of each input sample, or :obj:`-1` to derive the size from the first input. A tuple
            gives the sizes of sources and targets of different kinds, each with a map :math:`\mathbf{W}` of its own.
        out_channels (int): Size of each output sample, of each head and path.
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        concat (bool, optional): If set to :obj:`False`, for output layers, heads and paths are averaged instead of
            concatenated, and :math:`\sigma` is left out, as in GAT's output layer. (default: :obj:`True`)
        dropout (float, optional): Dropout probability of attention. On the structural path it drops weights, after the
            softmax. The weights of the global path are never formed; there it drops the values of nodes, each head's on its
            own, which is the same as to drop the weight of such a node for all that attend to it. (default: :obj:`0.0`)
        add_self_loops (bool, optional): If set to :obj:`False`, nodes do not attend to themselves on the structural path,
            unless a self-loop is among the edges. Otherwise each node has one self-loop, whether the edges have none or
            several. On the global path, a node is always among its own targets. (default: :obj:`True`)
        edge_dim (int, optional): Size of the features of edges, or :obj:`-1` to derive it from the first input: a learned
            linear map of them is added to the exponents of the softmax among neighbours. (default: :obj:`None`, none)
        fill_value (float or torch.Tensor or str, optional): The features of self-loops that are added: a number, a tensor, or
            ``"mean"``, ``"add"``, ``"min"``, ``"max"`` or ``"mul"`` of the edges to the node. (default: :obj:`"mean"`)
        bias (bool, optional): If set to :obj:`False`, the layer will not learn an additive bias; it is added before
            :math:`\sigma`. (default: :obj:`True`)
        residual (bool, optional): If set to :obj:`True`, the layer adds a learned linear map of the node's own features to
            all channels, before :math:`\sigma`, and learns a weight for each of the two paths and this one, from 1 on: with
            weight decay, a path that is of no use fades. (default: :obj:`False`)
        embedding_dim (int, optional): Size of the embeddings :math:`\mathbf{p}_i`. (default: :obj:`4`)
        decay_local (float, optional): The coefficient :math:`\lambda` of the structural path. (default: :obj:`1.0`)
        decay_global (float, optional): The coefficient :math:`\lambda` of the global path. (default: :obj:`10.0`)
        learn_decay (bool, optional): If set to :obj:`True`, both coefficients are learned for each head, from the given ones
            on. (default: :obj:`False`)
        act (str or Callable, optional): The non-linearity :math:`\sigma`, by PyG's name for it, or :obj:`None`.
            (default: :obj:`"elu"`)
        method (str, optional): How the global path is computed, as in :func:`phgcn.global_attention`.
            (default: :obj:`"auto"`)
        backend (str, optional): As in :func:`phgcn.global_attention`. (default: :obj:`"auto"`)
        tolerance (float, optional): With ``method="auto"``, the largest error that global attention may have, as in
            :func:`phgcn.global_attention`; the method is chosen anew when the embeddings have moved, see
            :class:`phgcn.tolerance.Tolerance`. (default: :obj:`None`)
        process_group (ProcessGroup, optional): Processes that share the nodes out among them, as ``group`` in
            :func:`phgcn.global_attention`. (default: :obj:`None`, this process alone)
        flow (str, optional): ``"target_to_source"`` reads edges in the other direction.
            (default: :obj:`"source_to_target"`)

    Attributes:
        output_width (int): The number of output channels, ``2 * heads * out_channels`` where paths are concatenated.

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, dense or :obj:`torch.sparse` CSR or COO, or a pair
          :math:`((N_s, F_s), (N_t, F_t))`; edge indices :math:`(2, E)`; edge features :math:`(E, D)`; edge weights
          :math:`(E,)`
        - **output:** node features :math:`(N, 2 H F_{out})`, or :math:`(N, F_{out})` with ``concat=False``; with
          ``return_attention_weights=True``, :math:`((N, 2 H F_{out}), ((2, E), (E, H)))`
    """

    paths = 2

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
        decay_global: float = 10.0,
        learn_decay: bool = False,
        act: str | Activation | None = "elu",
        method: Method = "auto",
        backend: Backend = "auto",
        tolerance: float | None = None,
        process_group: ProcessGroup | None = None,
        flow: str = "source_to_target",
    ) -> None:
        super().__init__(
            in_channels, out_channels, heads, concat=concat, dropout=dropout, add_self_loops=add_self_loops,
            edge_dim=edge_dim, fill_value=fill_value, bias=bias, residual=residual, embedding_dim=embedding_dim,
            backend=backend, flow=flow,
        )  # fmt: skip
        check_choices(method, backend)
        self.method = method
        self.tolerance = make_tolerance(tolerance, method, heads)
        self.process_group = process_group
        self.decay_local = Decay("decay_local", decay_local, heads, learn_decay)
        self.decay_global = Decay("decay_global", decay_global, heads, learn_decay)
        self.act = None if act is None else make_activation(act)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.decay_local.reset_parameters()
        self.decay_global.reset_parameters()

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
            batch (torch.Tensor, optional): The graph of each node, of a pair that of each target, in any order; global
                attention never crosses graphs. (default: :obj:`None`, one graph)
            return_attention_weights (bool, optional): If set to :obj:`True`, also returns the edges that were used,
                self-loops included, and the attention weights of the structural path, before dropout. For the global path
                see :meth:`top_attention`. (default: :obj:`None`)
        """
        given = self.read_call(GraphInput(x, edge_index, edge_attr, edge_weight, batch), size)
        with given.blame():
            nodes = self.project_nodes(given.x)
            structural, weights = self.attend_structural(nodes, given, self.decay_local(), bool(return_attention_weights))
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
        if self.concat and self.act is not None:
            out = self.act(out)
        return out if weights is None else (out, self.shown_weights(weights, edge_index))

    def __repr__(self) -> str:
        return super().__repr__()[:-1] + f"{describe_tolerance(self.tolerance)})"

    def recordable(self, nodes: int) -> bool:
        """Tells whether a pass over so many nodes can be captured into a CUDA graph: a lattice cannot, as the host
        must read the number of its vertices, nor can several processes."""
        alone = self.process_group is None and super().recordable(nodes)
        return alone and choose_method(self.method, nodes * nodes, self.embedding_dim, "cuda") == "exact"

    @torch.no_grad()
    def top_attention(
        self, x: Tensor, edge_index: Any = None, k: int = 10, nodes: Tensor | None = None, batch: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        r"""Finds the strongest targets of nodes on the global path, with their exact softmax weights, whatever ``method`` the
        layer computes with.  Takes time in proportion to the nodes asked for times all nodes, and never holds such a matrix.

        Args:
            x (torch.Tensor): The node features.
            edge_index (torch.Tensor, optional): Not used, as the global path does not follow edges; here so that the call
                reads like that of the layer. (default: :obj:`None`)
            k (int, optional): How many targets of each node. (default: :obj:`10`)
            nodes (torch.Tensor, optional): The nodes :math:`(M,)` that are asked for. (default: :obj:`None`, all)
            batch (torch.Tensor, optional): The graph of each node. (default: :obj:`None`, one graph)

        Returns:
            The targets and their weights, both :math:`(M, H, k)`, strongest first. Where a graph has fewer than ``k`` nodes,
            the rest are targets -1 of weight 0.
        """
        positions, _ = self.project(x)
        return top_attention(positions, self.decay_global(), k, nodes, batch)
