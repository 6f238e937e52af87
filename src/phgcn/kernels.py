r"""Kernel functions of a distance: what a point gives another.

A kernel is a polynomial times an exponential, :math:`k(r) = (c_0 + c_1 s + c_2 s^2)\, e^{-s}` with :math:`s = (a r)^p`.  The
ladder's near field takes these five numbers, and its steps get their weights from :meth:`Kernel.value`
(:mod:`phgcn.lattice.ladder`), so that a new kernel of this form is one line here.
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


KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel("exponential", (1.0, 0.0, 0.0)),  # the paper's
        Kernel("gaussian", (1.0, 0.0, 0.0), rate=math.sqrt(0.5), power=2),  # of standard deviation 1
        Kernel("matern32", (1.0, 1.0, 0.0), rate=math.sqrt(3)),
        Kernel("matern52", (1.0, 1.0, 1 / 3), rate=math.sqrt(5)),
    )
}
r"""The kernels by name: :math:`e^{-r}`, :math:`e^{-r^2/2}`, and the Matérn kernels of smoothness 3/2,
:math:`(1 + \sqrt3 r)\, e^{-\sqrt3 r}`, and 5/2, :math:`(1 + \sqrt5 r + \tfrac53 r^2)\, e^{-\sqrt5 r}`."""
