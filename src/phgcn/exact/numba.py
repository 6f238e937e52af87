r"""The exact sum in Numba, on all cores: all graphs and heads share one parallel loop."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..kernels.graphs import GraphGroups
from ..kernels.legacy import as_array, use_threads
from ..kernels.points import Gradients, Points
from ..lattice.numba import rows
from ..lattice.numba.pairs import TARGETS, PairWeight, all_pairs, coordinate_lines, nearest
from .reference import checked_groups


def forward(points: Points, normalise: bool, at_most: int) -> tuple[Tensor, Tensor]:
    """Returns output and normaliser; see :func:`phgcn.exact.ops.attend`."""
    groups = checked_groups(points)
    use_threads()
    positions, values, queries = (None if t is None else as_array(t) for t in points[:3])
    targets = positions if queries is None else queries
    heads, channels = values.shape[1:]
    out = np.empty((len(targets), heads, channels), values.dtype)
    norm = np.empty((len(targets) if normalise else 0, heads), values.dtype)
    width = rows.padded(channels + normalise)
    keys = rows.pack_points(positions, groups.key_order)
    asked = keys if queries is None else rows.pack_points(queries, groups.query_order)
    packed = rows.pack_values(values, groups.key_order, normalise, width)
    summed = np.zeros((heads, len(targets), width), values.dtype)
    _exact(keys, asked, packed, summed, groups, at_most, normalise and queries is not None)
    rows.unpack_values(summed, groups.query_order, normalise, out, norm)
    return torch.from_numpy(out), torch.from_numpy(norm)


def backward(grad: Tensor, out: Tensor, norm: Tensor, points: Points, normalise: bool, at_most: int) -> Gradients:
    """Returns the gradients of positions, values and, in cross-attention, queries."""
    groups = checked_groups(points)
    use_threads()
    positions, values, queries = (None if t is None else as_array(t) for t in points[:3])
    channels = values.shape[2]
    grad_positions, grad_values = np.empty_like(positions), np.empty_like(values)
    grad_queries = None if queries is None else np.empty_like(queries)
    width = rows.padded(channels + normalise)
    keys = rows.pack_points(positions, groups.key_order)
    asked = keys if queries is None else rows.pack_points(queries, groups.query_order)
    packed = rows.pack_values(values, groups.key_order, normalise, width)
    grads = rows.pack_gradients(as_array(grad), as_array(out), as_array(norm), groups.query_order, normalise, width)
    grad_rows, grad_keys = np.zeros_like(packed), np.zeros_like(keys)
    grad_asked = grad_keys if queries is None else np.zeros_like(asked)
    far = normalise and queries is not None
    _exact_backward(keys, asked, packed, grads, grad_rows, grad_keys, grad_asked, groups, at_most, far)
    rows.unpack_columns(grad_rows, groups.key_order, grad_values)
    rows.unpack_columns(grad_keys, groups.key_order, grad_positions)
    if queries is not None:
        rows.unpack_columns(grad_asked, groups.query_order, grad_queries)
    return Gradients(*(None if g is None else torch.from_numpy(g) for g in (grad_positions, grad_values, grad_queries)))


def _blocks(heads: int, groups: GraphGroups, at_most: int, swapped: bool = False) -> np.ndarray:
    """Few targets each of the graphs that are summed exactly, and the range of their sources; points are numbered through
    all heads."""
    found = []
    for k, q in groups.slices(at_most=at_most):
        t, s = (k, q) if swapped else (q, k)
        found += [(a, min(a + TARGETS, t.stop), s.start, s.stop) for a in range(t.start, t.stop, TARGETS)]
    keys, asked = len(groups.key_order), len(groups.query_order)
    step = [keys, keys, asked, asked] if swapped else [asked, asked, keys, keys]
    one = np.array(found, np.int64).reshape(-1, 4)
    return (np.arange(heads)[:, None, None] * np.array(step) + one).reshape(-1, 4)


def _law(dtype: np.dtype) -> PairWeight:
    return PairWeight(dtype.type(np.inf), dtype.type(np.inf), np.empty(0, dtype), dtype.type(0))


def _shift(blocks: np.ndarray, asked: np.ndarray, sources: np.ndarray, far: bool) -> np.ndarray:
    """What to add to the exponents of each query's weights: where no weight is surely 1, the distance to the nearest key,
    so that a query far from all of them does not sum zeros."""
    shift = np.zeros(len(asked), asked.dtype)
    if far:
        nearest(blocks, asked, sources, shift)
    return np.where(np.isfinite(shift), shift, 0)


def _exact(keys, asked, packed, summed, groups: GraphGroups, at_most: int, far: bool) -> None:
    blocks = _blocks(len(keys), groups, at_most)
    if len(blocks) == 0:
        return
    sources, none = coordinate_lines(_flat(keys)), np.empty((0, 0), keys.dtype)
    targets = sources.T.copy() if asked is keys else coordinate_lines(_flat(asked)).T.copy()
    shift, zero = _shift(blocks, targets, sources, far), np.zeros(sources.shape[1], keys.dtype)
    law = _law(keys.dtype)
    all_pairs(blocks, targets, shift, sources, zero, law, _flat(packed), _flat(summed), none, none, none)


def _exact_backward(keys, asked, packed, grads, grad_rows, grad_keys, grad_asked, groups, at_most: int, far: bool) -> None:
    blocks = _blocks(len(keys), groups, at_most)
    if len(blocks) == 0:
        return
    packed, grads, grad_rows, grad_keys = _flat(packed), _flat(grads), _flat(grad_rows), _flat(grad_keys)
    law, none, zero = _law(keys.dtype), np.empty((0, 0), keys.dtype), np.zeros(len(packed), keys.dtype)
    of_keys = coordinate_lines(_flat(keys))
    if asked is keys:
        own, other = rows.beside(grads, packed), rows.beside(packed, grads)
        all_pairs(blocks, of_keys.T.copy(), zero, of_keys, zero, law, grads, grad_rows, own, other, grad_keys)
        return
    of_asked = coordinate_lines(_flat(asked))
    shift = _shift(blocks, of_asked.T.copy(), of_keys, far)
    all_pairs(blocks, of_asked.T.copy(), shift, of_keys, zero, law, none, none, grads, packed, _flat(grad_asked))
    blocks = _blocks(len(keys), groups, at_most, swapped=True)
    all_pairs(blocks, of_keys.T.copy(), zero, of_asked, shift, law, grads, grad_rows, packed, grads, grad_keys)


def _flat(table: np.ndarray) -> np.ndarray:
    """The rows of all heads as one table, the same memory."""
    return table.reshape(table.shape[0] * table.shape[1], table.shape[2])
