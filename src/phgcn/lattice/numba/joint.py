"""The kernels of :mod:`phgcn.lattice.joint` on the cores of the CPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ...runtime.numba import as_array, kernel
from ...runtime.threads import run_rows
from ..joint.kernels import Near, Side
from ..joint.moves import merge_keys
from .cells import lay_cells
from .locate import with_extent
from .near import near_field

__all__ = ["average_rows", "merge_keys", "multiply_rows", "slice_rows", "sum_near", "sum_rows"]

GRAIN = 1024  # least number of rows that a thread takes


def sum_rows(rows: Tensor, index: Tensor | None, weight: Tensor | None, start: Tensor) -> Tensor:
    index = torch.arange(len(rows)) if index is None else index
    weight = rows.new_ones(len(index)) if weight is None else weight
    return _run(sum_segments, len(start) - 1, rows.size(1), rows, index, weight, start)


def average_rows(table: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return _run(average_places, len(first), table.size(1), table, first, second)


def slice_rows(table: Tensor, corner: Tensor, weight: Tensor) -> Tensor:
    return _run(slice_corners, len(corner), table.size(1), table, corner, weight)


def multiply_rows(table: Tensor, corner: Tensor, rows: Tensor) -> Tensor:
    return _run(multiply_corners, *corner.shape, table, corner, rows)


def _run(compiled: Callable[..., None], count: int, width: int, *given: Tensor) -> Tensor:
    """Fills a table (count, width) by a kernel, in the type of the first tensor."""
    out = given[0].new_empty(count, width)
    run_rows(compiled, count, GRAIN, *map(as_array, given), out.numpy())
    return out


def sum_near(
    near: Near,
    targets: Side,
    sources: Side,
    rows: Tensor | None,
    products: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor | None, Tensor | None]:
    sums = None if rows is None else rows.new_zeros(len(targets.position), rows.size(1))
    slopes = None if products is None else torch.zeros_like(targets.position)
    clouds = torch.arange(len(near.table) + 1)
    of_targets, of_sources = (
        torch.searchsorted(side.cloud, clouds).tolist() for side in (targets, sources)
    )
    for cloud, (radius, *polynomial) in enumerate(near.table.tolist()):
        t, s = (slice(*start[cloud : cloud + 2]) for start in (of_targets, of_sources))
        if radius == 0 or t.stop == t.start or s.stop == s.start:
            continue
        together = with_extent(as_array(torch.cat([sources.position[s], targets.position[t]])))
        cells = lay_cells(together, s.stop - s.start, radius, near.kernel, polynomial)
        given: dict[str, np.ndarray] = {}
        if rows is not None and sums is not None:
            given |= {"rows": cells.source.take(as_array(rows[s])), "out": sums[t].numpy()}
        if products is not None and slopes is not None:
            own, others = (
                as_array(table[part]) for table, part in zip(products, (t, s), strict=True)
            )
            given |= {
                "target_rows": cells.target.take(own),
                "source_rows": cells.source.take(others),
            }
            given |= {"grad": slopes[t].numpy()}
        near_field(cells, **given)
    return sums, slopes


# Kernels


@kernel("int64, int64, real[:, ::1], int64[::1], real[::1], int64[::1], real[:, ::1]")
def sum_segments(begin, end, rows, index, weight, start, out):
    for s in range(begin, end):
        for c in range(out.shape[1]):
            out[s, c] = 0
        for e in range(start[s], start[s + 1]):
            i, w = index[e], weight[e]
            for c in range(out.shape[1]):
                out[s, c] += w * rows[i, c]


@kernel("int64, int64, real[:, ::1], int32[::1], int32[::1], real[:, ::1]")
def average_places(begin, end, table, first, second, out):
    """Averages the rows at two indices. An index behind the table stands for a row of 0."""
    half, count = out.dtype.type(0.5), table.shape[0]
    for i in range(begin, end):
        p, q = first[i], second[i]
        if p < count and q < count:
            for c in range(out.shape[1]):
                out[i, c] = half * (table[p, c] + table[q, c])
        else:
            p = min(p, q)
            for c in range(out.shape[1]):
                out[i, c] = half * table[p, c]


@kernel("int64, int64, real[:, ::1], int64[:, ::1], real[:, ::1], real[:, ::1]")
def slice_corners(begin, end, table, corner, weight, out):
    """Sums the weighted rows at the corners of each point."""
    for i in range(begin, end):
        for c in range(out.shape[1]):
            out[i, c] = 0
        for r in range(corner.shape[1]):
            v, w = corner[i, r], weight[i, r]
            for c in range(out.shape[1]):
                out[i, c] += w * table[v, c]


@kernel("int64, int64, real[:, ::1], int64[:, ::1], real[:, ::1], real[:, ::1]")
def multiply_corners(begin, end, table, corner, rows, out):
    for i in range(begin, end):
        for r in range(corner.shape[1]):
            v = corner[i, r]
            total = rows.dtype.type(0)
            for c in range(rows.shape[1]):
                total += rows[i, c] * table[v, c]
            out[i, r] = total
