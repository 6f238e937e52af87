r"""Weights of keys for backends whose kernels know none: the sum of rows :math:`(w_j f_j, w_j)`,
divided afterwards.

.. math::
    y_i = \frac{z_i}{n_i}, \qquad (z_i, n_i) = \sum_j k_{ij}\, (w_j f_j, w_j)
"""

from __future__ import annotations

import torch
from torch import Tensor

from .points import Gradients, OutputGradients, Points, inverse


def weighted_rows(points: Points) -> Points:
    """Returns points whose values are the weights times the values, with the weights as last
    channel."""
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
