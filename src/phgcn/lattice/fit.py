r"""Fits the weights of a scheme to :math:`e^{-r}`, and writes those of the named schemes into ``coefficients.json``.

    python -m phgcn.lattice.fit            # all dimensions, a few minutes
    python -m phgcn.lattice.fit --dims 2 4

Pairs of points are drawn from clouds of the densities that occur in attention.  The weight of a pair on the lattice is linear
in the stencil weights, so these are fitted by least squares; they are held non-negative, so that no normaliser is negative.
Two errors count: that of single pairs, and that of their mean at each distance, which adds up over many pairs.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize, nnls
from torch import Tensor

from .coefficients import (
    FILE,
    Fits,
    Floats,
    MultiScaleFit,
    NarrowFit,
    NearFieldFit,
    OctaveFit,
    SeparableFit,
    narrow_hops,
    near_radius,
)
from .geometry import kuhn_matrix, locate
from .narrow import widest_narrow
from .scheme import MultiScale, named_scheme
from .stencil import orbits

SPREADS = (0.35, 0.7, 1.0, 1.5, 3.0)
"""Standard deviations of Gaussian clouds."""

OFFSETS = ((0.5, 2.0), (0.5, 4.0), (0.7, 6.0), (1.0, 8.0), (1.5, 6.0), (2.0, 9.0))
"""Standard deviation and distance of two clusters."""

BINS = 20
"""Bins of distance in which the mean over pairs is fitted."""

OCTAVES = 9
"""Octaves of narrow clouds that have weights of their own; beyond, the kernel is straight to a hundredth."""

NEAR_TERMS = 5
"""Terms of the near field's sum."""

NEAR_BINS = 60
"""Bins of distance in which the near field is fitted."""


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
    (n1, b1), (n2, b2) = locate(first), locate(second)
    products = np.zeros((len(first), len(keys)))
    for l in range(dim + 1):
        for m in range(dim + 1):
            step = torch.nn.functional.pad(n2[:, m] - n1[:, l], (0, 1)).numpy()
            step -= step.min(axis=1, keepdims=True)
            near = np.flatnonzero(step.max(axis=1) <= hops)
            counts = np.stack([(step[near] == value).sum(axis=1) for value in range(hops + 1)], axis=1)
            products[near, orbit_number[counts @ digits]] += (b1[:, l] * b2[:, m]).numpy()[near]
    return products


def fit_multiscale(dim: int, spacing: float, hops: tuple[int, ...], count: int = 6000, seed: int = 0) -> MultiScaleFit:
    """Fits the stencil weights of every level, and the near field that replaces the finest ones.

    Args:
        dim (int): The dimension.
        spacing (float): The shortest vector of the finest lattice, in units of 1/λ.
        hops (tuple of int): How far each level's stencil reaches, finest first.
        count (int, optional): Pairs drawn per group. (default: :obj:`6000`)
        seed (int, optional): The seed of the draw. (default: :obj:`0`)
    """
    matrix = kuhn_matrix(dim).T / spacing
    rows, targets, products, distances = [], [], [], []
    for first, second, importance, group_weight in sample_pairs(dim, count, seed):
        w1, w2 = torch.as_tensor(first) @ matrix, torch.as_tensor(second) @ matrix
        a = np.concatenate([orbit_products(w1 / 2**k, w2 / 2**k, h) for k, h in enumerate(hops)], axis=1)
        r = np.linalg.norm(first - second, axis=1)
        kernel = np.exp(-r)
        # One equation per pair ...
        single = np.sqrt(importance / (importance * kernel**2).sum())
        rows.append(group_weight * a * single[:, None])
        targets.append(group_weight * kernel * single)
        # ... and one per bin of distance, for the mean of its pairs.
        mean = importance / (importance * kernel).sum()
        bins = np.argsort(np.argsort(r)) * BINS // count
        rows.append(group_weight * np.stack([(a * mean[:, None])[bins == b].sum(axis=0) for b in range(BINS)]))
        targets.append(group_weight * np.bincount(bins, kernel * mean, BINS))
        products.append(a)
        distances.append(r)
    x, _ = nnls(np.concatenate(rows), np.concatenate(targets), maxiter=10000)
    level_start = np.cumsum([0] + [len(orbits(dim, h)) for h in hops]).tolist()
    all_products = np.concatenate(products)
    pair_weights = [all_products[:, start:] @ x[start:] for start in level_start[1:-1]]
    return {
        "dim": dim,
        "spacing": spacing,
        "hops": list(hops),
        "weights": [x[a:b].round(6).tolist() for a, b in pairwise(level_start)],
        "near": fit_near_field(pair_weights, np.concatenate(distances), spacing, hops),
    }


