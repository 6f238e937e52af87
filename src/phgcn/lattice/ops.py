r"""The custom ops: the whole filter as one op, points in, points out, with its gradient.

How many vertices a lattice has depends on the data; that number stays inside the op, so that a compiled graph never sees a
shape it cannot know.  Values are checked inside as well: looking at them outside would break a compiled graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from . import reference
from .coefficients import separable_weights, warn_if_high
from .groups import Groups, make_groups
from .scheme import MAX_DIMENSION, Exact, MultiScale, Scheme, Separable, decode

KEY_LIMIT = 2.0**28
"""The largest lattice coordinate: a key holds it exactly, and double precision leaves a fraction of 24 bits to it."""


def choose_backend(backend: str, device: torch.device) -> str:
    """The backend of a call: the one asked for, or the fastest for the device."""
    if backend == "auto":
        return "numba" if device.type == "cpu" else "reference"
    if backend == "numba" and device.type != "cpu":
        raise ValueError(f'backend is "numba", but positions are on {device}; allowed: "auto", "reference"')
    return backend


# The ops are defined by their schemas: the decorator torch.library.custom_op would import the whole compiler at the first
# call, which takes longer than any call should.
_INPUTS = (
    "Tensor positions, Tensor values, Tensor? batch, Tensor? queries, Tensor? query_batch, "
    "str scheme, bool normalise, str backend"
)
torch.library.define("phgcn::filter", f"({_INPUTS}) -> (Tensor, Tensor)")
torch.library.define("phgcn::filter_backward", f"(Tensor grad, Tensor out, Tensor norm, {_INPUTS}) -> (Tensor, Tensor, Tensor)")
_DEVICES = ("cpu", "cuda")


@torch.library.impl("phgcn::filter", _DEVICES)
def filter_points(
    positions: Tensor,
    values: Tensor,
    batch: Tensor | None,
    queries: Tensor | None,
    query_batch: Tensor | None,
    scheme: str,
    normalise: bool,
    backend: str,
) -> tuple[Tensor, Tensor]:
    r"""The filter of points: :math:`\sum_j w_{ij} f_j`, divided by :math:`\sum_j w_{ij}` if ``normalise``.

    Args:
        positions (torch.Tensor): Positions of the keys in units of :math:`1/\lambda`.
        values (torch.Tensor): Values of the keys.
        batch (torch.Tensor, optional): The graph of each key.
        queries (torch.Tensor, optional): Positions of the queries; without, the keys ask themselves.
        query_batch (torch.Tensor, optional): The graph of each query.
        scheme (str): The scheme, as :func:`phgcn.lattice.scheme.encode` writes it.
        normalise (bool): Whether to divide by the sum of the weights.
        backend (str): ``"reference"`` or ``"numba"``.

    Shapes:
        - **positions:** :math:`(N, H, D)`, **values:** :math:`(N, H, C)`, **queries:** :math:`(M, H, D)`
        - **output:** :math:`(M, H, C)` and the normaliser, :math:`(M, H)` or empty
    """
    chosen = decode(scheme, positions.size(2))
    groups = _checked(positions, values, batch, queries, query_batch, chosen)
    if backend == "reference":
        with torch.no_grad():
            out, norm = reference.forward(positions, values, queries, groups, chosen, normalise)
        return out.clone(memory_format=torch.contiguous_format), norm.clone(memory_format=torch.contiguous_format)
    from .cpu import backend as cpu

    arrays = _array(positions), _array(values), None if queries is None else _array(queries)
    out_array, norm_array = cpu.forward(*arrays, groups, chosen, normalise)
    return torch.from_numpy(out_array), torch.from_numpy(norm_array)


@torch.library.register_fake("phgcn::filter")
def _(positions, values, batch, queries, query_batch, scheme, normalise, backend):
    count = (positions if queries is None else queries).size(0)
    heads = values.size(1)
    return values.new_empty(count, heads, values.size(2)), values.new_empty(count if normalise else 0, heads)


@torch.library.impl("phgcn::filter_backward", _DEVICES)
def filter_points_backward(
    grad: Tensor,
    out: Tensor,
    norm: Tensor,
    positions: Tensor,
    values: Tensor,
    batch: Tensor | None,
    queries: Tensor | None,
    query_batch: Tensor | None,
    scheme: str,
    normalise: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of positions, values and queries (empty without queries) of :func:`filter_points`."""
    chosen = decode(scheme, positions.size(2))
    groups = _groups(positions, batch, queries, query_batch)
    if backend == "reference":
        found = reference.backward(grad, positions, values, queries, groups, chosen, normalise)
        of_queries = positions.new_empty(0) if found[2] is None else found[2].contiguous()
        return found[0].contiguous(), found[1].contiguous(), of_queries
    from .cpu import backend as cpu

    arrays = _array(positions), _array(values), None if queries is None else _array(queries)
    given = _array(grad), _array(out), _array(norm)
    grad_positions, grad_values, grad_queries = cpu.backward(*given, *arrays, groups, chosen, normalise)
    of_queries = positions.new_empty(0) if grad_queries is None else torch.from_numpy(grad_queries)
    return torch.from_numpy(grad_positions), torch.from_numpy(grad_values), of_queries


