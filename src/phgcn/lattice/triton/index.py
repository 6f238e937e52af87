r"""Index: the vertices that the points' simplices touch, sorted by level, cloud and coordinates, and those of coarser levels.

The vertices of all clouds are in one list; a key says which level and cloud a vertex belongs to.  Coordinates in keys count
from a base that all levels share and that is even on each of them, so that a vertex :math:`v` still lies between :math:`\lfloor
v/2 \rfloor` and :math:`\lceil v/2 \rceil` of the next coarser level.  A margin before the base, equally wide on all levels, is
free for the neighbours that the blur searches for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...runtime.triton import block_size, cdiv, kernel, tl, triton
from .constants import Constants
from .keys import BASE, BITS, SHIFT, WORD, KeyLayout, load_key, no_key, pack_word
from .locate import barycentric, fractions, ranks
from .plan import Corners, Plan
from .runs import find_runs

MAX_ENTRIES = 2**31
"""Upper bound of the number of entries, which are counted in 32 bits."""


@dataclass
class Vertices:
    """Vertices, and the entries that make them: the corners of points, or, on coarser levels, the children, which are finer
    vertices.

    Args:
        keys (torch.Tensor): The keys of the vertices, sorted, :math:`(W, \\ge V)`.
        count (int): How many vertices there are, or, on coarser levels, an upper bound.
        level_offset (torch.Tensor): How many vertices there are before each level and behind the last, int64 on the device,
            :math:`(K+1,)`.
        exact (bool): Whether ``count`` is exact; else only the device knows, at the end of ``level_offset``.
        order, start (torch.Tensor): The entries sorted by vertex and where those of a vertex start; see
            :class:`phgcn.lattice.triton.plan.Corners`.
        of_entry (torch.Tensor): The vertex of each entry, -1 for none, int32, :math:`(E,)`.
        weight (torch.Tensor): The weight of each entry, :math:`(E,)`.
        entries (int): How many entries each point, or finer vertex, has.
        long (bool): Whether a vertex may have more than ``LONG_RUN`` entries.
    """

    keys: Tensor
    count: int
    level_offset: Tensor
    exact: bool
    order: Tensor
    start: Tensor
    of_entry: Tensor
    weight: Tensor
    entries: int
    long: bool

    @property
    def device_count(self) -> Tensor | None:
        """How many vertices there are, on the device, where the host knows only an upper bound."""
        return None if self.exact else self.level_offset[-1:]

    def counted(self) -> Vertices:
        """Returns the same vertices with their exact number, which the host reads from the device."""
        return replace(self, count=int(self.level_offset[-1]), exact=True)


@dataclass(frozen=True)
class LevelCounts:
    """What the host knows of a lattice's vertices.

    Args:
        level_offset (list): How many vertices there are before each level and behind the last.
        long (bool): Whether a run of corners is long.
    """

    level_offset: list[int]
    long: bool

    @property
    def count(self) -> int:
        """How many vertices there are."""
        return self.level_offset[-1]

    @property
    def levels(self) -> list[int]:
        """The levels that some cloud starts at."""
        return [k for k, (a, b) in enumerate(zip(self.level_offset, self.level_offset[1:], strict=False)) if b > a]


def index(keys: Tensor, layout: KeyLayout, facts: Tensor, levels: int, clouds: int) -> tuple[Corners, Tensor]:
    """Sorts corners by their keys, (W, P(D+1)), and numbers the vertices, which are the runs of equal keys: see
    :func:`find_runs`."""
    return find_runs(keys, layout, facts, levels, clouds)


def finest_vertices(plan: Plan, lattice: int, keys: Tensor, counts: LevelCounts, facts: Tensor) -> Vertices:
    """Describes the vertices that points touch."""
    simplices, corners = plan.simplices[lattice], plan.corners[lattice]
    corner_count, levels = simplices.weight.size(1), len(counts.level_offset) - 1
    return Vertices(
        keys, counts.count, facts[: levels + 1], True, corners.order, corners.start, corners.vertex, simplices.weight,
        corner_count, counts.long,
    )  # fmt: skip


def vertex_keys(plan: Plan, lattice: int, count: int, layout: KeyLayout, clouds: int, free: int) -> Tensor:
    """Packs the keys of the vertices that points touch, (W, V), from the cell and the rank of one corner of each."""
    simplices, corners = plan.simplices[lattice], plan.corners[lattice]
    keys = layout.new_keys(count)
    size = block_size(128, count)
    _vertex_keys[(cdiv(count, size),)](
        corners.order, corners.start, simplices.cell, simplices.rank, plan.cloud, plan.level, layout.table, keys,
        count, clouds, free, D=simplices.cell.size(1), WORDS=layout.words, BLOCK=size,
    )  # fmt: skip
    return keys


@kernel(do_not_specialize=["count", "clouds"])
def _vertex_keys(
    order, start, cell, rank, cloud, level, layout, keys, count, clouds, free,
    D: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    v = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = v < count
    entry = tl.load(order + tl.load(start + v, mask=inside, other=0), mask=inside, other=0).to(tl.int64)
    i, corner = entry // (D + 1), entry % (D + 1)
    of_level = tl.load(level + i, mask=inside, other=0).to(tl.int64)
    packed_rank = tl.load(rank + i, mask=inside, other=0)
    place = ()
    for j in tl.static_range(D):
        moved = (((packed_rank >> (4 * j)) & 15) < corner).to(tl.int64)
        base = tl.load(layout + BASE * (D + 1) + 1 + j) >> of_level
        x = tl.load(cell + i * D + j, mask=inside, other=0).to(tl.int64) + moved - base + free
        place = place + (x,)  # type: ignore[assignment]  # noqa: RUF005
    prefix = of_level * clouds + tl.load(cloud + i, mask=inside, other=0)
    for a in tl.static_range(WORDS):
        tl.store(keys + a * count.to(tl.int64) + v, pack_word(prefix, place, layout, a, D, D + 1), mask=inside)


# Coarser levels


def coarser_entries(steps: int, dim: int) -> int:
    """Returns how many entries a vertex has among those of the next ``steps`` coarser levels."""
    return sum(min(2**step, dim + 1) for step in range(1, steps + 1))


def coarsen(fine: Vertices, counts: LevelCounts, layout: KeyLayout, constants: Constants, clouds: int) -> Vertices:
    r"""Finds the vertices of all coarser levels between which the finest vertices lie, and their weights.

    A vertex :math:`v` lies between :math:`\lfloor v/2 \rfloor` and :math:`\lceil v/2 \rceil` of the next level, halfway,
    and so on: on level :math:`j` after its own, the :math:`2^j` vertices :math:`\lfloor (v + s) / 2^j \rfloor` count
    :math:`2^{-j}` each.  Where these are more than a simplex has corners, it has one entry for each corner of the simplex
    that it lies in.

    How many vertices there are only the device knows.  No level has more than a finer one, since interpolation from touched
    coarse vertices to fine ones is injective: that gives an upper bound.
    """
    dim, levels = layout.table.size(1) - 1, constants.levels
    steps = levels - 1 - min(counts.levels)
    entries = coarser_entries(steps, dim)
    if fine.count * entries >= MAX_ENTRIES:
        raise ValueError(
            f"positions touch {fine.count} vertices of a lattice, with {entries} coarser ones each; allowed on a GPU: "
            f"fewer than {MAX_ENTRIES // entries} vertices"
        )
    keys, weight = layout.new_keys(fine.count * entries), fine.weight.new_empty(fine.count * entries)
    size = block_size(128, fine.count)
    _coarsen[(cdiv(fine.count, size),)](
        fine.keys, layout.table, keys, weight, fine.count, fine.keys.size(1), clouds, levels, constants.free,
        D=dim, STEPS=steps, ENTRIES=entries, WORDS=layout.words, BLOCK=size,
    )  # fmt: skip
    facts = torch.empty(levels + 2, dtype=torch.int64, device=keys.device)
    runs, run_keys = find_runs(keys, layout, facts, levels, clouds)
    on_level = [b - a for a, b in zip(counts.level_offset, counts.level_offset[1:], strict=False)]
    bound = sum(number * (levels - 1 - level) for level, number in enumerate(on_level))
    return Vertices(run_keys, bound, facts[: levels + 1], False, runs.order, runs.start, runs.vertex, weight, entries, True)


@triton.jit
def _unpack(keys, v, inside, stride, layout, D: tl.constexpr, WORDS: tl.constexpr):
    """Reads the fields of keys: the prefix and D coordinates."""
    fields = ()
    for f in tl.static_range(D + 1):
        shift = tl.load(layout + SHIFT * (D + 1) + f)
        field = v * 0
        for a in tl.static_range(WORDS):
            here = load_key(keys, a * stride.to(tl.int64) + v, inside) >> shift
            here = here & (((shift * 0 + 1) << tl.load(layout + BITS * (D + 1) + f)) - 1)
            field += tl.where(tl.load(layout + WORD * (D + 1) + f) == a, here, 0)
        fields = fields + (field,)  # type: ignore[assignment]  # noqa: RUF005
    return fields


@kernel(do_not_specialize=["count", "stride", "clouds"])
def _coarsen(
    keys, layout, coarse_keys, weight, count, stride, clouds, levels, free,
    D: tl.constexpr, STEPS: tl.constexpr, ENTRIES: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Packs the keys of all entries of each vertex, the sentinel for those of weight 0, and their weights."""
    v = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = v < count
    fields = _unpack(keys, v, inside, stride, layout, D, WORDS)
    prefix = fields[0]
    to = v * ENTRIES
    for step in tl.static_range(1, STEPS + 1):
        exists = prefix // clouds + step < levels
        place = ()
        for j in tl.static_range(D):
            place = place + ((fields[j + 1] - free).to(tl.float64),)  # type: ignore[assignment]  # noqa: RUF005
        _, fraction = fractions(place, 0.5**step, D)
        rank = ranks(fraction, D)
        share = barycentric(fraction, rank, D)
        for corner in tl.static_range(2**step if 2**step < D + 1 else D + 1):
            place = ()
            for j in tl.static_range(D):
                if 2**step < D + 1:
                    moved = (fields[j + 1] - free + corner) >> step
                else:
                    moved = ((fields[j + 1] - free) >> step) + (rank[j] < corner).to(tl.int64)
                place = place + (moved + free,)  # type: ignore[assignment]  # noqa: RUF005
            w = prefix.to(tl.float64) * 0.0 + 0.5**step if 2**step < D + 1 else share[corner]
            present = inside & exists & (w > 0)
            at = to
            for a in tl.static_range(WORDS):
                key = pack_word(prefix + step * clouds, place, layout, a, D, D + 1)
                tl.store(coarse_keys + at, tl.where(present, key, no_key(coarse_keys)), mask=inside)
                at += count.to(tl.int64) * ENTRIES
            tl.store(weight + to, tl.where(present, w, 0.0).to(weight.dtype.element_ty), mask=inside)
            to += 1
