r"""Splat: rows of values from points to vertices, and from these to coarser ones.

Each vertex sums the rows of its run of entries, in a fixed order.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ...runtime.triton import cdiv, grid_size, kernel, tl, triton
from .clouds import Clouds
from .index import Vertices
from .rows import WARPS, Rows, aligned, alignment, channel_block, row_block
from .runs import LONG_RUN

MANY_RUNS = 1 << 15
"""With at least so many runs, a program of :func:`_sum_pieces` takes several of them, since most have one piece only."""

PIECE_CHANNELS = 16
"""Channels that a program of :func:`_sum_pieces` takes: few, to divide the longest run among many programs.  A constant: it
must not follow the number of runs, which depends on the other graphs of a batch, since sums in another order have other
bits."""


class PointRows(NamedTuple):
    """What points hold: the values of the sources and, in the backward pass, the gradients of the queries' sums beside them.

    Args:
        values (Rows): The rows of the sources, which are the first points; or those of finer vertices.
        grads (Rows, optional): The rows of the queries, the points from ``first_query`` on.
        first_query (int): The first point that has gradients. (default: :obj:`0`)
    """

    values: Rows
    grads: Rows | None = None
    first_query: int = 0


class RunSizes(NamedTuple):
    """What the sum of runs is compiled for.

    Args:
        entries (int): Entries of a point.
        long (bool): Whether a run may have more than ``piece`` entries.
        extras (int): Extra columns of either side.
        ones (bool): Whether the extra column of the values is all ones, nowhere stored.
        alignment (int): See :func:`phgcn.lattice.triton.rows.aligned`.
        piece, block, width (int): Entries of a piece; runs, or pieces, and channels of a program.
    """

    entries: int
    long: bool
    extras: int
    ones: bool
    alignment: int
    piece: int
    block: int
    width: int


def splat(rows: PointRows, vertices: Vertices) -> Rows:
    """Adds each row, times its barycentric weights, to the vertices of its simplex; finer vertices are points to coarser ones.

    Returns:
        The rows of the vertices, :math:`(V, C)`, or :math:`(V, 2C)` with gradients behind values.
    """
    return sum_runs(
        rows, vertices.order, vertices.start, vertices.count, vertices.long, vertices.weight, vertices.weight, vertices.entries,
        vertices.device_count,
    )  # fmt: skip


def sum_clouds(rows: PointRows, clouds: Clouds) -> Rows:
    """Sums the rows of each cloud, in the type of the positions; see :func:`splat`."""
    sizes = clouds.sizes
    return sum_runs(rows, clouds.order, sizes.start, clouds.count, sizes.largest > LONG_RUN, clouds.position)


def sum_runs(
    rows: PointRows, order: Tensor | None, start: Tensor, count: int, long: bool, like: Tensor, weight: Tensor | None = None,
    entries: int = 1, device_count: Tensor | None = None,
) -> Rows:  # fmt: skip
    r"""Sums the rows of each run's entries, weighted.

    Long runs are cut into pieces, whose sums are summed: a run's sum does not depend on how long others are.

    Args:
        rows (PointRows): What is summed: an entry :math:`e` is of the point :math:`\lfloor e / \text{entries} \rfloor`; points
            without a row count nothing.
        order (torch.Tensor, optional): The entry at each place; :obj:`None` if places are entries.
        start (torch.Tensor): Where each run starts, and where the last one ends, int32.
        count (int): How many runs there are, or an upper bound.
        long (bool): Whether a run may have more than ``LONG_RUN`` entries.
        like (torch.Tensor): Has the type that sums are taken in.
        weight (torch.Tensor, optional): The weight of each entry. (default: :obj:`None`, all 1)
        entries (int, optional): How many entries a point has. (default: :obj:`1`)
        device_count (torch.Tensor, optional): How many runs there are, where only the device knows; the sums of others are
            undefined. (default: :obj:`None`)
    """
    values, grads, first_query = rows
    channels, extras = values.channels, values.extras + values.ones
    sides = 1 if grads is None else 2
    every = sides * channels
    places = max(values.count, first_query + (0 if grads is None else grads.count)) if order is None else order.size(0)
    # Pieces have rows behind those of the runs, padded to stay aligned.
    piece_rows = max(1, 2 * (places // LONG_RUN)) if long else 0
    numbers = count * (every + sides * extras)
    out = Rows(like.new_empty(numbers + 16 + piece_rows * (every + 16)), count, every, sides * extras)
    size, width = row_block(every, count), channel_block(channels)
    is_bound, across = device_count is not None, max(1, cdiv(channels, width))
    blocks = cdiv(count + places // LONG_RUN if long else count, size)
    _sum_runs[(grid_size(blocks, is_bound), across)](
        values.data, None if grads is None else grads.data, order, weight, start, device_count, out.data, count, values.count,
        first_query, 0 if grads is None else grads.count, channels,
        SIZES=RunSizes(entries, long, extras, values.ones, alignment(channels), LONG_RUN, size, width), num_warps=WARPS,
    )  # fmt: skip
    if long:
        together = 1 if count < MANY_RUNS else 4 if is_bound else 32
        width = min(channel_block(every), PIECE_CHANNELS)
        _sum_pieces[(grid_size(cdiv(count, together), is_bound), max(1, cdiv(every, width)))](
            start, device_count, out.data, count, every,
            EXTRAS=out.extras, ALIGNMENT=alignment(every), RUNS=together, PIECE=LONG_RUN, BLOCK=1024 // width, WIDTH=width,
        )  # fmt: skip
    return out


@triton.jit
def _pieces(start, run, mask, PIECE: tl.constexpr):
    """Returns where a run starts, its length, and how many pieces it has."""
    begin = tl.load(start + run, mask=mask, other=0).to(tl.int64)
    length = tl.load(start + run + 1, mask=mask, other=0).to(tl.int64) - begin
    return begin, length, tl.maximum((length + PIECE - 1) // PIECE, 1)


@triton.jit
def _piece_row(count, channels, piece, EXTRAS: tl.constexpr):
    """Returns where the rows of pieces are, behind the sums of all runs: channels, then extra columns."""
    return ((count.to(tl.int64) * (channels + EXTRAS) + 15) // 16) * 16 + piece * (channels + 16)


@triton.jit
def _first_piece(begin, PIECE: tl.constexpr):
    """Returns where the sums of a run's pieces are stored, if it has several: with gaps, so that its start tells the place.  A
    run of n > PIECE entries has at most 2 (n // PIECE) pieces, so that those of the next one begin behind them."""
    return 2 * (begin // PIECE)


@triton.jit
def _run_of_piece(start, k, runs, PIECE: tl.constexpr):
    """Finds the run of a piece: the last one that starts at it or before."""
    run, high = k * 0, k * 0 + runs
    steps = 0
    for bit in tl.static_range(32):
        steps += ((runs >> bit) > 0).to(tl.int32)
    for _ in range(steps):
        middle = (run + high) // 2
        active = run < high
        begin = tl.load(start + middle + 1, mask=active, other=0).to(tl.int64)
        below = middle + 1 + begin // PIECE <= k
        run = tl.where(active & below, middle + 1, run)
        high = tl.where(active & (below == 0), middle, high)
    return run


@triton.jit
def _find_piece(start, k, runs, bound, SIZES: tl.constexpr):
    """Finds what is summed for the numbers ``k``: whole runs or, if some are long, pieces of runs; see :func:`_sum_runs`.

    Returns:
        Whether there is something, its run, its first place, its end, how many pieces the run has, and where the sum of a piece
        is stored.
    """
    run, piece = k, k * 0
    if SIZES.long:
        run = _run_of_piece(start, k, runs, SIZES.piece)
    inside = (k < bound) & (run < runs)
    begin, length, pieces = _pieces(start, run, inside, SIZES.piece)
    end = begin + length
    place = _first_piece(begin, SIZES.piece)
    if SIZES.long:
        piece = k - run - begin // SIZES.piece
        inside = inside & (piece < pieces)
        begin += piece * SIZES.piece
        end = tl.minimum(end, begin + SIZES.piece)
    return inside, run, begin, end, pieces, place + piece


@kernel(do_not_specialize=["count", "row_count", "first_query", "query_count"])
def _sum_runs(
    main, grads, order, weight, start, device_count, out, count, row_count, first_query, query_count, channels,
    SIZES: tl.constexpr,
):  # fmt: skip
    """Sums runs, or, if some are long, their pieces: piece p of run r has the number r + begin // PIECE + p, where begin is the
    run's first place, so that no two have the same."""
    SIDES: tl.constexpr = 1 if grads is None else 2
    EXTRAS: tl.constexpr = SIZES.extras
    BLOCK: tl.constexpr = SIZES.block
    WIDTH: tl.constexpr = SIZES.width
    channels = aligned(channels, SIZES.alignment)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    columns = (c < channels)[None, :]
    runs = count
    if device_count is not None:
        runs = tl.minimum(tl.load(device_count), count)
    bound = runs
    if SIZES.long:  # where there is no run, none ends
        bound += tl.load(start + runs, mask=runs > 0, other=0) // SIZES.piece
    for turn in range(tl.program_id(0), tl.cdiv(bound, BLOCK), tl.num_programs(0)):
        k = turn * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
        inside, run, begin, end, pieces, piece = _find_piece(start, k, runs, bound, SIZES)
        total = tl.zeros([BLOCK, WIDTH], dtype=out.dtype.element_ty)
        total_extra = tl.zeros([BLOCK], dtype=out.dtype.element_ty)
        total_2, total_extra_2 = total, total_extra
        for t in range(tl.max(tl.where(inside, end - begin, 0)).to(tl.int32)):
            place = begin + t
            live = inside & (place < end)
            entry = place.to(tl.int32)  # there are fewer than 2^31, and 64 bits take longer to divide
            if order is not None:
                entry = tl.load(order + place, mask=live, other=0).to(tl.int32)
            w = total_extra * 0 + 1
            if weight is not None:
                w = tl.load(weight + entry, mask=live, other=0.0)
            point = (entry // SIZES.entries).to(tl.int64)
            there = live & (point < row_count)
            row = tl.load(main + point[:, None] * channels + c[None, :], mask=there[:, None] & columns, other=0.0)
            total += w[:, None] * row.to(total.dtype)
            if SIZES.ones:
                total_extra += tl.where(there, w, 0.0)
            elif EXTRAS > 0:
                at = main + row_count.to(tl.int64) * channels + point * EXTRAS
                total_extra += w * tl.load(at, mask=there, other=0.0)
                if EXTRAS > 1:
                    total_extra_2 += w * tl.load(at + 1, mask=there, other=0.0)
            if SIDES > 1:
                query = point - first_query
                there = live & (query >= 0) & (query < query_count)
                row = tl.load(grads + query[:, None] * channels + c[None, :], mask=there[:, None] & columns, other=0.0)
                total_2 += w[:, None] * row.to(total.dtype)
                if EXTRAS > 0:
                    at = grads + query_count.to(tl.int64) * channels + query
                    total_extra_2 += w * tl.load(at, mask=there, other=0.0)
        to = run * (SIDES * channels)
        to_extra = count.to(tl.int64) * (SIDES * channels) + run * (SIDES * EXTRAS)
        if SIZES.long:
            row = _piece_row(count, SIDES * channels, piece, SIDES * EXTRAS)
            to, to_extra = tl.where(pieces > 1, row, to), tl.where(pieces > 1, row + SIDES * channels, to_extra)
        mask = inside[:, None] & columns
        tl.store(out + to[:, None] + c[None, :], total, mask=mask)
        if SIDES > 1:
            tl.store(out + to[:, None] + channels + c[None, :], total_2, mask=mask)
        once = inside & (tl.program_id(1) == 0)
        if EXTRAS > 0:
            tl.store(out + to_extra, total_extra, mask=once)
        if SIDES * EXTRAS > 1:
            tl.store(out + to_extra + 1, total_extra_2, mask=once)


@kernel(do_not_specialize=["count"])
def _sum_pieces(
    start, device_count, out, count, channels,
    EXTRAS: tl.constexpr, ALIGNMENT: tl.constexpr, RUNS: tl.constexpr, PIECE: tl.constexpr, BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Adds up the pieces of runs that have several."""
    channels = aligned(channels, ALIGNMENT)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    b, e = tl.arange(0, BLOCK), tl.arange(0, EXTRAS if EXTRAS > 0 else 1)
    runs = count
    if device_count is not None:
        runs = tl.minimum(tl.load(device_count), count).to(tl.int32)
    for turn in range(tl.program_id(0), tl.cdiv(runs, RUNS), tl.num_programs(0)):
        some = turn * RUNS + tl.arange(0, RUNS)
        if tl.max(_pieces(start, some, some < runs, PIECE)[2]) > 1:
            for run in range(turn * RUNS, tl.minimum(turn * RUNS + RUNS, runs)):
                begin, _, number = _pieces(start, run, run >= 0, PIECE)
                if number > 1:
                    begin = _first_piece(begin, PIECE)
                    end = begin + number
                    total = tl.zeros([BLOCK, WIDTH], dtype=out.dtype.element_ty)
                    total_extra = tl.zeros([BLOCK, EXTRAS if EXTRAS > 0 else 1], dtype=out.dtype.element_ty)
                    for k in range(begin, end, BLOCK):
                        live = (k + b < end)[:, None]
                        row = out + _piece_row(count, channels, k + b, EXTRAS)[:, None]
                        total += tl.load(row + c[None, :], mask=live & (c < channels)[None, :], other=0.0)
                        if EXTRAS > 0:
                            total_extra += tl.load(row + channels + e[None, :], mask=live & (e >= 0)[None, :], other=0.0)
                    tl.store(out + (begin * 0 + run) * channels + c, tl.sum(total, axis=0), mask=c < channels)
                    if EXTRAS > 0:
                        to = out + count.to(tl.int64) * channels + run * EXTRAS + e
                        tl.store(to, tl.sum(total_extra, axis=0), mask=(e >= 0) & (tl.program_id(1) == 0))
