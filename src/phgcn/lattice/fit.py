r"""Fits the weights of a scheme to :math:`e^{-r}`, and writes those of the named schemes into ``coefficients.json``.

    python -m phgcn.lattice.fit            # all dimensions, a few minutes
    python -m phgcn.lattice.fit --dims 2 4

Pairs of points are drawn from clouds as dense as attention meets them.  What the lattice gives a pair is linear in the
stencil weights, so these are found by least squares, held non-negative lest a normaliser turn negative.  Two errors are
weighed against each other: that of single pairs, and that of their mean at each distance, which adds up over many pairs.
"""

from __future__ import annotations

import argparse
import json
import math
from itertools import pairwise

import numpy as np
import torch
from scipy.optimize import minimize, nnls
from torch import Tensor

from .coefficients import FILE, near_radius
from .geometry import kuhn_matrix, locate
from .scheme import MultiScale, named_scheme
from .stencil import orbits

SPREADS = (0.35, 0.7, 1.0, 1.5, 3.0)
OFFSETS = ((0.5, 2.0), (0.5, 4.0), (0.7, 6.0), (1.0, 8.0), (1.5, 6.0), (2.0, 9.0))
BINS = 20
NEAR_TERMS = 5
NEAR_BINS = 60


def sample_pairs(dim: int, count: int, seed: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, float]]:
    """Groups of pairs: first points, second points, importance weights, weight of the group.

    Pairs of a Gaussian cloud at several spreads, of an endless one, and of two clusters some way apart.
    """
    rng = np.random.default_rng(seed)
    groups = []
    for spread in (*SPREADS, math.inf, *OFFSETS):
        x = rng.uniform(0, 40, (count, dim))
        direction = rng.standard_normal((count, dim))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        importance, group = np.ones(count), 1.0
        if isinstance(spread, tuple):
            step, group = rng.standard_normal((count, dim)) * spread[0] + direction * spread[1], 0.5
        elif math.isinf(spread):
            r = rng.gamma(dim, 1 / 0.9, count)
            step, importance = direction * r[:, None], np.exp(0.9 * r)
        else:
            step = rng.standard_normal((count, dim)) * spread * math.sqrt(2)
        groups.append((x, x + step, importance, group))
    return groups


def orbit_products(first: Tensor, second: Tensor, hops: int) -> np.ndarray:
    r"""What a level gives each pair per unit of each orbit's weight.

    Shapes:
        - **first, second:** Kuhn coordinates :math:`(P, D)`
        - **output:** :math:`(P, \text{orbits})`
    """
    dim = first.size(1)
    keys = orbits(dim, hops)
    # An orbit is known by how often each value occurs; the counts are read as digits of one number.
    digits = (dim + 2) ** np.arange(hops + 1)
    table = np.full((dim + 2) ** (hops + 1), -1)
    for number, key in enumerate(keys):
        for v in (key, tuple(max(key) - x for x in key)):
            table[sum(v.count(value) * digits[value] for value in range(hops + 1))] = number
    (n1, b1), (n2, b2) = locate(first), locate(second)
    products = np.zeros((len(first), len(keys)))
    for l in range(dim + 1):
        for m in range(dim + 1):
            step = torch.nn.functional.pad(n2[:, m] - n1[:, l], (0, 1)).numpy()
            step -= step.min(axis=1, keepdims=True)
            near = np.flatnonzero(step.max(axis=1) <= hops)
            counts = np.stack([(step[near] == value).sum(axis=1) for value in range(hops + 1)], axis=1)
            products[near, table[counts @ digits]] += (b1[:, l] * b2[:, m]).numpy()[near]
    return products


def fit_multiscale(dim: int, spacing: float, hops: tuple[int, ...], count: int = 6000, seed: int = 0) -> dict:
    """Fits the stencil weights of every level, and the near field that replaces the finest ones."""
    matrix = kuhn_matrix(dim).T / spacing
    rows, targets, products, distances = [], [], [], []
    for first, second, importance, group in sample_pairs(dim, count, seed):
        w1, w2 = torch.as_tensor(first) @ matrix, torch.as_tensor(second) @ matrix
        a = np.concatenate([orbit_products(w1 / 2**k, w2 / 2**k, h) for k, h in enumerate(hops)], axis=1)
        r = np.linalg.norm(first - second, axis=1)
        kernel = np.exp(-r)
        single = np.sqrt(importance / (importance * kernel**2).sum())
        rows.append(group * a * single[:, None])
        targets.append(group * kernel * single)
        mean = importance / (importance * kernel).sum()
        nearest = np.argsort(np.argsort(r)) * BINS // count
        rows.append(group * np.stack([(a * mean[:, None])[nearest == b].sum(axis=0) for b in range(BINS)]))
        targets.append(group * np.bincount(nearest, kernel * mean, BINS))
        products.append(a)
        distances.append(r)
    x, _ = nnls(np.concatenate(rows), np.concatenate(targets), maxiter=10000)
    bounds = np.cumsum([0] + [len(orbits(dim, h)) for h in hops])
    return {
        "dim": dim,
        "spacing": spacing,
        "hops": list(hops),
        "weights": [x[a:b].round(6).tolist() for a, b in pairwise(bounds)],
        "near": fit_near_field(np.concatenate(products), np.concatenate(distances), x, bounds, spacing, hops),
    }


