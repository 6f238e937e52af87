"""The custom op of attention to neighbours, with its gradient and second gradient.

A backend is a module ``phgcn.structural.<name>``. It checks values inside the op, as a look from
outside would break a compiled graph."""

from __future__ import annotations

from typing import Any, Protocol, cast

import torch
from torch import Tensor

from ..backends import DEVICES, find_backend
from ..runtime.reference import differentiate_twice
from . import reference
from .graph import Attention, Gradients, Graph, SortedEdges, empty_attention, empty_gradients


class StructuralBackend(Protocol):
    """A backend: ``phgcn.structural.<name>``."""

    def forward(self, graph: Graph) -> Attention: ...

    def backward(self, grad: Tensor, attention: Attention, graph: Graph) -> Gradients: ...


def attend(graph: Graph, backend: str) -> Tensor:
    """Sums the values of each node's neighbours by a softmax of their distances, (N, H, C)."""
    out: Tensor = torch.ops.phgcn.structural(*graph, backend)[0]
    return out


_INPUTS = (
    "Tensor positions, Tensor values, Tensor edge_index, Tensor? edge_mask, Tensor? edge_bias, "
    "str backend"
)
_ATTENTION = "Tensor out, Tensor norm, Tensor start, Tensor source, Tensor edge"
torch.library.define(
    "phgcn::structural", f"({_INPUTS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
torch.library.define(
    "phgcn::structural_backward",
    f"(Tensor grad, {_ATTENTION}, {_INPUTS}) -> (Tensor, Tensor, Tensor)",
)


@torch.library.impl("phgcn::structural", DEVICES)
def structural(*inputs: Any) -> tuple[Tensor, ...]:
    *tensors, backend = inputs
    return _as_outputs(_backend(backend).forward(Graph(*tensors)))


def _structural_fake(*inputs: Any) -> tuple[Tensor, ...]:
    return _as_outputs(empty_attention(Graph(*inputs[:5])))


@torch.library.impl("phgcn::structural_backward", DEVICES)
def structural_backward(grad: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    out, norm, *edges = rest[:5]
    attention, graph = Attention(out, norm, SortedEdges(*edges)), Graph(*rest[5:10])
    return _backend(rest[10]).backward(grad, attention, graph).as_outputs()


def _structural_backward_fake(grad: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return empty_gradients(Graph(*rest[5:10])).as_outputs()


def _backend(name: str) -> StructuralBackend:
    return cast(StructuralBackend, find_backend(name).load("structural"))


def _as_outputs(attention: Attention) -> tuple[Tensor, ...]:
    return attention.out, attention.norm, *attention.by_target


def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.backend = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.mark_non_differentiable(*output[1:])


def _backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    of_positions, of_values, of_bias = torch.ops.phgcn.structural_backward(
        grad, *saved, ctx.backend
    )
    return of_positions, of_values, None, None, None if saved[9] is None else of_bias, None


def _setup_second(ctx: Any, inputs: Any, output: Any) -> None:
    grad, *rest = inputs
    ctx.save_for_backward(grad, *rest[5:10])
    ctx.set_materialize_grads(False)


def _second_backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
    grad, positions, values, edge_index, edge_mask, edge_bias = ctx.saved_tensors

    def forward(positions: Tensor, values: Tensor, edge_bias: Tensor | None) -> tuple[Tensor, ...]:
        graph = Graph(positions, values.to(positions.dtype), edge_index, edge_mask, edge_bias)
        return (reference.attend(graph)[0].to(values.dtype),)

    (of_grad,), of_inputs = differentiate_twice(
        forward, (positions, values, edge_bias), (grad,), upstream
    )
    return of_grad, *(None,) * 5, *of_inputs[:2], None, None, of_inputs[2], None


torch.library.register_fake("phgcn::structural", _structural_fake)
torch.library.register_fake("phgcn::structural_backward", _structural_backward_fake)
torch.library.register_autograd("phgcn::structural", _backward, setup_context=_setup_context)
torch.library.register_autograd(
    "phgcn::structural_backward", _second_backward, setup_context=_setup_second
)
