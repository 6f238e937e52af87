r"""Splat: rows of values from points to vertices, and from these to coarser ones.

Each vertex sums the rows of its run of entries, in a fixed order.
"""

from __future__ import annotations

from torch import Tensor

from ...kernels.triton import cdiv, grid_size, kernel, search_steps, tl, triton
from .clouds import Clouds
from .index import Vertices
from .rows import WARPS, Rows, channel_block, load_extra, row_block
from .runs import LONG_RUN

MANY_RUNS = 1 << 15
"""From so many runs on, a program takes several of them to add up pieces; most have one piece."""


def splat(rows: Rows, vertices: Vertices, first_row: int = 0) -> Rows:
    """Adds each row, times its barycentric weights, to the vertices of its simplex; finer vertices are points to coarser ones.

    Args:
        rows (Rows): The rows of the points, or finer vertices, from ``first_row`` on, :math:`(R, C)`.
        vertices (Vertices): The vertices and their entries.
        first_row (int, optional): The first point that has a row. (default: :obj:`0`)

    Returns:
        The rows of the vertices, :math:`(V, C)`.
    """
    return sum_runs(
        rows, vertices.order, vertices.start, vertices.count, vertices.long, vertices.weight, vertices.entries, first_row,
        vertices.device_count,
    )  # fmt: skip


def sum_clouds(rows: Rows, clouds: Clouds, first_row: int) -> Rows:
    """Sums the rows of each cloud, for rows of the points from ``first_row`` on."""
    sizes = clouds.sizes
    return sum_runs(rows, clouds.order, sizes.start, clouds.count, sizes.largest > LONG_RUN, first_row=first_row)


