r"""Cells of the near field: points of one level sorted by cell, and the sources in the cells around each target.

Cells are as wide as the near field's radius, but for their last coordinate, which is cut finer.  The sources near a target
lie in one run of the sorted points for each row of cells around it; a run is cut to the chord that the ball around the target
has in that row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from ...runtime.triton import block_size, cdiv, kernel, search_steps, tl, triton
from .clouds import Clouds
from .constants import Constants
from .keys import (
    BASE,
    SHIFT,
    WORD,
    KeyLayout,
    bucket_lower_bound,
    load_key,
    lower_bound,
    no_key,
    pack_word,
    sort_keys,
)
from .rows import Rows

RUN_BLOCK, RUN_WARPS = 256, 2
"""Pairs of a target and a row of cells whose runs a program finds, and its warps."""


class CellPoints(NamedTuple):
    r"""Points of one level sorted by cell; those of other levels are last, without a key.

    Shapes:
        - **keys:** of their cells, :math:`(W, M)`, **point:** which point each is, int64, :math:`(M,)`
        - **position:** :math:`(M, D)`
    """

    keys: Tensor
    point: Tensor
    position: Tensor


class NearRunSizes(NamedTuple):
    """What the search for runs is compiled for: coordinates, those that cells have, words of a key, pairs of a target and a row
    of cells that a program takes."""

    dim: int
    cell_dims: int
    words: int
    block: int


@dataclass
class NearLevel:
    """What the near field of one level reads.

    Args:
        level (int): The level :math:`\\kappa`.
        constants (torch.Tensor): See ``Constants.near``.
        cell_rows (torch.Tensor): Steps to the rows of cells around a cell, int64.
        dimensions (int): How many coordinates cells have.
        layout (KeyLayout): Of the keys of cells.
    """

    level: int
    constants: Tensor
    cell_rows: Tensor
    dimensions: int
    layout: KeyLayout


def near_level(constants: Constants, level: int, layout: KeyLayout) -> NearLevel:
    """Gathers what the near field of a level reads."""
    return NearLevel(level, constants.near[level], constants.cell_rows, constants.cell_dimensions, layout)


def sort_by_cell(near: NearLevel, clouds: Clouds, level: Tensor, part: slice, coordinates: Tensor | None = None) -> CellPoints:
    """Sorts some points by cell; ``level`` is the finest level of each of all points, int32, ``coordinates`` the order that
    their coordinates are taken in (:func:`phgcn.lattice.triton.bounds.widest_first`), which distances do not depend on."""
    some = None if coordinates is None else coordinates[part]
    return sort_points(near, clouds.position[part], clouds.cloud[part], level[part], some)


def sort_points(near: NearLevel, points: Tensor, cloud: Tensor, level: Tensor, coordinates: Tensor | None) -> CellPoints:
    """Sorts points by cell; all but ``near`` is given for each of them, as in :func:`sort_by_cell`."""
    layout = near.layout
    if coordinates is not None:
        points = points.gather(1, coordinates)
    (count, dim), keys = points.shape, layout.new_keys(len(points))
    size = block_size(256, count)
    _pack_cells[(cdiv(count, size),)](
        points, cloud, level, near.constants, layout.table, keys, count, near.level,
        D=dim, DIMS=near.dimensions, WORDS=layout.words, BLOCK=size,
    )  # fmt: skip
    keys, order = sort_keys(keys)
    return CellPoints(keys, order, Rows(points, count, dim).take(order).main)


@kernel(do_not_specialize=["count", "level"])
def _pack_cells(
    points, cloud, point_level, near, layout, keys, count, level,
    D: tl.constexpr, DIMS: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    of_cloud = tl.load(cloud + i, mask=inside, other=-1).to(tl.int64)
    present = tl.load(point_level + i, mask=inside, other=-2) == level
    place = ()
    for j in tl.static_range(DIMS):
        p = tl.load(points + i * D + j, mask=inside, other=0.0).to(tl.float64)
        cell = tl.floor(p * tl.load(near + 3 + j)).to(tl.int64) - tl.load(layout + BASE * (D + 1) + 1 + j)
        place = place + (cell,)  # type: ignore[assignment]  # noqa: RUF005
    to = i
    for a in tl.static_range(WORDS):
        key = pack_word(of_cloud, place, layout, a, DIMS, D + 1)
        tl.store(keys + to, tl.where(present, key, no_key(keys)), mask=inside)
        to += count


def find_near_runs(
    targets: CellPoints, sources: CellPoints, bucket_start: Tensor | None, near: NearLevel, some: range, runs: Tensor
) -> None:
    """Finds the sources in the cells around some of the targets.

    Args:
        targets, sources (CellPoints): The points that attend, and those that are attended to.
        bucket_start (torch.Tensor, optional): See :func:`phgcn.lattice.triton.keys.make_buckets`.
        near (NearLevel): The level.
        some (range): Which targets, counted in the order of their cells.
        runs (torch.Tensor): Takes, for each row of cells, the first source of each target, then, for each row again, where
            they end; int32. What is behind is left as it is.
    """
    count, source_count, rows = targets.point.size(0), sources.point.size(0), len(near.cell_rows)
    block = block_size(RUN_BLOCK, rows * len(some))
    _near_runs[(cdiv(rows * len(some), block),)](
        targets, sources, bucket_start, near.cell_rows, near.layout.table, near.constants, runs,
        some.start, some.stop, count, source_count, rows, search_steps(source_count),
        0 if bucket_start is None else len(bucket_start) - 2,
        SIZES=NearRunSizes(targets.position.size(1), near.dimensions, near.layout.words, block), num_warps=RUN_WARPS,
    )  # fmt: skip


@kernel(do_not_specialize=["begin", "end", "target_count", "source_count", "steps", "buckets"])
def _near_runs(
    targets, sources, bucket_start, cell_rows, layout, near, runs,
    begin, end, target_count, source_count, row_count, steps, buckets, SIZES: tl.constexpr,
):  # fmt: skip
    """Finds the first source and the end of the run of each pair of a target and a row of cells; see :func:`find_near_runs`."""
    D: tl.constexpr = SIZES.dim
    DIMS: tl.constexpr = SIZES.cell_dims
    WORDS: tl.constexpr = SIZES.words
    BLOCK: tl.constexpr = SIZES.block
    pair = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row = pair // (end - begin)
    t = begin + pair % (end - begin)
    inside = row < row_count
    present = inside & (load_key(targets.keys, t, inside) != no_key(targets.keys))
    if tl.max(present.to(tl.int32), axis=0) == 0:
        return  # all targets are of other levels, and nobody looks at their runs
    # How far the row of cells is from the target, along all coordinates but the last.
    square = tl.zeros([BLOCK], dtype=tl.float64)
    for j in tl.static_range(DIMS - 1):
        per_unit = tl.load(near + 3 + j)
        x = tl.load(targets.position + t * D + j, mask=inside, other=0.0).to(tl.float64) * per_unit
        fraction = x - tl.floor(x)
        step = tl.load(cell_rows + row * (DIMS - 1) + j, mask=inside, other=0)
        apart = tl.where(step == 0, 0.0, tl.where(step < 0, fraction, 1.0 - fraction)) / per_unit
        square += apart * apart
    reach = tl.sqrt(tl.maximum(tl.load(near) - square, 0.0)) * (1 + 1e-6)
    present = present & (square < tl.load(near))
    per_unit = tl.load(near + 3 + DIMS - 1)
    x = tl.load(targets.position + t * D + DIMS - 1, mask=inside, other=0.0).to(tl.float64)
    here = tl.floor(x * per_unit).to(tl.int64)
    low = tl.floor((x - reach) * per_unit).to(tl.int64) - here
    high = tl.floor((x + reach) * per_unit).to(tl.int64) - here + 1
    key = (load_key(targets.keys, t, inside),)
    at = t
    for _ in tl.static_range(1, WORDS):
        at += target_count
        key = key + (load_key(targets.keys, at, inside),)  # type: ignore[assignment]  # noqa: RUF005
    lowest = _move_key(key, cell_rows + row * (DIMS - 1), inside, low, layout, D, DIMS, WORDS)
    highest = _move_key(key, cell_rows + row * (DIMS - 1), inside, high, layout, D, DIMS, WORDS)
    zero = t * 0
    if bucket_start is None:
        first = lower_bound(sources.keys, source_count, zero, zero + source_count, lowest, steps, WORDS)
        last = lower_bound(sources.keys, source_count, first, zero + source_count - first, highest, steps, WORDS)
    else:
        first = bucket_lower_bound(sources.keys, bucket_start, buckets, lowest[0])
        last = bucket_lower_bound(sources.keys, bucket_start, buckets, highest[0])
    tl.store(runs + pair, tl.where(present, first, 0).to(tl.int32), mask=inside)
    tl.store(runs + row_count * (end - begin) + pair, tl.where(present, last, 0).to(tl.int32), mask=inside)


@triton.jit
def _move_key(key, row, inside, step, layout, D: tl.constexpr, DIMS: tl.constexpr, WORDS: tl.constexpr):
    """Returns the key of the cell that a row's steps, and ``step`` cells along the last coordinate, lead to."""
    moved = ()
    for a in tl.static_range(WORDS):
        word = key[a]
        for j in tl.static_range(DIMS - 1):
            in_word = tl.load(layout + WORD * (D + 1) + 1 + j) == a
            word += tl.where(in_word, tl.load(row + j, mask=inside, other=0) << tl.load(layout + SHIFT * (D + 1) + 1 + j), 0)
        if a == WORDS - 1:
            word += step
        moved = moved + (word,)  # type: ignore[assignment]  # noqa: RUF005
    return moved
