r"""The kernels of the forward pass: weighted sums over all sources of a tile of queries, and the nearest key of each query."""

from __future__ import annotations

from ...kernels.triton import kernel, tl, triton
from .packing import points_at
from .tiles import LOG2E, load_coordinates, load_rows, locate_rows, locate_tile, squared_distances, weigh


@triton.jit
def _add_tile(
    query, x, query_length, shift, keys, rows, key_length, width, lead, last, summed, total,
    D: tl.constexpr, BN: tl.constexpr, NORMALISE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Adds the keys from ``lead`` on to sums and normalisers; only those before ``last`` if ``MASKED``."""
    source = lead + tl.arange(0, BN)
    f = load_rows(rows, source, width, summed.shape[1])
    key = keys + source
    y = load_coordinates(key, key_length, D)
    r = tl.sqrt(squared_distances(query, x, query_length, key, y, key_length, D))
    if shift is not None:
        r = r - shift[:, None]
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
    queries, keys, rows, query_order, shifts, table, query_count, first_key, key_count, out, norm, shift_out,
    query_length, key_length, channels,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr, PARTS: tl.constexpr, NORMALISE: tl.constexpr,
):  # fmt: skip
    r"""Computes :math:`\sum_j e^{s_i - \lVert q_i - k_j \rVert} f_j` for a tile of queries, divided by the sum of the weights
    if ``NORMALISE``.

    Shapes: packed ``queries`` (H, D, query_length), ``keys`` (H, D, key_length), ``rows`` (PARTS, H, key_length, width) and
    ``shifts`` (H, query_length) or None; ``out`` (M, H, channels), ``norm`` (M, H), and ``shift_out`` (M, H) or None, which
    takes the shifts.  Grid: tiles, heads, blocks of channels.
    """
    begin, end, first, last = locate_tile(table, query_count, first_key, key_count, BM)
    head = tl.program_id(1).to(tl.int64)
    place = begin + tl.arange(0, BM)
    query = queries + head * D * query_length + place
    x = load_coordinates(query, query_length, D)
    keys += head * D * key_length
    rows, width = locate_rows(rows, key_length, BC, PARTS)
    shift = None
    if shifts is not None:
        shift = tl.load(shifts + head * query_length + place)
    dtype: tl.constexpr = queries.dtype.element_ty
    summed, total = tl.zeros((BM, BC), dtype), tl.zeros((BM,), dtype)
    whole = first + (last - first) // BN * BN
    for lead in range(first, whole, BN):
        summed, total = _add_tile(
            query, x, query_length, shift, keys, rows, key_length, width, lead, last, summed, total, D, BN, NORMALISE, False
        )
    if whole < last:
        summed, total = _add_tile(
            query, x, query_length, shift, keys, rows, key_length, width, whole, last, summed, total, D, BN, NORMALISE, True
        )
    heads = tl.num_programs(1)
    inside = place < end
    i = points_at(query_order, place, end)
    if NORMALISE:
        summed = summed * tl.where(total != 0, 1 / tl.where(total != 0, total, 1.0), 0.0)[:, None]
        if tl.program_id(2) == 0:
            tl.store(norm + i * heads + head, total, mask=inside)
            if shift is not None:
                tl.store(shift_out + i * heads + head, shift, mask=inside)
    c = tl.program_id(2) * BC + tl.arange(0, BC)
    row = out + (i * heads + head) * channels
    tl.store(row[:, None] + c[None, :], summed, mask=inside[:, None] & (c < channels)[None, :])


@kernel()
def nearest(
    queries, keys, table, query_count, first_key, key_count, shifts, query_length, key_length,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Computes the distance from each query of a tile to the nearest key of its graph; 0 without keys.

    Shapes: as of :func:`attend`; ``shifts`` (H, query_length) is written.  Grid: tiles, heads.
    """
    begin, end, first, last = locate_tile(table, query_count, first_key, key_count, BM)
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
