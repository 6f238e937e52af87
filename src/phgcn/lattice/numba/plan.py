r"""The plan of the Numba backend: where the points of every cloud lie, and which vertices of its finest level they share.

All clouds lie one after the other in tensors that would hold the most corners and vertices there can be.  What a cloud does not
need of its part is never touched, and takes no memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...runtime.points import Points
from ..plan import count_lattices
from ..scheme import Scheme

_NUMPY = {
    torch.int64: np.int64,
    torch.int32: np.int32,
    torch.uint8: np.uint8,
    torch.float32: np.float32,
    torch.float64: np.float64,
}


class CloudPlan(NamedTuple):
    r"""The part of the plan of one cloud of :math:`P` points and one of its lattices; not all rows are used.

    Shapes:
        - **sizes:** finest level or minus the step of a narrow cloud, cubes :math:`Q`, corners :math:`E`, vertices :math:`V`;
          int64, :math:`(4,)`
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
    """Allocates the plan, not filled in: what a compiled graph knows of it."""
    shapes = plan_shapes(points.positions, *_plan_size(points), scheme)
    return [points.positions.new_empty(shape, dtype=dtype) for shape, dtype in shapes]


def zero_plan(points: Points, scheme: Scheme) -> list[Tensor]:
    """Allocates the plan with zeros."""
    return zeros(plan_shapes(points.positions, *_plan_size(points), scheme))


def zeros(shapes: list[tuple[tuple[int, ...], torch.dtype]]) -> list[Tensor]:
    """Allocates zeros: memory that the system maps when it is first touched, so that what no cloud needs costs nothing."""
    return [torch.from_numpy(np.zeros(shape, _NUMPY[dtype])) for shape, dtype in shapes]


def unset(shapes: list[tuple[tuple[int, ...], torch.dtype]]) -> list[Tensor]:
    """Allocates memory that is not filled in, for a plan that nobody keeps."""
    return [torch.from_numpy(np.empty(shape, _NUMPY[dtype])) for shape, dtype in shapes]


def _plan_size(points: Points) -> tuple[int, int]:
    """Returns the most clouds that there can be, and their points."""
    count, heads = points.positions.shape[:2]
    queries = 0 if points.queries is None else points.queries.size(0)
    clouds = count if points.queries is None else torch.sym_min(count, queries)
    return heads * clouds, heads * (count + queries)


def plan_shapes(positions: Tensor, clouds: int, count: int, scheme: Scheme) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """Returns shapes and types of the tensors of :class:`CloudPlan`, for clouds that have ``count`` points together."""
    lattices, dim = count_lattices(scheme), positions.size(2)
    int32 = [(count,), (count, 2), (count, 2)]  # a start and an end fit where there is one point
    corners = [(count, dim + 1), (count, dim + 1), (count, dim + 2), (count, dim + 1, dim)]
    shapes: list[tuple[tuple[int, ...], torch.dtype]] = [
        ((clouds, 4), torch.int64),
        *((shape, torch.int32) for shape in int32),
        ((count, dim), torch.uint8),
        ((count, dim + 1), positions.dtype),
        *((shape, torch.int32) for shape in corners),
    ]
    return [((lattices, *shape), dtype) for shape, dtype in shapes]


def plan_of_cloud(plan: list[Tensor], lattice: int, cloud: int, begin: int, count: int) -> CloudPlan:
    """Returns the part of the plan of a cloud that has ``count`` points behind the ``begin`` of the clouds before it."""
    sizes, *arrays = (tensor[lattice].numpy() for tensor in plan)
    point, cube_start, first_corner, order, weight, corner, source, vertex_start, coordinate = (
        array[begin : begin + count] for array in arrays
    )
    return CloudPlan(
        sizes[cloud], point, cube_start.reshape(-1), first_corner.reshape(-1), order, weight, corner,
        source.reshape(-1), vertex_start.reshape(-1), coordinate.reshape(-1, order.shape[1]),
    )  # fmt: skip
