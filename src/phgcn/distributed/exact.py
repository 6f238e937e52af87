r"""Exact attention over ranks: keys are gathered from all ranks in chunks of bounded size, and the
op attends to each chunk.

The softmax over all keys is put together from those over chunks. With :math:`y_c` a chunk's
output, :math:`n_c` its normaliser and :math:`s_c` its shift, two chunks make

.. math::
    s = \min(s_1, s_2), \qquad n = n_1 e^{s - s_1} + n_2 e^{s - s_2}, \qquad
    y = y_1 + \frac{n_2 e^{s - s_2}}{n} (y_2 - y_1)

The backward pass gathers the chunks again. The gradient of a key is summed over the ranks whose
queries attend to it, and goes to the key's own rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..kernels import EXPONENTIAL
from ..runtime.graphs import ALL_PAIRS
from ..runtime.points import Points, Sums, output_gradients
from .collectives import Ranks

CHUNK = 2**16  # upper bound of the keys, of all ranks and heads, that are held at a time


def exact_over_ranks(
    points: Points, counts: list[int], ranks: Ranks, backend: str, kernel: str = EXPONENTIAL.name
) -> Sums:
    """Attends to the keys of all ranks; returns normalised sums with normalisers and shifts,
    differentiable.

    Args:
        points (Points): The keys and queries of this rank. Queries must not be :obj:`None`.
        counts (list of int): The number of keys of each rank.
        ranks (Ranks): The processes.
        backend (str): Of the op.
        kernel (str, optional): The name of the kernel. (default: :obj:`"exponential"`)
    """
    out, norm, shift = _Exact.apply(*points, counts, ranks, kernel, backend)  # type: ignore[no-untyped-call]
    return Sums(out, norm, shift)


def chunks(counts: list[int], size: int) -> Iterator[list[range]]:
    """Yields each rank's rows of a chunk, at most ``size``, in chunks of about equal size."""
    most = max(counts, default=0)
    times = -(-most // size)
    for turn in range(times):
        begin, end = turn * most // times, (turn + 1) * most // times
        yield [range(min(begin, count), min(end, count)) for count in counts]


def _key_chunks(
    points: Points, counts: list[int], ranks: Ranks
) -> Iterator[tuple[Points, list[int]]]:
    """Yields chunks of all ranks' keys as points for this rank's queries, with each rank's
    count."""
    assert points.queries is not None
    heads, dim, channels = *points.positions.shape[1:], points.values.size(2)
    columns = [points.positions, points.values.to(points.positions.dtype)]
    if points.weights is not None:
        columns.append(points.weights.unsqueeze(2))
    table = torch.cat(columns, dim=2)
    for given in chunks(counts, max(1, CHUNK // (ranks.size * heads))):
        mine, sizes = given[ranks.rank], [len(rows) for rows in given]
        rows = torch.cat(ranks.gather(table[mine.start : mine.stop], sizes))
        batch = None
        if points.batch is not None:
            batch = torch.cat(ranks.gather(points.batch[mine.start : mine.stop].long(), sizes))
        positions, values, weights = rows.split([dim, channels, table.size(2) - dim - channels], 2)
        chunk = points._replace(
            positions=positions.contiguous(),
            values=values.contiguous().to(points.values.dtype),
            batch=batch,
            weights=None if points.weights is None else weights[..., 0].contiguous(),
        )
        yield chunk, sizes


class _Exact(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        points, (counts, ranks, kernel, backend) = Points(*inputs[:6]), inputs[6:]
        assert points.queries is not None
        shape = points.queries.shape[:2]
        out, norm = (
            points.values.new_zeros(*shape, points.values.size(2)),
            points.positions.new_zeros(shape),
        )
        shift = torch.full_like(norm, torch.inf)
        for chunk, _ in _key_chunks(points, counts, ranks):
            op = torch.ops.phgcn.exact if chunk.batch is None else torch.ops.phgcn.exact_batch
            other, other_norm, other_shift = op(*chunk, True, ALL_PAIRS, kernel, backend)
            # a query without keys in this chunk
            other_shift = other_shift.masked_fill(other_norm == 0, torch.inf)
            least = torch.minimum(shift, other_shift)
            norm = norm * _rescale(least, shift)
            other_norm = other_norm * _rescale(least, other_shift)
            total = norm + other_norm
            share = torch.where(
                total > 0, other_norm / torch.where(total > 0, total, 1), 0
            ).unsqueeze(-1)
            out = out + share.to(out.dtype) * (other - out)
            norm, shift = total, least
        shift = shift.masked_fill(shift.isinf(), 0)
        ctx.save_for_backward(out, norm, shift, *points)
        ctx.options = counts, ranks, kernel, backend
        ctx.mark_non_differentiable(shift)
        ctx.set_materialize_grads(False)  # None, not zeros, where nothing depends on the normaliser
        return out, norm, shift

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        out, norm, shift, *saved = ctx.saved_tensors
        points, (counts, ranks, kernel, backend) = Points(*saved), ctx.options
        assert points.queries is not None
        upstream = output_gradients(grads[0], grads[1], out, norm)
        of_queries, dtype = torch.zeros_like(points.queries), points.positions.dtype
        dim, channels = points.positions.size(2), points.values.size(2)
        width = dim + channels + (points.weights is not None)
        parts = [points.positions.new_zeros(0, points.positions.size(1), width)]
        for chunk, sizes in _key_chunks(points, counts, ranks):
            op = (
                torch.ops.phgcn.exact_backward
                if chunk.batch is None
                else torch.ops.phgcn.exact_batch_backward
            )
            of_positions, of_values, of_here, of_weights = op(
                *upstream, shift, *chunk, True, ALL_PAIRS, kernel, backend
            )
            of_queries += of_here
            columns = [of_positions, of_values.to(dtype)]
            if points.weights is not None:
                columns.append(of_weights.unsqueeze(2))
            parts.append(ranks.sum_to_owners(torch.cat(columns, dim=2), sizes))
        of_positions, of_values, of_weights = torch.cat(parts).split(
            [dim, channels, width - dim - channels], 2
        )
        return (
            of_positions,
            of_values.to(points.values.dtype),
            of_queries,
            None,
            None,
            None if points.weights is None else of_weights[..., 0],
            *(None,) * 4,
        )


def _rescale(least: Tensor, shift: Tensor) -> Tensor:
    """Returns the factor of a normaliser of another shift, or 0 where there were no keys yet."""
    return torch.where(shift.isinf(), 0, torch.exp(torch.where(shift.isinf(), 0, least - shift)))