def fit_near_field(products, distances, x, bounds, spacing: float, hops: tuple[int, ...]) -> dict:
    r"""Fits, for each level :math:`\kappa`, the mean of what levels from :math:`\kappa` on give a pair at distance r.

    It is written :math:`\sum_j A_{\kappa j}\, q^{4^j}` with :math:`q = e^{-g r^2}`, g made for the coarsest level.
    """
    coarsest = spacing * 2 ** (len(hops) - 1)
    rate = 1 / (2 * coarsest**2 * (0.85**2 + 5 / 24))
    amplitude = []
    for level in range(1, len(hops)):
        radius = near_radius(spacing, hops, level)
        bins = np.minimum((distances / radius * NEAR_BINS).astype(int), NEAR_BINS)
        count = np.bincount(bins, minlength=NEAR_BINS + 1)[:-1]
        given = np.bincount(bins, products[:, bounds[level] :] @ x[bounds[level] :], NEAR_BINS + 1)[:-1]
        basis = np.exp(-rate * distances[:, None] ** 2 * 4.0 ** np.arange(NEAR_TERMS))
        basis = np.stack([np.bincount(bins, b, NEAR_BINS + 1)[:-1] for b in basis.T], axis=1)
        # Every distance counts the same, but for bins with few pairs, whose mean is uncertain.
        weight = 1 / np.sqrt(np.maximum(count, 1) * (np.maximum(count, 1) + 200.0))
        found = np.linalg.lstsq(basis * weight[:, None], given * weight, rcond=None)[0]
        amplitude.append(found.round(6).tolist())
    return {"rate": round(rate, 9), "amplitude": amplitude}


def fit_separable(dim: int, spacing: float, hops: int, count: int = 1000, seed: int = 0) -> dict:
    """Fits the weights of a separable filter to attention over clouds, missing vertices and all, and the scale of the
    sum that is not normalised to the same."""
    from .numba.filter import separable_rows

    rng = np.random.default_rng(seed)
    clouds = [rng.standard_normal((count, dim)) * s for s in (0.5, 1, 3, 10)]
    clouds.append(rng.standard_normal((6, dim))[rng.integers(0, 6, count)] * 10 + rng.standard_normal((count, dim)))
    values = np.concatenate([rng.standard_normal((count, 7)), np.ones((count, 1))], axis=1)
    exact = [np.exp(-np.linalg.norm(p[:, None] - p[None], axis=-1)) @ values for p in clouds]

    def filtered(logs: np.ndarray) -> list[np.ndarray]:
        weights = np.concatenate([[1.0], np.exp(logs)])
        return [separable_rows(p, values, spacing, weights) for p in clouds]

    def error(logs: np.ndarray) -> float:
        total = 0.0
        for got, want in zip(filtered(logs), exact, strict=True):
            want = want[:, :-1] / want[:, -1:]
            miss = np.linalg.norm(got[:, :-1] / got[:, -1:] - want) / np.linalg.norm(want - want.mean(axis=0))
            total += math.log(0.1 + miss)  # relative, but no cloud is worth more than the others for being easy
        return total

    start = np.log(np.array([0.35 / 3**k for k in range(hops)]))
    best = minimize(error, start, method="Nelder-Mead", options={"maxfev": 150, "xatol": 1e-3, "fatol": 1e-4})
    got, want = np.concatenate(filtered(best.x)), np.concatenate(exact)
    scale = float((got * want).sum() / (got**2).sum())
    weights = [1.0, *np.exp(best.x).round(4).tolist()]
    return {"dim": dim, "spacing": spacing, "weights": weights, "scale": round(scale, 5), "error": float(best.fun)}


def fit_separable_spacing(dim: int) -> dict:
    """The best of several spacings of the paper's filter of width 7."""
    fits = [fit_separable(dim, spacing, 3) for spacing in (0.7, 1.0, 1.4, 2.0, 2.8)]
    return min(fits, key=lambda fit: fit["error"])


def fit_dimension(dim: int) -> dict[str, list[dict]]:
    """The fits of all named schemes in one dimension.  The separable one is not fitted above eight dimensions, where it
    borrows the weights for eight: there is nothing there to fit."""
    schemes = {named_scheme(method, dim) for method in ("lattice", "lattice-fine")}
    wanted = sorted({(s.spacing, s.hops) for s in schemes if isinstance(s, MultiScale)})
    return {
        "multiscale": [fit_multiscale(dim, spacing, hops, 6000 if dim <= 8 else 2000) for spacing, hops in wanted],
        "separable": [fit_separable_spacing(dim)] if dim <= 8 else [],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dims", type=int, nargs="+", default=list(range(1, 17)), help="dimensions to fit (1 to 16)")
    for dim in parser.parse_args().dims:
        fits = json.loads(FILE.read_text()) if FILE.exists() else {"multiscale": [], "separable": []}
        for kind, new in fit_dimension(dim).items():
            kept = [fit for fit in fits[kind] if fit["dim"] != dim]
            fits[kind] = sorted(kept + new, key=lambda fit: (fit["dim"], fit["spacing"], fit.get("hops", 0)))
        temporary = FILE.with_suffix(".tmp")
        temporary.write_text(json.dumps(fits, indent=1) + "\n")
        temporary.replace(FILE)
        print(f"D={dim}: fitted, written to {FILE}", flush=True)


if __name__ == "__main__":
    main()
