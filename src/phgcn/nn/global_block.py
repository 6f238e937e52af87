"""Global attention behind a gate: at the start the block changes nothing in a network."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn import Parameter
from torch_geometric.nn import Linear

from ..backends import BackendName
from ..checks import check_positive
from ..functional import Method
from ..kernels import Kernel
from ..tolerance import describe_tolerance
from .checks import blame_inputs, check_dropout, check_features, check_multiple
from .distance_attention import DistanceAttention, drop_targets, linear_map
from .global_memory import GlobalMemory, gather_keys
from .graph_input import GraphInput, read_graph

# the weight of other nodes below which they count for less, where a node's own is left out
ALONE = 1e-3


class GlobalBlock(DistanceAttention):
    r"""Adds global attention over its graph to each node, times a learned gate.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{x}_i + \mathbf{g} \odot \mathbf{W}_o \Big( \big\Vert_{h=1}^H
        \sum_j \alpha^h_{ij} \mathbf{W}^h_v \mathbf{z}_j \Big), \qquad
        \alpha^h_{ij} \propto \exp(-\lambda_h \lVert \mathbf{P}^h \mathbf{z}_i -
        \mathbf{P}^h \mathbf{z}_j \rVert), \qquad
        \mathbf{z}_i = \mathrm{LayerNorm}(\mathbf{x}_i)

    The gate :math:`\mathbf{g}` starts at 0: a network with this block starts as the same network
    without it. The layer norm has no parameters.

    Args:
        channels (int): Size of each input and output sample, a multiple of ``heads``.
        heads (int, optional): Number of attention heads. (default: :obj:`4`)
        embedding_dim (int, optional): Size of the embeddings :math:`\mathbf{P} \mathbf{z}_i`.
            (default: :obj:`4`)
        mass (bool, optional): If set to :obj:`True`, :math:`\mathbf{W}_o` also gets the logarithm
            of each head's softmax denominator, a measure of how many nodes are near. (default:
            :obj:`False`)
        dropout (float, optional): Dropout probability of the values of nodes, separately per head,
            and of their weighted sums. (default: :obj:`0.0`)
        decay, learn_decay, method, backend, tolerance, process_group, kernel (optional): As in
            :class:`phgcn.nn.GlobalAttention`; by default :math:`\lambda` is learned from 1 on.
        in_channels (int, optional): Size of other features that :meth:`update` reads, or :obj:`-1`
            to derive it from the first input. The block reads them without a norm,
            :math:`\mathbf{z}_i = \mathbf{x}_i`, sums over :math:`j \neq i`, and its gate starts at
            1: its output is one more input of a network. (default: :obj:`None`, the features that
            it adds to)

    Shapes:
        - **input:** node features :math:`(N, C)`; the graph of each node :math:`(N,)`, in any order
        - **output:** node features :math:`(N, C)`
    """

    def __init__(
        self,
        channels: int,
        heads: int = 4,
        embedding_dim: int = 4,
        decay: float = 1.0,
        learn_decay: bool = True,
        mass: bool = False,
        dropout: float = 0.0,
        method: Method = "auto",
        backend: BackendName = "auto",
        tolerance: float | None = None,
        process_group: ProcessGroup | None = None,
        in_channels: int | None = None,
        kernel: str | Kernel = "exponential",
    ) -> None:
        settings = (method, backend, tolerance, process_group, kernel)
        super().__init__(heads, embedding_dim, decay, learn_decay, *settings)
        check_positive(channels=channels)
        check_multiple("channels", channels, "heads", heads)
        check_dropout(dropout=dropout)
        self.channels = channels
        self.mass = mass
        self.dropout = dropout
        self.in_channels = in_channels
        self.others_only = in_channels is not None
        read = channels if in_channels is None else in_channels
        self.lin_position = linear_map(read, heads * embedding_dim)
        self.lin_value = linear_map(read, channels)
        initial = {"weight_initializer": "glorot", "bias_initializer": "zeros"}
        self.lin_out = Linear(channels + heads * mass, channels, **initial)
        self.gate = Parameter(torch.empty(channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Resets all learnable parameters of the module."""
        for module in (self.lin_position, self.lin_value, self.lin_out, self.decay):
            module.reset_parameters()
        torch.nn.init.constant_(self.gate, 0.0 if self.in_channels is None else 1.0)

    def forward(
        self,
        x: Any,
        batch: Tensor | None = None,
        *,
        memory: GlobalMemory | None = None,
        n_id: Tensor | None = None,
    ) -> Tensor:
        """Runs the forward pass of the module.

        Args:
            x (torch.Tensor or Data): The node features; or a PyG
                :class:`~torch_geometric.data.Data` or :class:`~torch_geometric.data.Batch` with
                ``batch`` and, for a memory, ``n_id``.
            batch (torch.Tensor, optional): The graph of each node, in any order; attention never
                crosses graphs. (default: :obj:`None`, one graph)
            memory (GlobalMemory, optional): All nodes of a large graph, of which ``x`` is a part;
                of ``channels / heads`` channels.
            n_id (torch.Tensor, optional): The numbers of the nodes in the large graph.
        """
        if self.in_channels is not None:
            allowed = "allowed for a call of the block: None, else of its update"
            raise ValueError(f"in_channels is {self.in_channels}; {allowed}")
        takes = () if memory is None else ("n_id",)
        given = read_graph(GraphInput(x, batch=batch, n_id=n_id), takes, needs_edges=False)
        features: Tensor = given.x
        return features + self.update(features, given.batch, memory, given.n_id)

    def update(
        self,
        x: Tensor,
        batch: Tensor | None = None,
        memory: GlobalMemory | None = None,
        n_id: Tensor | None = None,
    ) -> Tensor:
        """Computes the term (N, C) that :meth:`forward` adds, or with ``in_channels`` a network."""
        check_features(x, self.lin_position.in_channels, self.gate)
        normed = self._norm(x)
        values = self.lin_value(normed).view(-1, self.heads, self.channels // self.heads)
        positions = self.as_positions(self.lin_position(normed))
        keys, targets, queries = gather_keys(positions, values, batch, memory, n_id)
        if not self.others_only:
            targets = drop_targets(targets, self.dropout, self.training)
        with_mass = self.mass or self.others_only
        with blame_inputs(x=x):
            found = self.attend(keys, targets, batch=batch, queries=queries, return_mass=with_mass)
        out, mass = found if with_mass else (found, normed.new_empty(0))
        if self.others_only:
            out = leave_out_own(out, mass, values)
        gathered = F.dropout(out.to(values.dtype).flatten(1), self.dropout, self.training)
        if self.mass:
            gathered = torch.cat([gathered, mass.to(gathered.dtype)], dim=1)
        projected: Tensor = self.lin_out(gathered)
        return self.gate.to(projected.dtype) * projected

    def positions(self, x: Tensor) -> Tensor:
        r"""Computes the embeddings :math:`\mathbf{P} \mathbf{z}_i`, :math:`(N, H, D)`."""
        return self.as_positions(self.lin_position(self._norm(x)))

    def _norm(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (self.channels,)) if self.in_channels is None else x

    def __repr__(self) -> str:
        sizes = f"{self.channels}, heads={self.heads}, embedding_dim={self.embedding_dim}"
        rest = (", mass=True" if self.mass else "") + describe_tolerance(self.tolerance)
        return f"{self.__class__.__name__}({sizes}{rest})"


def leave_out_own(means: Tensor, mass: Tensor, own: Tensor) -> Tensor:
    """Takes a node's own value (N, H, C), whose weight is 1 in :math:`e^{mass}`, out of a mean over
    all nodes (N, H, C). A node without others nearby gets nearly 0."""
    wide = torch.promote_types(means.dtype, torch.float32)
    share = torch.exp(-mass.to(wide)).clamp(max=1).unsqueeze(-1)
    return (means.to(wide) - share * own.to(wide)) / (1 - share + ALONE)
