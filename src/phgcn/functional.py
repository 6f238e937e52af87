r"""Attention to all points of a graph, or to neighbours, and the paper's non-local filter, as functions of points.

``method="auto"`` is resolved here and nowhere else (:func:`choose_method`): every op below does what its name says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple, overload

import torch
from torch import Tensor

from .checks import HALF_TYPES, check_choices, check_decay, check_edges, check_points, refuse_transforms
from .exact import ops as exact
from .kernels.backend import choose_backend
from .kernels.graphs import ALL_PAIRS
from .kernels.points import Points, Sums
from .lattice import ops as lattice_ops  # noqa: F401, defines torch.ops.phgcn.filter
from .lattice.levels import FLOOR
from .lattice.scheme import MAX_DIMENSION, Scheme, encode
from .structural import ops as structural
from .structural.reference import attention_weights

if TYPE_CHECKING:
    from .tolerance import Tolerance

Method = Literal["auto", "exact", "lattice", "lattice-fine", "separable"] | Scheme
Backend = Literal["auto", "reference", "numba", "triton"]

EXACT_PAIRS = {"cpu": 1200**2, "cuda": 24_000**2}
"""Up to how many pairs of a graph ``"auto"`` takes the exact sum, by type of device: about there the lattice becomes faster, as
``benchmarks/crossing.py`` measures on a CPU for D = 1 to 6 and ``benchmarks/gpu.py`` on an H200 for D = 2 to 6."""


@overload
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
    tolerance: float | Tolerance | None = None,
    return_mass: Literal[False] = False,
) -> Tensor: ...


@overload
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
    tolerance: float | Tolerance | None = None,
    return_mass: Literal[True],
) -> tuple[Tensor, Tensor]: ...


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
    tolerance: float | Tolerance | None = None,
    return_mass: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
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
            time linear in the number of points. ``"lattice-fine"``: a more accurate one. ``"separable"``: the paper's filter
            of width 7. ``"auto"``: for each graph, ``"exact"`` where that is faster, else ``"lattice"``;
            :func:`explain_method` tells which. Or :class:`phgcn.lattice.MultiScale` or :class:`phgcn.lattice.Separable` for
            full control. (default: :obj:`"auto"`)
        backend (str, optional): ``"reference"`` (plain torch, slow), ``"numba"`` (CPU), ``"triton"`` (CUDA), or ``"auto"``.
            (default: :obj:`"auto"`)
        tolerance (float or Tolerance, optional): With ``method="auto"``, takes the cheapest method whose error on these points,
            measured by :func:`attention_error`, is at most this; exact where no other is. A number is measured against in
            every call, a :class:`phgcn.tolerance.Tolerance` when the cloud has changed. (default: :obj:`None`)
        return_mass (bool, optional): If :obj:`True`, also returns the *mass*, the log of the denominator,
            :math:`m_i = \log \sum_j \exp(-\lambda \lVert \mathbf{p}_i - \mathbf{p}_j \rVert)`: how many points are close to
            a query. It comes from the same pass and has a gradient. (default: :obj:`False`)

    Shapes:
        - **positions:** :math:`(N, D)`, or :math:`(N, H, D)` for :math:`H` heads
        - **values:** :math:`(N, C)` or :math:`(N, H, C)`; values without heads are shared by all
        - **queries:** :math:`(M, D)` or :math:`(M, H, D)`, like ``positions``
        - **batch:** :math:`(N,)`, **query_batch:** :math:`(M,)`, **decay:** a number or :math:`(H,)`
        - **output:** :math:`(M, C)`, or :math:`(M, H, C)` if positions or values have heads; the mass :math:`(M,)` or
          :math:`(M, H)`

    Half types are summed in float32, in which positions are taken too; the output has the type of ``values``, which may be a
    half type beside positions in float32, and the mass that of ``positions``.  The gradients are the true derivatives of what
    was computed.  A query in a graph without keys gets 0 and the mass :math:`-\infty`; one so far from all keys that the
    lattice does not reach any gets the mean of its graph's values and the lattice's least mass, :math:`\log 10^{-8}`, with a
    gradient of 0.
    """
    call = AttentionCall(positions, values, decay, batch, queries, query_batch, method, backend)
    for calls in _observers:
        calls.append(call)
    if tolerance is not None:
        from .tolerance import choose_within

        call = choose_within(call, tolerance)
    out, mass = run_call(call, True, return_mass)
    return out if mass is None else (out, mass)


