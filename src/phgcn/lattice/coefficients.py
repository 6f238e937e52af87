r"""Gets the fitted weights of a scheme: from ``coefficients.json``, or fitted on demand and cached."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from .scheme import MultiScale, Separable
from .stencil import orbits, stencil

FILE = Path(__file__).with_name("coefficients.json")

FADE_START = 0.8
"""The near field fades out from this share of its radius to the radius."""

Floats = NDArray[np.float64]


class NearFieldFit(TypedDict):
    """The near field in ``coefficients.json``: decay rate, and amplitudes per level, level 0 left out."""

    rate: float
    amplitude: list[list[float]]


class FittedFor(TypedDict):
    """What a fit of ``coefficients.json`` is for: see :class:`phgcn.lattice.scheme.MultiScale`."""

    dim: int
    spacing: float
    hops: list[int]
    lattices: int


class MultiScaleFit(FittedFor):
    """A multi-scale scheme in ``coefficients.json``: stencil weights per level and orbit."""

    weights: list[list[float]]
    near: NearFieldFit


class OctaveFit(TypedDict):
    """Clouds of one octave of widths in ``coefficients.json``: a constant that every pair gets, weights per level and orbit."""

    constant: float
    weights: list[list[float]]


class NarrowFit(FittedFor):
    """The narrow clouds of a multi-scale scheme in ``coefficients.json``, octave by octave."""

    octaves: list[OctaveFit]


class SeparableFit(TypedDict):
    """A separable scheme in ``coefficients.json``: weights by hop, scale of the plain sum, and the error of the fit."""

    dim: int
    spacing: float
    weights: list[float]
    scale: float
    error: float


class Fits(TypedDict):
    """All of ``coefficients.json``."""

    multiscale: list[MultiScaleFit]
    narrow: list[NarrowFit]
    separable: list[SeparableFit]


@dataclass(frozen=True)
class MultiScaleWeights:
    r"""The weights of a multi-scale scheme in one dimension.

    Args:
        weights: Stencil weights of each level by orbit, float64 of shape :math:`(\text{orbits},)`.
        radius: Radius :math:`\rho_\kappa` of the near field, per level.
        amplitude: Amplitudes :math:`A_{\kappa j}` of the near field, per level; empty for level 0, which has none.
        rate: Decay rate :math:`g` of the near field.
        constant: What every pair gets besides, in narrow clouds.
    """

    weights: tuple[Floats, ...]
    radius: tuple[float, ...]
    amplitude: tuple[Floats, ...]
    rate: float
    constant: float = 0.0

    def self_target(self, level: int) -> float:
        r"""Returns the weight of a point on itself that the levels from :math:`\kappa` on must add up to.

        It is 1 minus what the near field adds at distance 0, and what every pair gets.
        """
        return 1.0 - self.constant if level == 0 else float(self.amplitude[level].sum())

    def simplex_tables(self, dim: int) -> Floats:
        r"""Tabulates the stencil weight between two vertices of one simplex, for the self term.

        Returns:
            ``table[level, steps]`` for vertices ``steps`` apart along the simplex, :math:`(\text{levels}, D + 1)`.
        """
        tables = np.zeros((len(self.weights), dim + 1))
        for level, weights in enumerate(self.weights):
            orbit_number = {key: i for i, key in enumerate(orbits(dim, _hops(dim, len(weights))))}
            for steps in range(dim + 1):
                fewer = min(steps, dim + 1 - steps)  # both ways round lead to the same orbit
                key = (0,) * (dim + 1 - fewer) + (1,) * fewer
                tables[level, steps] = weights[orbit_number[key]] if key in orbit_number else 0.0
        return tables


class NarrowWeights(NamedTuple):
    """The weights of narrow clouds of one octave: what every pair gets, and stencil weights of each level by orbit."""

    constant: float
    weights: tuple[Floats, ...]


class SeparableWeights(NamedTuple):
    """The weights of a separable scheme in one dimension.

    Args:
        spacing: The shortest lattice vector, in units of 1/λ.
        weights: The weight of the centre and of each further hop, float64 of shape (hops + 1,).
        scale: The factor of a sum that is not normalised.
    """

    spacing: float
    weights: Floats
    scale: float


def near_radius(spacing: float, hops: tuple[int, ...], level: int) -> float:
    r"""Computes the radius :math:`\rho_\kappa` of the near field that replaces the levels finer than :math:`\kappa`.

    It is as far as the stencil of the next finer level reaches: beyond, the levels from :math:`\kappa` on are accurate alone.
    """
    return (hops[level - 1] + 1.5) * spacing * 2 ** (level - 1) if level > 0 else 0.0


@lru_cache
def _hops(dim: int, orbit_count: int) -> int:
    """Returns the hops of the stencil with this many orbits."""
    hops = 0
    while len(orbits(dim, hops)) < orbit_count:
        hops += 1
    return hops


@lru_cache
def _read_fits() -> Fits:
    fits: Fits = json.loads(FILE.read_text())
    return fits


Fit = TypeVar("Fit", MultiScaleFit, NarrowFit)


def _find_fit(fits: list[Fit], dim: int, spacing: float, hops: tuple[int, ...], lattices: int) -> Fit | None:
    """Finds the fit of a scheme; one for another number of lattices serves if there is no other."""
    same = [fit for fit in fits if (fit["dim"], fit["spacing"], tuple(fit["hops"])) == (dim, spacing, hops)]
    return min(same, key=lambda fit: abs(fit["lattices"] - lattices), default=None)


@lru_cache
def multiscale_weights(scheme: MultiScale, dim: int) -> MultiScaleWeights:
    """Returns the weights of a multi-scale scheme in a dimension."""
    levels = len(scheme.hops)
    radius = tuple(near_radius(scheme.spacing, scheme.hops, level) for level in range(levels))
    if scheme.weights is not None:
        for level, (weights, hops) in enumerate(zip(scheme.weights, scheme.hops, strict=True)):
            if len(weights) != len(orbits(dim, hops)):
                raise ValueError(
                    f"weights[{level}] has {len(weights)} entries; allowed: {len(orbits(dim, hops))}, one per orbit of "
                    f"{hops} hops in {dim} dimensions"
                )
        own = tuple(np.array(w) for w in scheme.weights)
        return MultiScaleWeights(own, radius, (np.empty(0),) * levels, 1.0, getattr(scheme, "constant", 0.0))
    fit = _multiscale_fit(dim, scheme.spacing, scheme.hops, scheme.lattices)
    amplitude = (np.empty(0), *(np.array(a) for a in fit["near"]["amplitude"]))
    return MultiScaleWeights(tuple(np.array(w) for w in fit["weights"]), radius, amplitude, fit["near"]["rate"])


@lru_cache
def _multiscale_fit(dim: int, spacing: float, hops: tuple[int, ...], lattices: int) -> MultiScaleFit:
    """Looks the fit up in the file; fits now if it is not there, which takes seconds."""
    on_file = _find_fit(_read_fits()["multiscale"], dim, spacing, hops, lattices)
    if on_file is not None:
        return on_file
    from .fit import fit_multiscale
    from .pairs import Levels

    return fit_multiscale(dim, Levels(spacing, hops, lattices))


def narrow_hops(dim: int, hops: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the hops of narrow clouds, whose coarser levels have few vertices: all but the finest reach one hop further, and
    in up to four dimensions at least four.

    In seven and eight dimensions a stencil of two hops has thousands of offsets; only the coarsest level has it.
    """
    first = 1 if dim <= 6 else len(hops) - 1
    least = 4 if dim <= 4 else 0
    return tuple(max(h + 1, least) if level >= first else h for level, h in enumerate(hops))


