r"""The kernel as a mean of kernels along lines, each summed by a fast Fourier transform."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from .sums import add_ones, divide, generator, in_part

STEP = 1 / 32
"""Distance of the grid along a line: the mean over lines errs by more from some thousand lines on.
"""
MOST_CELLS = 2**15  # Cells of a grid; wide clouds have a larger step
OVERSAMPLE, PAD = 8, 16
"""The kernel along a line is tabulated with so much smaller a step, and over so many times the
period.
"""


def sliced(points: Tensor, values: Tensor, slices: int) -> Tensor:
    r"""Sums by slicing (Hertrich, 2024, `arXiv:2401.08260 <https://arxiv.org/abs/2401.08260>`_), as
    :math:`e^{-\lVert x \rVert} = \mathbb{E}_\xi f_D(|\xi^\top x|)` over directions :math:`\xi`.

    Along a direction points are splatted linearly to a grid, convolved with :math:`f_D` by a
    Fourier transform, and read back linearly.
    """
    dim, rows = points.size(1), add_ones(values)
    centred = points - points.detach().mean(dim=0)
    radius = float(centred.detach().norm(dim=1).max())
    step, cells = grid(radius)
    spectrum = torch.fft.rfft(slice_kernel(dim, step, cells)).real.to(points)
    sums = torch.zeros_like(rows)
    for direction in directions(dim, slices, points.device).to(points.dtype):
        place = (centred @ direction) / step + cells // 4
        sums = sums + in_part(_line_sums, place, rows, spectrum)
    return divide(sums / slices, values)


def grid(radius: float) -> tuple[float, int]:
    """The step and the number of cells, a power of two; points fill at most half."""
    needed = 4 * radius + 4 * STEP
    step = STEP * 2 ** max(0, math.ceil(math.log2(needed / (STEP * MOST_CELLS))))
    cells = 2 ** max(6, math.ceil(math.log2(needed / step)) + 1)
    return step, min(cells, MOST_CELLS)


def directions(dim: int, count: int, device: torch.device) -> Tensor:
    """Unit vectors (count, D): random orthogonal bases, which spread more evenly."""
    random = generator(device)
    gaussian = torch.randn(-(-count // dim), dim, dim, generator=random, device=device)
    basis, triangle = torch.linalg.qr(gaussian)
    sign = triangle.diagonal(dim1=-2, dim2=-1).sign()  # without it, qr favours some directions
    rows: Tensor = (basis * sign.unsqueeze(-2)).mT.reshape(-1, dim)[:count]
    return rows


@functools.lru_cache
def slice_kernel(dim: int, step: float, cells: int) -> Tensor:
    r"""Tabulates :math:`f_D` at distances 0, step, 2 step, ... of a circular grid, (cells,), in
    float64.

    Its Fourier transform is that of :math:`e^{-r}` in :math:`D` dimensions times the area of a
    sphere, :math:`\propto \omega^{D-1} (1 + \omega^2)^{-(D+1)/2}`."""
    count = cells * OVERSAMPLE * PAD
    gap = 2 * math.pi / (step * cells * PAD)
    frequency = gap * torch.arange(count // 2 + 1, dtype=torch.float64)
    scale = 2 * math.gamma((dim + 1) / 2) / (math.sqrt(math.pi) * math.gamma(dim / 2))
    density = scale * frequency ** (dim - 1) * (1 + frequency.square()) ** (-(dim + 1) / 2)
    fine = torch.fft.irfft(density * (gap * count / 2), n=count)[::OVERSAMPLE]
    return torch.cat([fine[: cells // 2 + 1], fine[-(cells // 2) + 1 :]])


def _line_sums(place: Tensor, rows: Tensor, spectrum: Tensor) -> Tensor:
    below = place.detach().floor().long()
    share = (place - below).unsqueeze(1)
    cells = 2 * (len(spectrum) - 1)
    grid = rows.new_zeros(cells, rows.size(1)).index_add(0, below, rows * (1 - share))
    grid = grid.index_add(0, below + 1, rows * share)
    product = torch.fft.rfft(grid, dim=0) * spectrum.unsqueeze(1)
    blurred: Tensor = torch.fft.irfft(product, n=cells, dim=0)
    return blurred[below] * (1 - share) + blurred[below + 1] * share
