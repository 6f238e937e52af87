r"""The custom ops of the lattice filter: the whole filter as one op, points in, points out, with its gradient.

How many vertices a lattice has depends on the data; that number stays inside the op, so that a compiled graph never sees a
shape it cannot know.  What the forward pass finds and the backward pass needs again, where points lie and which vertices they
share, is the *plan*: a list of tensors whose shapes follow from those of the inputs (:mod:`phgcn.lattice.plan`).
"""

from __future__ import annotations

import importlib
from typing import Any, cast

import torch
from torch import Tensor

from ..exact.ops import exact_backend
from ..runtime.points import HOST_READS, OutputGradients, Points, empty_gradients, output_gradients
from .filter_call import FilterBackend, FilterCall, lone_lattices
from .lone import find_normalisers
from .nested import find_depths
from .nested_sums import Kernels, add_box_gradients, replace_boxes
from .plan import empty_plan
from .replace import add_cell_gradients, find_replaced, replace_lone, without_rows
from .scheme import MultiScale, decode

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
        kept = _replace_wrong(out, norm, points, call, backend)
        plan = [*plan, *kept] if keep_plan else plan
    return out, norm, plan


def _replace_wrong(out: Tensor, norm: Tensor, points: Points, call: FilterCall, backend: str) -> list[Tensor]:
    """Overwrites what the lattice is wrong about: the points of small cores, and lone points and queries.

    Returns:
        What the backward pass needs: depths, int8, and normalisers before those of lone points were overwritten, both (M, H);
        and, on the CPU, whether there are depths and lone points.
    """
    assert isinstance(call.scheme, MultiScale)
    given = find_normalisers(norm, points, call.scheme.lattices)
    depth = None if given is None else find_depths(given, call.scheme, backend)
    depths = torch.zeros_like(norm, dtype=torch.int8) if depth is None else depth.view_as(norm).to(torch.int8)
    if depth is not None:
        replace_boxes(out, norm, points, depths, _kernels(backend, call))
        given = find_normalisers(norm, points, call.scheme.lattices)
    before = norm.clone()
    has_lone = replace_lone(out, norm, points, given, backend)
    return [depths, before, torch.tensor([depth is not None, has_lone])]


def _filter_fake(*inputs: Any) -> tuple[Tensor, Tensor, list[Tensor]]:
    *rest, keep_plan = inputs
    points, call, backend = _parse(rest)
    out, norm = points.new_output(call.normalise)
    plan = empty_plan(backend, points, call.scheme) if keep_plan else []
    if keep_plan and lone_lattices(call) > 0:
        flags = torch.empty(2, dtype=torch.bool, device="cpu")
        plan = [*plan, torch.empty_like(norm, dtype=torch.int8), torch.empty_like(norm), flags]
    return out, norm, plan


@torch.library.impl("phgcn::filter_backward", ("cpu", "cuda"))
def _filter_backward(*inputs: Any) -> tuple[Tensor, ...]:
    """Computes the gradients of positions, values and queries (empty without queries)."""
    upstream, plan = OutputGradients(*inputs[:4]), inputs[4]
    points, call, backend = _parse(inputs[5:])
    lone, depths, lattices = None, None, lone_lattices(call)
    if lattices > 0:
        *plan, depths, norm, flags = plan or torch.ops.phgcn.filter(*inputs[5:], True)[2]
        has_depths, has_lone = flags.numpy()
        depths = depths if has_depths else None
        lone = find_replaced(norm, upstream.norm, points, lattices) if has_lone else None
    of_lattice = upstream if lone is None else without_rows(upstream, lone.lone)
    of_whole = of_lattice if depths is None else without_rows(of_lattice, depths.flatten().nonzero().squeeze(1))
    gradients = _backend(backend).backward(of_whole, plan, points, call)
    if depths is not None:
        add_box_gradients(gradients, of_lattice, points, depths, _kernels(backend, call))
    if lone is not None:
        add_cell_gradients(gradients, upstream, lone, points, backend)
    return gradients.as_outputs()


def _filter_backward_fake(*inputs: Any) -> tuple[Tensor, ...]:
    return empty_gradients(Points(*inputs[5:10]))


def _parse(inputs: Any) -> tuple[Points, FilterCall, str]:
    points, (scheme, normalise, more_than, backend) = Points(*inputs[:5]), inputs[5:]
    dim = int(points.positions.size(2))  # a compiled graph is of one dimension
    return points, FilterCall(decode(scheme, dim), normalise, more_than), backend


def _kernels(backend: str, call: FilterCall) -> Kernels:
    return Kernels(_backend(backend), exact_backend(backend), call)


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
