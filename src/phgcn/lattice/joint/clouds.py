"""Sorts points by cloud: a *cloud* is the points of one graph and head."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...runtime.points import Gradients, OutputGradients, Points, inverse
from ...runtime.rows import HEADROOM
from .kernels import Kernels, Peers, Side
from .keys import Ints, of_cloud
from .moves import segments


class CloudCounts(NamedTuple):
    """The clouds that are filtered and not empty.

    Args:
        of_keys, of_queries (torch.Tensor): The cloud of each row ``point * heads + head``, or -1,
            int64.
        keys, queries (np.ndarray): Each cloud's number of points on all processes, int64, (B,).
    """

    of_keys: Tensor
    of_queries: Tensor
    keys: Ints
    queries: Ints


def number_clouds(
    points: Points,
    graphs: tuple[Tensor | None, Tensor | None],
    keys: Ints,
    queries: Ints,
    filtered: NDArray[np.bool_],
) -> CloudCounts:
    """Numbers the clouds.

    Args:
        points (Points): Keys and queries.
        graphs (tuple): The graphs of keys and of queries, int64; :obj:`None` for one graph.
        keys, queries (np.ndarray): Each graph's number of points, (G,).
        filtered (np.ndarray): Whether a graph is filtered, bool, (G,).
    """
    heads, device = points.positions.size(1), points.positions.device
    chosen = np.flatnonzero(filtered & (keys > 0) & (queries > 0))
    number = np.full(len(keys), -heads, np.int64)
    number[chosen] = np.arange(len(chosen)) * heads
    first, head = torch.from_numpy(number).to(device), torch.arange(heads, device=device)

    def clouds(graph: Tensor | None, count: int) -> Tensor:
        begin = first.expand(count) if graph is None else first[graph]
        cloud = begin.unsqueeze(1) + head
        return torch.where(begin.unsqueeze(1) >= 0, cloud, -1).flatten()

    of_keys = clouds(graphs[0], points.positions.size(0))
    of_queries = of_keys if points.queries is None else clouds(graphs[1], points.queries.size(0))
    return CloudCounts(
        of_keys, of_queries, np.repeat(keys[chosen], heads), np.repeat(queries[chosen], heads)
    )


class Sorted(NamedTuple):
    """Keys or queries, sorted by cloud. ``row`` is each point's row ``point * heads + head``,
    int64, (P,); ``start`` is each cloud's first point, int64, (B+1,)."""

    side: Side
    row: Tensor
    start: Tensor

    def part(self, begin: int, end: int) -> slice:
        """Returns the points of clouds ``begin`` to ``end``."""
        return slice(int(self.start[begin]), int(self.start[end]))


@dataclass
class Clouds:
    """The points of all clouds. ``queries`` is the same object as ``keys`` where the keys attend to
    themselves; ``key_count`` (B,) is over all processes."""

    keys: Sorted
    queries: Sorted
    key_count: Tensor

    @property
    def to_itself(self) -> bool:
        return self.keys is self.queries


def sort_by_cloud(points: Points, counts: CloudCounts, order: Ints) -> Clouds:
    """Sorts points by cloud, and numbers clouds in the ``order`` of their old numbers."""
    device, dim = points.positions.device, points.positions.size(2)
    number = np.empty(len(order) + 1, np.int64)
    number[order], number[-1] = np.arange(len(order)), len(order)  # the last for points of no cloud
    renumber = torch.from_numpy(number).to(device)

    def sort(positions: Tensor, cloud: Tensor) -> Sorted:
        new = renumber[cloud]
        row, start = segments(new, len(order))
        row = row[: int(start[-1])]
        return Sorted(Side(positions.reshape(-1, dim)[row], new[row]), row, start.cpu())

    keys = sort(points.positions, counts.of_keys)
    queries = keys if points.queries is None else sort(points.queries, counts.of_queries)
    key_count = torch.from_numpy(counts.keys[order]).to(device, points.positions.dtype)
    return Clouds(keys, queries, key_count)


# Rows


@dataclass
class Rows:
    """The values of the keys. Normalised sums have channels less the cloud's mean, then a 1, then
    zeros up to a multiple of 4.

    In float32, sums of numbers near 1,000 would lose the differences that gradients of positions
    need.

    Args:
        plain (torch.Tensor): (N, W).
        mean (torch.Tensor, optional): The subtracted means, (B, C), or :obj:`None` in plain sums.
        weight (torch.Tensor, optional): The weights of the keys, (N, 1); :obj:`None` for all 1.
    """

    plain: Tensor
    mean: Tensor | None
    weight: Tensor | None

    @property
    def data(self) -> Tensor:
        return self.plain if self.weight is None else self.plain * self.weight


