r"""The near field: what coarse lattice levels miss at short range, summed pair by pair.

Points are sorted by cells as wide as the radius, but for the last coordinate of the cells, which is cut finer.  The sources
near a target then lie in one run of the sorted list for each row of cells around it, and each run is cut to the chord that
the ball has in that row.  Of these, few are near enough: they are listed, and the list is summed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .build import cell_keys
from .keys import Fields, index_keys, indexed_bound, load_key, lower_bound, no_key, sort_keys
from .launch import block, cdiv, kernel, power_of_2, steps, tl, triton
from .rows import NONE, Rows, load_extra, take

CELL_DIMENSIONS = 4
"""Cells are laid over this many coordinates at most: every further one would triple the rows of cells around a point."""

FINER = 8
"""How much finer cells are along their last coordinate."""

TARGETS, CANDIDATES, LOOK, WARPS = 4, 8, 16, 1
"""Targets of a program, the sources that it sums together for each, at most, those that it looks at together, and its warps."""

LIST = 64
"""Sources that are listed for a target before they are summed: few of those in the cells around are near enough."""

SLAB = 1 << 20
"""Targets whose runs and lists are held at once."""


@dataclass
class Sorted:
    """Points sorted by cell: their keys, which point each is, and their positions."""

    key: Tensor
    point: Tensor
    position: Tensor


class NearField:
    r"""The pairs of targets and sources within the radius of a level, of the clouds that have this level.

    Args:
        targets, sources: Positions, cloud of each, :math:`(M, D)` and :math:`(M,)`; the very same for attention of clouds
            to themselves.
        kappa (torch.Tensor): The finest level of each cloud.
        level (int): The level.
        law (torch.Tensor): The squared radius, one over what it exceeds the flat part's by, the rate and the amplitudes.
        scale (torch.Tensor): Cells per unit, along each coordinate of the cells.
        rows (torch.Tensor): The rows of cells around one, as steps along all coordinates but the last.
        fields (Fields): Of the keys of cells.
    """

    def __init__(self, targets, sources, kappa: Tensor, level: int, law, scale, rows: Tensor, fields: Fields) -> None:
        self.law, self.scale, self.rows, self.fields, self.dim = law, scale, rows, fields, sources[0].size(1)
        self.source = self._sorted(sources, kappa, level)
        self.target = self.source if targets[0] is sources[0] else self._sorted(targets, kappa, level)

    def _sorted(self, given, kappa: Tensor, level: int) -> Sorted:
        points, cloud = given
        keys, order = sort_keys(cell_keys(points, cloud, kappa, level, self.scale, self.fields))
        return Sorted(keys, order, take(points, order))

    def add(
        self, first: Rows, own: Rows | None = None, second: Rows | None = None, own_second: Rows | None = None,
        out: Rows | None = None, grad: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Writes for each target the sum of the sources' rows, weighted, and the gradient of its position.

        Args:
            first (Rows): The rows of the sources that are summed.
            own (Rows, optional): The rows of the targets whose products with ``first`` the gradient takes.
            second, own_second (Rows, optional): The same, for products alone.
            out (Rows, optional): Where the sums go.
            grad (torch.Tensor, optional): Where the gradient of the targets' positions goes.
        """
        count, order = self.target.key.size(1), self.source.point
        first, second = first.taken(order), second and second.taken(order)
        index = index_keys(self.source.key, order.size(0), None)
        for begin in range(0, count, SLAB):
            end = min(count, begin + SLAB)
            self._add(begin, end, self._runs(begin, end, index), first, own, second, own_second, out, grad)

    def _runs(self, begin: int, end: int, index: Tensor | None) -> Tensor:
        """The first source and the one after the last, for each row of cells and target, int32, :math:`(2, R, T)`; sought with
        an ``index`` if there is one."""
        rows = len(self.rows)
        runs = torch.empty(2, rows, end - begin, dtype=torch.int32, device=self.law.device)
        size = block(128, rows * (end - begin))
        sources = self.source.key.size(1)
        _near_runs[(cdiv(rows * (end - begin), size),)](
            self.target.key, self.target.position, self.source.key, index, self.rows, self.fields.table, self.scale, self.law,
            runs, begin, end, self.target.key.size(1), sources, rows, steps(sources), 0 if index is None else len(index) - 2,
            D=self.dim, DIMS=len(self.scale), F=self.fields.table.size(1), WORDS=self.fields.words, BLOCK=size,
        )  # fmt: skip
        return runs

    def _add(self, begin, end, runs, first, own, second, own_second, out, grad) -> None:
        channels = first.main.size(1)
        width = power_of_2(max(1, channels))
        size = block(max(1, min(CANDIDATES, 512 * CANDIDATES // width)), CANDIDATES)
        targets = block(max(1, min(TARGETS, 256 // width)), min(16, end - begin))
        lists = torch.empty(cdiv(end - begin, targets) * targets, LIST, dtype=torch.int32, device=runs.device)
        dummy = first
        own, second, own_second = own or dummy, second or dummy, own_second or dummy
        target, to = out if out is not None else dummy, grad if grad is not None else self.law
        _near[(cdiv(end - begin, targets),)](
            self.target.key, self.target.point, self.target.position, self.source.position, runs, lists, self.law,
            first.main, first.extra, own.main, own.extra, second.main, second.extra, own_second.main, own_second.extra,
            target.main, target.extra, to, begin, end, len(self.rows), channels,
            D=self.dim, DP=power_of_2(self.dim), TERMS=len(self.law) - 3,
            SUM=out is not None, GRAD=grad is not None, SECOND=second is not dummy,
            KIND=first.kind, KIND_OWN=own.kind, KIND_SECOND=second.kind,
            KIND_OWN_SECOND=own_second.kind, EXTRA=first.kind != NONE,
            TARGETS=targets, BLOCK=size, LOOK=LOOK, LIST=LIST, WIDTH=width,
            num_warps=WARPS, enable_fp_fusion=grad is None,  # as for _slice_gradients
        )  # fmt: skip


@kernel(do_not_specialize=["begin", "end", "targets", "sources", "halvings", "buckets"])
def _near_runs(
    target_key, target, source_key, index, rows, fields, scale, law,
    runs, begin, end, targets, sources, row_count, halvings, buckets,
    D: tl.constexpr, DIMS: tl.constexpr, F: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row = pair // (end - begin)
    t = begin + pair % (end - begin)
    inside = row < row_count
    present = inside & (load_key(target_key, t, inside) != no_key(target_key))
    # How far the row of cells is from the target, along all coordinates but the last.
    square = tl.zeros([BLOCK], dtype=tl.float64)
    for j in tl.static_range(DIMS - 1):
        side = tl.load(scale + j)
        x = tl.load(target + t * D + j, mask=inside, other=0.0).to(tl.float64) * side
        fraction = x - tl.floor(x)
        step = tl.load(rows + row * (DIMS - 1) + j, mask=inside, other=0)
        apart = tl.where(step == 0, 0.0, tl.where(step < 0, fraction, 1.0 - fraction)) / side
        square += apart * apart
    reach = tl.sqrt(tl.maximum(tl.load(law) - square, 0.0)) * (1 + 1e-6)
    present = present & (square < tl.load(law))
    side = tl.load(scale + DIMS - 1)
    x = tl.load(target + t * D + DIMS - 1, mask=inside, other=0.0).to(tl.float64)
    here = tl.floor(x * side).to(tl.int64)
    low = tl.floor((x - reach) * side).to(tl.int64) - here
    high = tl.floor((x + reach) * side).to(tl.int64) - here + 1
    lowest = (load_key(target_key, t, inside),)
    at = t
    for _ in tl.static_range(1, WORDS):
        at += targets
        lowest = lowest + (load_key(target_key, at, inside),)  # type: ignore[assignment]  # noqa: RUF005
    highest = lowest
    lowest = _moved(lowest, rows + row * (DIMS - 1), inside, low, fields, DIMS, F, WORDS)
    highest = _moved(highest, rows + row * (DIMS - 1), inside, high, fields, DIMS, F, WORDS)
    none = t * 0
    if index is None:
        first = lower_bound(source_key, sources, none, none + sources, lowest, halvings, WORDS)
        last = lower_bound(source_key, sources, first, none + sources - first, highest, halvings, WORDS)
    else:
        first = indexed_bound(source_key, index, buckets, lowest[0])
        last = indexed_bound(source_key, index, buckets, highest[0])
    tl.store(runs + pair, tl.where(present, first, 0).to(tl.int32), mask=inside)
    tl.store(runs + row_count * (end - begin) + pair, tl.where(present, last, 0).to(tl.int32), mask=inside)


@triton.jit
def _moved(key, row, inside, step, fields, DIMS: tl.constexpr, F: tl.constexpr, WORDS: tl.constexpr):
    """The key of the cell a row's offset and some steps along the last coordinate away."""
    moved = ()
    for a in tl.static_range(WORDS):
        word = key[a]
        for j in tl.static_range(DIMS - 1):
            of_word = tl.load(fields + F + 1 + j) == a
            word += tl.where(of_word, tl.load(row + j, mask=inside, other=0) << tl.load(fields + 2 * F + 1 + j), 0)
        if a == WORDS - 1:
            word += step
        moved = moved + (word,)  # type: ignore[assignment]  # noqa: RUF005
    return moved


@triton.jit
def _square(target, source, t, s, present, live, D: tl.constexpr):
    """The squared distances of targets and sources."""
    square = tl.zeros(s.shape, dtype=source.dtype.element_ty)
    for axis in tl.static_range(D):
        apart = tl.load(target + t * D + axis, mask=present, other=0.0)
        apart = apart - tl.load(source + s.to(tl.int64) * D + axis, mask=live, other=0.0)
        square += apart * apart
    return square


@triton.jit
def _law(square, law, outer, hit, TERMS: tl.constexpr):
    """The weight of a pair, and twice its derivative by the squared distance, as in the CPU's kernels."""
    kind = square.dtype
    steep = tl.load(law + 1).to(kind)
    r = tl.sqrt(square)
    weight = tl.exp(-r)
    slope = tl.where(r > 0, -weight / tl.where(r > 0, r, 1.0), 0.0)
    rate = tl.load(law + 2).to(kind)
    power = tl.exp(-rate * square)
    for term in tl.static_range(TERMS):
        a = tl.load(law + 3 + term).to(kind)
        weight -= a * power
        slope += 2 * rate * a * power
        power = (power * power) * (power * power)
        rate = rate * 4
    fade = tl.minimum((outer - square) * steep, 1.0)
    smooth = fade * fade * (3 - 2 * fade)
    slope = tl.where(hit, smooth * slope - 12 * fade * (1 - fade) * steep * weight, 0.0)
    return tl.where(hit, smooth * weight, 0.0), slope


@kernel(do_not_specialize=["begin", "end"])
def _near(
    target_key, target_point, target, source, runs, lists, law,
    first, first_extra, own, own_extra, second, second_extra, own_second, own_second_extra, out, out_extra, grad,
    begin, end, rows, channels,
    D: tl.constexpr, DP: tl.constexpr, TERMS: tl.constexpr, SUM: tl.constexpr, GRAD: tl.constexpr, SECOND: tl.constexpr,
    KIND: tl.constexpr, KIND_OWN: tl.constexpr, KIND_SECOND: tl.constexpr, KIND_OWN_SECOND: tl.constexpr, EXTRA: tl.constexpr,
    TARGETS: tl.constexpr, BLOCK: tl.constexpr, LOOK: tl.constexpr, LIST: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Looks through the runs of each target and lists the sources that are near; sums the lists when one is full."""
    local = tl.program_id(0).to(tl.int64) * TARGETS + tl.arange(0, TARGETS)[:, None]
    t = begin + local
    present = load_key(target_key, t, t < end) != no_key(target_key)
    i = tl.load(target_point + t, mask=present, other=0)
    b = tl.arange(0, BLOCK)[None, :]
    c = tl.arange(0, WIDTH)[None, None, :]
    columns = c < channels
    kind = source.dtype.element_ty
    outer = tl.load(law).to(kind)
    total = tl.zeros([TARGETS, WIDTH], dtype=kind)
    total_extra = tl.zeros([TARGETS, BLOCK], dtype=kind)
    j = tl.arange(0, DP)[None, None, :]
    slopes = tl.zeros([TARGETS, BLOCK, DP], dtype=kind)
    if GRAD:
        here = tl.load(target + t[:, :, None] * D + j, mask=present[:, :, None] & (j < D), other=0.0)
        mine = tl.load(own + i[:, :, None] * channels + c, mask=present[:, :, None] & columns, other=0.0).to(kind)
        if EXTRA:
            mine_extra = load_extra(own_extra, i, present, KIND_OWN, total_extra)
        if SECOND:
            mine_second = tl.load(own_second + i[:, :, None] * channels + c, mask=present[:, :, None] & columns, other=0.0)
            mine_second = mine_second.to(kind)
            if EXTRA:
                mine_second_extra = load_extra(own_second_extra, i, present, KIND_OWN_SECOND, total_extra)
    hits = lists + local * LIST
    count = tl.zeros([TARGETS, 1], dtype=tl.int32)
    for row in range(rows + 1):  # after the last there is nothing to look at, and all that is left is summed
        # Places follow from the row's number: Triton 3.6 took the first row's length for all where a pointer was moved along.
        run = runs + row * (end - begin) + local
        there_is = present & (row < rows)
        s = tl.load(run, mask=there_is, other=0) + tl.arange(0, LOOK)[None, :]
        last = tl.load(run + rows * (end - begin), mask=there_is, other=0)
        for _ in range(0, tl.where(row == rows, 1, tl.max(last - s)), LOOK):
            live = s < last
            hit = live & (_square(target, source, t, s, present, live, D) < outer)
            tl.store(hits + count + tl.cumsum(hit.to(tl.int32), axis=1) - 1, s, mask=hit)
            count += tl.sum(hit.to(tl.int32), axis=1, keep_dims=True)
            s += LOOK
            if (tl.max(count) > LIST - LOOK) | (row == rows):
                tl.debug_barrier()  # what other threads have listed is there
                # Blocks of a target's own list are summed, whoever else is in the program; what fills none waits.
                full = tl.where(row == rows, count, count // BLOCK * BLOCK)
                for k in range(0, tl.max(full), BLOCK):
                    listed = k + b < full
                    near = tl.load(hits + k + b, mask=listed, other=0)
                    weight, slope = _law(_square(target, source, t, near, present, listed, D), law, outer, listed, TERMS)
                    where = near.to(tl.int64)[:, :, None] * channels + c
                    mask = listed[:, :, None] & columns
                    row_first = tl.load(first + where, mask=mask, other=0.0).to(kind)
                    if EXTRA:
                        row_extra = load_extra(first_extra, near, listed, KIND, weight)
                    if SUM:
                        total += tl.sum(weight[:, :, None] * row_first, axis=1)
                        if EXTRA:
                            total_extra += weight * row_extra
                    if GRAD:
                        products = mine * row_first
                        if SECOND:
                            products += mine_second * tl.load(second + where, mask=mask, other=0.0).to(kind)
                        product = tl.sum(products, axis=2)
                        if EXTRA:
                            product += mine_extra * row_extra
                            if SECOND:
                                product += mine_second_extra * load_extra(second_extra, near, listed, KIND_SECOND, weight)
                        spot = near.to(tl.int64)[:, :, None] * D + j
                        there = tl.load(source + spot, mask=listed[:, :, None] & (j < D), other=0.0)
                        slopes += tl.where(listed[:, :, None], (slope * product)[:, :, None] * (here - there), 0.0)
                left = count - full
                waiting = tl.load(hits + full + b, mask=b < left, other=0)
                tl.debug_barrier()  # all have been read
                tl.store(hits + b, waiting, mask=b < left)
                count = left
    if GRAD:
        j = tl.arange(0, DP)[None, :]
        tl.store(grad + i * D + j, tl.sum(slopes, axis=1), mask=present & (j < D))
    if SUM:
        c = tl.arange(0, WIDTH)[None, :]
        tl.store(out + i * channels + c, total, mask=present & (c < channels))
        if EXTRA:
            tl.store(out_extra + i, tl.sum(total_extra, axis=1, keep_dims=True), mask=present)
