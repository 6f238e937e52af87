r"""The custom ops: the whole filter as one op, points in, points out, with its gradient.

How many vertices a lattice has depends on the data; that number stays inside the op, so that a compiled graph never sees a
shape it cannot know.  Values are checked inside as well: looking at them outside would break a compiled graph.
"""

from __future__ import annotations

import os

import numpy as np
import torch
from torch import Tensor

from . import reference
from .checks import check_graphs, check_values
from .groups import Groups, make_groups
from .scheme import Scheme, decode


def choose_backend(backend: str, device: torch.device) -> str:
    """The backend of a call: the one asked for, or the fastest for the device."""
    if backend == "auto":
        return {"cpu": "numba", "cuda": "triton"}.get(device.type, "reference")
    if backend == "numba" and device.type != "cpu":
        raise ValueError(f'backend is "numba", but positions are on {device}; allowed: "auto", "reference"')
    if backend == "triton" and device.type != "cuda" and not _interpreted():
        raise ValueError(f'backend is "triton", but positions are on {device}; allowed: "auto", "reference"')
    return backend


def _interpreted() -> bool:
    """Whether Triton's kernels are interpreted, and take tensors on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")


# The ops are defined by their schemas: the decorator torch.library.custom_op would import the whole compiler at the first
# call, which takes longer than any call should.
_INPUTS = (
    "Tensor positions, Tensor values, Tensor? batch, Tensor? queries, Tensor? query_batch, "
    "str scheme, bool normalise, str backend"
)
# The host waits for the number of a lattice's vertices: torch.compile(mode="reduce-overhead") must leave the filter out of its
# CUDA graphs, which it knows by a tag that torch has since 2.8.
_WAITS = [torch.Tag.cudagraph_unsafe] if hasattr(torch.Tag, "cudagraph_unsafe") else []
_GRADS = "(Tensor, Tensor, Tensor)"
torch.library.define("phgcn::filter", f"({_INPUTS}) -> (Tensor, Tensor)", tags=_WAITS)
torch.library.define("phgcn::filter_backward", f"(Tensor grad, Tensor out, Tensor norm, {_INPUTS}) -> {_GRADS}", tags=_WAITS)
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
        backend (str): ``"reference"``, ``"numba"`` or ``"triton"``.

    Shapes:
        - **positions:** :math:`(N, H, D)`, **values:** :math:`(N, H, C)`, **queries:** :math:`(M, H, D)`
        - **output:** :math:`(M, H, C)` and the normaliser, :math:`(M, H)` or empty
    """
    chosen = decode(scheme, positions.size(2))
    if backend == "triton":
        from .triton import backend as gpu

        return gpu.forward(positions, values, batch, queries, query_batch, chosen, normalise)
    groups = checked(positions, values, batch, queries, query_batch, chosen)
    if backend == "reference":
        with torch.no_grad():
            out, norm = reference.forward(positions, values, queries, groups, chosen, normalise)
        return out.clone(memory_format=torch.contiguous_format), norm.clone(memory_format=torch.contiguous_format)
    from .numba import backend as cpu

    arrays = as_array(positions), as_array(values), None if queries is None else as_array(queries)
    out_array, norm_array = cpu.forward(*arrays, groups, chosen, normalise)
    return torch.from_numpy(out_array), torch.from_numpy(norm_array)


@torch.library.register_fake("phgcn::filter")
def _(positions, values, batch, queries, query_batch, scheme, normalise, backend):
    count = (positions if queries is None else queries).size(0)
    heads = values.size(1)
    return values.new_empty(count, heads, values.size(2)), positions.new_empty(count if normalise else 0, heads)


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
    if backend == "triton":
        from .triton import backend as gpu

        of_positions, of_values, of_asked = gpu.backward(
            grad, out, norm, positions, values, batch, queries, query_batch, chosen, normalise
        )
        return of_positions, of_values, positions.new_empty(0) if of_asked is None else of_asked
    groups = _groups(positions, batch, queries, query_batch)
    if backend == "reference":
        found = reference.backward(grad, positions, values, queries, groups, chosen, normalise)
        of_queries = positions.new_empty(0) if found[2] is None else found[2].contiguous()
        return found[0].contiguous(), found[1].contiguous(), of_queries
    from .numba import backend as cpu

    arrays = as_array(positions), as_array(values), None if queries is None else as_array(queries)
    given = as_array(grad), as_array(out), as_array(norm)
    grad_positions, grad_values, grad_queries = cpu.backward(*given, *arrays, groups, chosen, normalise)
    of_queries = positions.new_empty(0) if grad_queries is None else torch.from_numpy(grad_queries)
    return torch.from_numpy(grad_positions), torch.from_numpy(grad_values), of_queries


