"""The protocols of a backend's kernels and of the exchange with other processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...kernels import Kernel

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Side(NamedTuple):
    """The keys or the queries of all clouds, sorted by cloud: positions (P, D) and clouds, int64,
    (P,)."""

    position: Tensor
    cloud: Tensor


class Near(NamedTuple):
    """The near field.

    Args:
        kernel (Kernel): The kernel function.
        table (torch.Tensor): Each cloud's radius, 0 for no near field, and polynomial
            (:class:`phgcn.lattice.ladder.Numbers`), float64, :math:`(B, 1+n)`.
        low, high (torch.Tensor): The box around the points of each cloud, float64, :math:`(B, D)`.
    """

    kernel: Kernel
    table: Tensor
    low: Tensor
    high: Tensor


class Kernels(Protocol):
    """The kernels of a backend. Sums have a fixed order, which other clouds do not change."""

    def sum_rows(
        self, rows: Tensor, index: Tensor | None, weight: Tensor | None, start: Tensor
    ) -> Tensor:
        r"""Sums segments of weighted rows (N, W), :math:`y_s = \sum_e w_e x_{\text{index}_e}` over
        entries :math:`\text{start}_s \le e < \text{start}_{s+1}`, to (S, W). An ``index`` of
        :obj:`None` is all rows in order, a ``weight`` of :obj:`None` all 1."""

    def merge_keys(
        self, key: Tensor, offset: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Merges sorted keys with the same keys moved by offsets that keep their order.

        Shapes:
            - **key**, **offset:** int64, :math:`(V,)`
            - **output:** for each key of the union the index of the equal key and of the equal
              moved key, :math:`V` for none, int32, :math:`(V',)` both; the index in the union of
              each key and each moved key, int32, :math:`(V,)` both; the union, sorted, int64,
              :math:`(V',)`
        """

    def average_rows(self, table: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Averages rows of a table (V, W) at two indices, int32, to (M, W). Row V is 0."""

    def slice_rows(self, table: Tensor, corner: Tensor, weight: Tensor) -> Tensor:
        r"""Computes :math:`\sum_r w_{ir} y_{\text{corner}_{ir}}`, (P, W), for corners (P, R)."""

    def multiply_rows(self, table: Tensor, corner: Tensor, rows: Tensor) -> Tensor:
        r"""Computes :math:`\langle x_i, y_{\text{corner}_{ir}} \rangle`, (P, R), for rows (P,
        W)."""

    def sum_near(
        self,
        near: Near,
        targets: Side,
        sources: Side,
        rows: Tensor | None,
        products: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor | None, Tensor | None]:
        r"""Sums the near field over pairs within the radius.

        Args:
            near (Near): The near field.
            targets, sources (Side): The points, one object where they are the same points.
            rows (torch.Tensor, optional): :math:`f`, :math:`(N, W)`.
            products (tuple, optional): :math:`a`, :math:`(M, B)`, and :math:`b`, :math:`(N, B)`.

        Returns:
            :math:`\sum_j w_{ij} f_j`, (M, W), and :math:`\sum_j \langle a_i, b_j \rangle
            \nabla_{p_i} w_{ij}`, (M, D). Each is :obj:`None` without its argument.
        """


class Peers(Protocol):
    """The other processes that have points of the same clouds."""

    def max(self, tensor: Tensor) -> Tensor: ...

    def sum(self, tensor: Tensor) -> Tensor: ...

    def sum_by_key(self, group: Tensor, key: Tensor, rows: Tensor) -> Tensor:
        """Adds to each row (V, W) the other processes' rows of the same group and key, int64, (V,).
        A pair of group and key occurs once per process."""

    def union(self, key: Tensor) -> Tensor:
        """Returns the keys of all processes, sorted, each once."""

    def select(self, side: Side, index: Ints, count: Ints) -> Floats:
        """Sorts the coordinates of all processes per cloud, and returns the values at ``index`` (Q,
        B), as (Q, B, D), float64. ``count`` (B,) is the number of points of each cloud."""

    def sweep(self, side: Side, *tables: Tensor) -> Iterator[tuple[Side, tuple[Tensor, ...]]]:
        """Yields the points of all processes with their rows, some at a time."""


class Alone:
    """One process, which has all points."""

    def max(self, tensor: Tensor) -> Tensor:
        return tensor

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def sum_by_key(self, group: Tensor, key: Tensor, rows: Tensor) -> Tensor:
        return rows

    def union(self, key: Tensor) -> Tensor:
        return key

    def select(self, side: Side, index: Ints, count: Ints) -> Floats:
        place = torch.from_numpy(index + count.cumsum() - count).to(side.cloud.device)
        columns = []
        for column in side.position.unbind(1):
            ordered, order = column.sort()
            if len(count) > 1:
                ordered = ordered[side.cloud[order].sort(stable=True)[1]]
            columns.append(ordered[place])
        values: Floats = torch.stack(columns, dim=2).cpu().numpy()
        return values

    def sweep(self, side: Side, *tables: Tensor) -> Iterator[tuple[Side, tuple[Tensor, ...]]]:
        yield side, tables
