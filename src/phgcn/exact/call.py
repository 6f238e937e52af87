"""The settings of an exact sum, and the protocol of a backend."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from ..kernels import EXPONENTIAL, Kernel
from ..runtime.graphs import ALL_PAIRS
from ..runtime.points import Gradients, OutputGradients, Points, Sums


class ExactCall(NamedTuple):
    """The settings of an exact sum. Graphs of more than ``at_most`` pairs get an output of 0."""

    normalise: bool
    at_most: int = ALL_PAIRS
    kernel: Kernel = EXPONENTIAL


class ExactBackend(Protocol):
    """A backend: ``phgcn.exact.<name>``."""

    def forward(self, points: Points, call: ExactCall) -> Sums:
        """Returns output, normaliser and shifts."""
        ...

    def backward(
        self, upstream: OutputGradients, shift: Tensor, points: Points, call: ExactCall
    ) -> Gradients:
        """Returns the gradients. ``shift`` is the forward pass's."""
        ...