@torch.library.register_fake("phgcn::filter_backward")
def _(grad, out, norm, positions, values, batch, queries, query_batch, scheme, normalise, backend):
    like = (t.new_empty(t.shape) for t in (positions, values))
    return *like, positions.new_empty(0 if queries is None else queries.shape)


def _setup_context(ctx, inputs, output) -> None:
    positions, values, batch, queries, query_batch, ctx.scheme, ctx.normalise, ctx.backend = inputs
    ctx.save_for_backward(positions, values, batch, queries, query_batch, *output)
    ctx.mark_non_differentiable(output[1])
    # On a GPU the normaliser carries what was found, for the backward pass; what is saved is another tensor object.
    ctx.plan = output[1].__dict__.pop("plan", None)


def _backward(ctx, grad, _):
    positions, values, batch, queries, query_batch, out, norm = ctx.saved_tensors
    norm.plan, ctx.plan = ctx.plan, None  # given up with the gradient: another backward pass makes it again
    grad_positions, grad_values, grad_queries = torch.ops.phgcn.filter_backward(
        grad, out, norm, positions, values, batch, queries, query_batch, ctx.scheme, ctx.normalise, ctx.backend
    )
    return grad_positions, grad_values, None, grad_queries if queries is not None else None, None, None, None, None


def _no_second_backward(ctx, *grads):
    raise RuntimeError("phgcn: second derivatives of the filter are not implemented; use create_graph=False")


torch.library.register_autograd("phgcn::filter", _backward, setup_context=_setup_context)
torch.library.register_autograd("phgcn::filter_backward", _no_second_backward)


# One graph that is summed exactly has ops of its own on a GPU: what they launch follows from shapes alone, so that they can be
# part of a CUDA graph.
_PAIRS = "Tensor positions, Tensor values, Tensor? queries, bool normalise"
torch.library.define("phgcn::all_pairs", f"({_PAIRS}) -> (Tensor, Tensor)")
torch.library.define("phgcn::all_pairs_backward", f"(Tensor grad, Tensor out, Tensor norm, {_PAIRS}) -> {_GRADS}")


@torch.library.impl("phgcn::all_pairs", _DEVICES)
def all_pairs(positions: Tensor, values: Tensor, queries: Tensor | None, normalise: bool) -> tuple[Tensor, Tensor]:
    """The exact filter of one graph in Triton; arguments, shapes and output are those of :func:`filter_points`."""
    from ..exact.triton import attend as exact

    return exact.forward(positions, values, queries, normalise)


@torch.library.register_fake("phgcn::all_pairs")
def _(positions, values, queries, normalise):
    count, heads = (positions if queries is None else queries).size(0), values.size(1)
    return values.new_empty(count, heads, values.size(2)), positions.new_empty(count if normalise else 0, heads)


@torch.library.impl("phgcn::all_pairs_backward", _DEVICES)
def all_pairs_backward(
    grad: Tensor, out: Tensor, norm: Tensor, positions: Tensor, values: Tensor, queries: Tensor | None, normalise: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of positions, values and queries (empty without queries) of :func:`all_pairs`."""
    from ..exact.triton import attend as exact

    of_positions, of_values, of_queries = exact.backward(grad, out, norm, positions, values, queries, normalise)
    return of_positions, of_values, positions.new_empty(0) if of_queries is None else of_queries


@torch.library.register_fake("phgcn::all_pairs_backward")
def _(grad, out, norm, positions, values, queries, normalise):
    return torch.empty_like(positions), torch.empty_like(values), positions.new_empty(0 if queries is None else queries.shape)


def _setup_pairs(ctx, inputs, output) -> None:
    *tensors, ctx.normalise = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.mark_non_differentiable(output[1])


def _pairs_backward(ctx, grad, _):
    out, norm, positions, values, queries = ctx.saved_tensors
    grad_positions, grad_values, grad_queries = torch.ops.phgcn.all_pairs_backward(
        grad, out, norm, positions, values, queries, ctx.normalise
    )
    return grad_positions, grad_values, grad_queries if queries is not None else None, None


torch.library.register_autograd("phgcn::all_pairs", _pairs_backward, setup_context=_setup_pairs)
torch.library.register_autograd("phgcn::all_pairs_backward", _no_second_backward)


def as_array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy()


def _groups(positions: Tensor, batch: Tensor | None, queries: Tensor | None, query_batch: Tensor | None) -> Groups:
    batches = [None if index is None else index.cpu().numpy() for index in (batch, query_batch)]
    return make_groups(len(positions), batches[0], None if queries is None else len(queries), batches[1])


def checked(positions, values, batch, queries, query_batch, scheme: Scheme) -> Groups:
    """Checks what can only be seen by looking at the values, and groups the points by graph."""
    check_values(positions, values, queries, scheme)
    check_graphs(batch=batch, query_batch=query_batch)
    return _groups(positions, batch, queries, query_batch)
