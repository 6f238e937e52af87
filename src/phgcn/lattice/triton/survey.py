r"""One look at all points and values: bounds and means of clouds, what is not finite, and the layout of keys.

What is computed of a cloud comes from its own points, chunk by chunk, in an order that does not depend on other clouds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ...runtime.triton import block_size, kernel, power_of_2, tl, triton
from ..levels import CELL_DIMENSIONS as CELLS
from . import plan
from .clouds import CHUNK, FIRST_CHUNK, START, Clouds, graph_of_chunk
from .constants import Constants
from .keys import BASE, BITS, HALF_WORD_BITS, SHIFT, WORD, WORD_BITS, KeyLayout

CHUNKS = 1024
"""Chunks, times coordinates, that a program of :func:`_survey_clouds` takes at a time."""

CELL_DIMENSIONS = tl.constexpr(CELLS)

VALUES = 4096
"""Values that a program looks at together."""

FAR, NOT_FINITE, COINCIDENT, COPIES, NARROW, FLAGS = (
    tl.constexpr(place) for place in (plan.FAR, plan.NOT_FINITE, plan.COINCIDENT, plan.COPIES, plan.NARROW, plan.FLAGS)
)
LOW, HIGH, SUM, KUHN_LOW, KUHN_HIGH, BOUNDS = (tl.constexpr(place) for place in range(6))
"""What is known of a chunk, D numbers each: least and greatest coordinates, sum, least and greatest Kuhn coordinates; then, one
number each, the flags ``FAR`` and ``NOT_FINITE``."""


class Survey(NamedTuple):
    r"""What is known of clouds, on the device.

    Args:
        mean (torch.Tensor): The mean of each cloud, float64, :math:`(clouds, D)`.
        kappa (torch.Tensor): The finest level of each cloud, -1 where all its points coincide, int32.
        key_layout (torch.Tensor): Where the fields of each grid's keys are, int64, :math:`(Q, 4, 1+D)`.
        facts (torch.Tensor): See :class:`phgcn.lattice.triton.plan.Plan`; not yet the numbers of vertices.
    """

    mean: Tensor
    kappa: Tensor
    key_layout: Tensor
    facts: Tensor


WIDTH_BITS, WIDTH_MASK = tl.constexpr(8), tl.constexpr(255)
"""Bits that each of the three widths of keys takes where they are passed as one number, and all of them set."""


class ChunkSizes(NamedTuple):
    """What the survey of chunks is compiled for: grids that keys are made of, coordinates, the least power of 2 that is not
    less, values that a program looks at together."""

    grids: int
    dim: int
    dim_block: int
    block: int


class SurveySizes(NamedTuple):
    """What the survey of clouds is compiled for.

    Args:
        grids, levels (int): Grids that keys are made of, and levels of the lattice.
        finest (int): The finest level of all clouds, where the scheme tells it.
        to_itself (bool): Whether points attend to themselves.
        dim, dim_block (int): Coordinates, and the least power of 2 that is not less.
        block (int): Chunks that a program takes at once.
    """

    grids: int
    levels: int
    finest: int
    to_itself: bool
    dim: int
    dim_block: int
    block: int


def survey(
    clouds: Clouds,
    values: Tensor | None,
    constants: Constants,
    widths: list[int],
    finest: int,
    limit: float,
    narrow: float = 0.0,
    join: Callable[[Tensor], None] | None = None,
) -> Survey:
    r"""Looks at all points, and at all values if given.

    Args:
        clouds (Clouds): The points.
        values (torch.Tensor, optional): What must be finite, contiguous.
        constants (Constants): Of the scheme.
        widths (list): The width of the keys of the lattice, of pair-counting cells and of near-field cells.
        finest (int): The finest level of all clouds, where the scheme tells it.
        limit (float): How far from the origin a position may be.
        narrow (float, optional): Where the diagonal of a cloud's bounding box is below this, and not 0, a flag is set.
            (default: :obj:`0.0`)
        join (callable, optional): Widens the bounds of chunks, by those that other processes have. (default: :obj:`None`)
    """
    sizes, dim, device = clouds.sizes, clouds.position.size(1), clouds.position.device
    grids, levels = constants.grids.size(0), constants.levels
    facts = torch.empty(grids + FLAGS.value + constants.lattices * (levels + 2), dtype=torch.int64, device=device)
    chunk_bounds = torch.empty(sizes.chunks, BOUNDS.value * dim + 2, dtype=torch.float64, device=device)
    count, several = 0 if values is None else values.numel(), clouds.graphs > 1
    # Passed as float32, so rounded down a little: positions beyond it are compared exactly on the host.
    _survey_chunks[(sizes.chunks,)](
        clouds.position, values if count > 0 else None, clouds.order if several else None, sizes.table,
        constants.lattice_map[0], clouds.cloud, chunk_bounds, facts, clouds.graphs, clouds.heads, count, 0.999 * limit,
        SIZES=ChunkSizes(grids, dim, power_of_2(dim), block_size(VALUES, count)),
    )  # fmt: skip
    if join is not None:
        join(chunk_bounds)
    surveyed = Survey(
        mean=torch.empty(clouds.count, dim, dtype=torch.float64, device=device),
        kappa=torch.empty(clouds.count, dtype=torch.int32, device=device),
        key_layout=torch.empty(grids, 4, 1 + dim, dtype=torch.int64, device=device),
        facts=facts,
    )
    _survey_clouds[(grids + clouds.count,)](
        chunk_bounds, sizes.table, constants.grids, surveyed, clouds.graphs, clouds.heads,
        sum(width << number * WIDTH_BITS.value for number, width in enumerate(widths)), narrow,
        SIZES=SurveySizes(
            grids, levels, finest, clouds.to_itself, dim, power_of_2(dim), max(1, CHUNKS // power_of_2(dim))
        ),
    )  # fmt: skip
    return surveyed


def layouts(key_layout: Tensor, widths: list[int]) -> list[KeyLayout]:
    """Lists the layouts of all grids; the last width is that of all near-field cells."""
    return [KeyLayout(table, widths[min(grid, len(widths) - 1)]) for grid, table in enumerate(key_layout.unbind())]


@triton.jit
def _store_bounds(low, high, x, live, mask):
    """Stores the least and the greatest of each column of ``x``, of rows that are live."""
    tl.store(low, tl.min(tl.where(live, x, float("inf")), axis=0), mask=mask)
    tl.store(high, tl.max(tl.where(live, x, float("-inf")), axis=0), mask=mask)


@kernel(do_not_specialize=["graphs", "count"])
def _survey_chunks(
    points, values, order, table, lattice_map, cloud, bounds, facts, graphs, heads, count, limit,
    SIZES: tl.constexpr,
):  # fmt: skip
    """Computes bounds and sum of a chunk of points, and their bounds in Kuhn coordinates; checks that they are within the limit
    and that a share of the values is finite.  Points have an ``order`` where there are several graphs; else their cloud is
    written here."""
    D: tl.constexpr = SIZES.dim
    BLOCK: tl.constexpr = SIZES.block
    chunk = tl.program_id(0).to(tl.int64)
    graph = graph_of_chunk(table, chunk, graphs)
    first = tl.load(table + FIRST_CHUNK * (graphs + 1) + graph)
    per_head = (tl.load(table + FIRST_CHUNK * (graphs + 1) + graph + 1) - first) // heads
    start = tl.load(table + START * (graphs + 1) + graph)
    size = (tl.load(table + START * (graphs + 1) + graph + 1) - start) // heads
    head = (chunk - first) // per_head
    t = (chunk - first) % per_head * CHUNK + tl.arange(0, CHUNK)
    inside = t < size
    if order is not None:
        i = tl.load(order + start + head * size + t, mask=inside, other=0)
    else:
        i = t * heads + head
        tl.store(cloud + i, (head + t * 0).to(tl.int32), mask=inside)
    j = tl.arange(0, SIZES.dim_block)
    live = inside[:, None] & (j < D)[None, :]
    to = bounds + chunk * (BOUNDS * D + 2)
    x = tl.load(points + i[:, None] * D + j[None, :], mask=live, other=0.0).to(tl.float64)
    _store_bounds(to + LOW * D + j, to + HIGH * D + j, x, live, j < D)
    tl.store(to + SUM * D + j, tl.sum(x, axis=0), mask=j < D)
    far = tl.max((live & ((tl.abs(x) < limit) == 0)).to(tl.int32), axis=1)
    tl.store(to + BOUNDS * D + FAR, tl.max(far, axis=0).to(tl.float64))
    kuhn = tl.zeros_like(x)
    for k in tl.static_range(D):
        p = tl.load(points + i * D + k, mask=inside, other=0.0).to(tl.float64)
        kuhn += p[:, None] * tl.load(lattice_map + 1 + j * D + k, mask=j < D, other=0.0)[None, :]
    _store_bounds(to + KUHN_LOW * D + j, to + KUHN_HIGH * D + j, kuhn, live, j < D)
    not_finite = tl.zeros([BLOCK], dtype=tl.int32)
    if values is not None:
        share = tl.cdiv(count, tl.num_programs(0))
        for begin in range(0, share, BLOCK):
            at = begin + tl.arange(0, BLOCK)
            place = chunk * share + at
            value = tl.load(values + place, mask=(at < share) & (place < count), other=0.0)
            not_finite = not_finite | ((tl.abs(value) < float("inf")) == 0).to(tl.int32)
    tl.store(to + BOUNDS * D + NOT_FINITE, tl.max(not_finite, axis=0).to(tl.float64))
    if chunk == 0:
        for flag in tl.static_range(COINCIDENT, NARROW + 1):
            tl.store(facts + SIZES.grids + flag, chunk)  # 0, until a cloud is found that has it


@kernel(do_not_specialize=["graphs", "widths"])
def _survey_clouds(
    bounds, table, grids, surveyed, graphs, heads, widths, narrow, SIZES: tl.constexpr
):  # fmt: skip
    """Reduces the bounds of chunks.  The first programs compute the layout of the keys of one grid each; the others the mean
    and the finest level of one cloud each."""
    GRIDS: tl.constexpr = SIZES.grids
    D: tl.constexpr = SIZES.dim
    DP: tl.constexpr = SIZES.dim_block
    BLOCK: tl.constexpr = SIZES.block
    facts = surveyed.facts
    program = tl.program_id(0).to(tl.int64)
    if program < GRIDS:
        chunks = tl.load(table + FIRST_CHUNK * (graphs + 1) + graphs)
        width = (widths.to(tl.int64) >> (tl.minimum(program, 2) * WIDTH_BITS)) & WIDTH_MASK
        _lay_out_keys(bounds, chunks, grids, program, graphs * heads, width, surveyed.key_layout, facts + program, SIZES)
        if program == 0:
            flags = facts + GRIDS
            tl.store(flags + FAR, _flagged(bounds + BOUNDS * D + FAR, chunks, D, BLOCK * DP))
            tl.store(flags + NOT_FINITE, _flagged(bounds + BOUNDS * D + NOT_FINITE, chunks, D, BLOCK * DP))
    else:
        cloud = program - GRIDS
        graph, head = cloud // heads, cloud % heads
        first = tl.load(table + FIRST_CHUNK * (graphs + 1) + graph)
        length = (tl.load(table + FIRST_CHUNK * (graphs + 1) + graph + 1) - first) // heads
        size = (tl.load(table + START * (graphs + 1) + graph + 1) - tl.load(table + START * (graphs + 1) + graph)) // heads
        mine = bounds + (first + head * length) * (BOUNDS * D + 2)
        low, high = _join_bounds(mine + LOW * D, length, D, DP, BLOCK)
        b, j = tl.arange(0, BLOCK), tl.arange(0, DP)
        total = tl.zeros([BLOCK, DP], dtype=tl.float64)
        for k in range(0, length, BLOCK):
            at = mine + (k + b).to(tl.int64)[:, None] * (BOUNDS * D + 2) + SUM * D + j[None, :]
            total += tl.load(at, mask=(k + b < length)[:, None] & (j < D)[None, :], other=0.0)
        tl.store(surveyed.mean + cloud * D + j, tl.sum(total, axis=0) / tl.maximum(size, 1).to(tl.float64), mask=j < D)
        apart = (low != high) & (j < D)
        extent = tl.sqrt(tl.sum(tl.where(apart, (high - low) * (high - low), 0.0), axis=0))
        is_narrow = (extent > 0) & (extent < narrow)
        tl.store(facts + GRIDS + NARROW, size * 0 + 1, mask=is_narrow)
        level = size * 0 + SIZES.finest
        if SIZES.to_itself:
            level = tl.where((size > 0) & (tl.sum(apart.to(tl.int32), axis=0) == 0), -1, level)
        tl.store(surveyed.kappa + cloud, level.to(tl.int32))
        tl.store(facts + GRIDS + COINCIDENT, level * 0 + 1, mask=level < 0)


@triton.jit
def _flagged(column, chunks, D: tl.constexpr, BLOCK: tl.constexpr):
    """Returns 1 if some chunk has a flag that is set, else 0, int64."""
    b = tl.arange(0, BLOCK)
    flagged = tl.zeros([BLOCK], dtype=tl.float64)
    for k in range(0, chunks, BLOCK):
        flagged += tl.load(column + (k + b).to(tl.int64) * (BOUNDS * D + 2), mask=k + b < chunks, other=0.0)
    return (tl.max(flagged, axis=0) > 0).to(tl.int64)


@triton.jit
def _join_bounds(low_bounds, chunks, D: tl.constexpr, DP: tl.constexpr, BLOCK: tl.constexpr):
    """Returns the least and the greatest coordinates of chunks, (DP,); the greatest of each are stored behind the least."""
    b, j = tl.arange(0, BLOCK), tl.arange(0, DP)
    low = tl.full([BLOCK, DP], float("inf"), dtype=tl.float64)
    high = -low
    for k in range(0, chunks, BLOCK):
        live = (k + b < chunks)[:, None] & (j < D)[None, :]
        at = low_bounds + (k + b).to(tl.int64)[:, None] * (BOUNDS * D + 2) + j[None, :]
        low = tl.minimum(low, tl.load(at, mask=live, other=float("inf")))
        high = tl.maximum(high, tl.load(at + D, mask=live, other=float("-inf")))
    return tl.min(low, axis=0), tl.max(high, axis=0)


@triton.jit
def _bits(number):
    """Returns how many bits a number takes, int64."""
    number = number.to(tl.int64)
    bits = number * 0
    for bit in range(63):
        bits += ((number >> bit) > 0).to(tl.int64)
    return bits


@triton.jit
def _lay_out_keys(bounds, chunks, grids, grid, clouds, width, key_layout, missing, SIZES: tl.constexpr):
    """Lays out the keys of one grid: base, word, shift and bits of each field; tells how many words are missing."""
    LEVELS: tl.constexpr = SIZES.levels
    D: tl.constexpr = SIZES.dim
    DP: tl.constexpr = SIZES.dim_block
    j = tl.arange(0, DP)
    least, most = _join_bounds(bounds + tl.where(grid == 0, KUHN_LOW * D, LOW * D), chunks, D, DP, SIZES.block)
    least, most = tl.where(j < D, least, 0.0), tl.where(j < D, most, 0.0)
    if (D > CELL_DIMENSIONS) & (grid > 1):  # cells of the near field divide the coordinates of largest extent of each cloud
        least = tl.zeros_like(least) + tl.min(least, axis=0)
        most = tl.zeros_like(most) + tl.max(most, axis=0)
    centred = (LEVELS > 1) & (grid == 1)  # cells that count pairs are centred on the mean of each cloud,
    if centred:  # and no point is farther from the mean than the extent of all points
        most -= least
        least = -most
    per_unit = tl.load(grids + grid * (D + 2) + j, mask=j < D, other=0.0)
    free, step = tl.load(grids + grid * (D + 2) + D), tl.load(grids + grid * (D + 2) + D + 1)
    least, most = least * per_unit, most * per_unit
    within = (tl.abs(least) < 2.0**50) & (tl.abs(most) < 2.0**50)  # others are refused by the host
    least, most = tl.where(within, least, 0.0), tl.where(within, most, 0.0)
    most += tl.where(grid == 0, step, 1.0)  # the origin of a lattice, or what is rounded up
    least = tl.floor(least / step) * step
    top = tl.floor(most) + 2 * free + 1 - least
    least -= tl.where(grid == 0, 0.0, free)  # each level of a lattice has as many free places, which keys add
    bits = tl.zeros([DP], dtype=tl.int64)
    power = tl.full([DP], 1.0, dtype=tl.float64)
    for _ in range(WORD_BITS):
        bits += (top >= power).to(tl.int64)
        power *= 2
    bits = tl.where(per_unit > 0, bits, 0)
    # From the last coordinate, lowest in the last word so that neighbours along it are one apart, to the prefix, in the first.
    word, shift = tl.maximum(width, 1) - 1, width * 0
    words, shifts = bits * 0, bits * 0
    for back in tl.static_range(D):
        here = j == D - 1 - back
        field_bits = tl.sum(tl.where(here, bits, 0), axis=0)
        full = shift + field_bits > WORD_BITS
        word -= full.to(tl.int64)
        shift = tl.where(full, 0, shift)
        words, shifts = tl.where(here, tl.maximum(word, 0), words), tl.where(here, shift, shifts)
        shift += field_bits
    prefix_bits = _bits(tl.where((grid == 0) | centred, LEVELS * clouds, clouds) - 1)
    full = shift + prefix_bits > WORD_BITS
    shift = tl.where(full | (word > 0), 0, shift)
    word -= full.to(tl.int64)
    to = key_layout + grid * 4 * (D + 1)
    tl.store(to + BASE * (D + 1) + 1 + j, least.to(tl.int64), mask=j < D)
    tl.store(to + WORD * (D + 1) + 1 + j, words, mask=j < D)
    tl.store(to + SHIFT * (D + 1) + 1 + j, shifts, mask=j < D)
    tl.store(to + BITS * (D + 1) + 1 + j, bits, mask=j < D)
    tl.store(to + BASE * (D + 1), word * 0)
    tl.store(to + WORD * (D + 1), word * 0)
    tl.store(to + SHIFT * (D + 1), shift)
    tl.store(to + BITS * (D + 1), prefix_bits)
    # The width that would do, less the one that keys have.
    fits_half = tl.sum(bits, axis=0) + prefix_bits <= HALF_WORD_BITS
    tl.store(missing, tl.where(fits_half, 0, tl.maximum(width, 1) - word) - width)
