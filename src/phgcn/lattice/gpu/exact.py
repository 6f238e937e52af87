r"""Exact attention in Triton: sums over all pairs of a graph's points, and their gradient.

A program takes one tile of targets of one graph, one head and up to 128 channels (64 in the backward), and goes through the
tiles of the graph's sources (:mod:`.exact_kernels`).  Nothing of size :math:`N \times N` is stored, every output is written by
one program, and sources are added in the same order whatever is batched beside a graph: no atomics, the same bits every run.

Float32 accuracy: a product of float32 rows is the sum of three bfloat16 products (:obj:`PRECISION`), each tile's sum is
added in float32, and distances never go through a product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...triton_kernels import INTERPRETED, capturing, cdiv, device_of, power_of_2
from ..checks import check_values
from ..scheme import Exact
from .exact_kernels import attend, gradient_rows, gradients, nearest

MOST_CHANNELS = {"forward": 128, "backward": 64}
"""Of one program: the backward holds the rows of its targets in shared memory."""

MOST_UNROLLED = 16
"""Up to so many coordinates are held in registers."""

PRECISION = "bf16x3"
"""How float32 rows are multiplied, as :func:`tl.dot` names it: a row as two bfloat16 numbers, three products of these. Errors
are 5e-6; ``"tf32x3"`` has 1e-6 and takes twice the time (``benchmarks/gpu_layers.py tune``)."""


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


def forward(positions: Tensor, values: Tensor, queries: Tensor | None, normalise: bool) -> tuple[Tensor, Tensor]:
    """Exact attention of one graph; returns output and normaliser.

    The host waits once, to look for values that are not finite; not while a CUDA graph is recorded, where it cannot.
    """
    asked = positions if queries is None else queries
    out = values.new_empty(len(asked), *values.shape[1:])
    norm = positions.new_empty(len(asked) if normalise else 0, values.size(1))
    if not capturing(values) and not finite(positions, values, queries):
        check_values(positions, values, queries, Exact())
    if len(positions) == 0:
        return out.zero_(), norm.zero_()
    all_pairs(positions, values, queries, _one_graph(positions, asked), normalise, out, norm)
    return out, norm


def backward(
    grad: Tensor, out: Tensor, norm: Tensor, positions: Tensor, values: Tensor, queries: Tensor | None, normalise: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients of positions, values and queries of :func:`forward`."""
    asked = positions if queries is None else queries
    grads = [torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (positions, values)]
    of_queries = None if queries is None else torch.empty(queries.shape, dtype=queries.dtype, device=queries.device)
    if len(positions) == 0 or len(asked) == 0:
        for own in (*grads, of_queries):
            if own is not None:
                own.zero_()
        return grads[0], grads[1], of_queries
    pairs = _one_graph(positions, asked)
    all_pairs_backward(
        grad, out, norm, positions, values, queries, pairs, normalise, grads[0], grads[1], of_queries
    )  # fmt: skip
    return grads[0], grads[1], of_queries


def _one_graph(positions: Tensor, asked: Tensor) -> Pairs:
    return Pairs([(0, len(asked), 0, len(positions))])


def finite(*tensors: Tensor | None) -> bool:
    """Whether the sums of all tensors are finite, which they are only if all numbers are; one wait for the device.  Large
    numbers can overflow: what is not finite must be looked at closely."""
    sums = torch.stack([t.sum(dtype=torch.float64) for t in tensors if t is not None])
    return bool(sums.isfinite().all())


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
    width, blocks = _channels(values, "forward")
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
    width, blocks = _channels(values, "backward")
    own, other, values = _rows(own), _rows(other), _rows(values)
    parts = grad_positions
    if blocks > 1:
        parts = grad_positions.new_zeros(blocks, *grad_positions.shape)
        parts[0] = grad_positions  # rows of points in no range stay
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
        torch.sum(parts, dim=0, out=grad_positions)


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
    width = min(MOST_CHANNELS[way], max(16, power_of_2(values.size(2))))
    return width, max(1, cdiv(values.size(2), width))


def _precision(values: Tensor) -> str:
    return PRECISION if values.dtype == torch.float32 and not INTERPRETED else "ieee"
