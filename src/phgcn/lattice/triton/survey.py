r"""One look at all points and values: bounds and means of clouds, what is not finite, and the layout of keys.

Numbers of a cloud are taken from its points alone, chunk by chunk, in an order that nothing beside it changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...kernels.triton import block_size, cdiv, kernel, power_of_2, search_steps, tl, triton
from . import plan
from .clouds import CHUNK, FIRST_CHUNK, START, Clouds, graph_of_chunk
from .constants import Constants
from .keys import BASE, BITS, HALF_WORD_BITS, SHIFT, WORD, WORD_BITS, KeyLayout

CHUNKS = 1024
"""Chunks, times coordinates, that a program of ``_survey_clouds`` takes at once."""

VALUES = 4096
"""Values that a program looks at together."""

FAR, NOT_FINITE, COINCIDENT, FLAGS = (tl.constexpr(place) for place in (plan.FAR, plan.NOT_FINITE, plan.COINCIDENT, plan.FLAGS))
LOW, HIGH, MEAN, KUHN_LOW, KUHN_HIGH = (tl.constexpr(row) for row in range(5))
"""The rows of bounds: least and greatest coordinates, mean (of a chunk: sum), and least and greatest Kuhn coordinates."""


@dataclass
class Survey:
    r"""What is known of clouds, on the device.

    Args:
        mean (torch.Tensor): The mean of each cloud, float64, :math:`(clouds, D)`.
        coincident (torch.Tensor): Whether all points of a cloud coincide, int32.
        kappa (torch.Tensor): The finest level of each cloud, -1 where all its points coincide, int32.
        key_layout (torch.Tensor): Where the fields of each grid's keys are, int64, :math:`(Q, 4, 1+D)`.
        facts (torch.Tensor): See :class:`phgcn.lattice.triton.plan.Plan`; here, all but the numbers of vertices, which are 0.
    """

    mean: Tensor
    coincident: Tensor
    kappa: Tensor
    key_layout: Tensor
    facts: Tensor


def survey(clouds: Clouds, values: Tensor | None, constants: Constants, widths: list[int], finest: int, limit: float) -> Survey:
    r"""Looks at all points, and at all values if given.

    Args:
        clouds (Clouds): The points.
        values (torch.Tensor, optional): What must be finite, contiguous.
        constants (Constants): Of the scheme.
        widths (list): The width of the keys of the lattice, of pair-counting cells and of near-field cells.
        finest (int): The finest level of all clouds, where the scheme tells it.
        limit (float): How far from the origin a position may be.
    """
    sizes, dim, device = clouds.sizes, clouds.position.size(1), clouds.position.device
    chunk_bounds = torch.empty(5, sizes.chunks, dim, dtype=torch.float64, device=device)
    chunk_flags = torch.empty(2, sizes.chunks, dtype=torch.int32, device=device)
    count, several = 0 if values is None else values.numel(), clouds.graphs > 1
    # The kernel takes the limit as a float32, so it gets a little less: a closer look at the values decides.
    _survey_chunks[(sizes.chunks,)](
        clouds.position, values if count > 0 else None, clouds.order if several else None, sizes.table,
        constants.lattice_map[0], clouds.cloud, chunk_bounds, chunk_flags, clouds.graphs, clouds.heads,
        search_steps(clouds.graphs), count, cdiv(count, sizes.chunks), 0.999 * limit,
        D=dim, CHUNK=CHUNK, BLOCK=block_size(VALUES, count),
    )  # fmt: skip
    bounds = torch.empty(5, clouds.count, dim, dtype=torch.float64, device=device)
    flags = torch.empty(FLAGS.value, clouds.count, dtype=torch.int32, device=device)
    kappa = torch.empty(clouds.count, dtype=torch.int32, device=device)
    _survey_clouds[(clouds.count,)](
        chunk_bounds, chunk_flags, sizes.table, bounds, flags, kappa, clouds.graphs, clouds.heads, sizes.chunks, clouds.count,
        finest, D=dim, DP=power_of_2(dim), TO_ITSELF=clouds.to_itself, BLOCK=max(1, CHUNKS // power_of_2(dim)),
    )  # fmt: skip
    grids, levels = constants.grids.size(0), constants.levels
    key_layout = torch.empty(grids, 4, 1 + dim, dtype=torch.int64, device=device)
    facts = torch.empty(grids + FLAGS.value + constants.lattices * (levels + 2), dtype=torch.int64, device=device)
    _lay_out_keys[(grids,)](
        bounds, flags, constants.grids, key_layout, facts, clouds.count, facts.size(0),
        (levels * clouds.count - 1).bit_length(), (clouds.count - 1).bit_length(), *widths,
        GRIDS=grids, COUNTS_PAIRS=levels > 1, D=dim, DP=power_of_2(dim), WORD_BITS=WORD_BITS, HALF_WORD_BITS=HALF_WORD_BITS,
        BLOCK=block_size(1024, clouds.count),
    )  # fmt: skip
    return Survey(bounds[MEAN.value], flags[COINCIDENT.value], kappa, key_layout, facts)


def layouts(key_layout: Tensor, widths: list[int]) -> list[KeyLayout]:
    """Lists the layouts of all grids; the last width is that of all near-field cells."""
    return [KeyLayout(table, widths[min(grid, len(widths) - 1)]) for grid, table in enumerate(key_layout.unbind())]


@triton.jit
def _store_bounds(low, high, x, inside):
    tl.store(low, tl.min(tl.where(inside, x, float("inf")), axis=0))
    tl.store(high, tl.max(tl.where(inside, x, float("-inf")), axis=0))


@kernel(do_not_specialize=["graphs", "steps", "count", "share"])
def _survey_chunks(
    points, values, order, table, lattice_map, cloud, bounds, flags, graphs, heads, steps, count, share, limit,
    D: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Computes bounds and sum of a chunk of points, and their bounds in Kuhn coordinates; checks that they are within the limit
    and that a share of the values is finite.  Points have an ``order`` where there are several graphs; else their cloud is
    written here."""
    chunk, chunks = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    graph = graph_of_chunk(table, chunk, graphs, steps)
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
    for j in tl.static_range(D):
        x = tl.load(points + i * D + j, mask=inside, other=0.0).to(tl.float64)
        far = far | (inside & ((tl.abs(x) < limit) == 0))
        to = bounds + chunk * D + j
        _store_bounds(to + LOW * chunks * D, to + HIGH * chunks * D, x, inside)
        tl.store(to + MEAN * chunks * D, tl.sum(x, axis=0))
        p = p + (x,)  # type: ignore[assignment]  # noqa: RUF005
    for j in tl.static_range(D):
        x = tl.zeros([CHUNK], dtype=tl.float64)
        for k in tl.static_range(D):
            x += p[k] * tl.load(lattice_map + 1 + j * D + k)
        to = bounds + chunk * D + j
        _store_bounds(to + KUHN_LOW * chunks * D, to + KUHN_HIGH * chunks * D, x, inside)
    tl.store(flags + FAR * chunks + chunk, tl.max(far.to(tl.int32), axis=0))
    not_finite = tl.zeros([BLOCK], dtype=tl.int32)
    if values is not None:
        for begin in range(0, share, BLOCK):
            at = begin + tl.arange(0, BLOCK)
            place = chunk * share + at
            value = tl.load(values + place, mask=(at < share) & (place < count), other=0.0)
            not_finite = not_finite | ((tl.abs(value) < float("inf")) == 0).to(tl.int32)
    tl.store(flags + NOT_FINITE * chunks + chunk, tl.max(not_finite, axis=0))


