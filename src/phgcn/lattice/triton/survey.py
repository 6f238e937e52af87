r"""One look at all points and values: bounds and means of clouds, what is not finite, and the fields of keys.

Numbers of a cloud are taken from its points alone, chunk by chunk, in an order that nothing beside it changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .clouds import CHUNK, FIRST, START, Clouds, graph_of_chunk
from .keys import HALF_BITS, WORD_BITS, Fields
from .launch import block, cdiv, kernel, power_of_2, steps, tl, triton

CHUNKS = 1024
"""Chunks, times coordinates, that a program of ``_clouds`` takes at once."""

NUMBERS = 4096
"""Values that a program looks at together."""

FAR, NOT_FINITE, ALIKE, FLAGS = (tl.constexpr(place) for place in range(4))
"""The facts that follow the words of all grids: whether a position is not within the limit, whether a value is not finite, and
whether all points of a cloud are one; and how many these are."""


@dataclass
class Survey:
    r"""What is known of clouds, on the device.

    Args:
        mean (torch.Tensor): The mean of each cloud, float64, :math:`(clouds, D)`.
        alike (torch.Tensor): Whether all points of a cloud are one, int32.
        kappa (torch.Tensor): The finest level of each cloud, -1 where all its points are one, int32.
        fields (list): Of the keys of every grid.
        facts (torch.Tensor): How many more words a key needs in each grid (if any, its table is of no use), or less than 0 if
            it would do with fewer, the flags, and room for what else the host is to read; int64.
    """

    mean: Tensor
    alike: Tensor
    kappa: Tensor
    fields: list[Fields]
    facts: Tensor


def survey(
    clouds: Clouds, values: Tensor | None, constants, words: list[int], finest: int, limit: float, room: int
) -> Survey:  # fmt: skip
    r"""Looks at all points, and at all values if given.

    Args:
        clouds (Clouds): The points.
        values (torch.Tensor, optional): What is to be finite, contiguous.
        constants (Constants): Of the scheme.
        words (list): The words of the keys of the lattice, of the cells that count pairs, and of those of near fields; 0 for
            half a word.
        finest (int): The finest level of all clouds, as far as it is known.
        limit (float): How far from the origin a position may be.
        room (int): How many facts are added later; they are 0 until then.
    """
    sizes, dim, device = clouds.sizes, clouds.position.size(1), clouds.position.device
    grids, levels = constants.grids, constants.levels
    chunks, number, halvings = sizes.chunks, clouds.number, steps(clouds.graphs)
    found = torch.empty(5, chunks, dim, dtype=torch.float64, device=device)
    flags = torch.empty(2, chunks, dtype=torch.int32, device=device)
    numbers = 0 if values is None else values.numel()
    size = block(NUMBERS, numbers)
    # A little less than the limit, since the kernel takes it as a float32: a closer look decides.
    _survey[(chunks,)](
        clouds.position, clouds.position if values is None else values, clouds.order if clouds.graphs > 1 else None,
        sizes.table, constants.matrix, clouds.cloud, found, flags, clouds.graphs, clouds.heads, halvings, numbers,
        cdiv(numbers, chunks), 0.999 * limit, D=dim, SORTED=clouds.graphs > 1, CHECK=numbers > 0, CHUNK=CHUNK, BLOCK=size,
    )  # fmt: skip
    bounds = torch.empty(5, number, dim, dtype=torch.float64, device=device)
    told = torch.empty(4, number, dtype=torch.int32, device=device)
    _clouds[(number,)](
        found, flags, sizes.table, bounds, told, clouds.graphs, clouds.heads, chunks, number, finest,
        D=dim, DP=power_of_2(dim), ITSELF=clouds.begin == 0, BLOCK=max(1, CHUNKS // power_of_2(dim)),
    )  # fmt: skip
    count = grids.scale.size(0)
    tables = torch.empty(count, 4, 1 + dim, dtype=torch.int64, device=device)
    facts = torch.empty(count + FLAGS.value + room, dtype=torch.int64, device=device)
    _fields[(count,)](
        bounds, told, grids.scale, grids.spare, grids.step, tables, facts,
        number, facts.size(0), (levels * number - 1).bit_length(), (number - 1).bit_length(), *words,
        GRIDS=count, COUNTED=levels > 1, D=dim, DP=power_of_2(dim), WORD_BITS=WORD_BITS, HALF_BITS=HALF_BITS,
        BLOCK=block(1024, number),
    )  # fmt: skip
    fields = [Fields(table, words[min(grid, len(words) - 1)]) for grid, table in enumerate(tables.unbind())]
    return Survey(bounds[2], told[2], told[3], fields, facts)


@triton.jit
def _store_bounds(low, high, x, inside):
    tl.store(low, tl.min(tl.where(inside, x, float("inf")), axis=0))
    tl.store(high, tl.max(tl.where(inside, x, float("-inf")), axis=0))


@kernel(do_not_specialize=["graphs", "halvings", "numbers", "share"])
def _survey(
    points, values, order, table, matrix, cloud, found, flags, graphs, heads, halvings, numbers, share, limit,
    D: tl.constexpr, SORTED: tl.constexpr, CHECK: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Bounds and sum of a chunk of points, their bounds in Kuhn coordinates, and whether they are within the limit, and a share
    of the values finite."""
    chunk, chunks = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    graph = graph_of_chunk(table, chunk, graphs, halvings)
    first = tl.load(table + FIRST * (graphs + 1) + graph)
    length = (tl.load(table + FIRST * (graphs + 1) + graph + 1) - first) // heads
    start = tl.load(table + START * (graphs + 1) + graph)
    size = (tl.load(table + START * (graphs + 1) + graph + 1) - start) // heads
    head = (chunk - first) // length
    t = (chunk - first) % length * CHUNK + tl.arange(0, CHUNK)
    inside = t < size
    if SORTED:
        i = tl.load(order + start + head * size + t, mask=inside, other=0)
    else:
        i = t * heads + head
        tl.store(cloud + i, (head + t * 0).to(tl.int32), mask=inside)
    far = t < 0
    p = ()
    for j in tl.static_range(D):
        x = tl.load(points + i * D + j, mask=inside, other=0.0).to(tl.float64)
        far = far | (inside & ((tl.abs(x) < limit) == 0))
        to = found + chunk * D + j
        _store_bounds(to, to + chunks * D, x, inside)
        tl.store(to + 2 * chunks * D, tl.sum(x, axis=0))
        p = p + (x,)  # type: ignore[assignment]  # noqa: RUF005
    for j in tl.static_range(D):
        x = tl.zeros([CHUNK], dtype=tl.float64)
        for k in tl.static_range(D):
            x += p[k] * tl.load(matrix + j * D + k)
        to = found + (3 * chunks + chunk) * D + j
        _store_bounds(to, to + chunks * D, x, inside)
    tl.store(flags + chunk, tl.max(far.to(tl.int32), axis=0))
    wrong = tl.zeros([BLOCK], dtype=tl.int32)
    if CHECK:
        for begin in range(0, share, BLOCK):
            at = begin + tl.arange(0, BLOCK)
            place = chunk * share + at
            value = tl.load(values + place, mask=(at < share) & (place < numbers), other=0.0)
            wrong = wrong | ((tl.abs(value) < float("inf")) == 0).to(tl.int32)
    tl.store(flags + chunks + chunk, tl.max(wrong, axis=0))


