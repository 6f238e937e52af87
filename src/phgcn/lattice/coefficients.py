r"""The fitted weights of a scheme: read from ``coefficients.json``, or fitted on demand and remembered."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from .scheme import MultiScale, Separable
from .stencil import orbits, stencil

FILE = Path(__file__).with_name("coefficients.json")

FADE_START = 0.8
"""The near field fades out from this share of its radius to the radius."""


@dataclass(frozen=True)
class MultiScaleWeights:
    r"""What a multi-scale scheme needs to know in one dimension.

    Args:
        weights: The stencil weight of each orbit, per level.
        radius: The near field's radius :math:`\rho_\kappa`, per level.
        amplitude: The near field's :math:`A_{\kappa j}`, per level; empty for level 0, which has none.
        rate: The near field's :math:`g`.
    """

    weights: tuple[np.ndarray, ...]
    radius: tuple[float, ...]
    amplitude: tuple[np.ndarray, ...]
    rate: float

    def self_target(self, level: int) -> float:
        """Returns the weight that the lattice from a level on must give a point of itself, the near field taken off."""
        return 1.0 if level == 0 else float(self.amplitude[level].sum())

    def simplex_tables(self, dim: int) -> np.ndarray:
        """The stencil weights between the vertices of one simplex, by how many steps apart, per level."""
        tables = np.zeros((len(self.weights), dim + 1))
        for level, weights in enumerate(self.weights):
            number = {key: i for i, key in enumerate(orbits(dim, _hops(dim, len(weights))))}
            for steps in range(dim + 1):
                few = min(steps, dim + 1 - steps)
                key = (0,) * (dim + 1 - few) + (1,) * few
                tables[level, steps] = weights[number[key]] if key in number else 0.0
        return tables


def near_radius(spacing: float, hops: tuple[int, ...], level: int) -> float:
    r"""The radius :math:`\rho_\kappa` beyond which levels from :math:`\kappa` on are good enough alone: as far as the next
    finer one, which the near field replaces, reaches."""
    return (hops[level - 1] + 1.5) * spacing * 2 ** (level - 1) if level > 0 else 0.0


@lru_cache
def _hops(dim: int, count: int) -> int:
    """How many hops a stencil with this many orbits spans."""
    hops = 0
    while len(orbits(dim, hops)) < count:
        hops += 1
    return hops


@lru_cache
def _file() -> dict[str, list[dict]]:
    return json.loads(FILE.read_text())


@lru_cache
def multiscale_weights(scheme: MultiScale, dim: int) -> MultiScaleWeights:
    """The weights of a multi-scale scheme in a dimension."""
    levels = len(scheme.hops)
    radius = tuple(near_radius(scheme.spacing, scheme.hops, level) for level in range(levels))
    if scheme.weights is not None:
        for level, (weights, hops) in enumerate(zip(scheme.weights, scheme.hops, strict=True)):
            if len(weights) != len(orbits(dim, hops)):
                raise ValueError(
                    f"weights[{level}] has {len(weights)} entries; allowed: {len(orbits(dim, hops))}, one per orbit of "
                    f"{hops} hops in {dim} dimensions"
                )
        return MultiScaleWeights(tuple(np.array(w) for w in scheme.weights), radius, (np.empty(0),) * levels, 1.0)
    fit = _multiscale_fit(dim, scheme.spacing, scheme.hops)
    amplitude = (np.empty(0), *(np.array(a) for a in fit["near"]["amplitude"]))
    return MultiScaleWeights(tuple(np.array(w) for w in fit["weights"]), radius, amplitude, fit["near"]["rate"])


@lru_cache
def _multiscale_fit(dim: int, spacing: float, hops: tuple[int, ...]) -> dict:
    for fit in _file()["multiscale"]:
        if (fit["dim"], fit["spacing"], tuple(fit["hops"])) == (dim, spacing, hops):
            return fit
    from .fit import fit_multiscale

    return fit_multiscale(dim, spacing, hops)


@lru_cache
def separable_weights(scheme: Separable, dim: int) -> tuple[float, np.ndarray, float]:
    """The spacing, the weights by hop, and the scale of a separable scheme in a dimension."""
    hops = scheme.width // 2
    fits = [fit for fit in _file()["separable"] if fit["dim"] == min(dim, 8)]
    spacing = scheme.spacing or fits[0]["spacing"]
    if scheme.weights is not None:
        return spacing, np.array(scheme.weights), 1.0
    for fit in fits:
        if (fit["spacing"], len(fit["weights"]) - 1) == (spacing, hops):
            return spacing, np.array(fit["weights"]), fit["scale"]
    from .fit import fit_separable

    fit = fit_separable(dim, spacing, hops)
    return spacing, np.array(fit["weights"]), fit["scale"]


@lru_cache
def warn_if_high(dim: int) -> None:
    """Warns, once per dimension, where a lattice has nothing to share."""
    if dim > 8:
        warnings.warn(
            f"a lattice in {dim} dimensions: with spacings near 1/decay almost every vertex is touched by one point alone "
            "and shares nothing, so the filter is neither fast nor accurate. Embed into at most 8 dimensions, best 2 to 5, "
            'or use method="exact".',
            stacklevel=4,
        )


def stencil_weights(dim: int, hops: int, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The offsets of a stencil and the weight of each."""
    return stencil(dim, hops).offsets, weights[stencil(dim, hops).orbit]
