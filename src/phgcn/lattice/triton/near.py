r"""Near field: the short range that coarse levels miss, summed pair by pair.

Points are sorted by cells as wide as the radius, but for the last coordinate of the cells, which is cut finer.  The sources
near a target then lie in one run of the sorted list for each row of cells around it, and each run is cut to the chord that
the ball has in that row.  Of these, few are near enough: they are listed, and the list is summed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ...kernels.triton import block_size, cdiv, kernel, power_of_2, search_steps, tl, triton
from .clouds import Clouds
from .constants import Constants
from .keys import (
    BASE,
    SHIFT,
    WORD,
    KeyLayout,
    bucket_lower_bound,
    load_key,
    lower_bound,
    make_buckets,
    no_key,
    pack_word,
    sort_keys,
)
from .rows import Rows, aligned, alignment

TARGETS, CANDIDATES, LOOK, WARPS = 4, 8, 16, 1
"""Targets of a program, sources that it sums together for each, at most, sources that it looks at together, and its warps."""

RUN_BLOCK, RUN_WARPS = 256, 2
"""Pairs of a target and a row of cells whose runs a program finds, and its warps."""

LIST = 64
"""Sources that are listed for a target before they are summed."""

SLAB = 1 << 20
"""Targets whose runs and lists are held at once."""


class CellPoints(NamedTuple):
    r"""Points of one level sorted by cell; those of other levels are last, without a key.

    Shapes:
        - **keys:** of their cells, :math:`(W, M)`, **point:** which point each is, int64, :math:`(M,)`
        - **position:** :math:`(M, D)`
    """

    keys: Tensor
    point: Tensor
    position: Tensor


class NearRunSizes(NamedTuple):
    """What the search for runs is compiled for: coordinates, those that cells have, words of a key, pairs of a target and a row
    of cells that a program takes."""

    dim: int
    cell_dims: int
    words: int
    block: int


class NearSizes(NamedTuple):
    """What the sum over near pairs is compiled for.

    Args:
        dim, dim_block (int): Coordinates, and the least power of 2 that is not less.
        cell_dims (int): Coordinates that cells have.
        terms (int): Amplitudes of the near field.
        symmetric (bool): Whether targets and sources are the same points, in the same order.
        rows_extra, target_extra (int): The extra column of the rows of sources and of targets; see :func:`extra_kind`.
        out_extra (bool): Whether the sums have an extra column.
        alignment (int): See :func:`phgcn.lattice.triton.rows.aligned`.
        targets, block, look, list, width (int): Targets of a program, sources that it sums and that it looks at together for
            each, that it lists for each, and channels, a power of 2.
    """

    dim: int
    dim_block: int
    cell_dims: int
    terms: int
    symmetric: bool
    rows_extra: int
    target_extra: int
    out_extra: bool
    alignment: int
    targets: int
    block: int
    look: int
    list: int
    width: int


@dataclass
class NearLevel:
    """What the near field of one level reads.

    Args:
        level (int): The level :math:`\\kappa`.
        constants (torch.Tensor): See ``Constants.near``.
        cell_rows (torch.Tensor): Steps to the rows of cells around a cell, int64.
        dimensions (int): How many coordinates cells have.
        layout (KeyLayout): Of the keys of cells.
    """

    level: int
    constants: Tensor
    cell_rows: Tensor
    dimensions: int
    layout: KeyLayout


def near_level(constants: Constants, level: int, layout: KeyLayout) -> NearLevel:
    """Gathers what the near field of a level reads."""
    return NearLevel(level, constants.near[level], constants.cell_rows, constants.cell_dimensions, layout)


def sort_by_cell(near: NearLevel, clouds: Clouds, level: Tensor, part: slice, coordinates: Tensor | None = None) -> CellPoints:
    """Sorts some points by cell; ``level`` is the finest level of each of all points, int32, ``coordinates`` the order that
    their coordinates are taken in (:func:`widest_first`), which distances do not depend on."""
    points, layout = clouds.position[part], near.layout
    if coordinates is not None:
        points = points.gather(1, coordinates[part])
    (count, dim), keys = points.shape, layout.new_keys(len(points))
    size = block_size(256, count)
    _pack_cells[(cdiv(count, size),)](
        points, clouds.cloud[part], level[part], near.constants, layout.table, keys, count, near.level,
        D=dim, DIMS=near.dimensions, WORDS=layout.words, BLOCK=size,
    )  # fmt: skip
    keys, order = sort_keys(keys)
    return CellPoints(keys, order, Rows(points, count, dim).take(order).main)


@kernel(do_not_specialize=["count", "level"])
def _pack_cells(
    points, cloud, point_level, near, layout, keys, count, level,
    D: tl.constexpr, DIMS: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    of_cloud = tl.load(cloud + i, mask=inside, other=-1).to(tl.int64)
    present = tl.load(point_level + i, mask=inside, other=-2) == level
    place = ()
    for j in tl.static_range(DIMS):
        p = tl.load(points + i * D + j, mask=inside, other=0.0).to(tl.float64)
        cell = tl.floor(p * tl.load(near + 3 + j)).to(tl.int64) - tl.load(layout + BASE * (D + 1) + 1 + j)
        place = place + (cell,)  # type: ignore[assignment]  # noqa: RUF005
    to = i
    for a in tl.static_range(WORDS):
        key = pack_word(of_cloud, place, layout, a, DIMS, D + 1)
        tl.store(keys + to, tl.where(present, key, no_key(keys)), mask=inside)
        to += count


def near_field(targets: CellPoints, sources: CellPoints, rows: Rows, near: NearLevel, out: Rows) -> None:
    r"""Sums what levels from :math:`\kappa` on miss, :math:`\sum_{r < \rho_\kappa} R_\kappa(r) f_j`.

    Args:
        targets, sources (CellPoints): The points that attend, and those that are attended to.
        rows (Rows): The rows of the sources, :math:`(N, C)`.
        near (NearLevel): The level.
        out (Rows): Takes the sums of the targets of this level, :math:`(M, C)`.
    """
    _sum_pairs(targets, sources, rows.take(sources.point), None, near, out, None)


def near_gradients(
    targets: CellPoints, sources: CellPoints, rows: Rows, target_rows: Rows, near: NearLevel, out: Rows | None, grad: Tensor
) -> None:
    r"""Computes the gradient of the targets' positions, and the sums of :func:`near_field` if ``out`` is given.

    The gradient is that of :math:`\sum_{ij} w_{ij} \langle a_i, b_j \rangle`, with ``target_rows`` :math:`a` and ``rows``
    :math:`b`.  Where targets are sources, they move both points of a pair: that of
    :math:`\langle a_i, b_j \rangle + \langle b_i, a_j \rangle`.

    Args:
        targets, sources, rows, near, out: See :func:`near_field`.
        target_rows (Rows): The rows of the targets, :math:`(M, C)`.
        grad (torch.Tensor): Takes the gradient of the positions of the targets of this level, :math:`(M, D)`.
    """
    _sum_pairs(targets, sources, rows.take(sources.point), target_rows.take(targets.point), near, out, grad)


def _sum_pairs(
    targets: CellPoints, sources: CellPoints, rows: Rows, target_rows: Rows | None, near: NearLevel, out: Rows | None,
    grad: Tensor | None,
) -> None:  # fmt: skip
    """Sums pairs, a slab of targets at a time; rows are sorted as the points."""
    count, source_count, (channels, dim) = targets.point.size(0), rows.count, (rows.channels, targets.position.size(1))
    width = power_of_2(max(1, channels))
    size = block_size(max(1, min(CANDIDATES, 512 * CANDIDATES // width)), CANDIDATES)
    bucket_start = make_buckets(sources.keys, source_count, None)
    row_count = len(near.cell_rows)
    for begin in range(0, count, SLAB):
        end = min(count, begin + SLAB)
        block = block_size(max(1, min(TARGETS, 256 // width)), min(16, end - begin))
        # For each row of cells, the first source of each target, then the ends; behind these, the lists of sources.
        runs_size = 2 * row_count * (end - begin)
        runs = targets.keys.new_empty(runs_size + cdiv(end - begin, block) * block * LIST, dtype=torch.int32)
        run_block = block_size(RUN_BLOCK, row_count * (end - begin))
        _near_runs[(cdiv(row_count * (end - begin), run_block),)](
            targets, sources, bucket_start, near.cell_rows, near.layout.table, near.constants, runs,
            begin, end, count, source_count, row_count, search_steps(source_count),
            0 if bucket_start is None else len(bucket_start) - 2,
            SIZES=NearRunSizes(dim, near.dimensions, near.layout.words, run_block), num_warps=RUN_WARPS,
        )  # fmt: skip
        _near[(cdiv(end - begin, block),)](
            targets, sources, runs, near.constants, rows.data, None if target_rows is None else target_rows.data,
            None if out is None else out.data, grad, begin, end, count, source_count, row_count, channels,
            SIZES=NearSizes(
                dim, power_of_2(dim), near.dimensions, len(near.constants) - 3 - near.dimensions, targets is sources,
                extra_kind(rows), NO_EXTRA if target_rows is None else extra_kind(target_rows),
                out is not None and out.extras > 0, alignment(channels), block, size, LOOK, LIST, width,
            ),
            num_warps=WARPS, enable_fp_fusion=grad is None,  # as for _slice_gradients
        )  # fmt: skip


NO_EXTRA, ONES, STORED = 0, 1, 2
"""The extra column of rows: there is none; it is all ones, nowhere stored; it is stored."""


def extra_kind(rows: Rows) -> int:
    return ONES if rows.ones else STORED if rows.extras > 0 else NO_EXTRA


@triton.jit
def _load_extra(rows, count, channels, row, mask, EXTRA_KIND: tl.constexpr, like):
    """Loads the extra column of some of ``count`` rows."""
    ones: tl.constexpr = EXTRA_KIND == 1
    if ones:
        return tl.where(mask, 1.0, 0.0).to(like.dtype)
    else:
        return tl.load(rows + count.to(tl.int64) * channels + row, mask=mask, other=0.0)


@kernel(do_not_specialize=["begin", "end", "target_count", "source_count", "steps", "buckets"])
def _near_runs(
    targets, sources, bucket_start, cell_rows, layout, near, runs,
    begin, end, target_count, source_count, row_count, steps, buckets, SIZES: tl.constexpr,
):  # fmt: skip
    D: tl.constexpr = SIZES.dim
    DIMS: tl.constexpr = SIZES.cell_dims
    WORDS: tl.constexpr = SIZES.words
    BLOCK: tl.constexpr = SIZES.block
    pair = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row = pair // (end - begin)
    t = begin + pair % (end - begin)
    inside = row < row_count
    present = inside & (load_key(targets.keys, t, inside) != no_key(targets.keys))
    if tl.max(present.to(tl.int32), axis=0) == 0:
        return  # all targets are of other levels, and nobody looks at their runs
    # How far the row of cells is from the target, along all coordinates but the last.
    square = tl.zeros([BLOCK], dtype=tl.float64)
    for j in tl.static_range(DIMS - 1):
        per_unit = tl.load(near + 3 + j)
        x = tl.load(targets.position + t * D + j, mask=inside, other=0.0).to(tl.float64) * per_unit
        fraction = x - tl.floor(x)
        step = tl.load(cell_rows + row * (DIMS - 1) + j, mask=inside, other=0)
        apart = tl.where(step == 0, 0.0, tl.where(step < 0, fraction, 1.0 - fraction)) / per_unit
        square += apart * apart
    reach = tl.sqrt(tl.maximum(tl.load(near) - square, 0.0)) * (1 + 1e-6)
    present = present & (square < tl.load(near))
    per_unit = tl.load(near + 3 + DIMS - 1)
    x = tl.load(targets.position + t * D + DIMS - 1, mask=inside, other=0.0).to(tl.float64)
    here = tl.floor(x * per_unit).to(tl.int64)
    low = tl.floor((x - reach) * per_unit).to(tl.int64) - here
    high = tl.floor((x + reach) * per_unit).to(tl.int64) - here + 1
    key = (load_key(targets.keys, t, inside),)
    at = t
    for _ in tl.static_range(1, WORDS):
        at += target_count
        key = key + (load_key(targets.keys, at, inside),)  # type: ignore[assignment]  # noqa: RUF005
    lowest = _move_key(key, cell_rows + row * (DIMS - 1), inside, low, layout, D, DIMS, WORDS)
    highest = _move_key(key, cell_rows + row * (DIMS - 1), inside, high, layout, D, DIMS, WORDS)
    zero = t * 0
    if bucket_start is None:
        first = lower_bound(sources.keys, source_count, zero, zero + source_count, lowest, steps, WORDS)
        last = lower_bound(sources.keys, source_count, first, zero + source_count - first, highest, steps, WORDS)
    else:
        first = bucket_lower_bound(sources.keys, bucket_start, buckets, lowest[0])
        last = bucket_lower_bound(sources.keys, bucket_start, buckets, highest[0])
    tl.store(runs + pair, tl.where(present, first, 0).to(tl.int32), mask=inside)
    tl.store(runs + row_count * (end - begin) + pair, tl.where(present, last, 0).to(tl.int32), mask=inside)


@triton.jit
def _move_key(key, row, inside, step, layout, D: tl.constexpr, DIMS: tl.constexpr, WORDS: tl.constexpr):
    """Returns the key of the cell that a row's steps, and ``step`` cells along the last coordinate, lead to."""
    moved = ()
    for a in tl.static_range(WORDS):
        word = key[a]
        for j in tl.static_range(DIMS - 1):
            in_word = tl.load(layout + WORD * (D + 1) + 1 + j) == a
            word += tl.where(in_word, tl.load(row + j, mask=inside, other=0) << tl.load(layout + SHIFT * (D + 1) + 1 + j), 0)
        if a == WORDS - 1:
            word += step
        moved = moved + (word,)  # type: ignore[assignment]  # noqa: RUF005
    return moved


