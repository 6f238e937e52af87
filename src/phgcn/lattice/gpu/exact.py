r"""Exact attention in Triton: sums over all pairs of a graph's points, and their gradient, tile by tile.

A program takes one tile of targets of one graph, one head and up to 128 channels, and goes through the tiles of the graph's
sources: distances by differences of coordinates, weights, then the product with the sources' rows.  Nothing of size
:math:`N \times N` is stored, every output is written by one program, and sources are added in the same order whatever is
batched beside a graph: no atomics, the same bits every run.

Float32 accuracy: products of float32 rows are those of three TF32 products (:obj:`PRECISION`), each tile's sum is added in
float32, and distances never go through a product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...triton_kernels import cdiv, device_of, power_of_2, tl, triton

LOG2E: tl.constexpr = tl.constexpr(math.log2(math.e))
MOST_CHANNELS = 128
MOST_UNROLLED = 16
"""Up to so many coordinates are held in registers."""

PRECISION = "tf32x3"
"""How float32 rows are multiplied, as :func:`tl.dot` names it: ``"tf32"`` is faster and has errors of 3e-4."""


@dataclass(frozen=True)
class Tile:
    """Targets and sources of a tile, and warps and stages of a program."""

    targets: int
    sources: int
    warps: int
    stages: int


TILES = {
    ("forward", torch.float32): Tile(128, 64, 8, 3),
    ("backward", torch.float32): Tile(64, 64, 4, 2),
    ("forward", torch.float64): Tile(32, 32, 4, 2),
    ("backward", torch.float64): Tile(32, 16, 4, 1),
}


@dataclass(frozen=True)
class Pairs:
    """Which queries are summed over which keys.

    Args:
        ranges (sequence): For each graph its first query, the end of its queries, its first key and the end of its keys, in
            the orders below. Points in no range are left alone.
        query_order, key_order (torch.Tensor, optional): The points in orders that bring those of a graph together, on the
            device. (default: :obj:`None`, as they are)
    """

    ranges: Sequence[tuple[int, int, int, int]] | np.ndarray
    query_order: Tensor | None = None
    key_order: Tensor | None = None

    def swapped(self) -> Pairs:
        """Keys as targets, queries as sources."""
        return Pairs([(c, d, a, b) for a, b, c, d in self.ranges], self.key_order, self.query_order)


def all_pairs(
    positions: Tensor, values: Tensor, queries: Tensor | None, pairs: Pairs, normalise: bool, out: Tensor, norm: Tensor
) -> None:
    r"""Exact attention of the queries in ``pairs``: writes their rows of ``out`` and, if ``normalise``, of ``norm``.

    Args:
        positions (torch.Tensor): Positions of the keys in units of :math:`1/\lambda`.
        values (torch.Tensor): Values of the keys.
        queries (torch.Tensor, optional): Positions of the queries; without, the keys ask themselves.
        pairs (Pairs): Which queries are summed over which keys.
        normalise (bool): Whether to divide by the sum of the weights.
        out, norm (torch.Tensor): Where the output and the normaliser go; contiguous.

    Shapes:
        - **positions:** :math:`(N, H, D)`, **values:** :math:`(N, H, C)`, **queries:** :math:`(M, H, D)`, in any layout
        - **out:** :math:`(M, H, C)`, **norm:** :math:`(M, H)`
    """
    asked = positions if queries is None else queries
    tile = TILES["forward", values.dtype]
    table, tiles = _tiles(pairs, tile.targets, positions.device)
    if tiles == 0:
        return
    shift = _shift(positions, queries, pairs, normalise)
    width, blocks = _channels(values)
    keys, rows, asked = _rows(positions), _rows(values), _rows(asked)
    with device_of(values):
        attend[tiles, values.size(1), blocks](
            asked, keys, rows, pairs.query_order, pairs.key_order, shift, table, *_whole(pairs), out, norm,
            *asked.stride()[:2], *keys.stride()[:2], *rows.stride()[:2], values.size(1), values.size(2),
            D=positions.size(2), UNROLLED=positions.size(2) <= MOST_UNROLLED, BM=tile.targets, BN=tile.sources, BC=width,
            NORMALISE=normalise, PRECISION=_precision(values), num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip


def all_pairs_backward(
    grad: Tensor,
    out: Tensor,
    norm: Tensor,
    positions: Tensor,
    values: Tensor,
    queries: Tensor | None,
    pairs: Pairs,
    normalise: bool,
    grad_positions: Tensor,
    grad_values: Tensor,
    grad_queries: Tensor | None,
) -> None:
    """The gradients of :func:`all_pairs`: writes the rows of the points in ``pairs``; outputs are contiguous."""
    rows, bias = _gradient_rows(grad, out, norm) if normalise else (_rows(grad), None)
    if queries is None:
        _gradients(positions, positions, values, rows, bias, None, pairs, True, True, grad_positions, grad_values)
        return
    assert grad_queries is not None
    shift = _shift(positions, queries, pairs, normalise)
    _gradients(queries, positions, values, rows, bias, shift, pairs, True, False, grad_queries, None)
    swapped = pairs.swapped()
    _gradients(positions, queries, values, rows, bias, shift, swapped, False, True, grad_positions, grad_values)


def _gradients(own, other, values, rows, bias, shift, pairs, of_queries, of_keys, grad_positions, grad_values) -> None:
    """Launches :func:`gradients`; channels beyond one program's give parts of the positions' gradient, which are added."""
    tile = TILES["backward", values.dtype]
    table, tiles = _tiles(pairs, tile.targets, values.device)
    if tiles == 0:
        return
    width, blocks = _channels(values)
    own, other, values = _rows(own), _rows(other), _rows(values)
    parts = grad_positions if blocks == 1 else grad_positions.new_zeros(blocks, *grad_positions.shape)
    with device_of(values):
        gradients[tiles, values.size(1), blocks](
            own, other, values, rows, bias, pairs.query_order, pairs.key_order, shift, table, *_whole(pairs), parts,
            grad_values, *own.stride()[:2], *other.stride()[:2], *values.stride()[:2], *rows.stride()[:2],
            grad_positions.numel(), values.size(1), values.size(2),
            D=own.size(2), UNROLLED=own.size(2) <= MOST_UNROLLED, BM=tile.targets, BN=tile.sources, BC=width,
            BD=power_of_2(own.size(2)), OF_QUERIES=of_queries, OF_KEYS=of_keys, PRECISION=_precision(values),
            TINY=torch.finfo(values.dtype).tiny, num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
    if blocks > 1:
        _add_parts(parts, pairs, grad_positions)


def _add_parts(parts: Tensor, pairs: Pairs, grad_positions: Tensor) -> None:
    """Sums the parts of the targets in ``pairs``; rows of others stay."""
    total = parts.sum(dim=0)
    for begin, end, _, _ in pairs.ranges:
        index = slice(begin, end) if pairs.query_order is None else pairs.query_order[begin:end].long()
        grad_positions[index] = total[index]


def _gradient_rows(grad: Tensor, out: Tensor, norm: Tensor) -> tuple[Tensor, Tensor]:
    r"""With :math:`y = z / n`, the rows :math:`\bar z = \bar y / n` and :math:`\bar n = -\langle \bar y, y \rangle / n`."""
    grad = _rows(grad)
    rows, bias = torch.empty_like(out), torch.empty_like(norm)
    count, heads, channels = out.shape
    with device_of(grad):
        gradient_rows[(cdiv(count * heads, 16),)](
            grad, out, norm, rows, bias, *grad.stride()[:2], count * heads, heads, channels, BM=16, BC=64
        )
    return rows, bias


def _shift(positions: Tensor, queries: Tensor | None, pairs: Pairs, normalise: bool) -> Tensor | None:
    """What to add to the exponents of each query's weights, :math:`(M, H)`: where no weight is surely 1, the distance to the
    nearest key, so that a query far from all of them does not sum zeros."""
    if queries is None or not normalise:
        return None
    tile = TILES["forward", positions.dtype]
    shift = queries.new_empty(queries.shape[:2])
    table, tiles = _tiles(pairs, tile.targets, positions.device)
    keys, asked = _rows(positions), _rows(queries)
    with device_of(positions):
        nearest[tiles, keys.size(1)](
            asked, keys, pairs.query_order, pairs.key_order, table, *_whole(pairs), shift,
            *asked.stride()[:2], *keys.stride()[:2], keys.size(1),
            D=keys.size(2), UNROLLED=keys.size(2) <= MOST_UNROLLED, BM=tile.targets, BN=tile.sources, num_warps=tile.warps,
        )  # fmt: skip
    return shift


def _tiles(pairs: Pairs, targets: int, device: torch.device) -> tuple[Tensor | None, int]:
    """The tiles of targets, with their ranges of sources, and their number; no table for one graph, which needs no copy."""
    if len(pairs.ranges) == 1:
        begin, end, _, _ = pairs.ranges[0]
        return None, cdiv(int(end - begin), targets)
    ranges = np.asarray(pairs.ranges, np.int64).reshape(-1, 4)
    count = -(-(ranges[:, 1] - ranges[:, 0]) // targets)
    table = np.repeat(ranges, count, axis=0)
    number = np.arange(len(table)) - np.repeat(np.cumsum(count) - count, count)
    table[:, 0] += number * targets
    return torch.from_numpy(table).to(device), len(table)


def _whole(pairs: Pairs) -> tuple[int, int, int, int]:
    """The one range, where there is one."""
    begin, end, first, last = pairs.ranges[0]
    return int(begin), int(end), int(first), int(last)


def _rows(tensor: Tensor) -> Tensor:
    """The tensor itself where its rows lie together, else a copy."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _channels(values: Tensor) -> tuple[int, int]:
    """The channels of one program, and how many such blocks there are."""
    width = min(MOST_CHANNELS, max(16, power_of_2(values.size(2))))
    return width, max(1, cdiv(values.size(2), width))


