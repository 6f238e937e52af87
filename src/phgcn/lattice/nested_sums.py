r"""Sums over nested boxes: each pair on the levels of the smallest box that contains it; see :mod:`phgcn.lattice.nested`.

With :math:`B_k` the points of box :math:`k` and :math:`R_k = B_k \setminus B_{k+1}` its ring, a point of :math:`R_k` gets

.. math::
    n_i = \sum_{j \in B_k} w_{ij} + \sum_{l < k} \sum_{j \in R_l} w_{ij}

These sums are the *parts*.  The first is a filter of box :math:`k` alone, each of the others a filter from ring :math:`l` to
box :math:`l + 1`.  Where a ring has few points both are exact sums.  Points of depth 0 keep what the filter of all points
gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..exact.ops import ExactBackend
from ..runtime.graphs import ALL_PAIRS
from ..runtime.points import Gradients, OutputGradients, Points, Sums
from .filter_call import FilterBackend, FilterCall
from .lone import ONE_PROCESS
from .nested import few_points
from .scheme import MultiScale


class Part(NamedTuple):
    """A filter, or an exact sum, of some points.

    Args:
        points (Points): Of one head.
        keys (torch.Tensor): The numbers of its keys among all points, (K,).
        queries (torch.Tensor): Those of its queries, which may be the keys, (Q,).
        is_taken (torch.Tensor): Which queries take its sums, (Q,).
        is_exact (bool): Whether it is summed exactly.
    """

    points: Points
    keys: Tensor
    queries: Tensor
    is_taken: Tensor
    is_exact: bool


def find_parts(
    points: Points, depth: Tensor, head: int, deepest: int, few: int, all_rows: Callable[[Tensor], Tensor] = ONE_PROCESS.rows
) -> Iterator[Part]:
    """Yields the parts of one head.

    Args:
        points (Points): All points.
        depth (torch.Tensor): The depth of each in this head, (N,).
        head (int): The head.
        deepest (int): The greatest depth.
        few (int): Rings of up to so many points are summed exactly.
        all_rows (callable, optional): Puts the rows of all processes one after the other. (default: of one process)
    """
    graph = depth.new_zeros(len(depth), dtype=torch.int64) if points.batch is None else points.batch

    def split(ring: Tensor) -> Iterator[tuple[bool, Tensor]]:
        """Yields the graphs of which a ring has few points, and the others, where there are any."""
        graphs, sizes = torch.unique(all_rows(graph[ring]), return_counts=True)
        for is_exact, chosen in ((True, graphs[sizes <= few]), (False, graphs[sizes > few])):
            if len(chosen) > 0:
                yield is_exact, chosen

    def of_graphs(numbers: Tensor, chosen: Tensor) -> Tensor:
        return numbers[torch.isin(graph[numbers], chosen)]

    for k in range(1, deepest + 1):
        box, ring, outer = (some.nonzero().squeeze(1) for some in (depth >= k, depth == k, depth == k - 1))
        for is_exact, chosen in split(of_graphs(outer, all_rows(graph[box].unique()))):
            keys, queries = of_graphs(outer, chosen), of_graphs(box, chosen)
            yield _part(points, head, keys, queries, torch.ones_like(queries, dtype=torch.bool), is_exact)
        for is_exact, chosen in split(ring):
            keys = of_graphs(box, chosen)
            queries = of_graphs(ring, chosen) if is_exact else keys
            yield _part(points, head, keys, queries, depth[queries] == k, is_exact)


def _part(points: Points, head: int, keys: Tensor, queries: Tensor, is_taken: Tensor, is_exact: bool) -> Part:
    to_itself, batch = queries is keys, points.batch
    chosen = Points(
        points.positions[keys, head].unsqueeze(1),
        points.values[keys, head].unsqueeze(1),
        None if to_itself else points.positions[queries, head].unsqueeze(1),
        None if batch is None else batch[keys],
        None if batch is None or to_itself else batch[queries],
    )
    return Part(chosen, keys, queries, is_taken, is_exact)


class Replaced(NamedTuple):
    """Sums over parts, of points of depth 1 and more, in one head.

    Args:
        numbers (torch.Tensor): The numbers of these points, (Q,).
        sums (Sums): Their outputs (Q, C) and normalisers (Q,), float64.
    """

    numbers: Tensor
    sums: Sums


def add_up(parts: Iterator[Part], depth: Tensor, channels: int, attend: Callable[[Part], Sums]) -> Replaced:
    """Adds up the normalised sums of all parts of one head; differentiable where those are.

    Args:
        parts (iterator): The parts.
        depth (torch.Tensor): The depth of all points, (N,).
        channels (int): The number of channels C.
        attend (callable): Returns the normalised sums of a part, outputs (Q, 1, C), normalisers (Q, 1) and perhaps shifts.
    """
    total = depth.new_zeros(len(depth), channels, dtype=torch.float64)
    norm = depth.new_zeros(len(depth), dtype=torch.float64)
    for part in parts:
        sums, taken = attend(part), part.queries[part.is_taken]
        weight = (sums.norm.double() * _scale(sums))[part.is_taken, 0]
        norm = norm.index_add(0, taken, weight)
        total = total.index_add(0, taken, weight.unsqueeze(1) * sums.out[part.is_taken, 0].double())
    numbers = (depth > 0).nonzero().squeeze(1)
    return Replaced(numbers, Sums(total[numbers] / norm[numbers].unsqueeze(1), norm[numbers]))


def _scale(sums: Sums) -> Tensor:
    """Returns what normalisers are multiplied by to be the sums of weights: exact ones are shifted."""
    return torch.ones_like(sums.norm, dtype=torch.float64) if sums.shift is None else torch.exp(-sums.shift.double())


class Kernels(NamedTuple):
    """A backend's filter and exact sums, and what is asked of the filter."""

    filter: FilterBackend
    exact: ExactBackend
    call: FilterCall

    @property
    def few(self) -> int:
        """Up to how many points of a ring are summed exactly."""
        assert isinstance(self.call.scheme, MultiScale)
        return few_points(self.call.scheme)

    def attend(self, part: Part, keep_plan: bool = False) -> tuple[Sums, list[Tensor]]:
        """Returns the normalised sums of a part and, if ``keep_plan``, the filter's plan."""
        if part.is_exact:
            return self.exact.forward(part.points, True, ALL_PAIRS), []
        out, norm, plan = self.filter.forward(part.points, self.call._replace(more_than=-1), keep_plan)
        return Sums(out, norm), plan

    def differentiate(self, upstream: OutputGradients, sums: Sums, plan: list[Tensor], part: Part) -> Gradients:
        """Returns the gradients of a part's points, from what :meth:`attend` returned and its gradients."""
        if part.is_exact:
            assert sums.shift is not None
            return self.exact.backward(upstream, sums.shift, part.points, True, ALL_PAIRS)
        return self.filter.backward(upstream, plan, part.points, self.call._replace(more_than=-1))


