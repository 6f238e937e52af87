r"""The lattices of all clouds: built in one go, then filter rows of values.

The host learns how many vertices there are, together with all else that it must know, in one read (:class:`Plan`).  How many
the coarser levels have it learns while the finest one is blurred (:class:`Later`), so that they are given no more memory than
they need.  The coarser levels of all clouds are one list, and the finest another, whatever level is a cloud's finest: a level
comes first in the key of a vertex.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..scheme import MultiScale, Scheme
from .build import coarser_entries, coarser_keys
from .clouds import Clouds
from .constants import Constants
from .keys import WORD_BITS, Fields, Runs, find_runs, index_keys, wide_fields
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
        before (list): How many vertices enter at finer levels, for each level and behind the last; or at most.
        told (torch.Tensor): The same, on the device.
        long (bool): Whether a vertex may be made of more than ``PIECE`` corners.
    """

    simplices: Simplices
    runs: Runs
    before: list[int]
    told: Tensor
    long: bool


@dataclass
class Plan:
    """All that the lattices of a call are made of, on the device, and what the host knows of it.

    Args:
        clouds (Clouds): The points.
        kappa (torch.Tensor): The finest level of each cloud, -1 where all its points are one.
        fields (list): Of the keys of every grid.
        entries (list): The finest vertices, for each of several averaged lattices.
        alike (bool): Whether some cloud's points may all be one.
        suspect (bool): Whether a position may be out of the limit, or a value is not finite.
        levels (list): The finest levels that some cloud has, or may have.
        bits (torch.Tensor, optional): If nothing was read: how many bits keys need in each grid.
    """

    clouds: Clouds
    kappa: Tensor
    fields: list[Fields]
    entries: list[Entry]
    alike: bool
    suspect: bool
    levels: list[int]
    bits: Tensor | None = None

    @property
    def bounded(self) -> bool:
        """Whether the host knows only how many vertices there may be."""
        return self.bits is not None


