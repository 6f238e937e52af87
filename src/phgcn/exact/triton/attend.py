r"""Exact attention in Triton: sums over all pairs of a graph's points, and their gradient.

A program takes one tile of targets of one graph, one head and up to 128 channels (64 in the backward), and goes through the
tiles of the graph's sources (:mod:`.exact_kernels`).  Nothing of size :math:`N \times N` is stored, every output is written by
one program, and sources are added in the same order whatever is batched beside a graph: no atomics, the same bits every run.

Float32 accuracy: a product of float32 rows is the sum of three bfloat16 products, as a number is packed as two bfloat16
parts; each tile's sum is added in float32, and distances never go through a product.  The error is 8e-6, norm over norm, and
no more for the gradients (``benchmarks/gpu_layers.py exact``).  Values of half types are packed as they are (bfloat16) or in
two parts (float16), which holds them exactly; sums and positions are float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...checks import check_values
from ...kernels.graphs import find_graphs
from ...kernels.points import Gradients, Points
from ...kernels.triton import capturing, cdiv, device_of, power_of_2
from .kernels import attend, gradients, nearest
from .packing import pack, pack_gradients

MOST_CHANNELS = {"forward": 128, "backward": 64}
"""Of one program: the backward holds the rows of its targets in shared memory."""

MOST_UNROLLED = 16
"""Up to so many coordinates are held in registers."""

CLOSE = {torch.float32: 1e-24, torch.float64: 1e-200}
"""Squared distances below this are taken for it in the derivative, which so falls to 0 where points coincide."""

PACKED, PACKED_CHANNELS = 64, 16
"""Points that one program packs, and their channels at a time: the fewest that a program of the sums takes."""


@dataclass(frozen=True)
class Tile:
    """Targets and sources of a tile, and warps and stages of a program."""

    targets: int
    sources: int
    warps: int
    stages: int


TILES = {
    ("forward", torch.float32): Tile(128, 64, 4, 3),
    ("backward", torch.float32): Tile(64, 32, 4, 3),
    ("forward", torch.float64): Tile(32, 32, 4, 2),
    ("backward", torch.float64): Tile(32, 16, 4, 1),
}


@dataclass(frozen=True)
class Packed:
    """What the kernels read of points: those of a graph side by side, then zeros enough for one more tile.

    Args:
        points (torch.Tensor): Positions, :math:`(H, D, L)`.
        flags (torch.Tensor): One is not 0 where a number is not finite.
        high, low (torch.Tensor, optional): Rows in two bfloat16 parts, :math:`(H, L, W)`, where the channels' number
            :math:`W` is a multiple of a program's; or in one part. (default: :obj:`None`)
    """

    points: Tensor
    flags: Tensor
    high: Tensor | None = None
    low: Tensor | None = None

    @property
    def length(self) -> int:
        return self.points.size(2)


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


def forward(points: Points, normalise: bool, at_most: int) -> tuple[Tensor, Tensor]:
    """Returns output and normaliser; see :func:`phgcn.exact.ops.attend`.

    The host waits once, after everything has been launched, to learn whether all numbers are finite; not while a CUDA graph
    is captured: numbers that are not finite are not found then.
    """
    positions, values, queries = points[:3]
    out, norm = points.new_output(normalise)
    pairs = _pairs(points, at_most)
    if pairs is None or len(pairs.ranges) > 1 or points.batch is not None:  # not all rows may be written
        out.zero_(), norm.zero_()
    if pairs is None:
        check_values(positions, values, queries)
        return out, norm
    bad = all_pairs(positions, values, queries, pairs, normalise, out, norm)
    if not capturing(values) and any(bool(flags.any()) for flags in bad):
        check_values(positions, values, queries)
    return out, norm


def backward(grad: Tensor, out: Tensor, norm: Tensor, points: Points, normalise: bool, at_most: int) -> Gradients:
    """Returns the gradients of positions, values and queries."""
    positions, values, queries = points[:3]
    pairs = _pairs(points, at_most)
    make = torch.empty if pairs is not None and points.batch is None else torch.zeros
    of_positions, of_values = (make(t.shape, dtype=t.dtype, device=t.device) for t in (positions, values))
    of_queries = None if queries is None else make(queries.shape, dtype=queries.dtype, device=queries.device)
    if pairs is not None:
        all_pairs_backward(grad, out, norm, positions, values, queries, pairs, normalise, of_positions, of_values, of_queries)
    return Gradients(of_positions, of_values, of_queries)


def _pairs(points: Points, at_most: int) -> Pairs | None:
    """Finds the queries and keys that are summed; :obj:`None` if there are none."""
    if points.empty:
        return None
    query_count = None if points.queries is None else len(points.queries)
    graphs = find_graphs(len(points.positions), points.batch, query_count, points.query_batch)
    ranges, key, query = [], 0, 0
    for inside, k, q in zip(graphs.within(at_most=at_most), graphs.keys, graphs.queries, strict=True):
        if inside and q > 0:
            ranges.append((query, query + q, key, key + k))
        key, query = key + k, query + q
    if not ranges:
        return None
    orders = [None if index is None else torch.argsort(index, stable=True) for index in (graphs.of_queries, graphs.of_keys)]
    return Pairs(ranges, *orders)


def all_pairs(
    positions: Tensor, values: Tensor, queries: Tensor | None, pairs: Pairs, normalise: bool, out: Tensor, norm: Tensor
) -> list[Tensor]:
    r"""Exact attention of the queries in ``pairs``: writes their rows of ``out`` and, if ``normalise``, of ``norm``.

    Args:
        positions (torch.Tensor): Positions of the keys in units of :math:`1/\lambda`.
        values (torch.Tensor): Values of the keys; of a half type, where positions are float32, or of that of positions.
        queries (torch.Tensor, optional): Positions of the queries; without, the keys ask themselves.
        pairs (Pairs): Which queries are summed over which keys.
        normalise (bool): Whether to divide by the sum of the weights.
        out, norm (torch.Tensor): Where the output and the normaliser go; contiguous.

    Shapes:
        - **positions:** :math:`(N, H, D)`, **values:** :math:`(N, H, C)`, **queries:** :math:`(M, H, D)`, in any layout
        - **out:** :math:`(M, H, C)`, **norm:** :math:`(M, H)`

    Returns:
        Flags, of which one is not 0 where a position, value or query is not finite.
    """
    tile = TILES["forward", positions.dtype]
    table, tiles = _tiles(pairs, tile.targets, positions.device)
    if tiles == 0:
        return []
    width, blocks = _channels(values, "forward")
    with device_of(values):
        keys = _pack(positions, values, pairs.key_order, width * blocks, values.dtype != torch.bfloat16)
        asked = keys if queries is None else _pack(queries, None, pairs.query_order)
        attend[tiles, values.size(1), blocks](
            asked.points, keys.points, keys.high, keys.low, pairs.query_order, _shift(asked, keys, pairs, normalise),
            table, *_whole(pairs), out, norm, asked.length, keys.length, width * blocks, values.size(1), values.size(2),
            **_sizes(positions, tile), BC=width, NORMALISE=normalise, num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
    return [keys.flags] if queries is None else [keys.flags, asked.flags]


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
    if len(pairs.ranges) == 0:
        return
    width, blocks = _channels(values, "backward")
    with device_of(values):
        keys = _pack(positions, values, pairs.key_order, width * blocks)
        asked = keys if queries is None else _pack(queries, None, pairs.query_order)
        grads, bias = _pack_gradients(grad, out, norm if normalise else None, pairs.query_order, asked, width * blocks)
        if queries is None:
            _gradients(keys, keys, keys, grads, bias, None, pairs, True, True, width, grad_positions, grad_values)
            return
        assert grad_queries is not None
        shift = _shift(asked, keys, pairs, normalise)
        _gradients(asked, keys, keys, grads, bias, shift, pairs, True, False, width, grad_queries, None)
        swapped = pairs.swapped()
        _gradients(keys, asked, keys, grads, bias, shift, swapped, False, True, width, grad_positions, grad_values)


def _gradients(
    own: Packed,
    other: Packed,
    values: Packed,
    grads: Packed,
    bias: Tensor | None,
    shift: Tensor | None,
    pairs: Pairs,
    of_queries: bool,
    of_keys: bool,
    width: int,
    grad_positions: Tensor,
    grad_values: Tensor | None,
) -> None:
    """Launches :func:`gradients`; channels beyond one program's give parts of the positions' gradient, which are added."""
    tile = TILES["backward", own.points.dtype]
    table, tiles = _tiles(pairs, tile.targets, own.points.device)
    if tiles == 0:
        return
    assert values.high is not None
    blocks = values.high.size(2) // width
    parts = grad_positions
    if blocks > 1:
        parts = grad_positions.new_zeros(blocks, *grad_positions.shape)
        parts[0] = grad_positions  # rows of points in no range stay
    count, heads, dim = grad_positions.shape
    gradients[tiles, heads, blocks](
        own.points, other.points, values.high, values.low, grads.high, grads.low, bias, shift, pairs.query_order, table,
        *_whole(pairs), parts, grad_values, own.length, other.length, width * blocks, count * heads * dim, heads,
        0 if grad_values is None else grad_values.size(2),
        **_sizes(grad_positions, tile), BC=width, BD=power_of_2(dim), OF_QUERIES=of_queries, OF_KEYS=of_keys,
        CLOSE=CLOSE[own.points.dtype], num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    if blocks > 1:
        torch.sum(parts, dim=0, out=grad_positions)


def _pack(points: Tensor, rows: Tensor | None, order: Tensor | None, width: int = 0, split: bool = True) -> Packed:
    """Points and rows as the kernels read them; rows in two parts, if ``split`` and not of float64."""
    count, heads, dim = points.shape
    length = _length(count, points.dtype)
    packed = points.new_empty(heads, dim, length)
    flags = points.new_empty(cdiv(length, PACKED), heads, dtype=torch.int32)
    high, low = (None, None) if rows is None else _parts(rows, points.dtype, heads, length, width, split)
    points = _rows(points)
    rows = None if rows is None else _rows(rows)
    strides = (0, 0) if rows is None else rows.stride()[:2]
    pack[cdiv(length, PACKED), heads](
        points, rows, order, packed, high, low, flags, *points.stride()[:2], *strides, count, length, dim,
        0 if rows is None else rows.size(2), width, BM=PACKED, BC=PACKED_CHANNELS,
    )  # fmt: skip
    return Packed(packed, flags, high, low)


def _pack_gradients(
    grad: Tensor, out: Tensor, norm: Tensor | None, order: Tensor | None, asked: Packed, width: int
) -> tuple[Packed, Tensor | None]:
    """The gradients of the queries' sums, packed, and those of their normalisers, :math:`(H, L)`, if any."""
    count, heads, channels = out.shape
    grad = _rows(grad)
    high, low = _parts(grad, asked.points.dtype, heads, asked.length, width, True)
    bias = asked.points.new_empty(heads, asked.length)
    pack_gradients[cdiv(asked.length, PACKED), heads](
        grad, out, norm, order, high, low, bias, *grad.stride()[:2], count, asked.length, heads, channels, width,
        BM=PACKED, BC=PACKED_CHANNELS,
    )  # fmt: skip
    return Packed(asked.points, asked.flags, high, low), None if norm is None else bias


