r"""Inputs and outputs of the ops of attention over points as named tuples that all backends share.

Kernels without weights sum rows :math:`(w_j f_j, w_j)` instead, divided afterwards: :math:`y_i =
z_i / n_i` with :math:`(z_i, n_i) = \sum_j k_{ij}\, (w_j f_j, w_j)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

# Tags of ops in which the host reads from the device: by them
# ``torch.compile(mode="reduce-overhead")`` leaves an op out of its CUDA graphs. Torch has the tag
# since 2.8.
HOST_READS = [torch.Tag.cudagraph_unsafe] if hasattr(torch.Tag, "cudagraph_unsafe") else []


class Points(NamedTuple):
    r"""The keys that are attended to, the queries that attend, and their graphs.

    Shapes:
        - **positions:** :math:`(N, H, D)`, in units of :math:`1/\lambda`; **values:** :math:`(N, H,
          C)`
        - **queries:** :math:`(M, H, D)`, or :obj:`None` where the keys attend to themselves
        - **batch:** :math:`(N,)`, **query_batch:** :math:`(M,)`; :obj:`None` for one graph
        - **weights:** of the keys in normalised sums, not negative, :math:`(N, H)`; :obj:`None` for
          all 1
    """

    positions: Tensor
    values: Tensor
    queries: Tensor | None = None
    batch: Tensor | None = None
    query_batch: Tensor | None = None
    weights: Tensor | None = None

    @property
    def targets(self) -> Tensor:
        return self.positions if self.queries is None else self.queries

    @property
    def pairs(self) -> int:
        """Number of pairs of keys and queries, as if all were of one graph."""
        return self.positions.size(0) * self.targets.size(0)

    @property
    def empty(self) -> bool:
        return self.positions.size(0) == 0 or self.targets.size(0) == 0

    @property
    def need_gradient(self) -> bool:
        tensors = (self.positions, self.values, self.queries, self.weights)
        return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)

    @property
    def shifted(self) -> bool:
        """Whether a normalised exact sum needs shifts, as no weight of a point need be 1."""
        return self.queries is not None or self.weights is not None

    def with_queries(self) -> Points:
        """Returns points whose queries are not :obj:`None`."""
        if self.queries is not None:
            return self
        return self._replace(queries=self.positions, query_batch=self.batch)

    def new_output(self, normalise: bool) -> tuple[Tensor, Tensor]:
        """Allocates output (M, H, C) and normaliser, (M, H) or empty."""
        count, heads = self.targets.size(0), self.values.size(1)
        norm = self.positions.new_empty(count if normalise else 0, heads)
        return self.values.new_empty(count, heads, self.values.size(2)), norm

    def new_shift(self, normalise: bool) -> Tensor:
        """Allocates the shifts of :class:`Sums`, (M, H) or empty."""
        count = self.targets.size(0) if normalise and self.shifted else 0
        return self.positions.new_empty(count, self.values.size(1))


def inverse(norm: Tensor) -> Tensor:
    """Computes one over each number, or 0; differentiable."""
    return torch.where(norm != 0, 1 / torch.where(norm != 0, norm, 1.0), 0.0)


def root(square: Tensor) -> Tensor:
    apart = square > 0
    return torch.where(apart, torch.where(apart, square, 1.0).sqrt(), 0.0)


class Sums(NamedTuple):
    """The weighted sums of all queries.

    Args:
        out (torch.Tensor): The sums, divided by the normaliser if there is one, :math:`(M, H, C)`.
        norm (torch.Tensor): The sum of the weights times :math:`e^{s_i}`, :math:`(M, H)`, 0 for
            queries that the op leaves out; empty for plain sums.
        shift (torch.Tensor, optional): The :math:`s_i`, :math:`(M, H)`, which keep the weights of
            far queries above 0. Exact sums have no gradient through them. (default: :obj:`None`,
            all 0)
    """

    out: Tensor
    norm: Tensor
    shift: Tensor | None = None


class OutputGradients(NamedTuple):
    """The gradients of a forward pass's outputs, and the outputs.

    Shapes:
        - **grad, out:** :math:`(M, H, C)`
        - **grad_norm:** :math:`(M, H)`, or :obj:`None` where nothing depends on it; **norm:**
          :math:`(M, H)` or empty
    """

    grad: Tensor
    grad_norm: Tensor | None
    out: Tensor
    norm: Tensor


def output_gradients(
    grad: Tensor | None, grad_norm: Tensor | None, out: Tensor, norm: Tensor
) -> OutputGradients:
    """Collects autograd's inputs of a backward pass. An output's gradient of :obj:`None` is 0."""
    return OutputGradients(torch.zeros_like(out) if grad is None else grad, grad_norm, out, norm)


class Gradients(NamedTuple):
    """The gradients of :class:`Points`; :obj:`None` for missing queries and weights."""

    positions: Tensor
    values: Tensor
    queries: Tensor | None
    weights: Tensor | None = None

    def as_outputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns four tensors, as an op must; the last two may be empty."""
        queries, weights = (
            self.positions.new_empty(0) if t is None else t for t in (self.queries, self.weights)
        )
        return self.positions, self.values, queries, weights

    @classmethod
    def zeros(cls, points: Points) -> Gradients:
        of = (points.positions, points.values, points.queries, points.weights)
        return cls(*(None if t is None else torch.zeros_like(t) for t in of))  # type: ignore[arg-type]

    def without_queries(self) -> Gradients:
        """Adds the queries' gradient to the positions', for points that are both."""
        assert self.queries is not None
        return self._replace(positions=self.positions + self.queries, queries=None)


