r"""The near field: what coarse lattice levels miss at short range, summed pair by pair."""

from __future__ import annotations

import itertools

import numpy as np

from . import build
from .lattice import multipliers, sort_keys
from .pairs import Cells, PairWeight, coordinate_lines, near_pairs
from .sorting import run_starts

CELL_DIMENSIONS = 4
"""Cells are laid over this many coordinates at most: every further one would triple the cells around a point."""


class NearField:
    r"""The pairs of targets and sources within a radius.

    Args:
        targets (np.ndarray): Positions in units of :math:`1/\lambda`, :math:`(M, D)`.
        sources (np.ndarray): Positions, :math:`(N, D)`; the very same array for attention of a cloud to itself.
        law (PairWeight): The weight of a pair.
    """

    def __init__(self, targets: np.ndarray, sources: np.ndarray, law: PairWeight) -> None:
        self.law = law
        dim = min(sources.shape[1], CELL_DIMENSIONS)
        low, high = build.extent(sources)
        for lowest, highest in [build.extent(targets)]:
            low, high = np.minimum(low, lowest)[:dim], np.maximum(high, highest)[:dim]
        self.multiplier, self.bits, self.hashed = multipliers((high - low) / law.radius + 4)
        prefix = np.array(list(itertools.product((-1, 0, 1), repeat=dim - 1)), np.int64).reshape(3 ** (dim - 1), -1)
        self.row_prefix = prefix
        self.row_key = (prefix.astype(np.uint64) * self.multiplier[:-1]).sum(axis=1, dtype=np.uint64)
        self.source = self._cells(sources, low)
        self.target = self.source if targets is sources else self._cells(targets, low)

    def _cells(self, points: np.ndarray, low: np.ndarray) -> Cells:
        side = float(self.law.radius)
        base = (np.floor(low / side) - 1) * side
        keys, index = sort_keys(build.cube_keys(points, base, 1 / side, self.multiplier), self.bits)
        start = run_starts(keys)
        lead = points[index[start[:-1]], : len(low) - 1].astype(np.float64)
        prefix = np.floor((lead - base[:-1]) * (1 / side)).astype(np.int64)
        return Cells(keys[start[:-1]], prefix, start, index, coordinate_lines(build.take_rows(points, index)))

    def add(self, rows=None, out=None, own=None, products=None, grad=None) -> None:
        """Adds to the rows ``out`` of the targets the rows of the sources, weighted, and to the gradient ``grad`` of the
        targets' positions; either may be left out.  See :func:`phgcn.lattice.numba.pairs.all_pairs`."""
        target, source = self.target.point, self.source.point
        none = np.empty((0, 0), self.source.position.dtype)
        summed = none if out is None else np.zeros(out.shape, none.dtype)
        slopes = none if grad is None else np.zeros(grad.shape, none.dtype)
        near_pairs(
            self.target, self.source, self.hashed, self.row_key, self.row_prefix, self.law,
            none if rows is None else build.take_rows(rows, source), summed,
            none if own is None else build.take_rows(own, target),
            none if products is None else build.take_rows(products, source), slopes,
        )  # fmt: skip
        if out is not None:
            build.add_rows_at(out, target, summed)
        if grad is not None:
            build.add_rows_at(grad, target, slopes)
