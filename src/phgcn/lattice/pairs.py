r"""Pairs of points that weights are fitted to, and what a lattice gives them: linear in its stencil weights."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .coefficients import Floats
from .geometry import kuhn_matrix, locate, origin
from .narrow import octave_width
from .numba.orbits import add_orbits
from .stencil import orbit_distance, orbits

SPREADS = (0.35, 0.7, 1.0, 1.5, 3.0)
"""Standard deviations of Gaussian clouds."""

OFFSETS = ((0.5, 2.0), (0.5, 4.0), (0.7, 6.0), (1.0, 8.0), (1.5, 6.0), (2.0, 9.0))
"""Standard deviation and distance of two clusters."""

AREA = 40.0
"""Side of the cube that first points are drawn from: many simplices of the coarsest level."""


NARROW_WIDTHS = (-0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75)
"""Widths of narrow clouds around those of an octave, as logarithms to the base 2."""


class PairGroup(NamedTuple):
    """Pairs of points of one cloud.

    Args:
        first, second: The points of each pair, float64 of shape (P, D).
        importance: The importance weight of each pair, (P,).
        weight: The weight of the group in the fit.
    """

    first: Floats
    second: Floats
    importance: Floats
    weight: float

    @property
    def distance(self) -> Floats:
        r: Floats = np.linalg.norm(self.first - self.second, axis=1)
        return r


class Levels(NamedTuple):
    """Nested lattices that pairs are weighed on.

    Args:
        spacing (float): The shortest vector of the finest lattice.
        hops (tuple of int): How far each level's stencil reaches, finest first.
        lattices (int): How many shifted lattices are averaged.
    """

    spacing: float
    hops: tuple[int, ...]
    lattices: int = 1

    @property
    def coarsest(self) -> float:
        """The shortest vector of the coarsest lattice."""
        return self.spacing * 2.0 ** (len(self.hops) - 1)

    def starts(self, dim: int) -> list[int]:
        """Returns where the weights of each level begin among those of all, and the end."""
        starts: list[int] = np.cumsum([0] + [len(orbits(dim, h)) for h in self.hops]).tolist()
        return starts

    def reach(self, dim: int) -> float:
        """Computes an upper bound of the distance of two points that some level connects: a stencil, and a simplex at either
        end."""
        simplex = math.sqrt((dim + 1) ** 2 // 4 / dim)
        return max((orbit_distance(orbits(dim, h)[-1]) + 2 * simplex) * self.spacing * 2.0**k for k, h in enumerate(self.hops))

    def shift(self, dim: int, lattice: int) -> Tensor:
        """Returns the shift of a lattice against the first, in Kuhn coordinates of level 0, (D,)."""
        return (origin(dim, lattice) - origin(dim)) * 2.0 ** (len(self.hops) - 1)

    def products(self, first: Floats, second: Floats) -> Floats:
        r"""Computes the weight of each pair, per unit of each orbit's stencil weight on all levels, finest first.

        Shapes:
            - **first, second:** :math:`(P, D)`
            - **output:** :math:`(P, \text{orbits of all levels})`
        """
        dim = first.shape[1]
        matrix = kuhn_matrix(dim).T / self.spacing
        total = np.zeros((len(first), self.starts(dim)[-1]))
        for lattice in range(self.lattices):
            w1, w2 = (torch.as_tensor(p) @ matrix + self.shift(dim, lattice) for p in (first, second))
            total += np.concatenate([orbit_products(w1 / 2**k, w2 / 2**k, h) for k, h in enumerate(self.hops)], axis=1)
        return total / self.lattices


def sample_pairs(dim: int, count: int, seed: int) -> list[PairGroup]:
    """Draws pairs of Gaussian clouds of several spreads, of a uniform infinite cloud, and of two clusters at a distance."""
    rng = np.random.default_rng(seed)
    groups = []
    for spread in (*SPREADS, math.inf, *OFFSETS):
        x = rng.uniform(0, 40, (count, dim))
        direction = rng.standard_normal((count, dim))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        importance, weight = np.ones(count), 1.0
        if isinstance(spread, tuple):
            step, weight = rng.standard_normal((count, dim)) * spread[0] + direction * spread[1], 0.5
        elif math.isinf(spread):
            r = rng.gamma(dim, 1 / 0.9, count)
            step, importance = direction * r[:, None], np.exp(0.9 * r)
        else:
            step = rng.standard_normal((count, dim)) * spread * math.sqrt(2)
        groups.append(PairGroup(x, x + step, importance, weight))
    return groups


def orbit_products(first: Tensor, second: Tensor, hops: int) -> Floats:
    r"""Computes the weight of each pair on one level, per unit of each orbit's stencil weight.

    Shapes:
        - **first, second:** Kuhn coordinates :math:`(P, D)`
        - **output:** :math:`(P, \text{orbits})`
    """
    dim = first.size(1)
    keys = orbits(dim, hops)
    # An orbit is known by how often each value occurs; the counts are read as digits of one number.
    digits = (dim + 2) ** np.arange(hops + 1)
    orbit_number = np.full((dim + 2) ** (hops + 1), -1)
    for number, key in enumerate(keys):
        for v in (key, tuple(max(key) - x for x in key)):
            orbit_number[sum(v.count(value) * digits[value] for value in range(hops + 1))] = number
    products = np.zeros((len(first), len(keys)))
    located = [t.contiguous().numpy() for points in (first, second) for t in locate(points)]
    add_orbits(0, len(first), *located, digits, orbit_number, products)
    return products


def sample_narrow_pairs(dim: int, count: int, seed: int) -> list[PairGroup]:
    """Draws pairs of the clouds of an octave, magnified: Gaussians, cubes, spheres, and two clusters.

    Clouds are from half to twice as wide as :func:`phgcn.lattice.narrow.octave_width`.  Each width counts by the share that
    the octave's weights have there (:func:`phgcn.lattice.narrow.narrow_scheme`).
    """
    rng = np.random.default_rng(seed)

    def unit_vectors() -> Floats:
        direction: Floats = rng.standard_normal((count, dim))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        return direction

    groups = []
    for log_width in NARROW_WIDTHS:
        side, share = 2**log_width * octave_width(dim) / math.sqrt(dim), 1 - abs(log_width)
        x, ones = rng.uniform(0, AREA, (count, dim)), np.ones(count)
        groups.append(PairGroup(x, x + rng.standard_normal((count, dim)) * math.sqrt(2) * side / 7.4, ones, 2.0 * share))
        cube = rng.uniform(0, side, (2, count, dim))
        groups.append(PairGroup(x + cube[0], x + cube[1], ones, 0.7 * share))
        sphere = side / 2 * np.stack([unit_vectors(), unit_vectors()])
        groups.append(PairGroup(x + sphere[0], x + sphere[1], ones, 0.7 * share))
        step = rng.standard_normal((count, dim)) * 0.1 * side + unit_vectors() * side
        groups.append(PairGroup(x, x + step, ones, 0.5 * share))
    return groups
