r"""Least squares under an upper bound: no pair gets more than twice its true weight, at any distance.

The bound must hold wherever in their simplices two points lie.  Pairs that get too much are searched for, by moving pairs
uphill, and added to the constraints, until none is found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from .coefficients import Floats
from .geometry import kuhn_matrix
from .pairs import AREA, Levels
from .stencil import stencil

FITTED_BOUND = 1.8
"""Largest weight of a pair over its true weight in the fit; the rest, up to 2, is for places that the search does not find."""

RIDGE = 1e-5
"""Weight of the equations that unknowns are 0, each in units of the largest that it may be: those which no pair tells about."""

CANDIDATES, BINS, KEPT, MOVES = 8000, 20, 40, 40
"""Of a round of the search: pairs that it looks at; bins of distance, and pairs of each that are moved uphill; moves."""

ROUNDS, CLEAN = 60, 3
"""Rounds at most, and in a row without a pair that gets too much, which end the search."""

Rows = Callable[[Floats, Floats], Floats]
"""Of pairs, (P, D) each, their weight over the largest allowed, per unit of each unknown, (P, unknowns)."""


class Search(NamedTuple):
    """Where pairs that get too much are searched for.

    Args:
        levels (Levels): The lattices.
        dim (int): The dimension.
        farthest (float): The largest distance of a pair.
        rows (Callable): See :data:`Rows`.
    """

    levels: Levels
    dim: int
    farthest: float
    rows: Rows

    def draw(self, count: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draws pairs: half at all distances alike, half around the corners of an offset, from which they move apart."""
        half = count // 2
        first = rng.uniform(0, AREA, (count - half, self.dim))
        direction = rng.standard_normal((count - half, self.dim))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        second = first + direction * rng.uniform(0, self.farthest, (count - half, 1))
        apart = [self._draw_apart(level, rng) for level in rng.integers(0, len(self.levels.hops), half)]
        return np.concatenate([first, [p for p, _ in apart]]), np.concatenate([second, [p for _, p in apart]])

    def _draw_apart(self, level: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draws two points on edges that lead away from two vertices of a level, an offset of its stencil apart.

        Such pairs are farther apart than the vertices through which they see each other.
        """
        full, edges = stencil(self.dim, self.levels.hops[level]), stencil(self.dim, 1).offsets
        offset = full.offsets[rng.choice(np.flatnonzero(full.orbit == rng.integers(len(full.distance))))]
        inverse = np.linalg.inv(kuhn_matrix(self.dim).numpy()).T
        scale = self.levels.spacing * 2.0**level
        corner = rng.integers(0, max(1, int(AREA / scale)), self.dim)
        ends = []
        for place, away in ((corner, -offset), (corner + offset, offset)):
            some = edges[rng.integers(0, len(edges), 5)]
            edge = some[np.argmax((some @ inverse) @ (away @ inverse))]
            ends.append(place + rng.uniform() * edge + 0.05 * rng.standard_normal(self.dim))
        # Kuhn coordinates of this level, in one of the lattices.
        shift = self.levels.shift(self.dim, int(rng.integers(self.levels.lattices))).numpy() / 2.0**level
        first, second = ((end - shift) @ inverse * scale for end in ends)
        return first, second

    def climb(self, x: Floats, count: int, rng: np.random.Generator) -> Floats:
        """Draws pairs, moves the worst of each distance at random, keeps moves that raise their weight over the allowed one,
        and returns the rows that they end with."""
        first, second = self.draw(count, rng)
        weight = self.rows(first, second) @ x
        bins = (np.linalg.norm(first - second, axis=1) / self.farthest * BINS).astype(int)
        worst = np.concatenate([np.flatnonzero(bins == b)[np.argsort(-weight[bins == b])[:KEPT]] for b in range(BINS)])
        first, second = first[worst], second[worst]
        rows = self.rows(first, second)
        for _ in range(MOVES):
            size = self.levels.coarsest * 0.5 ** rng.uniform(0, 6, (len(first), 1)) / math.sqrt(self.dim)
            both = rng.integers(0, 2, (len(first), 1))
            moved_first = first + size * both * rng.standard_normal(first.shape)
            moved_second = second + size * rng.standard_normal(second.shape)
            moved_rows = self.rows(moved_first, moved_second)
            better = (moved_rows @ x > rows @ x)[:, None]
            first, second = np.where(better, moved_first, first), np.where(better, moved_second, second)
            rows = np.where(better, moved_rows, rows)
        return rows


def bounded_least_squares(a: Floats, b: Floats, bounds: Floats) -> Floats:
    r"""Minimises :math:`\lVert A x - b \rVert` over :math:`x \ge 0` with :math:`G x \le 1`.

    With :math:`A = QR` it is a search for the shortest vector under linear inequalities, which non-negative least squares of
    the dual solves (Lawson and Hanson, *Solving least squares problems*, chapter 23).
    """
    # In units of the largest that each unknown may be on its own: those of the tail are tiny, and count.
    most = bounds.max(axis=0)
    scale = np.where((np.linalg.norm(a, axis=0) > 0) & (most > 0), 1 / np.where(most > 0, most, 1), 0)
    bounds = bounds * scale
    bounds = bounds[bounds.max(axis=1) > 0]
    count = a.shape[1]
    q, r = np.linalg.qr(np.concatenate([a * scale, RIDGE * np.eye(count)]))
    inverse = np.linalg.inv(r)
    centre = q[: len(b)].T @ b
    free = inverse @ centre
    left, right = np.concatenate([inverse, -bounds @ inverse]), np.concatenate([-free, bounds @ free - 1])
    norm = np.linalg.norm(left, axis=1)
    dual = np.concatenate([(left / norm[:, None]).T, (right / norm)[None]])
    solution, _ = nnls(dual, np.append(np.zeros(count), 1.0), maxiter=50000)
    rest = dual @ solution
    x: Floats = np.maximum(inverse @ (centre - rest[:-1] / (rest[-1] - 1)), 0)
    return x * scale


def fit_bounded(a: Floats, b: Floats, search: Search, seed: int) -> Floats:
    """Fits unknowns to equations ``a @ x = b``, (P, unknowns) and (P,), so that no pair gets more than it is allowed."""
    rng = np.random.default_rng(seed)
    q, r = np.linalg.qr(a)  # the same problem with as many equations as unknowns, which is quicker
    a, b = r, q.T @ b
    bounds = search.rows(*search.draw(2 * CANDIDATES, rng))
    x = bounded_least_squares(a, b, bounds)
    clean = 0
    for _ in range(ROUNDS):
        climbed = search.climb(x, CANDIDATES, rng)
        violated = climbed[climbed @ x > 1]
        clean = 0 if len(violated) > 0 else clean + 1
        if clean == CLEAN:
            break
        if len(violated) > 0:
            bounds = np.concatenate([bounds, violated])
            x = bounded_least_squares(a, b, bounds)
    return x


def largest_ratio(search: Search, x: Floats, count: int, seed: int) -> float:
    """Searches for the largest weight of a pair over the allowed one."""
    return float((search.climb(x, count, np.random.default_rng(seed)) @ x).max())
