r"""The numbers of the ladder filter: the bump of each step, and the weights that make a kernel of
them.

The ladder smooths and halves the table of vertices, step by step:

.. math::
    T_0 = B^\top f, \qquad U_k = A\, T_k, \qquad T_{k+1} = R\, A\, U_k

:math:`B` are barycentric weights, :math:`A` averages each vertex with its neighbours along the
:math:`D + 1` directions of the lattice, one direction after the other. :math:`R` gives half of a
vertex :math:`v` to :math:`\lfloor v/2 \rfloor` and half to :math:`\lceil v/2 \rceil`. *Step*
:math:`2k` is :math:`T_k`, step :math:`2k+1` is :math:`U_k`; each is :math:`\sqrt 2` wider than the
one before. With :math:`P_s` the composition of all maps up to step :math:`s`, the filter is
:math:`\sum_s c_s P_s P_s^\top`: positive, as no :math:`c_s` is negative. The *bump*
:math:`\beta_s(r)` of a step is its weight between two points at distance :math:`r`, averaged over
all shifts of the lattice. The :math:`c_s` are chosen so that :math:`\sum_s c_s \beta_s(r)` is
closest to the kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..kernels import Kernel
from ..log import LOGGER, is_logged
from .geometry import kuhn_matrix
from .scheme import Ladder

Floats = NDArray[np.float64]

RADIUS = 7.0  # distance, in spacings of the step's level, at which every bump is 0
LIMIT = 12  # steps from here on have the bump of this one, or of the next, scaled

# Standard deviation of a step's weight between two points over shifts and directions, as a share of
# its bump. Later even and odd steps repeat the last two.  ``python lab/bench ladder_scatter``
# measures about these numbers in two to five dimensions.
SCATTER = (0.0, 0.06, 0.035, 0.009, 0.012, 0.004)

# levels that are made: up to spacings of at most this power of 2 less one, times the diameter
WINDOW = 3

# from this radius of the near field on, in spacings of level 0, the first weighted step is 2: pairs
# that step 1 would serve are near ones, and step 2 scatters half as much
WIDE_REACH = 2.0

QUARTILES = 1.349  # distance of the quartiles of a normal distribution, in standard deviations

# clouds narrower than this, in units of the kernel, count as this wide: no weight differs from 1 in
# double precision
LEAST = 1e-15

TOP = 24.0  # spacing of the coarsest step, in units of the kernel: coarser ones would get no weight


def level(step: Any) -> Any:
    """The level of the lattice that a step belongs to, or the levels of many."""
    return step // 2


# Bumps


@lru_cache
def bump(dim: int, step: int) -> tuple[Floats, Floats]:
    r"""Tabulates the bump of a step: distances in spacings of its level, and values, (R,) each.

    :math:`P_s` sums translates of a box spline, a product over the lattice directions :math:`d` of
    functions of :math:`\omega \cdot d` in Fourier space. The bump is the autocorrelation of this
    spline, averaged over directions."""
    if step > LIMIT + 1:
        return bump(dim, LIMIT + step % 2)
    frequency, distance, wave = _waves(dim)
    power = np.zeros_like(frequency)
    directions, sphere = _lattice_directions(dim), _sphere(dim)
    for u in np.array_split(sphere @ directions.T, 8):
        phase = u[:, None, :] * frequency[None, :, None] / 2
        factor = np.sinc(phase / np.pi)
        # one factor from A, one from R A, at every finer level
        for back in range(1, level(step) + 1):
            factor *= np.cos(phase * 0.5**back) ** 2
        if step % 2 == 1:
            factor *= np.cos(phase)
        power += np.prod(factor, axis=2).__pow__(2).sum(axis=0)
    power /= len(sphere)
    cell = abs(1 / np.linalg.det(kuhn_matrix(dim).numpy()))
    area = 2 * math.pi ** (dim / 2) / math.gamma(dim / 2)
    density = (
        cell
        * area
        / (2 * math.pi) ** dim
        * power
        * frequency ** (dim - 1)
        * (frequency[1] - frequency[0])
    )
    return distance, wave @ density


def _bend(dim: int, step: int) -> float:
    """Returns the fall of a bump at 0 over the square of the distance in spacings of its level."""
    distance, value = bump(dim, step)
    return float((value[0] - value[2]) / distance[2] ** 2)


def bump_at(dim: int, step: int, distance: Floats) -> Floats:
    """Evaluates the bump of a step at distances in spacings of its level. Interpolation is linear
    in the square, as wide bumps have no cusp at 0."""
    grid, value = bump(dim, step)
    return np.interp(distance**2, grid**2, value, right=0.0)


@lru_cache
def _waves(dim: int) -> tuple[Any, Any, Any]:
    """Returns frequencies (K,), distances (R,), and mean plane waves over directions, (R, K)."""
    frequency, distance = (np.arange(240) + 0.5) * 0.05, RADIUS / 140 * np.arange(141)
    if dim == 1:
        return frequency, np.asarray(distance), np.cos(np.outer(distance, frequency))
    node, weight = np.polynomial.legendre.leggauss(96)
    angle = (node + 1) * np.pi / 2
    weight = weight * np.sin(angle) ** (dim - 2)
    phase = np.outer(distance, frequency)
    wave = sum(
        w * np.cos(phase * math.cos(a)) for a, w in zip(angle, weight / weight.sum(), strict=True)
    )
    return frequency, np.asarray(distance), np.asarray(wave)


def _lattice_directions(dim: int) -> Floats:
    """Returns the D + 1 shortest lattice vectors that sum to 0, (D + 1, D)."""
    vectors = np.linalg.inv(kuhn_matrix(dim).numpy()).T
    return np.concatenate([vectors, -vectors.sum(axis=0, keepdims=True)])


@lru_cache
def _sphere(dim: int) -> Floats:
    """Returns unit vectors spread evenly over all directions, (512, D)."""
    if dim == 1:
        return np.ones((1, 1))
    # 0 and the middle have no direction
    uniform = torch.quasirandom.SobolEngine(dim).draw(514, dtype=torch.float64)[2:]
    normal = torch.special.ndtri(uniform.clamp(1e-9, 1 - 1e-9)).numpy()
    return np.asarray(normal / np.linalg.norm(normal, axis=1, keepdims=True))


# Weights


class Rung(NamedTuple):
    """The ladder of a cloud.

    Args:
        spacing: Quarter octaves of the spacing of level 0: ``2 ** (spacing / 4)`` in units of 1/λ.
        extent: Octaves of its diameter: at most ``2 ** extent``.
        reach: Radius of the near field in spacings of level 0; 0 for none.
    """

    spacing: int
    extent: int
    reach: float

    @property
    def h(self) -> float:
        return float(2.0 ** (self.spacing / 4))


def choose_rung(
    scheme: Ladder, dim: int, diameter: float, width: float, pairs: Callable[[float], float]
) -> Rung:
    """Chooses the ladder of a cloud from its points only.

    The spacing is the largest with on average at most ``scheme.pairs`` keys within the near field
    of a query. If kernel and width need no larger spacing, there is no near field. If keys allow no
    spacing that is fine enough, the near field holds all pairs.

    Args:
        scheme (Ladder), dim (int): The filter, and the dimension.
        diameter (float): Of the box around the points.
        width (float): Of their middle half, as a standard deviation.
        pairs (callable): Counts the keys of a query within a radius, on average.
    """
    extent = math.ceil(math.log2(max(diameter, LEAST)))
    width = max(width, LEAST)
    finest = scheme.finest_spacing(width, extent, dim)

    def has_few_pairs(spacing: int) -> bool:
        return pairs(scheme.reach * 2 ** (spacing / 4)) <= scheme.pairs

    if scheme.pairs == 0 or not has_few_pairs(finest + 1):
        if scheme.pairs > 0 and scheme.is_too_coarse(finest, width, dim):
            return Rung(scheme.coarsest_spacing(extent), extent, scheme.reach)
        return Rung(finest, extent, 0.0)
    spacing = finest + 1
    while spacing < scheme.coarsest_spacing(extent) and has_few_pairs(spacing + 1):
        spacing += 1
    return Rung(spacing, extent, scheme.reach)


def log_rung(points: int, rung: Rung, pairs: Callable[[float], float]) -> None:
    """Logs the ladder of a cloud of ``points`` points."""
    if not is_logged():
        return
    octaves, near = max(0, rung.extent - math.floor(rung.spacing / 4)), "no near pairs"
    if rung.reach > 0:
        radius = rung.reach * rung.h
        near = f"{pairs(radius):.1f} near pairs per point within {radius:.3g}"
    ladder = f"levels over {octaves} octaves from a spacing of {rung.h:.3g}"
    LOGGER.debug("cloud of %s points: %s, %s", f"{points:,}", ladder, near)


class Numbers(NamedTuple):
    r"""The numbers of a ladder.

    Args:
        weight: :math:`c_s` of the steps that are used, float64, :math:`(S,)`.
        far: :math:`(a, b, q)` of the steps that are wider than the cloud: a pair gets :math:`a - b
            (|p_i|^2 + |p_j|^2) + q |p_i|^2 |p_j|^2 + 2 b \langle p_i, p_j \rangle`.
        own: Mean weight of steps from 2 on between a point and itself.
        radius: Radius of the near field, 0 without one.
        near: Mean weight of all steps within the radius: coefficients of a polynomial of :math:`(r
            / \text{radius})^2`, :math:`(n,)`.
    """

    weight: Floats
    far: tuple[float, float, float]
    own: float
    radius: float
    near: Floats

    def far_matrix(self, dim: int) -> Floats:
        """Builds the far field's form on 1, square and coordinates of points, (D + 2, D + 2)."""
        a, b, q = self.far
        matrix = np.diag([a, q, *[2 * b] * dim])
        matrix[0, 1] = matrix[1, 0] = -b
        return matrix

    @property
    def at_zero(self) -> float:
        return 1.0 - float(self.near[0]) if self.radius > 0 else 0.0


