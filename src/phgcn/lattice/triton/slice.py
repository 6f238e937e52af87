r"""Slice: rows of values from vertices back to points, and from coarser vertices to finer ones; the gradients of the filter."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ...kernels.triton import block_size, cdiv, kernel, power_of_2, tl
from .clouds import Clouds
from .index import Vertices
from .locate import level_scale
from .plan import Simplices
from .rows import NO_EXTRA, WARPS, Rows, channel_block, pointers, row_block


class Located(NamedTuple):
    """Points in one lattice.

    Args:
        clouds (Clouds): The points.
        level (torch.Tensor): The finest level of each; see :class:`phgcn.lattice.triton.plan.Plan`.
        simplices (Simplices): Where they lie.
        vertex (torch.Tensor): The vertex of each corner, int32, :math:`(P(D+1),)`.
        lattice_map (torch.Tensor): See :class:`phgcn.lattice.triton.constants.Constants`.
    """

    clouds: Clouds
    level: Tensor
    simplices: Simplices
    vertex: Tensor
    lattice_map: Tensor

    @property
    def self_term(self) -> Tensor | None:
        return self.simplices.self_term if self.simplices.self_term.size(0) > 0 else None


def slice_rows(
    table: Rows, points: Located, values: Rows, cloud_rows: Rows | None, added: Rows | None, out: Rows, normalise: bool
) -> None:
    r"""Sums what the vertices of each query's simplex hold, times its barycentric weights; adds the self term and what else
    there is.

    Args:
        table (Rows): The blurred vertices, :math:`(V, C)`.
        points (Located): Where the points lie.
        values (Rows): The values of the sources, :math:`(N, C)`, for the self term.
        cloud_rows (Rows, optional): What all queries of a cloud get in addition, :math:`(clouds, C)`; where points attend to
            themselves, only those of clouds whose points coincide.
        added (Rows, optional): What each query gets in addition, :math:`(M, C)`; may be ``out``'s channels, but not its extra
            column.
        out (Rows): Takes the sums, :math:`(M, C)`, and the normaliser.
        normalise (bool): Whether to divide by the extra column of the sum.
    """
    count, channels = out.main.shape
    size, width, clouds = row_block(channels, count), channel_block(channels), points.clouds
    _slice[(cdiv(count, size), max(1, cdiv(channels, width)))](
        table.main, table.extra, points.vertex, points.simplices.weight, points.self_term, values.main,
        clouds.cloud, points.level, points.lattice_map, *pointers(cloud_rows), *pointers(added), out.main, out.extra,
        clouds.first_query, count, channels,
        CORNERS=clouds.position.size(1) + 1, EXTRA=table.extra_kind != NO_EXTRA, TO_ITSELF=clouds.to_itself,
        NORMALISE=normalise, BLOCK=size, WIDTH=width,
    )  # fmt: skip


@kernel(do_not_specialize=["first_query", "count"])
def _slice(
    table, table_extra, vertex, weight, self_term, values, cloud, point_level, lattice_map,
    cloud_rows, cloud_rows_extra, added, added_extra, out, out_extra, first_query, count, channels,
    CORNERS: tl.constexpr, EXTRA: tl.constexpr, TO_ITSELF: tl.constexpr, NORMALISE: tl.constexpr,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    level = tl.load(point_level + first_query + i, mask=i < count, other=-2)
    filtered, present = level >= -1, level >= 0  # present: else all points of the cloud coincide
    columns = (c < channels)[None, :]
    at = i[:, None] * channels + c[None, :]
    total = tl.zeros([BLOCK, WIDTH], dtype=table.dtype.element_ty)
    total_extra = tl.zeros([BLOCK], dtype=table.dtype.element_ty)
    mask = present[:, None] & columns
    for r in tl.static_range(CORNERS):
        v = tl.load(vertex + (first_query + i) * CORNERS + r, mask=present, other=0).to(tl.int64)
        w = tl.load(weight + (first_query + i) * CORNERS + r, mask=present, other=0.0)
        total += w[:, None] * tl.load(table + v[:, None] * channels + c[None, :], mask=mask, other=0.0)
        if EXTRA:
            total_extra += w * tl.load(table_extra + v, mask=present, other=0.0)
    if self_term is not None:
        w = tl.load(self_term + i, mask=present, other=0.0)
        total += w[:, None] * tl.load(values + at, mask=mask, other=0.0).to(total.dtype)
        if EXTRA:
            total_extra += w
    factor = tl.load(lattice_map).to(total_extra.dtype)
    total, total_extra = total * factor, total_extra * factor
    if added is not None:
        total += tl.load(added + at, mask=mask, other=0.0)
        if EXTRA:
            total_extra += tl.load(added_extra + i, mask=present, other=0.0)
    if cloud_rows is not None:
        gets = filtered
        if TO_ITSELF:
            gets = level == -1
        mine = tl.load(cloud + first_query + i, mask=gets, other=0).to(tl.int64)
        total += tl.load(cloud_rows + mine[:, None] * channels + c[None, :], mask=gets[:, None] & columns, other=0.0)
        if EXTRA:
            total_extra += tl.load(cloud_rows_extra + mine, mask=gets, other=0.0)
    if NORMALISE:
        total *= tl.where(total_extra != 0, 1 / tl.where(total_extra != 0, total_extra, 1.0), 0.0)[:, None]
    tl.store(out + at, total, mask=filtered[:, None] & columns)
    if EXTRA:
        tl.store(out_extra + i, total_extra, mask=filtered & (tl.program_id(1) == 0))


def slice_gradients(
    value_table: Rows, grad_table: Rows, points: Located, values: Rows, grads: Rows, cloud_rows: Rows | None, add: bool,
    grad_values: Tensor, grad_points: Tensor,
) -> None:  # fmt: skip
    r"""Slices the blurred gradients to those of the values, and takes the derivative by all points' positions.

    With :math:`t_r` the product of a point's row with the gradients at its simplex's r-th vertex, plus that of its gradient
    with the values there, the Kuhn coordinate that leads from vertex r-1 to r has the derivative :math:`t_r - t_{r-1}`.

    Args:
        value_table, grad_table (Rows): The blurred vertices, :math:`(V, C)`.
        points (Located): Where the points lie.
        values, grads (Rows): The values of the sources, and the gradients of the queries' sums.
        cloud_rows (Rows, optional): What the gradients of all values of a cloud get in addition; see :func:`slice_rows`.
        add (bool): Whether to add to what is there.
        grad_values, grad_points (torch.Tensor): Take the gradients, :math:`(N, C)` and :math:`(P, D)`.
    """
    (count, dim), channels, clouds, simplices = grad_points.shape, grad_values.size(1), points.clouds, points.simplices
    width = channel_block(channels)
    size = block_size(max(1, 512 // width), count)
    _slice_gradients[(cdiv(count, size),)](
        value_table.main, value_table.extra, grad_table.main, grad_table.extra, points.vertex,
        simplices.weight, simplices.rank, points.self_term, values.main, grads.main, grads.extra,
        clouds.cloud, points.level, points.lattice_map, None if cloud_rows is None else cloud_rows.main,
        grad_values, grad_points, count, clouds.sources, channels,
        D=dim, DP=power_of_2(dim), RP=power_of_2(dim + 1), EXTRA=grads.extra_kind != NO_EXTRA, TO_ITSELF=clouds.to_itself,
        ADD=add, BLOCK=size, WIDTH=width,
        # Threads may hold the same sum twice.  Where products are fused into sums, they round it differently.
        enable_fp_fusion=False,
    )  # fmt: skip


@kernel(do_not_specialize=["count", "sources"])
def _slice_gradients(
    values_at, values_at_extra, grads_at, grads_at_extra, vertex, weight, rank, self_term, values, grads, grads_extra,
    cloud, point_level, lattice_map, cloud_rows, grad_values, grad_points, count, sources, channels,
    D: tl.constexpr, DP: tl.constexpr, RP: tl.constexpr, EXTRA: tl.constexpr, TO_ITSELF: tl.constexpr, ADD: tl.constexpr,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One pass over the points reads each row of vertices once for both gradients: hence 20 tensors and sizes."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    j, corner = tl.arange(0, DP), tl.arange(0, RP)
    first_query = sources * 0 if TO_ITSELF else sources
    level = tl.load(point_level + i, mask=i < count, other=-2)
    filtered, present = level >= -1, level >= 0
    is_source, is_query = filtered & (i < sources), filtered & (i >= first_query)
    factor = tl.load(lattice_map).to(values_at.dtype.element_ty)
    # The products t_r, and that of the point's own row with its own gradient.
    products = tl.zeros([BLOCK, RP], dtype=values_at.dtype.element_ty)
    product = tl.zeros([BLOCK], dtype=values_at.dtype.element_ty)
    self_weight = product
    if self_term is not None:
        self_weight = tl.load(self_term + i, mask=present, other=0.0)
    if cloud_rows is not None:
        gets = is_source
        if TO_ITSELF:
            gets = level == -1
        mine = tl.load(cloud + i, mask=gets, other=0).to(tl.int64)
    for first in range(0, channels, WIDTH):
        c = first + tl.arange(0, WIDTH)
        columns = (c < channels)[None, :]
        source_mask, query_mask = (present & is_source)[:, None] & columns, (present & is_query)[:, None] & columns
        value = tl.load(values + i[:, None] * channels + c[None, :], mask=source_mask, other=0.0).to(product.dtype)
        at = (i - first_query)[:, None] * channels + c[None, :]
        grad = tl.load(grads + at, mask=query_mask, other=0.0).to(product.dtype)
        total = self_weight[:, None] * grad
        product += tl.sum(value * grad, axis=1)
        for r in tl.static_range(D + 1):
            v = tl.load(vertex + i * (D + 1) + r, mask=present, other=0).to(tl.int64)
            w = tl.load(weight + i * (D + 1) + r, mask=present, other=0.0)
            at = v[:, None] * channels + c[None, :]
            grad_at = tl.load(grads_at + at, mask=source_mask, other=0.0)
            value_at = tl.load(values_at + at, mask=query_mask, other=0.0)
            total += w[:, None] * grad_at
            t = tl.sum(value * grad_at + grad * value_at, axis=1)
            products += tl.where((corner == r)[None, :], t[:, None], 0.0)
        total *= factor
        to = grad_values + i[:, None] * channels + c[None, :]
        if ADD:
            total += tl.load(to, mask=source_mask, other=0.0)
        if cloud_rows is not None:
            mask = gets[:, None] & columns
            total += tl.load(cloud_rows + mine[:, None] * channels + c[None, :], mask=mask, other=0.0)
        tl.store(to, total, mask=is_source[:, None] & columns)
    if EXTRA:
        source, query = present & is_source, present & is_query
        value = tl.where(source, 1.0, 0.0).to(product.dtype)  # values have ones for their extra column
        grad = tl.load(grads_extra + i - first_query, mask=query, other=0.0)
        product += value * grad
        for r in tl.static_range(D + 1):
            v = tl.load(vertex + i * (D + 1) + r, mask=present, other=0).to(tl.int64)
            t = value * tl.load(grads_at_extra + v, mask=source, other=0.0)
            t += grad * tl.load(values_at_extra + v, mask=query, other=0.0)
            products += tl.where((corner == r)[None, :], t[:, None], 0.0)

    places = (tl.load(rank + i, mask=present, other=0)[:, None] >> (4 * j)[None, :]) & 15
    slopes = tl.zeros([BLOCK, DP], dtype=tl.float64)
    for r in tl.static_range(D + 1):
        t = tl.sum(tl.where((corner == r)[None, :], products, 0.0), axis=1).to(tl.float64)
        slopes += tl.where(places == r - 1, t[:, None], 0.0) - tl.where(places == r, t[:, None], 0.0)
    slopes *= level_scale(lattice_map, tl.where(present, level, 0), D)[:, None]
    if self_term is not None:
        mask = present[:, None] & (j < D)[None, :]
        lost = tl.load(self_term + (1 + j)[None, :] * count.to(tl.int64) + i[:, None], mask=mask, other=0.0)
        slopes -= (product[:, None] * lost).to(tl.float64)
    slopes = tl.where(present[:, None] & (j < D)[None, :], slopes, 0.0)
    for k in tl.static_range(D):
        column = tl.load(lattice_map + 1 + j * D + k, mask=j < D, other=0.0)
        total = (tl.load(lattice_map) * tl.sum(slopes * column[None, :], axis=1)).to(product.dtype)
        to = grad_points + i * D + k
        if ADD:  # nothing has been written where all points coincide
            total += tl.load(to, mask=present, other=0.0)
        tl.store(to, total, mask=filtered)


def add_coarser(fine: Rows, coarse: Rows, vertices: Vertices) -> None:
    """Adds to each finer vertex the rows of its coarser vertices, weighted: the transpose of :func:`splat` there.

    Shapes:
        - **fine:** :math:`(V, C)`, **coarse:** :math:`(V', C)`, of the coarser ``vertices``
    """
    count, channels = fine.main.shape
    size, width = row_block(channels, count), channel_block(channels)
    _add_coarser[(cdiv(count, size), max(1, cdiv(channels, width)))](
        fine.main, fine.extra, coarse.main, coarse.extra, vertices.of_entry, vertices.weight,
        count, fine.main.stride(0), channels,
        ENTRIES=vertices.entries, EXTRA=fine.extra_kind != NO_EXTRA, BLOCK=size, WIDTH=width, num_warps=WARPS,
    )  # fmt: skip


@kernel(do_not_specialize=["count"])
def _add_coarser(
    fine, fine_extra, coarse, coarse_extra, vertex, weight, count, stride, channels,
    ENTRIES: tl.constexpr, EXTRA: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    v = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = v < count
    columns = (c < channels)[None, :]
    once = inside & (tl.program_id(1) == 0)
    to = fine + v[:, None] * stride + c[None, :]
    total = tl.load(to, mask=inside[:, None] & columns, other=0.0)
    total_extra = tl.zeros([BLOCK], dtype=total.dtype)
    if EXTRA:
        total_extra = tl.load(fine_extra + v, mask=once, other=0.0)
    for entry in range(ENTRIES):
        coarser = tl.load(vertex + v * ENTRIES + entry, mask=inside, other=-1).to(tl.int64)
        w = tl.load(weight + v * ENTRIES + entry, mask=inside, other=0.0)
        there = coarser >= 0
        mask = there[:, None] & columns
        total += w[:, None] * tl.load(coarse + coarser[:, None] * channels + c[None, :], mask=mask, other=0.0)
        if EXTRA:
            total_extra += w * tl.load(coarse_extra + coarser, mask=there, other=0.0)
    tl.store(to, total, mask=inside[:, None] & columns)
    if EXTRA:
        tl.store(fine_extra + v, total_extra, mask=once)
