"""Kernels of the forward pass: weighted sums for a tile of queries, and each query's nearest
key."""

from __future__ import annotations

from ...runtime.triton import kernel, tl, triton
from .packing import points_at
from .tiles import (
    LOG2E,
    Sources,
    Targets,
    exponents,
    load_coordinates,
    load_rows,
    locate_rows,
    locate_tile,
    multiply_polynomial,
    squared_distances,
    weigh,
)


@triton.jit
def _add_tile(
    queries,
    keys,
    lead,
    last,
    summed,
    total,
    NORMALISE: tl.constexpr,
    MASKED: tl.constexpr,
    SIZES: tl.constexpr,
):
    """Adds the keys from ``lead`` on to sums and normalisers, up to ``last`` if ``MASKED``."""
    D: tl.constexpr = SIZES.dim
    source = lead + tl.arange(0, SIZES.sources)
    f = load_rows(keys.rows, source, keys.width, summed.shape[1])
    key = keys.points + source
    y = load_coordinates(key, keys.length, D)
    square = squared_distances(queries.point, queries.x, queries.length, key, y, keys.length, D)
    s = exponents(tl.sqrt(square), square, SIZES)
    shifted = s
    if queries.shift is not None:
        # At most 1: greater ones are those of keys of weight 0, or come from rounding, far away.
        shifted = tl.maximum(s - queries.shift[:, None], 0.0)
    w = multiply_polynomial(tl.exp2(-LOG2E * shifted), s, SIZES)
    if MASKED:
        w = tl.where((source < last)[None, :], w, 0.0)
    # Added in float32: tensor cores that accumulate over all tiles would cut off at every step
    # instead of rounding.
    summed += weigh(w, f)
    if NORMALISE:
        total += tl.sum(w, axis=1)
    return summed, total


@kernel()
def attend(
    queries,
    keys,
    query_order,
    shifts,
    tiles,
    sums,
    channels,
    NORMALISE: tl.constexpr,
    SIZES: tl.constexpr,
):
    r"""Computes :math:`\sum_j e^{s_i} k(\lVert q_i - k_j \rVert) f_j` for a tile of queries,
    divided by the sum of the weights if ``NORMALISE``.

    ``queries`` and ``keys`` are :class:`.packing.Packed`, ``shifts`` is (H, length of the queries)
    or None. ``sums`` receives output (M, H, channels), normaliser (M, H) and shifts (M, H). Grid:
    tiles, heads, blocks of channels."""
    D: tl.constexpr = SIZES.dim
    BM: tl.constexpr = SIZES.targets
    BN: tl.constexpr = SIZES.sources
    BC: tl.constexpr = SIZES.channels
    begin, end, first, last = locate_tile(tiles, BM)
    head = tl.program_id(1).to(tl.int64)
    index = begin + tl.arange(0, BM)
    query = queries.points + head * D * queries.length + index
    shift = None
    if shifts is not None:
        shift = tl.load(shifts + head * queries.length + index)
    x = load_coordinates(query, queries.length, D)
    mine = Targets(query, queries.length, x, None, None, None, shift)
    rows, width = locate_rows(keys.rows, keys.length, BC, SIZES.parts)
    key = keys.points + head * D * keys.length
    others = Sources(key, keys.length, rows, None, None, None, width)
    dtype: tl.constexpr = queries.points.dtype.element_ty
    summed, total = tl.zeros((BM, BC), dtype), tl.zeros((BM,), dtype)
    whole = first + (last - first) // BN * BN
    for lead in range(first, whole, BN):
        summed, total = _add_tile(mine, others, lead, last, summed, total, NORMALISE, False, SIZES)
    if whole < last:
        summed, total = _add_tile(mine, others, whole, last, summed, total, NORMALISE, True, SIZES)
    heads = tl.num_programs(1)
    inside = index < end
    i = points_at(query_order, index, end)
    if NORMALISE:
        summed = summed * tl.where(total != 0, 1 / tl.where(total != 0, total, 1.0), 0.0)[:, None]
        if tl.program_id(2) == 0:
            tl.store(sums.norm + i * heads + head, total, mask=inside)
    if shift is not None:
        tl.store(sums.shift + i * heads + head, shift, mask=inside & (tl.program_id(2) == 0))
    c = tl.program_id(2) * BC + tl.arange(0, BC)
    row = sums.out + (i * heads + head) * channels
    tl.store(row[:, None] + c[None, :], summed, mask=inside[:, None] & (c < channels)[None, :])


@kernel()
def nearest(queries, keys, tiles, shifts, SIZES: tl.constexpr):
    """Writes to ``shifts`` (H, length of the queries) the exponent of each query at the nearest key
    of its graph, or 0 without keys. Grid: tiles, heads."""
    D: tl.constexpr = SIZES.dim
    BM: tl.constexpr = SIZES.targets
    BN: tl.constexpr = SIZES.sources
    begin, end, first, last = locate_tile(tiles, BM)
    head = tl.program_id(1).to(tl.int64)
    index = begin + tl.arange(0, BM)
    query = queries.points + head * D * queries.length + index
    x = load_coordinates(query, queries.length, D)
    least = tl.full((BM,), float("inf"), queries.points.dtype.element_ty)
    for lead in range(first, last, BN):
        source = lead + tl.arange(0, BN)
        key = keys.points + head * D * keys.length + source
        y = load_coordinates(key, keys.length, D)
        square = squared_distances(query, x, queries.length, key, y, keys.length, D)
        square = tl.where((source < last)[None, :], square, float("inf"))
        least = tl.minimum(least, tl.min(square, axis=1))
    shift = tl.where(least < float("inf"), exponents(tl.sqrt(least), least, SIZES), 0.0)
    tl.store(shifts + head * queries.length + index, shift, mask=index < end)
