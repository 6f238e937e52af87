r"""The custom op of attention to neighbours, with its gradient, and the checks of what it is given.

What can be seen from shapes and types is checked before the op; values are checked inside, as looking at them outside would
break a compiled graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import MAX_EDGES, check_edge_values
from . import reference


def attend(positions: Tensor, values: Tensor, edge_index: Tensor, edge_mask: Tensor | None, backend: str) -> Tensor:
    """Sums over the neighbours of each node; arguments and shapes are those of :func:`structural`."""
    out: Tensor = torch.ops.phgcn.structural(positions, values, edge_index, edge_mask, backend)[0]
    return out


_INPUTS = "Tensor positions, Tensor values, Tensor edge_index, Tensor? edge_mask, str backend"
torch.library.define("phgcn::structural", f"({_INPUTS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)")
torch.library.define(
    "phgcn::structural_backward",
    "(Tensor grad, Tensor out, Tensor norm, Tensor start, Tensor source, Tensor edge, "
    f"{_INPUTS}) -> (Tensor, Tensor)",
)  # fmt: skip
_DEVICES = ("cpu", "cuda")


@torch.library.impl("phgcn::structural", _DEVICES)
def structural(
    positions: Tensor, values: Tensor, edge_index: Tensor, edge_mask: Tensor | None, backend: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""Attention of each node to the sources of its edges.

    Args:
        positions (torch.Tensor): Positions in units of :math:`1/\lambda`.
        values (torch.Tensor): What is attended to.
        edge_index (torch.Tensor): Sources, then targets, of the edges.
        edge_mask (torch.Tensor, optional): Factors of the weights after the softmax.
        backend (str): ``"reference"``, ``"numba"`` or ``"triton"``.

    Shapes:
        - **positions:** :math:`(N, H, D)`, **values:** :math:`(N, H, C)`
        - **edge_index:** :math:`(2, E)`, **edge_mask:** :math:`(E, H)`
        - **output:** :math:`(N, H, C)`; then, for the gradient, the nearest source's distance and the inverse of the
          normaliser, :math:`(2, N, H)`, and the edges by target: where those of a node start, :math:`(N + 1,)`, their
          sources and their columns of ``edge_index``, :math:`(E,)`. The reference leaves all but the first empty.
    """
    if backend == "triton":
        from .triton import attend as gpu

        if len(positions) == 0 or edge_index.size(1) > MAX_EDGES:
            check_edge_values(positions, values, edge_index, edge_mask)
        bad, found = gpu.forward(positions, values, edge_index, edge_mask)
        if bad:
            check_edge_values(positions, values, edge_index, edge_mask)
        return found
    check_edge_values(positions, values, edge_index, edge_mask)
    if backend == "reference":
        with torch.no_grad():
            out = reference.forward(positions, values, edge_index, edge_mask)
        return out, *_extras(positions, values, edge_index, backend)
    from ..kernels.numba import as_array
    from .numba import attend as cpu

    mask = None if edge_mask is None else as_array(edge_mask)
    out, *kept = map(torch.from_numpy, cpu.forward(as_array(positions), as_array(values), as_array(edge_index), mask))
    return out, kept[0], kept[1], kept[2], kept[3]


@torch.library.register_fake("phgcn::structural")
def _(positions, values, edge_index, edge_mask, backend):
    return values.new_empty(values.shape), *_extras(positions, values, edge_index, backend)


def _extras(positions: Tensor, values: Tensor, edge_index: Tensor, backend: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What the forward keeps for the gradient, not filled in."""
    (count, heads, _), edges = values.shape, edge_index.size(1)
    shapes = [(2, count, heads), (count + 1,), (edges,), (edges,)] if backend != "reference" else [(0,)] * 4
    start, source, edge = (edge_index.new_empty(shape, dtype=torch.int32) for shape in shapes[1:])
    return positions.new_empty(shapes[0]), start, source, edge


@torch.library.impl("phgcn::structural_backward", _DEVICES)
def structural_backward(
    grad: Tensor,
    out: Tensor,
    norm: Tensor,
    start: Tensor,
    source: Tensor,
    edge: Tensor,
    positions: Tensor,
    values: Tensor,
    edge_index: Tensor,
    edge_mask: Tensor | None,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """The gradients of positions and values of :func:`structural`."""
    if backend == "reference":
        grad_positions, grad_values = reference.backward(grad, positions, values, edge_index, edge_mask)
        return grad_positions.contiguous(), grad_values.contiguous()
    if backend == "triton":
        from .triton import attend as gpu

        return gpu.backward(grad, (out, norm, start, source, edge), positions, values, edge_index, edge_mask)
    from ..kernels.numba import as_array
    from .numba import attend as cpu

    kept = as_array(out), as_array(norm), as_array(start), as_array(source), as_array(edge)
    mask = None if edge_mask is None else as_array(edge_mask)
    grads = cpu.backward(as_array(grad), kept, as_array(positions), as_array(values), as_array(edge_index), mask)
    return torch.from_numpy(grads[0]), torch.from_numpy(grads[1])


@torch.library.register_fake("phgcn::structural_backward")
def _(grad, out, norm, start, source, edge, positions, values, edge_index, edge_mask, backend):
    return positions.new_empty(positions.shape), values.new_empty(values.shape)


def _setup_context(ctx, inputs, output) -> None:
    *tensors, ctx.backend = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.mark_non_differentiable(*output[1:])


def _backward(ctx, grad, *_):
    grads = torch.ops.phgcn.structural_backward(grad, *ctx.saved_tensors, ctx.backend)
    return *grads, None, None, None


def _no_second_backward(ctx, *grads):
    raise RuntimeError("phgcn: second derivatives of structural attention are not implemented; use create_graph=False")


torch.library.register_autograd("phgcn::structural", _backward, setup_context=_setup_context)
torch.library.register_autograd("phgcn::structural_backward", _no_second_backward)
