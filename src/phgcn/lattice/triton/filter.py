r"""The Triton backend: the filter of all graphs and heads, and its gradient, on a GPU.

All clouds go through the same launches, whatever they are beside."""

from __future__ import annotations

from torch import Tensor

from ...runtime.points import Gradients, OutputGradients, Points
from ..filter_call import FilterCall
from ..joint import backend
from . import joint


def forward(points: Points, call: FilterCall, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Returns output, normaliser and ticket; see :class:`phgcn.lattice.filter_call.FilterBackend`."""
    return backend.forward(points, call, joint, keep)


def backward(
    upstream: OutputGradients, ticket: Tensor, points: Points, call: FilterCall
) -> Gradients:
    """Returns the gradients of positions, values and, in cross-attention, queries."""
    return backend.backward(upstream, ticket, points, call, joint)
