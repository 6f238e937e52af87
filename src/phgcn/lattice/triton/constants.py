r"""What a scheme is made of, as tensors on the device: made once, kept for the next call."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ..coefficients import FADE_START, multiscale_weights, separable_weights, stencil_weights
from ..geometry import kuhn_matrix, origin
from ..levels import mean_pairs_cell
from ..scheme import MultiScale, Separable
from .build import MOST_OFFSETS, Offsets, Stencil
from .keys import Words
from .near import CELL_DIMENSIONS, FINER

MARGIN = 2
"""Free cells around all points and their stencils, so that no key borrows from another coordinate's bits."""


@dataclass(frozen=True)
class Grids:
    """The grids that keys are made of: the lattice; with several levels, the cells of level 1 that count pairs, the finest of
    such; and for each level from 1 on the cells of the near field.

    Args:
        scale (torch.Tensor): From Kuhn coordinates of level 0, for the lattice, or from positions to the coordinates of each
            grid; 0 for coordinates that it does not have; float64, :math:`(Q, D)`.
        spare (torch.Tensor): How many steps each grid needs below and above its points, :math:`(Q,)`.
        step (torch.Tensor): Of what the lowest coordinate of each grid is a multiple, :math:`(Q,)`.
    """

    scale: Tensor
    spare: Tensor
    step: Tensor


@dataclass(frozen=True)
class Constants:
    r"""A scheme in one dimension, on one device.

    Args:
        levels (int): How many nested levels it has.
        lattices (int): How many shifted lattices it averages.
        matrix (torch.Tensor): From positions to Kuhn coordinates of level 0, float64, :math:`(D, D)`.
        origin (tuple): The shift of each lattice, float64, :math:`(D,)`.
        scale (torch.Tensor): From Kuhn coordinates of level 0 to those of each level, float64.
        tables (torch.Tensor): The stencil weights between the vertices of one simplex, per level, :math:`(levels, D+1)`.
        own (torch.Tensor): What the lattice from each level on is to give a point of itself.
        factor (torch.Tensor): Of what one lattice gives, :math:`(1,)`.
        stencils (tuple): The stencil of all levels, or, of the paper's filter, that of each pass.
        together (Offsets, optional): The rows of all passes, one after the other, to be sought at once.
        radius (tuple): The radius of the near field of each level.
        law (tuple): The near field's weights of each level; see :class:`phgcn.lattice.triton.near.NearField`.
        cells (tuple): How many of its cells a unit has, along each coordinate, per level.
        grids (Grids): The grids that keys are made of.
        free (int): The free places that keys leave before the first vertex of a level, and behind the last.
        words (tuple): The words of keys of the lattice, of cells that count pairs and of near fields' cells.
        sides (torch.Tensor): The side of the cells that count pairs, per level.
        rows (torch.Tensor): The rows of cells around one, see :class:`phgcn.lattice.triton.near.NearField`.
    """

    levels: int
    lattices: int
    matrix: Tensor
    origin: tuple[Tensor, ...]
    scale: Tensor
    tables: Tensor
    own: Tensor
    factor: Tensor
    stencils: tuple[Stencil, ...]
    together: Offsets | None
    radius: tuple[float, ...]
    law: tuple[Tensor, ...]
    cells: tuple[Tensor, ...]
    grids: Grids
    free: int
    words: tuple[Words, Words, Words]
    sides: Tensor
    rows: Tensor


@lru_cache(maxsize=64)
def constants(scheme: MultiScale | Separable, dim: int, dtype: torch.dtype, device: torch.device) -> Constants:
    """The constants of a scheme."""
    if isinstance(scheme, Separable):
        return _separable(scheme, dim, dtype, device)
    return _multiscale(scheme, dim, dtype, device)


def _multiscale(scheme: MultiScale, dim: int, dtype: torch.dtype, device: torch.device) -> Constants:
    fitted, levels = multiscale_weights(scheme, dim), len(scheme.hops)
    every = [stencil_weights(dim, hops, weights) for hops, weights in zip(scheme.hops, fitted.weights, strict=True)]
    stencil = _stencil(*_widened(every), dtype, device)
    law, cells = [], []
    for radius, amplitude in zip(fitted.radius, fitted.amplitude, strict=True):
        steep = 1 / (radius**2 * (1 - FADE_START**2)) if radius > 0 else 0.0
        law.append(_double([radius**2, steep, fitted.rate, *amplitude.tolist()], device))
        side = 1 / radius if radius > 0 else 0.0
        cells.append(_double([side] * (min(dim, CELL_DIMENSIONS) - 1) + [side * FINER], device))
    sides = tuple(mean_pairs_cell(dim, radius) for radius in fitted.radius)
    own = [fitted.self_target(level) for level in range(levels)]
    return Constants(
        stencils=(stencil,), together=None, radius=fitted.radius, law=tuple(law), cells=tuple(cells),
        sides=_double(sides, device),
        **_grids(dim, scheme.spacing, max(scheme.hops), levels, scheme.lattices, sides, fitted.radius, device),
        tables=_double(fitted.simplex_tables(dim), device), own=_double(own, device),
        factor=_double([1 / scheme.lattices], device),
    )  # fmt: skip


