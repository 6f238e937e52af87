"""Near field: the short range that the ladder misses, summed over pairs within a radius.

Points are sorted by cell. Cells are as wide as the radius, and along the last coordinate an eighth
of it: the sources near a target lie in one run per row of cells around it, cut to the chord of the
ball. A program goes through the runs of its targets, lists the sources within the radius, and sums
the lists."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...kernels import Kernel
from ...runtime.triton import block_size, cdiv, device_of, kernel, power_of_2, tl, triton
from ..joint.kernels import Near, Side
from ..joint.keys import Grid, of_cloud
from ..ladder import FADE_START, NEAR_DEGREE

FINER = 8  # how many times narrower cells are along the last coordinate

# sizes of a program: its targets; per target, the sources that are summed at a time, the sources
# that are compared at a time, and the room of its list of near ones; warps
TARGETS, CANDIDATES, LOOK, LIST, WARPS = 4, 8, 16, 64, 1

SLAB = 1 << 23  # runs, of all targets together, that are in memory at a time


class PairSizes(NamedTuple):
    """Compile-time sizes of the sum over pairs. ``dim_block``, ``width`` and ``product_width`` are
    powers of 2, ``terms`` counts the polynomial's coefficients. See :data:`TARGETS` for the other
    sizes."""

    dim: int
    dim_block: int
    gaussian: bool
    terms: int
    targets: int
    block: int
    look: int
    list: int
    width: int
    product_width: int


class Targets(NamedTuple):
    """The targets of a launch: positions, clouds and indices."""

    position: Tensor
    cloud: Tensor
    point: Tensor


class Functions(NamedTuple):
    """The weight functions of the near field. ``table`` holds each cloud's radius², 1 / radius²,
    steepness of the fade and polynomial; ``kernel`` the numbers of the kernel function."""

    table: Tensor
    kernel: Tensor


class Cells(NamedTuple):
    """Points sorted by cell.

    Args:
        order (torch.Tensor): The index of each sorted point before sorting, int64, (P,).
        position (torch.Tensor): (P, D), **cloud** (torch.Tensor): int64, (P,).
        key, cell (torch.Tensor): Keys and coordinates of their cells, int64, (P,) and (P, D).
    """

    order: Tensor
    position: Tensor
    cloud: Tensor
    key: Tensor
    cell: Tensor


class Runs(NamedTuple):
    """Begin and end of the sources in each row of cells around each target, int32, (R, M)."""

    first: Tensor
    last: Tensor


class Lookup(NamedTuple):
    """The grid of each cloud: cells per unit of length (B, D), radius (B,), float64, and keys."""

    per_unit: Tensor
    radius: Tensor
    grid: Grid


def sum_near(
    near: Near,
    targets: Side,
    sources: Side,
    rows: Tensor | None,
    products: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor | None, Tensor | None]:
    count, dim = targets.position.shape
    sums = None if rows is None else rows.new_zeros(count, rows.size(1))
    slopes = None if products is None else targets.position.new_zeros(count, dim)
    if count == 0 or len(sources.position) == 0:
        return sums, slopes
    lookup = _lookup(near)
    source = _sort(sources, lookup)
    target = source if targets is sources else _sort(targets, lookup)
    rows = None if rows is None else rows[source.order]
    held = None if products is None else (products[0][target.order], products[1][source.order])
    sides = list(itertools.product((-1, 0, 1), repeat=dim - 1))
    offsets = torch.tensor(sides, device=targets.position.device).view(len(sides), dim - 1).long()
    slab = max(1, SLAB // len(offsets))
    with device_of(sources.position):
        for begin in range(0, count, slab):
            some = Cells(*(table[begin : begin + slab] for table in target))
            runs = _find_runs(some, source, lookup, offsets)
            own = None if held is None else held[0][begin : begin + slab]
            _launch(
                near,
                some,
                source,
                runs,
                rows,
                own,
                None if held is None else held[1],
                sums,
                slopes,
            )
    return sums, slopes


# Cells


def _lookup(near: Near) -> Lookup:
    radius = near.table[:, 0]
    per_unit = 1 / radius.unsqueeze(1).expand(near.low.shape).clone()
    per_unit[:, -1] *= FINER
    per_unit[radius == 0] = 0
    low, high = (torch.floor(edge * per_unit).cpu().numpy() for edge in (near.low, near.high))
    margin = np.ones(low.shape[1])
    margin[-1] = FINER
    base, size = low - margin - 1, high - low + 2 * margin + 3
    return Lookup(
        per_unit, radius, Grid(base.astype(np.int64), size.astype(np.int64), radius.device)
    )


def _sort(side: Side, lookup: Lookup) -> Cells:
    cell = torch.floor(side.position.double() * of_cloud(lookup.per_unit, side.cloud)).long()
    key, order = torch.sort(lookup.grid.pack(cell, side.cloud), stable=True)
    return Cells(order, side.position[order], side.cloud[order], key, cell[order])


def _find_runs(target: Cells, source: Cells, lookup: Lookup, offsets: Tensor) -> Runs:
    """Finds the sources in each row of cells around each target; ``offsets`` are (R, D-1)."""
    cloud, rows = target.cloud, len(offsets)
    per_unit, radius = of_cloud(lookup.per_unit, cloud), of_cloud(lookup.radius, cloud)
    index = target.position.double() * per_unit
    fraction, step = index - target.cell, of_cloud(1 << lookup.grid.shift, cloud)
    square, key = radius.new_zeros(rows, len(radius)), target.key.expand(rows, -1)
    for j, side in enumerate(offsets.T):
        below, above = fraction[:, j], 1 - fraction[:, j]
        apart = torch.stack([below, torch.zeros_like(below), above]) / per_unit[:, j]
        square += (apart * apart)[side + 1]
        key = key + side.unsqueeze(1) * step[:, j]
    chord = (radius * radius - square).clamp(min=0).sqrt() * (1 + 1e-6) * per_unit[:, -1]
    first, last = (
        torch.floor(index[:, -1] + ends).long() - target.cell[:, -1] for ends in (-chord, chord)
    )
    begin = torch.searchsorted(source.key, key + first)
    end = torch.searchsorted(source.key, key + last, right=True)
    return Runs(begin.int(), torch.where(square < radius * radius, end, begin).int())


# Pairs


def _launch(
    near: Near,
    target: Cells,
    source: Cells,
    runs: Runs,
    rows: Tensor | None,
    target_rows: Tensor | None,
    source_rows: Tensor | None,
    sums: Tensor | None,
    slopes: Tensor | None,
) -> None:
    """Sums the pairs of a slab of targets."""
    count, dim = target.position.shape
    channels, products = (1 if table is None else table.size(1) for table in (rows, source_rows))
    width, product_width = power_of_2(channels), power_of_2(products)
    widest = max(width, product_width)
    size = block_size(max(1, min(CANDIDATES, 512 * CANDIDATES // widest)), CANDIDATES)
    block = block_size(max(1, min(TARGETS, 256 // widest)), min(16, count))
    hits = torch.empty(
        cdiv(count, block) * block * LIST, dtype=torch.int32, device=target.key.device
    )
    # Of each cloud: radius², 1 / radius², steepness of the fade, then the polynomial.
    square = near.table[:, :1] ** 2
    table = torch.cat(
        [square, 1 / square, 1 / (square * (1 - FADE_START**2)), near.table[:, 1:]], dim=1
    )
    function: Kernel = near.kernel
    numbers = torch.tensor([function.rate, *function.coefficients], dtype=torch.float64).to(
        table.device
    )
    _pairs[(cdiv(count, block),)](
        Targets(target.position, target.cloud, target.order),
        source.position,
        runs,
        hits,
        Functions(table.contiguous(), numbers),
        rows,
        target_rows,
        source_rows,
        sums,
        slopes,
        count,
        len(runs.first),
        channels,
        products,
        SIZES=PairSizes(
            dim,
            power_of_2(dim),
            function.power == 2,
            NEAR_DEGREE + 1,
            block,
            size,
            LOOK,
            LIST,
            width,
            product_width,
        ),
        # Two threads may compute the same sum; if products are fused into sums, they may round it
        # differently.
        num_warps=WARPS,
        enable_fp_fusion=slopes is None,
    )


@triton.jit
def _square(target_position, source_position, t, s, present, live, D: tl.constexpr):
    square = tl.zeros(s.shape, dtype=source_position.dtype.element_ty)
    for axis in tl.static_range(D):
        apart = tl.load(target_position + t * D + axis, mask=present, other=0.0)
        apart = apart - tl.load(source_position + s.to(tl.int64) * D + axis, mask=live, other=0.0)
        square += apart * apart
    return square


@triton.jit
def _weigh(square, here, present, function, hit, SIZES: tl.constexpr):
    """Computes a pair's weight, kernel less polynomial, and its derivative over the distance."""
    dtype = square.dtype
    TERMS: tl.constexpr = SIZES.terms
    outer, scale = (
        tl.load(here, mask=present, other=1.0).to(dtype),
        tl.load(here + 1, mask=present, other=1.0).to(dtype),
    )
    steep = tl.load(here + 2, mask=present, other=1.0).to(dtype)
    rate, c0 = tl.load(function).to(dtype), tl.load(function + 1).to(dtype)
    c1, c2 = tl.load(function + 2).to(dtype), tl.load(function + 3).to(dtype)
    s = rate * rate * square
    if SIZES.gaussian == 0:
        s = tl.sqrt(s)
    power = tl.exp(-s)
    weight = (c0 + s * (c1 + s * c2)) * power
    by_s = (c1 - c0 + s * (2 * c2 - c1 - s * c2)) * power * rate * rate
    slope = 2 * by_s
    if SIZES.gaussian == 0:
        slope = tl.where(s > 0, by_s / tl.where(s > 0, s, 1.0), 0.0)
    x = square * scale
    value, by_x = square * 0.0, square * 0.0
    for back in tl.static_range(TERMS):
        by_x = by_x * x + value
        value = value * x + tl.load(here + 2 + TERMS - back, mask=present, other=0.0).to(dtype)
    weight -= value
    slope -= 2 * scale * by_x
    fade = tl.minimum((outer - square) * steep, 1.0)
    smooth = fade * fade * (3 - 2 * fade)
    slope = smooth * slope - 12 * fade * (1 - fade) * steep * weight
    return tl.where(hit, smooth * weight, 0.0), tl.where(hit, slope, 0.0)


