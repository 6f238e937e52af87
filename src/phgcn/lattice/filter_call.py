r"""What is asked of a filter, and what a backend must offer."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from ..runtime.points import Gradients, OutputGradients, Points
from .scheme import MultiScale, Scheme


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
