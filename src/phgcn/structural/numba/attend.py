"""Attention to neighbours in Numba: layout of the tensors, and the kernels that run.

Threads share nodes by the number of edges. One thread writes a node, edge after edge as in
``edge_index``: no atomics, and the same bits for any number of threads and any other graphs of a
batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...checks import check_edge_values
from ...runtime.numba import as_array
from ..graph import Attention, Gradients, Graph
from .edges import run_nodes, sort_edges
from .kernels import attend, source_gradients, target_gradients


def forward(graph: Graph) -> Attention:
    check_edge_values(*graph)
    source, target = graph.edge_index
    by_target = sort_edges(target, source, len(graph.positions))
    positions, values = _heads_last(graph.positions), as_array(graph.values)
    mask, bias = _edge_rows(graph.edge_mask, graph), _edge_rows(graph.edge_bias, graph)
    out, norm = np.empty_like(values), np.empty((2, *values.shape[:2]), values.dtype)
    start, *edges = map(as_array, by_target)
    run_nodes(attend, start, positions, values, start, *edges, mask, bias, out, norm[0], norm[1])
    return Attention(torch.from_numpy(out), torch.from_numpy(norm), by_target)


def backward(grad: Tensor, attention: Attention, graph: Graph) -> Gradients:
    source, target = graph.edge_index
    by_source = sort_edges(source, target, len(graph.positions))
    positions = _heads_last(graph.positions)
    mask, bias = _edge_rows(graph.edge_mask, graph), _edge_rows(graph.edge_bias, graph)
    values, grad_out, out = (as_array(t) for t in (graph.values, grad, attention.out))
    nearest, inverse_sum = as_array(attention.norm)
    edge_rows = as_array(graph.values.new_empty(2 * graph.edge_index.size(1), values.shape[1]))
    grad_positions, grad_values, grad_bias = map(np.empty_like, (positions, values, bias))
    start, *edges = map(as_array, attention.by_target)
    given = positions, values, grad_out, out, nearest, inverse_sum, start, *edges, mask, bias
    run_nodes(target_gradients, start, *given, edge_rows, grad_positions, grad_bias)
    start, *edges = map(as_array, by_source)
    given = positions, grad_out, start, *edges, edge_rows
    run_nodes(source_gradients, start, *given, grad_positions, grad_values)
    of_positions = torch.from_numpy(grad_positions).transpose(1, 2).contiguous()
    of_bias = None if graph.edge_bias is None else torch.from_numpy(grad_bias)
    return Gradients(of_positions, torch.from_numpy(grad_values), of_bias)


def _heads_last(positions: Tensor) -> np.ndarray:
    """Transposes positions (N, H, D) to (N, D, H)."""
    return as_array(positions.transpose(1, 2))


def _edge_rows(rows: Tensor | None, graph: Graph) -> np.ndarray:
    """Returns a mask or bias (E, H), or an array without rows."""
    return as_array(graph.positions.new_empty(0, graph.positions.size(1)) if rows is None else rows)