class AttentionCall(NamedTuple):
    """The arguments of a call of :func:`global_attention`, and which ``lattice`` method ``"auto"`` takes for large graphs."""

    positions: Tensor
    values: Tensor
    decay: float | Tensor
    batch: Tensor | None = None
    queries: Tensor | None = None
    query_batch: Tensor | None = None
    method: Method = "auto"
    backend: Backend = "auto"
    lattice: Literal["lattice", "lattice-fine", "separable"] = "lattice"


_observers: list[list[AttentionCall]] = []


@contextmanager
def observe_attention() -> Iterator[list[AttentionCall]]:
    """Collects all calls of :func:`global_attention`, whatever layer makes them: what a trained network attends with."""
    _observers.append([])
    try:
        yield _observers[-1]
    finally:
        _observers.pop()


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
    return run_call(AttentionCall(positions, values, decay, batch, queries, query_batch, method, backend), False, False)[0]


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
    check_points(positions, values)
    check_choices("auto", backend)
    check_edges(edge_index, edge_mask, positions, count_heads(positions, values))
    out, weights = attend_neighbours(positions, values, edge_index, decay, edge_mask, return_attention_weights, backend)
    return out if weights is None else (out, weights)


def attend_neighbours(
    positions: Tensor,
    values: Tensor,
    edge_index: Tensor,
    decay: float | Tensor,
    edge_mask: Tensor | None,
    return_weights: bool,
    backend: Backend,
) -> tuple[Tensor, Tensor | None]:
    """:func:`structural_attention` without its checks, for layers, which check edges before they add self-loops."""
    inputs = _inputs(positions, values, None, decay, backend)
    if edge_mask is not None:
        edge_mask = edge_mask.detach().to(inputs.positions.dtype).reshape(edge_mask.size(0), -1).expand(-1, inputs.heads)
    with refuse_transforms(inputs.positions, inputs.values):
        out = structural.attend(inputs.positions, inputs.values, edge_index, edge_mask, inputs.backend)
    out = _output(out, values.dtype, inputs.with_heads)
    if not return_weights:
        return out, None
    weights = attention_weights(inputs.positions, edge_index).to(values.dtype)
    return out, weights if inputs.with_heads else weights.squeeze(1)


# The choice of "auto"


class MethodChoice(NamedTuple):
    """What ``"auto"`` picks, and why."""

    method: str
    reason: str

    def __str__(self) -> str:
        return f"{self.method}: {self.reason}"


def explain_method(n: int, dim: int = 4, device: str | torch.device = "cpu") -> MethodChoice:
    r"""Tells which method ``"auto"`` picks for a graph, and why.

    Args:
        n (int): How many points the graph has.
        dim (int, optional): The dimension :math:`D` of their positions. (default: :obj:`4`)
        device (str or torch.device, optional): Where the points are. (default: :obj:`"cpu"`)

    Example:
        >>> print(phgcn.explain_method(500))
        exact: 500 points are 250,000 pairs; up to 1,440,000 (1,200 points) the exact sum is faster on cpu
    """
    for name, number, least in (("n", n, 0), ("dim", dim, 1)):
        if not isinstance(number, int) or number < least:
            raise ValueError(f"{name} is {number!r}; allowed: a {'positive' if least else 'non-negative'} integer")
    device_type = torch.device(device).type
    if dim > MAX_DIMENSION:
        return MethodChoice("exact", f"positions have {dim} dimensions; lattices are built for up to {MAX_DIMENSION}")
    limit = exact_limit(dim, device_type)
    method = choose_method("auto", n * n, dim, device_type)
    assert isinstance(method, str)
    sign = "up to" if method == "exact" else "above"
    faster = "exact sum" if method == "exact" else "lattice"
    points = f"{limit:,} ({round(limit**0.5):,} points)"
    return MethodChoice(method, f"{n:,} points are {n * n:,} pairs; {sign} {points} the {faster} is faster on {device_type}")


def choose_method(method: Method, pairs: int, dim: int, device_type: str, lattice: Method = "lattice") -> Method:
    """Resolves ``"auto"`` for one graph with ``pairs`` pairs of keys and queries, to exact or this ``lattice``; returns other
    methods as they are."""
    if method != "auto":
        return method
    return "exact" if pairs <= exact_limit(dim, device_type) else lattice


def exact_limit(dim: int, device_type: str) -> int:
    """Returns the largest number of pairs of a graph for which ``"auto"`` is exact."""
    return ALL_PAIRS if dim > MAX_DIMENSION else EXACT_PAIRS.get(device_type, EXACT_PAIRS["cpu"])


