r"""A call of global attention: its arguments, how ``"auto"`` is resolved, and the ops that it runs.

``method="auto"`` is resolved here and nowhere else (:func:`choose_method`): every op below does what its name says.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .checks import HALF_TYPES, check_choices, check_decay, check_ladder, check_points, refuse_transforms
from .exact import ops as exact
from .lattice import ops as lattice_ops  # noqa: F401, defines torch.ops.phgcn.filter
from .lattice.far import draw_near, query_balls
from .lattice.levels import FLOOR
from .lattice.scheme import MAX_DIMENSION, Scheme, encode
from .runtime.backend import choose_backend
from .runtime.graphs import ALL_PAIRS
from .runtime.points import Points, Sums

Method = Literal["auto", "exact", "lattice", "lattice-fine", "separable"] | Scheme
"""What a call runs: the name of a method, or a scheme of the lattice."""
Backend = Literal["auto", "reference", "numba", "triton"]
"""Which kernels run it; ``"auto"``: those of the device."""

EXACT_PAIRS = {"cpu": 1200**2, "cuda": 24_000**2}
"""Up to how many pairs of a graph ``"auto"`` takes the exact sum, by type of device: about there the lattice becomes faster, as
``benchmarks/crossing.py`` measures on a CPU for D = 1 to 6 and ``benchmarks/gpu.py`` on an H200 for D = 2 to 6."""


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


class OpInputs(NamedTuple):
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
    inputs = op_inputs(positions, values, queries, decay, backend)
    check_ladder(method, positions.size(-1), inputs.backend, over_ranks=False)
    points = Points(inputs.positions, inputs.values, inputs.queries, batch, query_batch)
    dim, device = positions.size(-1), positions.device.type
    at_run_time = method == "auto" and dim <= MAX_DIMENSION and _is_exporting()
    chosen = lattice if at_run_time else choose_method(method, points.pairs, dim, device, lattice)
    with refuse_transforms(*points[:3]):
        if chosen == "exact":
            sums = [exact.attend(points, normalise, inputs.backend)]
        else:
            near, shift = points, None
            if normalise and points.queries is not None:
                queries, shift = draw_near(points.queries, query_balls(points))
                near = points._replace(queries=queries)
            # With "auto", each graph of a batch by its own size, as if it were alone: either op leaves rows of 0 to the other.
            by_size = at_run_time or (method == "auto" and batch is not None)
            limit = exact_limit(dim, device) if by_size else -1
            out, norm, _ = torch.ops.phgcn.filter(*near, encode(chosen), normalise, limit, inputs.backend, points.need_gradient)
            sums = [Sums(out, norm, shift)]
            if by_size:
                sums.append(exact.attend(points, normalise, inputs.backend, at_most=limit))
    return user_sums(sums, call, inputs, with_mass)


def user_sums(sums: list[Sums], call: AttentionCall, inputs: OpInputs, with_mass: bool) -> tuple[Tensor, Tensor | None]:
    """Adds up what the ops returned; returns output and mass in the types and shapes of the user's."""
    out = sums[0].out if len(sums) == 1 else sums[0].out + sums[1].out
    mass = user_output(_log_mass(sums), call.positions.dtype, inputs.with_heads) if with_mass else None
    return user_output(out, call.values.dtype, inputs.with_heads), mass


def _is_exporting() -> bool:
    """Tells whether torch.export traces the call: the program is for graphs of any size, and must choose when it runs."""
    return hasattr(torch.compiler, "is_exporting") and torch.compiler.is_exporting()  # torch has it since 2.7


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
            mass = mass - torch.where(part.norm == 0, 0.0, part.shift)
    return torch.where(without_keys, -torch.inf, mass)  # the gradient is 0 there


def op_inputs(positions: Tensor, values: Tensor, queries: Tensor | None, decay: float | Tensor, backend: Backend) -> OpInputs:
    """Adds a dimension of heads, multiplies positions by the decay, and widens half types that a backend does not take."""
    with_heads = positions.dim() == 3 or values.dim() == 3
    heads = count_heads(positions, values)
    check_decay(decay, heads, positions.device)
    chosen = choose_backend(backend, positions.device)
    keys, targets = (None if p is None else _scale(add_heads(_widen(p), heads), decay) for p in (positions, queries))
    assert keys is not None
    features = add_heads(values if chosen == "triton" else _widen(values), heads)
    return OpInputs(keys, features, targets, heads, with_heads, chosen)


def count_heads(positions: Tensor, values: Tensor) -> int:
    """Returns the number of heads, 1 where neither has a dimension of heads."""
    return max(t.size(1) if t.dim() == 3 else 1 for t in (positions, values))


def user_output(out: Tensor, dtype: torch.dtype, with_heads: bool) -> Tensor:
    """Returns rows of an op in the type of the user's, without heads where there were none."""
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
