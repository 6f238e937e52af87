r"""Fits the weights of a scheme to :math:`e^{-r}`, and writes those of the named schemes into ``coefficients.json``.

    python -m phgcn.lattice.fit                        # all dimensions, some twenty minutes
    python -m phgcn.lattice.fit --dims 2 4
    python -m phgcn.lattice.fit --only narrow --dims 4 # the other fits of the file stay as they are

Pairs of points are drawn from clouds of the densities that occur in attention.  The weight of a pair on the lattice is linear
in the stencil weights, so these are fitted by least squares; they are held non-negative, so that no normaliser is negative, and
in some dimensions so small that no pair gets more than twice its true weight (:mod:`phgcn.lattice.bounded`).  Two errors count:
that of single pairs, and that of their mean at each distance, which adds up over many pairs.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np
from scipy.optimize import minimize, nnls

from .bounded import FITTED_BOUND, Search, fit_bounded
from .coefficients import (
    FILE,
    Fits,
    FittedFor,
    Floats,
    MultiScaleFit,
    NarrowFit,
    NearFieldFit,
    OctaveFit,
    SeparableFit,
    narrow_hops,
    near_radius,
)
from .narrow import octave_width, widest_narrow
from .pairs import Levels, sample_narrow_pairs, sample_pairs
from .scheme import BOUNDED_DIMENSIONS, MultiScale, named_scheme

AnyFit = TypeVar("AnyFit", MultiScaleFit, NarrowFit, SeparableFit)

PARTS = ("multiscale", "narrow", "separable")
"""Parts of ``coefficients.json``."""

BINS = 20
"""Bins of distance in which the mean over pairs is fitted."""

OCTAVES = 9
"""Octaves of narrow clouds that have weights of their own; beyond, the kernel is straight to a hundredth."""

BOUNDED_OCTAVES = 3
"""Octaves of narrow clouds whose pairs have an upper bound; in narrower clouds weights differ little from pair to pair."""

NEAR_TERMS = 5
"""Terms of the near field's sum."""

NEAR_BINS = 60
"""Bins of distance in which the near field is fitted."""


def fit_multiscale(dim: int, levels: Levels, bound: float | None = None, count: int = 6000, seed: int = 0) -> MultiScaleFit:
    """Fits the stencil weights of every level, and the near field that replaces the finest ones.

    Args:
        dim (int): The dimension.
        levels (Levels): The lattices and their stencils.
        bound (float, optional): How many times its true weight a pair may get at most. (default: :obj:`None`, any)
        count (int, optional): Pairs drawn per group. (default: :obj:`6000`)
        seed (int, optional): The seed of the draw. (default: :obj:`0`)
    """
    rows, targets, products, distances = [], [], [], []
    for pairs in sample_pairs(dim, count, seed):
        r, importance = pairs.distance, pairs.importance
        a, kernel = levels.products(pairs.first, pairs.second), np.exp(-r)
        # One equation per pair ...
        single = pairs.weight * np.sqrt(importance / (importance * kernel**2).sum())
        rows.append(a * single[:, None])
        targets.append(kernel * single)
        # ... and one per bin of distance, for the mean of its pairs.
        mean = pairs.weight * importance / (importance * kernel).sum()
        bins = np.argsort(np.argsort(r)) * BINS // count
        rows.append(np.stack([(a * mean[:, None])[bins == b].sum(axis=0) for b in range(BINS)]))
        targets.append(np.bincount(bins, kernel * mean, BINS))
        products.append(a)
        distances.append(r)
    equations = np.concatenate(rows), np.concatenate(targets)
    if bound is None:
        x, _ = nnls(*equations, maxiter=10000)
    else:
        x = fit_bounded(*equations, wide_search(dim, levels, bound), seed + 1)
    starts = levels.starts(dim)
    all_products = np.concatenate(products)
    pair_weights = [all_products[:, start:] @ x[start:] for start in starts[1:-1]]
    return {
        **_fitted_for(dim, levels),
        "weights": [_rounded(x[a:b]) for a, b in pairwise(starts)],
        "near": fit_near_field(pair_weights, np.concatenate(distances), levels),
    }


def wide_search(dim: int, levels: Levels, bound: float) -> Search:
    """Returns the search for pairs that get more than ``bound`` times their true weight."""

    def rows(first: Floats, second: Floats) -> Floats:
        allowed: Floats = bound * np.exp(-np.linalg.norm(first - second, axis=1))
        return levels.products(first, second) / allowed[:, None]

    return Search(levels, dim, levels.reach(dim), rows)


def _fitted_for(dim: int, levels: Levels) -> FittedFor:
    return {"dim": dim, "spacing": levels.spacing, "hops": list(levels.hops), "lattices": levels.lattices}


def _rounded(x: Floats) -> list[float]:
    """Rounds to six significant digits: the tail's weights are tiny, and count."""
    return [float(f"{weight:.6g}") for weight in x]


def fit_near_field(pair_weights: list[Floats], distances: Floats, levels: Levels) -> NearFieldFit:
    r"""Fits, for each level :math:`\kappa`, the mean weight of pairs at distance r on the levels from :math:`\kappa` on.

    It is written :math:`\sum_j A_{\kappa j}\, q^{4^j}` with :math:`q = e^{-g r^2}` and a rate g that suits the coarsest level.

    Shapes:
        - **pair_weights:** the weights of the pairs on the levels from :math:`\kappa` on, :math:`(P,)` for each
          :math:`\kappa \ge 1`; **distances:** :math:`(P,)`
    """
    rate = 1 / (2 * levels.coarsest**2 * (0.85**2 + 5 / 24))
    amplitude = []
    for level, weights in enumerate(pair_weights, start=1):
        radius = near_radius(levels.spacing, levels.hops, level)
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


