r"""Edges sorted by the node at one end, on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from ...runtime.triton import cdiv, tl, triton
from ..graph import SortedEdges

BLOCK = 1024  # edges and nodes that a program takes


def sort_edges(node: Tensor, other: Tensor, count: int) -> SortedEdges:
    """Sorts edges by their ``node`` (E,). An ``other`` node that does not exist becomes node 0, so
    that no kernel reads outside before the edge is refused."""
    edges = len(node)
    key, order = torch.sort(node.int(), stable=True)
    start, sorted_other, edge = (key.new_empty(size) for size in (count + 1, edges, edges))
    blocks = cdiv(max(edges, count + 1), BLOCK)
    fill_edges[(blocks,)](
        key, order, other, start, sorted_other, edge, edges, count, edges.bit_length(), BLOCK=BLOCK
    )
    return SortedEdges(start, sorted_other, edge)


@triton.jit
def fill_edges(
    key, order, other, start, sorted_other, edge, edges, count, steps, BLOCK: tl.constexpr
):
    """Fills :class:`SortedEdges` from sorted nodes ``key`` and the ``order`` that sorts them;
    bisects ``start`` in ``steps`` steps."""
    a = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_edge = a < edges
    e = tl.load(order + a, mask=is_edge, other=0)
    node = tl.load(other + e, mask=is_edge, other=0)
    node = tl.where((node >= 0) & (node < count), node, 0)
    tl.store(sorted_other + a, node.to(tl.int32), mask=is_edge)
    tl.store(edge + a, e.to(tl.int32), mask=is_edge)
    if tl.program_id(0).to(tl.int64) * BLOCK <= count:  # most programs have edges only
        low = tl.zeros((BLOCK,), tl.int32)
        high = low + edges
        for _ in range(steps):
            middle = low + (high - low) // 2
            undecided = low < high
            less = tl.load(key + middle, mask=undecided, other=0) < a
            low = tl.where(undecided & less, middle + 1, low)
            high = tl.where(undecided & (less == 0), middle, high)
        tl.store(start + a, low, mask=a <= count)
