r"""Lone points: those far away from a cluster that holds most points of their cloud, and yet weighs on them.  Lone queries:
those far away from all keys.

What a lattice gives a far pair is wrong by factors.  That is harmless in a sum over near points, and wrong for a point that has
few near points, if :math:`N e^{-r}` of a cluster reaches 1.  The normalisers :math:`n_i` tell such points: as
:math:`n_i \ge n_j e^{-\lVert p_i - p_j \rVert}`, the logarithm of the normaliser changes by at most the distance.  With a share
:math:`s`, a point is

- *lone* if :math:`n_i < s \max_j n_j`: for :math:`s = e^{-5}` at least 5 away from the densest place,
- *heavy* if :math:`n_i \ge e^{2.9} s \max_j n_j`: at least 2.9 away from all lone points.

Lone points are summed directly over *cells*: heavy points are put together in cubes of side :data:`CELL`, each seen as its
number of points :math:`m_c` at their centroid, with the sum of their values; every other point is a cell of its own,

.. math::
    n_i = \sum_c m_c\, e^{-\lVert p_i - \bar p_c \rVert}

In up to four dimensions a few lone points are summed directly first, to see whether that is needed: if the shares that the
lattice gives them are off by more than :data:`WRONG`, sums over cells replace its output for all lone points of the cloud.  In
more dimensions they always do: what a lattice gives is less accurate there, and takes longer than a look would spare.

The time has a bound: the share is the largest of a few that has few enough pairs of lone points and cells.  Where none has, the
lattice's output stays.

In cross-attention a query is lone if :math:`n_i < s`: as a key at distance :math:`r` alone gives :math:`e^{-r}`, for
:math:`s = e^{-3}` all keys are more than 3 away.  So all of them are heavy, and what the lattice gives is always replaced.

Clouds are treated each on its own.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..runtime.points import Points

ACCURATE_DIMENSIONS = 4
"""Up to so many dimensions a lattice may be accurate about lone points, and some are looked at first."""

LONE, LONE_HIGH = math.exp(-5), math.exp(-3)
"""A cloud has lone points if a normaliser is below this share of the greatest: in up to four dimensions, and in more."""

LONE_QUERY = math.exp(-4)
"""A cloud has lone queries if a normaliser is below this."""

WIDER, STEPS = math.e, 6
"""If a cloud has lone points, the first share :math:`s` that is tried is so many times the one above; if too many points are
lone by it, the next is less by a factor e, and so on for so many steps."""

HEAVY = math.exp(2.9)
"""How many times the normaliser of lone points heavy points have at least."""

LEAST = 1e-20
"""Lower bound of a sum over cells: a query farther than 46 from all keys keeps the mean of all values that the lattice gave."""

CELL = 1.0
"""The side of a cell, in units of 1/λ: seen from 3 away, its centroid stands for its points up to some hundredths."""

WRONG = {1: (0.07, 0.15), 2: (0.01, 0.01)}
"""Largest error, root mean square, of the shares that lone points have on all points but the heavy ones, by the number of
lattices that are averaged: two promise more.  The first where lone points and these have at most half as many pairs as a cloud
can afford, so that sums over cells take little time; else the second."""

LOOKED_AT = 8
"""How many lone points of a cloud are looked at: those that divide their normalisers, in ascending order, evenly."""

SAMPLED = 8192
"""How many heavy points they are summed over, at least, if there are more: they are far away, and weigh about the same."""

PAIRS_PER_POINT = {"cpu": 0.5, "cuda": 4.0}
"""Upper bound of the pairs of lone points and cells per point of a cloud, by type of device, times :math:`D^4` and the square
of the number of lattices that are averaged: about as a lattice's time grows.  That of a GPU is a guess."""

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


