r"""Flags of bad values, found on the GPU: the host reads them once, after the other kernels have been launched."""

from __future__ import annotations

import torch
from torch import Tensor

from ...runtime.triton import cdiv, tl, triton
from ..graph import Graph

MAX_PROGRAMS = 512
BLOCK = 4096


def flag_bad_values(graph: Graph) -> Tensor:
    """Returns some flags, not all 0 if a number is not finite or an edge leads to no node."""
    positions, values, edge_index, edge_mask, edge_bias = graph
    tensors = positions, values, edge_mask, edge_bias, edge_index
    sizes = [0 if t is None else t.numel() for t in tensors]
    programs = max(1, min(MAX_PROGRAMS, cdiv(max(sizes), BLOCK)))
    flags = edge_index.new_empty(programs, dtype=torch.int32)
    fill_flags[(programs,)](*tensors, flags, *sizes, len(positions), BLOCK=BLOCK)
    return flags


@triton.jit
def fill_flags(
    positions, values, edge_mask, edge_bias, edge_index, flags, position_size, value_size, mask_size, bias_size, index_size,
    count, BLOCK: tl.constexpr,
):  # fmt: skip
    """Looks at a share of every tensor, and writes one flag for each program."""
    bad = _any_infinite(positions, position_size, BLOCK) + _any_infinite(values, value_size, BLOCK)
    if edge_mask is not None:
        bad += _any_infinite(edge_mask, mask_size, BLOCK)
    if edge_bias is not None:
        bad += _any_infinite(edge_bias, bias_size, BLOCK)
    outside = tl.zeros((BLOCK,), tl.int32)
    for lead in range(tl.program_id(0).to(tl.int64) * BLOCK, index_size, tl.num_programs(0) * BLOCK):
        at = lead + tl.arange(0, BLOCK)
        node = tl.load(edge_index + at, mask=at < index_size, other=0)
        outside += ((node < 0) | ((node >= count) & (at < index_size))).to(tl.int32)
    tl.store(flags + tl.program_id(0), bad + tl.max(outside, axis=0))


@triton.jit
def _any_infinite(numbers, size, BLOCK: tl.constexpr):
    """Returns 0 if all of a program's share of numbers are finite."""
    infinite = tl.zeros((BLOCK,), tl.int32)
    for lead in range(tl.program_id(0).to(tl.int64) * BLOCK, size, tl.num_programs(0) * BLOCK):
        at = lead + tl.arange(0, BLOCK)
        number = tl.load(numbers + at, mask=at < size, other=0.0)
        if numbers.dtype.element_ty.primitive_bitwidth == 16:
            number = number.to(tl.float32)
        infinite += (tl.abs(number) < float("inf")).to(tl.int32) == 0  # a comparison with NaN is false
    return tl.max(infinite, axis=0)
