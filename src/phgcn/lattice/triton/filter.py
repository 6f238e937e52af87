"""The Triton backend: the filter of all graphs and heads, and its gradient, in the same
launches."""

from __future__ import annotations

from torch import Tensor

from ...runtime.points import Gradients, OutputGradients, Points
from ..filter_call import FilterCall
from ..joint import backend
from . import joint


def forward(points: Points, call: FilterCall, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    return backend.forward(points, call, joint, keep)


def backward(
    upstream: OutputGradients, ticket: Tensor, points: Points, call: FilterCall
) -> Gradients:
    return backend.backward(upstream, ticket, points, call, joint)