NEAR_DEGREE = 7
FADE_START = 0.8  # the near field fades out from this share of its radius to the radius


def fade(r: Floats, radius: float) -> Floats:
    """Returns a factor from 1 below ``FADE_START`` times the radius to 0 at the radius."""
    if radius == 0:
        return np.zeros_like(r)
    t = np.clip((radius**2 - r**2) / (radius**2 * (1 - FADE_START**2)), 0, 1)
    return t**2 * (3 - 2 * t)


@lru_cache(maxsize=1024)
def ladder_numbers(kernel: Kernel, dim: int, rung: Rung) -> Numbers:
    """Computes a ladder's numbers for a kernel, in milliseconds; cached by its arguments."""
    h, radius = rung.h, rung.reach * rung.h
    steps = 2 * max(3, math.ceil(math.log2(TOP / h)) + 1)
    used = 2 * min(steps // 2, max(2, rung.extent - math.floor(rung.spacing / 4) + WINDOW))
    height = np.array([bump(dim, s)[1][0] for s in range(steps)])
    spacing = h * 2.0 ** level(np.arange(steps))
    bend = np.array([_bend(dim, s) for s in range(steps)]) / spacing**2
    square = bend**2 / height
    # what a step gives a point of itself at most: on step 1 at a vertex, far away in a corner
    own_most = height + np.where(np.arange(steps) < used, 0, square * 2.0 ** (4 * rung.extent - 4))
    own_most[1] = own_table(dim)[0]
    weight = fit_weights(kernel, dim, rung, own_most)

    def smooth(r: Floats) -> Floats:
        return np.asarray(sum(weight[s] * bump_at(dim, s, r / spacing[s]) for s in range(steps)))

    a, b, q = (float(weight[used:] @ each[used:]) for each in (height, bend, square))
    own = float(weight[2:used] @ height[2:used])
    near = np.zeros(NEAR_DEGREE + 1)
    if radius > 0:
        x = (1 - np.cos((np.arange(64) + 0.5) * np.pi / 64)) / 2
        near = np.polynomial.Polynomial.fit(
            x, smooth(radius * np.sqrt(x)), NEAR_DEGREE, domain=[0, 1], window=[0, 1]
        ).coef
    # steps behind the last weight need not be made
    last = max(2, int(weight[:used].nonzero()[0].max(initial=0)) + 1)
    return Numbers(weight[:last], (a, b, q), own, radius, near)


def fit_weights(kernel: Kernel, dim: int, rung: Rung, own_most: Floats) -> Floats:
    r"""Fits :math:`c_s \ge 0`, (S,), to the least error of attention in a Gaussian cloud.

    A point at distance :math:`R` from the middle of the cloud sees :math:`n(r)\,dr` others at
    distance :math:`r`. With :math:`\delta(r)` the error of the weights, its output is off by
    :math:`\sum_j \delta_j (f_j - h_i) / Z_i`. For values independent of positions, the mean square
    of this error is a sum of squares linear in :math:`c`: over pairs, over sums of weights, and
    over the scatter of each step. The fit sums points of several distances and clouds of several
    widths, each divided by its ``gain`` (:class:`CloudErrors`).

    Without a near field, :math:`\sum_s c_s` times ``own_most`` (S,) is at most 1: the self term
    then is not negative, and the filter is a positive operator."""
    h, radius, steps = rung.h, rung.reach * rung.h, len(own_most)
    # a Gaussian's standard deviation is about an eighth of its diameter
    widest = 2.0 ** (rung.extent - 3)
    r = np.geomspace(h * 0.05, max(8 * widest, 4 * h), 400)
    value = kernel.value(r)
    bumps = np.stack([bump_at(dim, s, r / (h * 2.0 ** level(s))) for s in range(steps)], axis=1)
    left = 1 - fade(r, radius)
    widths = [widest * 0.5**i for i in range(12) if i == 0 or widest * 0.5**i >= h]
    errors = [errors_of_cloud(dim, r, w, radius, value, bumps, left, h) for w in widths]
    # A kernel without a cusp adds next to nothing to the mean of a core.
    least = 0.0 if kernel.derivative(0.0) < 0 else CORE * max(error.gain for error in errors)
    matrix = np.concatenate([error.rows / max(error.gain, least) for error in errors])
    target = np.concatenate([error.target / max(error.gain, least) for error in errors])
    first = 1 if rung.reach < WIDE_REACH else 2
    matrix, own = matrix[:, first:], own_most[first:]
    weight = nonnegative_least_squares(matrix, target)
    if radius == 0 and own @ weight > 1:
        # Least squares are convex: the best weights within the bound lie on it.
        weight = nonnegative_least_squares(
            np.concatenate([matrix, HEAVY * own[None]]), np.append(target, HEAVY)
        )
        weight = weight / max(1.0, float(own @ weight))
    return np.concatenate([np.zeros(first), weight])


# lower bound of the gain of a cloud (:class:`CloudErrors`) as a share of the largest gain, if the
# kernel is flat at 0
CORE = 0.3

HEAVY = 1e4  # weight of an equation that must hold, relative to the equations of errors

# distances from the middle of a cloud, over its root mean square, and the share of points there
SHARES = ((0.0, 0.15), (0.7, 0.35), (1.0, 0.25), (1.3, 0.15), (1.7, 0.1))

# assumed number of points within the radius of the near field: it sets the density of a cloud
NEAR_POINTS = 60.0


class CloudErrors(NamedTuple):
    """Least squares of the error in a cloud.

    Args:
        rows, target: The matrix (R, S) and target (R,) of least squares: ``rows @ c - target`` is
            the error of the weights ``c`` of the steps.
        gain: Root mean square difference between attention and the mean of all values.
    """

    rows: Floats
    target: Floats
    gain: float


def errors_of_cloud(
    dim: int,
    r: Floats,
    width: float,
    radius: float,
    value: Floats,
    bumps: Floats,
    left: Floats,
    h: float,
) -> CloudErrors:
    everywhere = _density(dim, r, width, None)
    mean, mean_bumps = everywhere @ (left * value), everywhere @ (left[:, None] * bumps)
    kernel_mean = everywhere @ value
    inside = everywhere[r < max(radius, h)].sum()
    count = max(NEAR_POINTS / max(inside, 1e-12), 10.0)
    seen = []
    for share, part in SHARES:
        n = count * _density(dim, r, width, share * math.sqrt(dim) * width)
        total = 1 + n @ value
        spread = ((1 - kernel_mean) ** 2 + n @ (value - kernel_mean) ** 2) / total**2
        own_square = (1 + n @ value**2) / total**2
        seen.append((part, n, total, spread, own_square))
    gain = math.sqrt(sum(part * spread for part, _, _, spread, _ in seen))
    steps = bumps.shape[1]
    spacing = h * 2.0 ** level(np.arange(steps))
    scatter = np.array(
        [SCATTER[s] if s < len(SCATTER) else SCATTER[4 + s % 2] for s in range(steps)]
    )
    rows, targets = [], []
    for part, n, total, _, own_square in seen:
        factor = math.sqrt(part) / total
        root, factor_of_sum = factor * np.sqrt(n)[:, None], factor * math.sqrt(own_square)
        noise = factor * np.sqrt(n @ bumps**2) * scatter
        noise *= np.minimum(1, 2 * np.pi * width / spacing)
        of_sum = (n * left)[None] * factor_of_sum
        rows += [root * (left[:, None] * bumps - mean_bumps), of_sum @ bumps, np.diag(noise)]
        targets += [root[:, 0] * (left * value - mean), of_sum @ value, np.zeros(steps)]
    return CloudErrors(np.concatenate(rows), np.concatenate(targets), gain)


def _density(dim: int, r: Floats, width: float, away: float | None) -> Floats:
    """Returns the share of a Gaussian cloud at each distance of a grid from a point ``away`` from
    its middle, (R,), or of all pairs for None."""
    dr = np.gradient(r)
    if away is None:
        n = r ** (dim - 1) * np.exp(-((r / width) ** 2) / 4)
    elif dim == 1:
        n = np.exp(-(((r - away) / width) ** 2) / 2) + np.exp(-(((r + away) / width) ** 2) / 2)
    else:
        node, weight = np.polynomial.legendre.leggauss(24)
        angle = (node + 1) * np.pi / 2
        apart = r[:, None] ** 2 + away**2 - 2 * away * r[:, None] * np.cos(angle)
        n = r ** (dim - 1) * (
            np.exp(-apart / (2 * width**2)) @ (weight * np.sin(angle) ** (dim - 2))
        )
    n = n * dr
    return np.asarray(n / n.sum())


def nonnegative_least_squares(matrix: Floats, target: Floats) -> Floats:
    r"""Minimises :math:`|A x - y|` over :math:`x \ge 0` by Lawson and Hanson's active sets."""
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1.0
    orthogonal, triangle = np.linalg.qr(matrix / scale)
    target = orthogonal.T @ target
    x, active = np.zeros(matrix.shape[1]), np.zeros(matrix.shape[1], bool)
    for _ in range(3 * len(x)):
        slope = triangle.T @ (target - triangle @ x)
        slope[active] = 0
        if slope.max() <= 1e-12 * np.linalg.norm(target):
            break
        active[np.argmax(slope)] = True
        while True:
            found = np.zeros_like(x)
            found[active] = np.linalg.lstsq(triangle[:, active], target, rcond=1e-13)[0]
            if found[active].min() > 0:
                break
            falls = active & (found <= 0)
            ratio = (x[falls] / (x[falls] - found[falls])).min()
            x = x + ratio * (found - x)
            active &= x > 1e-14
            x[~active] = 0
            if not active.any():
                break
        x = found if active.any() else x
    return np.asarray(x / scale)


def own_table(dim: int) -> Floats:
    """Tabulates the autocorrelation :math:`t_m` of :math:`A` between two vertices of a simplex that
    are :math:`m` steps apart, :math:`(D + 1,)`.

    :math:`A` gives :math:`2^{-D-1}` for every subset of the directions, and all directions sum to
    0."""
    m = np.arange(dim + 1)
    return np.asarray((2.0 ** (dim + 1 - m) + 2.0**m + (m == 0)) / 4.0 ** (dim + 1))
