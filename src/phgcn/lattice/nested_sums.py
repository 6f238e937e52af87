r"""Sums over nested boxes: each pair on the levels of the smallest box that contains it; see :mod:`phgcn.lattice.nested`.

With :math:`B_k` the points of box :math:`k` and :math:`R_k = B_k \setminus B_{k+1}` its ring, a point of :math:`R_k` gets

.. math::
    n_i = \sum_{j \in B_k} w_{ij} + \sum_{l < k} \sum_{j \in R_l} w_{ij}

The first sum is a filter of box :math:`k` alone, and each of the others a filter from ring :math:`l` to box :math:`l + 1`:
these are the *parts*.  Points of ring 0 keep what the filter of the whole cloud gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..kernels.points import Gradients, OutputGradients, Points, Sums
from .filter_call import FilterBackend, FilterCall


def _same(tensor: Tensor) -> Tensor:
    return tensor


class Part(NamedTuple):
    """A filter of some points.

    Args:
        points (Points): Of one head.
        keys (torch.Tensor): The numbers of its keys among all points, (K,).
        queries (torch.Tensor): Those of its queries, which may be the keys, (Q,).
        is_taken (torch.Tensor): Which queries take its sums, (Q,).
    """

    points: Points
    keys: Tensor
    queries: Tensor
    is_taken: Tensor


def find_parts(
    points: Points, depth: Tensor, head: int, deepest: int, all_rows: Callable[[Tensor], Tensor] = _same
) -> Iterator[Part]:
    """Yields the parts of one head.

    Args:
        points (Points): All points.
        depth (torch.Tensor): The depth of each in this head, (N,).
        head (int): The head.
        deepest (int): The greatest depth.
        all_rows (callable, optional): Puts the rows of all processes one after the other. (default: of one process)
    """

    def part(keys: Tensor, queries: Tensor, is_taken: Tensor) -> Part:
        to_itself, batch = queries is keys, points.batch
        here = Points(
            points.positions[keys, head].unsqueeze(1),
            points.values[keys, head].unsqueeze(1),
            None if to_itself else points.positions[queries, head].unsqueeze(1),
            None if batch is None else batch[keys],
            None if batch is None or to_itself else batch[queries],
        )
        return Part(here, keys, queries, is_taken)

    for k in range(1, deepest + 1):
        box = (depth >= k).nonzero().squeeze(1)
        ring = (depth == k - 1).nonzero().squeeze(1)
        if points.batch is not None:  # other graphs have no such box
            ring = ring[torch.isin(points.batch[ring], all_rows(points.batch[box].unique()))]
        yield part(ring, box, torch.ones_like(box, dtype=torch.bool))
        yield part(box, box, depth[box] == k)


class Replaced(NamedTuple):
    """Sums over parts, of points of depth 1 and more, in one head.

    Args:
        numbers (torch.Tensor): The numbers of these points, (Q,).
        sums (Sums): Their outputs (Q, C) and normalisers (Q,), float64.
    """

    numbers: Tensor
    sums: Sums


def add_up(parts: Iterator[Part], depth: Tensor, channels: int, attend: Callable[[Points], Sums]) -> Replaced:
    """Adds up the normalised sums of all parts of one head; differentiable where those are.

    Args:
        parts (iterator): The parts.
        depth (torch.Tensor): The depth of all points, (N,).
        channels (int): The number of channels C.
        attend (callable): Returns the normalised sums of some points, outputs (Q, 1, C) and normalisers (Q, 1).
    """
    total = depth.new_zeros(len(depth), channels, dtype=torch.float64)
    norm = depth.new_zeros(len(depth), dtype=torch.float64)
    for part in parts:
        sums, taken = attend(part.points), part.queries[part.is_taken]
        weight = sums.norm[part.is_taken, 0].double()
        norm = norm.index_add(0, taken, weight)
        total = total.index_add(0, taken, weight.unsqueeze(1) * sums.out[part.is_taken, 0].double())
    numbers = (depth > 0).nonzero().squeeze(1)
    return Replaced(numbers, Sums(total[numbers] / norm[numbers].unsqueeze(1), norm[numbers]))


def replace_boxes(out: Tensor, norm: Tensor, points: Points, depth: Tensor, backend: FilterBackend, call: FilterCall) -> None:
    """Overwrites outputs (N, H, C) and normalisers (N, H) of the points of depth 1 and more, by depths (N, H)."""

    def attend(part: Points) -> Sums:
        return Sums(*backend.forward(part, _for_parts(call), keep_plan=False)[:2])

    for head, deepest in enumerate(depth.amax(dim=0).tolist()):
        if deepest > 0:
            parts = find_parts(points, depth[:, head], head, deepest)
            numbers, sums = add_up(parts, depth[:, head], out.size(2), attend)
            out[numbers, head], norm[numbers, head] = sums.out.to(out.dtype), sums.norm.to(norm.dtype)


def add_box_gradients(
    gradients: Gradients, upstream: OutputGradients, points: Points, depth: Tensor, backend: FilterBackend, call: FilterCall
) -> None:
    """Adds what the outputs of points of depth 1 and more give to positions and values, in place, by depths (N, H)."""
    for head, deepest in enumerate(depth.amax(dim=0).tolist()):
        for part in find_parts(points, depth[:, head], head, deepest):
            out, norm, plan = backend.forward(part.points, _for_parts(call), keep_plan=True)
            of_part = _part_upstream(upstream, part, head, Sums(out, norm))
            keys, values, queries = backend.backward(of_part, plan, part.points, _for_parts(call))
            gradients.values[part.keys, head] += values[:, 0]
            gradients.positions[part.keys, head] += keys[:, 0]
            if queries is not None:
                gradients.positions[part.queries, head] += queries[:, 0]


def _for_parts(call: FilterCall) -> FilterCall:
    """Returns the call for parts of a cloud: they are filtered even if they are small."""
    return call._replace(more_than=-1)


def _part_upstream(upstream: OutputGradients, part: Part, head: int, sums: Sums) -> OutputGradients:
    r"""Returns the gradients of a part's outputs :math:`h_p` and normalisers :math:`n_p`, with :math:`h = \sum_p n_p h_p / n`
    and :math:`n = \sum_p n_p`."""
    taken, chosen = part.queries[part.is_taken], part.is_taken
    grad, out, norm = (t[taken, head].double() for t in (upstream.grad, upstream.out, upstream.norm))
    of_out, of_norm = torch.zeros_like(sums.out), torch.zeros_like(sums.norm)
    of_out[chosen, 0] = (grad * (sums.norm[chosen] / norm.unsqueeze(1))).to(of_out.dtype)
    slope = (grad * (sums.out[chosen, 0].double() - out)).sum(dim=1) / norm
    if upstream.grad_norm is not None:
        slope = slope + upstream.grad_norm[taken, head]
    of_norm[chosen, 0] = slope.to(of_norm.dtype)
    return OutputGradients(of_out, of_norm, sums.out, sums.norm)
