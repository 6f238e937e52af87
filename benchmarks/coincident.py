r"""Measures the weight that copies of one point give each other, which is 1 in exact attention.

python benchmarks/coincident.py    # writes benchmarks/results/coincident.json, some seconds

The exact self term corrects a point's weight on itself, not its weight on a copy: there the lattice's own weight counts, which
depends on where in its simplex the point lies.
"""

from __future__ import annotations

import statistics

import common
import torch

import phgcn

PLACES, COPIES = 100, 200
APART = 60.0
"""Distance between places, in units of 1/decay: too far for a stencil to reach."""
METHODS = ("lattice", "lattice-fine", "separable")
DIMENSIONS = (1, 2, 3, 4, 5, 6)


def copy_weights(method: str, dim: int) -> list[float]:
    """The weight between two copies, for each of many places that lie anywhere in their simplices."""
    random = torch.Generator().manual_seed(common.SEED)
    places = torch.rand(PLACES, dim, generator=random, dtype=torch.float64)
    places[:, 0] += APART * torch.arange(PLACES)
    points = places.repeat_interleave(COPIES, dim=0)
    sums = phgcn.permutohedral_filter(points, torch.ones(len(points), 1, dtype=torch.float64), method=method)
    own = 0 if method == "separable" else 1  # its own weight is exact, but in the separable filter
    return ((sums.view(PLACES, COPIES).mean(dim=1) - own) / (COPIES - own)).tolist()


def main() -> None:
    rows = []
    for dim in DIMENSIONS:
        for method in METHODS:
            weights = copy_weights(method, dim)
            about = {"dim": dim, "method": method, "places": PLACES, "copies": COPIES}
            rows.append({**about, "mean": statistics.mean(weights), "least": min(weights), "most": max(weights)})
            print(rows[-1], flush=True)
    common.write_json(common.RESULTS / "coincident.json", {"provenance": common.provenance(), "rows": rows})


if __name__ == "__main__":
    main()
