r"""Attention to all points of a graph, or to neighbours, and the paper's non-local filter, as functions of points."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from .lattice.groups import summed_exactly
from .lattice.ops import choose_backend
from .lattice.scheme import METHODS, Exact, MultiScale, Scheme, Separable, encode
from .structural import reference
from .structural.ops import check_edges

BACKENDS = ("auto", "reference", "numba", "triton")

HALF = (torch.float16, torch.bfloat16)

Method = Literal["auto", "exact", "lattice", "lattice-fine", "separable"] | Scheme
Backend = Literal["auto", "reference", "numba", "triton"]


def global_attention(
    positions: Tensor,
    values: Tensor,
    *,
    decay: float | Tensor = 10.0,
    batch: Tensor | None = None,
    queries: Tensor | None = None,
    query_batch: Tensor | None = None,
    method: Method = "auto",
    backend: Backend = "auto",
) -> Tensor:
    r"""Softmax attention of every point to every other of its graph, by Euclidean distance.

    .. math::
        \mathbf{h}_i = \frac{\sum_j \exp(-\lambda \lVert \mathbf{p}_i - \mathbf{p}_j \rVert)\, \mathbf{f}_j}
                            {\sum_j \exp(-\lambda \lVert \mathbf{p}_i - \mathbf{p}_j \rVert)}

    Args:
        positions (torch.Tensor): The embeddings :math:`\mathbf{p}_j`.
        values (torch.Tensor): The features :math:`\mathbf{f}_j`.
        decay (float or torch.Tensor, optional): The coefficient :math:`\lambda`, or one per head. (default: :obj:`10.0`)
        batch (torch.Tensor, optional): The graph that each point belongs to, in any order; attention never crosses
            graphs. (default: :obj:`None`, one graph)
        queries (torch.Tensor, optional): The points that attend to ``positions``. (default: :obj:`None`, the same points)
        query_batch (torch.Tensor, optional): The graph of each query. (default: :obj:`None`, one graph)
        method (str or scheme, optional): ``"exact"``: the sum over all pairs. ``"lattice"``: the multi-scale lattice, in
            time linear in the number of points; graphs of up to 1,200, where that is faster, are summed exactly.
            ``"lattice-fine"``: a more accurate one. ``"separable"``: the paper's filter of width 7. ``"auto"``: exact for
            small graphs, else ``"lattice"``. Or :class:`phgcn.lattice.MultiScale` or :class:`phgcn.lattice.Separable` for
            full control. (default: :obj:`"auto"`)
        backend (str, optional): ``"reference"`` (plain torch, slow), ``"numba"`` (CPU), ``"triton"`` (CUDA), or ``"auto"``.
            (default: :obj:`"auto"`)

    Shapes:
        - **positions:** :math:`(N, D)`, or :math:`(N, H, D)` for :math:`H` heads
        - **values:** :math:`(N, C)` or :math:`(N, H, C)`; values without heads are shared by all
        - **queries:** :math:`(M, D)` or :math:`(M, H, D)`, like ``positions``
        - **batch:** :math:`(N,)`, **query_batch:** :math:`(M,)`, **decay:** a number or :math:`(H,)`
        - **output:** :math:`(M, C)`, or :math:`(M, H, C)` if positions or values have heads

    Half types are summed in float32, in which positions are taken too; the output has the type of ``values``, which may be a
    half type beside positions in float32.  The gradients are the true derivatives of what was computed.  A query in a graph
    without keys gets 0; one so far from all keys that the lattice does not reach any gets the mean of its graph's values.
    """
    return _filter(positions, values, decay, batch, queries, query_batch, method, backend, normalise=True)


def permutohedral_filter(
    positions: Tensor,
    values: Tensor,
    *,
    decay: float | Tensor = 1.0,
    batch: Tensor | None = None,
    queries: Tensor | None = None,
    query_batch: Tensor | None = None,
    method: Method = "lattice",
    backend: Backend = "auto",
) -> Tensor:
    r"""The paper's non-local filter, :func:`global_attention` without the normaliser.

    .. math::
        \mathbf{f}'_i = \sum_j \exp(-\lambda \lVert \mathbf{p}_i - \mathbf{p}_j \rVert)\, \mathbf{f}_j

    Args and shapes are those of :func:`global_attention`, but :math:`\lambda` is 1 and the method ``"lattice"`` by default.
    """
    return _filter(positions, values, decay, batch, queries, query_batch, method, backend, normalise=False)


def structural_attention(
    positions: Tensor,
    values: Tensor,
    edge_index: Tensor,
    decay: float | Tensor = 1.0,
    *,
    edge_mask: Tensor | None = None,
    return_attention_weights: bool = False,
    backend: Backend = "auto",
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Softmax attention of every node to the sources of its incoming edges, by Euclidean distance.

    .. math::
        \mathbf{h}_i = \sum_{j \to i} \alpha_{ij}\, m_{ij}\, \mathbf{f}_j, \qquad
        \alpha_{ij} = \frac{\exp(-\lambda \lVert \mathbf{p}_i - \mathbf{p}_j \rVert)}
                           {\sum_{k \to i} \exp(-\lambda \lVert \mathbf{p}_i - \mathbf{p}_k \rVert)}

    Args:
        positions (torch.Tensor): The embeddings :math:`\mathbf{p}_j`.
        values (torch.Tensor): The features :math:`\mathbf{f}_j`.
        edge_index (torch.Tensor): The edges :math:`j \to i`: sources :math:`j` in row 0, targets :math:`i` in row 1. An edge
            counts as often as it occurs; self-loops are not added.
        decay (float or torch.Tensor, optional): The coefficient :math:`\lambda`, or one per head. (default: :obj:`1.0`)
        edge_mask (torch.Tensor, optional): The factors :math:`m_{ij}` of the weights after the softmax, for dropout; it gets
            no gradient. (default: :obj:`None`, all 1)
        return_attention_weights (bool, optional): If :obj:`True`, also returns the :math:`\alpha_{ij}`. They are computed
            in plain torch, apart from the output, and have gradients of their own. (default: :obj:`False`)
        backend (str, optional): ``"reference"`` (plain torch, slow), ``"numba"`` (CPU), ``"triton"`` (CUDA), or ``"auto"``.
            (default: :obj:`"auto"`)

    Shapes:
        - **positions:** :math:`(N, D)`, or :math:`(N, H, D)` for :math:`H` heads
        - **values:** :math:`(N, C)` or :math:`(N, H, C)`; values without heads are shared by all
        - **edge_index:** :math:`(2, E)`, **edge_mask:** :math:`(E,)` or :math:`(E, H)`, **decay:** a number or :math:`(H,)`
        - **output:** :math:`(N, C)`, or :math:`(N, H, C)` if positions or values have heads; the weights :math:`(E,)` or
          :math:`(E, H)`, in the order of ``edge_index``

    Types are as in :func:`global_attention`.  A node without incoming edges gets 0.  The derivative of a distance of 0 is 0.
    """
    _check_shapes(positions, values, None, None, None)
    check_choices("auto", backend)
    with_heads = positions.dim() == 3 or values.dim() == 3
    heads = max(t.size(1) for t in (positions, values) if t.dim() == 3) if with_heads else 1
    chosen = choose_backend(backend, positions.device)
    points, features = _with_heads(_widened(positions), heads), _with_heads(values, heads)
    features = features if chosen == "triton" else _widened(features)
    factor = _check_decay(decay, heads, points)
    points = points if isinstance(factor, (int, float)) and factor == 1 else points * factor
    check_edges(edge_index, edge_mask, positions, heads)
    if edge_mask is not None:
        edge_mask = edge_mask.detach().to(points.dtype).reshape(edge_mask.size(0), -1).expand(-1, heads)
    out, *_ = torch.ops.phgcn.structural(points, features, edge_index, edge_mask, chosen)
    out = out.to(values.dtype) if with_heads else out.to(values.dtype).squeeze(1)
    if not return_attention_weights:
        return out
    weights = reference.attention_weights(points, edge_index).to(values.dtype)
    return out, weights if with_heads else weights.squeeze(1)


