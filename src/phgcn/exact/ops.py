"""The custom ops of exact attention: the sum over all pairs of each graph, its gradient and second
gradient.

``phgcn::exact`` takes one graph, launches by shapes only, and can be part of a CUDA graph.
``phgcn::exact_batch`` reads the sizes of the graphs from the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from ..backends import DEVICES, find_backend
from ..kernels import EXPONENTIAL, KERNELS
from ..runtime.graphs import ALL_PAIRS, group_points
from ..runtime.points import (
    HOST_READS,
    OutputGradients,
    Points,
    Sums,
    empty_gradients,
    op_gradients,
    output_gradients,
)
from ..runtime.reference import differentiate_twice
from .call import ExactBackend, ExactCall
from .reference import sum_pairs


def attend(
    points: Points,
    normalise: bool,
    backend: str,
    at_most: int = ALL_PAIRS,
    kernel: str = EXPONENTIAL.name,
) -> Sums:
    r"""Sums :math:`k(\lVert p_i - p_j \rVert) f_j` over all keys of a query's graph. Output and
    normaliser have gradients, shifts have none. Options are the fields of :class:`ExactCall`."""
    op = torch.ops.phgcn.exact if points.batch is None else torch.ops.phgcn.exact_batch
    out, norm, shift = op(*points, normalise, at_most, kernel, backend)
    return Sums(out, norm, shift if normalise and points.shifted else None)


_INPUTS = (
    "Tensor positions, Tensor values, Tensor? queries, Tensor? batch, Tensor? query_batch, "
    "Tensor? weights, bool normalise, int at_most, str kernel, str backend"
)
_UPSTREAM = "Tensor grad, Tensor? grad_norm, Tensor out, Tensor norm, Tensor shift"


def _read(inputs: Sequence[Any]) -> tuple[ExactBackend, Points, ExactCall]:
    *tensors, normalise, at_most, kernel, backend = inputs
    loaded = cast(ExactBackend, find_backend(backend).load("exact"))
    return loaded, Points(*tensors), ExactCall(normalise, at_most, KERNELS[kernel])


def _forward(*inputs: Any) -> tuple[Tensor, ...]:
    backend, points, call = _read(inputs)
    return tuple(backend.forward(points, call))  # type: ignore[arg-type]


def _forward_fake(*inputs: Any) -> tuple[Tensor, ...]:
    points, normalise = Points(*inputs[:6]), inputs[6]
    return *points.new_output(normalise), points.new_shift(normalise)


def _gradient(*inputs: Any) -> tuple[Tensor, ...]:
    """Returns the gradients of positions, values, queries and weights, empty without weights."""
    backend, points, call = _read(inputs[5:])
    return backend.backward(OutputGradients(*inputs[:4]), inputs[4], points, call).as_outputs()


def _gradient_fake(*inputs: Any) -> tuple[Tensor, ...]:
    return empty_gradients(Points(*inputs[5:11]))


def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.options = inputs[6:]
    ctx.save_for_backward(*output, *inputs[:6])
    normalise = inputs[6]
    ctx.mark_non_differentiable(*output[2 if normalise else 1 :])
    ctx.set_materialize_grads(False)  # None, not zeros, where nothing depends on the normaliser


def _setup_second(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:2], *inputs[5:11])
    normalise, at_most, kernel, _ = inputs[11:]
    ctx.call = ExactCall(normalise, at_most, KERNELS[kernel])
    ctx.set_materialize_grads(False)


def _second_backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
    grad, grad_norm, *points = ctx.saved_tensors
    groups = group_points(Points(*points))

    def forward(
        positions: Tensor, values: Tensor, queries: Tensor | None, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        wide = Points(positions, values.to(positions.dtype), queries, points[3], points[4], weights)
        out, norm = sum_pairs(wide, groups, ctx.call)
        return out.to(values.dtype), norm

    of_upstream, (*of_points, of_weights) = differentiate_twice(
        forward, (*points[:3], points[5]), (grad, grad_norm), upstream
    )
    return *of_upstream, *(None,) * 3, *of_points, None, None, of_weights, *(None,) * 4


def _define(name: str, tags: list[torch.Tag]) -> None:
    """Registers an op with its gradient and fake kernels."""
    gradient = f"{name}_backward"
    outputs = "(Tensor, Tensor, Tensor)", "(Tensor, Tensor, Tensor, Tensor)"
    torch.library.define(name, f"({_INPUTS}) -> {outputs[0]}", tags=tags)
    torch.library.define(gradient, f"({_UPSTREAM}, {_INPUTS}) -> {outputs[1]}", tags=tags)
    torch.library.impl(name, DEVICES, _forward)
    torch.library.impl(gradient, DEVICES, _gradient)
    torch.library.register_fake(name, _forward_fake)
    torch.library.register_fake(gradient, _gradient_fake)
    call = getattr(torch.ops.phgcn, gradient.removeprefix("phgcn::"))

    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        out, norm, shift, *points = ctx.saved_tensors
        upstream = output_gradients(grads[0], grads[1], out, norm)
        return *op_gradients(points, call(*upstream, shift, *points, *ctx.options)), *(None,) * 4

    torch.library.register_autograd(name, backward, setup_context=_setup_context)
    torch.library.register_autograd(gradient, _second_backward, setup_context=_setup_second)


_define("phgcn::exact", [])
_define("phgcn::exact_batch", HOST_READS)
