r"""Kernel functions of a distance: what a point gives another.

A kernel is a polynomial times an exponential, :math:`k(r) = (c_0 + c_1 s + c_2 s^2)\, e^{-s}` with :math:`s = (a r)^p`.  All
sums, exact or on a lattice, on a CPU or a GPU, take these five numbers, so that a new kernel of this form is one function here.
The ladder of the lattice gives a kernel its weights by :meth:`Kernel.value` alone (:mod:`phgcn.lattice.ladder`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Kernel(NamedTuple):
    r"""A kernel function, :math:`k(r) = (c_0 + c_1 s + c_2 s^2)\, e^{-s}` with :math:`s = (a r)^p` and :math:`k(0) = 1`.

    Distances are in units of :math:`1/\lambda`: the decay multiplies them before.

    Args:
        name (str): The name in error texts and results.
        coefficients (tuple): :math:`(c_0, c_1, c_2)`.
        rate (float, optional): :math:`a`. (default: :obj:`1.0`)
        power (int, optional): :math:`p`, 1 or 2. (default: :obj:`1`)
    """

    name: str
    coefficients: tuple[float, float, float]
    rate: float = 1.0
    power: int = 1

    def value(self, r: Floats) -> Floats:
        """Computes :math:`k(r)`."""
        s = (self.rate * np.asarray(r, np.float64)) ** self.power
        c0, c1, c2 = self.coefficients
        return (c0 + s * (c1 + s * c2)) * np.exp(-s)

    def slope(self, r: Floats) -> Floats:
        r"""Computes the derivative :math:`k'(r)`."""
        r = np.asarray(r, np.float64)
        s = (self.rate * r) ** self.power
        c0, c1, c2 = self.coefficients
        by_s = (c1 - c0 + s * (2 * c2 - c1) - s * s * c2) * np.exp(-s)
        return by_s * self.power * self.rate**self.power * r ** (self.power - 1)


def Exponential() -> Kernel:  # noqa: N802, public names of kernels are those of types
    r"""The kernel of the paper, :math:`k(r) = e^{-r}`."""
    return Kernel("exponential", (1.0, 0.0, 0.0))


def Gaussian() -> Kernel:  # noqa: N802
    r"""The Gaussian of standard deviation 1, :math:`k(r) = e^{-r^2/2}`."""
    return Kernel("gaussian", (1.0, 0.0, 0.0), rate=math.sqrt(0.5), power=2)


def Matern32() -> Kernel:  # noqa: N802
    r"""The Matérn kernel of smoothness 3/2, :math:`k(r) = (1 + \sqrt3 r)\, e^{-\sqrt3 r}`."""
    return Kernel("matern32", (1.0, 1.0, 0.0), rate=math.sqrt(3))


def Matern52() -> Kernel:  # noqa: N802
    r"""The Matérn kernel of smoothness 5/2, :math:`k(r) = (1 + \sqrt5 r + \tfrac53 r^2)\, e^{-\sqrt5 r}`."""
    return Kernel("matern52", (1.0, 1.0, 1 / 3), rate=math.sqrt(5))
