"""Attention to all points of a graph, or to neighbours, and the paper's non-local filter, as
functions of points.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple, overload

import torch
from torch import Tensor

from .backends import DEVICES, BackendName
from .calls import (
    AttentionCall,
    Method,
    choose_method,
    count_heads,
    op_inputs,
    run_call,
    spread_over_heads,
    user_output,
)
from .checks import check_choice, check_choices, check_edges, check_points, refuse_transforms
from .crossings import CROSSINGS, Crossing
from .kernels import EXPONENTIAL, Kernel, kernel_name
from .lattice.scheme import MAX_DIMENSION
from .log import LOGGER, is_logged
from .structural import ops as structural
from .structural.graph import Graph
from .structural.reference import attention_weights
from .tolerance import CallPoints, Tolerance, choose_within

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = [
    "AttentionCall",
    "Method",
    "MethodChoice",
    "attend_neighbours",
    "choose_method",
    "explain_method",
    "global_attention",
    "observe_attention",
    "permutohedral_filter",
    "structural_attention",
]


@overload
def global_attention(
    positions: Tensor,
    values: Tensor,
    *,
    decay: float | Tensor = 10.0,
    batch: Tensor | None = None,
    queries: Tensor | None = None,
    query_batch: Tensor | None = None,
    weights: Tensor | None = None,
    kernel: str | Kernel = "exponential",
    method: Method = "auto",
    backend: BackendName = "auto",
    tolerance: float | Tolerance | None = None,
    group: ProcessGroup | None = None,
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
    weights: Tensor | None = None,
    kernel: str | Kernel = "exponential",
    method: Method = "auto",
    backend: BackendName = "auto",
    tolerance: float | Tolerance | None = None,
    group: ProcessGroup | None = None,
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
    weights: Tensor | None = None,
    kernel: str | Kernel = "exponential",
    method: Method = "auto",
    backend: BackendName = "auto",
    tolerance: float | Tolerance | None = None,
    group: ProcessGroup | None = None,
    return_mass: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Softmax attention of every point to every other of its graph, by Euclidean distance.

    .. math::
        \mathbf{h}_i = \frac{\sum_j w_j\, k(\lambda \lVert \mathbf{p}_i - \mathbf{p}_j \rVert)\,
                            \mathbf{f}_j}
                            {\sum_j w_j\, k(\lambda \lVert \mathbf{p}_i - \mathbf{p}_j \rVert)},
        \qquad k(r) = e^{-r}

    Args:
        positions (torch.Tensor): The embeddings :math:`\mathbf{p}_j`.
        values (torch.Tensor): The features :math:`\mathbf{f}_j`.
        decay (float or torch.Tensor, optional): The coefficient :math:`\lambda`, or one per head.
            (default: :obj:`10.0`)
        batch (torch.Tensor, optional): The graph that each point belongs to, in any order;
            attention never crosses graphs. (default: :obj:`None`, one graph)
        queries (torch.Tensor, optional): The points that attend to ``positions``. (default:
            :obj:`None`, the same points)
        query_batch (torch.Tensor, optional): The graph of each query. (default: :obj:`None`, one
            graph)
        weights (torch.Tensor, optional): The weights :math:`w_j` of the points as keys, not
            negative; they get a gradient. A point of weight 0 attends, and nobody attends to it.
            (default: :obj:`None`, all 1)
        kernel (str or phgcn.kernels.Kernel, optional): The kernel :math:`k(r)`, :math:`r` being
            :math:`\lambda` times the distance: an object of :mod:`phgcn.kernels`, such as
            ``Gaussian()``, or its name, such as ``"gaussian"``. The method ``"separable"`` has the
            exponential only. (default: :obj:`"exponential"`, :math:`e^{-r}`)
        method (str or scheme, optional): ``"exact"``: the sum over all pairs. ``"lattice"``: a
            ladder of smoothed lattices, in time linear in the number of points. ``"lattice-fine"``:
            a more accurate one. ``"separable"``: the paper's filter of width 7. ``"auto"``: for
            each graph, ``"exact"`` where that is faster, else ``"lattice"``
            (:func:`explain_method`). Or :class:`phgcn.lattice.Ladder` or
            :class:`phgcn.lattice.Separable` for full control. (default: :obj:`"auto"`)
        backend (str, optional): ``"reference"`` (plain torch, slow), ``"numba"`` (CPU),
            ``"triton"`` (CUDA), or ``"auto"``. (default: :obj:`"auto"`)
        tolerance (float or Tolerance, optional): With ``method="auto"``, takes the cheapest method
            whose error on these points, measured by :func:`attention_error`, is at most this; exact
            where no other is. A number is measured against in every call, a
            :class:`phgcn.tolerance.Tolerance` when the cloud has changed. (default: :obj:`None`)
        group (ProcessGroup, optional): Processes of :mod:`torch.distributed` that share the points
            out among them, in any numbers: a point attends to all points of its graph on all of
            them. Every process of the group must make the call; see ``docs/distributed.md``.
            (default: :obj:`None`, only this process)
        return_mass (bool, optional): If :obj:`True`, also returns the *mass*, the log of the
            denominator, :math:`m_i = \log \sum_j w_j\, k(\lambda \lVert \mathbf{p}_i - \mathbf{p}_j
            \rVert)`: how many points are close to a query. It comes from the same pass and has a
            gradient. (default: :obj:`False`)

    Shapes:
        - **positions:** :math:`(N, D)`, or :math:`(N, H, D)` for :math:`H` heads
        - **values:** :math:`(N, C)` or :math:`(N, H, C)`; values without heads are shared by all
        - **queries:** :math:`(M, D)` or :math:`(M, H, D)`, like ``positions``
        - **batch:** :math:`(N,)`, **query_batch:** :math:`(M,)`, **decay:** a number or
          :math:`(H,)`
        - **weights:** :math:`(N,)` or :math:`(N, H)`
        - **output:** :math:`(M, C)`, or :math:`(M, H, C)` if positions or values have heads; the
          mass :math:`(M,)` or :math:`(M, H)`

    Half types are summed in float32, in which positions are taken too; the output has the type of
    ``values``, which may be a half type beside positions in float32, and the mass that of
    ``positions``. The gradients are the true derivatives of the computation. A weight of 0 gets the
    gradient 0. A query in a graph without keys, or with none of positive weight, gets 0 and the
    mass :math:`-\infty`. With a lattice, a query outside of the ball around all keys moves close to
    the ball along the same line, and its mass falls by the distance moved. A query inside that is
    far from all keys, or one with weights or another kernel than the exponential, has a mass of at
    least :math:`\log 10^{-8}` and gets the mean of its graph's values."""
    name = kernel_name(kernel)
    call = AttentionCall(
        positions, values, decay, batch, queries, query_batch, method, backend, name, weights
    )
    for calls in _observers:
        calls.append(call)
    if group is not None:
        from .distributed.attention import attend_over_ranks

        out, mass = attend_over_ranks(call, tolerance, return_mass, group)
        return out if mass is None else (out, mass)
    if tolerance is not None:
        call = choose_within(CallPoints(call), tolerance)
    out, mass = run_call(call, True, return_mass)
    return out if mass is None else (out, mass)


