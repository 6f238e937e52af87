r"""The kernel of the backward pass.

With gradients :math:`\bar z_i` of the sums and :math:`\bar n_i` of the normalisers, the weight
:math:`w_{ij}` of a query :math:`i` and a key :math:`j` at distance :math:`r_{ij}` has the gradient
:math:`\langle \bar z_i, f_j \rangle + \bar n_i`, and

.. math::
    \bar f_j = \sum_i w_{ij} \bar z_i, \qquad
    \bar q_i = \sum_j w'_{ij} \left(\langle \bar z_i, f_j \rangle + \bar n_i\right)
    \frac{q_i - k_j}{r_{ij}},

and :math:`\bar k_j` the same, summed over :math:`i`. A program's targets are queries, or keys, or
both where points attend to themselves; then one pass over the pairs serves both roles."""

from __future__ import annotations

from ...runtime.triton import kernel, tl, triton
from .packing import points_at
from .tiles import (
    LOG2E,
    MAX_HELD,
    Sources,
    Targets,
    exponents,
    load_coordinates,
    load_rows,
    locate_rows,
    locate_tile,
    multiply,
    multiply_polynomial,
    multiply_slope,
    squared_distances,
    weigh,
    zero_tile,
)


@triton.jit
def _keep_in_registers(rows):
    """Returns the rows in tensor cores' register layout: products would wait for shared memory."""
    if len(rows) == 2:
        zeros = zero_tile(rows[0].shape[0], rows[0].shape[1], tl.float32)
        high, low = zeros + rows[0].to(tl.float32), zeros + rows[1].to(tl.float32)
        return high.to(tl.bfloat16), low.to(tl.bfloat16)
    else:
        return rows


@triton.jit
def _transpose(rows):
    if len(rows) == 2:
        return tl.trans(rows[0]), tl.trans(rows[1])
    else:
        return (tl.trans(rows[0]),)


@triton.jit
def _add_tile(
    targets, sources, lead, last, summed, slopes, MASKED: tl.constexpr, SIZES: tl.constexpr
):
    """Adds the sources from ``lead`` on to the gradients, up to ``last`` if ``MASKED``.

    Products come first: while one program waits for the tensor cores, another on the same processor
    computes weights."""
    D: tl.constexpr = SIZES.dim
    source = lead + tl.arange(0, SIZES.sources)
    product = None
    if targets.grads is not None:
        f = load_rows(sources.rows, source, sources.width, summed.shape[1])
        product = multiply(targets.grads, _transpose(f), product)
    if targets.rows is not None:
        g = load_rows(sources.grads, source, sources.width, summed.shape[1])
        product = multiply(targets.rows, _transpose(g), product)
    point = sources.points + source
    y = load_coordinates(point, sources.length, D)
    square = squared_distances(
        targets.point, targets.x, targets.length, point, y, sources.length, D
    )
    # Where points coincide, the inverse distance is multiplied by a difference of 0: it need only
    # be finite.
    inverse = tl.rsqrt(tl.maximum(square, 1e-200 if square.dtype == tl.float64 else 1e-24))
    s = exponents(square * inverse, square, SIZES)
    shifted = s
    if targets.shift is not None:
        shifted = tl.maximum(s - targets.shift[:, None], 0.0)
    if sources.shift is not None:
        shifted = tl.maximum(s - tl.load(sources.shift + source)[None, :], 0.0)
    e = tl.exp2(-LOG2E * shifted)
    if MASKED:
        e = tl.where((source < last)[None, :], e, 0.0)
    if targets.rows is not None:
        summed += weigh(multiply_polynomial(e, s, SIZES), g)
    if targets.bias is not None:
        product += targets.bias[:, None]
    if sources.bias is not None:  # each pair's once: only the first block of channels adds it
        first_block = (source >= 0) & (tl.program_id(2) == 0)
        product += tl.load(sources.bias + source, mask=first_block, other=0.0)[None, :]
    slope = multiply_slope(e, s, inverse, SIZES) * product
    slopes = _subtract_slopes(slopes, slope, targets, point, y, sources.length, D)
    return summed, slopes


@triton.jit
def _zero_slopes(BM: tl.constexpr, dtype: tl.constexpr, D: tl.constexpr):
    """Returns zeros for :func:`_subtract_slopes`: (BM,) per coordinate, or (BM, power of 2)."""
    if D <= MAX_HELD:
        slopes = ()
        for _ in tl.static_range(D):
            slopes = slopes + (tl.zeros((BM,), dtype),)  # type: ignore[assignment]  # noqa: RUF005
        return slopes
    else:
        return tl.zeros((BM, triton.next_power_of_2(D)), dtype)