def sum_runs(
    rows: Rows, order: Tensor | None, start: Tensor, count: int, long: bool, weight: Tensor | None = None, entries: int = 1,
    first_row: int = 0, device_count: Tensor | None = None,
) -> Rows:  # fmt: skip
    r"""Sums the rows of each run's entries, weighted.

    Long runs are cut into pieces, whose sums are summed: a run's sum does not depend on how long others are.

    Args:
        rows (Rows): What is summed: the row of an entry :math:`e` is :math:`\lfloor e / \text{entries} \rfloor` less
            ``first_row``; entries without one count nothing.
        order (torch.Tensor, optional): The entry at each place; :obj:`None` if places are entries.
        start (torch.Tensor): Where each run starts, and where the last one ends, int32.
        count (int): How many runs there are, or an upper bound.
        long (bool): Whether a run may have more than ``LONG_RUN`` entries.
        weight (torch.Tensor, optional): The weight of each entry. (default: :obj:`None`, all 1)
        entries (int, optional): How many entries a row has. (default: :obj:`1`)
        first_row (int, optional): See ``rows``. (default: :obj:`0`)
        device_count (torch.Tensor, optional): How many runs there are, where only the device knows; the sums of others are
            undefined. (default: :obj:`None`)
    """
    out, channels = rows.like(count), rows.main.size(1)
    places = rows.main.size(0) if order is None else order.size(0)
    pieces = rows.like(max(1, 2 * (places // LONG_RUN))) if long else out
    bound, is_bound = count + places // LONG_RUN if long else count, device_count is not None
    size, width = row_block(channels, bound), channel_block(channels)
    across = max(1, cdiv(channels, width))
    _sum_runs[(grid_size(cdiv(bound, size), is_bound), across)](
        rows.main, rows.extra, order, weight, start, device_count, out.main, out.extra, pieces.main, pieces.extra,
        count, bound, rows.main.size(0), first_row, rows.main.stride(0), channels, search_steps(count),
        ENTRIES=entries, LONG=long, EXTRA_KIND=rows.extra_kind, PIECE=LONG_RUN, BLOCK=size, WIDTH=width, num_warps=WARPS,
    )  # fmt: skip
    if long:
        together = 1 if count < MANY_RUNS else 4 if is_bound else 32
        _sum_pieces[(grid_size(cdiv(count, together), is_bound), across)](
            pieces.main, pieces.extra, start, device_count, out.main, out.extra, count, channels,
            EXTRA_KIND=pieces.extra_kind, RUNS=together, PIECE=LONG_RUN, BLOCK=max(8, 4096 // width), WIDTH=width,
        )  # fmt: skip
    return out


@triton.jit
def _pieces(start, run, mask, PIECE: tl.constexpr):
    """Returns where a run starts, its length, and how many pieces it has."""
    begin = tl.load(start + run, mask=mask, other=0).to(tl.int64)
    length = tl.load(start + run + 1, mask=mask, other=0).to(tl.int64) - begin
    return begin, length, tl.maximum((length + PIECE - 1) // PIECE, 1)


@triton.jit
def _first_piece(begin, PIECE: tl.constexpr):
    """Returns where the sums of a run's pieces are stored, if it has several: with gaps, so that its start tells the place.  A
    run of n > PIECE entries has at most 2 (n // PIECE) pieces, so that those of the next one begin behind them."""
    return 2 * (begin // PIECE)


@kernel(do_not_specialize=["runs", "bound", "row_count", "first_row", "steps"])
def _sum_runs(
    main, extra, order, weight, start, device_count, out, out_extra, pieces, pieces_extra,
    runs, bound, row_count, first_row, stride, channels, steps,
    ENTRIES: tl.constexpr, LONG: tl.constexpr, EXTRA_KIND: tl.constexpr, PIECE: tl.constexpr, BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Sums runs, or, if some are long, their pieces: piece p of run r has the number r + begin // PIECE + p, where begin is the
    run's first place, so that no two have the same."""
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    columns = (c < channels)[None, :]
    if device_count is not None:
        runs = tl.minimum(tl.load(device_count), runs)
        bound = runs
        if LONG:  # where there is no run, none ends
            bound += tl.load(start + runs, mask=runs > 0, other=0) // PIECE
    for turn in range(tl.program_id(0), tl.cdiv(bound, BLOCK), tl.num_programs(0)):
        k = turn * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
        run, piece = k, k * 0
        if LONG:  # the run of a piece is the last one that starts at it or before
            run, high = k * 0, k * 0 + runs
            for _ in range(steps):
                middle = (run + high) // 2
                active = run < high
                begin = tl.load(start + middle + 1, mask=active, other=0).to(tl.int64)
                below = middle + 1 + begin // PIECE <= k
                run = tl.where(active & below, middle + 1, run)
                high = tl.where(active & (below == 0), middle, high)
        inside = (k < bound) & (run < runs)
        begin, length, number = _pieces(start, run, inside, PIECE)
        end = begin + length
        first_piece = _first_piece(begin, PIECE)
        if LONG:
            piece = k - run - begin // PIECE
            inside = inside & (piece < number)
            begin += piece * PIECE
            end = tl.minimum(end, begin + PIECE)
        total = tl.zeros([BLOCK, WIDTH], dtype=out.dtype.element_ty)
        total_extra = tl.zeros([BLOCK], dtype=out.dtype.element_ty)
        for t in range(tl.max(tl.where(inside, end - begin, 0)).to(tl.int32)):
            place = begin + t
            live = inside & (place < end)
            entry = place.to(tl.int32)  # there are fewer than 2^31, and 64 bits take longer to divide
            if order is not None:
                entry = tl.load(order + place, mask=live, other=0).to(tl.int32)
            row = entry // ENTRIES - first_row
            live = live & (row >= 0) & (row < row_count)
            mask = live[:, None] & columns
            here = tl.load(main + row.to(tl.int64)[:, None] * stride + c[None, :], mask=mask, other=0.0).to(total.dtype)
            w = total_extra * 0 + 1
            if weight is not None:
                w = tl.load(weight + entry, mask=live, other=0.0)
            total += w[:, None] * here
            if EXTRA_KIND > 0:
                total_extra += w * load_extra(extra, row, live, EXTRA_KIND, total_extra)
        alone = inside
        if LONG:
            alone = inside & (number == 1)
            several = inside & (number > 1)
            to = first_piece + piece
            tl.store(pieces + to[:, None] * channels + c[None, :], total, mask=several[:, None] & columns)
            if EXTRA_KIND > 0:
                tl.store(pieces_extra + to, total_extra, mask=several & (tl.program_id(1) == 0))
        tl.store(out + run[:, None] * channels + c[None, :], total, mask=alone[:, None] & columns)
        if EXTRA_KIND > 0:
            tl.store(out_extra + run, total_extra, mask=alone & (tl.program_id(1) == 0))


@kernel(do_not_specialize=["count"])
def _sum_pieces(
    pieces, pieces_extra, start, device_count, out, out_extra, count, channels,
    EXTRA_KIND: tl.constexpr, RUNS: tl.constexpr, PIECE: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Adds up the pieces of runs that have several."""
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    b = tl.arange(0, BLOCK)
    if device_count is not None:
        count = tl.minimum(tl.load(device_count), count).to(tl.int32)
    for turn in range(tl.program_id(0), tl.cdiv(count, RUNS), tl.num_programs(0)):
        some = turn * RUNS + tl.arange(0, RUNS)
        if tl.max(_pieces(start, some, some < count, PIECE)[2]) > 1:
            for run in range(turn * RUNS, tl.minimum(turn * RUNS + RUNS, count)):
                begin, _, number = _pieces(start, run, run >= 0, PIECE)
                if number > 1:
                    begin = _first_piece(begin, PIECE)
                    end = begin + number
                    total = tl.zeros([BLOCK, WIDTH], dtype=out.dtype.element_ty)
                    total_extra = tl.zeros([BLOCK], dtype=out.dtype.element_ty)
                    for k in range(begin, end, BLOCK):
                        live = k + b < end
                        mask = live[:, None] & (c < channels)[None, :]
                        total += tl.load(pieces + (k + b)[:, None] * channels + c[None, :], mask=mask, other=0.0)
                        if EXTRA_KIND > 0:
                            total_extra += tl.load(pieces_extra + k + b, mask=live, other=0.0)
                    tl.store(out + (begin * 0 + run) * channels + c, tl.sum(total, axis=0), mask=c < channels)
                    if EXTRA_KIND > 0:
                        tl.store(out_extra + run, tl.sum(total_extra, axis=0), mask=tl.program_id(1) == 0)
