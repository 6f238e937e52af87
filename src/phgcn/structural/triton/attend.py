r"""Attention to neighbours in Triton, on a GPU: what is launched, and the edges by node (:mod:`.gpu_kernels` has the rest).

Edges are sorted by target, for the gradient by source too, with a stable sort.  A program takes one node and some heads and
goes through the node's edges in the order of ``edge_index``, a tile at a time; how large a tile is depends on heads and
channels alone.  So no output is written twice, the bits are the same every run, and nothing that is batched beside a graph
changes its sums.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...kernels.triton import capturing, cdiv, device_of, power_of_2
from .kernels import attend, edges_by_node, look, source_gradients, target_gradients

LOOKERS = 512
"""Programs that look for bad values, at most."""

LOOK = 4096
EDGES = 1024


class Shape(NamedTuple):
    """What a program takes at a time: edges, heads, channels and coordinates, each a power of two; and its warps."""

    edges: int
    heads: int
    channels: int
    coordinates: int
    warps: int


def shape_of(positions: Tensor, values: Tensor) -> Shape:
    """Rows of up to 256 numbers, and as many edges as make 1,024 of them for a warp, at least 4."""
    channels, coordinates = power_of_2(max(1, values.size(2))), power_of_2(positions.size(2))
    heads = min(power_of_2(values.size(1)), max(1, 256 // max(channels, coordinates)))
    row = heads * max(channels, coordinates)
    edges = min(32, max(4, 1024 // row))
    return Shape(edges, heads, channels, coordinates, min(8, max(1, edges * row // 1024)))


def forward(
    positions: Tensor, values: Tensor, edge_index: Tensor, edge_mask: Tensor | None
) -> tuple[bool, tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]:
    """Attention; returns whether a value is bad or an edge points to no node, and output, norm, and the edges by target:
    where they start, their sources, their columns.

    The host waits for the answer once, after everything has been launched; not at all while a CUDA graph is captured,
    where it cannot: bad values are not found then.
    """
    positions, values, edge_index = positions.contiguous(), values.contiguous(), edge_index.contiguous()
    edge_mask = None if edge_mask is None else edge_mask.contiguous()
    count, heads, _ = values.shape
    with device_of(values):
        flags = _look(positions, values, edge_index, edge_mask)
        start, source, edge = by_node(edge_index[1], edge_index[0], count)
        out, norm = torch.empty_like(values), positions.new_empty(2, count, heads)
        s = shape_of(positions, values)
        if count > 0:
            attend[count, cdiv(heads, s.heads)](
                positions, values, start, source, edge, edge_mask, out, *norm,
                **_sizes(positions, values, s), num_warps=s.warps,
            )  # fmt: skip
        return not capturing(values) and any(flags.tolist()), (out, norm, start, source, edge)


def backward(
    grad: Tensor,
    kept: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    positions: Tensor,
    values: Tensor,
    edge_index: Tensor,
    edge_mask: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The gradients of positions and values; ``kept`` is what :func:`forward` returned."""
    out, norm, start, source, edge = kept
    positions, values, edge_index, grad = (t.contiguous() for t in (positions, values, edge_index, grad))
    edge_mask = None if edge_mask is None else edge_mask.contiguous()
    count, heads, _ = values.shape
    grad_positions, grad_values = torch.empty_like(positions), torch.empty_like(values)
    if count == 0:
        return grad_positions, grad_values
    s = shape_of(positions, values)
    grid, sizes = (count, cdiv(heads, s.heads)), _sizes(positions, values, s)
    mean = positions.new_empty(count, heads)
    with device_of(values):
        source_start, target, source_edge = by_node(edge_index[0], edge_index[1], count)
        target_gradients[grid](
            positions, values, grad, out, *norm, start, source, edge, edge_mask, mean, grad_positions,
            **sizes, num_warps=s.warps,
        )  # fmt: skip
        source_gradients[grid](
            positions, values, grad, *norm, mean, source_start, target, source_edge, edge_mask, grad_positions,
            grad_values, **sizes, num_warps=s.warps,
        )  # fmt: skip
    return grad_positions, grad_values


def by_node(node: Tensor, other: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sorts edges by the node at one end: where those of each node start, their other ends, and which edges they are.

    An other end that is no node becomes node 0, so that nothing is read outside before the edge is refused.
    """
    edges = len(node)
    key, order = torch.sort(node.int(), stable=True)
    start, ends, edge = (key.new_empty(size) for size in (count + 1, edges, edges))
    blocks = cdiv(max(edges, count + 1), EDGES)
    edges_by_node[(blocks,)](key, order, other, start, ends, edge, edges, count, edges.bit_length(), BLOCK=EDGES)
    return start, ends, edge


def _look(positions: Tensor, values: Tensor, edge_index: Tensor, edge_mask: Tensor | None) -> Tensor:
    """Flags, of which one is not 0 where a value is not finite or an edge points to no node."""
    sizes = [0 if t is None else t.numel() for t in (positions, values, edge_mask, edge_index)]
    programs = max(1, min(LOOKERS, cdiv(max(sizes), LOOK)))
    flags = edge_index.new_empty(programs, dtype=torch.int32)
    look[(programs,)](positions, values, edge_mask, edge_index, flags, *sizes, len(positions), BLOCK=LOOK)
    return flags


def _sizes(positions: Tensor, values: Tensor, s: Shape) -> dict:
    tiny = torch.finfo(positions.dtype).tiny
    _, heads, channels = values.shape
    blocks = {"BE": s.edges, "BH": s.heads, "BC": s.channels, "BD": s.coordinates}
    return {"H": heads, "C": channels, "D": positions.size(2), **blocks, "TINY": tiny}