# From a user's tensors to the ops' and back


class _Inputs(NamedTuple):
    """Tensors as the ops take them, positions in units of 1/λ: (N, H, D), (N, H, C) and, in cross-attention, (M, H, D)."""

    positions: Tensor
    values: Tensor
    queries: Tensor | None
    heads: int
    with_heads: bool
    backend: str


def run_call(call: AttentionCall, normalise: bool, with_mass: bool) -> tuple[Tensor, Tensor | None]:
    """Checks the arguments, resolves ``"auto"`` and calls the exact op, the lattice op, or both; returns output and mass."""
    positions, values, decay, batch, queries, query_batch, method, backend, lattice = call
    check_points(positions, values, batch, queries, query_batch)
    check_choices(method, backend)
    inputs = _inputs(positions, values, queries, decay, backend)
    points = Points(inputs.positions, inputs.values, inputs.queries, batch, query_batch)
    dim, device = positions.size(-1), positions.device.type
    chosen = choose_method(method, points.pairs, dim, device, lattice)
    with refuse_transforms(*points[:3]):
        if chosen == "exact":
            sums = [exact.attend(points, normalise, inputs.backend)]
        else:
            # With "auto", each graph of a batch by its own size, as if it were alone: either op leaves rows of 0 to the other.
            by_size = method == "auto" and batch is not None
            limit = exact_limit(dim, device) if by_size else -1
            out, norm, _ = torch.ops.phgcn.filter(
                *points, encode(chosen), normalise, limit, inputs.backend, points.need_gradient
            )
            sums = [Sums(out, norm)]
            if by_size:
                sums.append(exact.attend(points, normalise, inputs.backend, at_most=limit))
    out = sums[0].out if len(sums) == 1 else sums[0].out + sums[1].out
    mass = _output(_log_mass(sums), positions.dtype, inputs.with_heads) if with_mass else None
    return _output(out, values.dtype, inputs.with_heads), mass


def _log_mass(sums: list[Sums]) -> Tensor:
    r"""Computes the log of the softmax denominator, :math:`\log n_i - s_i`, (M, H); the row of each query is 0 in all but one
    of ``sums``, and in that too if its graph has no keys.

    Errors of the lattice can make a small sum negative: less than its lower bound counts as that.
    """
    norm = sums[0].norm if len(sums) == 1 else sums[0].norm + sums[1].norm
    without_keys = norm == 0
    mass = torch.where(without_keys, 1.0, norm).clamp(min=FLOOR).log()
    for part in sums:
        if part.shift is not None:
            mass = mass - part.shift
    return torch.where(without_keys, -torch.inf, mass)  # the gradient is 0 there


def _inputs(positions: Tensor, values: Tensor, queries: Tensor | None, decay: float | Tensor, backend: Backend) -> _Inputs:
    """Adds a dimension of heads, multiplies positions by the decay, and widens half types that a backend does not take."""
    with_heads = positions.dim() == 3 or values.dim() == 3
    heads = count_heads(positions, values)
    check_decay(decay, heads, positions.device)
    chosen = choose_backend(backend, positions.device)
    keys, targets = (None if p is None else _scale(add_heads(_widen(p), heads), decay) for p in (positions, queries))
    assert keys is not None
    features = add_heads(values if chosen == "triton" else _widen(values), heads)
    return _Inputs(keys, features, targets, heads, with_heads, chosen)


def count_heads(positions: Tensor, values: Tensor) -> int:
    """Returns the number of heads, 1 where neither has a dimension of heads."""
    return max(t.size(1) if t.dim() == 3 else 1 for t in (positions, values))


def _output(out: Tensor, dtype: torch.dtype, with_heads: bool) -> Tensor:
    out = out.to(dtype)
    return out if with_heads else out.squeeze(1)


def _scale(points: Tensor, decay: float | Tensor) -> Tensor:
    """Multiplies positions (N, H, D) by the decay of each head."""
    if isinstance(decay, Tensor):
        return points * decay.to(points.dtype).reshape(-1, 1)
    return points if decay == 1 else points * float(decay)


def add_heads(tensor: Tensor, heads: int) -> Tensor:
    """Returns the tensor as (N, heads, width)."""
    if tensor.dim() == 3:
        return tensor
    return tensor.unsqueeze(1) if heads == 1 else tensor.unsqueeze(1).expand(-1, heads, -1)


def _widen(tensor: Tensor) -> Tensor:
    """Returns half types as float32."""
    return tensor.float() if tensor.dtype in HALF_TYPES else tensor
