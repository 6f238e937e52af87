r"""From vertices back to points: slicing, and the gradients of values and positions, each in one pass over the points."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .clouds import Clouds
from .launch import block, cdiv, kernel, power_of_2, tl
from .locate import Simplices
from .rows import NONE, Rows, channel_block, load_extra, row_block


@dataclass
class CloudSums:
    """The sum of all rows of each cloud: the answer where all points are one, and what a floor adds to each.

    Args:
        rows (Rows): The sums.
        floor (torch.Tensor): What share of the sum each point of a cloud gets in addition, :math:`(clouds,)`.
    """

    rows: Rows
    floor: Tensor


def slice_points(
    table: Rows, vertex: Tensor, simplices: Simplices, values: Rows, clouds: Clouds, kappa: Tensor, factor: Tensor,
    sums: CloudSums | None, summed: Rows | None, out: Rows, normalise: bool, lacking: Tensor | None,
) -> None:  # fmt: skip
    r"""Reads for each query the vertices of its simplex, and adds the self term, what is summed already, and the floor.

    Args:
        table (Rows): The blurred vertices.
        vertex (torch.Tensor): The vertices of each point's simplex, int32, :math:`(P, D+1)`.
        simplices (Simplices): Where the points lie.
        values (Rows): The values of the keys.
        clouds (Clouds): The points.
        kappa (torch.Tensor): The finest level of each cloud, -1 where all points are one.
        factor (torch.Tensor): Of all that comes from this lattice, :math:`(1,)`.
        sums (CloudSums, optional): With this, the output is finished.
        summed (Rows, optional): What is to be added; may be ``out``'s channels, but not its extra column.
        out (Rows): Where the sums go, or, with ``normalise``, the averages, and the normaliser.
        normalise (bool): Whether this is the last that is added, and the sum is to be divided by its extra column.
        lacking (torch.Tensor, optional): How many more words keys need in each grid: if any, the output is not a number.
    """
    count, channels = out.main.shape
    size, width = row_block(channels, count), channel_block(channels)
    given = summed if summed is not None else out
    total = sums.rows if sums is not None else out
    _slice[(cdiv(count, size), max(1, cdiv(channels, width)))](
        table.main, table.extra, vertex, simplices.weight, simplices.own, values.main, values.extra,
        clouds.cloud, kappa, factor, total.main, total.extra, sums.floor if sums is not None else factor,
        given.main, given.extra, out.main, out.extra, lacking, clouds.begin, count, channels,
        GRIDS=0 if lacking is None else len(lacking),
        CORNERS=clouds.position.size(1) + 1, OWN=simplices.own is not None, KIND=table.kind, KIND_VALUES=values.kind,
        ADD=summed is not None, SUMS=sums is not None, NORMALISE=normalise, BLOCK=size, WIDTH=width,
    )  # fmt: skip


@kernel(do_not_specialize=["begin", "count"])
def _slice(
    table, table_extra, vertex, weight, own, values, values_extra, cloud, kappa, factor, sums, sums_extra, floor,
    given, given_extra, out, out_extra, lacking, begin, count, channels,
    GRIDS: tl.constexpr,
    CORNERS: tl.constexpr, OWN: tl.constexpr, KIND: tl.constexpr, KIND_VALUES: tl.constexpr, ADD: tl.constexpr,
    SUMS: tl.constexpr, NORMALISE: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    mine = tl.load(cloud + begin + i, mask=i < count, other=-1).to(tl.int64)
    inside = mine >= 0  # others are summed exactly, elsewhere
    level = tl.load(kappa + mine, mask=inside, other=-1)
    present = level >= 0  # else all points of the cloud are one
    columns = (c < channels)[None, :]
    at = i[:, None] * channels + c[None, :]
    total = tl.zeros([BLOCK, WIDTH], dtype=table.dtype.element_ty)
    total_extra = tl.zeros([BLOCK], dtype=table.dtype.element_ty)
    for r in tl.static_range(CORNERS):
        v = tl.load(vertex + (begin + i) * CORNERS + r, mask=present, other=0).to(tl.int64)
        w = tl.load(weight + (begin + i) * CORNERS + r, mask=present, other=0.0)
        mask = present[:, None] & columns
        total += w[:, None] * tl.load(table + v[:, None] * channels + c[None, :], mask=mask, other=0.0)
        if KIND > 0:
            total_extra += w * tl.load(table_extra + v, mask=present, other=0.0)
    if OWN:
        w = tl.load(own + i, mask=present, other=0.0)
        total += w[:, None] * tl.load(values + at, mask=present[:, None] & columns, other=0.0).to(total.dtype)
        if KIND > 0:
            total_extra += w * load_extra(values_extra, i, present, KIND_VALUES, total_extra)
    part = tl.load(factor).to(total_extra.dtype)
    total, total_extra = total * part, total_extra * part
    if ADD:
        total += tl.load(given + at, mask=present[:, None] & columns, other=0.0)
        if KIND > 0:
            total_extra += tl.load(given_extra + i, mask=present, other=0.0)
    if SUMS:
        share = tl.load(floor + mine, mask=present, other=0.0).to(total_extra.dtype)
        share = tl.where(present, share, 1.0)
        mask = inside[:, None] & columns
        total += share[:, None] * tl.load(sums + mine[:, None] * channels + c[None, :], mask=mask, other=0.0)
        if KIND > 0:
            total_extra += share * tl.load(sums_extra + mine, mask=inside, other=0.0)
    if NORMALISE:
        total *= tl.where(total_extra != 0, 1 / tl.where(total_extra != 0, total_extra, 1.0), 0.0)[:, None]
    for grid in tl.static_range(GRIDS):
        total = tl.where(tl.load(lacking + grid) > 0, float("nan"), total)
    tl.store(out + at, total, mask=inside[:, None] & columns)
    if KIND > 0:
        tl.store(out_extra + i, total_extra, mask=inside & (tl.program_id(1) == 0))


def slice_gradients(
    value_table: Rows, grad_table: Rows, vertex: Tensor, simplices: Simplices, values: Rows, grads: Rows, clouds: Clouds,
    kappa: Tensor, matrix: Tensor, scale: Tensor, factor: Tensor, sums: CloudSums | None, add: bool, grad_values: Tensor,
    grad_points: Tensor,
) -> None:  # fmt: skip
    r"""Slices the blurred gradients to those of the values, and takes the derivative by all points' positions.

    With :math:`t_r` the product of a point's row with the gradients at its simplex's r-th vertex, plus that of its gradient
    with the values there, the Kuhn coordinate that leads from vertex r-1 to r has the derivative :math:`t_r - t_{r-1}`.

    Args:
        value_table, grad_table (Rows): The blurred vertices.
        vertex (torch.Tensor): The vertices of each point's simplex, int32, :math:`(P, D+1)`.
        simplices (Simplices): Where the points lie.
        values, grads (Rows): The values of the keys, and the gradients of the queries' sums.
        clouds (Clouds): The points.
        kappa (torch.Tensor): The finest level of each cloud, -1 where all points are one.
        matrix (torch.Tensor): From positions to Kuhn coordinates of level 0, :math:`(D, D)`.
        scale (torch.Tensor): From these to those of each level.
        factor (torch.Tensor): Of all that comes from this lattice, :math:`(1,)`.
        sums (CloudSums, optional): The sums of the gradients.
        add (bool): Whether to add to what is there.
        grad_values, grad_points (torch.Tensor): The gradients, :math:`(N, C)` and :math:`(P, D)`.
    """
    count, dim = grad_points.shape
    channels = grad_values.size(1)
    width = channel_block(channels)
    size = block(max(1, 512 // width), count)
    _slice_gradients[(cdiv(count, size),)](
        value_table.main, value_table.extra, grad_table.main, grad_table.extra, vertex,
        simplices.weight, simplices.rank, simplices.own, simplices.slope,
        values.main, values.extra, grads.main, grads.extra, clouds.cloud, kappa, matrix, scale, factor,
        sums.rows.main if sums is not None else grad_values, sums.floor if sums is not None else factor,
        grad_values, grad_points, count, clouds.keys, clouds.begin, channels,
        D=dim, DP=power_of_2(dim), RP=power_of_2(dim + 1), OWN=simplices.own is not None, EXTRA=grads.kind != NONE,
        KIND_VALUES=values.kind, SUMS=sums is not None, ADD=add, BLOCK=size, WIDTH=width,
        # Threads may hold the same sum twice. Where products are fused into sums, they round it differently.
        enable_fp_fusion=False,
    )  # fmt: skip


@kernel(do_not_specialize=["count", "keys", "begin"])
def _slice_gradients(
    values_at, values_at_extra, grads_at, grads_at_extra, vertex, weight, rank, own, slope,
    values, values_extra, grads, grads_extra, cloud, kappa, matrix, scale, factor, sums, floor,
    grad_values, grad_points, count, keys, begin, channels,
    D: tl.constexpr, DP: tl.constexpr, RP: tl.constexpr, OWN: tl.constexpr, EXTRA: tl.constexpr, KIND_VALUES: tl.constexpr,
    SUMS: tl.constexpr, ADD: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    j, corner = tl.arange(0, DP), tl.arange(0, RP)
    mine = tl.load(cloud + i, mask=i < count, other=-1).to(tl.int64)
    inside = mine >= 0
    level = tl.load(kappa + mine, mask=inside, other=-1)
    present = level >= 0
    is_key, is_query = inside & (i < keys), inside & (i >= begin)
    part = tl.load(factor).to(values_at.dtype.element_ty)
    # The products t_r, and that of the point's own row with its own gradient.
    products = tl.zeros([BLOCK, RP], dtype=values_at.dtype.element_ty)
    product = tl.zeros([BLOCK], dtype=values_at.dtype.element_ty)
    own_weight = product
    if OWN:
        own_weight = tl.load(own + i, mask=present, other=0.0)
    if SUMS:
        share = tl.load(floor + mine, mask=present, other=0.0).to(product.dtype)
        share = tl.where(present, share, 1.0)
    for first in range(0, channels, WIDTH):
        c = first + tl.arange(0, WIDTH)
        columns = (c < channels)[None, :]
        key_mask, query_mask = (present & is_key)[:, None] & columns, (present & is_query)[:, None] & columns
        value = tl.load(values + i[:, None] * channels + c[None, :], mask=key_mask, other=0.0).to(product.dtype)
        grad = tl.load(grads + (i - begin)[:, None] * channels + c[None, :], mask=query_mask, other=0.0).to(product.dtype)
        total = own_weight[:, None] * grad
        product += tl.sum(value * grad, axis=1)
        for r in tl.static_range(D + 1):
            v = tl.load(vertex + i * (D + 1) + r, mask=present, other=0).to(tl.int64)
            w = tl.load(weight + i * (D + 1) + r, mask=present, other=0.0)
            at = v[:, None] * channels + c[None, :]
            grad_at = tl.load(grads_at + at, mask=key_mask, other=0.0)
            value_at = tl.load(values_at + at, mask=query_mask, other=0.0)
            total += w[:, None] * grad_at
            t = tl.sum(value * grad_at + grad * value_at, axis=1)
            products += tl.where((corner == r)[None, :], t[:, None], 0.0)
        total *= part
        to = grad_values + i[:, None] * channels + c[None, :]
        if ADD:
            total += tl.load(to, mask=key_mask, other=0.0)
        if SUMS:
            mask = is_key[:, None] & columns
            total += share[:, None] * tl.load(sums + mine[:, None] * channels + c[None, :], mask=mask, other=0.0)
        tl.store(to, total, mask=is_key[:, None] & columns)
    if EXTRA:
        key, query = present & is_key, present & is_query
        value = load_extra(values_extra, i, key, KIND_VALUES, product)
        grad = tl.load(grads_extra + i - begin, mask=query, other=0.0)
        product += value * grad
        for r in tl.static_range(D + 1):
            v = tl.load(vertex + i * (D + 1) + r, mask=present, other=0).to(tl.int64)
            t = value * tl.load(grads_at_extra + v, mask=key, other=0.0)
            t += grad * tl.load(values_at_extra + v, mask=query, other=0.0)
            products += tl.where((corner == r)[None, :], t[:, None], 0.0)

    places = (tl.load(rank + i, mask=present, other=0)[:, None] >> (4 * j)[None, :]) & 15
    slopes = tl.zeros([BLOCK, DP], dtype=tl.float64)
    for r in tl.static_range(D + 1):
        t = tl.sum(tl.where((corner == r)[None, :], products, 0.0), axis=1).to(tl.float64)
        slopes += tl.where(places == r - 1, t[:, None], 0.0) - tl.where(places == r, t[:, None], 0.0)
    slopes *= tl.load(scale + tl.where(present, level, 0))[:, None]
    if OWN:
        mask = present[:, None] & (j < D)[None, :]
        lost = tl.load(slope + i[:, None] * D + j[None, :], mask=mask, other=0.0)
        slopes -= (product[:, None] * lost).to(tl.float64)
    slopes = tl.where(present[:, None] & (j < D)[None, :], slopes, 0.0)
    for k in tl.static_range(D):
        column = tl.load(matrix + j * D + k, mask=j < D, other=0.0)
        total = (tl.load(factor).to(tl.float64) * tl.sum(slopes * column[None, :], axis=1)).to(product.dtype)
        to = grad_points + i * D + k
        if ADD:
            total += tl.load(to, mask=inside, other=0.0)
        tl.store(to, total, mask=inside)