@triton.jit
def _square(targets, sources, t, s, present, live, D: tl.constexpr):
    """Computes the squared distances of targets and sources."""
    square = tl.zeros(s.shape, dtype=sources.position.dtype.element_ty)
    for axis in tl.static_range(D):
        apart = tl.load(targets.position + t * D + axis, mask=present, other=0.0)
        apart = apart - tl.load(sources.position + s.to(tl.int64) * D + axis, mask=live, other=0.0)
        square += apart * apart
    return square


@triton.jit
def _near_weight(square, near, outer, hit, DIMS: tl.constexpr, TERMS: tl.constexpr):
    """Computes the weight of a pair, and twice its derivative by the squared distance."""
    dtype = square.dtype
    steep = tl.load(near + 1).to(dtype)
    r = tl.sqrt(square)
    weight = tl.exp(-r)
    slope = tl.where(r > 0, -weight / tl.where(r > 0, r, 1.0), 0.0)
    rate = tl.load(near + 2).to(dtype)
    power = tl.exp(-rate * square)
    for term in tl.static_range(TERMS):
        a = tl.load(near + 3 + DIMS + term).to(dtype)
        weight -= a * power
        slope += 2 * rate * a * power
        power = (power * power) * (power * power)
        rate = rate * 4
    fade = tl.minimum((outer - square) * steep, 1.0)
    smooth = fade * fade * (3 - 2 * fade)
    slope = tl.where(hit, smooth * slope - 12 * fade * (1 - fade) * steep * weight, 0.0)
    return tl.where(hit, smooth * weight, 0.0), slope