def _filter(positions, values, decay, batch, queries, query_batch, method, backend, normalise: bool) -> Tensor:
    _check_shapes(positions, values, batch, queries, query_batch)
    with_heads = positions.dim() == 3 or values.dim() == 3
    out_type = values.dtype
    heads = max(t.size(1) for t in (positions, values) if t.dim() == 3) if with_heads else 1
    points, features = _with_heads(_widened(positions), heads), _with_heads(values, heads)
    asked = None if queries is None else _with_heads(_widened(queries), heads)
    factor = _check_decay(decay, heads, points)
    check_choices(method, backend)
    if not isinstance(factor, (int, float)) or factor != 1:
        points, asked = points * factor, None if asked is None else asked * factor
    chosen = choose_backend(backend, positions.device)
    count = len(points if asked is None else asked)
    if chosen == "triton" and batch is None and summed_exactly(method, len(points), count, points.device.type):
        out, _ = torch.ops.phgcn.all_pairs(points, features, asked, normalise)
    else:
        features = features if chosen == "triton" else _widened(features)
        out, _ = torch.ops.phgcn.filter(points, features, batch, asked, query_batch, encode(method), normalise, chosen)
    out = out if out.dtype == out_type else out.to(out_type)
    return out if with_heads else out.squeeze(1)


def _with_heads(tensor: Tensor, heads: int) -> Tensor:
    """The tensor as (N, heads, width)."""
    if tensor.dim() == 3:
        return tensor
    return tensor.unsqueeze(1) if heads == 1 else tensor.unsqueeze(1).expand(-1, heads, -1)


