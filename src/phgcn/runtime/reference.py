"""Sums of clouds one by one, derivatives of first and second order by autograd, and different
rows of a table, for the references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from .graphs import GraphGroups
from .points import Gradients, OutputGradients, Points, inverse

# keys (N, D), rows (N, C) and queries (M, D) or None, of one graph and head -> sums (M, C)
CloudSum = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def sum_clouds(
    points: Points,
    groups: GraphGroups,
    limits: tuple[int, int],
    normalise: bool,
    cloud_sum: CloudSum,
) -> tuple[Tensor, Tensor]:
    """Sums the clouds, that is graphs and heads, one by one; differentiable. Graphs with more pairs
    than ``limits[0]`` and at most ``limits[1]`` are summed, others get 0. With ``normalise``, the
    last column of the rows holds the keys' weights. Returns output (M, H, C) and normaliser, (M, H)
    or empty."""
    positions, values, queries = points[:3]
    rows = values
    if normalise:
        ones = values.new_ones(*values.shape[:2], 1)
        weights = ones if points.weights is None else points.weights.unsqueeze(-1)
        rows = torch.cat([values * weights, weights], dim=-1)
    count, heads = len(points.targets), []
    for head in range(values.size(1)):
        total = rows.new_zeros(count, rows.size(2))
        for k, q in groups.slices(*limits):
            keys = torch.as_tensor(groups.key_order[k], device=rows.device)
            targets = torch.as_tensor(groups.query_order[q], device=rows.device)
            query = None if queries is None else queries[targets, head]
            sums = cloud_sum(positions[keys, head], rows[keys, head], query)
            total = total.index_add(0, targets, sums)
        heads.append(total)
    out = torch.stack(heads, dim=1) if heads else rows.new_zeros(count, 0, rows.size(2))
    if not normalise:
        return out, out.new_zeros(0, values.size(1))
    norm = out[..., -1]
    return inverse(norm).unsqueeze(-1) * out[..., :-1], norm


def differentiate(
    forward: Callable[[Points], tuple[Tensor, Tensor]], points: Points, upstream: OutputGradients
) -> Gradients:
    """Computes the gradients of output and normaliser by autograd, on the CPU.

    Inside an op autograd is switched off for the thread, so another thread records and runs the
    graph. On a GPU this thread would wait for autograd's own, which waits for the op."""
    of_points = points.positions, points.values, points.queries, points.weights
    leaves = [None if t is None else t.detach().cpu().requires_grad_() for t in of_points]
    inputs = [t for t in leaves if t is not None]

    def run() -> tuple[Tensor | None, ...]:
        positions, values, queries, weights = leaves
        assert positions is not None and values is not None
        of_leaves = Points(positions, values, queries, points.batch, points.query_batch, weights)
        outputs = forward(of_leaves)
        if not outputs[0].requires_grad:  # no points at all
            return (None,) * len(inputs)
        used = 1 if upstream.grad_norm is None else 2
        grads = [grad.cpu() for grad in upstream[:used] if grad is not None]
        return torch.autograd.grad(outputs[:used], inputs, grads, allow_unused=True)

    with ThreadPoolExecutor(max_workers=1) as other_thread:
        grads = other_thread.submit(run).result()
    of = iter(
        torch.zeros_like(t) if g is None else g.contiguous()
        for t, g in zip(inputs, grads, strict=True)
    )
    found = [None if t is None else next(of).to(upstream.grad.device) for t in leaves]
    assert found[0] is not None and found[1] is not None
    return Gradients(found[0], found[1], found[2], found[3])


MaybeTensors = Sequence[Tensor | None]
# the inputs of an op, some :obj:`None` -> its outputs, computed in plain torch
Forward = Callable[..., MaybeTensors]


def differentiate_twice(
    forward: Forward, inputs: MaybeTensors, grads: MaybeTensors, upstream: MaybeTensors
) -> tuple[MaybeTensors, MaybeTensors]:
    r"""Computes, for :math:`\bar x = J(x)^\top \bar y` and a gradient :math:`u` of :math:`\bar x`,
    the gradients of :math:`\bar y` and of :math:`x`. Inputs keep their graph, so that the result
    can be differentiated again.

    Args:
        forward (Callable): Computes :math:`y(x)`.
        inputs: The :math:`x`.
        grads: The :math:`\bar y`, one for each output.
        upstream: The :math:`u`, one for each input.
    """
    again = torch.is_grad_enabled()  # true where the caller wants derivatives of the result
    none: list[Tensor | None] = [None] * (len(grads) + len(inputs))
    with torch.enable_grad():
        # Aliases: a tensor that is given in two places gets a gradient for each.
        aliases = [
            t if t is None or not t.requires_grad else t.view_as(t) for t in (*grads, *inputs)
        ]
        cotangents, indices = aliases[: len(grads)], aliases[len(grads) :]
        outputs, of_outputs = _pair(forward(*indices), cotangents)
        wanted, of_wanted = _pair(indices, upstream)
        if not outputs or not wanted:
            return none[: len(grads)], none[len(grads) :]
        first = torch.autograd.grad(
            outputs, wanted, of_outputs, create_graph=True, allow_unused=True
        )
        second, of_second = _pair(first, of_wanted)
        needed = [t for t in aliases if t is not None and t.requires_grad]
        if not second or not needed:
            return none[: len(grads)], none[len(grads) :]
        found = iter(
            torch.autograd.grad(second, needed, of_second, create_graph=again, allow_unused=True)
        )
    of = [next(found) if t is not None and t.requires_grad else None for t in aliases]
    return of[: len(grads)], of[len(grads) :]


def _pair(tensors: MaybeTensors, others: MaybeTensors) -> tuple[list[Tensor], list[Tensor]]:
    """Returns the tensors that have a gradient, each with its partner, where both exist."""
    pairs = [
        (t, other)
        for t, other in zip(tensors, others, strict=True)
        if t is not None and t.requires_grad and other is not None
    ]
    return [t for t, _ in pairs], [other for _, other in pairs]


def unique_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Finds the different rows of a table (R, D) in ascending order, and the index of each row
    among them, (R,).

    ``torch.unique(dim=0)`` returns the same, but compares whole rows: it is several times slower.
    """
    index = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
    for column in rows.unbind(dim=1):
        values, place = torch.unique(column, return_inverse=True)
        _, index = torch.unique(index * len(values) + place, return_inverse=True)
    found = rows.new_empty(int(index.max()) + 1 if len(rows) else 0, rows.size(1))
    found[index] = rows
    return found, index
