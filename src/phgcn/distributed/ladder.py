"""The ladder and the paper's filter over ranks, on every backend that runs all clouds together.

The ranks agree on the box and ladder of every cloud. Each rank takes its points up its own ladder;
one exchange sums the tables of all weighted steps at shared vertices, and each rank takes the sums
down to its points. Far field and sums of clouds are summed over ranks. The near field reads the
points of all ranks in chunks of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ..backends import find_backend
from ..lattice.filter_call import FilterCall
from ..lattice.joint.clouds import CloudCounts, number_clouds
from ..lattice.joint.filter import Prepared, filter_gradients, filter_rows, prepare
from ..lattice.joint.kernels import Kernels, Side
from ..runtime.points import Gradients, Points, Sums, output_gradients
from .collectives import Ranks
from .exact import chunks
from .graphs import RankGraphs

# upper bound of the points of all ranks that the near field holds at a time: each chunk is compared
# with all points of this rank, so that few large ones are faster
CHUNK = 2**18


class RankPeers:
    """The ranks of a group, as :class:`phgcn.lattice.joint.kernels.Peers`."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks

    def max(self, tensor: Tensor) -> Tensor:
        return self.ranks.max(tensor)

    def sum(self, tensor: Tensor) -> Tensor:
        return self.ranks.sum(tensor)

    def sum_by_key(self, group: Tensor, key: Tensor, rows: Tensor) -> Tensor:
        """Sums rows of equal group and key at one owner rank, in the order of the ranks."""
        ranks = self.ranks
        owner = _owner(group, key, ranks.size)
        order = torch.sort(owner, stable=True)[1]
        send = torch.bincount(owner, minlength=ranks.size)
        sizes = ranks.gather_equal(send)
        to, back = send.tolist(), sizes[:, ranks.rank].tolist()
        names = ranks.exchange(torch.stack([group, key], dim=1)[order], to, back)
        place, count = _number(names)
        arrived = ranks.exchange(rows[order], to, back)
        total = rows.new_zeros(count, rows.size(1))
        for part, index in zip(arrived.split(back), place.split(back), strict=True):
            total[index] += part  # a rank names nothing twice
        out = torch.empty_like(rows)
        out[order] = ranks.exchange(total[place], back, to)
        return out

    def union(self, key: Tensor) -> Tensor:
        every: Tensor = torch.unique(torch.cat(self.ranks.gather(key)))
        return every

    def select(self, side: Side, index: np.ndarray, count: np.ndarray) -> np.ndarray:
        """Finds sorted values by their digits: all ranks count the values of each next digit."""
        position, cloud = side
        bits = position.contiguous().view(torch.int64)
        bits = torch.where(bits < 0, bits ^ (2**63 - 1), bits)  # whole numbers in the same order
        dim, segments, device = position.size(1), index.size * position.size(1), position.device
        bits = bits.unsqueeze(1)
        first = torch.arange(len(index), device=device).unsqueeze(1) * (index.shape[1] * dim)
        segment = cloud.view(-1, 1, 1) * dim + first + torch.arange(dim, device=device)
        left = torch.from_numpy(np.repeat(index, dim)).to(device)
        prefix = torch.zeros_like(left)
        for shift in range(56, -1, -8):
            digit = (bits >> shift) + 128 if shift == 56 else (bits >> shift) & 255
            place = (segment << 8) + digit
            if shift < 56:
                place = torch.where(bits >> (shift + 8) == prefix[segment], place, segments << 8)
            counts = torch.bincount(place.flatten(), minlength=(segments << 8) + 1)[:-1]
            upto = self.ranks.sum(counts).view(segments, -1).cumsum(dim=1)
            found = (upto <= left.unsqueeze(1)).sum(dim=1)
            below = upto.gather(1, (found - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
            left = left - below * (found > 0)
            prefix = found - 128 if shift == 56 else (prefix << 8) + found
        value = torch.where(prefix < 0, prefix ^ (2**63 - 1), prefix).view(torch.float64)
        return value.view(*index.shape, dim).cpu().numpy()

    def sweep(self, side: Side, *tables: Tensor) -> Iterator[tuple[Side, tuple[Tensor, ...]]]:
        ranks, position = self.ranks, side.position
        counts = (
            ranks.gather_equal(torch.tensor([len(position)], device=position.device))
            .flatten()
            .tolist()
        )
        columns = [position.size(1), 1, *(table.size(1) for table in tables)]
        packed = torch.cat([position, side.cloud.unsqueeze(1).to(position.dtype), *tables], dim=1)
        for given in chunks(counts, max(1, CHUNK // ranks.size)):
            mine, sizes = (
                slice(given[ranks.rank].start, given[ranks.rank].stop),
                [len(rows) for rows in given],
            )
            arrived = torch.cat(ranks.gather(packed[mine], sizes))
            order = torch.sort(arrived[:, position.size(1)], stable=True)[1]
            there, cloud, *rest = arrived[order].split(columns, dim=1)
            yield (
                Side(there.contiguous(), cloud[:, 0].long()),
                tuple(part.contiguous() for part in rest),
            )


def _owner(group: Tensor, key: Tensor, size: int) -> Tensor:
    """Returns the rank that sums a group and key, from bits that all of the key's bits change."""
    mixed = (key + group * 0x632BE59BD9B4E019) * -0x61C8864680B583EB
    mixed = (mixed ^ ((mixed >> 32) & 0xFFFFFFFF)) * -0x61C8864680B583EB
    return ((mixed >> 33) & 0x7FFFFFFF) % size


def _number(names: Tensor) -> tuple[Tensor, int]:
    """Numbers rows (V, 2), equal ones alike; returns the numbers and their count."""
    order = torch.sort(names[:, 1], stable=True)[1]
    order = order[torch.sort(names[order, 0], stable=True)[1]]
    ordered = names[order]
    begins = torch.ones(len(names), dtype=torch.int64, device=names.device)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(dim=1)
    number = begins.cumsum(0) - 1
    return torch.empty_like(number).index_copy_(0, order, number), int(begins.sum())


# The filter


def filter_together(
    points: Points, graphs: RankGraphs, call: FilterCall, ranks: Ranks, backend: str
) -> Sums:
    """Attends to the keys of all ranks; returns normalised sums and normalisers, differentiable."""
    kernels = cast(Kernels, find_backend(backend).load("lattice", "joint"))
    return Sums(*_Filter.apply(*points, graphs, call, RankPeers(ranks), kernels))  # type: ignore[no-untyped-call]


class _Filter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        points, (graphs, call, peers, kernels) = Points(*inputs[:6]), inputs[6:]
        counts, prepared = _count(points, graphs, call), None
        if len(counts.keys) > 0:
            prepared = prepare(points, counts, call, peers)
            out, norm = filter_rows(
                points, prepared, call, kernels, peers, keep=any(ctx.needs_input_grad)
            )
        else:
            out, norm = (tensor.zero_() for tensor in points.new_output(call.normalise))
        ctx.save_for_backward(out, norm, *points)
        ctx.options = prepared, call, kernels, peers
        ctx.set_materialize_grads(False)
        return out, norm

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        out, norm, *saved = ctx.saved_tensors
        points, upstream = Points(*saved), output_gradients(grads[0], grads[1], out, norm)
        prepared: Prepared | None = ctx.options[0]
        of = Gradients.zeros(points)
        if prepared is not None:
            of = filter_gradients(upstream, points, *ctx.options)
        return of.positions, of.values, of.queries, None, None, of.weights, *(None,) * 4


def _count(points: Points, graphs: RankGraphs, call: FilterCall) -> CloudCounts:
    """Numbers the filtered clouds, alike on all ranks."""
    groups, device = graphs.groups, points.positions.device

    def graph(order: np.ndarray, start: np.ndarray) -> Tensor | None:
        if points.batch is None:
            return None
        of_points = np.empty(len(order), np.int64)
        of_points[order] = np.repeat(np.arange(len(start) - 1), np.diff(start))
        return torch.from_numpy(of_points).to(device)

    of = graph(groups.key_order, groups.key_start), graph(groups.query_order, groups.query_start)
    return number_clouds(
        points,
        of,
        graphs.keys.sum(axis=0),
        graphs.queries.sum(axis=0),
        graphs.pairs > call.more_than,
    )
