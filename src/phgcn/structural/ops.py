r"""The custom op of attention to neighbours, with its gradient.

A backend is a module ``phgcn.structural.<name>``; it checks the values it is given, as looking at them outside of the op would
break a compiled graph.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from .graph import Attention, Graph, SortedEdges, empty_attention


class StructuralBackend(Protocol):
    """A backend: ``phgcn.structural.<name>``."""

    def forward(self, graph: Graph) -> Attention:
        """Returns the output, and what the backward pass needs."""
        ...

    def backward(self, grad: Tensor, attention: Attention, graph: Graph) -> tuple[Tensor, Tensor]:
        """Returns the gradients of positions and values."""
        ...


def attend(positions: Tensor, values: Tensor, edge_index: Tensor, edge_mask: Tensor | None, backend: str) -> Tensor:
    r"""Sums the values of each node's neighbours, weighted by a softmax of their distances.

    Args:
        positions (torch.Tensor): Positions in units of :math:`1/\lambda`.
        values (torch.Tensor): What is attended to.
        edge_index (torch.Tensor): Sources, then targets, of the edges.
        edge_mask (torch.Tensor, optional): Factors of the weights after the softmax.
        backend (str): ``"reference"``, ``"numba"`` or ``"triton"``.

    Shapes:
        - **positions:** :math:`(N, H, D)`, **values:** :math:`(N, H, C)`
        - **edge_index:** :math:`(2, E)`, **edge_mask:** :math:`(E, H)`
        - **output:** :math:`(N, H, C)`
    """
    out: Tensor = torch.ops.phgcn.structural(positions, values, edge_index, edge_mask, backend)[0]
    return out


_INPUTS = "Tensor positions, Tensor values, Tensor edge_index, Tensor? edge_mask, str backend"
_ATTENTION = "Tensor out, Tensor norm, Tensor start, Tensor source, Tensor edge"
_DEVICES = ("cpu", "cuda")
torch.library.define("phgcn::structural", f"({_INPUTS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)")
torch.library.define("phgcn::structural_backward", f"(Tensor grad, {_ATTENTION}, {_INPUTS}) -> (Tensor, Tensor)")


@torch.library.impl("phgcn::structural", _DEVICES)
def structural(*inputs: Any) -> tuple[Tensor, ...]:
    """Returns the tensors of :class:`Attention`."""
    *tensors, backend = inputs
    return _as_outputs(_backend(backend).forward(Graph(*tensors)))


def _structural_fake(*inputs: Any) -> tuple[Tensor, ...]:
    return _as_outputs(empty_attention(Graph(*inputs[:4])))


@torch.library.impl("phgcn::structural_backward", _DEVICES)
def structural_backward(grad: Tensor, out: Tensor, norm: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """Returns the gradients of positions and values."""
    attention, graph, backend = Attention(out, norm, SortedEdges(*rest[:3])), Graph(*rest[3:7]), rest[7]
    return _backend(backend).backward(grad, attention, graph)


def _structural_backward_fake(grad: Tensor, out: Tensor, norm: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    positions, values = rest[3:5]
    return positions.new_empty(positions.shape), values.new_empty(values.shape)


def _backend(name: str) -> StructuralBackend:
    return cast(StructuralBackend, importlib.import_module(f".{name}", __package__))


def _as_outputs(attention: Attention) -> tuple[Tensor, ...]:
    return attention.out, attention.norm, *attention.by_target


def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.backend = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.mark_non_differentiable(*output[1:])


def _backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    grads = torch.ops.phgcn.structural_backward(grad, *ctx.saved_tensors, ctx.backend)
    return *grads, None, None, None


def _no_second_backward(ctx: Any, *grads: Any) -> None:
    raise RuntimeError("phgcn: second derivatives of structural attention are not implemented; use create_graph=False")


torch.library.register_fake("phgcn::structural", _structural_fake)
torch.library.register_fake("phgcn::structural_backward", _structural_backward_fake)
torch.library.register_autograd("phgcn::structural", _backward, setup_context=_setup_context)
torch.library.register_autograd("phgcn::structural_backward", _no_second_backward)
