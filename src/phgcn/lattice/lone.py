r"""Lone points: those far away from a cluster that holds most points of their cloud, and yet weighs on them.

What a lattice gives a far pair is wrong by factors.  That is harmless in a sum over near points, and wrong for a point that has
few near points, if :math:`N e^{-r}` of a cluster reaches 1.  The normalisers :math:`n_i` tell such points: as
:math:`n_i \ge n_j e^{-\lVert p_i - p_j \rVert}`, the logarithm of the normaliser changes by at most the distance.  A point is

- *lone* if :math:`n_i < e^{-5} \max_j n_j`: at least 5 away from the densest place (nearer by, the lattice is accurate),
- *heavy* if :math:`n_i \ge \max_j n_j / 8`: at least 2.9 away from all lone points.

Lone points are summed directly over *cells*: heavy points are put together in cubes of side :data:`CELL`, each seen as its
number of points :math:`m_c` at their centroid, with the sum of their values; every other point is a cell of its own,

.. math::
    n_i = \sum_c m_c\, e^{-\lVert p_i - \bar p_c \rVert}

A few lone points are summed exactly first, to see whether that is needed: if the shares that the lattice gives them are off by
more than :data:`WRONG`, sums over cells replace its output for all lone points of the cloud.  Clouds are treated each on its
own, and those with too many pairs of lone points and cells are left to the lattice.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..kernels.points import Points

LONE, HEAVY = math.exp(-5), 1 / 8
"""Shares of the greatest normaliser of a cloud: lone points have less than the first, heavy points at least the second."""

CELL = 1.0
"""The side of a cell, in units of 1/λ: seen from 3 away, its centroid stands for its points up to some hundredths."""

WRONG = 0.07
"""Largest error, root mean square, of the shares that lone points have on all points but the heavy ones."""

LOOKED_AT = 8
"""How many lone points of a cloud are looked at: those that divide their normalisers, in ascending order, evenly."""

PAIRS_PER_POINT = {"cpu": 8, "cuda": 256}
"""Upper bound of the pairs of lone points and cells per point of a cloud, by type of device, times :math:`D^2`: they take about
as long as the lattice."""

PIECE = 512
"""Points of a cell that are summed at a time: a cell may hold nearly all points, and pieces are summed side by side."""


def _same(tensor: Tensor) -> Tensor:
    return tensor


class Joining(NamedTuple):
    """How several processes, each with some of the points, put numbers together; by default there is one process.

    Args:
        total, most (callable): Take the sum, or the greatest, of tensors of the same shape over processes.
        rows (callable): Puts the rows of all processes one after the other.
    """

    total: Callable[[Tensor], Tensor] = _same
    most: Callable[[Tensor], Tensor] = _same
    rows: Callable[[Tensor], Tensor] = _same


ONE_PROCESS = Joining()


class Roles(NamedTuple):
    r"""What each point of this process is in its cloud.  A point in a head has the number :math:`i H + h`.

    Shapes:
        - **norm:** the normalisers of the lattice, :math:`(N H,)`; **positions:** :math:`(N H, D)`
        - **cloud:** the cloud of each point, :math:`(N H,)`, and **clouds**, how many there are
        - **is_lone**, **is_heavy:** :math:`(N H,)`
    """

    norm: Tensor
    positions: Tensor
    cloud: Tensor
    clouds: int
    is_lone: Tensor
    is_heavy: Tensor
    joining: Joining

    def count_by_cloud(self, some: Tensor) -> Tensor:
        """Counts the points of each cloud for which something holds, of all processes, (clouds,)."""
        return self.joining.total(torch.bincount(self.cloud[some], minlength=self.clouds))

    def most_cells(self) -> Tensor:
        """Returns how many cells lone points may see, by cloud, (clouds,); infinite where there are no lone points."""
        most = PAIRS_PER_POINT[self.cloud.device.type] * self.positions.size(1) ** 2
        return most * self.count_by_cloud(torch.ones_like(self.is_lone)) / self.count_by_cloud(self.is_lone)

    def affordable_clouds(self) -> Tensor:
        """Tells of each cloud whether it has lone points, and few enough points that are cells of their own."""
        return (self.count_by_cloud(self.is_lone) > 0) & (self.count_by_cloud(~self.is_heavy) < self.most_cells())

    def wrong_clouds(self) -> Tensor:
        """Tells of each cloud that can afford cells whether the lattice is wrong about its lone points: sums exactly for some
        of them."""
        is_wanted = self.affordable_clouds()
        order, sizes = self.cloud.argsort(stable=True), torch.bincount(self.cloud, minlength=self.clouds).tolist()
        members = order.split(sizes)
        for number in is_wanted.nonzero().flatten().tolist():
            is_wanted[number] = self._share_error(members[number]) > WRONG
        return is_wanted

    def _share_error(self, members: Tensor) -> Tensor:
        """Computes the root mean square error of the share that some lone points of a cloud have on all points but the heavy
        ones, from the numbers of the cloud's points."""
        positions, is_lone = self.positions[members], self.is_lone[members]
        lone = self.joining.rows(torch.cat([positions, self.norm[members].unsqueeze(1)], dim=1)[is_lone])
        lone = lone[lone[:, -1].argsort(stable=True)]
        looked_at = min(LOOKED_AT, len(lone))
        lone, norm = lone[torch.arange(looked_at, device=lone.device) * len(lone) // looked_at].tensor_split([-1], dim=1)
        weight = torch.exp(-torch.cdist(lone, positions, compute_mode="donot_use_mm_for_euclid_dist"))
        light = weight @ (~self.is_heavy[members]).to(weight.dtype)
        light, right = self.joining.total(torch.stack([light, weight.sum(dim=1)]))
        error: Tensor = light / norm.squeeze(1) - light / right
        return error.square().mean().sqrt()


def find_roles(norm: Tensor, points: Points, graphs: Tensor | None = None, joining: Joining = ONE_PROCESS) -> Roles | None:
    """Finds the lone and the heavy points of all clouds; :obj:`None` where none is lone.

    Args:
        norm (torch.Tensor): The normalisers of a lattice, 0 for points that it has left out, (N, H).
        points (Points): The points of this process, which attend to themselves.
        graphs (torch.Tensor, optional): The graphs of all processes, sorted. (default: those of the points)
        joining (Joining, optional): How processes put numbers together. (default: one process)
    """
    if joining is ONE_PROCESS and len(norm) < 1 / LONE:  # no weight exceeds 1
        return None
    heads, graph, count = norm.size(1), torch.zeros_like(norm[:, :1], dtype=torch.int64), 1
    if points.batch is not None:
        if joining.most(norm.amax().unsqueeze(0) if norm.numel() > 0 else norm.new_zeros(1)) < 1 / LONE:
            return None  # a point weighs 1 on itself
        graphs = points.batch.unique() if graphs is None else graphs
        graph, count = torch.searchsorted(graphs, points.batch).unsqueeze(1), len(graphs)
    cloud, norm = (graph * heads + torch.arange(heads, device=norm.device)).flatten(), norm.flatten()
    greatest = joining.most(norm.new_zeros(count * heads).scatter_reduce(0, cloud, norm, "amax"))[cloud]
    is_lone, is_heavy = (norm > 0) & (norm < LONE * greatest), norm >= HEAVY * greatest
    if not joining.most(is_lone.any().long().unsqueeze(0)):
        return None
    return Roles(norm, points.positions.flatten(0, 1), cloud, count * heads, is_lone, is_heavy, joining)


class LonePoints(NamedTuple):
    r"""The lone points of some clouds, and the cells that they see.

    Shapes:
        - **lone:** the numbers of the lone points, :math:`(Q,)`; **lone_cloud:** their clouds, :math:`(Q,)`
        - **member:** the numbers of all points of these clouds, cell by cell, :math:`(P,)`
        - **cell:** the cell of each of them, :math:`(P,)`; **cell_cloud:** the clouds of the cells, :math:`(K,)`
        - **cubes:** how many cells, the first, are cubes of heavy points; the others are single points
    """

    lone: Tensor
    lone_cloud: Tensor
    member: Tensor
    cell: Tensor
    cell_cloud: Tensor
    cubes: int

    @property
    def sizes(self) -> Tensor:
        """How many points each cell has, (K, 1)."""
        return torch.bincount(self.cell, minlength=len(self.cell_cloud)).unsqueeze(1)

    def sum_cells(self, rows: Tensor, backend: str) -> Tensor:
        """Sums the rows (N H, W) of each cell's points, piece by piece, to (K, W): the same bits every run."""
        place = torch.arange(len(self.cell), device=rows.device)
        is_first = (place - torch.searchsorted(self.cell, self.cell)) % PIECE == 0
        pieces = _sum_runs(rows, self.member, is_first.cumsum(0) - 1, int(is_first.sum()), backend)
        return _sum_runs(pieces, place[: len(pieces)], self.cell[is_first], len(self.cell_cloud), backend)


def find_cells(roles: Roles, is_wanted: Tensor) -> LonePoints | None:
    """Puts the points of this process together in cells; :obj:`None` where no cloud that is wanted can afford it.

    Args:
        roles (Roles): What each point is.
        is_wanted (torch.Tensor): Which clouds are looked at, (clouds,).
    """
    if not is_wanted.any():
        return None
    cloud = roles.cloud
    heavy, other = ((some & is_wanted[cloud]).nonzero().squeeze(1) for some in (roles.is_heavy, ~roles.is_heavy))
    heavy, cell = _sort_by_cube(roles, heavy)
    is_first = torch.cat([cell.new_ones(min(1, len(cell))), cell.diff()]) > 0
    cell_cloud = torch.cat([cloud[heavy[is_first]], cloud[other]])
    # Processes may have points in the same cube: there are at most as many cells as they have together.
    cells = roles.joining.total(torch.bincount(cell_cloud, minlength=roles.clouds))
    is_affordable = is_wanted & (cells < roles.most_cells())
    if not torch.equal(is_affordable, is_wanted):
        return find_cells(roles, is_affordable)
    cubes, lone = len(cell_cloud) - len(other), other[roles.is_lone[other]]
    single = torch.arange(len(other), device=cell.device) + cubes
    return LonePoints(lone, cloud[lone], torch.cat([heavy, other]), torch.cat([cell, single]), cell_cloud, cubes)


def find_cubes(positions: Tensor) -> Tensor:
    """Returns the cube of side :data:`CELL` that each point (P, D) lies in, as whole numbers in float64, (P, D)."""
    return torch.floor(positions.double() / CELL)


def _sort_by_cube(roles: Roles, members: Tensor) -> tuple[Tensor, Tensor]:
    """Sorts some points, of which these are the numbers, (P,), by their cloud and cube; returns them, and the cell of each."""
    code, codes = roles.cloud[members], roles.clouds
    if len(members) == 0:
        return members, code
    for coordinate in find_cubes(roles.positions[members]).unbind(1):
        first, last = (int(edge) for edge in coordinate.aminmax())
        width = last - first + 1
        if codes * width >= 2**62:  # number only the codes that there are
            code = torch.unique(code, return_inverse=True)[1]
            codes = len(code)
        code, codes = code * width + (coordinate.long() - first), codes * width
    code, order = torch.sort(code, stable=True)
    return members[order], torch.unique_consecutive(code, return_inverse=True)[1]


def _sum_runs(rows: Tensor, member: Tensor, run: Tensor, count: int, backend: str) -> Tensor:
    """Sums the rows of the members (P,) of each of ``count`` runs, which are numbered in ascending order, (P,)."""
    start = torch.searchsorted(run, torch.arange(count + 1, device=rows.device), out_int32=True)
    sums: Tensor = importlib.import_module(f"phgcn.structural.{backend}").sum_rows(rows, start, member.int())
    return sums