def pack_values(
    points: Points, clouds: Clouds, normalise: bool, kernels: Kernels, peers: Peers
) -> Rows:
    keys, channels = clouds.keys, points.values.size(2)
    rows = points.values.reshape(-1, channels)[keys.row].to(keys.side.position.dtype)
    if not normalise:
        return Rows(_padded(rows), None, None)
    start = keys.start.to(rows.device)
    sums = peers.sum(kernels.sum_rows(torch.cat([rows, rows.abs()], dim=1), None, None, start))
    mean, size = (sums / clouds.key_count.unsqueeze(1)).chunk(2, dim=1)
    unit = HEADROOM * (torch.nextafter(size, torch.full_like(size, torch.inf)) - size)
    mean = (mean / unit).round() * unit  # as on the CPU, see find_centres
    weight = None if points.weights is None else points.weights.reshape(-1, 1)[keys.row]
    plain = _padded(rows - of_cloud(mean, keys.side.cloud), rows.new_ones(len(rows), 1))
    return Rows(plain, mean, weight)


def _padded(*columns: Tensor) -> Tensor:
    missing = -sum(column.size(1) for column in columns) % 4
    return torch.cat([*columns, columns[0].new_zeros(len(columns[0]), missing)], dim=1)


def unpack_sums(sums: Tensor, rows: Rows, points: Points, clouds: Clouds) -> tuple[Tensor, Tensor]:
    """Turns queries' sums (M, W) into output (M, H, C) and normaliser (M, H), and divides."""
    out, norm = points.new_output(rows.mean is not None)
    out.zero_()
    channels, queries = out.size(2), clouds.queries
    total = sums[:, :channels]
    if rows.mean is not None:
        mass = sums[:, channels]
        norm.zero_().view(-1).index_copy_(0, queries.row, mass)
        total = total * inverse(mass).unsqueeze(1) + of_cloud(rows.mean, queries.side.cloud) * (
            mass != 0
        ).unsqueeze(1)
    out.view(-1, channels).index_copy_(0, queries.row, total.to(out.dtype))
    return out, norm


def pack_gradients(upstream: OutputGradients, rows: Rows, clouds: Clouds) -> Tensor:
    r"""Turns the gradients of output and normaliser into gradients of the sums, (M, W): with
    :math:`y = z / n`, :math:`\bar z = \bar y / n` and :math:`\bar n = -\langle \bar y, y \rangle /
    n` plus the normaliser's own."""
    queries, channels = clouds.queries, upstream.grad.size(2)
    grad, out = (
        t.reshape(-1, channels)[queries.row].to(rows.plain.dtype)
        for t in (upstream.grad, upstream.out)
    )
    if rows.mean is None:
        return _padded(grad)
    factor = inverse(upstream.norm.reshape(-1)[queries.row])
    of_norm = -(grad * (out - of_cloud(rows.mean, queries.side.cloud))).sum(dim=1) * factor
    if upstream.grad_norm is not None:
        of_norm = of_norm + upstream.grad_norm.reshape(-1)[queries.row]
    return _padded(grad * factor.unsqueeze(1), of_norm.unsqueeze(1))


def unpack_gradients(
    of_keys: Tensor, of_rows: Tensor, of_queries: Tensor, rows: Rows, points: Points, clouds: Clouds
) -> Gradients:
    """Turns gradients of sorted positions and weighted rows into gradients of points."""

    def unpacked(rows: Tensor, like: Tensor, row: Tensor) -> Tensor:
        width = math.prod(like.shape[2:])
        out = like.new_zeros(like.shape).view(-1, width)
        return out.index_copy_(0, row, rows[:, :width].to(like.dtype)).view(like.shape)

    weights = None
    if rows.weight is not None and points.weights is not None:
        of_weights = (of_rows * rows.plain).sum(dim=1, keepdim=True)
        weights, of_rows = (
            unpacked(of_weights, points.weights, clouds.keys.row),
            of_rows * rows.weight,
        )
    positions = unpacked(of_keys, points.positions, clouds.keys.row)
    values = unpacked(of_rows, points.values, clouds.keys.row)
    queries = None
    if points.queries is not None:
        queries = unpacked(of_queries, points.queries, clouds.queries.row)
    return Gradients(positions, values, queries, weights)
