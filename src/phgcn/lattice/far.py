r"""Far queries: an equal weight on all keys, for queries so far away that the lattice gives them almost nothing.

Near the end of the lattice's reach a query gets few keys, with weights that are wrong by factors, and its output jumps from one
key to another.  From far away all keys look alike.  Let a ball with centre :math:`c` and radius :math:`R` enclose the keys'
bounding box.  A query at distance :math:`d` from :math:`c` then gives every key, in addition to the lattice's weight,

.. math::
    \epsilon(d) = e^{-d} \big( e^{g} - 1 \big), \qquad g = \min(\max(d - R - b, 0), 9), \qquad b = \max(2, R)

The weight is 0 up to distance :math:`b` from the ball and soon exceeds the lattice's: the output goes smoothly to the mean of
the values.  For widely spread keys it begins beyond the lattice's reach and changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

BEGIN, MOST = 2.0, 9.0
"""Distance from the ball where the weight begins, at least, and the largest :math:`g`, in units of 1/λ."""


class FarQueries(NamedTuple):
    r"""Queries as seen from the ball around the keys.

    Shapes:
        - **step:** from the centre to each query, :math:`(M, D)`, **distance:** :math:`d`, :math:`(M,)`
        - **half:** half the bounding box, :math:`(D,)` or :math:`(M, D)`, **radius**, **begin:** :math:`R` and :math:`b`
    """

    step: Tensor
    distance: Tensor
    half: Tensor
    radius: Tensor
    begin: Tensor

    @property
    def gap(self) -> Tensor:
        return self.distance - self.radius - self.begin


def _see(queries: Tensor, low: Tensor, high: Tensor) -> FarQueries:
    low, high = low.double(), high.double()
    step, half = queries.double() - (low + high) / 2, (high - low) / 2
    radius = half.norm(dim=-1)
    return FarQueries(step, step.norm(dim=-1), half, radius, radius.clamp(min=BEGIN))


def far_weight(queries: Tensor, low: Tensor, high: Tensor) -> Tensor:
    r"""Computes the weight :math:`\epsilon` of each query on all keys; differentiable.

    Shapes:
        - **queries:** :math:`(M, D)`
        - **low, high:** lowest and highest coordinates of the keys, :math:`(D,)`, or :math:`(M, D)` for each query
        - **output:** :math:`(M,)`, float64
    """
    far = _see(queries, low, high)
    return torch.exp(-far.distance) * torch.expm1(far.gap.clamp(0, MOST))


def far_gradients(queries: Tensor, low: Tensor, high: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Computes the gradients of :func:`far_weight` by the queries and, query by query, by ``low`` and ``high``, (M, D) each.

    Inside an op autograd is switched off.  Between the begin and the end of its rise the weight is :math:`e^{-R-b} - e^{-d}`.
    """
    far = _see(queries, low, high)
    decay, rises = torch.exp(-far.distance), (far.gap > 0) & (far.gap < MOST)
    by_distance = torch.where(rises, decay, -decay * torch.expm1(far.gap.clamp(0, MOST)))
    slope = torch.where(far.radius > BEGIN, 2.0, 1.0)  # of R + b by R
    by_radius = torch.where(rises, -slope * torch.exp(-far.radius - far.begin), 0.0)
    of_queries = (grad * by_distance / far.distance.clamp_min(1e-300)).unsqueeze(-1) * far.step
    of_half = (grad * by_radius / far.radius.clamp_min(1e-300)).unsqueeze(-1) * far.half
    return of_queries, -(of_queries + of_half) / 2, (of_half - of_queries) / 2
