r"""Narrow clouds: levels that follow the width of a cloud which those of its scheme do not resolve.

Levels far coarser than a cloud add the noise of their simplices to a kernel that is almost flat, and none is as fine as its
cusp.  So a cloud that is :math:`2^m` times narrower than :func:`octave_width` is filtered on levels :math:`2^m` times finer,
and one constant that all pairs get replaces what is coarser:

.. math::
    e^{-r} \approx c_m + \sum_k \text{level}_k(r)

Magnified by :math:`2^m` it is the same cloud on the same levels, with the kernel :math:`e^{-r/2^m}`: the error does not depend
on the unit of length.  Constant and weights are fitted for each octave :math:`m`.  Between octaves they are blended in steps,
so that no step changes the output much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .coefficients import Floats, NarrowWeights, multiscale_weights, narrow_hops, narrow_weights
from .limits import position_limit
from .scheme import MultiScale

STEPS = 12
"""Steps from one octave to the next."""

FIRST_STEPS = 16
"""Steps from the levels of the scheme to the first octave: they begin early, where the scheme's own levels err most."""

MAX_OCTAVES = 20
"""Octaves that a cloud is narrower, at most; a narrower one has the levels of this."""


@dataclass(frozen=True)
class NarrowScheme(MultiScale):
    """The scheme of narrow clouds of one step.

    Args:
        constant (float): What every pair gets besides.
        origin (int): The level on which the lattice has the origin of :func:`phgcn.lattice.geometry.origin`: vertices of one
            spacing are the same in all steps.
    """

    constant: float = 0.0
    origin: int = 0

    @property
    def origin_level(self) -> int:
        return self.origin


def octave_width(dim: int) -> float:
    """Returns the diagonal of the bounding box, in units of 1/λ, of clouds of octave 0: that of some thousand points of a
    Gaussian of spread 0.8."""
    return 6 * math.sqrt(dim)


def widest_narrow(dim: int) -> float:
    """Returns the diagonal of the bounding box, in units of 1/λ, below which a cloud is narrow."""
    return octave_width(dim) * 2 ** (FIRST_STEPS / STEPS - 1)


def may_be_narrow(scheme: MultiScale, dim: int) -> bool:
    """Tells whether clouds have levels that follow their width: not in more than eight dimensions, nor where the finest level
    or the weights are given."""
    return dim <= 8 and scheme.near_field is None and scheme.weights is None


def narrow_step(scheme: MultiScale, low: Floats, high: Floats) -> int:
    """Computes the step of a cloud from its lowest and highest coordinates, (D,); 0 where it is not narrow.

    Coordinates on the finest level must fit a lattice key, so a cloud far from the origin is resolved less.
    """
    dim = len(low)
    extent, farthest = float(np.linalg.norm(high - low)), float(max(np.abs(low).max(), np.abs(high).max()))
    if not 0 < extent < widest_narrow(dim) or not may_be_narrow(scheme, dim):
        return 0
    fitting = math.floor(math.log2(position_limit(dim, scheme) / farthest))
    steps = math.ceil(STEPS * math.log2(widest_narrow(dim) / extent))
    return max(0, min(steps, STEPS * fitting, STEPS * MAX_OCTAVES))


def used_levels(scheme: MultiScale, dim: int, kappa: int) -> tuple[MultiScale, int]:
    r"""Returns the scheme that a cloud is filtered with, and its finest level; :math:`\kappa < 0` is minus the step of a narrow
    cloud."""
    return (scheme, kappa) if kappa >= 0 else (narrow_scheme(scheme, dim, -kappa), 0)


@lru_cache(maxsize=1024)
def narrow_scheme(scheme: MultiScale, dim: int, step: int) -> NarrowScheme:
    """Returns the scheme of a step: a blend of the octave that it lies in with the next wider one."""
    octaves = step / FIRST_STEPS if step <= FIRST_STEPS else 1 + (step - FIRST_STEPS) / STEPS
    octave = math.ceil(octaves)
    share = octaves - (octave - 1)
    wide, narrow = _octave(scheme, dim, octave - 1), _octave(scheme, dim, octave)
    narrow_reach = narrow_hops(dim, scheme.hops)
    wide_reach = scheme.hops if octave == 1 else narrow_reach
    none = np.zeros(0)  # the finest level is the narrow weights' alone, the coarsest the wide ones'
    weights = [_blend(w, 1 - share, n, share) for w, n in zip((none, *wide.weights), (*narrow.weights, none), strict=True)]
    return NarrowScheme(
        spacing=scheme.spacing * 0.5**octave,
        hops=tuple(max(pair) for pair in zip((0, *wide_reach), (*narrow_reach, 0), strict=True)),
        lattices=scheme.lattices,
        near_field=0,
        pairs=scheme.pairs,
        weights=tuple(tuple(level.tolist()) for level in weights),
        constant=(1 - share) * wide.constant + share * narrow.constant,
        origin=len(scheme.hops) - 1 + octave,
    )


def _octave(scheme: MultiScale, dim: int, octave: int) -> NarrowWeights:
    r"""Returns constant and stencil weights of an octave.  Beyond the fitted ones :math:`e^{-r}` is :math:`1 - r`: half the
    width, half the weights."""
    if octave == 0:
        return NarrowWeights(0.0, multiscale_weights(scheme, dim).weights)
    fitted = narrow_weights(scheme, dim)
    last = fitted[min(octave, len(fitted)) - 1]
    factor = 0.5 ** max(0, octave - len(fitted))
    return NarrowWeights(1 - factor * (1 - last.constant), tuple(factor * w for w in last.weights))


def _blend(first: Floats, first_share: float, second: Floats, second_share: float) -> Floats:
    """Adds weights by orbit; those of the shorter stencil come first in the longer one."""
    blended = np.zeros(max(len(first), len(second)))
    blended[: len(first)] += first_share * first
    blended[: len(second)] += second_share * second
    return blended
