r"""Kernel matrices of low rank in plain torch: random features, and Nyström's landmarks."""

from __future__ import annotations

import torch
from torch import Tensor

from .sums import ENTRIES, add_ones, divide, generator, in_part

JITTER = 1e-6


def random_features(points: Tensor, values: Tensor, features: int) -> Tensor:
    """Sums by random Fourier features (Rahimi and Recht, 2007), a cosine and a sine for each of the
    frequencies: a Gaussian vector over a Gaussian number, as the kernel's transform is Cauchy.
    """
    random = generator(points.device)
    gaussian = torch.randn(points.size(1) + 1, features, generator=random, device=points.device)
    frequencies = gaussian[:-1] / gaussian[-1:].abs()
    rows = add_ones(values)
    sums = torch.zeros_like(rows)
    for block in frequencies.split(max(1, ENTRIES // len(points)), dim=1):
        sums = sums + in_part(_feature_sums, points, rows, block)
    return divide(sums / features, values)


def _feature_sums(points: Tensor, rows: Tensor, frequencies: Tensor) -> Tensor:
    angle = points @ frequencies
    cosine, sine = angle.cos(), angle.sin()
    return cosine @ (cosine.T @ rows) + sine @ (sine.T @ rows)


def nystroem(points: Tensor, values: Tensor, landmarks: int) -> Tensor:
    """Sums by Nyström's approximation with random landmarks; a point's weight on itself is set to
    1: those of a sparse cloud that are no landmarks would have none.
    """
    random = generator(points.device)
    drawn = torch.randperm(len(points), generator=random, device=points.device)[:landmarks]
    centres, rows = points[drawn], add_ones(values)
    between = kernel(centres.double(), centres.double())
    jittered = between + JITTER * torch.eye(len(drawn)).to(between)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(jittered)).to(points.dtype)
    split = (part.split(ENTRIES // landmarks) for part in (points, rows))
    parts = list(zip(*split, strict=True))
    gathered = rows.new_zeros(len(drawn), rows.size(1))
    for part in parts:
        gathered = gathered + in_part(_gather, *part, centres)
    sums = torch.cat([in_part(_spread, *part, centres, inverse, gathered) for part in parts])
    return divide(sums, values)


def kernel(queries: Tensor, keys: Tensor) -> Tensor:
    """Returns the weights of keys for queries, (..., M, D) and (..., N, D) to (..., M, N)."""
    return torch.cdist(queries, keys, compute_mode="donot_use_mm_for_euclid_dist").neg().exp()


def _gather(points: Tensor, rows: Tensor, centres: Tensor) -> Tensor:
    return kernel(centres, points) @ rows


def _spread(
    points: Tensor, rows: Tensor, centres: Tensor, inverse: Tensor, gathered: Tensor
) -> Tensor:
    near = kernel(points, centres)
    projected = near @ inverse
    return projected @ gathered + (1 - (projected * near).sum(dim=1, keepdim=True)) * rows
