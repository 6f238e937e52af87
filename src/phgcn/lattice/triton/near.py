r"""Near field: the short range that coarse levels miss, summed pair by pair.

Each target looks through the runs of sources that :mod:`phgcn.lattice.triton.cells` finds around it.  Of these, few are near
enough: they are listed, and the list is summed.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...runtime.triton import block_size, cdiv, kernel, power_of_2, tl, triton
from .cells import CellPoints, NearLevel, find_near_runs
from .keys import load_key, make_buckets, no_key
from .rows import Rows, aligned, alignment

TARGETS, CANDIDATES, LOOK, WARPS = 4, 8, 16, 1
"""Of a program: its targets, the most sources that it sums at a time for each, sources that it looks at at a time, and
warps."""


LIST = 64
"""Room of a target's list of near sources, which is summed when it is full."""

SLAB = 1 << 20
"""Targets whose runs and lists are in memory at a time."""


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
        room = 2 * row_count * (end - begin) + cdiv(end - begin, block) * block * LIST
        runs = torch.empty(room, dtype=torch.int32, device=targets.keys.device)
        find_near_runs(targets, sources, bucket_start, near, range(begin, end), runs)
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


@triton.jit
def _load_rows(rows, count, channels, place, c, mask, EXTRA_KIND: tl.constexpr, EXTRA: tl.constexpr, dtype: tl.constexpr):
    """Loads the channels ``c`` of some of ``count`` rows, (targets, block, width), and their extra column, 0 if not
    ``EXTRA``."""
    at = place.to(tl.int64)[:, :, None] * channels + c
    row = tl.load(rows + at, mask=mask[:, :, None] & (c < channels), other=0.0).to(dtype)
    extra = tl.zeros(place.shape, dtype=dtype)
    if EXTRA:
        extra = _load_extra(rows, count, channels, place, mask, EXTRA_KIND, extra)
    return row, extra


@triton.jit
def _multiply_rows(a, b, a_second, b_second, SECOND: tl.constexpr, EXTRA: tl.constexpr):
    """Returns the products of rows, extra columns included, plus those of the second pair of rows if ``SECOND``."""
    products = a[0] * b[0]
    if SECOND:
        products += a_second[0] * b_second[0]
    product = tl.sum(products, axis=2)
    if EXTRA:
        product += a[1] * b[1]
        if SECOND:
            product += a_second[1] * b_second[1]
    return product


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
    EXTRA: tl.constexpr = SIZES.rows_extra > 0
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
    dtype: tl.constexpr = sources.position.dtype.element_ty
    outer = tl.load(near).to(dtype)
    total = tl.zeros([TARGETS, WIDTH], dtype=dtype)
    total_extra = tl.zeros([TARGETS, BLOCK], dtype=dtype)
    j = tl.arange(0, DP)[None, None, :]
    slopes = tl.zeros([TARGETS, BLOCK, DP], dtype=dtype)
    if grad is not None:
        here = tl.load(targets.position + t[:, :, None] * D + j, mask=present[:, :, None] & (j < D), other=0.0)
        own = _load_rows(target_rows, target_count, channels, t, c, present, SIZES.target_extra, EXTRA, dtype)
        own_second = own
        if SIZES.symmetric:
            own_second = _load_rows(rows, source_count, channels, t, c, present, SIZES.rows_extra, EXTRA, dtype)
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
                    source = _load_rows(rows, source_count, channels, close, c, listed, SIZES.rows_extra, EXTRA, dtype)
                    if out is not None:
                        total += tl.sum(weight[:, :, None] * source[0], axis=1)
                        if SIZES.out_extra:
                            total_extra += weight * source[1]
                    if grad is not None:
                        second = source
                        if SIZES.symmetric:
                            second = _load_rows(
                                target_rows, target_count, channels, close, c, listed, SIZES.target_extra, EXTRA, dtype
                            )
                        product = _multiply_rows(own, source, own_second, second, SIZES.symmetric, EXTRA)
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
