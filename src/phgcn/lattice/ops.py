r"""The custom ops of the lattice filter: the whole filter as one op, points in, points out, with its gradient.

How many vertices a lattice has depends on the data; that number stays inside the op, so that a compiled graph never sees a
shape it cannot know.  What the forward pass finds and the backward pass needs again, where points lie and which vertices they
share, is the *plan*: a list of tensors whose shapes follow from those of the inputs (:mod:`phgcn.lattice.plan`).
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from ..kernels.points import HOST_READS, Gradients, OutputGradients, Points, empty_gradients, output_gradients
from .plan import empty_plan
from .replace import add_cell_gradients, find_replaced, replace_lone, without_lone
from .scheme import MultiScale, Scheme, decode


class FilterCall(NamedTuple):
    """What is asked of a filter.

    Args:
        scheme (Scheme): The lattices and their weights.
        normalise (bool): Whether to divide by the sum of the weights.
        more_than (int): Only graphs with more pairs than this are filtered; the others' output is 0.
    """

    scheme: Scheme
    normalise: bool
    more_than: int = -1


class FilterBackend(Protocol):
    """A backend: ``phgcn.lattice.<name>.filter``."""

    def forward(self, points: Points, call: FilterCall, keep_plan: bool) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Returns output, normaliser and, if ``keep_plan``, the plan, else an empty list."""
        ...

    def backward(self, upstream: OutputGradients, plan: list[Tensor], points: Points, call: FilterCall) -> Gradients:
        """Returns the gradients; makes the plan again where it is empty."""
        ...


def lone_lattices(call: FilterCall) -> int:
    """Returns how many lattices are averaged where lone points are treated apart, else 0.  The paper's filter stays as it is in
    the paper."""
    return call.scheme.lattices if call.normalise and isinstance(call.scheme, MultiScale) else 0


# The ops are defined by their schemas: the decorator torch.library.custom_op would import the whole compiler at the first
# call, which takes longer than any call should.
_INPUTS = (
    "Tensor positions, Tensor values, Tensor? queries, Tensor? batch, Tensor? query_batch, "
    "str scheme, bool normalise, int more_than, str backend"
)
# HOST_READS: the host waits for the number of vertices.
torch.library.define("phgcn::filter", f"({_INPUTS}, bool keep_plan) -> (Tensor, Tensor, Tensor[])", tags=HOST_READS)
torch.library.define(
    "phgcn::filter_backward",
    f"(Tensor grad, Tensor? grad_norm, Tensor out, Tensor norm, Tensor[] plan, {_INPUTS}) -> (Tensor, Tensor, Tensor)",
    tags=HOST_READS,
)


@torch.library.impl("phgcn::filter", ("cpu", "cuda"))
def _filter(*inputs: Any) -> tuple[Tensor, Tensor, list[Tensor]]:
    r"""Computes :math:`\sum_j w_{ij} f_j`, divided by :math:`\sum_j w_{ij}` if ``normalise``.

    Returns:
        The output, :math:`(M, H, C)`, the normaliser, :math:`(M, H)` or empty, and the plan.
    """
    *rest, keep_plan = inputs
    points, call, backend = _parse(rest)
    out, norm, plan = _backend(backend).forward(points, call, keep_plan)
    lattices = lone_lattices(call)
    if lattices > 0:
        kept = replace_lone(out, norm, points, lattices, backend)
        plan = [*plan, *kept] if keep_plan else plan
    return out, norm, plan


def _filter_fake(*inputs: Any) -> tuple[Tensor, Tensor, list[Tensor]]:
    *rest, keep_plan = inputs
    points, call, backend = _parse(rest)
    out, norm = points.new_output(call.normalise)
    plan = empty_plan(backend, points, call.scheme) if keep_plan else []
    if keep_plan and lone_lattices(call) > 0:
        plan = [*plan, torch.empty_like(norm), torch.empty(1, dtype=torch.bool, device="cpu")]
    return out, norm, plan


@torch.library.impl("phgcn::filter_backward", ("cpu", "cuda"))
def _filter_backward(*inputs: Any) -> tuple[Tensor, ...]:
    """Computes the gradients of positions, values and queries (empty without queries)."""
    upstream, plan = OutputGradients(*inputs[:4]), inputs[4]
    points, call, backend = _parse(inputs[5:])
    lone, lattices = None, lone_lattices(call)
    if lattices > 0:
        *plan, norm, is_replaced = plan or torch.ops.phgcn.filter(*inputs[5:], True)[2]
        lone = find_replaced(norm, upstream.norm, points, lattices) if is_replaced.numpy() else None
    rest = upstream if lone is None else without_lone(upstream, lone)
    gradients = _backend(backend).backward(rest, plan, points, call)
    if lone is not None:
        add_cell_gradients(gradients, upstream, lone, points, backend)
    return gradients.as_outputs()


def _filter_backward_fake(*inputs: Any) -> tuple[Tensor, ...]:
    return empty_gradients(Points(*inputs[5:10]))


def _parse(inputs: Any) -> tuple[Points, FilterCall, str]:
    points, (scheme, normalise, more_than, backend) = Points(*inputs[:5]), inputs[5:]
    dim = int(points.positions.size(2))  # a compiled graph is of one dimension
    return points, FilterCall(decode(scheme, dim), normalise, more_than), backend


def _backend(name: str) -> FilterBackend:
    return cast(FilterBackend, importlib.import_module(f".{name}.filter", __package__))


def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.options = inputs[5:9]
    out, norm, plan = output
    ctx.save_for_backward(out, norm, *inputs[:5], *plan)
    normalise = inputs[6]
    ctx.mark_non_differentiable(*plan, *(() if normalise else (norm,)))
    ctx.set_materialize_grads(False)  # None, not zeros, where nothing depends on the normaliser


def _backward(ctx: Any, grad: Tensor | None, grad_norm: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    out, norm, *inputs = ctx.saved_tensors
    points, plan = inputs[:5], inputs[5:]
    upstream = output_gradients(grad, grad_norm, out, norm)
    of_positions, of_values, of_queries = torch.ops.phgcn.filter_backward(*upstream, plan, *points, *ctx.options)
    return of_positions, of_values, of_queries if points[2] is not None else None, *(None,) * 7


def _no_second_backward(ctx: Any, *grads: Any) -> None:
    raise RuntimeError('phgcn: a lattice has no second derivatives; use method="exact", or create_graph=False')


def _filter_vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
    """Filters the clouds of a vmapped dimension one after the other; torch has no fallback for ops that return lists."""
    outputs = []
    for i in range(info.batch_size):
        one = [x if dim is None else x.select(dim, i) for x, dim in zip(inputs, in_dims, strict=True)]
        outputs.append(torch.ops.phgcn.filter(*one)[:2])
    out, norm = (torch.stack(parts) for parts in zip(*outputs, strict=True))
    return (out, norm, []), (0, 0, [])


torch.library.register_fake("phgcn::filter", _filter_fake)
torch.library.register_fake("phgcn::filter_backward", _filter_backward_fake)
torch.library.register_autograd("phgcn::filter", _backward, setup_context=_setup_context)
torch.library.register_autograd("phgcn::filter_backward", _no_second_backward)
torch.library.register_vmap("phgcn::filter", _filter_vmap)
