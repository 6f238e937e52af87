r"""What a scheme is made of, as tensors on the device: computed once, cached for the next call.

Small tables that one kernel reads together are packed into one tensor of float64, described where they are made.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ..coefficients import FADE_START, MultiScaleWeights, multiscale_weights, separable_weights, stencil_weights
from ..geometry import kuhn_matrix, origin
from ..levels import CELL_DIMENSIONS, mean_pairs_cell
from ..scheme import MultiScale, Scheme, Separable
from .stencils import MAX_ROW_LENGTH, Stencil, StencilRows, join_rows, make_stencil, widen

MARGIN = 2
"""Free cells around all points and their stencils, so that no key borrows from another coordinate's bits."""

CELL_FINER = 8
"""How many times narrower cells of the near field are along their last coordinate."""


@dataclass(frozen=True)
class Constants:
    r"""A scheme in one dimension, type and device.

    Args:
        levels (int): How many nested levels it has, :math:`K`.
        lattices (int): How many shifted lattices it averages.
        lattice_map (tuple): Per lattice, float64: the factor of its sums (1); the matrix from positions to Kuhn coordinates of
            level 0 (:math:`D^2`); the shift (:math:`D`); for each level its scale from Kuhn coordinates of level 0, the
            weight that a point must get of itself, and the stencil weights between the corners of one simplex
            (:math:`D+3`).
        stencils (tuple): One stencil for all levels, or the stencil of each pass of the paper's filter.
        finest (tuple): Per level, its own stencil, for clouds whose finest level it is: where stencils of coarser levels reach
            further, most vertices need not.
        pass_rows (StencilRows, optional): The rows of all passes.
        near (tuple): Per level, float64: near-field constants ``radius²``, ``1 / (radius² - fade_start²)``, decay rate
            :math:`g`, cells per unit along each coordinate of the cells, amplitudes :math:`A_{\kappa j}`.
        cell_rows (torch.Tensor): Steps to the rows of cells around a cell, along all its coordinates but the last, int64.
        cell_dimensions (int): How many coordinates cells have.
        pair_cells (torch.Tensor): Per level, the side of the cells that count pairs, float64.
        grids (torch.Tensor): The grids that keys are made of, :math:`(Q, D+2)`, float64: cells per unit along each coordinate,
            0 for those it does not have; free cells needed below and above all points; what the lowest coordinate must be a
            multiple of.  First the lattice, in Kuhn coordinates of level 0; with several levels, the cells of level 1
            that count pairs, the finest of such; then, for each level from 1 on, the cells of the near field.
        free (int): Free places that keys leave before the first vertex of every level, and behind the last.
        constant (float): What every pair gets besides, in narrow clouds. (default: :obj:`0.0`)
    """

    levels: int
    lattices: int
    lattice_map: tuple[Tensor, ...]
    stencils: tuple[Stencil, ...]
    finest: tuple[Stencil, ...]
    pass_rows: StencilRows | None
    near: tuple[Tensor, ...]
    cell_rows: Tensor
    cell_dimensions: int
    pair_cells: Tensor
    grids: Tensor
    free: int
    constant: float = 0.0


@lru_cache(maxsize=64)
def constants(scheme: Scheme, dim: int, dtype: torch.dtype, device: torch.device) -> Constants:
    """Returns the constants of a scheme."""
    if isinstance(scheme, Separable):
        return _separable(scheme, dim, dtype, device)
    assert isinstance(scheme, MultiScale)  # a ladder runs on the CPU
    return _multiscale(scheme, dim, dtype, device)


def _multiscale(scheme: MultiScale, dim: int, dtype: torch.dtype, device: torch.device) -> Constants:
    fitted, levels = multiscale_weights(scheme, dim), len(scheme.hops)
    stencils = [stencil_weights(dim, hops, weights) for hops, weights in zip(scheme.hops, fitted.weights, strict=True)]
    pair_cells = [mean_pairs_cell(dim, radius) for radius in fitted.radius]
    self_target = [fitted.self_target(level) for level in range(levels)]
    per_level = np.column_stack([0.5 ** np.arange(levels), self_target, fitted.simplex_tables(dim)])
    free, maps = max(scheme.hops) + MARGIN + 1, range(scheme.lattices)
    widest = make_stencil(*widen(stencils), dtype, device)
    own = [
        make_stencil(*widen(stencils, k), dtype, device) if h < max(scheme.hops) else widest for k, h in enumerate(scheme.hops)
    ]
    return Constants(
        levels, scheme.lattices,
        lattice_map=tuple(_lattice_map(dim, scheme, n, per_level, device) for n in maps),
        stencils=(widest,), finest=tuple(own), pass_rows=None,
        near=tuple(_near(fitted, level, dim, device) for level in range(levels)),
        cell_rows=_cell_rows(dim, device), cell_dimensions=min(dim, CELL_DIMENSIONS),
        pair_cells=_float64(pair_cells, device), grids=pack_grids(dim, levels, free, pair_cells, fitted.radius, device),
        free=free, constant=fitted.constant,
    )  # fmt: skip