def fit_narrow(dim: int, levels: Levels, bound: float | None = None, count: int = 2000, seed: int = 0) -> NarrowFit:
    r"""Fits narrow clouds, octave by octave: a constant, and the levels' weights.

    Magnified by :math:`2^m`, clouds of octave :math:`m` are as wide as those of octave 0, and their kernel is
    :math:`e^{-r/2^m}`: all octaves share their pairs.  For arguments see :func:`fit_multiscale`.
    """
    narrow = levels._replace(hops=narrow_hops(dim, levels.hops))
    starts = [1 + start for start in narrow.starts(dim)]
    pairs = [(_narrow_products(narrow, p.first, p.second), p.distance, p.weight) for p in sample_narrow_pairs(dim, count, seed)]
    octaves: list[OctaveFit] = []
    for octave in range(1, OCTAVES + 1):
        equations = [_narrow_equations(a, r, np.exp(-r / 2**octave), weight) for a, r, weight in pairs]
        # The same problem with as many equations as unknowns, which is quicker.
        q, r = np.linalg.qr(np.concatenate([a for a, _ in equations]))
        target = q.T @ np.concatenate([b for _, b in equations])
        if bound is None or octave > BOUNDED_OCTAVES:
            x, _ = nnls(r, target, maxiter=10000)
        else:
            x = fit_bounded(r, target, narrow_search(dim, narrow, octave, bound), seed + octave)
        weights = [_rounded(x[a:b]) for a, b in pairwise(starts)]
        octaves.append({"constant": round(float(x[0]), 9), "weights": weights})
    return {**_fitted_for(dim, levels), "octaves": octaves}


def _narrow_products(narrow: Levels, first: Floats, second: Floats) -> Floats:
    """Computes the weight of pairs per unit of the constant, and of each stencil weight."""
    return np.concatenate([np.ones((len(first), 1)), narrow.products(first, second)], axis=1)


def narrow_search(dim: int, narrow: Levels, octave: int, bound: float) -> Search:
    """Returns the search for pairs of narrow clouds, magnified, that get more than ``bound`` times their true weight.

    Clouds that have a share of an octave's weights are up to twice as wide as that octave's, those of the first a little more.
    """
    widest = 2 * (widest_narrow(dim) if octave == 1 else octave_width(dim))

    def rows(first: Floats, second: Floats) -> Floats:
        r = np.linalg.norm(first - second, axis=1)
        allowed = np.where(r <= widest, bound * np.exp(-r / 2**octave), np.inf)
        return _narrow_products(narrow, first, second) / allowed[:, None]

    return Search(narrow, dim, widest, rows)


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


def wanted_levels(dim: int) -> dict[Levels, float | None]:
    """Returns the levels of the named schemes in a dimension, and the bound that each is fitted under."""
    wanted: dict[Levels, float | None] = {}
    for method, most in BOUNDED_DIMENSIONS.items():
        scheme = named_scheme(method, dim)
        assert isinstance(scheme, MultiScale)
        bound = FITTED_BOUND if dim <= most else None
        # What lattices give on average matters where there is a bound; else one fit serves any number of them.
        wanted[Levels(scheme.spacing, scheme.hops, 1 if bound is None else scheme.lattices)] = bound
    return wanted


def fit_dimension(dim: int, parts: Sequence[str] = PARTS) -> Fits:
    """Fits all named schemes in one dimension, or some parts of them.

    Above eight dimensions the separable one uses the weights of eight: its points share no vertices that could be fitted.
    """
    count = 6000 if dim <= 8 else 2000
    wanted = wanted_levels(dim)
    fits: Fits = {"multiscale": [], "narrow": [], "separable": []}
    if "multiscale" in parts:
        fits["multiscale"] = [fit_multiscale(dim, levels, bound, count) for levels, bound in wanted.items()]
    if "narrow" in parts and dim <= 8:
        fits["narrow"] = [fit_narrow(dim, levels, bound) for levels, bound in wanted.items()]
    if "separable" in parts and dim <= 8:
        fits["separable"] = [fit_separable_spacing(dim)]
    return fits


def write_fits(fits: Fits) -> None:
    """Writes all fits, lists of numbers in one line each."""
    text = re.sub(r"\[\s+([^][{}]*?)\s+\]", lambda match: "[" + re.sub(r"\s+", " ", match[1]) + "]", json.dumps(fits, indent=1))
    temporary = FILE.with_suffix(".tmp")
    temporary.write_text(text + "\n")
    temporary.replace(FILE)


def _with(old: list[AnyFit], new: list[AnyFit]) -> list[AnyFit]:
    """Replaces the fits of a dimension by new ones, if there are any."""
    return [fit for fit in old if fit["dim"] not in {fit["dim"] for fit in new}] + new


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dims", type=int, nargs="+", default=list(range(1, 17)), help="dimensions to fit (1 to 16)")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, help="these parts only")
    options = parser.parse_args()
    for dim in options.dims:
        fits: Fits = json.loads(FILE.read_text()) if FILE.exists() else {"multiscale": [], "narrow": [], "separable": []}
        new = fit_dimension(dim, options.only)
        multiscale, narrow = _with(fits["multiscale"], new["multiscale"]), _with(fits["narrow"], new["narrow"])
        fits["multiscale"] = sorted(multiscale, key=lambda fit: (fit["dim"], fit["lattices"]))
        fits["narrow"] = sorted(narrow, key=lambda fit: (fit["dim"], fit["lattices"]))
        separable = _with(fits["separable"], new["separable"])
        fits["separable"] = sorted(separable, key=lambda fit: (fit["dim"], fit["spacing"]))
        write_fits(fits)
        print(f"D={dim}: fitted, written to {FILE}", flush=True)


if __name__ == "__main__":
    main()
