r"""The sum over neighbours, :math:`y_i = \sum_{j \to i} x_j`, as a custom op.

:func:`sort_neighbours` sorts edges once by target and by source; every sum and gradient reads them
in this order. No output is written twice, so that a GPU gives the same bits every run. All sizes
follow from shapes, so that a CUDA graph can capture both ops."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from ..backends import DEVICES, find_backend
from ..checks import check_node_numbers
from .graph import SortedEdges


class Neighbours(NamedTuple):
    """Edges sorted by target, then the same edges sorted by source, int32.

    Shapes:
        - **start:** :math:`(N + 1,)`; sources of node :math:`i` are ``source[start[i]]`` to
          ``source[start[i + 1] - 1]``
        - **source:** :math:`(E,)`; entries behind ``start[N]`` belong to no node
        - **source_start**, **target:** the same with the ends of each edge exchanged
    """

    start: Tensor
    source: Tensor
    source_start: Tensor
    target: Tensor


class SumBackend(Protocol):
    """A backend: ``phgcn.structural.<name>``."""

    def sort_edges(self, node: Tensor, other: Tensor, count: int) -> SortedEdges: ...

    def sum_rows(self, values: Tensor, start: Tensor, source: Tensor) -> Tensor:
        """Sums values (N, C) of sources (E,), which begin at ``start`` (M + 1,), to (M, C)."""
        ...


def sort_neighbours(edge_index: Tensor, count: int, self_loops: bool, backend: str) -> Neighbours:
    """Sorts edges (2, E) by both ends. Checks node numbers, except in a CUDA graph."""
    return Neighbours(*torch.ops.phgcn.sort_neighbours(edge_index, count, self_loops, backend))


def sum_neighbours(values: Tensor, neighbours: Neighbours, backend: str) -> Tensor:
    """Sums the values (N, C) of each node's sources."""
    out: Tensor = torch.ops.phgcn.sum_neighbours(values, *neighbours, backend)
    return out


_SORTED = "Tensor start, Tensor source, Tensor source_start, Tensor target"
torch.library.define(
    "phgcn::sort_neighbours",
    "(Tensor edge_index, SymInt count, bool self_loops, str backend) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
)
torch.library.define("phgcn::sum_neighbours", f"(Tensor values, {_SORTED}, str backend) -> Tensor")


@torch.library.impl("phgcn::sort_neighbours", DEVICES)
def _sort_neighbours(
    edge_index: Tensor, count: int, self_loops: bool, backend: str
) -> tuple[Tensor, ...]:
    check_node_numbers(edge_index, count)
    if not self_loops:
        # As edges of a spare node, number `count`, they are sorted behind all others: no size
        # depends on how many there are.
        edge_index = torch.where(edge_index[0] == edge_index[1], count, edge_index)
    source, target = edge_index
    by_target, by_source = (
        _backend(backend).sort_edges(node, other, count + 1)
        for node, other in ((target, source), (source, target))
    )
    return by_target.start[:-1], by_target.other, by_source.start[:-1], by_source.other


def _sort_neighbours_fake(edge_index: Tensor, count: int, *_: Any) -> tuple[Tensor, ...]:
    sizes = count + 1, edge_index.size(1)
    return tuple(edge_index.new_empty(size, dtype=torch.int32) for size in sizes + sizes)


@torch.library.impl("phgcn::sum_neighbours", DEVICES)
def _sum_neighbours(values: Tensor, start: Tensor, source: Tensor, *rest: Any) -> Tensor:
    return _backend(rest[-1]).sum_rows(values, start, source)


def _sum_neighbours_fake(values: Tensor, *_: Any) -> Tensor:
    return values.new_empty(values.shape)


def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    _, *edges, ctx.backend = inputs
    ctx.save_for_backward(*edges)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    start, source, source_start, target = ctx.saved_tensors
    transposed = Neighbours(source_start, target, start, source)
    return sum_neighbours(grad, transposed, ctx.backend), *(None,) * 5


def _backend(name: str) -> SumBackend:
    return cast(SumBackend, find_backend(name).load("structural"))


torch.library.register_fake("phgcn::sort_neighbours", _sort_neighbours_fake)
torch.library.register_fake("phgcn::sum_neighbours", _sum_neighbours_fake)
torch.library.register_autograd("phgcn::sum_neighbours", _backward, setup_context=_setup_context)