def _separable(scheme: Separable, dim: int, dtype: torch.dtype, device: torch.device) -> Constants:
    spacing, weights, scale = separable_weights(scheme, dim)
    hop = np.arange(1 - len(weights), len(weights))
    directions = [*np.eye(dim, dtype=np.int64), np.ones(dim, np.int64)]
    bits = min(len(hop), MAX_ROW_LENGTH)
    stencils = [make_stencil(hop[:, None] * step, weights[None, abs(hop)], dtype, device, bits) for step in directions]
    per_level = np.array([[1.0, 0.0, *[0.0] * (dim + 1)]])
    free = len(weights) + MARGIN
    return Constants(
        levels=1, lattices=1,
        lattice_map=(_pack_map(scale, kuhn_matrix(dim) / spacing, origin(dim), per_level, device),),
        stencils=tuple(stencils), finest=(), pass_rows=join_rows(stencils), near=(),
        cell_rows=_cell_rows(dim, device), cell_dimensions=min(dim, CELL_DIMENSIONS), pair_cells=_float64([0.0], device),
        grids=pack_grids(dim, 1, free, (0.0,), (0.0,), device), free=free,
    )  # fmt: skip


def _lattice_map(dim: int, scheme: MultiScale, lattice: int, per_level: np.ndarray, device: torch.device) -> Tensor:
    """Packs what locates points in one of the averaged lattices."""
    # Whole steps of the coarsest level do not matter, and the layout of keys leaves room for no more than one.
    shift = (origin(dim, lattice) * 2**scheme.origin_level) % 2 ** (len(per_level) - 1)
    return _pack_map(1 / scheme.lattices, kuhn_matrix(dim) / scheme.spacing, shift, per_level, device)


def _pack_map(factor: float, matrix: Tensor, shift: Tensor, per_level: np.ndarray, device: torch.device) -> Tensor:
    """Packs what locates points in one lattice; see :class:`Constants`."""
    parts = [np.array([factor]), matrix.numpy().ravel(), shift.numpy(), per_level.ravel()]
    return _float64(np.concatenate(parts), device)


def _near(fitted: MultiScaleWeights, level: int, dim: int, device: torch.device) -> Tensor:
    """Packs what the near field of a level reads; see :class:`Constants`."""
    radius = fitted.radius[level]
    fade, per_unit = (1 / (radius**2 * (1 - FADE_START**2)), 1 / radius) if radius > 0 else (0.0, 0.0)
    cells = [per_unit] * (min(dim, CELL_DIMENSIONS) - 1) + [per_unit * CELL_FINER]
    return _float64([radius**2, fade, fitted.rate, *cells, *fitted.amplitude[level].tolist()], device)


def _cell_rows(dim: int, device: torch.device) -> Tensor:
    rows = list(itertools.product((-1, 0, 1), repeat=min(dim, CELL_DIMENSIONS) - 1))
    return torch.tensor(rows, dtype=torch.int64).reshape(len(rows), -1).to(device)


def pack_grids(dim: int, levels: int, free: int, pair_cells, radii, device: torch.device) -> Tensor:
    """Lists the grids that keys are made of; see :class:`Constants`."""
    unit = np.ones(dim)
    grids = [[*unit, free, 2.0 ** (levels - 1)]]
    if levels > 1:
        grids.append([*(unit / pair_cells[1]), MARGIN, 1.0])
    for radius in radii[1:]:
        per_unit = unit / radius
        per_unit[min(dim, CELL_DIMENSIONS) - 1] *= CELL_FINER
        per_unit[CELL_DIMENSIONS:] = 0
        grids.append([*per_unit, CELL_FINER + MARGIN, 1.0])
    return _float64(grids, device)


def _float64(values, device: torch.device) -> Tensor:
    return torch.as_tensor(np.asarray(values, np.float64)).to(device)
