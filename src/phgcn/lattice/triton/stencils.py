r"""Stencils as the blur reads them: offsets grouped into *stencil rows*.

Offsets that differ only in the last coordinate, by one, are neighbours in the sorted list of vertices: one search finds the
first of a row, and the others follow it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

MAX_ROW_LENGTH = 16
"""Upper bound of the offsets of a stencil row: each has a bit beside the number of the first vertex."""


@dataclass(frozen=True)
class StencilRows:
    r"""The stencil rows of one stencil, or of several.

    Args:
        first (torch.Tensor): The first offset of each row, int64, :math:`(R, D)`.
        length (torch.Tensor): How many offsets each row has, int32, :math:`(R,)`.
        longest (int): The length of the longest row.
        bits (int): How many bits of a segment tell which offsets of its row are touched; at least ``longest``.
    """

    first: Tensor
    length: Tensor
    longest: int
    bits: int

    @cached_property
    def count(self) -> int:
        return self.first.size(0)


@dataclass(frozen=True)
class Stencil:
    r"""A stencil with its weights.

    Args:
        rows (StencilRows): Its offsets, short rows first.
        rows_up_to (torch.Tensor): How many rows have at most 0, 1, ... offsets, int32, :math:`(L+1,)`.
        weight (torch.Tensor): The weights of a level's offsets, row by row, padded with 0; :math:`(K R, L)`.
    """

    rows: StencilRows
    rows_up_to: Tensor
    weight: Tensor

    @cached_property
    def levels(self) -> int:
        return self.weight.size(0) // self.rows.count


def make_stencil(offsets: np.ndarray, weights: np.ndarray, dtype: torch.dtype, device: torch.device, bits: int = 0) -> Stencil:
    """Groups offsets (S, D) with the weights of each level (K, S) into rows; segments get at least ``bits`` bits."""
    order = np.lexsort(offsets.T[::-1])
    rows: list[tuple[list[int], list[int]]] = []  # first offset, numbers of all offsets
    following: list[int] = []
    for number, offset in zip(order.tolist(), offsets[order].tolist(), strict=True):
        if rows and offset == following and len(rows[-1][1]) < MAX_ROW_LENGTH:
            rows[-1][1].append(number)
        else:
            rows.append((offset, [number]))
        following = [*offset[:-1], offset[-1] + 1]
    rows.sort(key=lambda row: len(row[1]))
    length = np.array([len(numbers) for _, numbers in rows])
    longest = int(length.max())
    padded = np.zeros((len(weights), len(rows), longest))
    for row, (_, numbers) in enumerate(rows):
        padded[:, row, : len(numbers)] = weights[:, numbers]
    rows_up_to = np.searchsorted(length, np.arange(longest + 1), side="right")
    stencil_rows = StencilRows(
        first=torch.tensor([first for first, _ in rows], dtype=torch.int64, device=device).reshape(len(rows), -1),
        length=torch.from_numpy(length.astype(np.int32)).to(device),
        longest=longest,
        bits=max(longest, bits),
    )
    weight = torch.from_numpy(padded).flatten(0, 1).to(dtype).to(device)
    return Stencil(stencil_rows, torch.from_numpy(rows_up_to.astype(np.int32)).to(device), weight)


def join_rows(stencils: list[Stencil]) -> StencilRows:
    """Lists the rows of several stencils one after the other, to find the neighbours of all at once."""
    rows = [stencil.rows for stencil in stencils]
    first, length = torch.cat([r.first for r in rows]), torch.cat([r.length for r in rows])
    return StencilRows(first, length, max(r.longest for r in rows), rows[0].bits)


def widen(stencils: list[tuple[np.ndarray, np.ndarray]], level: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Writes the stencils (offsets, weights) of all levels over the offsets of one level, or of the widest; returns these,
    (S, D), and the weights of each level, (K, S), 0 where it has none."""
    offsets = max((offsets for offsets, _ in stencils), key=len) if level is None else stencils[level][0]
    weight_of = [dict(zip(map(tuple, offsets.tolist()), weights.tolist(), strict=True)) for offsets, weights in stencils]
    return offsets, np.array([[weight.get(tuple(offset), 0.0) for offset in offsets.tolist()] for weight in weight_of])
