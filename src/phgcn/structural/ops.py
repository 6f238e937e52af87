r"""The custom op of attention to neighbours, with its gradient, and the checks of what it is given.

What can be seen from shapes and types is checked before the op; values are checked inside, as looking at them outside would
break a compiled graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..lattice.checks import check_finite
from ..lattice.ops import as_array
from . import reference

_INPUTS = "Tensor positions, Tensor values, Tensor edge_index, Tensor? edge_mask, str backend"
torch.library.define("phgcn::structural", f"({_INPUTS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)")
torch.library.define(
    "phgcn::structural_backward",
    "(Tensor grad, Tensor out, Tensor norm, Tensor start, Tensor source, Tensor edge, "
    f"{_INPUTS}) -> (Tensor, Tensor)",
)  # fmt: skip
_DEVICES = ("cpu", "cuda")

MOST_EDGES = 2**31 - 1
"""Edges are counted in 32 bits."""


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

        if len(positions) == 0 or edge_index.size(1) > MOST_EDGES:
            _check_values(positions, values, edge_index, edge_mask)
        bad, found = gpu.forward(positions, values, edge_index, edge_mask)
        if bad:
            _check_values(positions, values, edge_index, edge_mask)
        return found
    _check_values(positions, values, edge_index, edge_mask)
    if backend == "reference":
        with torch.no_grad():
            out = reference.forward(positions, values, edge_index, edge_mask)
        return out, *_extras(positions, values, edge_index, backend)
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


# What is wrong with an input, said at once


def check_edges(edge_index: Tensor, edge_mask: Tensor | None, positions: Tensor, heads: int) -> None:
    """Checks what can be seen without looking at values."""
    if not isinstance(edge_index, Tensor):
        raise ValueError(f"edge_index is a {type(edge_index).__name__}; allowed: a tensor")
    if edge_index.layout != torch.strided or edge_index.dim() != 2 or edge_index.size(0) != 2:
        shape = tuple(edge_index.shape)
        raise ValueError(f"edge_index has shape {shape}, layout {edge_index.layout}; allowed: a dense (2, E) tensor")
    if edge_index.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"edge_index is {edge_index.dtype}; allowed: int64, int32")
    if edge_mask is not None:
        if not isinstance(edge_mask, Tensor):
            raise ValueError(f"edge_mask is a {type(edge_mask).__name__}; allowed: a tensor")
        if not edge_mask.dtype.is_floating_point and edge_mask.dtype != torch.bool:
            raise ValueError(f"edge_mask is {edge_mask.dtype}; allowed: a floating type or bool")
        count = edge_index.size(1)
        if tuple(edge_mask.shape) not in ((count,), (count, heads)):
            raise ValueError(f"edge_mask has shape {tuple(edge_mask.shape)}; allowed: ({count},) or ({count}, {heads})")
    for name, tensor in (("edge_index", edge_index), ("edge_mask", edge_mask)):
        if tensor is not None and tensor.device != positions.device:
            raise ValueError(f"{name} is on {tensor.device}; allowed: {positions.device}, as positions")


def _check_values(positions: Tensor, values: Tensor, edge_index: Tensor, edge_mask: Tensor | None) -> None:
    """Checks what can only be seen by looking at the values."""
    for name, tensor in (("positions", positions), ("values", values), ("edge_mask", edge_mask)):
        if tensor is not None:
            check_finite(name, tensor)
    check_range(edge_index, len(positions))


def check_range(edge_index: Tensor, count: int) -> None:
    """Names the first column that points to no node; looks at nothing while a CUDA graph is captured, where it cannot."""
    if edge_index.is_cuda and torch.cuda.is_current_stream_capturing():
        return
    if edge_index.size(1) > MOST_EDGES:
        raise ValueError(f"edge_index has {edge_index.size(1)} columns; allowed: up to {MOST_EDGES}")
    if edge_index.numel() == 0:
        return
    least, most = torch.stack(torch.aminmax(edge_index)).tolist()
    if least >= 0 and most < count:
        return
    bad = (edge_index < 0) | (edge_index >= count)
    column = int(bad.any(dim=0).nonzero()[0])
    row = int(bad[:, column].nonzero()[0])
    allowed = f"0 to {count - 1}, as positions has {count} rows" if count > 0 else "no edges, as positions has no rows"
    raise ValueError(f"edge_index[{row}, {column}] is {int(edge_index[row, column])}; allowed: {allowed}")