def _precision(values: Tensor) -> str:
    return PRECISION if values.dtype == torch.float32 else "ieee"


# Kernels


@triton.jit
def _tile(table, begin, end, first, last, BM: tl.constexpr):
    """The first target of a program's tile and the end of its graph's, the first source and the end of these."""
    tile = tl.program_id(0)
    if table is None:
        return begin + tile * BM, end, first, last
    row = table + 4 * tile
    return (
        tl.load(row).to(tl.int32),
        tl.load(row + 1).to(tl.int32),
        tl.load(row + 2).to(tl.int32),
        tl.load(row + 3).to(tl.int32),
    )


@triton.jit
def _numbers(order, place, end):
    """The points at some places of an order."""
    if order is None:
        return place.to(tl.int64)
    return tl.load(order + place, mask=place < end, other=0).to(tl.int64)


@triton.jit
def _coordinate(point, k, mask):
    """A coordinate in units in which weights are powers of 2."""
    return tl.load(point + k, mask=mask, other=0.0) * LOG2E


@triton.jit
def _coordinates(point, mask, D: tl.constexpr, UNROLLED: tl.constexpr):
    """All coordinates, as long as they are few."""
    found = ()
    if UNROLLED:
        for k in tl.static_range(D):
            found = found + (_coordinate(point, k, mask),)
    return found


