r"""The protocols of a backend's kernels and of the exchange with other processes."""

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
    r"""The keys or the queries of all clouds, sorted by cloud.

    Args:
        position (torch.Tensor): :math:`(P, D)`.
        cloud (torch.Tensor): The cloud of each, int64, :math:`(P,)`.
    """

    position: Tensor
    cloud: Tensor


class Near(NamedTuple):
    r"""The near field.

    Args:
        kernel (Kernel): The kernel function.
        table (torch.Tensor): Of each cloud: the radius, 0 for no near field, and the polynomial's
            coefficients (:class:`phgcn.lattice.ladder.Numbers`), float64, :math:`(B, 1+n)`.
        low, high (torch.Tensor): The box around the points of each cloud, float64, :math:`(B, D)`.
    """

    kernel: Kernel
    table: Tensor
    low: Tensor
    high: Tensor


class Kernels(Protocol):
    """The kernels of a backend.  Sums are taken in a fixed order, which other clouds do not change."""

    def sum_rows(
        self, rows: Tensor, index: Tensor | None, weight: Tensor | None, start: Tensor
    ) -> Tensor:
        r"""Sums segments of weighted rows, :math:`y_s = \sum_e w_e x_{\text{index}_e}` over entries
        :math:`\text{start}_s \le e < \text{start}_{s+1}`.

        Shapes:
            - **rows:** :math:`(N, W)`, **index**, int64, and **weight:** :math:`(E,)`, all rows in
              order and all 1 if :obj:`None`; **start:** int64, :math:`(S+1,)`
            - **output:** :math:`(S, W)`
        """

    def merge_keys(
        self, key: Tensor, offset: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        r"""Merges sorted keys with the same keys moved by offsets that keep their order.

        Shapes:
            - **key**, **offset:** int64, :math:`(V,)`
            - **output:** for each key of the union the index of the equal key and of the equal
              moved key, :math:`V` for none, int32, :math:`(V',)` both; for each key and each moved
              key its index in the union, int32, :math:`(V,)` both; the union, sorted, int64,
              :math:`(V',)`
        """

    def average_rows(self, table: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Averages the rows of a table (V, W) at two indices, int32, (M,). Returns (M, W). The row
        of index V is 0."""

    def slice_rows(self, table: Tensor, corner: Tensor, weight: Tensor) -> Tensor:
        r"""Computes :math:`\sum_r w_{ir} y_{\text{corner}_{ir}}` from a table (V, W), corners and
        weights (P, R): (P, W)."""

    def multiply_rows(self, table: Tensor, corner: Tensor, rows: Tensor) -> Tensor:
        r"""Computes :math:`\langle x_i, y_{\text{corner}_{ir}} \rangle` from a table (V, W),
        corners (P, R) and rows (P, W): (P, R)."""

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
            targets, sources (Side): The points; the very same object where they are the same
                points.
            rows (torch.Tensor, optional): :math:`f`, :math:`(N, W)`.
            products (tuple, optional): :math:`a`, :math:`(M, B)`, and :math:`b`, :math:`(N, B)`.

        Returns:
            :math:`\sum_j w_{ij} f_j`, (M, W), and :math:`\sum_j \langle a_i, b_j \rangle
            \nabla_{p_i} w_{ij}`, (M, D).  Each is :obj:`None` without its argument.
        """


class Peers(Protocol):
    """The other processes that have points of the same clouds."""

    def max(self, tensor: Tensor) -> Tensor:
        """Returns the maximum over processes."""

    def sum(self, tensor: Tensor) -> Tensor:
        """Returns the sum over processes."""

    def sum_by_key(self, group: Tensor, key: Tensor, rows: Tensor) -> Tensor:
        """Adds to each row the rows of other processes with the same group and key.  Each pair of
        group and key occurs once per process.

        Shapes:
            - **group**, **key:** int64, :math:`(V,)`, **rows:** :math:`(V, W)`
        """

    def union(self, key: Tensor) -> Tensor:
        """Returns the keys of all processes, sorted, each once."""

    def select(self, side: Side, index: Ints, count: Ints) -> Floats:
        """Finds, for every cloud and coordinate, the values at some indices (Q, B) of the sorted
        values of all processes, which are ``count`` (B,): (Q, B, D), float64."""

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
