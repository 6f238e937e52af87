r"""Inputs and outputs of the ops of attention over points: small named structures, the same for
every backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

HOST_READS = [torch.Tag.cudagraph_unsafe] if hasattr(torch.Tag, "cudagraph_unsafe") else []
"""Tags of ops in which the host reads from the device: by them
``torch.compile(mode="reduce-overhead")`` leaves an op out of its CUDA graphs.  Torch has the tag
since 2.8."""


class Points(NamedTuple):
    r"""The keys that are attended to, the queries that attend, and their graphs.

    Shapes:
        - **positions:** :math:`(N, H, D)`, in units of :math:`1/\lambda`; **values:** :math:`(N, H,
          C)`
        - **queries:** :math:`(M, H, D)`, or :obj:`None` where the keys attend to themselves
        - **batch:** :math:`(N,)`, **query_batch:** :math:`(M,)`; :obj:`None` for one graph
        - **weights:** of the keys, not negative, :math:`(N, H)`; :obj:`None` for all 1.  Only
          normalised sums have them.
    """

    positions: Tensor
    values: Tensor
    queries: Tensor | None = None
    batch: Tensor | None = None
    query_batch: Tensor | None = None
    weights: Tensor | None = None

    @property
    def targets(self) -> Tensor:
        """Positions of the points that attend."""
        return self.positions if self.queries is None else self.queries

    @property
    def pairs(self) -> int:
        """Number of pairs of keys and queries, as if all were of one graph."""
        return self.positions.size(0) * self.targets.size(0)

    @property
    def empty(self) -> bool:
        """Whether there are no keys or no queries."""
        return self.positions.size(0) == 0 or self.targets.size(0) == 0

    @property
    def need_gradient(self) -> bool:
        """Whether a backward pass may follow."""
        tensors = (self.positions, self.values, self.queries, self.weights)
        return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)

    @property
    def shifted(self) -> bool:
        """Whether a normalised exact sum needs shifts, as no weight of a point need be 1."""
        return self.queries is not None or self.weights is not None

    def with_queries(self) -> Points:
        """Returns points with their queries, which are the keys themselves where there are none."""
        if self.queries is not None:
            return self
        return self._replace(queries=self.positions, query_batch=self.batch)

    def new_output(self, normalise: bool) -> tuple[Tensor, Tensor]:
        r"""Allocates the output, :math:`(M, H, C)`, and the normaliser, :math:`(M, H)` or empty."""
        count, heads = self.targets.size(0), self.values.size(1)
        norm = self.positions.new_empty(count if normalise else 0, heads)
        return self.values.new_empty(count, heads, self.values.size(2)), norm

    def new_shift(self, normalise: bool) -> Tensor:
        r"""Allocates the shifts of :class:`Sums`, :math:`(M, H)`, or empty where there are none."""
        count = self.targets.size(0) if normalise and self.shifted else 0
        return self.positions.new_empty(count, self.values.size(1))


def inverse(norm: Tensor) -> Tensor:
    """Computes one over each number, 0 where that is 0; differentiable."""
    return torch.where(norm != 0, 1 / torch.where(norm != 0, norm, 1.0), 0.0)


def root(square: Tensor) -> Tensor:
    """Computes square roots, with derivative 0 at 0."""
    apart = square > 0
    return torch.where(apart, torch.where(apart, square, 1.0).sqrt(), 0.0)


class Sums(NamedTuple):
    r"""The weighted sums of all queries, as an op returns them.

    Args:
        out (torch.Tensor): The sums, divided by the normaliser if they are normalised, :math:`(M,
            H, C)`.
        norm (torch.Tensor): The normaliser, the sum of the weights times :math:`e^{s_i}`,
            :math:`(M, H)`; empty where sums are not normalised, 0 for queries that the op leaves
            out.
        shift (torch.Tensor, optional): The :math:`s_i`, :math:`(M, H)`, which keep the weights of
            far queries above 0; those of exact sums are constants to the gradient. (default:
            :obj:`None`, all 0)
    """

    out: Tensor
    norm: Tensor
    shift: Tensor | None = None


class OutputGradients(NamedTuple):
    r"""The gradients of what a forward pass returned, and what it returned.

    Shapes:
        - **grad:** of the output, :math:`(M, H, C)`; **grad_norm:** of the normaliser, :math:`(M,
          H)`, or :obj:`None` where nothing depends on it
        - **out:** :math:`(M, H, C)`, **norm:** :math:`(M, H)` or empty
    """

    grad: Tensor
    grad_norm: Tensor | None
    out: Tensor
    norm: Tensor


def output_gradients(
    grad: Tensor | None, grad_norm: Tensor | None, out: Tensor, norm: Tensor
) -> OutputGradients:
    """Collects what autograd hands to a backward pass; a gradient of the output that is :obj:`None`
    is 0.
    """
    return OutputGradients(torch.zeros_like(out) if grad is None else grad, grad_norm, out, norm)


class Gradients(NamedTuple):
    """The gradients of :class:`Points`; of queries and weights :obj:`None` where there are none."""

    positions: Tensor
    values: Tensor
    queries: Tensor | None
    weights: Tensor | None = None

    def as_outputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns them as an op must: four tensors, the last two empty without queries and weights."""
        queries, weights = (
            self.positions.new_empty(0) if t is None else t for t in (self.queries, self.weights)
        )
        return self.positions, self.values, queries, weights

    @classmethod
    def zeros(cls, points: Points) -> Gradients:
        """Returns gradients of 0."""
        of = (points.positions, points.values, points.queries, points.weights)
        return cls(*(None if t is None else torch.zeros_like(t) for t in of))  # type: ignore[arg-type]

    def without_queries(self) -> Gradients:
        """Returns the gradients of points that are keys and queries at once."""
        assert self.queries is not None
        return self._replace(positions=self.positions + self.queries, queries=None)


def empty_gradients(points: Points) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Allocates what :meth:`Gradients.as_outputs` returns."""
    of = (points.positions, points.values, points.queries, points.weights)
    new = (points.positions.new_empty(0) if t is None else t.new_empty(t.shape) for t in of)
    return tuple(new)  # type: ignore[return-value]


def op_gradients(
    points: Sequence[Tensor | None], grads: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """Returns the gradients that the gradient's op returned, one for each field of :class:`Points`."""
    of_positions, of_values, of_queries, of_weights = grads
    queries, weights = points[2], points[5]
    optional = None if queries is None else of_queries, None if weights is None else of_weights
    return of_positions, of_values, optional[0], None, None, optional[1]
