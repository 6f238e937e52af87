r"""The settings of a filter call, and the protocol of a backend."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..kernels import EXPONENTIAL, Kernel
from ..runtime.points import Gradients, OutputGradients, Points
from .scheme import Scheme

# lower bound of the softmax denominator in cross-attention, times the mean of all values in the
# numerator: a query far from all keys gets their mean instead of 0 / 0
FLOOR = 1e-8


class FilterCall(NamedTuple):
    """The settings of a filter call. Graphs of up to ``more_than`` pairs get an output of 0. Only a
    ladder reads the kernel."""

    scheme: Scheme
    normalise: bool
    more_than: int = -1
    kernel: Kernel = EXPONENTIAL


def no_ticket() -> Tensor:
    """Returns the empty ticket of a forward pass that keeps nothing."""
    return torch.empty(0, dtype=torch.int64)


class FilterBackend(Protocol):
    """A backend: ``phgcn.lattice.<name>.filter``."""

    def forward(
        self, points: Points, call: FilterCall, keep: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns output (M, H, C), normaliser (M, H) and a ticket. With ``keep``, the ticket finds
        the lattices again, else it is empty."""
        ...

    def backward(
        self, upstream: OutputGradients, ticket: Tensor, points: Points, call: FilterCall
    ) -> Gradients:
        """Returns the gradients. Builds the lattices again if the ticket is empty."""
        ...
