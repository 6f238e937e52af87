"""Flags bad values on the GPU. The host reads the flags once, after all launches."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...checks import distance_limit
from ...runtime.triton import cdiv, tl, triton
from .kernels import Tensors

MAX_PROGRAMS = 512
BLOCK = 4096
INFINITY: tl.constexpr = tl.constexpr(math.inf)


def flag_bad_values(graph: Tensors) -> Tensor:
    """Returns flags, not all 0 for infinite numbers, far positions, or edges to no node."""
    sizes = [0 if t is None else t.numel() for t in graph]
    programs = max(1, min(MAX_PROGRAMS, cdiv(max(sizes), BLOCK)))
    flags = graph.positions.new_empty(programs, dtype=torch.int32)
    limit, count = distance_limit(graph.positions), len(graph.positions)
    of_tensors = Tensors(*sizes)  # type: ignore[arg-type]
    fill_flags[(programs,)](graph, of_tensors, flags, count, LIMIT=limit, BLOCK=BLOCK)
    return flags


@triton.jit
def fill_flags(graph, sizes, flags, count, LIMIT: tl.constexpr, BLOCK: tl.constexpr):
    """Checks a share of every tensor and writes one flag per program."""
    bad = _any_above(graph.positions, sizes.positions, LIMIT, BLOCK)
    bad += _any_above(graph.features, sizes.features, INFINITY, BLOCK)
    if graph.edge_mask is not None:
        bad += _any_above(graph.edge_mask, sizes.edge_mask, INFINITY, BLOCK)
    if graph.edge_bias is not None:
        bad += _any_above(graph.edge_bias, sizes.edge_bias, INFINITY, BLOCK)
    outside = tl.zeros((BLOCK,), tl.int32)
    size, step = sizes.edge_index, tl.num_programs(0) * BLOCK
    for lead in range(tl.program_id(0).to(tl.int64) * BLOCK, size, step):
        at = lead + tl.arange(0, BLOCK)
        node = tl.load(graph.edge_index + at, mask=at < size, other=0)
        outside += ((node < 0) | ((node >= count) & (at < size))).to(tl.int32)
    tl.store(flags + tl.program_id(0), bad + tl.max(outside, axis=0))


@triton.jit
def _any_above(numbers, size, LIMIT: tl.constexpr, BLOCK: tl.constexpr):
    """Returns 0 if this program's share of the numbers is below the limit."""
    above = tl.zeros((BLOCK,), tl.int32)
    for lead in range(tl.program_id(0).to(tl.int64) * BLOCK, size, tl.num_programs(0) * BLOCK):
        at = lead + tl.arange(0, BLOCK)
        number = tl.load(numbers + at, mask=at < size, other=0.0)
        if numbers.dtype.element_ty.primitive_bitwidth == 16:
            number = number.to(tl.float32)
        above += (tl.abs(number) < LIMIT).to(tl.int32) == 0  # a comparison with NaN is false
    return tl.max(above, axis=0)
