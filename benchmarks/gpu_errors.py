r"""How exact the exact gradients are, for ``benchmarks/gpu_layers.py``: against double precision, on the same GPU."""

from __future__ import annotations

import torch
from gpu_timing import normal
from torch import Tensor

import phgcn

COUNT, ROWS, SLAB = 20_000, 500, 1000
"""Points, those whose gradients are compared, and how many are looked at together."""


def distances(points: Tensor, others: Tensor) -> Tensor:
    return torch.cdist(points, others, compute_mode="donot_use_mm_for_euclid_dist")


def wanted(points: Tensor, values: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    r"""The gradients of the first positions and values: with :math:`\bar z_i = \bar y_i / n_i` and
    :math:`\bar n_i = -\langle \bar z_i, y_i \rangle`, a weight has the gradient
    :math:`\langle \bar z_i, f_j \rangle + \bar n_i`."""
    norm, out = torch.empty_like(points[:, 0]), torch.empty_like(values)
    for begin in range(0, len(points), SLAB):
        weight = torch.exp(-distances(points[begin : begin + SLAB], points))
        norm[begin : begin + SLAB] = weight.sum(dim=1)
        out[begin : begin + SLAB] = weight @ values / norm[begin : begin + SLAB, None]
    sums = grad / norm[:, None]
    norms = -(sums * out).sum(dim=1)
    r = distances(points[:ROWS], points)
    weight = torch.exp(-r)
    product = sums[:ROWS] @ values.T + norms[:ROWS, None] + values[:ROWS] @ sums.T + norms
    slope = weight * product * torch.where(r > 0, 1 / r, 0.0)
    return -(slope.unsqueeze(2) * (points[:ROWS, None] - points)).sum(dim=1), weight @ sums


def exact_gradient_errors(dim: int, channels: int) -> dict[str, float]:
    """The norm of the error of 500 rows of each gradient over the norm of what is wanted."""
    given = [normal(COUNT, width, seed=width).requires_grad_() for width in (dim, channels)]
    grad = normal(COUNT, channels, seed=channels + 1)
    out = phgcn.global_attention(*given, decay=1.0, method="exact", backend="triton")
    got = torch.autograd.grad(out, given, grad)
    want = wanted(*(tensor.detach().double() for tensor in (*given, grad)))
    errors = [float((g[:ROWS].double() - w).norm() / w.norm()) for g, w in zip(got, want, strict=True)]
    return dict(zip(("positions", "values"), errors, strict=True))