@triton.jit
def _load_rows(rows, index, c, mask, channels):
    """Loads rows, (targets, block, width)."""
    at = index.to(tl.int64)[:, :, None] * channels + c
    return tl.load(rows + at, mask=mask[:, :, None] & (c < channels), other=0.0)


@kernel(do_not_specialize=["count", "row_count"])
def _pairs(
    targets,
    source_position,
    runs,
    hits,
    functions,
    rows,
    target_rows,
    source_rows,
    sums,
    slopes,
    count,
    row_count,
    channels,
    products,
    SIZES: tl.constexpr,
):
    """Lists the near sources of each target from its runs, and sums full lists."""
    D: tl.constexpr = SIZES.dim
    DIM_BLOCK: tl.constexpr = SIZES.dim_block
    TERMS: tl.constexpr = SIZES.terms
    TARGETS: tl.constexpr = SIZES.targets
    LOOK: tl.constexpr = SIZES.look
    WIDTH: tl.constexpr = SIZES.width
    PRODUCT_WIDTH: tl.constexpr = SIZES.product_width
    BLOCK: tl.constexpr = SIZES.block
    LIST: tl.constexpr = SIZES.list
    dtype: tl.constexpr = source_position.dtype.element_ty
    target_position, function = targets.position, functions.kernel
    t = tl.program_id(0).to(tl.int64) * TARGETS + tl.arange(0, TARGETS)[:, None]
    present = t < count
    b = tl.arange(0, BLOCK)[None, :]
    here = functions.table + tl.load(targets.cloud + t, mask=present, other=0) * (3 + TERMS)
    outer = tl.load(here, mask=present, other=0.0).to(dtype)
    c = tl.arange(0, WIDTH)[None, None, :]
    p = tl.arange(0, PRODUCT_WIDTH)[None, None, :]
    j = tl.arange(0, DIM_BLOCK)[None, None, :]
    total = tl.zeros([TARGETS, WIDTH], dtype=dtype)
    gradient = tl.zeros([TARGETS, DIM_BLOCK], dtype=dtype)
    if slopes is not None:
        own = _load_rows(target_rows, t, p, present, products)
        spot = tl.load(
            target_position + t[:, :, None] * D + j, mask=present[:, :, None] & (j < D), other=0.0
        )
    listed = hits + t * LIST
    number = tl.zeros([TARGETS, 1], dtype=tl.int32)
    # after the last there is nothing to look at, and all that is left is summed
    for row in range(row_count + 1):
        # Places follow from the row's number: Triton 3.6 took the first row's length for all where
        # a pointer was moved along.
        there_is = present & (row < row_count)
        s = (
            tl.load(runs.first + row * count + t, mask=there_is, other=0)
            + tl.arange(0, LOOK)[None, :]
        )
        last = tl.load(runs.last + row * count + t, mask=there_is, other=0)
        for _ in range(0, tl.where(row == row_count, 1, tl.max(last - s)), LOOK):
            live = s < last
            hit = live & (_square(target_position, source_position, t, s, present, live, D) < outer)
            tl.store(listed + number + tl.cumsum(hit.to(tl.int32), axis=1) - 1, s, mask=hit)
            number += tl.sum(hit.to(tl.int32), axis=1, keep_dims=True)
            s += LOOK
            if (tl.max(number) > LIST - LOOK) | (row == row_count):
                tl.debug_barrier()  # what other threads have listed is there
                # Blocks of a target's own list are summed, whoever else is in the program; what
                # fills none waits.
                full = tl.where(row == row_count, number, number // BLOCK * BLOCK)
                for k in range(0, tl.max(full), BLOCK):
                    near = k + b < full
                    close = tl.load(listed + k + b, mask=near, other=0)
                    square = _square(target_position, source_position, t, close, present, near, D)
                    weight, slope = _weigh(square, here, present, function, near, SIZES)
                    if sums is not None:
                        total += tl.sum(
                            weight[:, :, None] * _load_rows(rows, close, c, near, channels), axis=1
                        )
                    if slopes is not None:
                        product = tl.sum(
                            own * _load_rows(source_rows, close, p, near, products), axis=2
                        )
                        at = close.to(tl.int64)[:, :, None] * D + j
                        there = tl.load(
                            source_position + at, mask=near[:, :, None] & (j < D), other=0.0
                        )
                        apart = tl.where(
                            near[:, :, None], (slope * product)[:, :, None] * (spot - there), 0.0
                        )
                        gradient += tl.sum(apart, axis=1)
                left = number - full
                waiting = tl.load(listed + full + b, mask=b < left, other=0)
                tl.debug_barrier()  # all have been read
                tl.store(listed + b, waiting, mask=b < left)
                number = left
    i = tl.load(targets.point + t, mask=present, other=0)
    if sums is not None:
        c = tl.arange(0, WIDTH)[None, :]
        tl.store(sums + i * channels + c, total, mask=present & (c < channels))
    if slopes is not None:
        j = tl.arange(0, DIM_BLOCK)[None, :]
        tl.store(slopes + i * D + j, gradient, mask=present & (j < D))
