r"""Nested boxes over ranks: :mod:`phgcn.lattice.nested` with points on several processes.

Ranks count the points of bins together, so all find the same boxes, and filter the same parts one after the other.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..lattice.narrow import may_be_narrow
from ..lattice.nested import LEAST_POINTS, few_points, find_depths, least_normaliser
from ..lattice.nested_sums import Part, add_up, find_parts
from ..lattice.scheme import MultiScale
from ..runtime.points import Points, Sums
from .collectives import Ranks
from .exact import exact_over_ranks
from .graphs import RankGraphs, find_rank_graphs
from .lone import Extremes, find_rank_normalisers

Filter = Callable[[Points, RankGraphs, MultiScale, int, Ranks], Sums]
"""A filter over ranks, as :func:`phgcn.distributed.filter.filter_over_ranks`."""


def may_have_core(extremes: Extremes, points: Points, graphs: RankGraphs, scheme: MultiScale) -> bool:
    """Tells whether some cloud may have a core, from the greatest normalisers."""
    counts, dim = graphs.keys.sum(axis=0), points.positions.size(2)
    large = counts[counts >= LEAST_POINTS]
    if points.queries is not None or len(large) == 0 or not may_be_narrow(scheme, dim):
        return False
    return bool((extremes.greatest >= least_normaliser(dim) * int(large.min())).any())


def replace_boxes(sums: Sums, points: Points, scheme: MultiScale, ranks: Ranks, backend: str, filter_points: Filter) -> Sums:
    """Replaces the outputs and normalisers of points in the cores of clouds, differentiably.

    Args:
        sums (Sums): Of a lattice over ranks.
        points (Points): Those of this rank.
        scheme (MultiScale): The lattice.
        ranks (Ranks): The processes.
        backend (str): Whose kernels count.
        filter_points (callable): The filter over ranks.
    """
    given = find_rank_normalisers(sums, points, scheme.lattices, ranks)
    depths = None if given is None else find_depths(given, scheme, backend)
    if depths is None:
        return sums

    def attend(part: Part) -> Sums:
        numbers = torch.tensor([len(part.keys), len(part.queries)], device=part.keys.device)
        counts = [(int(keys), int(queries)) for keys, queries in ranks.gather_equal(numbers).tolist()]
        if part.is_exact:
            return exact_over_ranks(part.points, [keys for keys, _ in counts], ranks, backend)
        return filter_points(part.points, find_rank_graphs(part.points, counts, ranks), scheme, -1, ranks)

    def all_rows(rows: Tensor) -> Tensor:
        return torch.cat(ranks.gather(rows))

    heads = sums.norm.size(1)
    depth = depths.view(-1, heads)
    deepest = ranks.max(torch.cat([depth, depth.new_zeros(1, heads)]).amax(dim=0)).tolist()
    outs, norms = list(sums.out.unbind(1)), list(sums.norm.unbind(1))
    for head in range(heads):
        if deepest[head] > 0:
            parts = find_parts(points, depth[:, head], head, deepest[head], few_points(scheme), all_rows)
            numbers, (out, norm, _) = add_up(parts, depth[:, head], sums.out.size(2), attend)
            outs[head] = outs[head].index_copy(0, numbers, out.to(sums.out.dtype))
            norms[head] = norms[head].index_copy(0, numbers, norm.to(sums.norm.dtype))
    return Sums(torch.stack(outs, dim=1), torch.stack(norms, dim=1), sums.shift)
