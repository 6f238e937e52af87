r"""The lattices of all clouds: built in one go, then filter rows of values.

The host learns how many vertices there are, once, together with all else that it must know (:class:`Plan`).  No coarser
level has more vertices than a finer one: to interpolate from the coarse vertices to the touched fine ones is injective.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..scheme import MultiScale, Scheme
from .build import Simplices, locate, parent_keys
from .clouds import Clouds, all_alike, finest_levels
from .constants import Constants
from .keys import WORD_BITS, Fields, find_runs, list_runs, narrow_fields, wide_fields
from .rows import Rows, add_coarser, blur, sum_runs

MOST_CORNERS = 2**31
"""Corners of simplices are counted in 32 bits."""


@dataclass
class Level:
    """The vertices of one level.

    Args:
        keys (torch.Tensor): Their keys, sorted, :math:`(W, B)`.
        count (torch.Tensor): How many there are, on the device.
        order, start (torch.Tensor): The entries that each is made of, those of the finer level's vertices.
        parent (torch.Tensor): The vertex that each entry is of.
    """

    keys: Tensor
    count: Tensor
    order: Tensor
    start: Tensor
    parent: Tensor


@dataclass
class Entry:
    """The points of all clouds, and the vertices of the simplices that they lie in, each cloud's at its finest level.

    Args:
        simplices (Simplices): Where the points lie.
        order, start (torch.Tensor): The corners that each vertex is made of.
        keys (torch.Tensor): The vertices' keys; the level comes first in them.
        vertex (torch.Tensor): The vertices of each point's simplex, int32, :math:`(P, D+1)`.
        before (torch.Tensor): How many vertices enter at finer levels, for each level and behind the last.
        longest (torch.Tensor): How many corners a vertex is made of at most.
    """

    simplices: Simplices
    order: Tensor
    start: Tensor
    keys: Tensor
    vertex: Tensor
    before: Tensor
    longest: Tensor


@dataclass
class Plan:
    """All that the lattices of a call are made of, on the device, and what the host knows of it.

    Args:
        clouds (Clouds): The points.
        kappa (torch.Tensor): The finest level of each cloud, -1 where all its points are one.
        fields (list): Of the keys of every grid.
        entries (list): The finest vertices, for each of several averaged lattices.
        alike (bool): Whether some cloud's points are all one.
        before (list): ``before`` of each entry.
        longest (list): ``longest`` of each entry.
        facts (list): What else was read.
    """

    clouds: Clouds
    kappa: Tensor
    fields: list[Fields]
    entries: list[Entry]
    alike: bool
    before: list[list[int]]
    longest: list[int]
    facts: list[int]

    def levels(self) -> list[int]:
        """The finest levels that some cloud has."""
        first = self.before[0]
        return [level for level in range(len(first) - 1) if first[level + 1] > first[level]]


def make_plan(clouds: Clouds, scheme: Scheme, constants: Constants, slopes: bool, limit: float, facts: list[Tensor]) -> Plan:
    """Locates all points and reads, once, what the host must know, whether a position is not within the limit, and
    ``facts``.

    Where keys need more than one word, which only the device knows, all is done again, with two more reads.
    """
    levels, corners = constants.levels, clouds.position.size(1) + 1
    if len(clouds.position) * corners >= MOST_CORNERS:
        raise ValueError(
            f"positions and queries have {len(clouds.position)} points, counted for each head; allowed for a lattice on a "
            f"GPU in {corners - 1} dimensions: fewer than {MOST_CORNERS // corners}"
        )
    low, high = torch.aminmax(clouds.position, dim=0)
    tables, known = narrow_fields(low, high, constants.grids, levels, levels * clouds.number, limit)
    fields = [Fields(table, 1) for table in tables]
    while True:
        plan, needed = _try_plan(clouds, scheme, constants, slopes, fields, (low, high), [known, *facts])
        wide = [number for number, bit in enumerate(needed) if bit > WORD_BITS and fields[number].words == 1]
        if not wide:
            return plan
        for number in wide:
            fields[number] = wide_fields(fields[number].table)


def _try_plan(clouds, scheme, constants, slopes, fields, ends, facts) -> tuple[Plan, list[int]]:
    kappa = finest_levels(clouds, scheme, constants, fields[1 : constants.levels])
    if clouds.begin == 0:
        kappa = torch.where(all_alike(clouds, *ends), -1, kappa)
    own = isinstance(scheme, MultiScale) and clouds.begin == 0
    entries = [_enter(clouds, kappa, constants, number, fields[0], own, slopes and own) for number in range(constants.lattices)]
    numbers = [kappa.amin().long().reshape(1), *facts]
    for entry in entries:
        numbers += [entry.before, entry.longest.long().reshape(1)]
    sizes = [len(n) for n in numbers]
    read = [part.tolist() for part in torch.cat(numbers).cpu().split(sizes)]  # the one look at the data
    found = read[1 + len(facts) :]
    told = [read[1][-1], *(number for part in read[2 : 1 + len(facts)] for number in part)]
    longest = [part[0] for part in found[1::2]]
    return Plan(clouds, kappa, fields, entries, read[0][0] < 0, found[::2], longest, told), read[1][:-1]


def _enter(clouds: Clouds, kappa, constants: Constants, number: int, fields: Fields, own: bool, slopes: bool) -> Entry:
    keys, simplices = locate(clouds.position, clouds.cloud, kappa, constants, number, fields, own, slopes)
    runs = find_runs(keys)
    corners = clouds.position.size(1) + 1
    start, key, run = list_runs(runs, keys.size(1))
    before = torch.zeros(constants.levels + 1, dtype=torch.int64, device=kappa.device)
    if constants.levels == 1:
        before[1:] = runs.count
    else:
        # Corners are sorted by level first: where each level ends is known from the sizes of the clouds.
        of_level = kappa.unsqueeze(0) == torch.arange(constants.levels, device=kappa.device).unsqueeze(1)
        ends = torch.cumsum(torch.where(of_level, clouds.count, 0).sum(dim=1), 0) * corners
        before[1:] = torch.where(ends > 0, runs.number[(ends - 1).clamp(min=0)], 0)
    longest = (start[1:] - start[:-1]).max()
    return Entry(simplices, runs.order, start, key, run.view(-1, corners), before, longest)


class Lattice:
    """One of the averaged lattices of a plan: filters rows of values."""

    def __init__(self, plan: Plan, constants: Constants, number: int) -> None:
        self.constants, self.entry, self.fields = constants, plan.entries[number], plan.fields[0]
        self.before, self.longest = plan.before[number], plan.longest[number]
        self.dim = plan.clouds.position.size(1)
        self.vertices = self.before[-1]
        self.count = self.entry.before[-1:]
        self.groups = {
            level: self._levels(level) for level in range(constants.levels) if self.before[level + 1] > self.before[level]
        }

    def _levels(self, finest: int) -> list[Level]:
        """The levels of the clouds whose finest one is this."""
        begin, end = self.before[finest], self.before[finest + 1]
        keys = self.entry.keys[:, begin:end].contiguous()
        none = keys[0, :0]
        levels = [Level(keys, self.entry.before[finest + 1 : finest + 2] - begin, none, none, none)]
        for _ in range(finest + 1, self.constants.levels):
            runs = find_runs(parent_keys(levels[-1].keys, levels[-1].count, self.fields))
            start, key, parent = list_runs(runs, end - begin)
            levels.append(Level(key, runs.count, runs.order, start, parent))
        return levels

    def splat(self, rows: Rows, shift: int) -> Rows:
        """Adds the row of each point from ``shift`` on, times its barycentric weights, to the vertices of its simplex."""
        weight, entry = self.entry.simplices.weight, self.entry
        start = entry.start[: self.vertices + 1]
        return sum_runs(rows, entry.order, weight, start, self.count, self.longest, divisor=self.dim + 1, shift=shift)

    def filter(self, tables: list[Rows]) -> list[Rows]:
        """Blurs tables of rows of the finest vertices on every level; empties the list, to spare memory."""
        if len(self.groups) == 1:
            ((finest, levels),) = self.groups.items()
            return self._filter(tables, finest, levels)
        out = [table.like(self.vertices) for table in tables]
        for finest, levels in self.groups.items():
            begin, end = self.before[finest], self.before[finest + 1]
            blurred = self._filter([table.part(begin, end) for table in tables], finest, levels)
            for whole, part in zip(out, blurred, strict=True):
                whole.main[begin:end] = part.main
                whole.extra[begin:end] = part.extra
        return out

    def _filter(self, tables: list[Rows], finest: int, levels: list[Level]) -> list[Rows]:
        blurred: list[list[Rows]] = []
        for number, level in enumerate(levels):
            if number > 0:
                most = 2 ** (self.dim + 1)  # the vertices next to a coarse one, and itself twice
                for place, table in enumerate(tables):
                    none = table.main.new_empty(0)
                    tables[place] = sum_runs(table, level.order, none, level.start, level.count, most, divisor=2, factor=0.5)
            blurred.append(blur(tables, level.keys, level.count, self.constants.stencils[finest + number], self.fields))
        tables.clear()
        for number in range(len(levels) - 1, 0, -1):
            for fine, coarse in zip(blurred[number - 1], blurred[number], strict=True):
                add_coarser(fine, coarse, levels[number].parent, levels[number - 1].count)
            blurred.pop()
        return blurred[0]

    def passes(self, table: Rows, reverse: bool) -> Rows:
        """Blurs a table along the lattice's directions, one after the other.  Over touched vertices only, passes do not
        commute: the transposed filter takes them in reverse."""
        if not self.groups:
            return table
        (levels,) = self.groups.values()
        order = range(len(self.constants.stencils))
        for direction in reversed(order) if reverse else order:
            (table,) = blur([table], levels[0].keys, levels[0].count, self.constants.stencils[direction], self.fields)
        return table
