"""Global attention as a module: over points, and as the attention of a transformer block."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn import Parameter
from torch_geometric.nn.inits import glorot, zeros

from ..backends import BackendName
from ..checks import refusal
from ..functional import Method
from ..kernels import Kernel
from ..tolerance import describe_tolerance
from .checks import blame_inputs, check_dropout, check_features, check_sizes
from .distance_attention import DistanceAttention, drop_targets, embed, linear_map
from .global_memory import GlobalMemory, gather_keys
from .graph_input import GraphInput, read_graph


class GlobalAttention(DistanceAttention):
    r"""Attention of each point to every other of its cloud by Euclidean distance of embeddings: the
    global path of the `"Permutohedral-GCN: Graph Convolutional Networks with Global Attention"
    <https://arxiv.org/abs/2003.00635>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \frac{\sum_j e^{-\lambda \lVert \mathbf{p}_i - \mathbf{p}_j
        \rVert} \, \mathbf{W} \mathbf{x}_j}
        {\sum_j e^{-\lambda \lVert \mathbf{p}_i - \mathbf{p}_j \rVert}}, \qquad
        \mathbf{p}_i = \mathbf{\Phi} \mathbf{W} \mathbf{x}_i

    With ``query_channels``, queries have their own positions :math:`\mathbf{q}_i = \mathbf{Q}
    \mathbf{x}_i` in place of :math:`\mathbf{p}_i`: points can attend to points unlike themselves.

    Args:
        in_channels (int or tuple): Size of each key and value, or :obj:`-1` to derive the size from
            the first input. A tuple has also the size of each query, like ``query_channels``.
        out_channels (int): Size of each output sample, of each head.
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        concat (bool, optional): If set to :obj:`False`, the heads are averaged instead of
            concatenated. (default: :obj:`True`)
        dropout (float, optional): Dropout probability of the values of points, separately per head.
            (default: :obj:`0.0`)
        bias (bool, optional): If set to :obj:`False`, the layer will not learn an additive bias.
            (default: :obj:`True`)
        query_channels (int, optional): Size of each query with a map of its own, or :obj:`-1` to
            derive it from the first input. (default: :obj:`None`, queries share the map of keys)
        embedding_dim (int, optional): Size of the embeddings :math:`\mathbf{p}_i`. (default:
            :obj:`4`)
        decay (float, optional): The coefficient :math:`\lambda`. (default: :obj:`10.0`)
        learn_decay (bool, optional): If set to :obj:`True`, :math:`\lambda` is learned for each
            head, from ``decay`` on. (default: :obj:`False`)
        method, backend (str, optional): As in :func:`phgcn.global_attention`. (default:
            :obj:`"auto"`)
        tolerance (float, optional): With ``method="auto"``, the largest error of global attention,
            as in :func:`phgcn.global_attention`. The method is chosen anew when the embeddings have
            moved, see :class:`phgcn.tolerance.Tolerance`. (default: :obj:`None`)
        process_group (ProcessGroup, optional): Processes that share the nodes, as ``group`` in
            :func:`phgcn.global_attention`. (default: :obj:`None`)
        kernel (str or phgcn.kernels.Kernel, optional): The kernel in the place of :math:`e^{-r}`,
            as in :func:`phgcn.global_attention`. (default: :obj:`"exponential"`)

    Shapes:
        - **input:** points :math:`(N, F_{in})`, or sequences :math:`(B, L, F_{in})`, each a cloud
        - **output:** the shape of the queries, with :math:`H \cdot F_{out}` channels, or
          :math:`F_{out}` with ``concat=False``
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
        backend: BackendName = "auto",
        tolerance: float | None = None,
        process_group: ProcessGroup | None = None,
        kernel: str | Kernel = "exponential",
    ) -> None:
        settings = (method, backend, tolerance, process_group, kernel)
        super().__init__(heads, embedding_dim, decay, learn_decay, *settings)
        self.in_channels = in_channels
        if isinstance(in_channels, (tuple, list)):
            if query_channels is not None:
                problem = f"query_channels is {query_channels} beside in_channels {in_channels}"
                raise ValueError(f"{problem}; allowed: None")
            in_channels, query_channels = in_channels
        check_sizes(in_channels, out_channels=out_channels)
        check_dropout(dropout=dropout)
        self.out_channels = out_channels
        self.concat = concat
        self.dropout = dropout
        self.lin = linear_map(in_channels, heads * out_channels)
        self.embedding = Parameter(torch.empty(heads, embedding_dim, out_channels))
        self.lin_query = None
        if query_channels is not None:
            self.lin_query = linear_map(query_channels, heads * embedding_dim)
        width = heads * out_channels if concat else out_channels
        self.bias = Parameter(torch.empty(width)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Resets all learnable parameters of the module."""
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
        """Runs the forward pass of the module.

        Args:
            query (torch.Tensor or tuple or Data): The points that attend; or a pair of sources and
                targets, as in PyG's bipartite layers; or a PyG
                :class:`~torch_geometric.data.Data` or :class:`~torch_geometric.data.Batch` with
                ``batch`` and, for a memory, ``n_id``.
            key (torch.Tensor, optional): The points to attend to. (default: the queries)
            value (torch.Tensor, optional): The values of the keys. (default: the keys)
            batch (torch.Tensor or tuple, optional): The cloud of each key in any order, of a pair a
                pair; attention never crosses clouds. (default: :obj:`None`, one cloud)
            query_batch (torch.Tensor, optional): The cloud of each query beside ``key``.
            memory (GlobalMemory, optional): All nodes of a large graph; queries are a part of it
                and attend to all of it.
            n_id (torch.Tensor, optional): The numbers of the queries in the large graph.
        """
        takes = () if memory is None else ("n_id",)
        given = read_graph(GraphInput(query, batch=batch, n_id=n_id), takes, needs_edges=False)
        query, batch, n_id = given.x, given.batch, given.n_id
        if isinstance(query, tuple):
            if key is not None or query_batch is not None:
                problem = "key or query_batch is given beside a pair of sources and targets"
                raise ValueError(f"{problem}; allowed: None")
            key, query = query
            batch, query_batch = (None, None) if batch is None else batch
        if memory is not None and (key is not None or value is not None):
            raise refusal("key or value is given beside a memory", "None, as the memory has them")
        points = _flatten(_Points(query, key, value, batch, query_batch))
        with blame_inputs(query=query, key=key, value=value):
            out = self._attend(points, memory, n_id)
        out = out.flatten(1) if self.concat else out.mean(dim=1)
        if self.bias is not None:
            out = out + self.bias.to(out.dtype)
        return out.view(*query.shape[:-1], out.size(1))

    def _attend(self, points: _Points, memory: GlobalMemory | None, n_id: Tensor | None) -> Tensor:
        """Projects and attends, (M, heads, out_channels)."""
        query, key, value, batch, query_batch = points
        projected = self._project("query", query) if key is None else self._project("key", key)
        values = projected if value is None else self._project("value", value)
        values = values.view(-1, self.heads, self.out_channels)
        positions = embed(projected, self.embedding)
        keys, targets, queries = gather_keys(positions, values, batch, memory, n_id)
        if self.lin_query is not None:
            check_features(query, self.lin_query.in_channels, self.lin_query.weight, "query")
            queries = self.as_positions(self.lin_query(query)).to(keys.dtype)
            query_batch = batch if key is None else query_batch
        elif key is not None:
            queries = embed(self._project("query", query), self.embedding)
        targets = drop_targets(targets, self.dropout, self.training)
        out: Tensor = self.attend(
            keys, targets, batch=batch, queries=queries, query_batch=query_batch
        )
        return out.to(values.dtype)

    def _project(self, name: str, x: Tensor) -> Tensor:
        """Checks an input and maps it to (N, heads * out_channels)."""
        check_features(x, self.lin.in_channels, self.lin.weight, name)
        projected: Tensor = self.lin(x)
        return projected

    def __repr__(self) -> str:
        sizes = f"{self.in_channels}, {self.out_channels}, heads={self.heads}"
        return f"{self.__class__.__name__}({sizes}{describe_tolerance(self.tolerance)})"


class _Points(NamedTuple):
    """The arguments of :meth:`GlobalAttention.forward`: (M, C), (N, C), (N, C), (N,) and (M,)."""

    query: Tensor
    key: Tensor | None
    value: Tensor | None
    batch: Tensor | None
    query_batch: Tensor | None


def _flatten(given: _Points) -> _Points:
    """Turns sequences (B, L, C) into points, each sequence a cloud; returns points as they are."""
    query, key, value, *batches = given
    if not isinstance(query, Tensor):
        raise ValueError(f"query is a {type(query).__name__}; allowed: a tensor")
    if query.dim() != 3:
        return given
    if batches != [None, None]:
        problem = f"batch is given though query has shape {tuple(query.shape)}"
        raise ValueError(f"{problem}; allowed: points (N, C) with batch")
    for name, tensor in (("key", key), ("value", value)):
        if tensor is not None and (tensor.dim() != 3 or tensor.size(0) != query.size(0)):
            allowed = f"({len(query)}, L, C), as query has"
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; allowed: {allowed}")
    batch = _number_sequences(query if key is None else key)
    query_batch = None if key is None else _number_sequences(query)
    key, value = (None if tensor is None else tensor.flatten(0, 1) for tensor in (key, value))
    return _Points(query.flatten(0, 1), key, value, batch, query_batch)


def _number_sequences(sequences: Tensor) -> Tensor:
    """Returns the index of its sequence for every point of (B, L, C): (B * L,)."""
    count, length = sequences.shape[:2]
    return torch.arange(count, device=sequences.device).unsqueeze(1).expand(-1, length).flatten()