_observers: list[list[AttentionCall]] = []


@contextmanager
def observe_attention() -> Iterator[list[AttentionCall]]:
    """Collects all calls of :func:`global_attention` by whatever layer, for a look at a trained
    network's attention."""
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
    weights: Tensor | None = None,
    kernel: str | Kernel = "exponential",
    method: Method = "lattice",
    backend: BackendName = "auto",
    tolerance: float | Tolerance | None = None,
) -> Tensor:
    r"""The paper's non-local filter, :func:`global_attention` without the normaliser.

    .. math::
        \mathbf{f}'_i = \sum_j w_j\, k(\lambda \lVert \mathbf{p}_i - \mathbf{p}_j \rVert)\,
        \mathbf{f}_j

    Args and shapes are as in :func:`global_attention`, with a default :math:`\lambda` of 1 and the
    default method ``"lattice"``. A ``tolerance``, with ``method="auto"``, is of the error relative
    to the sums themselves, as :func:`attention_error` measures it with ``normalise=False``."""
    name = kernel_name(kernel)
    call = AttentionCall(
        positions, values, decay, batch, queries, query_batch, method, backend, name, weights
    )
    if tolerance is not None:
        call = choose_within(CallPoints(call, normalise=False), tolerance)
    return run_call(call, False, False)[0]


