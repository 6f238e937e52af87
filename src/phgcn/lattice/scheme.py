r"""Describes the filters that approximate the exact sum: lattices, stencils and weights.

A scheme is a small immutable value.  It is passed to the custom ops as text (:func:`encode`, :func:`decode`); its weights in
a dimension come from :mod:`phgcn.lattice.coefficients`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from functools import lru_cache

from ..kernels import KERNELS

MAX_DIMENSION = 16
"""Upper bound for a lattice: in more dimensions a cube has more corners than most clouds have points."""


@dataclass(frozen=True)
class MultiScale:
    r"""Nested lattices with direct stencils, an exact self term, and an exact near field in sparse clouds.

    .. math::
        \sum_j e^{-r_{ij}} f_j \approx \sum_{k \ge \kappa} \text{slice}_k\, \text{blur}_k\, \text{splat}_k\, f
        + \sum_{r_{ij} < \rho_\kappa} R_\kappa(r_{ij})\, f_j + (1 - a_i) f_i

    Level :math:`k` has spacing :math:`2^k` times ``spacing``, and its blur reads all touched vertices within ``hops[k]``
    hops.  Level :math:`\kappa` is the finest one used; what finer ones would add is summed pair by pair within
    :math:`\rho_\kappa`.  The last term makes a point's weight on itself exactly 1.

    Args:
        spacing (float): The shortest vector of the finest lattice, in units of :math:`1/\lambda`.
        hops (tuple of int): How far each level's stencil reaches, finest first.
        lattices (int, optional): How many lattices, each shifted to the others' holes, are averaged. (default: :obj:`1`)
        near_field (int, optional): The finest level used, :math:`\kappa`; :obj:`None` chooses it per graph and head from
            the density of its points. (default: :obj:`None`)
        pairs (int, optional): How many pairs per point the near field may sum on average. (default: :obj:`150`)
        weights (tuple, optional): The stencil weights of each level by orbit (see :func:`phgcn.lattice.stencil.orbits`);
            :obj:`None` takes fitted ones. (default: :obj:`None`)
    """

    spacing: float
    hops: tuple[int, ...]
    lattices: int = 1
    near_field: int | None = None
    pairs: int = 150
    weights: tuple[tuple[float, ...], ...] | None = None
    text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hops", tuple(int(h) for h in self.hops))
        if self.weights is not None:
            object.__setattr__(self, "weights", tuple(tuple(float(w) for w in level) for level in self.weights))
        _require(math.isfinite(self.spacing) and self.spacing > 0, "spacing", self.spacing, "a positive number")
        _require(len(self.hops) > 0 and min(self.hops) >= 0, "hops", self.hops, "one or more non-negative integers")
        _require(self.lattices in (1, 2), "lattices", self.lattices, "1 or 2")
        _require(self.pairs > 0, "pairs", self.pairs, "a positive integer")
        levels = len(self.hops)
        allowed = self.near_field is None or 0 <= self.near_field < levels
        _require(allowed, "near_field", self.near_field, f"None or a level from 0 to {levels - 1}")
        if self.weights is not None:
            _require(len(self.weights) == levels, "weights", self.weights, f"{levels} levels, as in hops")
            _require(all(math.isfinite(w) for level in self.weights for w in level), "weights", self.weights, "finite numbers")
            _require(self.near_field == 0, "near_field", self.near_field, "0 with weights of your own: no near field fits them")
        object.__setattr__(self, "text", _to_text(self))

    @property
    def origin_level(self) -> int:
        """The level on which the lattice has the origin of :func:`phgcn.lattice.geometry.origin`: the coarsest."""
        return len(self.hops) - 1


FINENESS = {1: 0.01, 2: 0.1, 3: 0.25}
"""Smallest spacing by dimension: the fewer dimensions, the fewer vertices a small one has.  In more it is 0.5."""

LADDER_DIMENSION = 5
"""Up to how many dimensions a ladder is built: in more, smoothing would touch a hundred vertices around each."""

KEY_BITS = 63
"""Bits of the key of a vertex."""


@dataclass(frozen=True)
class Ladder:
    r"""The ladder of smoothed lattices, and a near field that is summed pair by pair (:mod:`phgcn.lattice.ladder`).

    Args:
        pairs (int, optional): How many pairs per point the near field may sum on average; 0 for none, which makes the operator
            positive. (default: :obj:`100`)
        reach (float, optional): The radius of the near field, in spacings of the finest level. (default: :obj:`1.6`)
        kernel (str, optional): The kernel function, one of ``"exponential"``, ``"gaussian"``, ``"matern32"`` and ``"matern52"``
            (:mod:`phgcn.kernels`). (default: :obj:`"exponential"`)
        fineness (float, optional): The smallest spacing, in units of the kernel's or the cloud's width, whichever is smaller:
            clouds that are too dense for a near field then have none. (default: :obj:`None`, what suits the dimension)
    """

    pairs: int = 100
    reach: float = 1.6
    fineness: float | None = None
    kernel: str = "exponential"
    text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _require(isinstance(self.pairs, int) and self.pairs >= 0, "pairs", self.pairs, "an integer of at least 0")
        _require(math.isfinite(self.reach) and self.reach > 0, "reach", self.reach, "a positive number")
        allowed = self.fineness is None or (math.isfinite(self.fineness) and self.fineness > 0)
        _require(allowed, "fineness", self.fineness, "None or a positive number")
        _require(self.kernel in KERNELS, "kernel", self.kernel, ", ".join(map(repr, KERNELS)))
        object.__setattr__(self, "text", _to_text(self))

    def finest_spacing(self, width: float, extent: int, dim: int) -> int:
        """The smallest spacing of level 0, in half octaves, for a cloud of a width, and a diameter in octaves.

        A vertex has a key of 63 bits, so that its coordinates are limited.
        """
        fineness = FINENESS.get(dim, 0.5) if self.fineness is None else self.fineness
        resolved = round(2 * math.log2(fineness * min(1.0, width)))
        return max(resolved, 2 * (extent + 2 - KEY_BITS // dim))

    def coarsest_spacing(self, extent: int) -> int:
        """The spacing, in half octaves, at which the near field holds all pairs of a cloud of a diameter in octaves."""
        return 2 * extent - math.floor(2 * math.log2(0.8 * self.reach))


@dataclass(frozen=True)
class Separable:
    r"""The paper's filter: passes of a fixed width along each of the :math:`D+1` lattice directions, one after the other.

    A pass reads only vertices that some point touches, so a path over an untouched vertex is lost and the output jumps
    where a point enters a new simplex.

    Args:
        width (int, optional): The vertices that each pass reads, an odd number. (default: :obj:`7`)
        spacing (float, optional): The shortest lattice vector, in units of :math:`1/\lambda`; :obj:`None` takes the one
            that fits the dimension best. (default: :obj:`None`)
        weights (tuple of float, optional): The weight of the centre and of each further hop; :obj:`None` takes fitted ones.
            (default: :obj:`None`)
    """

    width: int = 7
    spacing: float | None = None
    weights: tuple[float, ...] | None = None
    text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _require(self.width > 0 and self.width % 2 == 1, "width", self.width, "a positive odd integer")
        allowed = self.spacing is None or (math.isfinite(self.spacing) and self.spacing > 0)
        _require(allowed, "spacing", self.spacing, "None or a positive number")
        if self.weights is not None:
            object.__setattr__(self, "weights", tuple(float(w) for w in self.weights))
            hops = self.width // 2
            _require(len(self.weights) == hops + 1, "weights", self.weights, f"{hops + 1} numbers: centre and {hops} hops")
            _require(all(math.isfinite(w) for w in self.weights), "weights", self.weights, "finite numbers")
        object.__setattr__(self, "text", _to_text(self))


Scheme = MultiScale | Ladder | Separable

LATTICE_METHODS = ("lattice", "lattice-fine", "separable")

METHODS = ("auto", "exact", *LATTICE_METHODS)

_Levels = tuple[float, tuple[int, ...]]
"""Finest spacing, and hops per level."""

# By dimension; above five, _HIGH up to eight and _HIGHEST beyond.
_LATTICE: dict[int, _Levels] = {
    1: (0.125, (4,) * 6),
    2: (0.25, (4,) * 5),
    3: (0.5, (3, 3, 4, 3)),
    4: (0.5, (2,) * 4),
    5: (0.5, (2,) * 4),
}
_FINE: dict[int, _Levels] = {
    1: (0.125, (6,) * 6),
    2: (0.25, (6,) * 5),
    3: (0.35, (4,) * 5),
    4: (0.5, (3, 3, 4, 3)),
    5: (0.5, (2,) * 4),
}
_FINE_PAIRS = {3: 400, 4: 800, 5: 400}
"""Pairs of the near field by dimension: two lattices with long stencils take as long as more pairs."""

_HIGH: _Levels = (1.0, (1,) * 3)
_HIGHEST: _Levels = (2.0, (0,) * 3)

BOUNDED_DIMENSIONS = {"lattice": 3, "lattice-fine": 4}
"""Up to how many dimensions no pair gets more than twice its true weight, at any distance.  In more, stencils that hold so far
would be too large."""


def named_scheme(method: str, dim: int) -> Scheme:
    """Returns the lattice filter of a name in a dimension.

    Above five dimensions stencils shrink to one hop, above eight to none: with more, a vertex would have more neighbours than
    there are points.
    """
    if method == "separable":
        return Separable()
    spacing, hops = _HIGH if dim <= 8 else _HIGHEST
    if method == "lattice-fine":
        spacing, hops = _FINE.get(dim, (spacing, hops))
        return MultiScale(spacing, hops, lattices=2, pairs=_FINE_PAIRS.get(dim, MultiScale.pairs))
    if method == "lattice":
        spacing, hops = _LATTICE.get(dim, (spacing, hops))
        return MultiScale(spacing, hops)
    raise ValueError(f"method is {method!r}; allowed for a lattice: {', '.join(map(repr, LATTICE_METHODS))}")


def encode(method: str | Scheme) -> str:
    """Writes a method as text, for the custom ops.  A scheme has its text ready, since a compiled graph calls this."""
    return method if isinstance(method, str) else method.text


@lru_cache(maxsize=256)
def decode(text: str, dim: int) -> Scheme:
    """Reads the scheme that :func:`encode` wrote, in a dimension."""
    if text in METHODS:
        return named_scheme(text, dim)
    entries = json.loads(text)
    scheme_type = {"MultiScale": MultiScale, "Ladder": Ladder, "Separable": Separable}[entries.pop("scheme")]
    scheme: Scheme = scheme_type(**{key: _freeze(value) for key, value in entries.items()})
    return scheme


def _to_text(scheme: Scheme) -> str:
    values = {f.name: getattr(scheme, f.name) for f in fields(scheme) if f.init}
    return json.dumps({"scheme": type(scheme).__name__, **values})


def _freeze(value: object) -> object:
    """Converts nested lists, as JSON has them, to tuples."""
    return tuple(_freeze(v) for v in value) if isinstance(value, list) else value


def _require(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{name} is {value!r}; allowed: {allowed}")