@kernel(do_not_specialize=["graphs", "chunks", "clouds", "finest"])
def _clouds(
    found, flags, table, bounds, told, graphs, heads, chunks, clouds, finest,
    D: tl.constexpr, DP: tl.constexpr, ITSELF: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Bounds, mean, bounds in Kuhn coordinates, flags and finest level of a cloud, from its chunks."""
    cloud = tl.program_id(0).to(tl.int64)
    graph, head = cloud // heads, cloud % heads
    first = tl.load(table + FIRST * (graphs + 1) + graph)
    length = (tl.load(table + FIRST * (graphs + 1) + graph + 1) - first) // heads
    begin = first + head * length
    size = (tl.load(table + START * (graphs + 1) + graph + 1) - tl.load(table + START * (graphs + 1) + graph)) // heads
    b, j = tl.arange(0, BLOCK), tl.arange(0, DP)
    low = tl.full([BLOCK, DP], float("inf"), dtype=tl.float64)
    high, total = -low, tl.zeros([BLOCK, DP], dtype=tl.float64)
    kuhn_low, kuhn_high = low, high
    far = tl.zeros([BLOCK], dtype=tl.int32)
    wrong = far
    for k in range(0, length, BLOCK):
        far = far | tl.load(flags + begin + k + b, mask=k + b < length, other=0)
        wrong = wrong | tl.load(flags + chunks + begin + k + b, mask=k + b < length, other=0)
        live = (k + b < length)[:, None] & (j < D)[None, :]
        at = found + (begin + k + b)[:, None] * D + j[None, :]
        low = tl.minimum(low, tl.load(at, mask=live, other=float("inf")))
        high = tl.maximum(high, tl.load(at + chunks * D, mask=live, other=float("-inf")))
        total += tl.load(at + 2 * chunks * D, mask=live, other=0.0)
        kuhn_low = tl.minimum(kuhn_low, tl.load(at + 3 * chunks * D, mask=live, other=float("inf")))
        kuhn_high = tl.maximum(kuhn_high, tl.load(at + 4 * chunks * D, mask=live, other=float("-inf")))
    to = bounds + cloud * D + j
    lowest, highest = tl.min(low, axis=0), tl.max(high, axis=0)
    tl.store(to, lowest, mask=j < D)
    tl.store(to + clouds * D, highest, mask=j < D)
    tl.store(to + 2 * clouds * D, tl.sum(total, axis=0) / tl.maximum(size, 1).to(tl.float64), mask=j < D)
    tl.store(to + 3 * clouds * D, tl.min(kuhn_low, axis=0), mask=j < D)
    tl.store(to + 4 * clouds * D, tl.max(kuhn_high, axis=0), mask=j < D)
    same = (size > 0) & (tl.sum(((lowest != highest) & (j < D)).to(tl.int32), axis=0) == 0)
    tl.store(told + cloud, tl.max(far, axis=0))
    tl.store(told + clouds + cloud, tl.max(wrong, axis=0))
    alike = same.to(tl.int32)
    if ITSELF == 0:
        alike = alike * 0
    tl.store(told + 2 * clouds + cloud, alike)
    tl.store(told + 3 * clouds + cloud, tl.where(alike > 0, -1, finest))


@triton.jit
def _any(flags, clouds, BLOCK: tl.constexpr):
    """Whether a flag of some cloud is set."""
    b = tl.arange(0, BLOCK)
    found = tl.zeros([BLOCK], dtype=tl.int32)
    for k in range(0, clouds, BLOCK):
        found = found | tl.load(flags + k + b, mask=k + b < clouds, other=0)
    return tl.max(found, axis=0)


@kernel(do_not_specialize=["clouds", "room", "level_bits", "cloud_bits", "lattice_words", "cell_words", "near_words"])
def _fields(
    bounds, told, scale, spare, step, tables, facts, clouds, room, level_bits, cloud_bits,
    lattice_words, cell_words, near_words,
    GRIDS: tl.constexpr, COUNTED: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, WORD_BITS: tl.constexpr,
    HALF_BITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The fields of a grid's keys."""
    grid = tl.program_id(0)
    j, b = tl.arange(0, DP), tl.arange(0, BLOCK)
    least = tl.zeros([DP], dtype=tl.float64)
    most = tl.zeros([DP], dtype=tl.float64)
    # Cells that count pairs are laid around the mean of each cloud.
    centred = COUNTED & (grid == 1)
    for k in tl.static_range(D):
        low = tl.full([BLOCK], float("inf"), dtype=tl.float64)
        high = tl.full([BLOCK], float("-inf"), dtype=tl.float64)
        for c in range(0, clouds, BLOCK):
            there = c + b < clouds
            at = bounds + (c + b).to(tl.int64) * D + k
            middle = tl.load(at + 2 * clouds * D, mask=there & centred, other=0.0)
            at += tl.where(grid == 0, 3 * clouds * D, 0)
            low = tl.minimum(low, tl.load(at, mask=there, other=float("inf")) - middle)
            high = tl.maximum(high, tl.load(at + clouds * D, mask=there, other=float("-inf")) - middle)
        least = tl.where(j == k, tl.min(low, axis=0), least)
        most = tl.where(j == k, tl.max(high, axis=0), most)
    factor = tl.load(scale + grid * D + j, mask=j < D, other=0.0)
    least, most = least * factor, most * factor
    # Others are refused later.
    within = (tl.abs(least) < 2.0**50) & (tl.abs(most) < 2.0**50)
    least, most = tl.where(within, least, 0.0), tl.where(within, most, 0.0)
    unit, free = tl.load(step + grid), tl.load(spare + grid)
    most += tl.where(grid == 0, unit, 1.0)  # the origin of a lattice, or what is rounded up
    least = tl.floor(least / unit) * unit
    top = tl.floor(most) + 2 * free + 1 - least
    least -= tl.where(grid == 0, 0.0, free)  # the levels of a lattice have as many free places each, which keys add
    bits = tl.zeros([DP], dtype=tl.int64)
    power = tl.full([DP], 1.0, dtype=tl.float64)
    for _ in range(WORD_BITS):
        bits += (top >= power).to(tl.int64)
        power *= 2
    bits = tl.where(factor > 0, bits, 0)
    # From the last coordinate, lowest in the last word so that neighbours along it are one apart, to the cloud, in the first.
    words = tl.where(grid == 0, lattice_words, tl.where(grid == 1, cell_words, near_words)).to(tl.int64)
    word, shift = tl.maximum(words, 1) - 1, words * 0
    words_of, shifts = bits * 0, bits * 0
    for back in tl.static_range(D):
        mine = j == D - 1 - back
        wide = tl.sum(tl.where(mine, bits, 0), axis=0)
        full = shift + wide > WORD_BITS
        word -= full.to(tl.int64)
        shift = tl.where(full, 0, shift)
        words_of, shifts = tl.where(mine, tl.maximum(word, 0), words_of), tl.where(mine, shift, shifts)
        shift += wide
    prefix_bits = tl.where((grid == 0) | centred, level_bits, cloud_bits).to(tl.int64)
    full = shift + prefix_bits > WORD_BITS
    shift = tl.where(full | (word > 0), 0, shift)
    word -= full.to(tl.int64)
    to = tables + grid * 4 * (D + 1)
    tl.store(to + 1 + j, least.to(tl.int64), mask=j < D)
    tl.store(to + (D + 1) + 1 + j, words_of, mask=j < D)
    tl.store(to + 2 * (D + 1) + 1 + j, shifts, mask=j < D)
    tl.store(to + 3 * (D + 1) + 1 + j, bits, mask=j < D)
    tl.store(to, word * 0)
    tl.store(to + (D + 1), word * 0)
    tl.store(to + 2 * (D + 1), shift)
    tl.store(to + 3 * (D + 1), prefix_bits)
    # What would do, less what is given.
    needed = tl.where(tl.sum(bits, axis=0) + prefix_bits <= HALF_BITS, 0, tl.maximum(words, 1) - word)
    tl.store(facts + grid, needed - words)
    if grid == 0:
        tl.store(facts + GRIDS + FAR, _any(told, clouds, BLOCK).to(tl.int64))
        tl.store(facts + GRIDS + NOT_FINITE, _any(told + clouds, clouds, BLOCK).to(tl.int64))
        tl.store(facts + GRIDS + ALIKE, _any(told + 2 * clouds, clouds, BLOCK).to(tl.int64))
        for place in range(GRIDS + FLAGS, room):
            tl.store(facts + place, word * 0)
