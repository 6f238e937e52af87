r"""One look at all points and values: bounds and means of clouds, what is not finite, and the layout of keys.

Numbers of a cloud are taken from its points alone, chunk by chunk, in an order that nothing beside it changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...kernels.triton import block_size, kernel, power_of_2, tl, triton
from ..levels import CELL_DIMENSIONS as CELLS
from . import plan
from .clouds import CHUNK, FIRST_CHUNK, START, Clouds, graph_of_chunk
from .constants import Constants
from .keys import BASE, BITS, HALF_WORD_BITS, SHIFT, WORD, WORD_BITS, KeyLayout

CHUNKS = 1024
"""Chunks, times coordinates, that a program of ``_survey_clouds`` takes at once."""

CELL_DIMENSIONS = tl.constexpr(CELLS)

VALUES = 4096
"""Values that a program looks at together."""

FAR, NOT_FINITE, COINCIDENT, COPIES, NARROW, FLAGS = (
    tl.constexpr(place) for place in (plan.FAR, plan.NOT_FINITE, plan.COINCIDENT, plan.COPIES, plan.NARROW, plan.FLAGS)
)
LOW, HIGH, SUM, KUHN_LOW, KUHN_HIGH, BOUNDS = (tl.constexpr(place) for place in range(6))
"""What is known of a chunk, D numbers each: least and greatest coordinates, sum, least and greatest Kuhn coordinates; then, one
number each, the flags ``FAR`` and ``NOT_FINITE``."""


@dataclass
class Survey:
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
    # The kernel takes the limit as a float32, so it gets a little less: a closer look at the values decides.
    _survey_chunks[(sizes.chunks,)](
        clouds.position, values if count > 0 else None, clouds.order if several else None, sizes.table,
        constants.lattice_map[0], clouds.cloud, chunk_bounds, facts, clouds.graphs, clouds.heads, count, 0.999 * limit,
        GRIDS=grids, D=dim, CHUNK=CHUNK, BLOCK=block_size(VALUES, count),
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
        chunk_bounds, sizes.table, constants.grids, surveyed.mean, surveyed.kappa, surveyed.key_layout, facts,
        clouds.graphs, clouds.heads, widths[0] + (widths[1] << WIDTH_BITS) + (widths[2] << 2 * WIDTH_BITS), narrow,
        GRIDS=grids, LEVELS=levels, FINEST=finest, D=dim, DP=power_of_2(dim), TO_ITSELF=clouds.to_itself,
        BLOCK=max(1, CHUNKS // power_of_2(dim)), WIDTH_BITS=WIDTH_BITS, WORD_BITS=WORD_BITS, HALF_WORD_BITS=HALF_WORD_BITS,
    )  # fmt: skip
    return surveyed


WIDTH_BITS = 8
"""Bits that each of the three widths of keys takes where they are passed as one number."""


def layouts(key_layout: Tensor, widths: list[int]) -> list[KeyLayout]:
    """Lists the layouts of all grids; the last width is that of all near-field cells."""
    return [KeyLayout(table, widths[min(grid, len(widths) - 1)]) for grid, table in enumerate(key_layout.unbind())]


@triton.jit
def _store_bounds(low, high, x, inside):
    tl.store(low, tl.min(tl.where(inside, x, float("inf")), axis=0))
    tl.store(high, tl.max(tl.where(inside, x, float("-inf")), axis=0))


@kernel(do_not_specialize=["graphs", "count"])
def _survey_chunks(
    points, values, order, table, lattice_map, cloud, bounds, facts, graphs, heads, count, limit,
    GRIDS: tl.constexpr, D: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Computes bounds and sum of a chunk of points, and their bounds in Kuhn coordinates; checks that they are within the limit
    and that a share of the values is finite.  Points have an ``order`` where there are several graphs; else their cloud is
    written here."""
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
    far = t < 0
    p = ()
    to = bounds + chunk * (BOUNDS * D + 2)
    for j in tl.static_range(D):
        x = tl.load(points + i * D + j, mask=inside, other=0.0).to(tl.float64)
        far = far | (inside & ((tl.abs(x) < limit) == 0))
        _store_bounds(to + LOW * D + j, to + HIGH * D + j, x, inside)
        tl.store(to + SUM * D + j, tl.sum(x, axis=0))
        p = p + (x,)  # type: ignore[assignment]  # noqa: RUF005
    for j in tl.static_range(D):
        x = tl.zeros([CHUNK], dtype=tl.float64)
        for k in tl.static_range(D):
            x += p[k] * tl.load(lattice_map + 1 + j * D + k)
        _store_bounds(to + KUHN_LOW * D + j, to + KUHN_HIGH * D + j, x, inside)
    tl.store(to + BOUNDS * D + FAR, tl.max(far.to(tl.float64), axis=0))
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
            tl.store(facts + GRIDS + flag, chunk)  # 0, until a cloud is found that has it


