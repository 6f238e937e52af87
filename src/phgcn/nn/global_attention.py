r"""Global attention as a module: over points, and as the attention of a transformer block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import glorot, zeros

from ..checks import blame_inputs, check_choices, check_dropout, check_features, check_sizes
from ..functional import Backend, Method, global_attention
from ..tolerance import describe_tolerance, make_tolerance
from .decay import Decay
from .distance_conv import embed
from .global_memory import GlobalMemory, gather_keys
from .graph_input import GraphInput, read_graph

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class GlobalAttention(torch.nn.Module):
    r"""Attention of each point to every other of its cloud by Euclidean distance of embeddings: the global path of the
    `"Permutohedral-GCN: Graph Convolutional Networks with Global Attention" <https://arxiv.org/abs/2003.00635>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \frac{\sum_j e^{-\lambda \lVert \mathbf{p}_i - \mathbf{p}_j \rVert} \, \mathbf{W} \mathbf{x}_j}
        {\sum_j e^{-\lambda \lVert \mathbf{p}_i - \mathbf{p}_j \rVert}}, \qquad
        \mathbf{p}_i = \mathbf{\Phi} \mathbf{W} \mathbf{x}_i

    In a transformer block a point should be able to attend to points that are unlike itself: with ``query_channels``, queries
    have a map to positions of their own, :math:`\mathbf{q}_i = \mathbf{Q} \mathbf{x}_i`, which takes the place of
    :math:`\mathbf{p}_i`.

    Args:
        in_channels (int or tuple): Size of each key and value, or :obj:`-1` to derive the size from the first input. A tuple,
            as for PyG's bipartite layers, gives also the size of each query, as ``query_channels`` does.
        out_channels (int): Size of each output sample, of each head.
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        concat (bool, optional): If set to :obj:`False`, the heads are averaged instead of concatenated.
            (default: :obj:`True`)
        dropout (float, optional): Dropout probability of the values that are attended to, each head's on its own, which is
            the same as to drop the weight of such a point for all that attend to it. (default: :obj:`0.0`)
        bias (bool, optional): If set to :obj:`False`, the layer will not learn an additive bias. (default: :obj:`True`)
        query_channels (int, optional): Size of each query, if queries are to have a map of their own; :obj:`-1` to derive it
            from the first input. (default: :obj:`None`, queries are embedded as keys are)
        embedding_dim (int, optional): Size of the embeddings :math:`\mathbf{p}_i`. (default: :obj:`4`)
        decay (float, optional): The coefficient :math:`\lambda`. (default: :obj:`10.0`)
        learn_decay (bool, optional): If set to :obj:`True`, :math:`\lambda` is learned for each head, from ``decay`` on.
            (default: :obj:`False`)
        method (str, optional): As in :func:`phgcn.global_attention`. (default: :obj:`"auto"`)
        backend (str, optional): As in :func:`phgcn.global_attention`. (default: :obj:`"auto"`)
        tolerance (float, optional): With ``method="auto"``, the largest error that global attention may have, as in
            :func:`phgcn.global_attention`; the method is chosen anew when the embeddings have moved, see
            :class:`phgcn.tolerance.Tolerance`. (default: :obj:`None`)
        process_group (ProcessGroup, optional): Processes that share the nodes out among them, as ``group`` in
            :func:`phgcn.global_attention`. (default: :obj:`None`, this process alone)

    Shapes:
        - **input:** points :math:`(N, F_{in})`, or sequences :math:`(B, L, F_{in})`, each attending in itself
        - **output:** as the queries, with :math:`H \cdot F_{out}` channels, or :math:`F_{out}` with ``concat=False``
    """

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        query_channels: int | None = None,
        embedding_dim: int = 4,
        decay: float = 10.0,
        learn_decay: bool = False,
        method: Method = "auto",
        backend: Backend = "auto",
        tolerance: float | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        if isinstance(in_channels, (tuple, list)):
            if query_channels is not None:
                raise ValueError(f"query_channels is {query_channels} beside in_channels {in_channels}; allowed: None")
            in_channels, query_channels = in_channels
        check_sizes(in_channels, out_channels=out_channels, heads=heads, embedding_dim=embedding_dim)
        check_dropout("dropout", dropout)
        check_choices(method, backend)
        self.out_channels = out_channels
        self.heads = heads
        self.concat = concat
        self.dropout = dropout
        self.embedding_dim = embedding_dim
        self.method = method
        self.tolerance = make_tolerance(tolerance, method, heads)
        self.process_group = process_group
        self.backend = backend
        self.lin = Linear(in_channels, heads * out_channels, bias=False, weight_initializer="glorot")
        self.embedding = Parameter(torch.empty(heads, embedding_dim, out_channels))
        self.lin_query = None
        if query_channels is not None:
            self.lin_query = Linear(query_channels, heads * embedding_dim, bias=False, weight_initializer="glorot")
        self.decay = Decay("decay", decay, heads, learn_decay)
        self.bias = Parameter(torch.empty(heads * out_channels if concat else out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        self.lin.reset_parameters()
        glorot(self.embedding)
        if self.lin_query is not None:
            self.lin_query.reset_parameters()
        self.decay.reset_parameters()
        zeros(self.bias)

    def forward(
        self,
        query: Any,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        batch: Any = None,
        query_batch: Tensor | None = None,
        memory: GlobalMemory | None = None,
        n_id: Tensor | None = None,
    ) -> Tensor:
        r"""Runs the forward pass of the module.

        Args:
            query (torch.Tensor or tuple or Data): The points that attend; or a pair of sources and targets, as PyG's bipartite
                layers take it: the second attends to the first; or a PyG :class:`~torch_geometric.data.Data` or
                :class:`~torch_geometric.data.Batch`, which holds ``batch`` and, for a memory, ``n_id``.
            key (torch.Tensor, optional): The points that are attended to. (default: :obj:`None`, the queries)
            value (torch.Tensor, optional): What is gathered from the keys. (default: :obj:`None`, the keys)
            batch (torch.Tensor or tuple, optional): The cloud of each key, in any order, for a pair a pair of them; attention
                never crosses clouds. Sequences have none. (default: :obj:`None`, one cloud)
            query_batch (torch.Tensor, optional): The cloud of each query, if keys are given. (default: :obj:`None`)
            memory (GlobalMemory, optional): All nodes of a large graph, of which the queries are a part: they attend to all of
                them. (default: :obj:`None`)
            n_id (torch.Tensor, optional): The numbers of the queries in the large graph. (default: :obj:`None`)
        """
        given = read_graph(GraphInput(query, batch=batch, n_id=n_id), () if memory is None else ("n_id",), needs_edges=False)
        query, batch, n_id = given.x, given.batch, given.n_id
        if isinstance(query, tuple):
            if key is not None or query_batch is not None:
                raise ValueError("key or query_batch is given beside a pair of sources and targets; allowed: None")
            key, query = query
            batch, query_batch = (None, None) if batch is None else batch
        if memory is not None and (key is not None or value is not None):
            raise ValueError("key or value is given beside a memory; allowed: None, as the memory has them")
        points = _flatten(query, key, value, batch, query_batch)
        with blame_inputs(query=query, key=key, value=value):
            out = self._attend(points, memory, n_id)
        out = out.flatten(1) if self.concat else out.mean(dim=1)
        if self.bias is not None:
            out = out + self.bias.to(out.dtype)
        return out.view(*query.shape[:-1], -1)

    def _attend(self, points: _Points, memory: GlobalMemory | None, n_id: Tensor | None) -> Tensor:
        """Projects and attends; returns (M, heads, out_channels)."""
        query, key, value, batch, query_batch = points
        projected = self._project("query", query) if key is None else self._project("key", key)
        values = projected if value is None else self._project("value", value)
        values = values.view(-1, self.heads, self.out_channels)
        keys = gather_keys(embed(projected, self.embedding), values, batch, memory, n_id)
        queries = keys.queries
        if self.lin_query is not None:
            check_features(query, self.lin_query.in_channels, self.lin_query.weight, "query")
            queries = self.lin_query(query).view(-1, self.heads, self.embedding_dim).to(keys.positions.dtype)
            query_batch = batch if key is None else query_batch
        elif key is not None:
            queries = embed(self._project("query", query), self.embedding)
        out = global_attention(
            keys.positions,
            drop_targets(keys.values, self.dropout, self.training),
            decay=self.decay(),
            batch=batch,
            queries=queries,
            query_batch=query_batch,
            method=self.method,
            backend=self.backend,
            tolerance=self.tolerance,
            group=self.process_group,
        )
        return out.to(values.dtype)

    def _project(self, name: str, x: Tensor) -> Tensor:
        """Checks an input and maps it to (N, heads * out_channels)."""
        check_features(x, self.lin.in_channels, self.lin.weight, name)
        projected: Tensor = self.lin(x)
        return projected

    def __repr__(self) -> str:
        tolerance = describe_tolerance(self.tolerance)
        return f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}, heads={self.heads}{tolerance})"


def drop_targets(values: Tensor, dropout: float, training: bool) -> Tensor:
    """Drops the values (N, heads, C) of random nodes, each head's on its own, and scales up the others to keep the mean."""
    if not training or dropout == 0:
        return values
    return values * F.dropout(values.new_ones(*values.shape[:2], 1), dropout)


class _Points(NamedTuple):
    """The arguments of :meth:`GlobalAttention.forward`, as points: (M, C), (N, C), (N, C), (N,) and (M,)."""

    query: Tensor
    key: Tensor | None
    value: Tensor | None
    batch: Tensor | None
    query_batch: Tensor | None


def _flatten(
    query: Tensor, key: Tensor | None, value: Tensor | None, batch: Tensor | None, query_batch: Tensor | None
) -> _Points:
    """Turns sequences (B, L, C) into points, each sequence a cloud of its own; returns points as they are."""
    if not isinstance(query, Tensor):
        raise ValueError(f"query is a {type(query).__name__}; allowed: a tensor")
    if query.dim() != 3:
        return _Points(query, key, value, batch, query_batch)
    if batch is not None or query_batch is not None:
        raise ValueError(f"batch is given though query has shape {tuple(query.shape)}; allowed: points (N, C) with batch")
    for name, tensor in (("key", key), ("value", value)):
        if tensor is not None and (tensor.dim() != 3 or tensor.size(0) != query.size(0)):
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; allowed: ({len(query)}, L, C), as query has")
    flat_key, flat_value = (None if tensor is None else tensor.flatten(0, 1) for tensor in (key, value))
    if key is None:
        return _Points(query.flatten(0, 1), None, flat_value, _number_sequences(query), None)
    return _Points(query.flatten(0, 1), flat_key, flat_value, _number_sequences(key), _number_sequences(query))


def _number_sequences(sequences: Tensor) -> Tensor:
    """Returns the index of its sequence for every point of (B, L, C): (B * L,)."""
    count, length = sequences.shape[:2]
    return torch.arange(count, device=sequences.device).unsqueeze(1).expand(-1, length).flatten()