def _widened(tensor: Tensor) -> Tensor:
    """Half types as float32."""
    return tensor.float() if tensor.dtype in HALF else tensor


def check_choices(method: Method, backend: str) -> None:
    if not isinstance(method, (Exact, MultiScale, Separable)) and method not in METHODS:
        raise ValueError(f"method is {method!r}; allowed: {', '.join(map(repr, METHODS))}, or a scheme of phgcn.lattice")
    if backend not in BACKENDS:
        raise ValueError(f"backend is {backend!r}; allowed: {', '.join(map(repr, BACKENDS))}")


def _check_decay(decay: float | Tensor, heads: int, points: Tensor) -> float | Tensor:
    """The factor of the points: a number, or a tensor that broadcasts against (N, heads, D)."""
    if not isinstance(decay, Tensor):
        if not isinstance(decay, (int, float)) or not 0 < decay < float("inf"):
            raise ValueError(f"decay is {decay!r}; allowed: a positive number, or a tensor of one or of {heads} of them")
        return decay
    if decay.numel() not in (1, heads) or decay.dim() > 1:
        raise ValueError(f"decay has shape {tuple(decay.shape)}; allowed: a scalar or ({heads},), one per head")
    if decay.device != points.device:
        raise ValueError(f"decay is on {decay.device}; allowed: {points.device}, as positions")
    # A compiled graph cannot branch on a value, and one that is recorded on a GPU cannot look at it.
    if not torch.compiler.is_compiling() and not (decay.is_cuda and torch.cuda.is_current_stream_capturing()):
        bad = ~((decay > 0) & decay.isfinite())
        if bool(bad.any()):
            raise ValueError(f"decay is {float(decay[bad].flatten()[0])}; allowed: positive numbers")
    return decay.to(points.dtype).reshape(-1, 1)


def _check_shapes(positions, values, batch, queries, query_batch) -> None:
    """Checks what can be seen without looking at values."""
    given = {"positions": positions, "values": values, "queries": queries}
    for name, tensor in given.items():
        if tensor is None and name == "queries":
            continue
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{name} is a {type(tensor).__name__}; allowed: a tensor")
        if tensor.dim() not in (2, 3):
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; allowed: 2 dimensions, or 3 with heads")
        if tensor.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            raise ValueError(f"{name} is {tensor.dtype}; allowed: float16, bfloat16, float32, float64")
        if tensor.device != positions.device:
            raise ValueError(f"{name} is on {tensor.device}; allowed: {positions.device}, as positions")
        beside = name == "values" and positions.dtype == torch.float32 and tensor.dtype in HALF
        if tensor.dtype != positions.dtype and not beside:
            raise ValueError(f"{name} is {tensor.dtype}; allowed: {positions.dtype}, as positions")
    if positions.size(-1) == 0:
        raise ValueError(f"positions has shape {tuple(positions.shape)}; allowed: at least one coordinate")
    if len(values) != len(positions):
        raise ValueError(f"values has {len(values)} rows; allowed: {len(positions)}, as positions")
    if positions.dim() == 3 and values.dim() == 3 and positions.size(1) != values.size(1):
        raise ValueError(f"values has {values.size(1)} heads; allowed: {positions.size(1)}, as positions")
    for name, tensor in (("positions", positions), ("values", values)):
        if tensor.dim() == 3 and tensor.size(1) == 0:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; allowed: at least one head")
    if queries is not None:
        if queries.shape[1:] != positions.shape[1:]:
            allowed = ("M", *positions.shape[1:])
            raise ValueError(f"queries has shape {tuple(queries.shape)}; allowed: {allowed}, like positions")
    elif query_batch is not None:
        raise ValueError("query_batch is given without queries; allowed: both or neither")
    check_index("batch", batch, positions, "positions")
    if queries is not None:
        check_index("query_batch", query_batch, queries, "queries")
        if (batch is None) != (query_batch is None):
            missing, given_one = ("batch", "query_batch") if batch is None else ("query_batch", "batch")
            raise ValueError(f"{missing} is None though {given_one} is given; allowed: both or neither")


def check_index(name: str, index: Tensor | None, points: Tensor, points_name: str) -> None:
    if index is None:
        return
    if not isinstance(index, Tensor):
        raise ValueError(f"{name} is a {type(index).__name__}; allowed: a tensor")
    if index.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{name} is {index.dtype}; allowed: int64, int32")
    if index.shape != points.shape[:1]:
        raise ValueError(
            f"{name} has shape {tuple(index.shape)}; allowed: ({len(points)},), one entry per row of {points_name}"
        )
    if index.device != points.device:
        raise ValueError(f"{name} is on {index.device}; allowed: {points.device}, as {points_name}")