def make_plan(
    clouds: Clouds, scheme: Scheme, constants: Constants, slopes: bool, limit: float, values: Tensor | None, bounded: bool
) -> Plan:
    """Locates all points and reads, once, what the host must know, and whether positions and ``values`` are fine.

    Where keys need more than one word, which only the device knows, all is done again, with two more reads.  If ``bounded``,
    nothing is read, and all that is launched follows from shapes alone: every corner may be a vertex of its own.
    """
    corners = clouds.position.size(1) + 1
    if clouds.position.size(0) * corners >= MOST_CORNERS:
        raise ValueError(
            f"positions and queries have {clouds.position.size(0)} points, counted for each head; allowed for a lattice on a "
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
            entered.append((simplices, find_runs(keys, fields[0], room, levels, clouds.number, PIECE), room))
        if bounded:
            most = [0] * (finest + 1) + [clouds.position.size(0) * corners] * (levels - finest)
            entries = [Entry(simplices, runs, most, told, True) for simplices, runs, told in entered]
            possible = list(range(levels)) if getattr(scheme, "near_field", 0) is None else [finest]
            return Plan(clouds, found.kappa, fields, entries, True, False, possible, found.facts[:grids])
        facts: list[int] = found.facts.tolist()  # the one look at the data
        needed, flags = facts[:grids], facts[grids : grids + FLAGS.value]
        rest = iter(facts[grids + FLAGS.value :])
        wide = [number for number, bits in enumerate(needed) if bits > WORD_BITS and fields[number].words == 1]
        if wide:
            for number in wide:
                fields[number] = wide_fields(fields[number].table)
            continue
        entries = [
            Entry(simplices, runs, [next(rest) for _ in range(levels + 1)], told, next(rest) > 0)
            for simplices, runs, told in entered
        ]
        suspect = flags[FAR.value] + flags[NOT_FINITE.value] > 0
        before = entries[0].before
        present = [level for level in range(levels) if before[level + 1] > before[level]]
        return Plan(clouds, found.kappa, fields, entries, flags[ALIKE.value] > 0, suspect, present)


@dataclass
class Coarser:
    """The vertices of all coarser levels.

    Args:
        runs (Runs): The vertices, as runs of the finest vertices' entries.
        weight (torch.Tensor): The weight of each entry.
        told (torch.Tensor): How many vertices there are before each level and behind the last, and whether one is made of more
            than ``PIECE`` entries, on the device.
        later (Later, optional): The same, if it is to be read.
        entries (int): How many entries a finest vertex has.
    """

    runs: Runs
    weight: Tensor
    told: Tensor
    later: Later | None
    entries: int


class Lattice:
    """One of the averaged lattices of a plan: filters rows of values."""

    def __init__(self, plan: Plan, constants: Constants, number: int) -> None:
        self.constants, self.entry, self.fields = constants, plan.entries[number], plan.fields[0]
        self.dim, before, levels = plan.clouds.position.size(1), self.entry.before, constants.levels
        self.vertices, self.bounded = before[-1], plan.bounded
        self.limit = self.entry.told[levels:] if plan.bounded else None
        finest = min((level for level in range(levels) if before[level + 1] > before[level]), default=levels - 1)
        self.coarser = self._coarser(plan.clouds.number, levels - 1 - finest) if finest < levels - 1 else None

    def _coarser(self, clouds: int, deeper: int) -> Coarser:
        """Finds the vertices of all coarser levels."""
        levels, keys, like = self.constants.levels, self.entry.runs.keys, self.entry.simplices.weight
        entries = coarser_entries(deeper, self.dim)
        if self.vertices * entries >= MOST_CORNERS:
            raise ValueError(
                f"positions touch {self.vertices} vertices of a lattice, with {entries} coarser ones each; allowed on a GPU: "
                f"fewer than {MOST_CORNERS // entries} vertices"
            )
        found, weight = coarser_keys(keys, self.vertices, self.limit, self.fields, clouds, levels, deeper, like)
        told = torch.zeros(levels + 2, dtype=torch.int64, device=keys.device)
        runs = find_runs(found, self.fields, told, levels, clouds, PIECE)
        return Coarser(runs, weight, told, None if self.bounded else Later(told), entries)

    def splat(self, rows: Rows, shift: int) -> Rows:
        """Adds the row of each point from ``shift`` on, times its barycentric weights, to the vertices of its simplex."""
        entry = self.entry
        weight, runs = entry.simplices.weight, entry.runs
        divisor = self.dim + 1
        return sum_runs(rows, runs.order, weight, runs.start, self.vertices, entry.long, divisor, shift, self.limit)

    def filter(self, tables: list[Rows]) -> list[Rows]:
        """Blurs tables of rows of the finest vertices on every level; empties the list, to spare memory."""
        (stencil,), entry, coarser = self.constants.stencils, self.entry, self.coarser
        out = blur(tables, entry.runs.keys, self.vertices, stencil, self.fields, entry.told, self.bounded)
        if coarser is None:
            return out
        # No level has more vertices than a finer one: to interpolate from touched coarse vertices to fine ones is injective.
        count, long = min(self.constants.levels - 1, coarser.entries) * self.vertices, 1
        if coarser.later is not None:
            *_, count, long = coarser.later.read()
        runs, weight, divisor = coarser.runs, coarser.weight, coarser.entries
        limit = coarser.told[self.constants.levels :] if self.bounded else None
        for place, table in enumerate(tables):
            tables[place] = sum_runs(table, runs.order, weight, runs.start, count, long > 0, divisor, 0, limit)
        blurred = blur(tables, runs.keys, count, stencil, self.fields, coarser.told, self.bounded)
        tables.clear()
        for fine, coarse in zip(out, blurred, strict=True):
            add_coarser(fine, coarse, runs.run, weight)
        return out

    def passes(self, tables: list[Rows]) -> list[Rows]:
        """Blurs tables along the lattice's directions, one after the other.  Over touched vertices only, passes do not
        commute: the transposed filter, for a second table, takes them in reverse."""
        stencils, together = self.constants.stencils, self.constants.together
        keys, count = self.entry.runs.keys, self.vertices
        assert together is not None
        near = None
        if count <= SLAB:
            index = index_keys(keys, count, self.limit)
            found = neighbours(keys, count, self.limit, index, 0, count, together, self.fields)
            near = found.split([stencil.offsets.rows for stencil in stencils])
        out: list[Rows] = []
        while tables:
            table = tables.pop(0)
            spare = table.like(0 if near is None else count)
            for direction in range(len(stencils)) if not out else reversed(range(len(stencils))):
                if near is None:
                    (table,) = blur([table], keys, count, stencils[direction], self.fields, self.entry.told, self.bounded)
                else:
                    blur_slab(table, near[direction], stencils[direction], spare, self.entry.told)
                    table, spare = spare, table
            out.append(table)
        return out