class Normalisers(NamedTuple):
    r"""What a lattice gave the queries of this process.  A point in a head has the number :math:`i H + h`.  Points that attend
    to themselves are queries and keys.

    Shapes:
        - **norm:** the normalisers, 0 for queries that the lattice has left out, :math:`(M H,)`
        - **queries:** :math:`(M H, D)`; **keys:** :math:`(N H, D)`
        - **query_cloud**, **key_cloud:** the cloud of each, :math:`(M H,)` and :math:`(N H,)`
        - **greatest:** the greatest normaliser of each cloud, of all processes, 1 in cross-attention, (clouds,)

    **lattices** is how many lattices are averaged, **joining** how processes put numbers together.
    """

    norm: Tensor
    queries: Tensor
    query_cloud: Tensor
    keys: Tensor
    key_cloud: Tensor
    greatest: Tensor
    lattices: int
    joining: Joining

    @property
    def to_itself(self) -> bool:
        """Whether the queries are the keys."""
        return self.query_cloud is self.key_cloud

    @property
    def clouds(self) -> int:
        """How many clouds there are, on all processes."""
        return len(self.greatest)

    @property
    def sought(self) -> float:
        """The share of the greatest normaliser below which queries are looked for."""
        return sought_share(self.keys.size(1)) if self.to_itself else LONE_QUERY

    def is_lone(self, share: Tensor) -> Tensor:
        """Tells which queries are lone, (M H,), by the share of each cloud, (clouds,)."""
        return (self.norm != 0) & (self.norm < _by_cloud(share * self.greatest, self.query_cloud))

    def is_heavy(self, share: Tensor) -> Tensor:
        """Tells which keys are heavy, (N H,), by the share of each cloud, (clouds,)."""
        if not self.to_itself:
            return torch.ones_like(self.key_cloud, dtype=torch.bool)
        return self.norm >= _by_cloud(HEAVY * share * self.greatest, self.key_cloud)

    def count_by_cloud(self, cloud: Tensor, some: Tensor | None = None) -> Tensor:
        """Counts the points of each cloud, or those for which something holds, of all processes, (clouds,)."""
        if self.clouds == 1:  # quicker than bins
            return self.joining.total(cloud.new_full((1,), len(cloud)) if some is None else some.sum().unsqueeze(0))
        return self.joining.total(torch.bincount(cloud if some is None else cloud[some], minlength=self.clouds))

    def most_pairs(self) -> Tensor:
        """Returns how many pairs of lone queries and cells each cloud may have, (clouds,)."""
        points = self.count_by_cloud(self.key_cloud)
        if not self.to_itself:
            points = points + self.count_by_cloud(self.query_cloud)
        return PAIRS_PER_POINT[self.norm.device.type] * self.keys.size(1) ** 4 * self.lattices**2 * points

    def wrong_clouds(self) -> Tensor | None:
        """Tells of each cloud whether the lattice is wrong about its lone points, (clouds,): looks at some of them.  About lone
        queries it always is, and in many dimensions.  :obj:`None` where nothing is lone: one read of the device tells."""
        share = torch.full_like(self.greatest, self.sought)
        is_lone = self.is_lone(share)
        lone_count = self.count_by_cloud(self.query_cloud, is_lone)
        is_wrong = lone_count > 0
        if not bool(is_wrong.any()):
            return None
        if not self.to_itself or self.keys.size(1) > ACCURATE_DIMENSIONS:
            return is_wrong
        is_heavy = self.is_heavy(share)
        pairs = lone_count * self.count_by_cloud(self.key_cloud, ~is_heavy)
        allowed = torch.where(2 * pairs <= self.most_pairs(), *WRONG[self.lattices])
        parts = [self._numbers_by_cloud(some) for some in (is_lone, ~is_heavy, is_heavy)]
        for number in is_wrong.nonzero().flatten().tolist():
            is_wrong[number] = self._share_error(*(part[number] for part in parts)) > allowed[number]
        return is_wrong

    def _numbers_by_cloud(self, some: Tensor) -> tuple[Tensor, ...]:
        """Returns, for each cloud, the numbers of its keys for which something holds."""
        numbers = some.nonzero().squeeze(1)
        if self.clouds == 1:
            return (numbers,)
        cloud = self.key_cloud[numbers]
        sizes: list[int] = torch.bincount(cloud, minlength=self.clouds).tolist()
        return tuple(numbers[cloud.argsort(stable=True)].split(sizes))

    def _share_error(self, lone: Tensor, light: Tensor, heavy: Tensor) -> Tensor:
        """Computes the root mean square error of the share that some lone points of a cloud have on all points but the heavy
        ones, from the numbers of its lone points, of all but the heavy ones, and of these."""
        looked_at = self.joining.rows(torch.cat([self.keys[lone], self.norm[lone].unsqueeze(1)], dim=1))
        looked_at = looked_at[looked_at[:, -1].argsort(stable=True)]
        count = min(LOOKED_AT, len(looked_at))
        places = torch.arange(count, device=lone.device) * len(looked_at) // count
        positions, norm = looked_at[places].tensor_split([-1], dim=1)

        def weigh(some: Tensor) -> Tensor:
            distance = torch.cdist(positions, self.keys[some], compute_mode="donot_use_mm_for_euclid_dist")
            return torch.exp(-distance).sum(dim=1)

        sample = heavy[:: max(1, len(heavy) // SAMPLED)]
        near, far = weigh(light), weigh(sample) * (len(heavy) / max(1, len(sample)))
        near, right = self.joining.total(torch.stack([near, near + far]))
        error: Tensor = near / norm.squeeze(1) - near / right
        return error.square().mean().sqrt()


def sought_share(dim: int) -> float:
    """Returns the share of the greatest normaliser of a cloud below which points are looked for."""
    return LONE if dim <= ACCURATE_DIMENSIONS else LONE_HIGH


def _by_cloud(numbers: Tensor, cloud: Tensor) -> Tensor:
    """Looks up a number of each cloud for its points."""
    return numbers if len(numbers) == 1 else numbers[cloud]


def find_normalisers(
    norm: Tensor, points: Points, lattices: int, graphs: Tensor | None = None, joining: Joining = ONE_PROCESS
) -> Normalisers | None:
    """Puts normalisers and points together, cloud by cloud; :obj:`None` where none can be lone.

    Args:
        norm (torch.Tensor): The normalisers of a lattice, 0 for queries that it has left out, (M, H).
        points (Points): The points of this process.
        lattices (int): How many lattices are averaged.
        graphs (torch.Tensor, optional): The graphs of all processes, sorted. (default: those of the points)
        joining (Joining, optional): How processes put numbers together. (default: one process)
    """
    to_itself = points.queries is None
    if to_itself:  # a point weighs 1 on itself, and no weight exceeds 1
        least = 1 / sought_share(points.positions.size(2))
        if joining is ONE_PROCESS and len(norm) < least:
            return None
        if points.batch is not None and joining.most(torch.cat([norm.flatten(), norm.new_zeros(1)]).amax(0, True)) < least:
            return None
    heads, batches = norm.size(1), [batch for batch in (points.batch, points.query_batch) if batch is not None]
    if graphs is None:
        graphs = torch.cat(batches).unique() if batches else norm.new_zeros(1, dtype=torch.int64)

    def clouds_of(batch: Tensor | None, count: int) -> Tensor:
        graph = graphs.new_zeros(count) if batch is None else torch.searchsorted(graphs, batch)
        return (graph.unsqueeze(1) * heads + torch.arange(heads, device=norm.device)).flatten()

    key_cloud = clouds_of(points.batch, len(points.positions))
    query_cloud = key_cloud if to_itself else clouds_of(points.query_batch, len(norm))
    norm, greatest = norm.flatten(), norm.new_ones(len(graphs) * heads)
    if to_itself:
        greatest = joining.most(torch.zeros_like(greatest).scatter_reduce(0, key_cloud, norm, "amax"))
    queries, keys = points.targets.flatten(0, 1), points.positions.flatten(0, 1)
    return Normalisers(norm, queries, query_cloud, keys, key_cloud, greatest, lattices, joining)


class LonePoints(NamedTuple):
    r"""The lone points, or queries, of some clouds, and the cells that they see.

    Shapes:
        - **lone:** the numbers of the lone ones, :math:`(Q,)`; **lone_cloud:** their clouds, :math:`(Q,)`
        - **member:** the numbers of all keys of these clouds, cell by cell, :math:`(P,)`
        - **cell:** the cell of each of them, :math:`(P,)`; **cell_cloud:** the clouds of the cells, :math:`(K,)`
        - **sizes:** how many keys each cell has, :math:`(K, 1)`
        - **cubes:** how many cells, the first, are cubes of heavy points; the others are single points
    """

    lone: Tensor
    lone_cloud: Tensor
    member: Tensor
    cell: Tensor
    cell_cloud: Tensor
    sizes: Tensor
    cubes: int

    def sum_cells(self, rows: Tensor, backend: str) -> Tensor:
        """Sums the rows (N H, W) of each cell's keys, piece by piece, to (K, W): the same bits every run."""
        sum_rows = importlib.import_module(f"phgcn.structural.{backend}").sum_rows
        place, end = torch.arange(len(self.cell), device=rows.device), self.sizes.flatten().cumsum(0)
        start = torch.cat([end.new_zeros(1), end])
        first = ((place - start[self.cell]) % PIECE == 0).nonzero().squeeze(1)  # of each piece
        pieces = sum_rows(rows, torch.cat([first, start[-1:]]).int(), self.member.int())
        sums: Tensor = sum_rows(pieces, torch.searchsorted(first, start, out_int32=True), place[: len(pieces)].int())
        return sums


def find_wrong(given: Normalisers | None) -> LonePoints | None:
    """Finds the lone points of clouds in which the lattice is wrong about them, and their cells; :obj:`None` where there are
    none."""
    is_wrong = None if given is None else given.wrong_clouds()
    return None if given is None or is_wrong is None else find_cells(given, is_wrong)


def find_cells(given: Normalisers, is_wanted: Tensor) -> LonePoints | None:
    """Finds the lone points of clouds, by the largest share that each can afford, and puts their keys together in cells.

    Args:
        given (Normalisers): What the lattice gave.
        is_wanted (torch.Tensor): In which clouds lone points are summed over cells, (clouds,).

    Returns:
        Lone points and cells of this process; :obj:`None` where no cloud that is wanted can afford any.
    """
    widest = given.sought * WIDER
    share, most_pairs = torch.where(is_wanted, widest, 0.0).to(given.greatest), given.most_pairs()
    while bool((share > 0).any()):
        lone_count = given.count_by_cloud(given.query_cloud, given.is_lone(share))
        most_cells = most_pairs / lone_count  # infinite where no point is lone
        is_affordable = given.count_by_cloud(given.key_cloud, ~given.is_heavy(share)) < most_cells
        if bool(is_affordable.all()):
            found = _put_together(given, share)
            # Processes may have points in the same cube: there are at most as many cells as they have together.
            is_affordable = given.joining.total(torch.bincount(found.cell_cloud, minlength=given.clouds)) < most_cells
            if bool(is_affordable.all()):
                return found
        lower = torch.where(share > 1.5 * widest / math.e**STEPS, share / math.e, 0.0)
        share = torch.where(is_affordable, share, lower)
    return None


def _put_together(given: Normalisers, share: Tensor) -> LonePoints:
    """Returns the lone points by the share of each cloud, (clouds,), and the cells of their clouds; a share of 0 leaves a cloud
    out."""
    is_heavy, is_left = given.is_heavy(share), _by_cloud(share > 0, given.key_cloud)
    heavy, other = ((some & is_left).nonzero().squeeze(1) for some in (is_heavy, ~is_heavy))
    heavy, cell = _sort_by_cube(given, heavy)
    is_first = torch.cat([cell.new_ones(min(1, len(cell))), cell.diff()]) > 0
    cell_cloud = given.key_cloud[torch.cat([heavy[is_first], other])]
    cubes, lone = len(cell_cloud) - len(other), given.is_lone(share).nonzero().squeeze(1)
    cell = torch.cat([cell, torch.arange(len(other), device=cell.device) + cubes])
    sizes = torch.bincount(cell, minlength=len(cell_cloud)).unsqueeze(1)
    return LonePoints(lone, given.query_cloud[lone], torch.cat([heavy, other]), cell, cell_cloud, sizes, cubes)


def find_cubes(positions: Tensor) -> Tensor:
    """Returns the cube of side :data:`CELL` that each point (P, D) lies in, as whole numbers in float64, (P, D)."""
    return torch.floor(positions.double() / CELL)


def _sort_by_cube(given: Normalisers, members: Tensor) -> tuple[Tensor, Tensor]:
    """Sorts some keys, of which these are the numbers, (P,), by their cloud and cube; returns them, and the cell of each."""
    code, codes = given.key_cloud[members], given.clouds
    if len(members) == 0:
        return members, code
    for coordinate in find_cubes(given.keys[members]).unbind(1):
        first, last = (int(edge) for edge in coordinate.aminmax())
        width = last - first + 1
        if codes * width >= 2**62:  # number only the codes that there are
            code = torch.unique(code, return_inverse=True)[1]
            codes = len(code)
        code, codes = code * width + (coordinate.long() - first), codes * width
    code, order = torch.sort(code, stable=True)
    return members[order], torch.unique_consecutive(code, return_inverse=True)[1]
