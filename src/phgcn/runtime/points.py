r"""Inputs and outputs of the ops of attention over points: small named structures, the same for every backend."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

HOST_READS = [torch.Tag.cudagraph_unsafe] if hasattr(torch.Tag, "cudagraph_unsafe") else []
"""Tags of ops in which the host reads from the device: by them ``torch.compile(mode="reduce-overhead")`` leaves an op out of
its CUDA graphs.  Torch has the tag since 2.8."""


class Points(NamedTuple):
    r"""The keys that are attended to, the queries that attend, and their graphs.

    Shapes:
        - **positions:** :math:`(N, H, D)`, in units of :math:`1/\lambda`; **values:** :math:`(N, H, C)`
        - **queries:** :math:`(M, H, D)`, or :obj:`None` where the keys attend to themselves
        - **batch:** :math:`(N,)`, **query_batch:** :math:`(M,)`; :obj:`None` for one graph
    """

    positions: Tensor
    values: Tensor
    queries: Tensor | None = None
    batch: Tensor | None = None
    query_batch: Tensor | None = None

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
        tensors = (self.positions, self.values, self.queries)
        return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)

    def new_output(self, normalise: bool) -> tuple[Tensor, Tensor]:
        r"""Allocates the output, :math:`(M, H, C)`, and the normaliser, :math:`(M, H)` or empty."""
        count, heads = self.targets.size(0), self.values.size(1)
        norm = self.positions.new_empty(count if normalise else 0, heads)
        return self.values.new_empty(count, heads, self.values.size(2)), norm

    def new_shift(self, normalise: bool) -> Tensor:
        r"""Allocates the shifts of exact sums, :math:`(M, H)`, or empty where there are none; see :class:`Sums`."""
        count = self.targets.size(0) if normalise and self.queries is not None else 0
        return self.positions.new_empty(count, self.values.size(1))


class Sums(NamedTuple):
    r"""The weighted sums of all queries, as an op returns them.

    Args:
        out (torch.Tensor): The sums, divided by the normaliser if they are normalised, :math:`(M, H, C)`.
        norm (torch.Tensor): The normaliser, the sum of the weights times :math:`e^{s_i}`, :math:`(M, H)`; empty where sums are
            not normalised, 0 for queries that the op leaves out.
        shift (torch.Tensor, optional): The :math:`s_i`, :math:`(M, H)`, which keep the weights of far queries above 0; those
            of exact sums are constants to the gradient. (default: :obj:`None`, all 0)
    """

    out: Tensor
    norm: Tensor
    shift: Tensor | None = None


class OutputGradients(NamedTuple):
    r"""The gradients of what a forward pass returned, and what it returned.

    Shapes:
        - **grad:** of the output, :math:`(M, H, C)`; **grad_norm:** of the normaliser, :math:`(M, H)`, or :obj:`None` where
          nothing depends on it
        - **out:** :math:`(M, H, C)`, **norm:** :math:`(M, H)` or empty
    """

    grad: Tensor
    grad_norm: Tensor | None
    out: Tensor
    norm: Tensor


def output_gradients(grad: Tensor | None, grad_norm: Tensor | None, out: Tensor, norm: Tensor) -> OutputGradients:
    """Collects what autograd hands to a backward pass; a gradient of the output that is :obj:`None` is 0."""
    return OutputGradients(torch.zeros_like(out) if grad is None else grad, grad_norm, out, norm)


class Gradients(NamedTuple):
    """The gradients of :class:`Points`; of the queries :obj:`None` where there are none."""

    positions: Tensor
    values: Tensor
    queries: Tensor | None

    def as_outputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns them as an op must: three tensors, the last empty without queries."""
        queries = self.positions.new_empty(0) if self.queries is None else self.queries
        return self.positions, self.values, queries


def empty_gradients(points: Points) -> tuple[Tensor, Tensor, Tensor]:
    """Allocates what :meth:`Gradients.as_outputs` returns."""
    positions, values, queries = points[:3]
    like = [t.new_empty(t.shape) for t in (positions, values)]
    return like[0], like[1], positions.new_empty(0 if queries is None else queries.shape)