@kernel(do_not_specialize=["graphs", "widths"])
def _survey_clouds(
    bounds, table, grids, mean, kappa, key_layout, facts, graphs, heads, widths, narrow,
    GRIDS: tl.constexpr, LEVELS: tl.constexpr, FINEST: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
    TO_ITSELF: tl.constexpr, BLOCK: tl.constexpr, WIDTH_BITS: tl.constexpr, WORD_BITS: tl.constexpr,
    HALF_WORD_BITS: tl.constexpr,
):  # fmt: skip
    """Makes of the bounds of chunks: in the first programs, the layout of the keys of one grid; in the others, the mean and the
    finest level of one cloud."""
    program = tl.program_id(0).to(tl.int64)
    if program < GRIDS:
        chunks = tl.load(table + FIRST_CHUNK * (graphs + 1) + graphs)
        width = (widths.to(tl.int64) >> (tl.minimum(program, 2) * WIDTH_BITS)) & ((1 << WIDTH_BITS) - 1)
        _lay_out_keys(
            bounds, chunks, grids, program, graphs * heads, width, key_layout, facts + program,
            LEVELS, D, DP, BLOCK, WORD_BITS, HALF_WORD_BITS,
        )  # fmt: skip
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
        tl.store(mean + cloud * D + j, tl.sum(total, axis=0) / tl.maximum(size, 1).to(tl.float64), mask=j < D)
        apart = (low != high) & (j < D)
        extent = tl.sqrt(tl.sum(tl.where(apart, (high - low) * (high - low), 0.0), axis=0))
        is_narrow = (extent > 0) & (extent < narrow)
        tl.store(facts + GRIDS + NARROW, size * 0 + 1, mask=is_narrow)
        level = size * 0 + FINEST
        if TO_ITSELF:
            level = tl.where((size > 0) & (tl.sum(apart.to(tl.int32), axis=0) == 0), -1, level)
        tl.store(kappa + cloud, level.to(tl.int32))
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
def _lay_out_keys(
    bounds, chunks, grids, grid, clouds, width, key_layout, missing,
    LEVELS: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BLOCK: tl.constexpr, WORD_BITS: tl.constexpr,
    HALF_WORD_BITS: tl.constexpr,
):  # fmt: skip
    """Lays out the keys of one grid: base, word, shift and bits of each field; tells how many words are missing."""
    j = tl.arange(0, DP)
    least, most = _join_bounds(bounds + tl.where(grid == 0, KUHN_LOW * D, LOW * D), chunks, D, DP, BLOCK)
    least, most = tl.where(j < D, least, 0.0), tl.where(j < D, most, 0.0)
    if (D > CELL_DIMENSIONS) & (grid > 1):  # cells of the near field are laid over the widest coordinates of each cloud
        least = tl.zeros_like(least) + tl.min(least, axis=0)
        most = tl.zeros_like(most) + tl.max(most, axis=0)
    centred = (LEVELS > 1) & (grid == 1)  # cells that count pairs are laid around the mean of each cloud,
    if centred:  # and no point is farther from that than all points are apart
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
