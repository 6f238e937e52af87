"""The filters that approximate the exact sum, as small immutable values. The custom ops take them
as text (:func:`encode`, :func:`decode`)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from functools import lru_cache

from ..kernels import EXPONENTIAL, KERNELS, Kernel

MAX_DIMENSION = 8  # upper bound for a lattice: in more dimensions points share almost no vertices


# Smallest spacing by dimension, in units of the kernel's or the cloud's width, whichever is
# smaller: the fewer dimensions, the fewer vertices a small one has. In more it is 0.5.
FINENESS = {1: 0.01, 2: 0.2, 3: 0.42}

KEY_BITS = 63  # bits of the key of a vertex


@dataclass(frozen=True)
class Ladder:
    """The ladder of smoothed lattices, and a near field that is summed pair by pair
    (:mod:`phgcn.lattice.ladder`).

    Args:
        pairs (int, optional): How many pairs per point the near field may sum on average; 0 for
            none, which makes the operator positive semi-definite. With a near field it is so but
            for some thousandths of its largest eigenvalue. (default: :obj:`64`)
        reach (float, optional): The radius of the near field, in spacings of the finest level.
            (default: :obj:`1.6`)
        fineness (float, optional): The smallest spacing, as a multiple of the one that suits the
            dimension. Clouds that are too dense for a near field get this spacing. (default:
            :obj:`1.0`)
    """

    pairs: int = 64
    reach: float = 1.6
    fineness: float = 1.0
    text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _require(
            isinstance(self.pairs, int) and self.pairs >= 0,
            "pairs",
            self.pairs,
            "an integer of at least 0",
        )
        _require(
            math.isfinite(self.reach) and self.reach > 0, "reach", self.reach, "a positive number"
        )
        _require(
            math.isfinite(self.fineness) and self.fineness > 0,
            "fineness",
            self.fineness,
            "a positive number",
        )
        object.__setattr__(self, "text", _to_text(self))

    def finest_spacing(self, width: float, extent: int, dim: int) -> int:
        """The smallest spacing of level 0, in quarter octaves, for a cloud's width and the octaves
        of its diameter. A vertex has a key of 63 bits, which limits its coordinates."""
        return max(self._suited_spacing(width, dim), 4 * (extent + 2 - KEY_BITS // dim))

    def is_too_coarse(self, spacing: int, width: float, dim: int) -> bool:
        """Whether keys make the smallest spacing of a cloud more than four times too large."""
        return spacing > self._suited_spacing(width, dim) + 8

    def _suited_spacing(self, width: float, dim: int) -> int:
        return round(4 * math.log2(self.fineness * FINENESS.get(dim, 0.5) * min(1.0, width)))

    def coarsest_spacing(self, extent: int) -> int:
        """Returns the spacing in quarter octaves at which the near field holds all pairs of a
        cloud."""
        return 4 * extent - math.floor(4 * math.log2(0.8 * self.reach))


@dataclass(frozen=True)
class Separable:
    r"""The paper's filter: passes of a fixed width along each of the :math:`D+1` lattice
    directions, one after the other.

    A pass reads only vertices that some point touches, so a path over an untouched vertex is lost
    and the output jumps where a point enters a new simplex.

    Args:
        spacing (float, optional): The shortest lattice vector, in units of :math:`1/\lambda`;
            :obj:`None` takes the one that fits the dimension best. (default: :obj:`None`)
        weights (tuple of float, optional): The weight of the centre and of each further hop;
            :obj:`None` takes fitted ones of width 7. (default: :obj:`None`)
    """

    spacing: float | None = None
    weights: tuple[float, ...] | None = None
    text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        allowed = self.spacing is None or (math.isfinite(self.spacing) and self.spacing > 0)
        _require(allowed, "spacing", self.spacing, "None or a positive number")
        if self.weights is not None:
            object.__setattr__(self, "weights", tuple(float(w) for w in self.weights))
            finite = len(self.weights) > 0 and all(math.isfinite(w) for w in self.weights)
            _require(finite, "weights", self.weights, "one or more finite numbers")
        object.__setattr__(self, "text", _to_text(self))


Scheme = Ladder | Separable

LATTICE_METHODS = ("lattice", "lattice-fine", "separable")

METHODS = ("auto", "exact", *LATTICE_METHODS)


def named_scheme(method: str) -> Scheme:
    if method == "separable":
        return Separable()
    if method == "lattice":
        return Ladder()
    if method == "lattice-fine":
        return Ladder(pairs=300, reach=2.8, fineness=0.5)
    raise ValueError(
        f"method is {method!r}; allowed for a lattice: {', '.join(map(repr, LATTICE_METHODS))}"
    )


def encode(method: str | Scheme, kernel: str = EXPONENTIAL.name) -> str:
    """Writes a method and a kernel's name as text for the custom ops. A scheme has its text ready,
    since a compiled graph calls this."""
    text = method if isinstance(method, str) else method.text
    return text if kernel == EXPONENTIAL.name else f"{kernel} {text}"


def _split(text: str) -> tuple[str, str]:
    """Returns the kernel's name and the method's text."""
    kernel, _, method = text.partition(" ")
    return (kernel, method) if kernel in KERNELS else (EXPONENTIAL.name, text)


def decode_kernel(text: str) -> Kernel:
    return KERNELS[_split(text)[0]]


@lru_cache(maxsize=256)
def decode(text: str) -> Scheme:
    text = _split(text)[1]
    if text in METHODS:
        return named_scheme(text)
    entries = json.loads(text)
    scheme_type = {"Ladder": Ladder, "Separable": Separable}[entries.pop("scheme")]
    scheme: Scheme = scheme_type(
        **{
            key: tuple(value) if isinstance(value, list) else value
            for key, value in entries.items()
        }
    )
    return scheme


def _to_text(scheme: Scheme) -> str:
    values = {f.name: getattr(scheme, f.name) for f in fields(scheme) if f.init}
    return json.dumps({"scheme": type(scheme).__name__, **values})


def _require(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{name} is {value!r}; allowed: {allowed}")