@triton.jit
def _squares(own, x, own_mask, other, y, other_mask, D: tl.constexpr, UNROLLED: tl.constexpr):
    """The squared distances of all pairs of a tile; ``x`` and ``y`` are coordinates, if held."""
    if UNROLLED:
        difference = x[0][:, None] - y[0][None, :]
        square = difference * difference
        for k in tl.static_range(1, D):
            difference = x[k][:, None] - y[k][None, :]
            square += difference * difference
    else:
        difference = _coordinate(own, 0, own_mask)[:, None] - _coordinate(other, 0, other_mask)[None, :]
        square = difference * difference
        for k in range(1, D):
            difference = _coordinate(own, k, own_mask)[:, None] - _coordinate(other, k, other_mask)[None, :]
            square += difference * difference
    return square


@triton.jit
def attend(
    queries, keys, values, query_order, key_order, shift, table, begin, end, first, last, out, norm,
    query_stride, query_head, key_stride, key_head, value_stride, value_head, heads, channels,
    D: tl.constexpr, UNROLLED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
    NORMALISE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    r"""The sums :math:`\sum_j 2^{s_i - \lVert q_i - k_j \rVert} f_j` of a tile of queries, divided by those of the weights."""
    begin, end, first, last = _tile(table, begin, end, first, last, BM)
    head = tl.program_id(1)
    c = tl.program_id(2) * BC + tl.arange(0, BC)
    place = begin + tl.arange(0, BM)
    asked = place < end
    i = _numbers(query_order, place, end)
    query = queries + i * query_stride + head * query_head
    x = _coordinates(query, asked, D, UNROLLED)
    kind: tl.constexpr = values.dtype.element_ty
    summed = tl.zeros((BM, BC), kind)
    total = tl.zeros((BM,), kind)
    if shift is not None:
        s = tl.load(shift + i * heads + head, mask=asked, other=0.0)
    for lead in range(first, last, BN):
        source = lead + tl.arange(0, BN)
        given = source < last
        j = _numbers(key_order, source, last)
        key = keys + j * key_stride + head * key_head
        y = _coordinates(key, given, D, UNROLLED)
        row = values + j * value_stride + head * value_head
        f = tl.load(row[:, None] + c[None, :], mask=given[:, None] & (c < channels)[None, :], other=0.0)
        r = tl.sqrt(_squares(query, x, asked, key, y, given, D, UNROLLED))
        if shift is not None:
            r = r - s[:, None]
        w = tl.where(given[None, :], tl.exp2(-r), 0.0)
        summed += tl.dot(w, f, input_precision=PRECISION, out_dtype=kind)
        if NORMALISE:
            total += tl.sum(w, axis=1)
    if NORMALISE:
        summed = summed * tl.where(total != 0, 1 / tl.where(total != 0, total, 1.0), 0.0)[:, None]
        if tl.program_id(2) == 0:
            tl.store(norm + i * heads + head, total, mask=asked)
    target = out + (i * heads + head) * channels
    tl.store(target[:, None] + c[None, :], summed, mask=asked[:, None] & (c < channels)[None, :])


@triton.jit
def nearest(
    queries, keys, query_order, key_order, table, begin, end, first, last, shift,
    query_stride, query_head, key_stride, key_head, heads,
    D: tl.constexpr, UNROLLED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """The distance from each query of a tile to the nearest key of its graph; 0 without keys."""
    begin, end, first, last = _tile(table, begin, end, first, last, BM)
    head = tl.program_id(1)
    place = begin + tl.arange(0, BM)
    asked = place < end
    i = _numbers(query_order, place, end)
    query = queries + i * query_stride + head * query_head
    x = _coordinates(query, asked, D, UNROLLED)
    least = tl.full((BM,), float("inf"), queries.dtype.element_ty)
    for lead in range(first, last, BN):
        source = lead + tl.arange(0, BN)
        given = source < last
        j = _numbers(key_order, source, last)
        key = keys + j * key_stride + head * key_head
        y = _coordinates(key, given, D, UNROLLED)
        square = _squares(query, x, asked, key, y, given, D, UNROLLED)
        least = tl.minimum(least, tl.min(tl.where(given[None, :], square, float("inf")), axis=1))
    tl.store(shift + i * heads + head, tl.where(least < float("inf"), tl.sqrt(least), 0.0), mask=asked)


@triton.jit
def gradient_rows(
    grad, out, norm, rows, bias, grad_stride, grad_head, count, heads, channels, BM: tl.constexpr, BC: tl.constexpr
):
    """The gradients of sums and normalisers from those of their quotients."""
    place = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    given = place < count
    total = tl.load(norm + place, mask=given, other=0.0)
    factor = tl.where(total != 0, 1 / tl.where(total != 0, total, 1.0), 0.0)
    product = tl.zeros((BM,), norm.dtype.element_ty)
    source = grad + (place // heads) * grad_stride + (place % heads) * grad_head
    for lead in range(0, channels, BC):
        c = lead + tl.arange(0, BC)
        mask = given[:, None] & (c < channels)[None, :]
        g = tl.load(source[:, None] + c[None, :], mask=mask, other=0.0) * factor[:, None]
        at = place[:, None] * channels + c[None, :]
        product += tl.sum(g * tl.load(out + at, mask=mask, other=0.0), axis=1)
        tl.store(rows + at, g, mask=mask)
    tl.store(bias + place, -product, mask=given)


@triton.jit
def gradients(
    own, other, values, rows, bias, own_order, other_order, shift, table, begin, end, first, last, grad_positions,
    grad_values, own_stride, own_head, other_stride, other_head, value_stride, value_head, row_stride, row_head,
    part, heads, channels,
    D: tl.constexpr, UNROLLED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr,
    OF_QUERIES: tl.constexpr, OF_KEYS: tl.constexpr, PRECISION: tl.constexpr, TINY: tl.constexpr,
):  # fmt: skip
    r"""The gradient of the positions of a tile of targets, as queries, as keys or as both, and, as keys, of their values.

    With gradients :math:`\bar z_i` of the sums and :math:`\bar n_i` of the normalisers, a weight has the gradient
    :math:`\langle \bar z_i, f_j \rangle + \bar n_i`.  Targets' points are ``own``, sources' ``other``.
    """
    begin, end, first, last = _tile(table, begin, end, first, last, BM)
    head = tl.program_id(1)
    c = tl.program_id(2) * BC + tl.arange(0, BC)
    d = tl.arange(0, BD)
    place = begin + tl.arange(0, BM)
    asked = place < end
    i = _numbers(own_order, place, end)
    target = own + i * own_stride + head * own_head
    x = _coordinates(target, asked, D, UNROLLED)
    kind: tl.constexpr = values.dtype.element_ty
    own_mask = asked[:, None] & (c < channels)[None, :]
    if OF_QUERIES:
        own_rows = tl.load((rows + i * row_stride + head * row_head)[:, None] + c[None, :], mask=own_mask, other=0.0)
        if bias is not None:
            own_bias = tl.load(bias + i * heads + head, mask=asked & (tl.program_id(2) == 0), other=0.0)
        if shift is not None:
            own_shift = tl.load(shift + i * heads + head, mask=asked, other=0.0)
    if OF_KEYS:
        own_values = tl.load((values + i * value_stride + head * value_head)[:, None] + c[None, :], mask=own_mask, other=0.0)
    summed = tl.zeros((BM, BC), kind)
    slopes = tl.zeros((BM, BD), kind)
    for lead in range(first, last, BN):
        source = lead + tl.arange(0, BN)
        given = source < last
        j = _numbers(other_order, source, last)
        point = other + j * other_stride + head * other_head
        y = _coordinates(point, given, D, UNROLLED)
        mask = given[:, None] & (c < channels)[None, :]
        square = _squares(target, x, asked, point, y, given, D, UNROLLED)
        apart = square >= TINY
        inverse = tl.where(apart, tl.rsqrt(tl.where(apart, square, 1.0)), 0.0)
        r = square * inverse
        product = tl.zeros((BM, BN), kind)
        if OF_QUERIES:
            f = tl.load((values + j * value_stride + head * value_head)[:, None] + c[None, :], mask=mask, other=0.0)
            product += tl.dot(own_rows, tl.trans(f), input_precision=PRECISION, out_dtype=kind)
            if bias is not None:
                product += own_bias[:, None]
            if shift is not None:
                r = r - own_shift[:, None]
        if OF_KEYS:
            g = tl.load((rows + j * row_stride + head * row_head)[:, None] + c[None, :], mask=mask, other=0.0)
            product += tl.dot(own_values, tl.trans(g), input_precision=PRECISION, out_dtype=kind)
            if bias is not None:
                product += tl.load(bias + j * heads + head, mask=given & (tl.program_id(2) == 0), other=0.0)[None, :]
            if shift is not None:
                r = r - tl.load(shift + j * heads + head, mask=given, other=0.0)[None, :]
        w = tl.where(given[None, :], tl.exp2(-r), 0.0)
        if OF_KEYS:
            summed += tl.dot(w, g, input_precision=PRECISION, out_dtype=kind)
        slope = w * product * inverse
        if UNROLLED:
            for k in tl.static_range(D):
                along = tl.sum(slope * (y[k][None, :] - x[k][:, None]), axis=1)
                slopes += tl.where(d[None, :] == k, along[:, None], 0.0)
        else:
            for k in range(D):
                difference = _coordinate(point, k, given)[None, :] - _coordinate(target, k, asked)[:, None]
                slopes += tl.where(d[None, :] == k, tl.sum(slope * difference, axis=1)[:, None], 0.0)
    at = grad_positions + tl.program_id(2).to(tl.int64) * part + (i * heads + head) * D
    tl.store(at[:, None] + d[None, :], slopes, mask=asked[:, None] & (d < D)[None, :])
    if OF_KEYS:
        at = grad_values + (i * heads + head) * channels
        tl.store(at[:, None] + c[None, :], summed, mask=own_mask)