@lru_cache
def narrow_weights(scheme: MultiScale, dim: int) -> tuple[NarrowWeights, ...]:
    """Returns the weights of narrow clouds, octave by octave, fitted now if they are not in the file, which takes seconds."""
    octaves = _narrow_fit(dim, scheme.spacing, scheme.hops, scheme.lattices)["octaves"]
    return tuple(NarrowWeights(fit["constant"], tuple(np.array(w) for w in fit["weights"])) for fit in octaves)


@lru_cache
def _narrow_fit(dim: int, spacing: float, hops: tuple[int, ...], lattices: int) -> NarrowFit:
    on_file = _find_fit(_read_fits()["narrow"], dim, spacing, hops, lattices)
    if on_file is not None:
        return on_file
    from .fit import fit_narrow
    from .pairs import Levels

    return fit_narrow(dim, Levels(spacing, hops, lattices))


@lru_cache
def separable_weights(scheme: Separable, dim: int) -> SeparableWeights:
    """Returns the weights of a separable scheme in a dimension; above eight dimensions it has those of eight."""
    hops = scheme.width // 2
    fits = [fit for fit in _read_fits()["separable"] if fit["dim"] == min(dim, 8)]
    spacing = scheme.spacing or fits[0]["spacing"]
    if scheme.weights is not None:
        return SeparableWeights(spacing, np.array(scheme.weights), 1.0)
    for fit in fits:
        if (fit["spacing"], len(fit["weights"]) - 1) == (spacing, hops):
            return SeparableWeights(spacing, np.array(fit["weights"]), fit["scale"])
    from .fit import fit_separable

    fit = fit_separable(dim, spacing, hops)
    return SeparableWeights(spacing, np.array(fit["weights"]), fit["scale"])


@lru_cache
def warn_if_high(dim: int) -> None:
    """Warns, once per dimension, above eight dimensions, where points share almost no lattice vertices."""
    if dim > 8:
        warnings.warn(
            f"a lattice in {dim} dimensions: with spacings near 1/decay almost every vertex is touched by one point alone "
            "and shares nothing, so the filter is neither fast nor accurate. Embed into at most 8 dimensions, best 2 to 5, "
            'or use method="exact".',
            stacklevel=4,
        )


def stencil_weights(dim: int, hops: int, weights: Floats) -> tuple[NDArray[np.int64], Floats]:
    r"""Returns the offsets of a stencil, :math:`(S, D)`, and the weight of each, :math:`(S,)`, from weights by orbit."""
    return stencil(dim, hops).offsets, weights[stencil(dim, hops).orbit]
