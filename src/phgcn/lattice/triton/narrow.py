r"""Narrow clouds: found by the survey, and filtered with the scheme of their width (:mod:`phgcn.lattice.narrow`).

One pass filters clouds of one scheme.  Where the schemes of clouds differ, the clouds of each step are gathered, filtered on
their own, and put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...runtime.points import Gradients, OutputGradients, Points
from ..filter_call import FilterCall
from ..narrow import narrow_scheme, narrow_step
from ..scheme import MultiScale
from .bounds import cloud_bounds
from .clouds import Clouds
from .plan import NARROW, Plan, count_grids, empty_plan

TAKEN = 2
"""Value of the flag ``NARROW`` in a plan that holds nothing but the steps of clouds, in place of their levels."""


def choose_steps(plan: Plan, clouds: Clouds, scheme: MultiScale) -> list[int]:
    """Chooses the step of each cloud, 0 where it is not narrow; reads from the device."""
    low, high = cloud_bounds(clouds)
    level = _of_clouds(plan.level, clouds)
    read = np.array(torch.cat([level.double().unsqueeze(1), low, high], dim=1).tolist())
    dim = low.size(1)
    return [narrow_step(scheme, row[1 : 1 + dim], row[1 + dim :]) if row[0] == 0 else 0 for row in read]


def planned_steps(plan: list[Tensor], clouds: Clouds, scheme: MultiScale) -> list[int]:
    """Reads the step of each cloud from a plan; all 0 where it is not of narrow clouds."""
    host_facts = plan[0].numpy()  # on the CPU: no read of the device
    if host_facts[count_grids(len(scheme.hops)) + NARROW] != TAKEN:
        return [0] * clouds.count
    return [max(0, int(step)) for step in _of_clouds(plan[4], clouds).tolist()]


def _plan_of_steps(points: Points, clouds: Clouds, scheme: MultiScale, steps: list[int]) -> list[Tensor]:
    """Makes a plan that holds the step of each point; the backward pass makes all else again."""
    plan = [t.zero_() for t in empty_plan(points, scheme)]
    plan[0][count_grids(len(scheme.hops)) + NARROW] = TAKEN
    plan[3].copy_(clouds.cloud)
    step = torch.tensor(steps, dtype=torch.int32, device=clouds.cloud.device)
    plan[4].copy_(torch.where(clouds.cloud >= 0, step[clouds.cloud.clamp(min=0).to(torch.int64)], -2))
    return plan


def _of_clouds(numbers: Tensor, clouds: Clouds) -> Tensor:
    """Returns one number per cloud from numbers that all points of a cloud share; -2 for a cloud without points."""
    cloud = torch.where(clouds.cloud >= 0, clouds.cloud, clouds.count).to(torch.int64)
    return numbers.new_full((clouds.count + 1,), -2).scatter_(0, cloud, numbers)[:-1]


Forward = Callable[[Points, FilterCall, bool], tuple[Tensor, Tensor, list[Tensor]]]
Backward = Callable[[OutputGradients, list[Tensor], Points, FilterCall], Gradients]


def forward_parts(
    forward: Forward, points: Points, clouds: Clouds, call: FilterCall, steps: list[int], keep_plan: bool
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Filters the clouds of each step with a scheme of their own."""
    assert isinstance(call.scheme, MultiScale)
    out, norm = (t.zero_() for t in points.new_output(call.normalise))
    for part in _parts(points, clouds, call, steps):
        some, some_norm, _ = forward(part.points, part.call, False)
        out.view(-1, 1, out.size(2))[part.queries] = some
        if call.normalise:
            norm.view(-1, 1)[part.queries] = some_norm
    return out, norm, _plan_of_steps(points, clouds, call.scheme, steps) if keep_plan else []


def backward_parts(
    backward: Backward, upstream: OutputGradients, points: Points, clouds: Clouds, call: FilterCall, steps: list[int]
) -> Gradients:
    """Returns the gradients of :func:`forward_parts`."""
    made = [None if t is None else torch.zeros_like(t, memory_format=torch.contiguous_format) for t in points[:3]]
    for part in _parts(points, clouds, call, steps):
        grads = backward(part.upstream(upstream, call.normalise), [], part.points, part.call)
        for into, rows, of in zip(made, (part.keys, part.keys, part.queries), grads, strict=True):
            if into is not None and of is not None:
                into.view(-1, 1, into.size(2))[rows] = of
    of_positions, of_values, of_queries = made
    assert of_positions is not None and of_values is not None
    return Gradients(of_positions, of_values, of_queries)


class Part(NamedTuple):
    """Clouds of one step.

    Args:
        call (FilterCall): With their scheme.
        keys, queries (torch.Tensor): Their rows of point and head, int64.
        points (Points): The same, each cloud a graph of one head.
    """

    call: FilterCall
    keys: Tensor
    queries: Tensor
    points: Points

    def upstream(self, given: OutputGradients, normalise: bool) -> OutputGradients:
        """Gathers the gradients of the output."""
        grad, out = (t.reshape(-1, 1, t.size(2))[self.queries] for t in (given.grad, given.out))
        of_norm = None if given.grad_norm is None else given.grad_norm.reshape(-1, 1)[self.queries]
        return OutputGradients(grad, of_norm, out, given.norm.reshape(-1, 1)[self.queries] if normalise else given.norm[:, :1])


def _parts(points: Points, clouds: Clouds, call: FilterCall, steps: list[int]) -> Iterator[Part]:
    """Yields the clouds of each step."""
    assert isinstance(call.scheme, MultiScale)
    device, dim = clouds.cloud.device, clouds.position.size(1)
    cloud = clouds.cloud.to(torch.int64)
    step_of_row = torch.where(cloud >= 0, torch.tensor(steps, device=device)[cloud.clamp(min=0)], -1)
    for step in sorted(set(steps)):
        scheme = call.scheme if step == 0 else narrow_scheme(call.scheme, dim, step)
        rows = (step_of_row == step).nonzero().squeeze(1)
        keys = rows[rows < clouds.sources]
        queries = keys if clouds.to_itself else rows[rows >= clouds.sources] - clouds.sources
        positions, values = (t.reshape(-1, 1, t.size(2))[keys] for t in (points.positions, points.values))
        some = Points(positions, values, None, cloud[keys], None)
        if points.queries is not None:
            asked = points.queries.reshape(-1, 1, points.queries.size(2))[queries]
            some = Points(positions, values, asked, cloud[keys], cloud[clouds.sources + queries])
        yield Part(call._replace(scheme=scheme), keys, queries, some)