@kernel(do_not_specialize=["begin", "end", "target_count", "source_count"])
def _near(
    targets, sources, runs, near, rows, target_rows, out, grad, begin, end, target_count, source_count, row_count, channels,
    SIZES: tl.constexpr,
):  # fmt: skip
    """Looks through the runs of each target and lists the sources that are near; sums the lists when one is full.  Sums go to
    ``out`` and gradients to ``grad``, if given."""
    D: tl.constexpr = SIZES.dim
    DP: tl.constexpr = SIZES.dim_block
    TARGETS: tl.constexpr = SIZES.targets
    BLOCK: tl.constexpr = SIZES.block
    LOOK: tl.constexpr = SIZES.look
    LIST: tl.constexpr = SIZES.list
    WIDTH: tl.constexpr = SIZES.width
    channels = aligned(channels, SIZES.alignment)
    first = tl.program_id(0).to(tl.int64) * TARGETS
    if load_key(targets.keys, begin + first, begin + first < end) == no_key(targets.keys):
        return  # this target, and so all behind it, are of other levels
    local = first + tl.arange(0, TARGETS)[:, None]
    t = begin + local
    present = load_key(targets.keys, t, t < end) != no_key(targets.keys)
    i = tl.load(targets.point + t, mask=present, other=0)
    b = tl.arange(0, BLOCK)[None, :]
    c = tl.arange(0, WIDTH)[None, None, :]
    columns = c < channels
    dtype = sources.position.dtype.element_ty
    outer = tl.load(near).to(dtype)
    total = tl.zeros([TARGETS, WIDTH], dtype=dtype)
    total_extra = tl.zeros([TARGETS, BLOCK], dtype=dtype)
    j = tl.arange(0, DP)[None, None, :]
    slopes = tl.zeros([TARGETS, BLOCK, DP], dtype=dtype)
    if grad is not None:
        here = tl.load(targets.position + t[:, :, None] * D + j, mask=present[:, :, None] & (j < D), other=0.0)
        at, at_mask = t[:, :, None] * channels + c, present[:, :, None] & columns
        mine = tl.load(target_rows + at, mask=at_mask, other=0.0).to(dtype)
        if SIZES.rows_extra > 0:
            mine_extra = _load_extra(target_rows, target_count, channels, t, present, SIZES.target_extra, total_extra)
        if SIZES.symmetric:
            mine_second = tl.load(rows + at, mask=at_mask, other=0.0).to(dtype)
            if SIZES.rows_extra > 0:
                mine_second_extra = _load_extra(rows, source_count, channels, t, present, SIZES.rows_extra, total_extra)
    hits = runs + row_count * (end - begin) * 2 + local * LIST
    count = tl.zeros([TARGETS, 1], dtype=tl.int32)
    for row in range(row_count + 1):  # after the last there is nothing to look at, and all that is left is summed
        # Places follow from the row's number: Triton 3.6 took the first row's length for all where a pointer was moved along.
        run = runs + row * (end - begin) + local
        there_is = present & (row < row_count)
        s = tl.load(run, mask=there_is, other=0) + tl.arange(0, LOOK)[None, :]
        last = tl.load(run + row_count * (end - begin), mask=there_is, other=0)
        for _ in range(0, tl.where(row == row_count, 1, tl.max(last - s)), LOOK):
            live = s < last
            hit = live & (_square(targets, sources, t, s, present, live, D) < outer)
            tl.store(hits + count + tl.cumsum(hit.to(tl.int32), axis=1) - 1, s, mask=hit)
            count += tl.sum(hit.to(tl.int32), axis=1, keep_dims=True)
            s += LOOK
            if (tl.max(count) > LIST - LOOK) | (row == row_count):
                tl.debug_barrier()  # what other threads have listed is there
                # Blocks of a target's own list are summed, whoever else is in the program; what fills none waits.
                full = tl.where(row == row_count, count, count // BLOCK * BLOCK)
                for k in range(0, tl.max(full), BLOCK):
                    listed = k + b < full
                    close = tl.load(hits + k + b, mask=listed, other=0)
                    square = _square(targets, sources, t, close, present, listed, D)
                    weight, slope = _near_weight(square, near, outer, listed, SIZES.cell_dims, SIZES.terms)
                    where = close.to(tl.int64)[:, :, None] * channels + c
                    mask = listed[:, :, None] & columns
                    source_row = tl.load(rows + where, mask=mask, other=0.0).to(dtype)
                    if SIZES.rows_extra > 0:
                        source_extra = _load_extra(rows, source_count, channels, close, listed, SIZES.rows_extra, weight)
                    if out is not None:
                        total += tl.sum(weight[:, :, None] * source_row, axis=1)
                        if SIZES.out_extra:
                            total_extra += weight * source_extra
                    if grad is not None:
                        products = mine * source_row
                        if SIZES.symmetric:
                            products += mine_second * tl.load(target_rows + where, mask=mask, other=0.0).to(dtype)
                        product = tl.sum(products, axis=2)
                        if SIZES.rows_extra > 0:
                            product += mine_extra * source_extra
                            if SIZES.symmetric:
                                product += mine_second_extra * _load_extra(
                                    target_rows, target_count, channels, close, listed, SIZES.target_extra, weight
                                )
                        spot = close.to(tl.int64)[:, :, None] * D + j
                        there = tl.load(sources.position + spot, mask=listed[:, :, None] & (j < D), other=0.0)
                        slopes += tl.where(listed[:, :, None], (slope * product)[:, :, None] * (here - there), 0.0)
                left = count - full
                waiting = tl.load(hits + full + b, mask=b < left, other=0)
                tl.debug_barrier()  # all have been read
                tl.store(hits + b, waiting, mask=b < left)
                count = left
    if grad is not None:
        j = tl.arange(0, DP)[None, :]
        tl.store(grad + i * D + j, tl.sum(slopes, axis=1), mask=present & (j < D))
    if out is not None:
        c = tl.arange(0, WIDTH)[None, :]
        tl.store(out + i * channels + c, total, mask=present & (c < channels))
        if SIZES.out_extra:
            tl.store(out + target_count.to(tl.int64) * channels + i, tl.sum(total_extra, axis=1, keep_dims=True), mask=present)