def _parts(rows: Tensor, kind: torch.dtype, heads: int, length: int, width: int, split: bool) -> tuple[Tensor, Tensor | None]:
    """Room for packed rows: two parts where positions are float32, unless the rows need one only."""
    if kind == torch.float64:
        return rows.new_empty(heads, length, width, dtype=kind), None
    both = rows.new_empty(2 if split else 1, heads, length, width, dtype=torch.bfloat16)
    return both[0], both[1] if split else None


def _length(count: int, kind: torch.dtype) -> int:
    """The points and room for a whole tile behind them, in whole programs of :func:`pack`, so that rows start at 16 bytes."""
    tiles = [TILES[way, kind] for way in ("forward", "backward")]
    return cdiv(count + max(max(tile.targets, tile.sources) for tile in tiles), PACKED) * PACKED


def _shift(asked: Packed, keys: Packed, pairs: Pairs, normalise: bool) -> Tensor | None:
    """What to add to the exponents of each query's weights, :math:`(H, L)`: where no weight is surely 1, the distance to the
    nearest key, so that a query far from all of them does not sum zeros."""
    if asked is keys or not normalise:
        return None
    heads, dim, length = asked.points.shape
    tile = TILES["forward", asked.points.dtype]
    shift = asked.points.new_zeros(heads, length)
    table, tiles = _tiles(pairs, tile.targets, shift.device)
    nearest[tiles, heads](
        asked.points, keys.points, table, *_whole(pairs), shift, length, keys.length,
        D=dim, UNROLLED=dim <= MOST_UNROLLED, BM=tile.targets, BN=tile.sources, num_warps=tile.warps,
    )  # fmt: skip
    return shift


def _sizes(points: Tensor, tile: Tile) -> dict:
    dim = points.size(2)
    return {"D": dim, "UNROLLED": dim <= MOST_UNROLLED, "BM": tile.targets, "BN": tile.sources}


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
    return torch.from_numpy(table.astype(np.int32)).to(device), len(table)


def _whole(pairs: Pairs) -> tuple[int, int, int, int]:
    """The one range, where there is one."""
    begin, end, first, last = pairs.ranges[0]
    return int(begin), int(end), int(first), int(last)


def _rows(tensor: Tensor) -> Tensor:
    """The tensor itself where its rows lie together, else a copy."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _channels(values: Tensor, way: str) -> tuple[int, int]:
    """The channels of one program, and how many such blocks there are."""
    width = min(MOST_CHANNELS[way], max(PACKED_CHANNELS, power_of_2(values.size(2))))
    return width, max(1, cdiv(values.size(2), width))
