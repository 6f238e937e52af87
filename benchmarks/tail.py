r"""What an upper bound on the weights of pairs costs: the bound against the error on ordinary clouds, and the time.

    python benchmarks/tail.py            # some minutes
    python benchmarks/tail.py --quick    # one dimension, few points, to see that it works

For each set of levels, weights are fitted without a bound, and so that no pair gets more than some times its true weight.  The
lattice has all its levels, and no near field.  Writes ``benchmarks/results/tail.json``.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import common
import numpy as np
import torch
from common import deviation_error, random_features

import phgcn
from phgcn.lattice import MultiScale
from phgcn.lattice.bounded import FITTED_BOUND, largest_ratio
from phgcn.lattice.fit import fit_multiscale, wide_search
from phgcn.lattice.pairs import Levels

CASES = (
    (4, Levels(0.5, (2, 2, 2, 2)), (None, 8.0, 4.0, FITTED_BOUND)),
    (4, Levels(0.5, (2, 2, 4, 2)), (2.3,)),
    (4, Levels(0.5, (2, 3, 4, 2)), (FITTED_BOUND,)),
    (3, Levels(0.5, (3, 3, 3, 3)), (None, FITTED_BOUND)),
    (3, Levels(0.5, (3, 3, 4, 3)), (FITTED_BOUND,)),
    (4, Levels(0.5, (3, 3, 3, 3), 2), (None, FITTED_BOUND)),
    (4, Levels(0.5, (3, 3, 4, 3), 2), (FITTED_BOUND,)),
    (4, Levels(0.5, (4, 4, 4, 3), 2), (None,)),
    (4, Levels(0.35, (4, 4, 4, 4, 3), 2), (None,)),
    (6, Levels(1.0, (1, 1, 1)), (None, 8.0)),
)
"""Dimension, levels, and bounds of the fit."""

CLOUDS = ("spread 1", "spread 3", "spread 10", "clusters")
COUNT, QUERIES, PAIRS = 20_000, 1000, 2000
DISTANCES = (4.0, 8.0, 12.0)


def mean_ratio(dim: int, levels: Levels, weights: np.ndarray, distance: float) -> float:
    """The mean weight of pairs at a distance over the true one."""
    rng = np.random.default_rng(common.SEED)
    step = rng.standard_normal((1000, dim))
    first = rng.uniform(0, 40, step.shape)
    second = first + step / np.linalg.norm(step, axis=1, keepdims=True) * distance
    return float((levels.products(first, second) @ weights).mean() * math.exp(distance))


def measure(dim: int, levels: Levels, bound: float | None, count: int) -> dict:
    """The largest weight over the true one that a search finds, mean weights of far pairs, errors and times on clouds."""
    fit = fit_multiscale(dim, levels, bound, PAIRS)
    weights = np.concatenate(fit["weights"])
    scheme = MultiScale(levels.spacing, levels.hops, levels.lattices, near_field=0, weights=fit["weights"])
    row: dict = {"dim": dim, "spacing": levels.spacing, "hops": levels.hops, "lattices": levels.lattices, "bound": bound}
    row["worst"] = largest_ratio(wide_search(dim, levels, 1.0), weights, 4000, common.SEED)
    row["mean_ratio"] = {f"{r:g}": mean_ratio(dim, levels, weights, r) for r in DISTANCES}
    row["deviation"], row["seconds"] = {}, {}
    values = random_features(count)
    for name in CLOUDS:
        points = common.cloud(name, count, dim)
        exact = phgcn.global_attention(points, values, decay=1.0, queries=points[:QUERIES], method="exact")
        begin = time.process_time()
        out = phgcn.global_attention(points, values, decay=1.0, method=scheme)
        row["seconds"][name] = time.process_time() - begin
        row["deviation"][name] = deviation_error(out[:QUERIES], exact)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one dimension, few points")
    parser.add_argument("--out", type=Path, default=common.RESULTS / "tail.json", help="where the JSON goes")
    options = parser.parse_args()
    cases = [(1, Levels(0.5, (2, 2, 2)), (None, FITTED_BOUND))] if options.quick else CASES
    about, rows = common.provenance(), []
    points = torch.randn(1000, cases[0][0])
    phgcn.global_attention(points, points, method="lattice")  # compiled before anything is timed
    for dim, levels, bounds in cases:
        for bound in bounds:
            rows.append(measure(dim, levels, bound, 1000 if options.quick else COUNT))
            print(rows[-1], flush=True)
            if not options.quick:
                content = {"provenance": about, "count": COUNT, "rows": rows}
                common.write_json(options.out, content)


if __name__ == "__main__":
    main()
