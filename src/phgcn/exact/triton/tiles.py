"""Shared parts of the kernels over tiles of pairs: location of a tile, distances, products in two
parts.

A program has one tile of ``BM`` targets of one graph and head, and goes through the graph's sources
in tiles of ``BN``. Packed points and rows (:mod:`.packing`) need no masks. Arguments in capitals
are compile-time constants, as is :obj:`None`. Rows are a tuple of one part, or of a high and a low
bfloat16 part that add up to float32."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ...kernels import LARGEST
from ...runtime.triton import tl, triton

LARGEST_EXPONENT: tl.constexpr = tl.constexpr(LARGEST)
LOG2E: tl.constexpr = tl.constexpr(math.log2(math.e))
# up to so many coordinates of a point are held in registers; more are loaded again for every tile
MAX_HELD: tl.constexpr = tl.constexpr(16)


class TileSizes(NamedTuple):
    """Constants of kernels over tiles: ``targets``, ``sources`` and ``channels`` of a tile are
    ``BM``, ``BN`` and ``BC``. ``parts`` is 0 without packed rows; the rest are
    :class:`phgcn.kernels.Numbers`."""

    dim: int
    targets: int
    sources: int
    channels: int
    parts: int
    rate: float
    c0: float
    c1: float
    c2: float
    power: int


class Targets(NamedTuple):
    """A program's targets, loaded. ``point`` are pointers to the first coordinate, ``length`` is
    the distance to the next, ``x`` the coordinates if held. Queries have ``grads``, ``bias`` and
    ``shift``, keys ``rows``; missing fields are None."""

    point: Any
    length: Any
    x: Any
    rows: Any
    grads: Any
    bias: Any
    shift: Any


class Sources(NamedTuple):
    """Pointers to all sources, with the fields of :class:`Targets` for the opposite role."""

    points: Any
    length: Any
    rows: Any
    grads: Any
    bias: Any
    shift: Any
    width: Any


@triton.jit
def locate_tile(tiles, BM: tl.constexpr):
    """Returns this program's first target, end of targets, first source and end of sources."""
    tile = tl.program_id(0)
    begin, end, first, last = tile * BM, tiles.targets, tiles.first_source, tiles.sources
    if tiles.table is not None:
        row = tiles.table + 4 * tile
        begin, end, first, last = tl.load(row), tl.load(row + 1), tl.load(row + 2), tl.load(row + 3)
    return begin, end, first, last


@triton.jit
def locate_rows(rows, length, BC: tl.constexpr, PARTS: tl.constexpr):
    """Returns pointers to this program's head and channels in packed rows (PARTS, H, length,
    width), and the width: BC channels for each program of the grid's last axis."""
    width = tl.num_programs(2) * BC
    high = rows + tl.program_id(1).to(tl.int64) * length * width + tl.program_id(2) * BC
    if PARTS == 2:
        return (high, high + tl.num_programs(1).to(tl.int64) * length * width), width
    else:
        return (high,), width


@triton.jit
def load_rows(rows, index, width, BC: tl.constexpr):
    at = index[:, None] * width + tl.arange(0, BC)[None, :]
    if len(rows) == 2:
        return tl.load(rows[0] + at), tl.load(rows[1] + at)
    else:
        return (tl.load(rows[0] + at),)


@triton.jit
def load_coordinates(point, length, D: tl.constexpr):
    """Loads all coordinates of some points if they fit in registers."""
    coordinates = ()
    if D <= MAX_HELD:
        for k in tl.static_range(D):
            coordinates = coordinates + (tl.load(point + k * length),)  # type: ignore[assignment]  # noqa: RUF005
    return coordinates


@triton.jit
def zero_tile(BM: tl.constexpr, BN: tl.constexpr, dtype: tl.constexpr):
    """Returns zeros made by a matrix product. The compiler then keeps sums in the tensor cores'
    layout, which takes half the registers and no shared memory."""
    if dtype == tl.float32:
        return tl.dot(tl.zeros((BM, 16), tl.bfloat16), tl.zeros((16, BN), tl.bfloat16))
    else:
        return tl.zeros((BM, BN), dtype)


@triton.jit
def squared_distances(target, x, length, source, y, source_length, D: tl.constexpr):
    """Computes the squared distances of a tile, (BM, BN). ``x`` and ``y`` are the coordinates, if
    held.

    Coordinates must not be multiplied before the subtraction: a fused product and difference would
    give coincident points a distance."""
    square = zero_tile(target.shape[0], source.shape[0], target.dtype.element_ty)
    if D <= MAX_HELD:
        for k in tl.static_range(D):
            difference = x[k][:, None] - y[k][None, :]
            square += difference * difference
    else:
        for k in range(D):
            along = tl.load(target + k * length)[:, None]
            difference = along - tl.load(source + k * source_length)[None, :]
            square += difference * difference
    return square


@triton.jit
def exponents(r, square, SIZES: tl.constexpr):
    """Computes exponents at distances ``r``, from their squares where these are more exact."""
    if SIZES.power == 2:
        return SIZES.rate * SIZES.rate * square
    else:
        return SIZES.rate * r


@triton.jit
def multiply_polynomial(w, s, SIZES: tl.constexpr):
    """Multiplies exponentials by the kernel's polynomial."""
    if SIZES.c1 == 0 and SIZES.c2 == 0:
        return w
    else:
        t = tl.minimum(s, LARGEST_EXPONENT)
        return w * (SIZES.c0 + t * (SIZES.c1 + t * SIZES.c2))


@triton.jit
def multiply_slope(w, s, inverse, SIZES: tl.constexpr):
    """Multiplies exponentials by minus the weights' derivative times ``inverse`` distances."""
    if SIZES.c1 != 0 or SIZES.c2 != 0:
        t = tl.minimum(s, LARGEST_EXPONENT)
        w = w * (SIZES.c0 - SIZES.c1 + t * (SIZES.c1 - 2 * SIZES.c2 + t * SIZES.c2))
    if SIZES.power == 2:
        return (2 * SIZES.rate * SIZES.rate) * w
    else:
        return SIZES.rate * (w * inverse)


@triton.jit
def split(number):
    """Splits float32 weights into two bfloat16 parts: the first 8 bits, and the rounded rest.
    Cutting takes less time than rounding."""
    bits = number.to(tl.uint32, bitcast=True)
    high = (bits & 0xFFFF0000).to(tl.float32, bitcast=True)
    return (bits >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True), (number - high).to(tl.bfloat16)


@triton.jit
def multiply(left, right, to):
    """Adds a product of matrices in parts to ``to``, without the low parts' own product."""
    if left[0].dtype == tl.float64:
        product = tl.dot(left[0], right[0], input_precision="ieee", out_dtype=tl.float64)
        if to is not None:
            product += to
        return product
    else:
        if len(left) == 2:
            to = tl.dot(left[1], right[0], to)
        if len(right) == 2:
            to = tl.dot(left[0], right[1], to)
        return tl.dot(left[0], right[0], to)


@triton.jit
def weigh(w, rows):
    """Multiplies weights (BM, BN) by the sources' rows in parts, (BN, BC)."""
    if rows[0].dtype == tl.float64:
        return multiply((w,), rows, None)
    else:
        return multiply(split(w), rows, None)
