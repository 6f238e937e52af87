r"""The plan of the Numba backend: where the points of every cloud lie, and which vertices of its finest level they share.

All clouds lie one after the other in tensors that would hold the most corners and vertices there can be.  What a cloud does not
need of its part is never touched, and takes no memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...kernels.points import Points
from ..scheme import MultiScale, Scheme


class CloudPlan(NamedTuple):
    r"""The part of the plan of one cloud of :math:`P` points and one of its lattices; not all rows are used.

    Shapes:
        - **sizes:** finest level, cubes :math:`Q`, corners :math:`E`, vertices :math:`V`; int64, :math:`(4,)`
        - **point**, **cube_start**, **order**, **weight:** see :class:`phgcn.lattice.numba.locate.Simplices`
        - **first_corner**, **corner**, **source**, **vertex_start**, **coordinate:** see :mod:`phgcn.lattice.numba.index`
    """

    sizes: np.ndarray
    point: np.ndarray
    cube_start: np.ndarray
    first_corner: np.ndarray
    order: np.ndarray
    weight: np.ndarray
    corner: np.ndarray
    source: np.ndarray
    vertex_start: np.ndarray
    coordinate: np.ndarray


def empty_plan(points: Points, scheme: Scheme) -> list[Tensor]:
    """Allocates the plan, not filled in."""
    count, heads = points.positions.shape[:2]
    queries = 0 if points.queries is None else points.queries.size(0)
    clouds = count if points.queries is None else torch.sym_min(count, queries)
    return allocate_plan(points.positions, heads * clouds, heads * (count + queries), scheme)


def allocate_plan(positions: Tensor, clouds: int, count: int, scheme: Scheme) -> list[Tensor]:
    """Allocates the tensors of :class:`CloudPlan`, for a number of clouds that have so many points together."""
    lattices, dim = scheme.lattices if isinstance(scheme, MultiScale) else 1, positions.size(2)

    def int32(*shape: int) -> Tensor:
        return positions.new_empty(lattices, *shape, dtype=torch.int32)

    return [
        positions.new_empty(lattices, clouds, 4, dtype=torch.int64),
        int32(count),
        int32(count, 2),  # a start and an end fit where there is one point
        int32(count, 2),
        positions.new_empty(lattices, count, dim, dtype=torch.uint8),
        positions.new_empty(lattices, count, dim + 1),
        int32(count, dim + 1),
        int32(count, dim + 1),
        int32(count, dim + 2),
        int32(count, dim + 1, dim),
    ]


def plan_of_cloud(plan: list[Tensor], lattice: int, cloud: int, begin: int, count: int) -> CloudPlan:
    """Returns the part of the plan of a cloud that has ``count`` points behind the ``begin`` of the clouds before it."""
    sizes, *arrays = (tensor[lattice].numpy() for tensor in plan)
    point, cube_start, first_corner, order, weight, corner, source, vertex_start, coordinate = (
        array[begin : begin + count] for array in arrays
    )
    flat = (array.reshape(-1) for array in (source, vertex_start))
    return CloudPlan(
        sizes[cloud], point, cube_start.reshape(-1), first_corner.reshape(-1), order, weight, corner, *flat,
        coordinate.reshape(-1, order.shape[1]),
    )  # fmt: skip