def fit_near_field(pair_weights: list[Floats], distances: Floats, spacing: float, hops: tuple[int, ...]) -> NearFieldFit:
    r"""Fits, for each level :math:`\kappa`, the mean weight of pairs at distance r on the levels from :math:`\kappa` on.

    It is written :math:`\sum_j A_{\kappa j}\, q^{4^j}` with :math:`q = e^{-g r^2}` and a rate g that suits the coarsest level.

    Shapes:
        - **pair_weights:** the weights of the pairs on the levels from :math:`\kappa` on, :math:`(P,)` for each
          :math:`\kappa \ge 1`; **distances:** :math:`(P,)`
    """
    coarsest = spacing * 2 ** (len(hops) - 1)
    rate = 1 / (2 * coarsest**2 * (0.85**2 + 5 / 24))
    amplitude = []
    for level, weights in enumerate(pair_weights, start=1):
        radius = near_radius(spacing, hops, level)
        bins = np.minimum((distances / radius * NEAR_BINS).astype(int), NEAR_BINS)
        count = np.bincount(bins, minlength=NEAR_BINS + 1)[:-1]
        target = np.bincount(bins, weights, NEAR_BINS + 1)[:-1]
        basis = np.exp(-rate * distances[:, None] ** 2 * 4.0 ** np.arange(NEAR_TERMS))
        basis = np.stack([np.bincount(bins, b, NEAR_BINS + 1)[:-1] for b in basis.T], axis=1)
        # All bins count the same, except that those with few pairs, whose mean is uncertain, count less.
        importance = 1 / np.sqrt(np.maximum(count, 1) * (np.maximum(count, 1) + 200.0))
        solution = np.linalg.lstsq(basis * importance[:, None], target * importance, rcond=None)[0]
        amplitude.append(solution.round(6).tolist())
    return {"rate": round(rate, 9), "amplitude": amplitude}


def fit_narrow(dim: int, spacing: float, hops: tuple[int, ...], count: int = 2000, seed: int = 0) -> NarrowFit:
    r"""Fits narrow clouds, octave by octave: a constant, and the levels' weights.

    Magnified by :math:`2^m`, clouds of octave :math:`m` are as wide as those of octave 0, and their kernel is
    :math:`e^{-r/2^m}`: all octaves share their pairs.  For arguments see :func:`fit_multiscale`.
    """
    matrix, reach = kuhn_matrix(dim).T / spacing, narrow_hops(dim, hops)
    level_start = np.cumsum([1] + [len(orbits(dim, h)) for h in reach]).tolist()
    pairs = []
    for first, second, _, weight in sample_narrow_pairs(dim, count, seed):
        w1, w2 = torch.as_tensor(first) @ matrix, torch.as_tensor(second) @ matrix
        levels = [orbit_products(w1 / 2**k, w2 / 2**k, h) for k, h in enumerate(reach)]
        pairs.append((np.concatenate([np.ones((count, 1)), *levels], axis=1), np.linalg.norm(first - second, axis=1), weight))
    octaves: list[OctaveFit] = []
    for octave in range(1, OCTAVES + 1):
        equations = [_narrow_equations(a, r, np.exp(-r / 2**octave), weight) for a, r, weight in pairs]
        # The same problem with as many equations as unknowns, which is quicker.
        q, r = np.linalg.qr(np.concatenate([a for a, _ in equations]))
        x, _ = nnls(r, q.T @ np.concatenate([b for _, b in equations]), maxiter=10000)
        weights = [[float(f"{w:.6g}") for w in x[a:b]] for a, b in pairwise(level_start)]
        octaves.append({"constant": round(float(x[0]), 9), "weights": weights})
    return {"dim": dim, "spacing": spacing, "hops": list(hops), "octaves": octaves}


def sample_narrow_pairs(dim: int, count: int, seed: int) -> list[PairGroup]:
    """Draws pairs of clouds about as wide as the widest narrow ones: Gaussians, cubes, spheres, and two clusters."""
    rng = np.random.default_rng(seed)
    side = widest_narrow(dim) / math.sqrt(dim)

    def unit_vectors() -> Floats:
        direction: Floats = rng.standard_normal((count, dim))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        return direction

    groups = []
    for width in (2.0, 1.4, 1.0, 0.7, 0.5):
        x, ones = rng.uniform(0, 40, (count, dim)), np.ones(count)
        groups.append(PairGroup(x, x + rng.standard_normal((count, dim)) * math.sqrt(2) * width * side / 7.4, ones, 2.0))
        cube = rng.uniform(0, width * side, (2, count, dim))
        groups.append(PairGroup(x + cube[0], x + cube[1], ones, 0.7))
        sphere = width * side / 2 * np.stack([unit_vectors(), unit_vectors()])
        groups.append(PairGroup(x + sphere[0], x + sphere[1], ones, 0.7))
        step = rng.standard_normal((count, dim)) * 0.1 * side + unit_vectors() * width * side
        groups.append(PairGroup(x, x + step, ones, 0.5))
    return groups


def _narrow_equations(products: Floats, distance: Floats, kernel: Floats, weight: float) -> tuple[Floats, Floats]:
    """Makes one equation per pair, and one per bin of distance for the mean of its pairs, relative to how much the kernel
    varies over the cloud: that is what attention adds to an average."""
    scale = weight / (kernel.std() * math.sqrt(len(kernel)))
    bins = np.argsort(np.argsort(distance)) * BINS // len(kernel)
    share = math.sqrt(BINS / len(kernel))
    means = np.stack([products[bins == b].sum(axis=0) for b in range(BINS)]) * share
    return (
        scale * np.concatenate([products, means]),
        scale * np.concatenate([kernel, np.bincount(bins, kernel, BINS) * share]),
    )


