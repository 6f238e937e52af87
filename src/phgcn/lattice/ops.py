"""The custom ops of the lattice filter: the whole filter as one op, with its gradient.

The number of a lattice's vertices depends on the data and stays inside the op. The backend keeps
the lattices for the backward pass under a *ticket* that the op returns
(:class:`.filter_call.Kept`).
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from ..backends import DEVICES, find_backend
from ..runtime.points import (
    HOST_READS,
    OutputGradients,
    Points,
    empty_gradients,
    op_gradients,
    output_gradients,
)
from .filter_call import FilterBackend, FilterCall
from .scheme import decode, decode_kernel

# The ops are defined by their schemas: the decorator torch.library.custom_op would import the whole
# compiler at the first call, which takes longer than any call should.
_INPUTS = (
    "Tensor positions, Tensor values, Tensor? queries, Tensor? batch, Tensor? query_batch, Tensor? "
    "weights, "
    "str scheme, bool normalise, int more_than, str backend"
)
# HOST_READS: the host waits for the number of vertices.
torch.library.define(
    "phgcn::filter", f"({_INPUTS}, bool keep) -> (Tensor, Tensor, Tensor)", tags=HOST_READS
)
torch.library.define(
    "phgcn::filter_backward",
    f"(Tensor grad, Tensor? grad_norm, Tensor out, Tensor norm, Tensor ticket, {_INPUTS}) -> "
    f"(Tensor, Tensor, Tensor, Tensor)",
    tags=HOST_READS,
)


@torch.library.impl("phgcn::filter", DEVICES)
def _filter(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    r"""Computes :math:`\sum_j w_{ij} f_j`, divided by :math:`\sum_j w_{ij}` if ``normalise``.
    Returns output (M, H, C), normaliser, (M, H) or empty, and ticket."""
    *rest, keep = inputs
    points, call, backend = _parse(rest)
    return _backend(backend).forward(points, call, keep)


def _filter_fake(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    *rest, keep = inputs
    points, call, backend = _parse(rest)
    out, norm = points.new_output(call.normalise)
    has_ticket = keep and find_backend(backend).keeps_lattice
    return out, norm, torch.empty(int(has_ticket), dtype=torch.int64, device="cpu")


@torch.library.impl("phgcn::filter_backward", DEVICES)
def _filter_backward(*inputs: Any) -> tuple[Tensor, ...]:
    """Computes the gradients of positions, values, queries and weights, empty without weights."""
    upstream, ticket = OutputGradients(*inputs[:4]), inputs[4]
    points, call, backend = _parse(inputs[5:])
    return _backend(backend).backward(upstream, ticket, points, call).as_outputs()


def _filter_backward_fake(*inputs: Any) -> tuple[Tensor, ...]:
    return empty_gradients(Points(*inputs[5:11]))


def _parse(inputs: Any) -> tuple[Points, FilterCall, str]:
    points, (scheme, normalise, more_than, backend) = Points(*inputs[:6]), inputs[6:]
    return points, FilterCall(decode(scheme), normalise, more_than, decode_kernel(scheme)), backend


def _backend(name: str) -> FilterBackend:
    return cast(FilterBackend, find_backend(name).load("lattice", "filter"))


def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.options = inputs[6:10]
    _, norm, ticket = output
    ctx.save_for_backward(*output, *inputs[:6])
    normalise = inputs[7]
    ctx.mark_non_differentiable(ticket, *(() if normalise else (norm,)))
    ctx.set_materialize_grads(False)  # None, not zeros, where nothing depends on the normaliser


def _backward(
    ctx: Any, grad: Tensor | None, grad_norm: Tensor | None, *_: Any
) -> tuple[Tensor | None, ...]:
    out, norm, ticket, *points = ctx.saved_tensors
    upstream = output_gradients(grad, grad_norm, out, norm)
    grads = torch.ops.phgcn.filter_backward(*upstream, ticket, *points, *ctx.options)
    return *op_gradients(points, grads), *(None,) * 5


def _no_second_backward(ctx: Any, *grads: Any) -> None:
    raise RuntimeError(
        'phgcn: a lattice has no second derivatives; use method="exact", or create_graph=False'
    )


def _filter_vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
    """Filters the clouds of a vmapped dimension one by one, and keeps nothing."""
    outputs = []
    for i in range(info.batch_size):
        one = [
            x if dim is None else x.select(dim, i) for x, dim in zip(inputs, in_dims, strict=True)
        ]
        outputs.append(torch.ops.phgcn.filter(*one)[:2])
    out, norm = (torch.stack(parts) for parts in zip(*outputs, strict=True))
    return (out, norm, torch.empty(0, dtype=torch.int64)), (0, 0, None)


torch.library.register_fake("phgcn::filter", _filter_fake)
torch.library.register_fake("phgcn::filter_backward", _filter_backward_fake)
torch.library.register_autograd("phgcn::filter", _backward, setup_context=_setup_context)
torch.library.register_autograd("phgcn::filter_backward", _no_second_backward)
torch.library.register_vmap("phgcn::filter", _filter_vmap)
