r"""The kernels of the forward pass: weighted sums over all sources of a tile of queries, and the nearest key of each query."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...runtime.triton import kernel, tl, triton
from .packing import points_at
from .tiles import LOG2E, load_coordinates, load_rows, locate_rows, locate_tile, squared_distances, weigh


class Queries(NamedTuple):
    """A program's queries, loaded: pointers to the first coordinate, the distance to the next, the coordinates, if held, and
    the shifts, or None."""

    point: Any
    length: Any
    x: Any
    shift: Any


class Keys(NamedTuple):
    """Pointers to all keys, to be read tile by tile: points, the distance between coordinates, rows in parts, their width."""

    points: Any
    length: Any
    rows: Any
    width: Any


@triton.jit
def _add_tile(queries, keys, lead, last, summed, total, NORMALISE: tl.constexpr, MASKED: tl.constexpr, SIZES: tl.constexpr):
    """Adds the keys from ``lead`` on to sums and, if ``NORMALISE``, to normalisers; only those before ``last`` if
    ``MASKED``."""
    D: tl.constexpr = SIZES.dim
    source = lead + tl.arange(0, SIZES.sources)
    f = load_rows(keys.rows, source, keys.width, summed.shape[1])
    key = keys.points + source
    y = load_coordinates(key, keys.length, D)
    r = tl.sqrt(squared_distances(queries.point, queries.x, queries.length, key, y, keys.length, D))
    if queries.shift is not None:
        r = r - queries.shift[:, None]
    w = tl.exp2(-LOG2E * r)
    if MASKED:
        w = tl.where((source < last)[None, :], w, 0.0)
    # Added in float32: tensor cores that accumulate over all tiles would cut off at every step instead of rounding.
    summed += weigh(w, f)
    if NORMALISE:
        total += tl.sum(w, axis=1)
    return summed, total


@kernel()
def attend(
    queries, keys, query_order, shifts, tiles, sums, query_length, key_length, channels,
    NORMALISE: tl.constexpr, SIZES: tl.constexpr,
):  # fmt: skip
    r"""Computes :math:`\sum_j e^{s_i - \lVert q_i - k_j \rVert} f_j` for a tile of queries, divided by the sum of the weights
    if ``NORMALISE``.

    Args: ``queries`` and ``keys`` are :class:`.packing.Packed`, of ``query_length`` and ``key_length`` points; ``shifts``
    (H, query_length) or None; ``sums`` takes the output (M, H, channels), the normaliser (M, H) and, if there are any, the
    shifts (M, H).  Grid: tiles, heads, blocks of channels.
    """
    D: tl.constexpr = SIZES.dim
    BM: tl.constexpr = SIZES.targets
    BN: tl.constexpr = SIZES.sources
    BC: tl.constexpr = SIZES.channels
    begin, end, first, last = locate_tile(tiles, BM)
    head = tl.program_id(1).to(tl.int64)
    place = begin + tl.arange(0, BM)
    query = queries.points + head * D * query_length + place
    shift = None
    if shifts is not None:
        shift = tl.load(shifts + head * query_length + place)
    mine = Queries(query, query_length, load_coordinates(query, query_length, D), shift)
    rows, width = locate_rows(keys.rows, key_length, BC, SIZES.parts)
    others = Keys(keys.points + head * D * key_length, key_length, rows, width)
    dtype: tl.constexpr = queries.points.dtype.element_ty
    summed, total = tl.zeros((BM, BC), dtype), tl.zeros((BM,), dtype)
    whole = first + (last - first) // BN * BN
    for lead in range(first, whole, BN):
        summed, total = _add_tile(mine, others, lead, last, summed, total, NORMALISE, False, SIZES)
    if whole < last:
        summed, total = _add_tile(mine, others, whole, last, summed, total, NORMALISE, True, SIZES)
    heads = tl.num_programs(1)
    inside = place < end
    i = points_at(query_order, place, end)
    if NORMALISE:
        summed = summed * tl.where(total != 0, 1 / tl.where(total != 0, total, 1.0), 0.0)[:, None]
        if tl.program_id(2) == 0:
            tl.store(sums.norm + i * heads + head, total, mask=inside)
            if shift is not None:
                tl.store(sums.shift + i * heads + head, shift, mask=inside)
    c = tl.program_id(2) * BC + tl.arange(0, BC)
    row = sums.out + (i * heads + head) * channels
    tl.store(row[:, None] + c[None, :], summed, mask=inside[:, None] & (c < channels)[None, :])


@kernel()
def nearest(queries, keys, tiles, shifts, query_length, key_length, SIZES: tl.constexpr):
    """Computes the distance from each query of a tile to the nearest key of its graph; 0 without keys.

    Shapes: as of :func:`attend`; ``queries`` and ``keys`` are the packed points alone, ``shifts`` (H, query_length) is written.
    Grid: tiles, heads.
    """
    D: tl.constexpr = SIZES.dim
    BM: tl.constexpr = SIZES.targets
    BN: tl.constexpr = SIZES.sources
    begin, end, first, last = locate_tile(tiles, BM)
    head = tl.program_id(1).to(tl.int64)
    place = begin + tl.arange(0, BM)
    query = queries + head * D * query_length + place
    x = load_coordinates(query, query_length, D)
    least = tl.full((BM,), float("inf"), queries.dtype.element_ty)
    for lead in range(first, last, BN):
        source = lead + tl.arange(0, BN)
        key = keys + head * D * key_length + source
        y = load_coordinates(key, key_length, D)
        square = squared_distances(query, x, query_length, key, y, key_length, D)
        least = tl.minimum(least, tl.min(tl.where((source < last)[None, :], square, float("inf")), axis=1))
    distance = tl.where(least < float("inf"), tl.sqrt(least), 0.0)
    tl.store(shifts + head * query_length + place, distance, mask=place < end)
