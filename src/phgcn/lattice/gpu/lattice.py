r"""The lattices of all clouds: built in one go, then filter rows of values.

The host learns how many vertices there are, together with all else that it must know, in one read (:class:`Plan`).  How many
the coarser levels have it learns while the finest one is blurred (:class:`Later`), so that none is given more memory than it
needs.  No coarser level has more vertices than a finer one: to interpolate from the coarse vertices to the touched fine ones
is injective.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..scheme import MultiScale, Scheme
from .build import parent_keys
from .clouds import Clouds
from .constants import Constants
from .keys import WORD_BITS, Fields, Runs, find_runs, wide_fields
from .levels import choose_levels
from .locate import Simplices, locate
from .rows import PIECE, SLAB, Rows, add_coarser, blur, blur_slab, neighbours, sum_runs
from .survey import ALIKE, FAR, FLAGS, NOT_FINITE, survey

MOST_CORNERS = 2**31
"""Corners of simplices are counted in 32 bits."""


class Later:
    """Numbers that the host reads some time after the device was asked for them."""

    def __init__(self, numbers: Tensor) -> None:
        self.numbers = numbers.to("cpu", non_blocking=True)
        self.there = torch.cuda.Event() if numbers.is_cuda else None
        if self.there is not None:
            self.there.record()

    def read(self) -> list:
        """Waits for them."""
        if self.there is not None:
            self.there.synchronize()
        return self.numbers.tolist()


@dataclass
class Entry:
    """The points of all clouds, and the vertices of the simplices that they lie in, each cloud's at its finest level.

    Args:
        simplices (Simplices): Where the points lie.
        runs (Runs): The vertices, as runs of the simplices' corners; the level comes first in their keys.
        before (list): How many vertices enter at finer levels, for each level and behind the last.
        long (bool): Whether a vertex is made of more than ``PIECE`` corners.
    """

    simplices: Simplices
    runs: Runs
    before: list[int]
    long: bool


@dataclass
class Plan:
    """All that the lattices of a call are made of, on the device, and what the host knows of it.

    Args:
        clouds (Clouds): The points.
        kappa (torch.Tensor): The finest level of each cloud, -1 where all its points are one.
        fields (list): Of the keys of every grid.
        entries (list): The finest vertices, for each of several averaged lattices.
        alike (bool): Whether some cloud's points are all one.
        suspect (bool): Whether a position may be out of the limit, or a value is not finite.
    """

    clouds: Clouds
    kappa: Tensor
    fields: list[Fields]
    entries: list[Entry]
    alike: bool
    suspect: bool

    def levels(self) -> list[int]:
        """The finest levels that some cloud has."""
        first = self.entries[0].before
        return [level for level in range(len(first) - 1) if first[level + 1] > first[level]]


def make_plan(clouds: Clouds, scheme: Scheme, constants: Constants, slopes: bool, limit: float, values: Tensor | None) -> Plan:
    """Locates all points and reads, once, what the host must know, and whether positions and ``values`` are fine.

    Where keys need more than one word, which only the device knows, all is done again, with two more reads.
    """
    corners = clouds.position.size(1) + 1
    if len(clouds.position) * corners >= MOST_CORNERS:
        raise ValueError(
            f"positions and queries have {len(clouds.position)} points, counted for each head; allowed for a lattice on a "
            f"GPU in {corners - 1} dimensions: fewer than {MOST_CORNERS // corners}"
        )
    levels, finest = constants.levels, scheme.near_field or 0 if isinstance(scheme, MultiScale) else 0
    found = survey(clouds, values, constants.grids, levels, finest, limit, constants.lattices * (levels + 2))
    fields, grids = found.fields, len(found.fields)
    own = isinstance(scheme, MultiScale) and clouds.begin == 0
    while True:
        if isinstance(scheme, MultiScale) and scheme.near_field is None and levels > 1:
            choose_levels(clouds, scheme, constants, found)
        entered = []
        for number in range(constants.lattices):
            keys, simplices = locate(clouds, found.kappa, constants, number, fields[0], own, slopes and own)
            room = found.facts[grids + FLAGS.value + number * (levels + 2) :]
            entered.append((simplices, find_runs(keys, fields[0], room, levels, clouds.number, PIECE)))
        facts: list[int] = found.facts.tolist()  # the one look at the data
        needed, flags = facts[:grids], facts[grids : grids + FLAGS.value]
        rest = iter(facts[grids + FLAGS.value :])
        wide = [number for number, bits in enumerate(needed) if bits > WORD_BITS and fields[number].words == 1]
        if wide:
            for number in wide:
                fields[number] = wide_fields(fields[number].table)
            continue
        entries = [Entry(*pair, [next(rest) for _ in range(levels + 1)], next(rest) > 0) for pair in entered]
        suspect = flags[FAR.value] + flags[NOT_FINITE.value] > 0
        return Plan(clouds, found.kappa, fields, entries, flags[ALIKE.value] > 0, suspect)


@dataclass
class Level:
    """The vertices of one level: the first runs, as many as ``count`` says."""

    runs: Runs
    count: int


@dataclass
class Group:
    """The clouds of one finest level: their first and last vertex there, and the vertices of all levels from it on."""

    finest: int
    begin: int
    end: int
    levels: list[Level]


class Lattice:
    """One of the averaged lattices of a plan: filters rows of values."""

    def __init__(self, plan: Plan, constants: Constants, number: int) -> None:
        self.constants, self.entry, self.fields = constants, plan.entries[number], plan.fields[0]
        self.dim, self.clouds = plan.clouds.position.size(1), plan.clouds.number
        before = self.entry.before
        self.vertices = before[-1]
        self.groups = [
            Group(level, before[level], before[level + 1], [])
            for level in range(constants.levels)
            if before[level + 1] > before[level]
        ]
        coarser = sum(constants.levels - 1 - group.finest for group in self.groups)
        facts = torch.empty(coarser, 2, dtype=torch.int64, device=plan.kappa.device) if coarser else None
        rest = iter([] if facts is None else facts.unbind())
        for group in self.groups:
            self._build(group, rest)
        self.later = None if facts is None else Later(facts)

    def _build(self, group: Group, facts) -> None:
        """Finds the vertices of all levels of a group."""
        runs, size = self.entry.runs, group.end - group.begin
        runs = Runs(runs.order, runs.start, runs.keys[:, group.begin : group.end].contiguous(), runs.run)
        group.levels.append(Level(runs, size))
        count = None
        for _ in range(group.finest + 1, self.constants.levels):
            keys = parent_keys(runs.keys, size, count, self.fields)
            told = next(facts)
            runs = find_runs(keys, self.fields, told, 0, self.clouds, PIECE)
            group.levels.append(Level(runs, size))
            count = told[:1]

    def _learn(self) -> None:
        """How many vertices the coarser levels have."""
        if self.later is not None:
            counts = iter(self.later.read())
            for group in self.groups:
                for level in group.levels[1:]:
                    level.count = next(counts)[0]
            self.later = None

    def splat(self, rows: Rows, shift: int) -> Rows:
        """Adds the row of each point from ``shift`` on, times its barycentric weights, to the vertices of its simplex."""
        entry = self.entry
        weight, runs = entry.simplices.weight, entry.runs
        return sum_runs(rows, runs.order, weight, runs.start, self.vertices, entry.long, divisor=self.dim + 1, shift=shift)

    def filter(self, tables: list[Rows]) -> list[Rows]:
        """Blurs tables of rows of the finest vertices on every level; empties the list, to spare memory."""
        finest = [self._blur([table.part(group.begin, group.end) for table in tables], group, 0) for group in self.groups]
        self._learn()
        if len(self.groups) == 1:
            whole = finest[0]
            self._coarser(tables, self.groups[0], whole)
            return whole
        out = [table.like(self.vertices) for table in tables]
        for group, blurred in zip(self.groups, finest, strict=True):
            self._coarser([table.part(group.begin, group.end) for table in tables], group, blurred)
            for whole_table, part in zip(out, blurred, strict=True):
                whole_table.main[group.begin : group.end] = part.main
                whole_table.extra[group.begin : group.end] = part.extra
        return out

    def _blur(self, tables: list[Rows], group: Group, number: int) -> list[Rows]:
        level, stencil = group.levels[number], self.constants.stencils[group.finest + number]
        out = [table.like(level.count) for table in tables]
        blur(tables, level.runs.keys, level.count, stencil, self.fields, out)
        return out

    def _coarser(self, tables: list[Rows], group: Group, finest: list[Rows]) -> None:
        """Adds what the coarser levels of a group give to its blurred finest one; empties the list of tables."""
        blurred = [finest]
        for number, level in enumerate(group.levels[1:], start=1):
            # A coarse vertex is made of the fine ones next to it, and of itself twice.
            long, none = 2 ** (self.dim + 1) > PIECE, finest[0].main.new_empty(0)
            for place, table in enumerate(tables):
                tables[place] = sum_runs(table, level.runs.order, none, level.runs.start, level.count, long, 2, 0.5)
            blurred.append(self._blur(tables, group, number))
        tables.clear()
        for number in range(len(blurred) - 1, 0, -1):
            for fine, coarse in zip(blurred[number - 1], blurred.pop(), strict=True):
                add_coarser(fine, coarse, group.levels[number].runs.run)

    def passes(self, tables: list[Rows]) -> list[Rows]:
        """Blurs tables along the lattice's directions, one after the other.  Over touched vertices only, passes do not
        commute: the transposed filter, for a second table, takes them in reverse."""
        if not self.groups:
            return tables
        (group,), stencils, together = self.groups, self.constants.stencils, self.constants.together
        keys, count = group.levels[0].runs.keys, group.levels[0].count
        assert together is not None
        near = None if count > SLAB else neighbours(keys, count, 0, count, together, self.fields).split(stencils)
        out: list[Rows] = []
        while tables:
            table = tables.pop(0)
            spare = table.like(count)
            for direction in range(len(stencils)) if not out else reversed(range(len(stencils))):
                if near is None:
                    blur([table], keys, count, stencils[direction], self.fields, [spare])
                else:
                    blur_slab(table, near[direction], stencils[direction], spare)
                table, spare = spare, table
            out.append(table)
        return out
