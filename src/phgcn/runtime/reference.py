r"""Sums clouds one by one and differentiates by autograd, for the reference backends."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from .graphs import GraphGroups
from .points import Gradients, OutputGradients, Points

CloudSum = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""Keys (N, D), rows of values (N, C) and queries (M, D) or None, of one graph and head -> sums (M, C)."""


def sum_clouds(
    points: Points, groups: GraphGroups, limits: tuple[int, int], normalise: bool, cloud_sum: CloudSum
) -> tuple[Tensor, Tensor]:
    r"""Sums the clouds, that is graphs and heads, one by one; differentiable.

    Args:
        points (Points): Keys and queries.
        groups (GraphGroups): Their graphs.
        limits (tuple): Graphs with more pairs than the first and at most the second are summed, the others' output is 0.
        normalise (bool): Whether to divide by the sum of the weights, computed as the sum of a column of ones.
        cloud_sum (Callable): Sums one cloud.

    Returns:
        The output, :math:`(M, H, C)`, and the normaliser, :math:`(M, H)` or empty.
    """
    positions, values, queries = points[:3]
    rows = torch.cat([values, values.new_ones(*values.shape[:2], 1)], dim=-1) if normalise else values
    count, heads = len(points.targets), []
    for head in range(values.size(1)):
        total = rows.new_zeros(count, rows.size(2))
        for k, q in groups.slices(*limits):
            keys, targets = (torch.as_tensor(o, device=rows.device) for o in (groups.key_order[k], groups.query_order[q]))
            query = None if queries is None else queries[targets, head]
            total = total.index_add(0, targets, cloud_sum(positions[keys, head], rows[keys, head], query))
        heads.append(total)
    out = torch.stack(heads, dim=1) if heads else rows.new_zeros(count, 0, rows.size(2))
    if not normalise:
        return out, out.new_zeros(0, values.size(1))
    norm = out[..., -1]
    return torch.where(norm != 0, 1 / torch.where(norm != 0, norm, 1.0), 0.0).unsqueeze(-1) * out[..., :-1], norm


def differentiate(forward: Callable[[Points], tuple[Tensor, Tensor]], points: Points, upstream: OutputGradients) -> Gradients:
    """Computes the gradients of output and normaliser by autograd, on the CPU.

    Inside an op autograd is switched off for the thread, so the graph is recorded and run in another thread.  On a GPU that
    thread would wait for autograd's own, in which the op runs and waits for it.
    """
    inputs = [t.detach().cpu().requires_grad_() for t in points[:3] if t is not None]
    queries = inputs[2] if points.queries is not None else None

    def run() -> tuple[Tensor | None, ...]:
        outputs = forward(Points(inputs[0], inputs[1], queries, *points[3:]))
        if not outputs[0].requires_grad:  # no points at all
            return (None,) * len(inputs)
        used = 1 if upstream.grad_norm is None else 2
        grads = [grad.cpu() for grad in upstream[:used] if grad is not None]
        return torch.autograd.grad(outputs[:used], inputs, grads, allow_unused=True)

    with ThreadPoolExecutor(max_workers=1) as other_thread:
        grads = other_thread.submit(run).result()
    of = [torch.zeros_like(t) if g is None else g.contiguous() for t, g in zip(inputs, grads, strict=True)]
    of = [g.to(upstream.grad.device) for g in of]
    return Gradients(of[0], of[1], of[2] if points.queries is not None else None)