def _separable(scheme: Separable, dim: int, dtype: torch.dtype, device: torch.device) -> Constants:
    spacing, weights, scale = separable_weights(scheme, dim)
    hop = np.arange(1 - len(weights), len(weights))
    bits = min(len(hop), MOST_OFFSETS)
    steps = [*np.eye(dim, dtype=np.int64), np.ones(dim, np.int64)]
    stencils = [_stencil(hop[:, None] * step, weights[None, abs(hop)], dtype, device, bits) for step in steps]
    return Constants(
        stencils=tuple(stencils), together=_together(stencils), radius=(0.0,), law=(), cells=(),
        sides=_double([0.0], device),
        **_grids(dim, spacing, len(weights) - 1, 1, 1, (0.0,), (0.0,), device),
        tables=_double(np.zeros((1, dim + 1)), device), own=_double([0.0], device), factor=_double([scale], device),
    )  # fmt: skip


def _grids(dim: int, spacing: float, hops: int, levels: int, lattices: int, sides, radii, device: torch.device) -> dict:
    """The grids that keys are made of, and the maps of the lattice."""
    matrix, coarsest = kuhn_matrix(dim) / spacing, 2 ** (levels - 1)
    unit = torch.ones(dim, dtype=torch.float64)
    rows = list(itertools.product((-1, 0, 1), repeat=min(dim, CELL_DIMENSIONS) - 1))
    free = hops + MARGIN + 1
    scale, spare = [unit], [float(free)]
    if levels > 1:
        scale.append(unit / sides[1])
        spare.append(MARGIN)
    for radius in radii[1:]:
        grid = unit / radius
        grid[min(dim, CELL_DIMENSIONS) - 1] *= FINER
        grid[CELL_DIMENSIONS:] = 0
        scale.append(grid)
        spare.append(FINER + MARGIN)
    step = [float(coarsest)] + [1.0] * (len(scale) - 1)
    return {
        "levels": levels,
        "lattices": lattices,
        "matrix": matrix.to(device),
        "origin": tuple((origin(dim, number) * coarsest).to(device) for number in range(lattices)),
        "scale": _double([0.5**level for level in range(levels)], device),
        "rows": torch.tensor(rows, dtype=torch.int64).reshape(len(rows), -1).to(device),
        "free": free,
        "words": (Words(), Words(), Words()),
        "grids": Grids(torch.stack(scale).to(device), _double(spare, device), _double(step, device)),
    }


def _double(values, device: torch.device) -> Tensor:
    return torch.as_tensor(np.asarray(values, np.float64)).to(device)


def _widened(stencils: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The offsets of the widest of several stencils, and the weights that each has there, 0 where it does not reach."""
    offsets = max((offsets for offsets, _ in stencils), key=len)
    named = [dict(zip(map(tuple, offsets.tolist()), weights.tolist(), strict=True)) for offsets, weights in stencils]
    return offsets, np.array([[weight.get(tuple(offset), 0.0) for offset in offsets.tolist()] for weight in named])


def _stencil(offsets: np.ndarray, weights: np.ndarray, dtype: torch.dtype, device: torch.device, bits: int = 0) -> Stencil:
    """Groups offsets into rows; ``weights`` are those of each level, and a row is to have that many ``bits`` at least."""
    order = np.lexsort(offsets.T[::-1])
    rows: list[tuple[list[int], list[int]]] = []
    after: list[int] = []
    for number, offset in zip(order.tolist(), offsets[order].tolist(), strict=True):
        if rows and offset == after and len(rows[-1][1]) < MOST_OFFSETS:
            rows[-1][1].append(number)
        else:
            rows.append((offset, [number]))
        after = [*offset[:-1], offset[-1] + 1]
    rows.sort(key=lambda row: len(row[1]))
    length = np.array([len(numbers) for _, numbers in rows])
    longest = int(length.max())
    padded = np.zeros((len(weights), len(rows), longest))
    for row, (_, numbers) in enumerate(rows):
        padded[:, row, : len(numbers)] = weights[:, numbers]
    upto = np.searchsorted(length, np.arange(longest + 1), side="right")
    offsets_in_rows = Offsets(
        first=torch.tensor([first for first, _ in rows], dtype=torch.int64, device=device).reshape(len(rows), -1),
        length=torch.from_numpy(length.astype(np.int32)).to(device),
        longest=longest,
        bits=max(longest, bits),
    )
    weight = torch.from_numpy(padded).flatten(0, 1).to(dtype).to(device)
    return Stencil(offsets_in_rows, torch.from_numpy(upto.astype(np.int32)).to(device), weight)


def _together(stencils: list[Stencil]) -> Offsets:
    """The rows of several stencils."""
    every = [stencil.offsets for stencil in stencils]
    first, length = (torch.cat([getattr(offsets, name) for offsets in every]) for name in ("first", "length"))
    return Offsets(first, length, max(offsets.longest for offsets in every), every[0].bits)
