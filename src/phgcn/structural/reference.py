r"""The specification: attention to neighbours in plain torch, edge by edge."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor


def attention_weights(positions: Tensor, edge_index: Tensor) -> Tensor:
    r"""The softmax over the edges of each target of :math:`-\lVert p_i - p_j \rVert`.

    The derivative of a distance is 0 where two points coincide.

    Shapes:
        - **positions:** :math:`(N, H, D)`, in units of :math:`1/\lambda`; **edge_index:** :math:`(2, E)`
        - **output:** :math:`(E, H)`, in the order of ``edge_index``
    """
    source, target = edge_index.long()
    square = (positions[target] - positions[source]).square().sum(dim=-1)
    apart = square > 0
    distance = torch.where(apart, torch.where(apart, square, 1.0).sqrt(), 0.0)
    count, heads = positions.shape[:2]
    nearest = distance.new_full((count, heads), float("inf"))
    nearest = nearest.scatter_reduce(0, target.unsqueeze(1).expand(-1, heads), distance.detach(), "amin")
    weight = torch.exp(nearest[target] - distance)
    norm = weight.new_zeros(count, heads).index_add(0, target, weight)
    return weight / norm[target]


def forward(positions: Tensor, values: Tensor, edge_index: Tensor, edge_mask: Tensor | None) -> Tensor:
    r"""The sum over the edges of each target of their weights, times the mask, times the sources' values.

    Shapes:
        - **positions:** :math:`(N, H, D)`, **values:** :math:`(N, H, C)`, **edge_mask:** :math:`(E, H)`
        - **output:** :math:`(N, H, C)`
    """
    weight = attention_weights(positions, edge_index)
    if edge_mask is not None:
        weight = weight * edge_mask
    source, target = edge_index.long()
    return torch.zeros_like(values).index_add(0, target, weight.unsqueeze(-1) * values[source])


def backward(
    grad: Tensor, positions: Tensor, values: Tensor, edge_index: Tensor, edge_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The gradients of positions and values, by autograd.

    Inside an op autograd is switched off for the thread, so the graph is recorded and run in one of its own.
    """
    inputs = positions.detach().requires_grad_(), values.detach().requires_grad_()

    def differentiate() -> tuple[Tensor, ...]:
        return torch.autograd.grad(forward(*inputs, edge_index, edge_mask), inputs, grad)

    with ThreadPoolExecutor(max_workers=1) as own_thread:
        grad_positions, grad_values = own_thread.submit(differentiate).result()
    return grad_positions, grad_values
