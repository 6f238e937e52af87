r"""Moves far queries nearer, along the same line.

The weights of a lattice for a query far from all keys are wrong by factors, and 0 beyond its reach.
But attention hardly changes on the way out, as the weights of all keys fall alike. So with a ball
of centre :math:`c` and radius :math:`R` around the keys, a query at distance :math:`d > R` from
:math:`c` moves to

.. math::
    q' = q - \frac{s}{d} (q - c), \qquad s = x - (1 - e^{-x}), \qquad x = d - R

less than 1 outside of the ball, where the lattice is accurate. The output at :math:`q'` is used for
:math:`q`. Only the mass needs the weights of :math:`q`, which are smaller by :math:`e^{-s}`. Centre
and radius are rounded to :data:`STEP`, so that small moves of keys keep the ball: its derivative is
0."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..backends import DEVICES
from ..runtime.points import HOST_READS, Points

STEP = 1 / 16  # grid size of centres and radii of balls, in units of 1/λ


def draw_near(queries: Tensor, balls: Tensor) -> tuple[Tensor, Tensor]:
    """Moves queries :math:`q` (M, H, D) outside of their ball (M, H, D + 1) close to it,
    differentiably. Returns the moved queries and the shifts :math:`s` (M, H). Queries inside keep
    their bits."""
    centre, radius = balls[..., :-1], balls[..., -1]
    step = queries.double() - centre
    square = step.square().sum(dim=-1)
    is_far = (square > radius.square()) & square.isfinite()
    distance = torch.where(is_far, square, 1.0).sqrt()
    beyond = torch.where(is_far, distance - radius, 0.0)
    shift = beyond + torch.expm1(-beyond)
    moved = queries.double() - (shift / distance).unsqueeze(-1) * step
    near = torch.where(is_far.unsqueeze(-1), moved.to(queries.dtype), queries)
    return near, shift.to(queries.dtype)


def query_balls(points: Points) -> Tensor:
    """Finds the ball around the keys of each query's graph and head: centres and radii, (M, H, D +
    1), float64. A graph without keys has an infinite ball."""
    assert points.queries is not None
    return torch.ops.phgcn.query_balls(  # type: ignore[no-any-return]
        points.positions.detach(), points.batch, points.query_batch, points.queries.size(0)
    )


# HOST_READS: the host waits for the number of graphs.
torch.library.define(
    "phgcn::query_balls",
    "(Tensor positions, Tensor? batch, Tensor? query_batch, SymInt count) -> Tensor",
    tags=HOST_READS,
)


@torch.library.impl("phgcn::query_balls", DEVICES)
def _query_balls(
    positions: Tensor, batch: Tensor | None, query_batch: Tensor | None, count: int
) -> Tensor:
    graphs = positions.new_zeros(1, dtype=torch.int64) if batch is None else batch.unique()
    return balls_of_queries(find_balls(positions, batch, graphs), graphs, query_batch, count)


def _query_balls_fake(
    positions: Tensor, batch: Tensor | None, query_batch: Tensor | None, count: int
) -> Tensor:
    return positions.new_empty(count, positions.size(1), positions.size(2) + 1, dtype=torch.float64)


torch.library.register_fake("phgcn::query_balls", _query_balls_fake)


def find_balls(
    positions: Tensor,
    batch: Tensor | None,
    graphs: Tensor,
    most: Callable[[Tensor], Tensor] = lambda tensor: tensor,
) -> Tensor:
    """Finds a ball around the middle of the bounding box of the keys of each graph and head.

    Args:
        positions (torch.Tensor): The keys, :math:`(N, H, D)`.
        batch (torch.Tensor): The graph of each key, :math:`(N,)`; :obj:`None` for one graph.
        graphs (torch.Tensor): The sorted graphs, :math:`(B,)`.
        most (callable, optional): Takes the maximum of a tensor over all processes. (default: of
            this one)

    Shapes:
        - **output:** :math:`(B, H, D + 1)`, float64
    """
    index = (
        positions.new_zeros(len(positions), dtype=torch.int64)
        if batch is None
        else torch.searchsorted(graphs, batch)
    )
    keys = positions.double()

    def greatest(rows: Tensor) -> Tensor:
        """Returns each graph's greatest row, (B, H, W), of rows (N, H, W)."""
        if batch is None and len(rows) > 0:  # quicker than a scatter
            return rows.amax(dim=0, keepdim=True)
        none = rows.new_full((len(graphs), *rows.shape[1:]), -torch.inf)
        return none.scatter_reduce(0, index.view(-1, 1, 1).expand_as(rows), rows, "amax")

    above, below = most(greatest(torch.cat([keys, -keys], dim=2))).chunk(2, dim=2)
    centre = torch.where(above.isfinite(), ((above - below) / 2 / STEP).round() * STEP, 0.0)
    farthest = most(greatest((keys - centre[index]).square().sum(dim=2, keepdim=True).sqrt()))
    radius = torch.where(above[..., :1].isfinite(), (farthest / STEP).ceil() * STEP, torch.inf)
    return torch.cat([centre, radius], dim=2)


def balls_of_queries(
    balls: Tensor, graphs: Tensor, query_batch: Tensor | None, count: int
) -> Tensor:
    """Looks up the ball of each query, (M, H, D + 1), among the graphs' balls, (B, H, D + 1)."""
    if query_batch is None:
        return balls.expand(count, -1, -1).contiguous()
    nowhere = balls.new_zeros(1, *balls.shape[1:])
    nowhere[..., -1] = torch.inf
    index = torch.searchsorted(graphs, query_batch)
    known = (index < len(graphs)) & (torch.cat([graphs, graphs.new_zeros(1)])[index] == query_batch)
    return torch.cat([balls, nowhere])[torch.where(known, index, len(graphs))]