@torch.library.register_fake("phgcn::filter_backward")
def _(grad, out, norm, positions, values, batch, queries, query_batch, scheme, normalise, backend):
    like = (positions.new_empty(t.shape) for t in (positions, values))
    return *like, positions.new_empty(0 if queries is None else queries.shape)


def _setup_context(ctx, inputs, output) -> None:
    positions, values, batch, queries, query_batch, ctx.scheme, ctx.normalise, ctx.backend = inputs
    ctx.save_for_backward(positions, values, batch, queries, query_batch, *output)
    ctx.mark_non_differentiable(output[1])


def _backward(ctx, grad, _):
    positions, values, batch, queries, query_batch, out, norm = ctx.saved_tensors
    grad_positions, grad_values, grad_queries = torch.ops.phgcn.filter_backward(
        grad, out, norm, positions, values, batch, queries, query_batch, ctx.scheme, ctx.normalise, ctx.backend
    )
    return grad_positions, grad_values, None, grad_queries if queries is not None else None, None, None, None, None


def _no_second_backward(ctx, *grads):
    raise RuntimeError("phgcn: second derivatives of the filter are not implemented; use create_graph=False")


torch.library.register_autograd("phgcn::filter", _backward, setup_context=_setup_context)
torch.library.register_autograd("phgcn::filter_backward", _no_second_backward)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy()


def _groups(positions: Tensor, batch: Tensor | None, queries: Tensor | None, query_batch: Tensor | None) -> Groups:
    batches = [None if index is None else index.cpu().numpy() for index in (batch, query_batch)]
    return make_groups(len(positions), batches[0], None if queries is None else len(queries), batches[1])


# What is wrong with the values of an input, said at once


def _checked(positions, values, batch, queries, query_batch, scheme: Scheme) -> Groups:
    """Checks what can only be seen by looking at the values, and groups the points by graph."""
    for name, tensor in (("positions", positions), ("values", values), ("queries", queries)):
        if tensor is not None:
            _check_finite(name, tensor)
    for name, index in (("batch", batch), ("query_batch", query_batch)):
        if index is not None and index.numel() > 0 and int(index.min()) < 0:
            first = int((index < 0).nonzero()[0])
            raise ValueError(f"{name}[{first}] is {int(index[first])}; allowed: non-negative graph numbers")
    if not isinstance(scheme, Exact):
        _check_lattice(positions, queries, scheme)
    return _groups(positions, batch, queries, query_batch)


def _check_finite(name: str, tensor: Tensor) -> None:
    # A sum is finite only if all terms are, and costs one pass; overflow alone cannot fool it, only cause the full look.
    if not math.isfinite(float(tensor.sum())):
        bad = (~torch.isfinite(tensor)).nonzero()
        if len(bad) > 0:
            _refuse(name, tensor, bad[0], "finite numbers")


def _check_lattice(positions: Tensor, queries: Tensor | None, scheme: MultiScale | Separable) -> None:
    dim = positions.size(2)
    if dim > MAX_DIMENSION:
        raise ValueError(f'positions has {dim} dimensions; allowed for a lattice: up to {MAX_DIMENSION}, else method="exact"')
    warn_if_high(dim)
    spacing = separable_weights(scheme, dim)[0] if isinstance(scheme, Separable) else scheme.spacing
    # A row of the Kuhn matrix has at most the length sqrt(2): no coordinate exceeds the sum of a point's by more.
    limit = KEY_LIMIT * spacing / math.sqrt(2 * dim)
    for name, tensor in (("positions", positions), ("queries", queries)):
        if tensor is not None and tensor.numel() > 0 and max(-float(tensor.min()), float(tensor.max())) > limit:
            bad = (tensor.abs() > limit).nonzero()[0]
            _refuse(name, tensor, bad, f"at most {limit:.3g} from the origin after multiplication by decay, for a lattice key")


def _refuse(name: str, tensor: Tensor, where: Sequence[int] | Tensor, allowed: str) -> None:
    place = [int(i) for i in where]
    raise ValueError(f"{name}{place} is {float(tensor[tuple(place)])}; allowed: {allowed}")
