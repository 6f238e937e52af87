"""A call of global attention: its arguments, the choice of ``"auto"``, and the ops that it runs.
Only :func:`choose_method` resolves ``method="auto"``."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .backends import HALF_TYPES, Backend, BackendName, choose_backend
from .checks import (
    check_choices,
    check_decay,
    check_kernel,
    check_points,
    check_weights,
    refuse_transforms,
)
from .crossings import exact_limit
from .exact import ops as exact
from .kernels import EXPONENTIAL
from .lattice import ops as lattice_ops  # noqa: F401, defines torch.ops.phgcn.filter
from .lattice.far import draw_near, query_balls
from .lattice.filter_call import FLOOR
from .lattice.scheme import MAX_DIMENSION, Scheme, encode
from .log import LOGGER, is_logged
from .runtime.points import Points, Sums

Method = Literal["auto", "exact", "lattice", "lattice-fine", "separable"] | Scheme
"""What a call runs: the name of a method, or a scheme of the lattice."""


class AttentionCall(NamedTuple):
    """The arguments of a call of :func:`global_attention`, and the ``lattice`` method that
    ``"auto"`` takes for large graphs."""

    positions: Tensor
    values: Tensor
    decay: float | Tensor
    batch: Tensor | None = None
    queries: Tensor | None = None
    query_batch: Tensor | None = None
    method: Method = "auto"
    backend: BackendName = "auto"
    kernel: str = EXPONENTIAL.name
    weights: Tensor | None = None
    lattice: Method = "lattice"


def choose_method(
    method: Method, pairs: int, dim: int, device_type: str, lattice: Method = "lattice"
) -> Method:
    """Resolves ``"auto"`` for one graph with ``pairs`` pairs of keys and queries; returns other
    methods as they are."""
    if method != "auto":
        return method
    return "exact" if pairs <= exact_limit(dim, device_type) else lattice


# From a user's tensors to the ops' and back


class OpInputs(NamedTuple):
    """Tensors for the ops: positions in units of 1/λ (N, H, D), values (N, H, C), queries (M, H,
    D)."""

    positions: Tensor
    values: Tensor
    queries: Tensor | None
    heads: int
    with_heads: bool
    backend: Backend


def run_call(call: AttentionCall, normalise: bool, with_mass: bool) -> tuple[Tensor, Tensor | None]:
    """Checks the arguments, resolves ``"auto"`` and calls the exact op, the lattice op, or both."""
    check_call(call)
    inputs = op_inputs(call.positions, call.values, call.queries, call.decay, call.backend)
    dim, device = call.positions.size(-1), call.positions.device.type
    points = weigh_keys(call, inputs, normalise)
    at_run_time = call.method == "auto" and dim <= MAX_DIMENSION and _is_exporting()
    chosen = (
        call.lattice
        if at_run_time
        else choose_method(call.method, points.pairs, dim, device, call.lattice)
    )
    log_call(call, inputs, points.pairs, chosen)
    with refuse_transforms(*points[:3], points.weights):
        if chosen == "exact":
            sums = [exact.attend(points, normalise, inputs.backend.name, kernel=call.kernel)]
        else:
            near, shift = points, None
            if normalise and points.queries is not None and call.kernel == EXPONENTIAL.name:
                queries, shift = draw_near(points.queries, query_balls(points))
                near = points._replace(queries=queries)
            # With "auto", each graph of a batch by its own size, as if it were alone: either op
            # leaves rows of 0 to the other.
            by_size = at_run_time or (call.method == "auto" and call.batch is not None)
            limit, scheme = exact_limit(dim, device) if by_size else -1, encode(chosen, call.kernel)
            out, norm, _ = torch.ops.phgcn.filter(
                *near, scheme, normalise, limit, inputs.backend.name, points.need_gradient
            )
            sums = [Sums(out, norm, shift)]
            if by_size:
                sums.append(
                    exact.attend(points, normalise, inputs.backend.name, limit, call.kernel)
                )
    return user_sums(sums, call, inputs, with_mass)


def log_call(call: AttentionCall, inputs: OpInputs, pairs: int, chosen: Method) -> None:
    """Logs the size of a call, its method and backend, and the reasons."""
    if not is_logged():
        return
    positions, (_, heads, channels) = inputs.positions, inputs.values.shape
    method, backend = str(chosen), inputs.backend.name
    if call.method == "auto":
        limit = exact_limit(positions.size(2), positions.device.type)
        each = ", each graph by its own" if call.batch is not None else ""
        method += f" (auto: {pairs:,} pairs, exact up to {limit:,}{each})"
    if call.backend == "auto":
        backend += f" (auto: the fastest on {positions.device.type})"
    queries = len(positions) if inputs.queries is None else len(inputs.queries)
    LOGGER.debug(
        "%s queries, %s keys, %d heads, %d dimensions, %d channels, %s, kernel %s: method %s, "
        "backend %s",
        f"{queries:,}",
        f"{len(positions):,}",
        heads,
        positions.size(2),
        channels,
        positions.dtype,
        call.kernel,
        method,
        backend,
    )


def weigh_keys(call: AttentionCall, inputs: OpInputs, normalise: bool) -> Points:
    """Returns the points of a call. Sums without normaliser have their weights in the values."""
    points = Points(inputs.positions, inputs.values, inputs.queries, call.batch, call.query_batch)
    if call.weights is None:
        return points
    weights = spread_over_heads(call.weights, inputs)
    factor = weights.unsqueeze(-1)
    if not normalise:
        return points._replace(values=points.values * factor.to(points.values.dtype))
    # What no query attends to must not be seen in the rounding of others either.
    values = torch.where(factor > 0, points.values, 0.0)
    # the derivative at 0 is taken as 0
    return points._replace(values=values, weights=torch.where(weights > 0, weights, 0.0))


def spread_over_heads(rows: Tensor, inputs: OpInputs) -> Tensor:
    """Expands numbers (N,), (N, 1) or (N, H) to (N, H) in the type of the positions."""
    rows = rows.to(inputs.positions.dtype)
    rows = rows.unsqueeze(1) if rows.dim() == 1 else rows
    return rows.expand(-1, inputs.heads)


def check_call(call: AttentionCall) -> None:
    """Checks shapes, types, devices and names. The ops check the values of tensors."""
    check_points(call.positions, call.values, call.batch, call.queries, call.query_batch)
    check_choices(call.method, call.backend)
    check_kernel(call.kernel, call.method)
    check_weights(call.weights, call.positions, count_heads(call.positions, call.values))


def user_sums(
    sums: list[Sums], call: AttentionCall, inputs: OpInputs, with_mass: bool
) -> tuple[Tensor, Tensor | None]:
    """Adds up the results of the ops; returns output and mass in the user's types and shapes."""
    out = sums[0].out if len(sums) == 1 else sums[0].out + sums[1].out
    mass = (
        user_output(_log_mass(sums), call.positions.dtype, inputs.with_heads) if with_mass else None
    )
    return user_output(out, call.values.dtype, inputs.with_heads), mass