def replace_boxes(out: Tensor, norm: Tensor, points: Points, depth: Tensor, kernels: Kernels) -> None:
    """Overwrites outputs (N, H, C) and normalisers (N, H) of the points of depth 1 and more, by depths (N, H)."""
    for head, deepest in enumerate(depth.amax(dim=0).tolist()):
        if deepest > 0:
            parts = find_parts(points, depth[:, head], head, deepest, kernels.few)
            numbers, sums = add_up(parts, depth[:, head], out.size(2), lambda part: kernels.attend(part)[0])
            out[numbers, head], norm[numbers, head] = sums.out.to(out.dtype), sums.norm.to(norm.dtype)


def add_box_gradients(gradients: Gradients, upstream: OutputGradients, points: Points, depth: Tensor, kernels: Kernels) -> None:
    """Adds what the outputs of points of depth 1 and more give to positions and values, in place, by depths (N, H)."""
    for head, deepest in enumerate(depth.amax(dim=0).tolist()):
        for part in find_parts(points, depth[:, head], head, deepest, kernels.few):
            sums, plan = kernels.attend(part, keep_plan=True)
            keys, values, queries = kernels.differentiate(_part_upstream(upstream, part, head, sums), sums, plan, part)
            gradients.values[part.keys, head] += values[:, 0]
            gradients.positions[part.keys, head] += keys[:, 0]
            if queries is not None:
                gradients.positions[part.queries, head] += queries[:, 0]


def _part_upstream(upstream: OutputGradients, part: Part, head: int, sums: Sums) -> OutputGradients:
    r"""Returns the gradients of a part's outputs :math:`h_p` and normalisers :math:`n_p`, with :math:`h = \sum_p n_p h_p / n`
    and :math:`n = \sum_p n_p`."""
    taken, chosen, scale = part.queries[part.is_taken], part.is_taken, _scale(sums)
    grad, out, norm = (t[taken, head].double() for t in (upstream.grad, upstream.out, upstream.norm))
    of_out, of_norm = torch.zeros_like(sums.out), torch.zeros_like(sums.norm)
    of_out[chosen, 0] = (grad * ((sums.norm * scale)[chosen] / norm.unsqueeze(1))).to(of_out.dtype)
    slope = (grad * (sums.out[chosen, 0].double() - out)).sum(dim=1) / norm
    if upstream.grad_norm is not None:
        slope = slope + upstream.grad_norm[taken, head]
    of_norm[chosen, 0] = (slope * scale[chosen, 0]).to(of_norm.dtype)
    return OutputGradients(of_out, of_norm, sums.out, sums.norm)