def empty_gradients(points: Points) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Allocates the tensors of :meth:`Gradients.as_outputs`."""
    of = (points.positions, points.values, points.queries, points.weights)
    new = (points.positions.new_empty(0) if t is None else t.new_empty(t.shape) for t in of)
    return tuple(new)  # type: ignore[return-value]


def op_gradients(
    points: Sequence[Tensor | None], grads: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """Returns one gradient per field of :class:`Points` from the outputs of the gradient's op."""
    of_positions, of_values, of_queries, of_weights = grads
    queries, weights = points[2], points[5]
    optional = None if queries is None else of_queries, None if weights is None else of_weights
    return of_positions, of_values, optional[0], None, None, optional[1]


def weighted_rows(points: Points) -> Points:
    """Returns points with values times weights, and the weights as last channel."""
    assert points.weights is not None
    weights = points.weights.unsqueeze(-1)
    values = torch.cat([points.values.to(weights.dtype) * weights, weights], dim=2).contiguous()
    return points._replace(values=values, weights=None)


def divide_rows(sums: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Returns output (M, H, C) and normaliser (M, H) of sums of weighted rows, (M, H, C + 1)."""
    norm = sums[..., -1]
    return (sums[..., :-1] * inverse(norm).unsqueeze(-1)).to(dtype), norm.contiguous()


def row_gradients(upstream: OutputGradients) -> OutputGradients:
    """Returns the gradient of the sums of weighted rows, (M, H, C + 1)."""
    norm = upstream.norm
    grad = upstream.grad.to(norm.dtype) * inverse(norm).unsqueeze(-1)
    of_norm = -(grad * upstream.out.to(norm.dtype)).sum(dim=2, keepdim=True)
    if upstream.grad_norm is not None:
        of_norm = of_norm + upstream.grad_norm.unsqueeze(-1)
    grad = torch.cat([grad, of_norm], dim=2)
    return OutputGradients(grad, None, grad, norm.new_empty(0, norm.size(1)))


def point_gradients(grads: Gradients, points: Points) -> Gradients:
    """Returns the gradients of points from the gradients of their weighted rows."""
    assert points.weights is not None
    of_rows, values = grads.values, points.values.to(grads.values.dtype)
    of_weights = (of_rows[..., :-1] * values).sum(dim=2) + of_rows[..., -1]
    of_values = (of_rows[..., :-1] * points.weights.unsqueeze(-1)).to(points.values.dtype)
    return grads._replace(values=of_values, weights=of_weights)
