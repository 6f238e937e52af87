r"""The custom ops of exact attention: the sum over all pairs of keys and queries of each graph, with its gradient.

There are two, with the same inputs: ``phgcn::exact`` for one graph launches what follows from shapes alone, so that it can be
part of a CUDA graph; ``phgcn::exact_batch`` must look at the sizes of the graphs.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from ..kernels.graphs import ALL_PAIRS
from ..kernels.points import Gradients, Points, empty_gradients


class ExactBackend(Protocol):
    """A backend: ``phgcn.exact.<name>``."""

    def forward(self, points: Points, normalise: bool, at_most: int) -> tuple[Tensor, Tensor]:
        """Returns output and normaliser; 0 for graphs of more than ``at_most`` pairs."""
        ...

    def backward(self, grad: Tensor, out: Tensor, norm: Tensor, points: Points, normalise: bool, at_most: int) -> Gradients:
        """Returns the gradients."""
        ...


def attend(points: Points, normalise: bool, backend: str, at_most: int = ALL_PAIRS) -> Tensor:
    r"""Sums :math:`e^{-\lVert p_i - p_j \rVert} f_j` over all keys of a query's graph.

    Args:
        points (Points): Keys, queries and their graphs.
        normalise (bool): Whether to divide by the sum of the weights.
        backend (str): ``"reference"``, ``"numba"`` or ``"triton"``.
        at_most (int, optional): Only graphs of up to so many pairs are summed; the others' output is 0. (default: all)

    Shapes:
        - **output:** :math:`(M, H, C)`
    """
    op = torch.ops.phgcn.exact if points.batch is None else torch.ops.phgcn.exact_batch
    out: Tensor = op(*points, normalise, at_most, backend)[0]
    return out


_INPUTS = (
    "Tensor positions, Tensor values, Tensor? queries, Tensor? batch, Tensor? query_batch, "
    "bool normalise, int at_most, str backend"
)
_HOST_READS = [torch.Tag.cudagraph_unsafe] if hasattr(torch.Tag, "cudagraph_unsafe") else []


def _forward(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Returns the output, (M, H, C), and the normaliser, (M, H) or empty."""
    *rest, backend = inputs
    return _backend(backend).forward(Points(*rest[:5]), *rest[5:])


def _forward_fake(*inputs: Any) -> tuple[Tensor, Tensor]:
    return Points(*inputs[:5]).new_output(inputs[5])


def _gradient(grad: Tensor, out: Tensor, norm: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    """Returns the gradients of positions, values and queries (empty without queries)."""
    *rest, backend = inputs
    return _backend(backend).backward(grad, out, norm, Points(*rest[:5]), *rest[5:]).as_outputs()


def _gradient_fake(grad: Tensor, out: Tensor, norm: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    return empty_gradients(Points(*inputs[:5]))


def _backend(name: str) -> ExactBackend:
    return cast(ExactBackend, importlib.import_module(f".{name}", __package__))


def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.options = inputs[5:]
    ctx.save_for_backward(*output, *inputs[:5])
    ctx.mark_non_differentiable(output[1])


def _no_second_backward(ctx: Any, *grads: Any) -> None:
    raise RuntimeError("phgcn: second derivatives of exact attention are not implemented; use create_graph=False")


def _define(name: str, tags: list[torch.Tag]) -> None:
    """Registers an op, its gradient, and their fake kernels."""
    torch.library.define(name, f"({_INPUTS}) -> (Tensor, Tensor)", tags=tags)
    gradient = f"{name}_backward"
    torch.library.define(gradient, f"(Tensor grad, Tensor out, Tensor norm, {_INPUTS}) -> (Tensor, Tensor, Tensor)", tags=tags)
    torch.library.impl(name, ("cpu", "cuda"), _forward)
    torch.library.impl(gradient, ("cpu", "cuda"), _gradient)
    torch.library.register_fake(name, _forward_fake)
    torch.library.register_fake(gradient, _gradient_fake)
    call = getattr(torch.ops.phgcn, gradient.removeprefix("phgcn::"))

    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        out, norm, *points = ctx.saved_tensors
        of_positions, of_values, of_queries = call(grad, out, norm, *points, *ctx.options)
        return of_positions, of_values, of_queries if points[2] is not None else None, *(None,) * 5

    torch.library.register_autograd(name, backward, setup_context=_setup_context)
    torch.library.register_autograd(gradient, _no_second_backward)


_define("phgcn::exact", [])
_define("phgcn::exact_batch", _HOST_READS)
