r"""Near field: the short range that coarse levels miss, summed pair by pair."""

from __future__ import annotations

import torch
from torch import Tensor

from ...exact.reference import distances
from ..coefficients import FADE_START, MultiScaleWeights


def near_field(targets: Tensor, keys: Tensor, rows: Tensor, fitted: MultiScaleWeights, level: int) -> Tensor:
    r"""Sums what levels from :math:`\kappa` on miss, :math:`\sum_{r < \rho_\kappa} R_\kappa(r) f_j`.

    Shapes:
        - **targets:** :math:`(M, D)`, **keys:** :math:`(N, D)`, **rows:** :math:`(N, C)`
        - **output:** :math:`(M, C)`, float64
    """
    r = distances(targets.double(), keys.double())
    radius = fitted.radius[level]
    power = torch.exp(-fitted.rate * r.square())
    weight = torch.exp(-r)
    for j, a in enumerate(fitted.amplitude[level].tolist()):
        weight = weight - a * power ** (4**j)
    t = ((radius**2 - r.square()) / (radius**2 * (1 - FADE_START**2))).clamp(0, 1)
    return (weight * t**2 * (3 - 2 * t)) @ rows.double()