def fit_separable(dim: int, spacing: float, hops: int, count: int = 1000, seed: int = 0) -> SeparableFit:
    """Fits the weights of a separable filter to exact attention over clouds of ``count`` points, through the filter itself,
    since vertices that no point touches are missing; and the scale of the plain sum to the exact sum."""
    from .numba.filter import separable_rows

    rng = np.random.default_rng(seed)
    clouds = [rng.standard_normal((count, dim)) * s for s in (0.5, 1, 3, 10)]
    clouds.append(rng.standard_normal((6, dim))[rng.integers(0, 6, count)] * 10 + rng.standard_normal((count, dim)))
    values = np.concatenate([rng.standard_normal((count, 7)), np.ones((count, 1))], axis=1)
    exact = [np.exp(-np.linalg.norm(p[:, None] - p[None], axis=-1)) @ values for p in clouds]

    def filter_clouds(logs: Floats) -> list[Floats]:
        weights = np.concatenate([[1.0], np.exp(logs)])
        return [separable_rows(p, values, spacing, weights) for p in clouds]

    def error(logs: Floats) -> float:
        total = 0.0
        for got, want in zip(filter_clouds(logs), exact, strict=True):
            want = want[:, :-1] / want[:, -1:]
            miss = float(np.linalg.norm(got[:, :-1] / got[:, -1:] - want) / np.linalg.norm(want - want.mean(axis=0)))
            total += math.log(0.1 + miss)  # 0.1, so that a cloud with a tiny error does not dominate
        return total

    start = np.log(np.array([0.35 / 3**k for k in range(hops)]))
    best = minimize(error, start, method="Nelder-Mead", options={"maxfev": 150, "xatol": 1e-3, "fatol": 1e-4})
    got, want = np.concatenate(filter_clouds(best.x)), np.concatenate(exact)
    scale = float((got * want).sum() / (got**2).sum())
    weights = [1.0, *np.exp(best.x).round(4).tolist()]
    return {"dim": dim, "spacing": spacing, "weights": weights, "scale": round(scale, 5), "error": float(best.fun)}


def fit_separable_spacing(dim: int) -> SeparableFit:
    """Fits the paper's filter of width 7 at several spacings and returns the best fit."""
    fits = [fit_separable(dim, spacing, 3) for spacing in (0.7, 1.0, 1.4, 2.0, 2.8)]
    return min(fits, key=lambda fit: fit["error"])


def fit_dimension(dim: int) -> Fits:
    """Fits all named schemes in one dimension.

    Above eight dimensions the separable one uses the weights of eight: its points share no vertices that could be fitted.
    """
    schemes = {named_scheme(method, dim) for method in ("lattice", "lattice-fine")}
    wanted = sorted({(s.spacing, s.hops) for s in schemes if isinstance(s, MultiScale)})
    return {
        "multiscale": [fit_multiscale(dim, spacing, hops, 6000 if dim <= 8 else 2000) for spacing, hops in wanted],
        "narrow": [fit_narrow(dim, spacing, hops) for spacing, hops in wanted] if dim <= 8 else [],
        "separable": [fit_separable_spacing(dim)] if dim <= 8 else [],
    }


def write_fits(fits: Fits) -> None:
    """Writes all fits, lists of numbers in one line each."""
    text = re.sub(r"\[\s+([^][{}]*?)\s+\]", lambda match: "[" + re.sub(r"\s+", " ", match[1]) + "]", json.dumps(fits, indent=1))
    temporary = FILE.with_suffix(".tmp")
    temporary.write_text(text + "\n")
    temporary.replace(FILE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dims", type=int, nargs="+", default=list(range(1, 17)), help="dimensions to fit (1 to 16)")
    for dim in parser.parse_args().dims:
        fits: Fits = json.loads(FILE.read_text()) if FILE.exists() else {"multiscale": [], "narrow": [], "separable": []}
        new = fit_dimension(dim)
        multiscale = [fit for fit in fits["multiscale"] if fit["dim"] != dim] + new["multiscale"]
        narrow = [fit for fit in fits["narrow"] if fit["dim"] != dim] + new["narrow"]
        separable = [fit for fit in fits["separable"] if fit["dim"] != dim] + new["separable"]
        fits["multiscale"] = sorted(multiscale, key=lambda fit: (fit["dim"], fit["spacing"], fit["hops"]))
        fits["narrow"] = sorted(narrow, key=lambda fit: (fit["dim"], fit["spacing"], fit["hops"]))
        fits["separable"] = sorted(separable, key=lambda fit: (fit["dim"], fit["spacing"]))
        write_fits(fits)
        print(f"D={dim}: fitted, written to {FILE}", flush=True)


if __name__ == "__main__":
    main()
