r"""The lattices of all clouds: built in one go, then filter rows of values.

The host learns how many vertices there are, together with all else that it must know, in one read (:class:`Plan`), which the
backward pass need not repeat.  How many the coarser levels have only the device knows; the host, how many there may be.  The
coarser levels of all clouds are one list, and the finest another, whatever level is a cloud's finest: a level comes first in
the key of a vertex.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..scheme import MultiScale, Scheme
from .blurring import SLAB, add_coarser, blur, blur_slab
from .build import coarser_entries, coarser_keys, neighbours
from .clouds import Clouds
from .constants import Constants
from .keys import Fields, Runs, find_runs, index_keys
from .levels import choose_levels
from .locate import Simplices, locate
from .rows import PIECE, Rows, sum_runs
from .survey import ALIKE, FAR, FLAGS, NOT_FINITE, survey

MOST_CORNERS = 2**31
"""Corners of simplices are counted in 32 bits."""

ROOM = 1 << 29
"""Numbers that a table of coarser vertices may have, or as many as that of the finest has."""


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
        lacking (torch.Tensor, optional): If nothing was read: how many more words keys need in each grid.
    """

    clouds: Clouds
    kappa: Tensor
    fields: list[Fields]
    entries: list[Entry]
    alike: bool
    suspect: bool
    levels: list[int]
    lacking: Tensor | None = None

    @property
    def bounded(self) -> bool:
        """Whether the host knows only how many vertices there may be."""
        return self.lacking is not None


