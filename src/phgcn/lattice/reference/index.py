r"""Index: the vertices that the points' simplices touch, numbered, and the number of each corner."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .locate import Simplices


class Vertices(NamedTuple):
    """The touched vertices of one level.

    Shapes:
        - **number:** Kuhn coordinates, a tuple, to the number of the vertex, 0 to :math:`V - 1` in lexicographic order
        - **corner:** the vertex of each corner of each point's simplex, int64, :math:`(P, D+1)`
    """

    number: dict[tuple[int, ...], int]
    corner: Tensor


def index(simplices: Simplices) -> Vertices:
    """Numbers the vertices that points touch."""
    count, corners, dim = simplices.vertex.shape
    unique, corner = torch.unique(simplices.vertex.reshape(-1, dim), dim=0, return_inverse=True)
    return Vertices({tuple(v): i for i, v in enumerate(unique.tolist())}, corner.reshape(count, corners))
