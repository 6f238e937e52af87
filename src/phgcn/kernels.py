r"""Kernel functions of a distance: the weight of one point for another.

A kernel is a polynomial times an exponential, :math:`k(r) = (c_0 + c_1 s + c_2 s^2)\, e^{-s}` with
:math:`s = (a r)^p`. Exact sums and the ladder's near field take these five numbers: adding a kernel
touches this file and its test only. The weights of the ladder's steps, in
:mod:`phgcn.lattice.ladder`, follow from :meth:`Kernel.value` by a fit that also depends on the
dimension and the cloud."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["KERNELS", "Exponential", "Gaussian", "Kernel", "Matern32", "Matern52"]

Floats = NDArray[np.float64]

# larger :math:`s` count as this in the polynomial, which so stays finite; the exponential is 0
# there
LARGEST = 1e15


class Numbers(NamedTuple):
    """The five numbers of a kernel for compiled code; see :class:`Kernel`."""

    rate: float
    c0: float
    c1: float
    c2: float
    power: int


class Kernel:
    r"""A kernel function, :math:`k(r) = (c_0 + c_1 s + c_2 s^2)\, e^{-s}` with :math:`s = (a r)^p`
    and :math:`k(0) = 1`.

    The polynomial is positive, and its product with the exponential falls with :math:`r`. Distances
    are in units of :math:`1/\lambda`: the decay multiplies them before. A new kernel is a subclass
    with these numbers, and an entry in :data:`KERNELS`."""

    name: ClassVar[str]  # the name in calls, error texts and results

    coefficients: ClassVar[tuple[float, float, float]]  # :math:`(c_0, c_1, c_2)`

    rate: ClassVar[float] = 1.0  # :math:`a`
    power: ClassVar[int] = 1  # :math:`p`, 1 or 2

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @property
    def numbers(self) -> Numbers:
        """The five numbers."""
        return Numbers(self.rate, *self.coefficients, self.power)

    def value(self, r: Floats | float) -> Floats:
        """Computes :math:`k(r)`."""
        s = (self.rate * np.asarray(r, np.float64)) ** self.power
        c0, c1, c2 = self.coefficients
        return (c0 + s * (c1 + s * c2)) * np.exp(-s)

    def derivative(self, r: Floats | float) -> Floats:
        r"""Computes :math:`k'(r) = \frac{ds}{dr} \left(c_1 - c_0 + (2 c_2 - c_1) s - c_2 s^2\right)
        e^{-s}`."""
        r = np.asarray(r, np.float64)
        s = (self.rate * r) ** self.power
        c0, c1, c2 = self.coefficients
        by_s = (c1 - c0 + s * (2 * c2 - c1 - s * c2)) * np.exp(-s)
        return self.power * self.rate**self.power * r ** (self.power - 1) * by_s


class Exponential(Kernel):
    """The paper's kernel, :math:`k(r) = e^{-r}` with :math:`k'(r) = -e^{-r}`."""

    name, coefficients = "exponential", (1.0, 0.0, 0.0)


class Gaussian(Kernel):
    """The Gaussian of standard deviation 1, :math:`k(r) = e^{-r^2/2}` with :math:`k'(r) = -r
    e^{-r^2/2}`."""

    name, coefficients, rate, power = "gaussian", (1.0, 0.0, 0.0), math.sqrt(0.5), 2


class Matern32(Kernel):
    r"""The Matérn kernel of smoothness 3/2, :math:`k(r) = (1 + \sqrt3 r)\, e^{-\sqrt3 r}` with
    :math:`k'(r) = -3 r\, e^{-\sqrt3 r}`."""

    name, coefficients, rate = "matern32", (1.0, 1.0, 0.0), math.sqrt(3)


class Matern52(Kernel):
    r"""The Matérn kernel of smoothness 5/2, :math:`k(r) = (1 + \sqrt5 r + \tfrac53 r^2)\,
    e^{-\sqrt5 r}` with :math:`k'(r) = -\tfrac53 r (1 + \sqrt5 r)\, e^{-\sqrt5 r}`."""

    name, coefficients, rate = "matern52", (1.0, 1.0, 1 / 3), math.sqrt(5)


KERNELS: dict[str, Kernel] = {
    kernel.name: kernel for kernel in (Exponential(), Gaussian(), Matern32(), Matern52())
}
"""The kernels by name."""

EXPONENTIAL = KERNELS["exponential"]


def kernel_name(kernel: object) -> str:
    """Checks a kernel or its name, and returns the name."""
    name = kernel.name if isinstance(kernel, Kernel) else kernel
    known = KERNELS.get(name) if isinstance(name, str) else None
    if known is None or (isinstance(kernel, Kernel) and known != kernel):
        raise ValueError(
            f"kernel is {kernel!r}; allowed: {', '.join(map(repr, KERNELS))}, or one of "
            "phgcn.kernels, such as Gaussian()"
        )
    return known.name