def _is_exporting() -> bool:
    """Returns whether torch.export traces the call, for graphs of any size."""
    # torch has it since 2.7
    return hasattr(torch.compiler, "is_exporting") and torch.compiler.is_exporting()


def _log_mass(sums: list[Sums]) -> Tensor:
    r"""Computes the log of the softmax denominator, :math:`\log n_i - s_i`, (M, H). Each query's
    row is 0 in all ``sums`` but one, and in that too if its graph has no keys.

    Lattices can make a small sum negative. A sum below its lower bound counts as the bound."""
    norm = sums[0].norm if len(sums) == 1 else sums[0].norm + sums[1].norm
    without_keys = norm == 0
    mass = torch.where(without_keys, 1.0, norm).clamp(min=FLOOR).log()
    for part in sums:
        if part.shift is not None:
            mass = mass - torch.where(part.norm == 0, 0.0, part.shift)
    return torch.where(without_keys, -torch.inf, mass)  # the gradient is 0 there


def op_inputs(
    positions: Tensor,
    values: Tensor,
    queries: Tensor | None,
    decay: float | Tensor,
    backend: BackendName,
) -> OpInputs:
    """Adds heads, multiplies positions by the decay, and widens half types for the backend."""
    with_heads = positions.dim() == 3 or values.dim() == 3
    heads = count_heads(positions, values)
    check_decay(decay, heads, positions.device)
    chosen = choose_backend(backend, positions.device)
    keys, targets = (
        None
        if p is None
        else _scale(add_heads(p.float() if p.dtype in HALF_TYPES else p, heads), decay)
        for p in (positions, queries)
    )
    assert keys is not None
    features = add_heads(chosen.widen(values), heads)
    return OpInputs(keys, features, targets, heads, with_heads, chosen)


def count_heads(positions: Tensor, values: Tensor) -> int:
    return max(t.size(1) if t.dim() == 3 else 1 for t in (positions, values))


def user_output(out: Tensor, dtype: torch.dtype, with_heads: bool) -> Tensor:
    """Returns rows of an op in the user's type, without heads where there were none."""
    out = out.to(dtype)
    return out if with_heads else out.squeeze(1)


def _scale(points: Tensor, decay: float | Tensor) -> Tensor:
    if isinstance(decay, Tensor):
        return points * decay.to(points.dtype).reshape(-1, 1)
    return points if decay == 1 else points * float(decay)


def add_heads(tensor: Tensor, heads: int) -> Tensor:
    """Expands a tensor to (N, heads, width)."""
    if tensor.dim() == 3:
        return tensor
    return tensor.unsqueeze(1) if heads == 1 else tensor.unsqueeze(1).expand(-1, heads, -1)
