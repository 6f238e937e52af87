r"""Slice: rows of values from vertices back to points, and from coarser vertices to finer ones; the gradients of the filter."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ...runtime.triton import block_size, cdiv, kernel, power_of_2, tl, triton
from .clouds import Clouds
from .index import Vertices
from .locate import level_scale
from .plan import Simplices
from .rows import WARPS, Rows, aligned, alignment, channel_block, row_block
from .splat import PointRows


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
    def tensors(self) -> LocatedTensors:
        """What kernels read."""
        weight, _, rank, self_term = self.simplices
        given = self_term if self_term.size(0) > 0 else None
        return LocatedTensors(self.clouds.cloud, self.level, self.vertex, weight, rank, given, self.lattice_map)


class LocatedTensors(NamedTuple):
    """The tensors of :class:`Located`; ``self_term`` is :obj:`None` where points have none."""

    cloud: Tensor
    level: Tensor
    vertex: Tensor
    weight: Tensor
    rank: Tensor
    self_term: Tensor | None
    lattice_map: Tensor


class SliceSizes(NamedTuple):
    """What the slice is compiled for.

    Args:
        corners (int): Corners of a simplex.
        extra (bool): Whether there is an extra column.
        coincident, normalise (bool): See :func:`slice_rows`.
        alignment (int): See :func:`phgcn.lattice.triton.rows.aligned`.
        block, width (int): Points and channels of a program.
    """

    corners: int
    extra: bool
    coincident: bool
    normalise: bool
    alignment: int
    block: int
    width: int


class GradientSizes(NamedTuple):
    """What the gradients are compiled for.

    Args:
        dim (int): Coordinates.
        dim_block, corner_block (int): The least powers of 2 that are not less than ``dim`` and ``dim + 1``.
        extra (bool): Whether there is an extra column.
        to_itself (bool): Whether points attend to themselves.
        coincident, add (bool): See :func:`slice_gradients`.
        alignment (int): See :func:`phgcn.lattice.triton.rows.aligned`.
        block, width (int): Points of a program, and channels that it takes at a time.
    """

    dim: int
    dim_block: int
    corner_block: int
    extra: bool
    to_itself: bool
    coincident: bool
    add: bool
    alignment: int
    block: int
    width: int


def slice_rows(
    table: Rows, points: Located, values: Tensor, cloud_rows: Rows | None, added: Rows | None, out: Tensor, norm: Tensor | None,
    normalise: bool, coincident: bool = False,
) -> None:  # fmt: skip
    r"""Sums what the vertices of each query's simplex hold, times its barycentric weights; adds the self term, ``cloud_rows``
    and ``added``.

    Args:
        table (Rows): The blurred vertices, :math:`(V, C)`, with an extra column or none.
        points (Located): Where the points lie.
        values (torch.Tensor): The values of the sources, for the self term.
        cloud_rows (Rows, optional): What all queries of a cloud get in addition, :math:`(clouds, C)`; if ``coincident``, only
            those of clouds whose points coincide.
        added (Rows, optional): What each query gets in addition, :math:`(M, C)`; must not share memory with ``norm``, which
            one program writes while others still read this.
        out, norm (torch.Tensor): Take the sums, :math:`(M, C)`, and the extra column, if there is one.
        normalise (bool): Whether to divide by the extra column of the sum.
        coincident (bool): See ``cloud_rows``.
    """
    clouds, channels = points.clouds, table.channels
    count = clouds.queries.stop - clouds.first_query
    size, width = row_block(channels, count), channel_block(channels)
    _slice[(cdiv(count, size), max(1, cdiv(channels, width)))](
        table.data, points.tensors, values, None if cloud_rows is None else cloud_rows.data,
        None if added is None else added.data, out, norm, table.count, clouds.count, clouds.first_query, count, channels,
        SIZES=SliceSizes(
            clouds.position.size(1) + 1, table.extras > 0, coincident, normalise, alignment(channels), size, width
        ),
        num_warps=WARPS,
    )  # fmt: skip


@kernel(do_not_specialize=["vertices", "clouds", "first_query", "count"])
def _slice(
    table, points, values, cloud_rows, added, out, norm, vertices, clouds, first_query, count, channels, SIZES: tl.constexpr
):
    CORNERS: tl.constexpr = SIZES.corners
    EXTRA: tl.constexpr = SIZES.extra
    BLOCK: tl.constexpr = SIZES.block
    WIDTH: tl.constexpr = SIZES.width
    channels = aligned(channels, SIZES.alignment)
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    of_cloud = tl.load(points.cloud + first_query + i, mask=i < count, other=-1).to(tl.int64)
    filtered = of_cloud >= 0
    # Where all points of a cloud coincide, they have no vertices.
    present = filtered & (tl.load(points.vertex + (first_query + i) * CORNERS, mask=filtered, other=-1) >= 0)
    columns = (c < channels)[None, :]
    at = i[:, None] * channels + c[None, :]
    total = tl.zeros([BLOCK, WIDTH], dtype=table.dtype.element_ty)
    total_extra = tl.zeros([BLOCK], dtype=table.dtype.element_ty)
    mask = present[:, None] & columns
    for r in tl.static_range(CORNERS):
        v = tl.load(points.vertex + (first_query + i) * CORNERS + r, mask=present, other=0).to(tl.int64)
        w = tl.load(points.weight + (first_query + i) * CORNERS + r, mask=present, other=0.0)
        total += w[:, None] * tl.load(table + v[:, None] * channels + c[None, :], mask=mask, other=0.0)
        if EXTRA:
            total_extra += w * tl.load(table + vertices.to(tl.int64) * channels + v, mask=present, other=0.0)
    if points.self_term is not None:
        w = tl.load(points.self_term + i, mask=present, other=0.0)
        total += w[:, None] * tl.load(values + at, mask=mask, other=0.0).to(total.dtype)
        if EXTRA:
            total_extra += w
    factor = tl.load(points.lattice_map).to(total_extra.dtype)
    total, total_extra = total * factor, total_extra * factor
    if added is not None:
        total += tl.load(added + at, mask=mask, other=0.0)
        if EXTRA:
            total_extra += tl.load(added + count.to(tl.int64) * channels + i, mask=present, other=0.0)
    if cloud_rows is not None:
        gets = filtered
        if SIZES.coincident:
            gets = filtered & (present == 0)
        total += tl.load(cloud_rows + of_cloud[:, None] * channels + c[None, :], mask=gets[:, None] & columns, other=0.0)
        if EXTRA:
            total_extra += tl.load(cloud_rows + clouds.to(tl.int64) * channels + of_cloud, mask=gets, other=0.0)
    if SIZES.normalise:
        total *= tl.where(total_extra != 0, 1 / tl.where(total_extra != 0, total_extra, 1.0), 0.0)[:, None]
    tl.store(out + at, total, mask=filtered[:, None] & columns)
    if EXTRA:
        tl.store(norm + i, total_extra, mask=filtered & (tl.program_id(1) == 0))


def slice_gradients(
    table: Rows, points: Located, rows: PointRows, cloud_rows: Rows | None, add: bool, grad_values: Tensor, grad_points: Tensor,
    coincident: bool = False,
) -> None:  # fmt: skip
    r"""Slices the blurred gradients to those of the values, and takes the derivative by all points' positions.

    With :math:`t_r` the product of a point's row with the gradients at its simplex's r-th vertex, plus that of its gradient
    with the values there, the Kuhn coordinate that leads from vertex r-1 to r has the derivative :math:`t_r - t_{r-1}`.

    Args:
        table (Rows): The blurred vertices, gradients behind values, :math:`(V, 2C)`.
        points (Located): Where the points lie.
        rows (PointRows): The values of the sources, and the gradients of the queries' sums.
        cloud_rows (Rows, optional): What the points of a cloud get in addition, gradients behind values; see
            :func:`slice_rows`.
        add (bool): Whether to add to what is there.
        grad_values, grad_points (torch.Tensor): Take the gradients, :math:`(N, C)` and :math:`(P, D)`.
        coincident (bool): See :func:`slice_rows`.
    """
    values, grads = rows.values, rows.grads
    assert grads is not None
    (count, dim), channels, clouds = grad_points.shape, values.channels, points.clouds
    width = channel_block(channels)
    size = block_size(max(1, 512 // width), count)
    _slice_gradients[(cdiv(count, size),)](
        table.data, points.tensors, values.data, grads.data, None if cloud_rows is None else cloud_rows.data,
        grad_values, grad_points, count, clouds.sources, table.count, channels,
        SIZES=GradientSizes(
            dim, power_of_2(dim), power_of_2(dim + 1), table.extras > 0, clouds.to_itself, coincident, add,
            alignment(channels), size, width,
        ),
        # Two threads may compute the same sum; if products are fused into sums, they may round it differently.
        enable_fp_fusion=False,
    )  # fmt: skip


@kernel(do_not_specialize=["count", "sources", "vertices"])
def _slice_gradients(
    table, points, values, grads, cloud_rows, grad_values, grad_points, count, sources, vertices, channels, SIZES: tl.constexpr
):
    """One pass over the points reads each row of vertices once for both gradients."""
    D: tl.constexpr = SIZES.dim
    RP: tl.constexpr = SIZES.corner_block
    BLOCK: tl.constexpr = SIZES.block
    WIDTH: tl.constexpr = SIZES.width
    channels = aligned(channels, SIZES.alignment)
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    corner = tl.arange(0, RP)
    first_query = sources * 0 if SIZES.to_itself else sources
    level = tl.load(points.level + i, mask=i < count, other=-2)
    filtered, present = level >= -1, level >= 0
    is_source, is_query = filtered & (i < sources), filtered & (i >= first_query)
    factor = tl.load(points.lattice_map).to(table.dtype.element_ty)
    # The products t_r, and that of the point's own row with its own gradient.
    products = tl.zeros([BLOCK, RP], dtype=table.dtype.element_ty)
    product = tl.zeros([BLOCK], dtype=table.dtype.element_ty)
    self_weight = product
    if points.self_term is not None:
        self_weight = tl.load(points.self_term + i, mask=present, other=0.0)
    if cloud_rows is not None:
        gets = is_source
        if SIZES.coincident:
            gets = level == -1
        of_cloud = tl.load(points.cloud + i, mask=gets, other=0).to(tl.int64)
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
            v = tl.load(points.vertex + i * (D + 1) + r, mask=present, other=0).to(tl.int64)
            w = tl.load(points.weight + i * (D + 1) + r, mask=present, other=0.0)
            at = v[:, None] * (2 * channels) + c[None, :]
            value_at = tl.load(table + at, mask=query_mask, other=0.0)
            grad_at = tl.load(table + at + channels, mask=source_mask, other=0.0)
            total += w[:, None] * grad_at
            t = tl.sum(value * grad_at + grad * value_at, axis=1)
            products += tl.where((corner == r)[None, :], t[:, None], 0.0)
        total *= factor
        to = grad_values + i[:, None] * channels + c[None, :]
        if SIZES.add:
            total += tl.load(to, mask=source_mask, other=0.0)
        if cloud_rows is not None:
            at = of_cloud[:, None] * (2 * channels) + channels + c[None, :]
            total += tl.load(cloud_rows + at, mask=gets[:, None] & columns, other=0.0)
        tl.store(to, total, mask=is_source[:, None] & columns)
    if SIZES.extra:
        source, query = present & is_source, present & is_query
        value = tl.where(source, 1.0, 0.0).to(product.dtype)  # values have ones for their extra column
        sums = count - first_query
        grad = tl.load(grads + sums.to(tl.int64) * channels + i - first_query, mask=query, other=0.0)
        product += value * grad
        for r in tl.static_range(D + 1):
            v = tl.load(points.vertex + i * (D + 1) + r, mask=present, other=0).to(tl.int64)
            at = table + vertices.to(tl.int64) * (2 * channels) + 2 * v
            t = value * tl.load(at + 1, mask=source, other=0.0)
            t += grad * tl.load(at, mask=query, other=0.0)
            products += tl.where((corner == r)[None, :], t[:, None], 0.0)
    _store_position_gradients(points, i, count, level, products, product, grad_points, SIZES)


@triton.jit
def _store_position_gradients(points, i, count, level, products, product, grad_points, SIZES: tl.constexpr):
    """Turns the products :math:`t_r` of points, (BLOCK, RP), into the gradients of their positions, less the self term's, which
    goes by the ``product`` of a point's own row with its own gradient."""
    D: tl.constexpr = SIZES.dim
    DP: tl.constexpr = SIZES.dim_block
    RP: tl.constexpr = SIZES.corner_block
    BLOCK: tl.constexpr = SIZES.block
    lattice_map, filtered, present = points.lattice_map, level >= -1, level >= 0
    j, corner = tl.arange(0, DP), tl.arange(0, RP)
    places = (tl.load(points.rank + i, mask=present, other=0)[:, None] >> (4 * j)[None, :]) & 15
    slopes = tl.zeros([BLOCK, DP], dtype=tl.float64)
    for r in tl.static_range(D + 1):
        t = tl.sum(tl.where((corner == r)[None, :], products, 0.0), axis=1).to(tl.float64)
        slopes += tl.where(places == r - 1, t[:, None], 0.0) - tl.where(places == r, t[:, None], 0.0)
    slopes *= level_scale(lattice_map, tl.where(present, level, 0), D)[:, None]
    if points.self_term is not None:
        mask = present[:, None] & (j < D)[None, :]
        lost = tl.load(points.self_term + (1 + j)[None, :] * count.to(tl.int64) + i[:, None], mask=mask, other=0.0)
        slopes -= (product[:, None] * lost).to(tl.float64)
    slopes = tl.where(present[:, None] & (j < D)[None, :], slopes, 0.0)
    for k in tl.static_range(D):
        column = tl.load(lattice_map + 1 + j * D + k, mask=j < D, other=0.0)
        total = (tl.load(lattice_map) * tl.sum(slopes * column[None, :], axis=1)).to(product.dtype)
        to = grad_points + i * D + k
        if SIZES.add:  # nothing has been written where all points coincide
            total += tl.load(to, mask=present, other=0.0)
        tl.store(to, total, mask=filtered)