def structural_attention(
    positions: Tensor,
    values: Tensor,
    edge_index: Tensor,
    decay: float | Tensor = 1.0,
    *,
    edge_mask: Tensor | None = None,
    edge_bias: Tensor | None = None,
    return_attention_weights: bool = False,
    backend: BackendName = "auto",
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Softmax attention of every node to the sources of its incoming edges, by Euclidean distance.

    .. math::
        \mathbf{h}_i = \sum_{j \to i} \alpha_{ij}\, m_{ij}\, \mathbf{f}_j, \qquad
        \alpha_{ij} = \frac{\exp(b_{ij} - \lambda \lVert \mathbf{p}_i - \mathbf{p}_j \rVert)}
        {\sum_{k \to i} \exp(b_{ik} - \lambda \lVert \mathbf{p}_i - \mathbf{p}_k \rVert)}

    Args:
        positions (torch.Tensor): The embeddings :math:`\mathbf{p}_j`.
        values (torch.Tensor): The features :math:`\mathbf{f}_j`.
        edge_index (torch.Tensor): The edges :math:`j \to i`: sources :math:`j` in row 0, targets
            :math:`i` in row 1. An edge counts as often as it occurs; self-loops are not added.
        decay (float or torch.Tensor, optional): The coefficient :math:`\lambda`, or one per head.
            (default: :obj:`1.0`)
        edge_mask (torch.Tensor, optional): The factors :math:`m_{ij}` of the weights after the
            softmax, for dropout; it gets no gradient. (default: :obj:`None`, all 1)
        edge_bias (torch.Tensor, optional): The numbers :math:`b_{ij}` added to the exponents, such
            as a linear map of edge features, or the logarithm of edge weights. (default:
            :obj:`None`, all 0)
        return_attention_weights (bool, optional): If :obj:`True`, also returns the
            :math:`\alpha_{ij}`. They are computed in plain torch, apart from the output, and have
            gradients of their own. (default: :obj:`False`)
        backend (str, optional): ``"reference"`` (plain torch, slow), ``"numba"`` (CPU),
            ``"triton"`` (CUDA), or ``"auto"``. (default: :obj:`"auto"`)

    Shapes:
        - **positions:** :math:`(N, D)`, or :math:`(N, H, D)` for :math:`H` heads
        - **values:** :math:`(N, C)` or :math:`(N, H, C)`; values without heads are shared by all
        - **edge_index:** :math:`(2, E)`, **decay:** a number or :math:`(H,)`
        - **edge_mask**, **edge_bias:** :math:`(E,)` or :math:`(E, H)`
        - **output:** :math:`(N, C)`, or :math:`(N, H, C)` if positions or values have heads; the
          weights :math:`(E,)` or :math:`(E, H)`, in the order of ``edge_index``

    Types are as in :func:`global_attention`. A node without incoming edges gets 0. The derivative
    of a distance of 0 is 0."""
    check_points(positions, values)
    check_choices("auto", backend)
    check_edges(edge_index, positions, count_heads(positions, values), edge_mask, edge_bias)
    graph = Graph(positions, values, edge_index, edge_mask, edge_bias)
    out, weights = attend_neighbours(graph, decay, return_attention_weights, backend)
    return out if weights is None else (out, weights)


def attend_neighbours(
    graph: Graph, decay: float | Tensor, return_weights: bool, backend: BackendName
) -> tuple[Tensor, Tensor | None]:
    """Computes :func:`structural_attention` without its checks, for layers, which check edges
    before they add self-loops."""
    positions, values, edge_index, edge_mask, edge_bias = graph
    inputs = op_inputs(positions, values, None, decay, backend)

    if is_logged():
        count, backend_name = len(positions), inputs.backend.name
        LOGGER.debug("%d edges, %d nodes: backend %s", edge_index.size(1), count, backend_name)
    mask = None if edge_mask is None else spread_over_heads(edge_mask.detach(), inputs)
    bias = None if edge_bias is None else spread_over_heads(edge_bias, inputs)
    with refuse_transforms(inputs.positions, inputs.values, bias):
        out = structural.attend(
            Graph(inputs.positions, inputs.values, edge_index, mask, bias), inputs.backend.name
        )
    out = user_output(out, values.dtype, inputs.with_heads)
    if not return_weights:
        return out, None
    weights = attention_weights(inputs.positions, edge_index, bias).to(values.dtype)
    return out, weights if inputs.with_heads else weights.squeeze(1)


# The choice of "auto"


class MethodChoice(NamedTuple):
    """The choice of ``"auto"``, and its reason. Numbers are :obj:`None` where nothing was measured.

    Args:
        method (str): ``"exact"`` or ``"lattice"``.
        reason (str): A sentence, with times and errors where they were measured.
        exact_seconds, lattice_seconds (float): Estimated times of a forward and backward pass of
            one head by the exponential kernel, on the machine of the measurement.
        lattice_error (float): Estimated error of the lattice in deviations of the exact output from
            its mean, by the exponential kernel.
        exact_error (float): The error of the exact sum, 0.
    """

    method: str
    reason: str
    exact_seconds: float | None = None
    lattice_seconds: float | None = None
    lattice_error: float | None = None
    exact_error: float = 0.0

    def __str__(self) -> str:
        return f"{self.method}: {self.reason}"


def explain_method(
    n: int, dim: int = 4, device: str | torch.device = "cpu", kernel: str | Kernel = "exponential"
) -> MethodChoice:
    """Returns the method that ``"auto"`` picks for a graph, with times and errors of both methods
    as measured by the exponential kernel.

    Args:
        n (int): The number of points of the graph.
        dim (int, optional): The dimension :math:`D` of their positions. (default: :obj:`4`)
        device (str or torch.device, optional): The device of the points, a CPU or a CUDA device.
            (default: :obj:`"cpu"`)
        kernel (str or phgcn.kernels.Kernel, optional): The kernel, as in :func:`global_attention`.
            (default: :obj:`"exponential"`)

    Example:
        >>> phgcn.explain_method(500).method
        'exact'
    """
    for name, number, least in (("n", n, 0), ("dim", dim, 1)):
        if not isinstance(number, int) or number < least:
            raise ValueError(
                f"{name} is {number!r}; allowed: a {'positive' if least else 'non-negative'} "
                f"integer"
            )
    device_type, function = torch.device(device).type, kernel_name(kernel)
    check_choice("device", device_type, DEVICES)
    if dim > MAX_DIMENSION:
        return MethodChoice(
            "exact",
            f"positions have {dim} dimensions; lattices are built for up to {MAX_DIMENSION}",
        )
    method = choose_method("auto", n * n, dim, device_type)
    assert isinstance(method, str)
    crossing = CROSSINGS[device_type][dim]
    exact, lattice = crossing.seconds(n)
    reason = f"{n:,} points; in {dim} dimensions on {device_type} {_describe(crossing)}"
    if exact is not None:
        reason += (
            f" (about {exact:.2g} s with an error of 0 exact, {lattice:.2g} s with an error of "
            f"about {crossing.error:.2g})"
        )
    if function != EXPONENTIAL.name:
        reason += f"; measured by the kernel {EXPONENTIAL.name!r}, not by {function!r}"
    return MethodChoice(method, reason, exact, lattice, crossing.error)


def _describe(crossing: Crossing) -> str:
    if crossing.points is None:
        return (
            "the lattice was not worth it at any size that was measured"
            if crossing.measured
            else "the lattice was not measured, and the sum is exact"
        )
    nearby = "" if crossing.measured else " (measured in the next dimension)"
    return f"the lattice is faster above {crossing.points:,}{nearby}"