@kernel(do_not_specialize=["graphs", "chunks", "clouds", "finest"])
def _survey_clouds(
    chunk_bounds, chunk_flags, table, bounds, flags, kappa, graphs, heads, chunks, clouds, finest,
    D: tl.constexpr, DP: tl.constexpr, TO_ITSELF: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Computes bounds, mean, flags and finest level of a cloud from its chunks."""
    cloud = tl.program_id(0).to(tl.int64)
    graph, head = cloud // heads, cloud % heads
    first = tl.load(table + FIRST_CHUNK * (graphs + 1) + graph)
    length = (tl.load(table + FIRST_CHUNK * (graphs + 1) + graph + 1) - first) // heads
    begin = first + head * length
    size = (tl.load(table + START * (graphs + 1) + graph + 1) - tl.load(table + START * (graphs + 1) + graph)) // heads
    b, j = tl.arange(0, BLOCK), tl.arange(0, DP)
    low = tl.full([BLOCK, DP], float("inf"), dtype=tl.float64)
    high, total = -low, tl.zeros([BLOCK, DP], dtype=tl.float64)
    kuhn_low, kuhn_high = low, high
    far = tl.zeros([BLOCK], dtype=tl.int32)
    not_finite = far
    for k in range(0, length, BLOCK):
        inside = k + b < length
        far = far | tl.load(chunk_flags + FAR * chunks + begin + k + b, mask=inside, other=0)
        not_finite = not_finite | tl.load(chunk_flags + NOT_FINITE * chunks + begin + k + b, mask=inside, other=0)
        live = inside[:, None] & (j < D)[None, :]
        at = chunk_bounds + (begin + k + b)[:, None] * D + j[None, :]
        low = tl.minimum(low, tl.load(at + LOW * chunks * D, mask=live, other=float("inf")))
        high = tl.maximum(high, tl.load(at + HIGH * chunks * D, mask=live, other=float("-inf")))
        total += tl.load(at + MEAN * chunks * D, mask=live, other=0.0)
        kuhn_low = tl.minimum(kuhn_low, tl.load(at + KUHN_LOW * chunks * D, mask=live, other=float("inf")))
        kuhn_high = tl.maximum(kuhn_high, tl.load(at + KUHN_HIGH * chunks * D, mask=live, other=float("-inf")))
    to = bounds + cloud * D + j
    lowest, highest = tl.min(low, axis=0), tl.max(high, axis=0)
    tl.store(to + LOW * clouds * D, lowest, mask=j < D)
    tl.store(to + HIGH * clouds * D, highest, mask=j < D)
    tl.store(to + MEAN * clouds * D, tl.sum(total, axis=0) / tl.maximum(size, 1).to(tl.float64), mask=j < D)
    tl.store(to + KUHN_LOW * clouds * D, tl.min(kuhn_low, axis=0), mask=j < D)
    tl.store(to + KUHN_HIGH * clouds * D, tl.max(kuhn_high, axis=0), mask=j < D)
    same = (size > 0) & (tl.sum(((lowest != highest) & (j < D)).to(tl.int32), axis=0) == 0)
    coincident = same.to(tl.int32)
    if TO_ITSELF == 0:
        coincident = coincident * 0
    tl.store(flags + FAR * clouds + cloud, tl.max(far, axis=0))
    tl.store(flags + NOT_FINITE * clouds + cloud, tl.max(not_finite, axis=0))
    tl.store(flags + COINCIDENT * clouds + cloud, coincident)
    tl.store(kappa + cloud, tl.where(coincident > 0, -1, finest))


@triton.jit
def _any(flags, clouds, BLOCK: tl.constexpr):
    """True if the flag of some cloud is set."""
    b = tl.arange(0, BLOCK)
    some = tl.zeros([BLOCK], dtype=tl.int32)
    for k in range(0, clouds, BLOCK):
        some = some | tl.load(flags + k + b, mask=k + b < clouds, other=0)
    return tl.max(some, axis=0)


@kernel(do_not_specialize=["clouds", "fact_count", "level_bits", "cloud_bits", "lattice_width", "pair_width", "near_width"])
def _lay_out_keys(
    bounds, flags, grids, key_layout, facts, clouds, fact_count, level_bits, cloud_bits,
    lattice_width, pair_width, near_width,
    GRIDS: tl.constexpr, COUNTS_PAIRS: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, WORD_BITS: tl.constexpr,
    HALF_WORD_BITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Lays out the keys of one grid: base, word, shift and bits of each field; tells how many words are missing."""
    grid = tl.program_id(0)
    j, b = tl.arange(0, DP), tl.arange(0, BLOCK)
    least = tl.zeros([DP], dtype=tl.float64)
    most = tl.zeros([DP], dtype=tl.float64)
    centred = COUNTS_PAIRS & (grid == 1)  # cells that count pairs are laid around the mean of each cloud
    for k in tl.static_range(D):
        low = tl.full([BLOCK], float("inf"), dtype=tl.float64)
        high = tl.full([BLOCK], float("-inf"), dtype=tl.float64)
        for c in range(0, clouds, BLOCK):
            inside = c + b < clouds
            at = bounds + (c + b).to(tl.int64) * D + k
            mean = tl.load(at + MEAN * clouds * D, mask=inside & centred, other=0.0)
            at += tl.where(grid == 0, KUHN_LOW * clouds * D, 0)
            low = tl.minimum(low, tl.load(at, mask=inside, other=float("inf")) - mean)
            high = tl.maximum(high, tl.load(at + clouds * D, mask=inside, other=float("-inf")) - mean)
        least = tl.where(j == k, tl.min(low, axis=0), least)
        most = tl.where(j == k, tl.max(high, axis=0), most)
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
    width = tl.where(grid == 0, lattice_width, tl.where(grid == 1, pair_width, near_width)).to(tl.int64)
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
    prefix_bits = tl.where((grid == 0) | centred, level_bits, cloud_bits).to(tl.int64)
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
    tl.store(facts + grid, tl.where(fits_half, 0, tl.maximum(width, 1) - word) - width)
    if grid == 0:
        tl.store(facts + GRIDS + FAR, _any(flags + FAR * clouds, clouds, BLOCK).to(tl.int64))
        tl.store(facts + GRIDS + NOT_FINITE, _any(flags + NOT_FINITE * clouds, clouds, BLOCK).to(tl.int64))
        tl.store(facts + GRIDS + COINCIDENT, _any(flags + COINCIDENT * clouds, clouds, BLOCK).to(tl.int64))
        for place in range(GRIDS + FLAGS, fact_count):
            tl.store(facts + place, word * 0)