@triton.jit
def _subtract_slopes(slopes, slope, targets, point, y, source_length, D: tl.constexpr):
    """Subtracts per coordinate the sum over a tile's sources of ``slope`` times the difference."""
    if D <= MAX_HELD:
        result = ()
        for k in tl.static_range(D):
            along = tl.sum(slope * (targets.x[k][:, None] - y[k][None, :]), axis=1)
            result = result + (slopes[k] - along,)  # type: ignore[assignment]  # noqa: RUF005
        slopes = result
    else:
        d = tl.arange(0, slopes.shape[1])
        for k in range(D):
            x = tl.load(targets.point + k * targets.length)
            difference = x[:, None] - tl.load(point + k * source_length)[None, :]
            slopes -= tl.where(d[None, :] == k, tl.sum(slope * difference, axis=1)[:, None], 0.0)
    return slopes


@kernel()
def gradients(
    packed, source_packed, order, tiles, grad_positions, grad_values, channels, SIZES: tl.constexpr
):
    """Computes the gradient of the positions of a tile of targets and, for keys, of their values.

    ``packed`` holds the targets and ``source_packed`` the sources: keys have ``rows``, queries
    ``grads``. ``grad_values`` is (N, H, channels) or None, ``grad_positions`` (N, H, blocks of
    channels, D). Grid: tiles, heads, blocks of channels."""
    D: tl.constexpr = SIZES.dim
    BM: tl.constexpr = SIZES.targets
    BN: tl.constexpr = SIZES.sources
    BC: tl.constexpr = SIZES.channels
    begin, end, first, last = locate_tile(tiles, BM)
    head = tl.program_id(1).to(tl.int64)
    index = begin + tl.arange(0, BM)
    length, source_length = packed.length, source_packed.length
    values, grads, target_values, target_grads = None, None, None, None
    target_bias, target_shift, source_bias, source_shift = None, None, None, None
    if packed.grads is not None:
        rows, width = locate_rows(packed.grads, length, BC, SIZES.parts)
        target_grads = _keep_in_registers(load_rows(rows, index.to(tl.int64), width, BC))
        values, width = locate_rows(source_packed.rows, source_length, BC, SIZES.parts)
        if packed.bias is not None:
            first_block = (index >= 0) & (tl.program_id(2) == 0)
            target_bias = tl.load(packed.bias + head * length + index, mask=first_block, other=0.0)
        if packed.shift is not None:
            target_shift = tl.load(packed.shift + head * length + index)
    if packed.rows is not None:
        rows, width = locate_rows(packed.rows, length, BC, SIZES.parts)
        target_values = _keep_in_registers(load_rows(rows, index.to(tl.int64), width, BC))
        grads, width = locate_rows(source_packed.grads, source_length, BC, SIZES.parts)
        if source_packed.bias is not None:
            source_bias = source_packed.bias + head * source_length
        if source_packed.shift is not None:
            source_shift = source_packed.shift + head * source_length
    point = packed.points + head * D * length + index
    x = load_coordinates(point, length, D)
    targets = Targets(point, length, x, target_values, target_grads, target_bias, target_shift)
    source = source_packed.points + head * D * source_length
    others = Sources(source, source_length, values, grads, source_bias, source_shift, width)
    dtype: tl.constexpr = packed.points.dtype.element_ty
    summed = tl.zeros((BM, BC), dtype)
    slopes = _zero_slopes(BM, dtype, D)
    whole = first + (last - first) // BN * BN
    for lead in range(first, whole, BN):
        summed, slopes = _add_tile(targets, others, lead, last, summed, slopes, False, SIZES)
    if whole < last:
        summed, slopes = _add_tile(targets, others, whole, last, summed, slopes, True, SIZES)
    _store(summed, slopes, index, end, order, grad_positions, grad_values, channels, D)


@triton.jit
def _store(
    summed, slopes, index, end, order, grad_positions, grad_values, channels, D: tl.constexpr
):
    """Writes the gradients of a tile of targets. ``grad_values`` may be None."""
    head, heads, block = tl.program_id(1), tl.num_programs(1), tl.program_id(2)
    inside = index < end
    row = points_at(order, index, end) * heads + head
    to = grad_positions + (row * tl.num_programs(2) + block) * D
    if D <= MAX_HELD:
        for k in tl.static_range(D):
            tl.store(to + k, slopes[k], mask=inside)
    else:
        d = tl.arange(0, slopes.shape[1])
        tl.store(to[:, None] + d[None, :], slopes, mask=inside[:, None] & (d < D)[None, :])
    if grad_values is not None:
        c = block * summed.shape[1] + tl.arange(0, summed.shape[1])
        to_values = (grad_values + row * channels)[:, None] + c[None, :]
        tl.store(to_values, summed, mask=inside[:, None] & (c < channels)[None, :])
