r"""Global attention behind a gate: a block that can be put into any network and changes nothing until it has learned to."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn import Linear

from ..checks import blame_inputs, check_choices, check_dropout, check_features, check_multiple, check_positive
from ..functional import Backend, Method, choose_method, global_attention
from ..tolerance import describe_tolerance, make_tolerance
from .decay import Decay
from .global_attention import drop_targets
from .global_memory import GlobalMemory, gather_keys
from .graph_input import GraphInput, read_graph

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class GlobalBlock(torch.nn.Module):
    r"""Adds to each node what it gathers from all nodes of its graph, times a gate that is learned from 0 on.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{x}_i + \mathbf{g} \odot \mathbf{W}_o \Big( \big\Vert_{h=1}^H
        \sum_j \alpha^h_{ij} \mathbf{W}^h_v \mathbf{z}_j \Big), \qquad
        \alpha^h_{ij} \propto \exp(-\lambda_h \lVert \mathbf{P}^h \mathbf{z}_i - \mathbf{P}^h \mathbf{z}_j \rVert), \qquad
        \mathbf{z}_i = \mathrm{LayerNorm}(\mathbf{x}_i)

    As the gate :math:`\mathbf{g}` starts at 0, a network with this block starts as the same network without it.  The layer norm
    has no parameters of its own, as the linear maps after it have them.

    Args:
        channels (int): Size of each input and output sample, a multiple of ``heads``.
        heads (int, optional): Number of attention heads. (default: :obj:`4`)
        embedding_dim (int, optional): Size of the embeddings :math:`\mathbf{P} \mathbf{z}_i`. (default: :obj:`4`)
        decay (float, optional): The coefficient :math:`\lambda`. (default: :obj:`1.0`)
        learn_decay (bool, optional): If set to :obj:`True`, :math:`\lambda` is learned for each head, from ``decay`` on.
            (default: :obj:`True`)
        mass (bool, optional): If set to :obj:`True`, :math:`\mathbf{W}_o` also gets the logarithm of each head's softmax
            denominator, which tells how many nodes are near: a mean alone forgets that. (default: :obj:`False`)
        dropout (float, optional): Dropout probability of the values that are attended to, as in
            :class:`phgcn.nn.GlobalAttention`, and of what is gathered from them. (default: :obj:`0.0`)
        method (str, optional): As in :func:`phgcn.global_attention`. (default: :obj:`"auto"`)
        backend (str, optional): As in :func:`phgcn.global_attention`. (default: :obj:`"auto"`)
        tolerance (float, optional): With ``method="auto"``, the largest error that global attention may have, as in
            :func:`phgcn.global_attention`; the method is chosen anew when the embeddings have moved, see
            :class:`phgcn.tolerance.Tolerance`. (default: :obj:`None`)
        process_group (ProcessGroup, optional): Processes that share the nodes out among them, as ``group`` in
            :func:`phgcn.global_attention`. (default: :obj:`None`, this process alone)
        in_channels (int, optional): Size of the features that :meth:`update` reads, or :obj:`-1` to derive it from the first
            input, where these are others than those it is added to. They are read as they are, :math:`\mathbf{z}_i =
            \mathbf{x}_i`, and the gate starts at 1, as what is added is one more input. (default: :obj:`None`, the same)

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
        backend: Backend = "auto",
        tolerance: float | None = None,
        process_group: ProcessGroup | None = None,
        in_channels: int | None = None,
    ) -> None:
        super().__init__()
        check_positive(channels=channels, heads=heads, embedding_dim=embedding_dim)
        check_multiple("channels", channels, "heads", heads)
        check_dropout("dropout", dropout)
        check_choices(method, backend)
        self.channels = channels
        self.heads = heads
        self.embedding_dim = embedding_dim
        self.mass = mass
        self.dropout = dropout
        self.method = method
        self.tolerance = make_tolerance(tolerance, method, heads)
        self.process_group = process_group
        self.backend = backend
        self.in_channels = in_channels
        read = channels if in_channels is None else in_channels
        self.lin_position = Linear(read, heads * embedding_dim, bias=False, weight_initializer="glorot")
        self.lin_value = Linear(read, channels, bias=False, weight_initializer="glorot")
        self.lin_out = Linear(channels + heads * mass, channels, weight_initializer="glorot", bias_initializer="zeros")
        self.decay = Decay("decay", decay, heads, learn_decay)
        self.gate = Parameter(torch.empty(channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
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
        r"""Runs the forward pass of the module.

        Args:
            x (torch.Tensor or Data): The node features; or a PyG :class:`~torch_geometric.data.Data` or
                :class:`~torch_geometric.data.Batch`, which holds ``batch`` and, for a memory, ``n_id``.
            batch (torch.Tensor, optional): The graph of each node, in any order; attention never crosses graphs.
                (default: :obj:`None`, one graph)
            memory (GlobalMemory, optional): All nodes of a large graph, of which ``x`` is a part; of ``channels / heads``
                channels. (default: :obj:`None`)
            n_id (torch.Tensor, optional): The numbers of the nodes in the large graph. (default: :obj:`None`)
        """
        if self.in_channels is not None:
            raise ValueError(f"in_channels is {self.in_channels}; allowed for a call of the block: None, else of its update")
        given = read_graph(GraphInput(x, batch=batch, n_id=n_id), () if memory is None else ("n_id",), needs_edges=False)
        features: Tensor = given.x
        return features + self.update(features, given.batch, memory, given.n_id)

    def update(
        self, x: Tensor, batch: Tensor | None = None, memory: GlobalMemory | None = None, n_id: Tensor | None = None
    ) -> Tensor:
        """Computes what :meth:`forward` adds to ``x``, or with ``in_channels`` what is added to other features, (N, C)."""
        check_features(x, self.lin_position.in_channels, self.gate)
        normed = self._norm(x)
        values = self.lin_value(normed).view(-1, self.heads, self.channels // self.heads)
        keys = gather_keys(self._embed(normed), values, batch, memory, n_id)
        attend: Any = partial(
            global_attention,
            keys.positions,
            drop_targets(keys.values, self.dropout, self.training),
            decay=self.decay(),
            batch=batch,
            queries=keys.queries,
            method=self.method,
            backend=self.backend,
            tolerance=self.tolerance,
            group=self.process_group,
        )
        with blame_inputs(x=x):
            out, mass = attend(return_mass=True) if self.mass else (attend(), None)
        gathered = F.dropout(out.to(values.dtype).flatten(1), self.dropout, self.training)
        if mass is not None:
            gathered = torch.cat([gathered, mass.to(gathered.dtype)], dim=1)
        projected: Tensor = self.lin_out(gathered)
        return self.gate.to(projected.dtype) * projected

    def positions(self, x: Tensor) -> Tensor:
        r"""Computes the embeddings :math:`\mathbf{P} \mathbf{z}_i` that distances are taken between, :math:`(N, H, D)`."""
        return self._embed(self._norm(x))

    def _norm(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (self.channels,)) if self.in_channels is None else x

    def _embed(self, normed: Tensor) -> Tensor:
        positions: Tensor = self.lin_position(normed).view(-1, self.heads, self.embedding_dim)
        return positions

    def recordable(self, nodes: int) -> bool:
        """Tells whether a pass over so many nodes can be captured into a CUDA graph: a lattice cannot, nor can
        several processes."""
        method = choose_method(self.method, nodes * nodes, self.embedding_dim, "cuda")
        return self.backend in ("auto", "triton") and method == "exact" and self.process_group is None

    def __repr__(self) -> str:
        rest = (", mass=True" if self.mass else "") + describe_tolerance(self.tolerance)
        return f"{self.__class__.__name__}({self.channels}, heads={self.heads}, embedding_dim={self.embedding_dim}{rest})"
