r"""The custom ops of exact attention: the sum over all pairs of keys and queries of each graph, with its gradient,
and the gradient of that.

There are two, with the same inputs: ``phgcn::exact`` for one graph launches what follows from shapes alone, so that it can be
part of a CUDA graph; ``phgcn::exact_batch`` must look at the sizes of the graphs.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from ..runtime.graphs import ALL_PAIRS
from ..runtime.points import HOST_READS, Gradients, OutputGradients, Points, Sums, empty_gradients, output_gradients
from ..runtime.second_order import differentiate_twice
from .reference import group_points, sum_pairs


class ExactBackend(Protocol):
    """A backend: ``phgcn.exact.<name>``."""

    def forward(self, points: Points, normalise: bool, at_most: int) -> Sums:
        """Returns output, normaliser and, where queries are normalised, shifts; 0 for graphs of more than ``at_most`` pairs."""
        ...

    def backward(self, upstream: OutputGradients, shift: Tensor, points: Points, normalise: bool, at_most: int) -> Gradients:
        """Returns the gradients; ``shift`` is what the forward pass returned, or empty."""
        ...


def attend(points: Points, normalise: bool, backend: str, at_most: int = ALL_PAIRS) -> Sums:
    r"""Sums :math:`e^{-\lVert p_i - p_j \rVert} f_j` over all keys of a query's graph.

    Args:
        points (Points): Keys, queries and their graphs.
        normalise (bool): Whether to divide by the sum of the weights.
        backend (str): ``"reference"``, ``"numba"`` or ``"triton"``.
        at_most (int, optional): Only graphs of up to so many pairs are summed; the others' output is 0. (default: all)

    Returns:
        Output and normaliser, both with a gradient, and the shifts.
    """
    op = torch.ops.phgcn.exact if points.batch is None else torch.ops.phgcn.exact_batch
    out, norm, shift = op(*points, normalise, at_most, backend)
    return Sums(out, norm, shift if normalise and points.queries is not None else None)


_INPUTS = (
    "Tensor positions, Tensor values, Tensor? queries, Tensor? batch, Tensor? query_batch, "
    "bool normalise, int at_most, str backend"
)


def _forward(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the output, (M, H, C), the normaliser and the shifts, both (M, H) or empty."""
    *rest, backend = inputs
    points, normalise, at_most = Points(*rest[:5]), *rest[5:]
    out, norm, shift = exact_backend(backend).forward(points, normalise, at_most)
    return out, norm, points.new_shift(normalise) if shift is None else shift


def _forward_fake(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    points, normalise = Points(*inputs[:5]), inputs[5]
    return *points.new_output(normalise), points.new_shift(normalise)


_UPSTREAM = "Tensor grad, Tensor? grad_norm, Tensor out, Tensor norm, Tensor shift"


def _gradient(*inputs: Any) -> tuple[Tensor, ...]:
    """Returns the gradients of positions, values and queries (empty without queries)."""
    upstream, shift, points, (normalise, at_most, backend) = _split(inputs)
    return exact_backend(backend).backward(upstream, shift, points, normalise, at_most).as_outputs()


def _gradient_fake(*inputs: Any) -> tuple[Tensor, ...]:
    return empty_gradients(_split(inputs)[2])


def _split(inputs: Any) -> tuple[OutputGradients, Tensor, Points, Any]:
    """Sorts the inputs of a gradient's op."""
    return OutputGradients(*inputs[:4]), inputs[4], Points(*inputs[5:10]), inputs[10:]


def exact_backend(name: str) -> ExactBackend:
    """Imports a backend by its name."""
    return cast(ExactBackend, importlib.import_module(f".{name}", __package__))


def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.options = inputs[5:]
    ctx.save_for_backward(*output, *inputs[:5])
    normalise = inputs[5]
    ctx.mark_non_differentiable(*output[2 if normalise else 1 :])
    ctx.set_materialize_grads(False)  # None, not zeros, where nothing depends on the normaliser


def _setup_second(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:2], *inputs[5:10])
    ctx.normalise, ctx.at_most, _ = inputs[10:]
    ctx.set_materialize_grads(False)


def _second_backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
    """Differentiates the gradient: by autograd, twice, of the reference."""
    grad, grad_norm, *points = ctx.saved_tensors
    groups = group_points(Points(*points))

    def forward(positions: Tensor, values: Tensor, queries: Tensor | None) -> tuple[Tensor, Tensor]:
        wide = Points(positions, values.to(positions.dtype), queries, *points[3:])
        out, norm = sum_pairs(wide, groups, ctx.normalise, ctx.at_most)
        return out.to(values.dtype), norm

    of_upstream, of_points = differentiate_twice(forward, points[:3], (grad, grad_norm), upstream)
    return *of_upstream, *(None,) * 3, *of_points, *(None,) * 5


def _define(name: str, tags: list[torch.Tag]) -> None:
    """Registers an op, its gradient, and their fake kernels."""
    torch.library.define(name, f"({_INPUTS}) -> (Tensor, Tensor, Tensor)", tags=tags)
    gradient = f"{name}_backward"
    torch.library.define(gradient, f"({_UPSTREAM}, {_INPUTS}) -> (Tensor, Tensor, Tensor)", tags=tags)
    torch.library.impl(name, ("cpu", "cuda"), _forward)
    torch.library.impl(gradient, ("cpu", "cuda"), _gradient)
    torch.library.register_fake(name, _forward_fake)
    torch.library.register_fake(gradient, _gradient_fake)
    call = getattr(torch.ops.phgcn, gradient.removeprefix("phgcn::"))

    def backward(ctx: Any, grad: Tensor | None, grad_norm: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
        out, norm, shift, *points = ctx.saved_tensors
        upstream = output_gradients(grad, grad_norm, out, norm)
        of_positions, of_values, of_queries = call(*upstream, shift, *points, *ctx.options)
        return of_positions, of_values, of_queries if points[2] is not None else None, *(None,) * 5

    torch.library.register_autograd(name, backward, setup_context=_setup_context)
    torch.library.register_autograd(gradient, _second_backward, setup_context=_setup_second)


_define("phgcn::exact", [])
_define("phgcn::exact_batch", HOST_READS)