def add_coarser(fine: Rows, coarse: Rows, vertices: Vertices) -> None:
    """Adds to each finer vertex the rows of its coarser vertices, weighted: the transpose of
    :func:`phgcn.lattice.triton.splat.splat` there.

    Args:
        fine (Rows): Rows of the finer vertices, :math:`(V, C)`, to which is added.
        coarse (Rows): Rows of the coarser ``vertices``, :math:`(V', C)`, with as many extra columns.
        vertices (Vertices): The coarser vertices.
    """
    count, channels = fine.count, coarse.channels
    size, width = row_block(channels, count), channel_block(channels)
    _add_coarser[(cdiv(count, size), max(1, cdiv(channels, width)))](
        fine.data, coarse.data, vertices.of_entry, vertices.weight, count, coarse.count, channels,
        ENTRIES=vertices.entries, EXTRAS=coarse.extras, ALIGNMENT=alignment(channels), BLOCK=size, WIDTH=width,
        num_warps=WARPS,
    )  # fmt: skip


@kernel(do_not_specialize=["count", "coarse_count"])
def _add_coarser(
    fine, coarse, vertex, weight, count, coarse_count, channels,
    ENTRIES: tl.constexpr, EXTRAS: tl.constexpr, ALIGNMENT: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    channels = aligned(channels, ALIGNMENT)
    v = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = (tl.program_id(1) * WIDTH + tl.arange(0, WIDTH))[None, :]
    inside = v < count
    columns = inside[:, None] & (c < channels)
    to = fine + v[:, None] * channels + c
    total = tl.load(to, mask=columns, other=0.0)
    e = tl.arange(0, EXTRAS if EXTRAS > 0 else 1)[None, :]
    once = inside[:, None] & (e < EXTRAS) & (tl.program_id(1) == 0)
    to_extra = fine + count.to(tl.int64) * channels + v[:, None] * EXTRAS + e
    total_extra = tl.load(to_extra, mask=once, other=0.0)
    for entry in range(ENTRIES):
        coarser = tl.load(vertex + v * ENTRIES + entry, mask=inside, other=-1).to(tl.int64)[:, None]
        w = tl.load(weight + v * ENTRIES + entry, mask=inside, other=0.0)[:, None]
        total += w * tl.load(coarse + coarser * channels + c, mask=(coarser >= 0) & columns, other=0.0)
        if EXTRAS > 0:
            extra = coarse + coarse_count.to(tl.int64) * channels + coarser * EXTRAS + e
            total_extra += w * tl.load(extra, mask=(coarser >= 0) & once, other=0.0)
    tl.store(to, total, mask=columns)
    if EXTRAS > 0:
        tl.store(to_extra, total_extra, mask=once)