def make_plan(
    clouds: Clouds, scheme: Scheme, constants: Constants, slopes: bool, limit: float, values: Tensor | None, bounded: bool
) -> Plan:
    """Locates all points and reads, once, what the host must know, and whether positions and ``values`` are fine.

    Where keys need more words than in the last call, which only the device knows, all is done again, with another read.  If
    ``bounded``, nothing is read, and all that is launched follows from shapes alone: every corner may be a vertex of its own.
    """
    corners = clouds.position.size(1) + 1
    if clouds.position.size(0) * corners >= MOST_CORNERS:
        raise ValueError(
            f"positions and queries have {clouds.position.size(0)} points, counted for each head; allowed for a lattice on a "
            f"GPU in {corners - 1} dimensions: fewer than {MOST_CORNERS // corners}"
        )
    levels, finest = constants.levels, scheme.near_field or 0 if isinstance(scheme, MultiScale) else 0
    own = isinstance(scheme, MultiScale) and clouds.begin == 0
    while True:
        # Where points move and nobody looks, keys have a whole word at least, which leaves them room.
        words = [max(1 if bounded else 0, words_of.number) for words_of in constants.words]
        room = constants.lattices * (levels + 2)
        found = survey(clouds, values, constants, words, finest, limit, room)
        fields, grids = found.fields, len(found.fields)
        if isinstance(scheme, MultiScale) and scheme.near_field is None and levels > 1:
            choose_levels(clouds, scheme, constants, found)
        entered = []
        for number in range(constants.lattices):
            keys, simplices = locate(clouds, found.kappa, constants, number, fields[0], own, slopes and own)
            told = found.facts[grids + FLAGS.value + number * (levels + 2) :]
            entered.append((simplices, find_runs(keys, fields[0], told, levels, clouds.number, PIECE), told))
        if bounded:
            most = [0] * (finest + 1) + [clouds.position.size(0) * corners] * (levels - finest)
            entries = [Entry(simplices, runs, most, told, True) for simplices, runs, told in entered]
            possible = list(range(levels)) if getattr(scheme, "near_field", 0) is None else [finest]
            return Plan(clouds, found.kappa, fields, entries, True, False, possible, found.facts[:grids])
        facts: list[int] = found.facts.tolist()  # the one look at the data
        lacking, flags, rest = facts[:grids], facts[grids : grids + FLAGS.value], iter(facts[grids + FLAGS.value :])
        for words_of, some in zip(constants.words, (lacking[:1], lacking[1:2], lacking[2:]), strict=True):
            words_of.learn(max(some, default=0))
        if max(lacking) > 0:
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
        entries (int): How many entries a finest vertex has.
        most (int): How many vertices there may be: no level has more than a finer one, since to interpolate from touched
            coarse vertices to fine ones is injective.
    """

    runs: Runs
    weight: Tensor
    told: Tensor
    entries: int
    most: int


class Lattice:
    """One of the averaged lattices of a plan: filters rows of values."""

    def __init__(self, plan: Plan, constants: Constants, number: int) -> None:
        self.constants, self.entry, self.fields = constants, plan.entries[number], plan.fields[0]
        self.dim, before, levels = plan.clouds.position.size(1), self.entry.before, constants.levels
        self.vertices, self.bounded = before[-1], plan.bounded
        self.limit = self.entry.told[levels:] if plan.bounded else None
        finest = min((level for level in range(levels) if before[level + 1] > before[level]), default=levels - 1)
        self.deeper, self.clouds = levels - 1 - finest, plan.clouds.number
        self.near = self._neighbours() if self.vertices <= SLAB else None

    def _neighbours(self) -> Tensor:
        """The neighbours of the finest vertices.  They are sought before anything else, so that the device has something to do
        when it has told how many vertices there are."""
        keys, count, limit = self.entry.runs.keys, self.vertices, self.limit
        offsets = self.constants.together or self.constants.stencils[0].offsets
        return neighbours(keys, count, limit, index_keys(keys, count, limit), 0, count, offsets, self.fields)

    @cached_property
    def coarser(self) -> Coarser:
        """The vertices of all coarser levels."""
        levels, deeper, clouds = self.constants.levels, self.deeper, self.clouds
        keys, like, entries = self.entry.runs.keys, self.entry.simplices.weight, coarser_entries(deeper, self.dim)
        if self.vertices * entries >= MOST_CORNERS:
            raise ValueError(
                f"positions touch {self.vertices} vertices of a lattice, with {entries} coarser ones each; allowed on a GPU: "
                f"fewer than {MOST_CORNERS // entries} vertices"
            )
        found, weight = coarser_keys(
            keys, self.vertices, self.limit, self.fields, self.constants.free, clouds, levels, deeper, like
        )
        told = torch.zeros(levels + 2, dtype=torch.int64, device=keys.device)
        runs = find_runs(found, self.fields, told, levels, clouds, PIECE)
        enter = zip(self.entry.before[1:], self.entry.before, strict=False)
        most = sum((behind - before) * (levels - 1 - level) for level, (behind, before) in enumerate(enter))
        return Coarser(runs, weight, told, entries, most)

    def splat(self, rows: Rows, shift: int) -> Rows:
        """Adds the row of each point from ``shift`` on, times its barycentric weights, to the vertices of its simplex."""
        entry = self.entry
        weight, runs = entry.simplices.weight, entry.runs
        divisor = self.dim + 1
        return sum_runs(rows, runs.order, weight, runs.start, self.vertices, entry.long, divisor, shift, self.limit)

    def filter(self, tables: list[Rows]) -> list[Rows]:
        """Blurs tables of rows of the finest vertices on every level; empties the list, to spare memory."""
        (stencil,), entry = self.constants.stencils, self.entry
        out = blur(tables, entry.runs.keys, self.vertices, stencil, self.fields, entry.told, self.bounded, self.near)
        self.near = None
        if self.deeper == 0:
            return out
        # Found when the finest level's blur has been launched: the device has enough to do while the host launches what sorts.
        most, channels = self.coarser.most, out[0].main.size(1)
        # If there is room for all, neighbours are sought once; else each table goes on its own, some channels at a time.
        fits = most * channels <= max(ROOM, self.vertices * channels)
        width = channels if fits else max(16, 2 * self.vertices * channels // most // 16 * 16)
        for some in [slice(len(tables))] if fits else [slice(place, place + 1) for place in range(len(tables))]:
            for begin in range(0, max(1, channels), max(1, width)):
                self._add_coarser(tables[some], out[some], slice(begin, begin + width))
        tables.clear()
        return out

    def _add_coarser(self, tables: list[Rows], out: list[Rows], channels: slice) -> None:
        """Adds what some channels of tables give through the coarser levels."""
        coarser, (stencil,) = self.coarser, self.constants.stencils
        runs, weight, most, limit = coarser.runs, coarser.weight, coarser.most, coarser.told[self.constants.levels :]
        sums = [
            sum_runs(table.columns(channels), runs.order, weight, runs.start, most, True, coarser.entries, 0, limit)
            for table in tables
        ]
        blurred = blur(sums, runs.keys, most, stencil, self.fields, coarser.told, True)
        for fine, coarse in zip(out, blurred, strict=True):
            add_coarser(fine.columns(channels), coarse, runs.run, weight)

    def passes(self, tables: list[Rows]) -> list[Rows]:
        """Blurs tables along the lattice's directions, one after the other.  Over touched vertices only, passes do not
        commute: the transposed filter, for a second table, takes them in reverse."""
        stencils, keys, count = self.constants.stencils, self.entry.runs.keys, self.vertices
        near = None if self.near is None else self.near.split([stencil.offsets.rows for stencil in stencils])
        self.near = None
        out: list[Rows] = []
        while tables:
            table = tables.pop(0)
            spare = table.like(0 if near is None else count)
            for direction in range(len(stencils)) if not out else reversed(range(len(stencils))):
                if near is None:
                    (table,) = blur([table], keys, count, stencils[direction], self.fields, self.entry.told, self.bounded)
                else:
                    blur_slab(table, near[direction], stencils[direction], spare, self.entry.told, self.bounded)
                    table, spare = spare, table
            out.append(table)
        return out
